//! One inspected connection: the program on one side, the real server on the other, HTTP/1.1 on
//! both or HTTP/2 on both, and each request judged in between.

use super::Inspection;
use super::allowance::Room;
use super::body::{Answer, Received, Sent, drain, tunnel};
use super::exchange::Ending;
use super::model::Scanner;
use super::passage::Passage;
use super::request::{self, Place, Refused};
use super::tls::Protocol;
use super::upstream::{Connected, Upstream, connect, reason};
use super::wire::{Prefixed, Strict};
use crate::decision::{Event, NetDecision};
use crate::first::{self, First};
use crate::flow::{self, Refusal};
use crate::gateway::{Shared, Subject};
use crate::leaving;
use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::{Body, Incoming};
use hyper::ext::ReasonPhrase;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Uri, Version, server};
use hyper_util::rt::{TokioExecutor, TokioIo};
use ringfence_policy::{Decision, Host};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_rustls::LazyConfigAcceptor;

/// How long a program may take to say what it wants, and a server to speak TLS.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// The most bytes of an HTTP/2 request's headers.
pub(super) const HEADERS: u32 = 64 * 1024;

/// A connection that is looked at.
pub(super) struct Link {
    shared: Arc<Shared>,
    inspection: Arc<Inspection>,
    subject: Subject,
    place: Place,
    /// What the program's TLS offered; nothing without TLS.
    offered: Option<Vec<Protocol>>,
    upstream: Mutex<Upstream>,
    /// How far the request has come that is under way, of HTTP/1.
    pub passage: Arc<Passage>,
    /// The server has changed the protocol.
    changed: Arc<AtomicBool>,
    /// What is spoken since.
    tunnel: Mutex<Option<JoinHandle<()>>>,
    sent: AtomicU64,
    received: AtomicU64,
}

/// Serves a connection from its beginning to its end. `early` holds what was read from the client
/// already.
pub(crate) async fn connection(
    shared: &Arc<Shared>,
    inspection: &Arc<Inspection>,
    mut subject: Subject,
    mut client: TcpStream,
    early: Vec<u8>,
) {
    let _turn = inspection.measure.turn().await;
    let begun = Instant::now();
    let heard = tokio::time::timeout(PATIENCE, hear(&mut client, early)).await;
    let (first, early) = match heard {
        Ok(Ok(heard)) => heard,
        // It went away, or never said what it wanted.
        Ok(Err(_)) | Err(_) => return,
    };
    let named = match fits(shared, &subject, &first) {
        Ok(named) => named,
        Err(why) => {
            flow::tell(shared, &subject, Refusal::Denied(why));
            flow::reset(&client);
            return;
        }
    };
    let client = Prefixed::new(client, early);
    let measure = &inspection.measure;
    let secure = matches!(first, First::Tls { .. });
    let place = Place { host: named, port: subject.port, secure };
    let passage = Arc::<Passage>::default();
    let link = |upstream, offered, subject| {
        Arc::new(Link {
            shared: shared.clone(),
            inspection: inspection.clone(),
            subject,
            place: place.clone(),
            offered,
            upstream: Mutex::new(upstream),
            passage: passage.clone(),
            changed: Arc::default(),
            tunnel: Mutex::default(),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
        })
    };
    let link = if secure {
        let Some(tls) = inspection.tls.get() else { return };
        let accepted = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), client);
        let Ok(Ok(started)) = tokio::time::timeout(PATIENCE, accepted).await else { return };
        let names = started.client_hello().alpn().map(Iterator::collect::<Vec<_>>);
        let offered = Protocol::offered(names.iter().flatten().copied());
        let tls_to = Some((tls, offered.as_slice()));
        let wanted = connect(shared, measure, tls_to, &place.host, (&mut subject, &passage));
        // Who is gone took no part in TLS, and has said nothing yet.
        let Some(connected) = shared.leaving.before(wanted).await else {
            flow::tell(shared, &subject, flow::ended());
            return;
        };
        let (upstream, protocol) = reached(shared, &subject, connected, &offered);
        let config = match tls.server(&place.host, protocol) {
            Ok(config) => config,
            Err(why) => {
                flow::tell(shared, &subject, Refusal::Failed(why));
                return;
            }
        };
        let accepted = tokio::time::timeout(PATIENCE, started.into_stream(config)).await;
        let client = match accepted {
            Ok(Ok(client)) => client,
            Ok(Err(error)) => {
                let why = format!(
                    "the program does not take the session's certificate for {}: {error}",
                    place.host
                );
                flow::tell(shared, &subject, Refusal::Failed(why));
                return;
            }
            Err(_) => return,
        };
        let link = link(upstream, Some(offered), subject);
        match protocol {
            Some(Protocol::Http2) => http2(&link, client).await,
            _ => http1(&link, client).await,
        }
        link
    } else {
        let to = (&mut subject, &passage);
        let connected = connect(shared, measure, None, &place.host, to).await;
        let (upstream, _) = reached(shared, &subject, connected, &[]);
        let link = link(upstream, None, subject);
        http1(&link, client).await;
        link
    };
    let event = Event::Closed {
        sent: link.sent.load(Relaxed),
        received: link.received.load(Relaxed),
        duration: begun.elapsed(),
    };
    link.subject.tell(shared, event);
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

