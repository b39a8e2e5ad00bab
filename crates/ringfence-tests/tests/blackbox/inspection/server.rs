//! A web server of the test's own: HTTP/1.1 and HTTP/2 over TLS or not, with a certificate that
//! only who is told trusts. It speaks as real servers do: streams, compressed answers, trailers,
//! WebSockets, redirects, answers that break off.

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};

/// A server that lives as long as this.
pub struct Server {
    pub port: u16,
    /// Whom to trust to trust it, as PEM.
    pub authority: String,
    _life: tokio::sync::oneshot::Sender<()>,
}

/// What all connections share.
#[derive(Default)]
struct World {
    /// Rung by `/ack`; what streams wait for.
    bell: Notify,
    files: PathBuf,
}

type Body = BoxBody<Bytes, io::Error>;

impl Server {
    /// Over TLS.
    pub fn secure() -> Server {
        Server::start(true, PathBuf::new())
    }

    /// Over TLS, with files below `/files/`.
    pub fn of_files(files: PathBuf) -> Server {
        Server::start(true, files)
    }

    /// In the clear.
    pub fn plain() -> Server {
        Server::start(false, PathBuf::new())
    }

    /// A certificate for this host, offering these protocols, and whom to trust to trust it, as PEM.
    pub fn certified(protocols: &[&[u8]]) -> (ServerConfig, String) {
        Server::asking(protocols, None)
    }

    /// The same, of a server that asks for a certificate of the client's in this version of TLS.
    pub fn asking(
        protocols: &[&[u8]],
        asks: Option<&'static SupportedProtocolVersion>,
    ) -> (ServerConfig, String) {
        let authority = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
        params.distinguished_name.push(rcgen::DnType::CommonName, "ringfence test authority");
        let issuer = rcgen::CertifiedIssuer::self_signed(params, authority).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
        let names = names.into_iter().chain(["api.anthropic.com".to_owned()]).collect::<Vec<_>>();
        let mut params = rcgen::CertificateParams::new(names).unwrap();
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &issuer).unwrap();
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone());
        let builder = match asks {
            None => builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth(),
            Some(version) => {
                let mut roots = RootCertStore::empty();
                roots.add(issuer.as_ref().der().clone()).unwrap();
                let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
                let builder = builder.with_protocol_versions(&[version]).unwrap();
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let mut config = builder.with_single_cert(vec![certificate.der().clone()], der).unwrap();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        (config, issuer.as_ref().pem())
    }

    /// A certificate that is the server's and an authority's, and the same as PEM.
    pub fn own() -> (ServerConfig, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let config = builder.with_single_cert(vec![certificate.der().clone()], der).unwrap();
        (config, certificate.pem())
    }

    fn start(secure: bool, files: PathBuf) -> Server {
        let (config, authority) = Server::certified(&[b"h2", b"http/1.1"]);
        let acceptor = secure.then(|| TlsAcceptor::from(Arc::new(config)));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let world = Arc::new(World { files, ..World::default() });
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let listener = TcpListener::from_std(listener).unwrap();
                tokio::select! {
                    () = serve(listener, acceptor, world) => {}
                    _ = stopped => {}
                }
            });
        });
        Server { port, authority, _life: stop }
    }
}

async fn serve(listener: TcpListener, acceptor: Option<TlsAcceptor>, world: Arc<World>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let _ = stream.set_nodelay(true);
        let (acceptor, world) = (acceptor.clone(), world.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(request, world.clone()));
            let builder = Builder::new(TokioExecutor::new());
            if let Some(acceptor) = acceptor {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let io = TokioIo::new(stream);
                let _ = builder.serve_connection_with_upgrades(io, service).await;
            } else {
                let io = TokioIo::new(stream);
                let _ = builder.serve_connection_with_upgrades(io, service).await;
            }
        });
    }
}

fn full(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).map_err(|never| match never {}).boxed()
}

async fn answer(
    request: Request<Incoming>,
    world: Arc<World>,
) -> Result<Response<Body>, Infallible> {
    let path = request.uri().path().to_owned();
    let mut response = Response::new(full(""));
    if request.method() == Method::HEAD {
        response.headers_mut().insert(header::CONTENT_LENGTH, "1234".parse().unwrap());
        return Ok(response);
    }
    match path.split('/').nth(1).unwrap_or_default() {
        "sse" => {
            let events = Events { world, step: 0, wait: None };
            *response.body_mut() = StreamBody::new(events).boxed();
            let kind = "text/event-stream".parse().unwrap();
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
        }
        "ack" => world.bell.notify_one(),
        "gzip" => {
            let coding = "gzip".parse().unwrap();
            response.headers_mut().insert(header::CONTENT_ENCODING, coding);
            *response.body_mut() = full(GZIP);
        }
        "large" => {
            let size = path.rsplit('/').next().and_then(|size| size.parse().ok()).unwrap_or(0);
            let body = Large { left: size, broken: path.contains("/broken/") };
            *response.body_mut() = StreamBody::new(body).boxed();
        }
        "trailers" => {
            let count = path.split('/').nth(2).map_or(1, |count| count.parse().unwrap());
            let mut fields = header::HeaderMap::new();
            for _ in 0..count {
                fields.append("x-trailer", "end".parse().unwrap());
            }
            let frames = [Ok(Frame::data(Bytes::from("body\n"))), Ok(Frame::trailers(fields))];
            response.headers_mut().insert(header::TRAILER, "x-trailer".parse().unwrap());
            *response.body_mut() = StreamBody::new(Listed(frames.into_iter().collect())).boxed();
        }
        "redirect" => {
            *response.status_mut() = StatusCode::FOUND;
            let secret = request.headers().get("authorization").cloned();
            let secret = secret.as_ref().and_then(|value| value.to_str().ok()).unwrap_or("");
            let to = format!("/echo/after?was={}", secret.rsplit(' ').next().unwrap_or(""));
            response.headers_mut().insert(header::LOCATION, to.parse().unwrap());
            let cookie = format!("session={secret}; Path=/").parse().unwrap();
            response.headers_mut().insert(header::SET_COOKIE, cookie);
        }
        "files" => {
            let mut file = world.files.join(&path["/files/".len()..]);
            if path.ends_with('/') {
                file.push("index.html");
                let kind = "text/html".parse().unwrap();
                response.headers_mut().insert(header::CONTENT_TYPE, kind);
            }
            match std::fs::read(file) {
                Ok(bytes) => *response.body_mut() = full(bytes),
                Err(_) => *response.status_mut() = StatusCode::NOT_FOUND,
            }
        }
        // As a model's provider answers; the credential's length shows that it came.
        "v1" => {
            let key = request.headers().get("x-api-key").map_or(0, |key| key.len());
            *response.body_mut() = full(format!(
                "{{\"id\":\"{key}\",\"type\":\"message\",\"model\":\"claude-test-1\",\
                 \"content\":[{{\"type\":\"tool_use\",\"name\":\"x\"}}],\
                 \"usage\":{{\"input_tokens\":12,\"output_tokens\":34}}}}"
            ));
        }
        "ws" => return Ok(websocket(request)),
        _ => *response.body_mut() = full(echo(request).await),
    }
    Ok(response)
}

