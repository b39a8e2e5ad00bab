//! One inspected connection: the program on one side, the real server on the other, HTTP/1.1 on
//! both or HTTP/2 on both, and each request judged in between. How it begins: [`super::begin`].

use super::Inspection;
use super::allowance::Room;
use super::body::{Answer, Received, Sent, drain, tunnel};
use super::exchange::Ending;
use super::expected::{self, Asked};
use super::heads::{Head, Heads, TooMuch};
use super::model::Scanner;
use super::passage::Passage;
use super::request::{self, Place, Refused};
use super::tls::Protocol;
use super::trailers::{PREFACE, Trailers};
use super::unread::{UNREAD, Unread};
use super::upstream::{Upstream, connect, not_taken, reason, wants_http1};
use super::wire::{REFUSED, Strict};
use crate::decision::{Event, Exchange, Injection};
use crate::flow::Refusal;
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
use ringfence_policy::Decision;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

/// How long a program may take to say what it wants, and a server to speak TLS.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// The most bytes of an HTTP/2 request's headers.
pub(super) const HEADERS: u32 = 64 * 1024;
/// The most fields of an HTTP/1 head; how many bytes those may have is said elsewhere.
pub(super) const FIELDS: usize = 512;
/// Stands for the server's word that it takes a request by HTTP/1.1 alone: the program is told in the server's way, and may
/// ask again so.
const BY_HTTP1: StatusCode = StatusCode::HTTP_VERSION_NOT_SUPPORTED;
/// How often a request is sent again that the server says it has not taken (RFC 9113 §8.7).
const AGAIN: usize = 2;

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
    /// Why the program's next request was none that could be looked at.
    pub refused: Arc<OnceLock<String>>,
    /// What is spoken since the protocol changed.
    tunnel: Mutex<Option<JoinHandle<()>>>,
    sent: AtomicU64,
    received: AtomicU64,
}

pub(super) async fn http1<S>(link: &Arc<Link>, stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let buffer = link.upstream.lock().await.room().buffer;
    let mut builder = server::conn::http1::Builder::new();
    builder.half_close(true).auto_date_header(false).max_buf_size(buffer).max_headers(FIELDS);
    let service = service_fn(|request| answer(link.clone(), request, Ok(None)));
    let stream = TokioIo::new(Strict::new(stream, link.changed.clone(), link.refused.clone()));
    let served = builder.serve_connection(stream, service).with_upgrades();
    // Whoever has asked and is gone does not hear the answer.
    let unheard = async {
        link.shared.leaving.begun().await;
        link.passage.passed().await;
    };
    if let Some(Err(error)) = leaving::before(served, unheard).await
        && error.is_parse()
    {
        // Answered by the engine itself, without a word.
        let _ = link.refused.set(format!("a request that cannot be read ({error})"));
    }
    // It is the same connection still.
    if let Some(tunnel) = link.tunnel.lock().await.take() {
        let _ = tunnel.await;
    }
}