/// Whether what the program says fits what was granted; as which host it is meant.
fn fits(shared: &Shared, subject: &Subject, first: &First) -> Result<Host, String> {
    let host = &subject.host;
    let named = match first {
        // Behind an encrypted name anything may be meant: no rule about every name helps here,
        // where this one host is looked at.
        First::Tls { hidden: true, .. } => {
            return Err(format!(
                "the TLS client of {host} uses Encrypted Client Hello, and its requests are to \
                 be looked at; switch it off"
            ));
        }
        First::Tls { name, .. } | First::Http { host: name } => name,
        First::Broken(what) => return Err(format!("the client of {host} sent {what}")),
        First::More | First::Word | First::Other => {
            return Err(format!(
                "the client of {host} speaks neither TLS nor HTTP, and rules allow requests only; \
                 to allow anything: --allow-host {host}:{} without --http and --inject",
                subject.port
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
        (_, Some(named)) => {
            let _ = shared;
            Err(format!("the client connected to {host} and then asked for {named}"))
        }
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

async fn http1<S>(link: &Arc<Link>, stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let buffer = link.upstream.lock().await.room().buffer;
    let mut builder = server::conn::http1::Builder::new();
    builder.half_close(true).auto_date_header(false).max_buf_size(buffer);
    let service = service_fn(|request| answer(link.clone(), request));
    let stream = TokioIo::new(Strict::new(stream, link.changed.clone()));
    let served = builder.serve_connection(stream, service).with_upgrades();
    // Whoever has asked and is gone does not hear the answer.
    let unheard = async {
        link.shared.leaving.begun().await;
        link.passage.passed().await;
    };
    let _ = leaving::before(served, unheard).await;
    // It is the same connection still.
    if let Some(tunnel) = link.tunnel.lock().await.take() {
        let _ = tunnel.await;
    }
}

async fn http2<S>(link: &Arc<Link>, stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Room { window, stream: each, send, streams, .. } = link.upstream.lock().await.room();
    let mut builder = server::conn::http2::Builder::new(TokioExecutor::new());
    builder
        .initial_stream_window_size(each)
        .initial_connection_window_size(window)
        .max_send_buf_size(send)
        .max_concurrent_streams(streams)
        .max_header_list_size(HEADERS)
        .auto_date_header(false);
    let own = link.clone();
    let service = service_fn(move |request| answer(own.clone(), request));
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

/// Judges a request, sends it on, and passes the answer back.
async fn answer(
    link: Arc<Link>,
    request: Request<Incoming>,
) -> Result<Response<Answer>, Infallible> {
    let path = request.uri().path().to_owned();
    let mut ending = Ending::new(link.clone(), request.method().to_string(), path);
    match link.exchange(request, &mut ending).await {
        Ok(Passed::Answer(parts, body)) => {
            Ok(Response::from_parts(parts, Either::Left(Received::new(body, ending))))
        }
        Ok(Passed::Switched(parts, program, server)) => {
            let shared = link.shared.clone();
            let tunnel = async move { tunnel(program, server, ending, &shared.leaving).await };
            let tunnel = tokio::spawn(tunnel);
            *link.tunnel.lock().await = Some(tunnel);
            Ok(Response::from_parts(parts, Either::Right(Full::default())))
        }
        Err((status, refused)) => Ok(refusal(status, refused, &mut ending)),
    }
}

/// What came of a request that was sent on.
enum Passed {
    Answer(hyper::http::response::Parts, Incoming),
    /// Another protocol from here on.
    Switched(hyper::http::response::Parts, hyper::upgrade::OnUpgrade, hyper::upgrade::OnUpgrade),
}

/// A readable refusal.
fn refusal(status: StatusCode, refused: Refused, ending: &mut Ending) -> Response<Answer> {
    let remedy = refused.decision.as_ref().and_then(|decision| decision.remedy.as_ref());
    let text = match remedy {
        Some(remedy) => format!("ringfence: {}; to allow it: {remedy}\n", refused.why),
        None => format!("ringfence: {}\n", refused.why),
    };
    ending.refused(status.as_u16(), &refused.why, refused.decision.map(|decision| *decision));
    let mut response = Response::new(Either::Right(Full::new(Bytes::from(text))));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

impl Link {
    async fn exchange(
        &self,
        request: Request<Incoming>,
        ending: &mut Ending,
    ) -> Result<Passed, (StatusCode, Refused)> {
        let (mut parts, body) = request.into_parts();
        let websocket = parts.version == Version::HTTP_11 && request::websocket(&parts.headers);
        let path = match request::judge(&self.shared.policy(), &self.place, &mut parts) {
            Ok(path) => path,
            Err(refused) => {
                tokio::spawn(drain(body));
                return Err((StatusCode::FORBIDDEN, refused));
            }
        };
        let Place { host, port, secure } = &self.place;
        let injected = self.inspection.secrets.inject(host, *port, *secure, &mut parts.headers);
        ending.model = Scanner::of(host, parts.method.as_str(), &path);
        if ending.model.is_some() {
            // What is compressed cannot be read along.
            parts.headers.remove(header::ACCEPT_ENCODING);
        }
        if let Some(exchange) = ending.exchange() {
            exchange.path = path;
            exchange.injected = injected.iter().map(|name| name.as_str().to_owned()).collect();
        }
        let switch = websocket.then(|| {
            parts.headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
            parts.headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
            parts.extensions.remove::<hyper::upgrade::OnUpgrade>()
        });
        parts.version = Version::HTTP_11;
        let request = Request::from_parts(parts, Sent::new(body, ending));
        let mut response = self.send(request).await?;
        if let Some(exchange) = ending.exchange() {
            exchange.status = Some(response.status().as_u16());
        }
        self.redact(response.headers_mut());
        // A sentence of the server's own, in which anything can be: the status is enough.
        response.extensions_mut().remove::<ReasonPhrase>();
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let server = hyper::upgrade::on(&mut response);
            let Some(Some(program)) = switch else {
                let why = "the server changes to a protocol that was not asked for".to_owned();
                return Err((StatusCode::BAD_GATEWAY, Refused { why, decision: None }));
            };
            self.changed.store(true, Relaxed);
            return Ok(Passed::Switched(response.into_parts().0, program, server));
        }
        request::clean(response.headers_mut());
        let (mut parts, body) = response.into_parts();
        parts.version = Version::HTTP_11;
        Ok(Passed::Answer(parts, body))
    }

    /// Sends a request to the real server; over a new connection, when the server has closed the
    /// one there was before it could take anything of it.
    async fn send(
        &self,
        mut request: Request<Sent>,
    ) -> Result<Response<Incoming>, (StatusCode, Refused)> {
        let failed = |why: String| {
            let why = format!("{}: {why}", self.place.authority());
            (StatusCode::BAD_GATEWAY, Refused { why, decision: None })
        };
        for again in [true, false] {
            let mut upstream = self.upstream.lock().await;
            if again && upstream.ended().await {
                self.reconnect(&mut upstream).await.map_err(failed)?;
            }
            let sent = match &mut *upstream {
                Upstream::Absent(status, why, decision) => {
                    let refused = Refused { why: why.clone(), decision: decision.clone() };
                    tokio::spawn(drain(request.into_body()));
                    return Err((*status, refused));
                }
                Upstream::Http1(sender, _) => {
                    frame(&mut request);
                    self.passage.begin();
                    if request.body().is_end_stream() {
                        self.passage.taken();
                    }
                    sender.try_send_request(request).await
                }
                Upstream::Http2(sender, _) => {
                    let mut sender = sender.clone();
                    drop(upstream);
                    let request = self.absolute(request).map_err(failed)?;
                    sender.try_send_request(request).await
                }
            };
            let mut error = match sent {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            match error.take_message().filter(|_| again) {
                Some(unsent) => request = unsent,
                None => return Err(failed(reason(&error.into_error()))),
            }
            let mut upstream = self.upstream.lock().await;
            self.reconnect(&mut upstream).await.map_err(failed)?;
        }
        Err(failed("the server closes every connection".to_owned()))
    }

    /// HTTP/2 names the host in the target (RFC 9113 §8.3.1).
    fn absolute(&self, request: Request<Sent>) -> Result<Request<Sent>, String> {
        let (mut parts, body) = request.into_parts();
        let host = parts.headers.remove(header::HOST);
        parts.headers.remove(header::TRANSFER_ENCODING);
        if let Some(host) = host.as_ref().and_then(|host| host.to_str().ok()) {
            let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
            let uri = Uri::builder().scheme("https").authority(host).path_and_query(path);
            parts.uri = uri.build().map_err(|error| error.to_string())?;
        }
        parts.version = Version::HTTP_2;
        Ok(Request::from_parts(parts, body))
    }

    async fn reconnect(&self, upstream: &mut Upstream) -> Result<(), String> {
        let mut subject = self.subject.clone();
        let tls = self.inspection.tls.get();
        let tls = self.offered.as_deref().and_then(|offered| Some((tls?, offered)));
        let measure = &self.inspection.measure;
        let to = (&mut subject, &self.passage);
        let connected = connect(&self.shared, measure, tls, &self.place.host, to).await;
        let (new, _) = connected.map_err(|refusal| match refusal {
            Refusal::Denied(why) | Refusal::Failed(why) => why,
        })?;
        *upstream = new;
        Ok(())
    }

    /// Takes out of the trailers of a program's request what was judged, or put in, before its body.
    pub fn clean_trailers(&self, trailers: &mut HeaderMap) {
        request::clean_trailers(trailers);
        self.inspection.secrets.clear(&self.place.host, self.place.port, trailers);
    }

    pub fn redact(&self, headers: &mut HeaderMap) {
        self.inspection.secrets.redact(&self.place.host, self.place.port, headers);
    }

    pub fn count(&self, sent: u64, received: u64) {
        self.sent.fetch_add(sent, Relaxed);
        self.received.fetch_add(received, Relaxed);
    }

    pub fn tell(&self, event: Event, decision: Option<Decision>) {
        let decision = NetDecision {
            id: self.subject.id,
            way: self.subject.way,
            host: self.subject.host.clone(),
            port: self.subject.port,
            address: self.subject.address,
            process: None,
            event,
            decision: decision.or_else(|| self.subject.decision.clone()),
        };
        self.subject.process.tell(&self.shared, decision);
    }
}

/// Says how a body of unknown length ends: the engine would take it that GET has none.
fn frame(request: &mut Request<Sent>) {
    let body = request.body();
    let known = body.is_end_stream() || body.size_hint().exact().is_some();
    if !known && !request.headers().contains_key(header::CONTENT_LENGTH) {
        let chunked = HeaderValue::from_static("chunked");
        request.headers_mut().insert(header::TRANSFER_ENCODING, chunked);
    }
}