/// The request as it came, a line for each part.
async fn echo(request: Request<Incoming>) -> String {
    let (parts, body) = request.into_parts();
    let target = parts.uri.path_and_query().map_or("", |path| path.as_str());
    let mut text = format!("{} {target} {:?}\n", parts.method, parts.version);
    let mut fields: Vec<String> = parts
        .headers
        .iter()
        .map(|(name, value)| format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes())))
        .collect();
    fields.sort();
    text.extend(fields);
    let mut body = body;
    let (mut count, mut sum) = (0u64, 0u64);
    while let Some(Ok(frame)) = body.frame().await {
        for byte in frame.data_ref().map(|data| &data[..]).unwrap_or_default() {
            count += 1;
            sum = sum.wrapping_mul(31).wrapping_add(u64::from(*byte));
        }
        for (name, value) in frame.trailers_ref().into_iter().flatten() {
            text += &format!("trailer {name}: {}\n", String::from_utf8_lossy(value.as_bytes()));
        }
    }
    text + &format!("body {count} {sum:x}\n")
}

/// `printf 'compressed\n' | gzip -n`
const GZIP: &[u8] = &[
    0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03, 0x4b, 0xce, 0xcf, 0x2d, 0x28, 0x4a,
    0x2d, 0x2e, 0x4e, 0x4d, 0xe1, 0x02, 0x00, 0xbb, 0x6d, 0x4f, 0xc8, 0x0b, 0x00, 0x00, 0x00,
];

fn websocket(mut request: Request<Incoming>) -> Response<Body> {
    let key = request.headers().get("sec-websocket-key").cloned();
    let key = [key.as_ref().map_or(&b""[..], |key| key.as_bytes()), GUID].concat();
    let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, &key);
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let Ok(stream) = upgrade.await else { return };
        let mut stream = TokioIo::new(stream);
        let mut buffer = [0; 4096];
        // Frames come back as they are, which is enough of an echo.
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            if stream.write_all(&buffer[..count]).await.is_err() {
                return;
            }
        }
    });
    let mut response = Response::new(full(""));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, "Upgrade".parse().unwrap());
    headers.insert(header::UPGRADE, "websocket".parse().unwrap());
    headers.insert("sec-websocket-accept", base64(digest.as_ref()).parse().unwrap());
    response
}

/// RFC 6455 §1.3
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0u32, |bits, &byte| bits << 8 | u32::from(byte));
        let bits = bits << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place) & 63) as usize];
            out.push(if place <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    out
}

type Framed = Option<Result<Frame<Bytes>, io::Error>>;

/// Frames that are there already.
struct Listed(std::collections::VecDeque<Result<Frame<Bytes>, io::Error>>);

impl futures_core::Stream for Listed {
    type Item = Result<Frame<Bytes>, io::Error>;
    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Framed> {
        Poll::Ready(self.0.pop_front())
    }
}

/// Two events; the second comes after `/ack` was asked for.
struct Events {
    world: Arc<World>,
    step: u32,
    wait: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
}

impl futures_core::Stream for Events {
    type Item = Result<Frame<Bytes>, io::Error>;
    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Framed> {
        if self.step == 1 {
            let world = self.world.clone();
            let wait = self
                .wait
                .get_or_insert_with(|| Box::pin(async move { world.bell.notified().await }));
            if wait.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
        }
        self.step += 1;
        Poll::Ready(match self.step {
            step @ (1 | 2) => Some(Ok(Frame::data(Bytes::from(format!("data: event {step}\n\n"))))),
            _ => None,
        })
    }
}

/// So many bytes; a broken one fails half-way.
struct Large {
    left: usize,
    broken: bool,
}

const PART: &[u8] = &[b'x'; 64 * 1024];

impl futures_core::Stream for Large {
    type Item = Result<Frame<Bytes>, io::Error>;
    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Framed> {
        let count = self.left.min(PART.len());
        self.left -= count;
        if self.left == 0 && self.broken {
            return Poll::Ready(Some(Err(io::Error::other("broken off"))));
        }
        Poll::Ready((count > 0).then(|| Ok(Frame::data(Bytes::from_static(&PART[..count])))))
    }
}
