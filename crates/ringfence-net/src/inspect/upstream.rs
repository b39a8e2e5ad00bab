//! The way to the real server: dialled by the address that was checked, TLS as this host checks it,
//! and the HTTP that the program speaks too.

use super::body::Sent;
use super::serve::{CONNECTION_WINDOW, HEADERS, PATIENCE, STREAM_WINDOW};
use super::tls::{Protocol, Tls, server_name};
use crate::flow::{self, Refusal};
use crate::gateway::{Shared, Subject};
use hyper::{StatusCode, client};
use hyper_util::rt::{TokioExecutor, TokioIo};
use ringfence_policy::{Decision, Host};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

/// The way to the real server.
pub(super) enum Upstream {
    Http1(client::conn::http1::SendRequest<Sent>),
    Http2(client::conn::http2::SendRequest<Sent>),
    /// There is none, and why.
    Absent(StatusCode, String, Option<Box<Decision>>),
}

pub(super) type Connected = Result<(Upstream, Option<Protocol>), Refusal>;

/// Connects to the real server.
pub(super) async fn connect(
    shared: &Shared,
    tls: Option<(&Tls, &[Protocol])>,
    host: &Host,
    subject: &mut Subject,
) -> Connected {
    let stream = flow::dial(shared, subject).await?;
    let Some((tls, offered)) = tls else {
        return Ok((speak(Protocol::Http1, stream).await?, None));
    };
    let name = server_name(host).map_err(Refusal::Failed)?;
    let failed =
        |why: String| Refusal::Failed(format!("no TLS with {host}:{}: {why}", subject.port));
    let connector = TlsConnector::from(tls.client(offered));
    let stream = tokio::time::timeout(PATIENCE, connector.connect(name, stream))
        .await
        .map_err(|_| failed("no answer".to_owned()))?
        .map_err(|error| failed(flow::io_text(&error)))?;
    let protocol = stream.get_ref().1.alpn_protocol().map(|name| Protocol::of(Some(name)));
    let upstream = speak(protocol.unwrap_or(Protocol::Http1), stream).await?;
    Ok((upstream, protocol))
}

/// Begins to speak HTTP with the real server.
async fn speak<S>(protocol: Protocol, stream: S) -> Result<Upstream, Refusal>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let failed = |error: hyper::Error| Refusal::Failed(format!("no HTTP: {error}"));
    let stream = TokioIo::new(stream);
    match protocol {
        Protocol::Http1 => {
            let builder = client::conn::http1::Builder::new();
            let (sender, driver) = builder.handshake(stream).await.map_err(failed)?;
            tokio::spawn(driver.with_upgrades());
            Ok(Upstream::Http1(sender))
        }
        Protocol::Http2 => {
            let mut builder = client::conn::http2::Builder::new(TokioExecutor::new());
            builder
                .initial_stream_window_size(STREAM_WINDOW)
                .initial_connection_window_size(CONNECTION_WINDOW)
                .max_header_list_size(HEADERS);
            let (sender, driver) = builder.handshake(stream).await.map_err(failed)?;
            tokio::spawn(driver);
            Ok(Upstream::Http2(sender))
        }
    }
}

impl Upstream {
    /// Whether the server has closed it.
    pub async fn ended(&mut self) -> bool {
        match self {
            Upstream::Http1(sender) => sender.ready().await.is_err(),
            Upstream::Http2(sender) => sender.ready().await.is_err(),
            Upstream::Absent(..) => false,
        }
    }
}
