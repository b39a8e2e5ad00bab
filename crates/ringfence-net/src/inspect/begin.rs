//! How an inspected connection begins, and what is told of its end: what the program says first, the way to the
//! server, TLS on both sides.

use super::Inspection;
use super::request::Place;
use super::serve::{Link, PATIENCE, http1, http2};
use super::tls::Protocol;
use super::upstream::{Connected, Upstream, connect};
use super::why;
use super::wire::Prefixed;
use crate::decision::Event;
use crate::first::{self, First};
use crate::flow::{self, Refusal};
use crate::gateway::{Shared, Subject};
use crate::proxy;
use hyper::StatusCode;
use ringfence_policy::{Host, shown};
use std::sync::Arc;
use std::time::Instant;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_rustls::LazyConfigAcceptor;

/// Serves a connection from its beginning to its end. `early` holds what was read from the client
/// already.
pub(crate) async fn connection(
    shared: &Arc<Shared>,
    inspection: &Arc<Inspection>,
    mut subject: Subject,
    client: TcpStream,
    early: Vec<u8>,
) {
    let _turn = inspection.measure.turn().await;
    let begun = Instant::now();
    let ended = look(shared, inspection, &mut subject, client, early).await;
    // One that has come to nothing has been told, or is now, and has no end besides.
    match ended {
        Ok(Some(link)) => {
            let (sent, received) = link.carried();
            subject
                .tell(shared, flow::ended_as(link.refused.get().cloned(), sent, received, begun));
        }
        Ok(None) => {}
        Err(refusal) => drop(flow::tell(shared, &subject, refusal)),
    }
}

/// Looks at a connection's requests until it ends; what it was, unless it has been told already how it failed.
async fn look(
    shared: &Arc<Shared>,
    inspection: &Arc<Inspection>,
    subject: &mut Subject,
    mut client: TcpStream,
    early: Vec<u8>,
) -> Result<Option<Arc<Link>>, Refusal> {
    let silent = || Refusal::Failed("the program did not say what it wants".to_owned());
    let heard = tokio::time::timeout(PATIENCE, hear(&mut client, early)).await;
    let (first, early) = heard.map_err(|_| silent())?.map_err(|_| silent())?;
    let host = match fits(subject, &first) {
        Ok(host) => host,
        Err(why) => {
            match refusal(&first, &early) {
                // Told first: who reads the answer may look for it.
                Some(status) => {
                    let why = flow::tell(shared, subject, Refusal::Denied(why));
                    let _ = proxy::plain(&mut client, status, &why).await;
                    return Ok(None);
                }
                None => flow::reset(&client),
            }
            return Err(Refusal::Denied(why));
        }
    };
    subject.named = Some(host.clone());
    let client = Prefixed::new(client, early);
    let measure = &inspection.measure;
    let secure = matches!(first, First::Tls { .. });
    let place = Place { host, port: subject.port, secure };
    let passage = Arc::default();
    if !secure {
        let connected = connect(shared, measure, None, &place.host, (subject, &passage)).await;
        let (upstream, _) = reached(shared, subject, connected, &[]);
        let failed = upstream.is_absent();
        let link = Link::new((shared, inspection), subject, place, None, upstream, passage);
        http1(&link, client).await;
        return Ok((!failed).then_some(link));
    }
    let no_tls = |error: String| {
        Refusal::Failed(format!("no TLS with the program for {}: {error}", place.host))
    };
    let no_answer = || no_tls("no answer".to_owned());
    let Some(tls) = inspection.tls.get() else {
        return Err(no_tls("the session has no authority for certificates".to_owned()));
    };
    let accepted = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), client);
    let started = tokio::time::timeout(PATIENCE, accepted).await.map_err(|_| no_answer())?;
    let started = started.map_err(|error| no_tls(why::no_tls(&error, "the program")))?;
    let names = started.client_hello().alpn().map(Iterator::collect::<Vec<_>>);
    let offered = Protocol::offered(names.iter().flatten().copied());
    let tls_to = Some((tls, offered.as_slice()));
    let wanted = connect(shared, measure, tls_to, &place.host, (subject, &passage));
    // Who is gone took no part in TLS, and has said nothing yet.
    let connected = shared.leaving.before(wanted).await.ok_or_else(flow::ended)?;
    let (upstream, protocol) = reached(shared, subject, connected, &offered);
    let failed = upstream.is_absent();
    let accepted = async {
        let config = tls.server(&place.host, protocol).map_err(Refusal::Failed)?;
        let accepted = tokio::time::timeout(PATIENCE, started.into_stream(config)).await;
        accepted.map_err(|_| no_answer())?.map_err(|error| {
            Refusal::Failed(format!(
                "the program does not take the session's certificate for {}: {}",
                place.host,
                why::no_tls(&error, "the program")
            ))
        })
    };
    let client = match accepted.await {
        Ok(client) => client,
        Err(_) if failed => return Ok(None),
        Err(refusal) => return Err(refusal),
    };
    let link = Link::new((shared, inspection), subject, place, Some(offered), upstream, passage);
    match protocol {
        Some(Protocol::Http2) => http2(&link, client).await,
        _ => http1(&link, client).await,
    }
    Ok((!failed).then_some(link))
}

