//! The way to the real server: dialled by the address that was checked, TLS as this host checks it,
//! and the HTTP that the program speaks too.

use super::allowance::{Allowance, Measure, Room};
use super::body::Sent;
use super::passage::{NoCertificate, Passage, Written};
use super::serve::{FIELDS, HEADERS, PATIENCE};
use super::tls::{Protocol, Tls, server_name};
use super::trailers::Trailers;
use super::why;
use crate::flow::{self, Refusal};
use crate::gateway::{Shared, Subject};
use crate::rules;
use hyper::{StatusCode, client};
use hyper_util::rt::{TokioExecutor, TokioIo};
use ringfence_policy::{Decision, Host};
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

/// The way to the real server.
pub(super) enum Upstream {
    Http1(client::conn::http1::SendRequest<Sent>, Allowance),
    Http2(client::conn::http2::SendRequest<Sent>, Allowance),
    /// There is none, which was told, and why.
    Absent(StatusCode, String, Option<Box<Decision>>),
}

pub(super) type Connected = Result<(Upstream, Option<Protocol>), Refusal>;

/// Connects to the real server. What may be under way is a part of `measure`; of HTTP/1 it is told how far a request
/// has come.
pub(super) async fn connect(
    shared: &Shared,
    measure: &Arc<Measure>,
    tls: Option<(&Tls, &[Protocol])>,
    host: &Host,
    (subject, passage): (&mut Subject, &Arc<Passage>),
) -> Connected {
    let credential = rules::injected(&shared.policy(), host, subject.port).is_some();
    let stream = flow::dial(shared, subject, credential).await?;
    let Some((tls, offered)) = tls else {
        return Ok((speak_http1(stream, measure.take(), passage).await?, None));
    };
    let name = server_name(host).map_err(Refusal::Failed)?;
    let failed =
        |why: String| Refusal::Failed(format!("no TLS with {host}:{}: {why}", subject.port));
    let none = Arc::new(NoCertificate(passage.clone()));
    let connector = TlsConnector::from(tls.client(offered, none));
    let stream = tokio::time::timeout(PATIENCE, connector.connect(name, stream))
        .await
        .map_err(|_| failed("no answer".to_owned()))?
        .map_err(|error| failed(passage.explained(why::no_tls(&error, "the server"))))?;
    let protocol = stream.get_ref().1.alpn_protocol().map(|name| Protocol::of(Some(name)));
    let upstream = match protocol {
        Some(Protocol::Http2) => speak_http2(stream, measure.take()).await?,
        _ => speak_http1(stream, measure.take(), passage).await?,
    };
    Ok((upstream, protocol))
}

fn no_http(error: hyper::Error) -> Refusal {
    Refusal::Failed(format!("no HTTP: {}", reason(&error)))
}

/// Begins to speak HTTP/1 with the real server.
async fn speak_http1<S>(
    stream: S,
    allowance: Allowance,
    passage: &Arc<Passage>,
) -> Result<Upstream, Refusal>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = client::conn::http1::Builder::new();
    builder.max_buf_size(allowance.room().buffer).max_headers(FIELDS);
    let stream = TokioIo::new(Written::new(stream, passage.clone()));
    let (sender, driver) = builder.handshake(stream).await.map_err(no_http)?;
    tokio::spawn(driver.with_upgrades());
    Ok(Upstream::Http1(sender, allowance))
}

/// The same in HTTP/2.
async fn speak_http2<S>(stream: S, allowance: Allowance) -> Result<Upstream, Refusal>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Room { window, stream: each, send, trailers, .. } = allowance.room();
    let mut builder = client::conn::http2::Builder::new(TokioExecutor::new());
    builder
        .initial_stream_window_size(each)
        .initial_connection_window_size(window)
        .max_send_buf_size(send)
        .max_header_list_size(HEADERS);
    // The answers that it breaks off are told.
    let stream = TokioIo::new(Trailers::new(stream, trailers, 0, |_: &str| {}));
    let (sender, driver) = builder.handshake(stream).await.map_err(no_http)?;
    tokio::spawn(driver);
    Ok(Upstream::Http2(sender, allowance))
}

impl Upstream {
    /// What the program's side of the connection may have under way.
    pub const fn room(&self) -> Room {
        match self {
            Upstream::Http1(_, allowance) | Upstream::Http2(_, allowance) => allowance.room(),
            Upstream::Absent(..) => Room::LEAST,
        }
    }

    /// Whether there is none.
    pub const fn is_absent(&self) -> bool {
        matches!(self, Upstream::Absent(..))
    }

    /// Whether the server has closed it.
    pub async fn ended(&mut self) -> bool {
        match self {
            Upstream::Http1(sender, _) => sender.ready().await.is_err(),
            Upstream::Http2(sender, _) => sender.ready().await.is_err(),
            Upstream::Absent(..) => false,
        }
    }
}

/// Whether a server says that it has taken nothing of a request, so that it may be sent again (RFC 9113 §8.7): by a refused
/// stream, or by a last one before this.
pub(super) fn not_taken(error: &hyper::Error) -> bool {
    let cause =
        std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| {
        let refused = cause.is_reset() && cause.reason() == Some(h2::Reason::REFUSED_STREAM);
        cause.is_remote() && (refused || cause.is_go_away())
    })
}

/// Whether a server says that it takes a request by HTTP/1.1 alone (RFC 9113 §7).
pub(super) fn wants_http1(error: &hyper::Error) -> bool {
    let cause =
        std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| {
        cause.is_remote() && cause.reason() == Some(h2::Reason::HTTP_1_1_REQUIRED)
    })
}

/// An engine's error in words for people: the other side's, or the connection's, where one of them is behind it.
pub(super) fn reason(error: &hyper::Error) -> String {
    let mut cause = std::error::Error::source(error);
    if error.is_user() && cause.is_some() {
        return "the program's request broke off".to_owned();
    }
    while let Some(behind) = cause {
        if let Some(error) = behind.downcast_ref::<h2::Error>() {
            return spoken(error);
        }
        if let Some(error) = behind.downcast_ref::<io::Error>() {
            return broken(error);
        }
        cause = behind.source();
    }
    if error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
        return ENDED.to_owned();
    }
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// What is said of a server that is gone before it has said all.
const ENDED: &str = "the server ended the connection too early";

fn broken(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => ENDED.to_owned(),
        _ => flow::io_text(error),
    }
}

/// What an error of HTTP/2 says: who ended what, and the reason by its name in the standard (RFC 9113 §7).
fn spoken(error: &h2::Error) -> String {
    if let Some(error) = error.get_io() {
        return broken(error);
    }
    let Some(reason) = error.reason() else { return error.to_string() };
    match (error.is_remote(), error.is_reset()) {
        (true, true) => format!("the server reset the request's stream ({reason:?})"),
        (true, false) => format!("the server ended the connection ({reason:?})"),
        (false, _) => format!("what the server says is no HTTP/2 ({reason:?})"),
    }
}