pub(super) async fn http2<S>(link: &Arc<Link>, stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let room = link.upstream.lock().await.room();
    let Room { window, stream: each, send, streams, trailers, .. } = room;
    let mut builder = server::conn::http2::Builder::new(TokioExecutor::new());
    builder
        .initial_stream_window_size(each)
        .initial_connection_window_size(window)
        .max_send_buf_size(send)
        .max_concurrent_streams(streams)
        .max_header_list_size(HEADERS)
        .auto_date_header(false);
    let (own, heads) = (link.clone(), Heads::new(room));
    let service = service_fn(move |mut request: Request<Incoming>| {
        // At once: what is too much is let go of before more is read.
        let brings = !request.body().is_end_stream();
        let head = heads.request(request.uri(), request.headers(), brings).map(Some);
        if head.is_err() {
            *request.headers_mut() = HeaderMap::new();
        }
        answer(own.clone(), request, head)
    });
    let (own, measured) = (link.clone(), link.clone());
    let stream = Unread::new(stream, move || own.unread(UNREAD));
    let stream = Trailers::new(stream, trailers, PREFACE, move |why| measured.unread(why));
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

/// Judges a request, sends it on, and passes the answer back.
async fn answer(
    link: Arc<Link>,
    request: Request<Incoming>,
    head: Result<Option<Head>, TooMuch>,
) -> Result<Response<Answer>, h2::Error> {
    if let Some(why) = link.refused.get().filter(|_| request.method() == REFUSED) {
        // Told as the connection's end.
        return Ok(readable(StatusCode::BAD_REQUEST, format!("ringfence: {why}\n")));
    }
    let path = request.uri().path().to_owned();
    let mut ending = Ending::new(link.clone(), request.method().to_string(), path);
    let http2 = request.version() == Version::HTTP_2;
    match head {
        Ok(head) => ending.head = head,
        Err((status, why)) => {
            tokio::spawn(drain(request.into_body()));
            return Ok(refusal(status, Refused { why, decision: None }, &mut ending));
        }
    }
    match link.exchange(request, &mut ending).await {
        Ok(Passed::Answer(parts, body, asked)) => {
            Ok(Response::from_parts(parts, Either::Left(Received::new(body, ending, asked))))
        }
        Ok(Passed::Switched(parts, program, server)) => {
            let shared = link.shared.clone();
            let tunnel = async move { tunnel(program, server, ending, &shared.leaving).await };
            let tunnel = tokio::spawn(tunnel);
            *link.tunnel.lock().await = Some(tunnel);
            Ok(Response::from_parts(parts, Either::Right(Full::default())))
        }
        Err((BY_HTTP1, refused)) => {
            let answer = refusal(StatusCode::BAD_GATEWAY, refused, &mut ending);
            if !http2 {
                return Ok(answer);
            }
            if let Some(exchange) = ending.exchange() {
                exchange.status = None;
            }
            Err(h2::Reason::HTTP_1_1_REQUIRED.into())
        }
        Err((status, refused)) => Ok(refusal(status, refused, &mut ending)),
    }
}

/// What came of a request that was sent on.
enum Passed {
    /// And whether its server was asked before.
    Answer(hyper::http::response::Parts, Incoming, Option<Asked>),
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
    ending.refused(status, &refused.why, refused.decision.map(|decision| *decision));
    readable(status, text)
}

fn readable(status: StatusCode, text: String) -> Response<Answer> {
    let mut response = Response::new(Either::Right(Full::new(Bytes::from(text))));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

impl Link {
    /// Of the program of `subject`, which means this place, and `offered` so much in TLS.
    pub fn new(
        (shared, inspection): (&Arc<Shared>, &Arc<Inspection>),
        subject: &Subject,
        place: Place,
        offered: Option<Vec<Protocol>>,
        upstream: Upstream,
        passage: Arc<Passage>,
    ) -> Arc<Link> {
        Arc::new(Link {
            shared: shared.clone(),
            inspection: inspection.clone(),
            subject: subject.clone(),
            place,
            offered,
            upstream: Mutex::new(upstream),
            passage,
            changed: Arc::default(),
            refused: Arc::default(),
            tunnel: Mutex::default(),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
        })
    }

    async fn exchange(
        &self,
        request: Request<Incoming>,
        ending: &mut Ending,
    ) -> Result<Passed, (StatusCode, Refused)> {
        let (mut parts, body) = request.into_parts();
        let websocket = parts.version == Version::HTTP_11 && request::websocket(&parts.headers);
        let asked = (expected::asks(&parts) && !body.is_end_stream()).then(Asked::default);
        let policy = self.shared.policy();
        // It was dialled, so that there is one.
        let settled = self.subject.decision.as_ref().ok_or_else(|| {
            let why = "nothing allowed the connection".to_owned();
            (StatusCode::FORBIDDEN, Refused { why, decision: None })
        })?;
        let path = match request::judge(&policy, settled, &self.place, &mut parts) {
            Ok(path) => path,
            Err(refused) => {
                tokio::spawn(drain(body));
                return Err((StatusCode::FORBIDDEN, refused));
            }
        };
        drop(policy);
        let Place { host, port, secure } = &self.place;
        let injected = self.inspection.secrets.inject(host, *port, *secure, &mut parts.headers);
        ending.model = Scanner::of(host, parts.method.as_str(), &path);
        if ending.model.is_some() {
            // What is compressed cannot be read along.
            parts.headers.remove(header::ACCEPT_ENCODING);
        }
        if let Some(exchange) = ending.exchange() {
            exchange.path = path;
        }
        let switch = websocket.then(|| {
            parts.headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
            parts.headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
            parts.extensions.remove::<hyper::upgrade::OnUpgrade>()
        });
        parts.version = Version::HTTP_11;
        let mut request = Request::from_parts(parts, Sent::new(body, ending, asked.clone()));
        asked.iter().for_each(|asked| asked.of(&mut request));
        let sent = self.send(request, &injected, ending).await;
        if let Some(asked) = &asked {
            match &sent {
                // A server may begin its answer, and go on reading.
                Ok(response) if response.status().is_success() => asked.wanted(),
                Ok(_) => asked.answered(),
                Err(_) => asked.over(),
            }
        }
        let mut response = sent?;
        if let Some(head) = ending.head.take() {
            let heads = head.heads().clone();
            drop(head);
            let head = heads.answer(response.headers());
            let refused = |(status, why)| (status, Refused { why, decision: None });
            ending.head = Some(head.map_err(refused)?);
        }
        if let Some(exchange) = ending.exchange() {
            exchange.status = Some(response.status().as_u16());
        }
        self.redact(response.headers_mut());
        // A sentence of the server's own, in which anything can be: the status is enough. One that has no usual sentence
        // has none, where the engine would write its own word for that.
        response.extensions_mut().remove::<ReasonPhrase>();
        if response.status().canonical_reason().is_none() {
            response.extensions_mut().insert(ReasonPhrase::from_static(b""));
        }
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            asked.iter().for_each(Asked::over);
            let server = hyper::upgrade::on(&mut response);
            let wanted = request::websocket(response.headers());
            let Some(Some(program)) = switch.filter(|_| wanted) else {
                let why = "the server changes to a protocol that was not asked for".to_owned();
                return Err((StatusCode::BAD_GATEWAY, Refused { why, decision: None }));
            };
            self.changed.store(true, Relaxed);
            return Ok(Passed::Switched(response.into_parts().0, program, server));
        }
        if response.headers().contains_key(header::TRANSFER_ENCODING) {
            // A length beside it is none (RFC 9112 §6.3), and the body would be cut there.
            response.headers_mut().remove(header::CONTENT_LENGTH);
        }
        request::clean(response.headers_mut());
        let (mut parts, body) = response.into_parts();
        parts.version = Version::HTTP_11;
        Ok(Passed::Answer(parts, body, asked))
    }

    /// Sends a request to the real server; over a new connection, when the server has closed the
    /// one there was before it could take anything of it. What has no body is sent again where the server says that it
    /// has not taken it.
    async fn send(
        &self,
        mut request: Request<Sent>,
        injected: &[Injection],
        ending: &mut Ending,
    ) -> Result<Response<Incoming>, (StatusCode, Refused)> {
        let absent = |refusal: Refusal| {
            let (status, why) = match refusal {
                Refusal::Denied(why) => (StatusCode::FORBIDDEN, why),
                Refusal::Failed(why) => (StatusCode::BAD_GATEWAY, why),
            };
            let why = format!("{}: {why}", self.place.authority());
            (status, Refused { why, decision: None })
        };
        let failed = |why: String| absent(Refusal::Failed(self.passage.explained(why)));
        for left in (0..=AGAIN).rev() {
            let again = left > 0;
            let mut upstream = self.upstream.lock().await;
            if upstream.ended().await {
                self.reconnect(&mut upstream).await.map_err(absent)?;
            }
            // What does not get an answer may have been read by the server all the same.
            ending.gives(injected);
            let mut kept = None;
            let sent = match &mut *upstream {
                Upstream::Absent(status, why, decision) => {
                    let refused = Refused { why: why.clone(), decision: decision.clone() };
                    ending.gives(&[]);
                    tokio::spawn(drain(request.into_body()));
                    return Err((*status, refused));
                }
                Upstream::Http1(sender, _) => {
                    frame(&mut request);
                    request::whole_cookie(request.headers_mut());
                    self.passage.begin();
                    if request.body().is_end_stream() {
                        self.passage.taken();
                    }
                    // One request's until its answer begins, and then nobody's: it is asked for again below.
                    let sent = sender.try_send_request(request).await;
                    drop(upstream);
                    sent
                }
                Upstream::Http2(sender, _) => {
                    let mut sender = sender.clone();
                    drop(upstream);
                    if again && request.body().is_end_stream() {
                        kept = Some(copy(&request, Sent::none(ending)));
                    }
                    let request = self.absolute(request).map_err(failed)?;
                    sender.try_send_request(request).await
                }
            };
            let mut error = match sent {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            let unsent = error.take_message();
            if unsent.is_some() {
                ending.gives(&[]);
            }
            let error = error.into_error();
            if let Some(why) = self.refused.get().filter(|_| error.is_user()) {
                // Its body came to an end here: the program's own doing, and nothing of the server's.
                let refused = Refused { why: why.clone(), decision: None };
                return Err((StatusCode::BAD_REQUEST, refused));
            }
            if wants_http1(&error) {
                let why = "the server takes it by HTTP/1.1 alone (HTTP_1_1_REQUIRED)".to_owned();
                return Err((BY_HTTP1, Refused { why, decision: None }));
            }
            if not_taken(&error) {
                // Where it has ended the connection, there will be a new one; else it is asked again by the same.
                ending.gives(&[]);
                match kept {
                    Some(kept) => request = kept,
                    None => {
                        return Err(failed(format!(
                            "the server has not taken it: {}",
                            reason(&error)
                        )));
                    }
                }
                continue;
            }
            match unsent.filter(|_| again) {
                Some(unsent) => request = unsent,
                None => return Err(failed(reason(&error))),
            }
            let mut upstream = self.upstream.lock().await;
            self.reconnect(&mut upstream).await.map_err(absent)?;
        }
        Err(failed("the server closes every connection".to_owned()))
    }

    /// HTTP/2 names the host in the target (RFC 9113 §8.3.1).
    fn absolute(&self, request: Request<Sent>) -> Result<Request<Sent>, String> {
        let (mut parts, body) = request.into_parts();
        let host = parts.headers.remove(header::HOST);
        parts.headers.remove(header::TRANSFER_ENCODING);
        parts.headers.remove(header::EXPECT);
        body.is_wanted();
        if let Some(host) = host.as_ref().and_then(|host| host.to_str().ok()) {
            let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
            let uri = Uri::builder().scheme("https").authority(host).path_and_query(path);
            parts.uri = uri.build().map_err(|error| error.to_string())?;
        }
        parts.version = Version::HTTP_2;
        Ok(Request::from_parts(parts, body))
    }

    async fn reconnect(&self, upstream: &mut Upstream) -> Result<(), Refusal> {
        let mut subject = self.subject.clone();
        let tls = self.inspection.tls.get();
        let tls = self.offered.as_deref().and_then(|offered| Some((tls?, offered)));
        let measure = &self.inspection.measure;
        let to = (&mut subject, &self.passage);
        let connected = connect(&self.shared, measure, tls, &self.place.host, to).await;
        *upstream = connected?.0;
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

    /// Bytes of bodies so far, from the program and to it.
    pub fn carried(&self) -> (u64, u64) {
        (self.sent.load(Relaxed), self.received.load(Relaxed))
    }

    /// Tells of a request that nobody could look at.
    fn unread(&self, why: &str) {
        let refused = Some(why.to_owned());
        let exchange = Exchange { method: "?".to_owned(), refused, ..Exchange::default() };
        self.tell(Event::Request(Box::new(exchange)), None);
    }

    pub fn tell(&self, event: Event, decision: Option<Decision>) {
        let decision = decision.or_else(|| self.subject.decision.clone());
        self.subject.tell_of(&self.shared, event, decision);
    }
}

/// The same request with another body.
fn copy(request: &Request<Sent>, body: Sent) -> Request<Sent> {
    let mut same = Request::new(body);
    *same.method_mut() = request.method().clone();
    *same.uri_mut() = request.uri().clone();
    *same.headers_mut() = request.headers().clone();
    *same.version_mut() = request.version();
    same
}

/// Says how a body of unknown length ends: the engine would take it that GET has none; and that nothing follows one that
/// the server may leave unread.
fn frame(request: &mut Request<Sent>) {
    let body = request.body();
    if !body.is_end_stream() && request::leaves_body(request.method()) {
        // The engine does not use the connection again either; and the next request goes by another.
        let close = HeaderValue::from_static("close");
        request.headers_mut().insert(header::CONNECTION, close);
    }
    let body = request.body();
    let known = body.is_end_stream() || body.size_hint().exact().is_some();
    if !known && !request.headers().contains_key(header::CONTENT_LENGTH) {
        let chunked = HeaderValue::from_static("chunked");
        request.headers_mut().insert(header::TRANSFER_ENCODING, chunked);
    }
}