/// Reads until it is clear what the program speaks.
async fn hear(client: &mut TcpStream, mut early: Vec<u8>) -> std::io::Result<(First, Vec<u8>)> {
    let mut buffer = [0; 4096];
    loop {
        match first::first(&early) {
            First::More | First::Word if early.len() < first::MOST => {}
            first => return Ok((first, early)),
        }
        match client.read(&mut buffer).await? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            count => early.extend_from_slice(&buffer[..count]),
        }
    }
}

/// The status of the answer to what does not fit, where it has the form of HTTP.
fn refusal(first: &First, early: &[u8]) -> Option<&'static str> {
    match first {
        First::Http { .. } => Some("403 Forbidden"),
        First::Broken(_) => {
            let begun = early.iter().find(|byte| !matches!(byte, b'\r' | b'\n'));
            begun.is_some_and(u8::is_ascii_alphabetic).then_some("400 Bad Request")
        }
        _ => None,
    }
}

/// Whether what the program says fits what was granted; as which host it is meant.
fn fits(subject: &Subject, first: &First) -> Result<Host, String> {
    let host = &subject.host;
    let named = match first {
        // A hidden name is no matter: TLS ends here, for the one that shows, and nobody looks for another (RFC 9849
        // §6.1.6). Browsers send what looks like one to every host.
        First::Tls { name, .. } | First::Http { host: name, .. } => name,
        First::Broken(what) => return Err(format!("the client of {host} sent {what}")),
        First::More | First::Word | First::Watch | First::Like { .. } | First::Other => {
            return Err(format!(
                "the client of {host} speaks neither TLS nor HTTP, and rules allow requests only; \
                 to allow anything: {} without --http and --inject",
                shown::allow_host(&format!("{host}:{}", subject.port))
            ));
        }
    };
    match (host, named) {
        (Host::Name(name), None) if name != "localhost" && matches!(first, First::Tls { .. }) => {
            Err(format!(
                "the TLS client of {host} names no server (SNI), so that it cannot be checked"
            ))
        }
        (_, None) => Ok(host.clone()),
        (_, Some(named)) if named == host => Ok(host.clone()),
        (_, Some(named)) if named.is_loopback() && host.is_loopback() => Ok(named.clone()),
        (_, Some(named)) => Err(first::another(first, host, named)),
    }
}

/// Tells how connecting went. Without a server the program is still answered, readably, in a
/// protocol that it offers.
fn reached(
    shared: &Shared,
    subject: &Subject,
    connected: Connected,
    offered: &[Protocol],
) -> (Upstream, Option<Protocol>) {
    match connected {
        Ok(connected) => {
            subject.tell(shared, Event::Allowed);
            connected
        }
        Err(refusal) => {
            let (status, decision) = match &refusal {
                Refusal::Denied(_) => {
                    (StatusCode::FORBIDDEN, subject.decision.clone().map(Box::new))
                }
                Refusal::Failed(_) => (StatusCode::BAD_GATEWAY, None),
            };
            let why = flow::tell(shared, subject, refusal);
            let protocol = offered.iter().copied().min_by_key(|one| *one != Protocol::Http1);
            (Upstream::Absent(status, why, decision), protocol)
        }
    }
}
