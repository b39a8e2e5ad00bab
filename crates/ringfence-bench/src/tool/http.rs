//! `http SCHEME HOST PORT PATH REQUESTS CONNECTIONS MODE`: a load generator.
//!
//! MODE is `kept`: each connection is kept alive, the next request goes out when the answer to the last is
//! complete; or `fresh`: each request has a connection of its own, whose making and end are part of its time.
//! Any answer that is not a complete 200 makes the whole run fail. One thread, so that what is measured
//! has the other processors.

use super::{number, print, text};
use crate::error::{Result, error};
use crate::model::Better;
use crate::stats;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use std::ffi::OsString;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How long a request may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// How much of an answer is read at once.
const PIECE: usize = 256 * 1024;

/// Where requests go, and how.
#[derive(Clone)]
struct Target {
    host: String,
    port: u16,
    path: String,
    tls: Option<TlsConnector>,
}

impl Target {
    fn of(args: &[OsString]) -> Result<Target> {
        Ok(Target {
            host: text(args, 1)?.to_owned(),
            port: number(args, 2)?,
            path: text(args, 3)?.to_owned(),
            tls: (text(args, 0)? == "https").then(trusting).transpose()?,
        })
    }
}

/// Runs the tool.
pub fn run(args: &[OsString]) -> Result<i32> {
    load(&Target::of(args)?, number(args, 4)?, number(args, 5)?, text(args, 6)? == "fresh")?;
    Ok(0)
}

/// `load SCHEME HOST PORT PATH`: the same, again and again, as lines of standard input say: `REQUESTS
/// CONNECTIONS MODE`. After the readings of each comes a line `done`. It lives until its input closes.
pub fn repeatedly(args: &[OsString]) -> Result<i32> {
    let target = Target::of(args)?;
    println!("ready");
    for line in std::io::stdin().lines() {
        let line = line.map_err(|cause| error!("bench: load: {cause}"))?;
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        load(&target, number(&words, 0)?, number(&words, 1)?, text(&words, 2)? == "fresh")?;
        println!("done");
    }
    Ok(0)
}

/// Makes so many requests over so many connections at a time, and prints how it went.
fn load(target: &Target, requests: usize, connections: usize, fresh: bool) -> Result<()> {
    let share = requests.div_ceil(connections.max(1));
    let began = Instant::now();
    let (mut latencies, mut bytes) = (Vec::new(), 0);
    super::runtime()?.block_on(async {
        let clients: Vec<_> =
            (0..connections).map(|_| tokio::spawn(client(target.clone(), share, fresh))).collect();
        for client in clients {
            let gone = |cause| error!("bench: http: a task ended: {cause}");
            let (times, size) = client.await.map_err(gone)??;
            latencies.extend(times);
            bytes += size;
        }
        Ok::<(), crate::error::Error>(())
    })?;
    let seconds = began.elapsed().as_secs_f64();
    if requests == 1 {
        print("throughput", "MB/s", Better::Higher, bytes as f64 / 1e6 / seconds);
        return Ok(());
    }
    print("requests", "1/s", Better::Higher, latencies.len() as f64 / seconds);
    for (name, q) in [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)] {
        print(name, "ms", Better::Lower, stats::quantile(&latencies, q));
    }
    Ok(())
}

/// TLS that trusts the authorities in the file that `SSL_CERT_FILE` names: the fixture's outside, the
/// session's where requests are inspected.
fn trusting() -> Result<TlsConnector> {
    let failed = |cause: &dyn std::fmt::Display| error!("bench: http: SSL_CERT_FILE: {cause}");
    let path = std::env::var_os("SSL_CERT_FILE").ok_or_else(|| failed(&"it is not set"))?;
    let mut roots = rustls::RootCertStore::empty();
    let found = CertificateDer::pem_file_iter(&path).map_err(|cause| failed(&cause))?;
    roots.add_parsable_certificates(found.flatten());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|cause| failed(&cause))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Makes `count` requests: the time of each in ms, and the bytes of all bodies.
async fn client(target: Target, count: usize, fresh: bool) -> Result<(Vec<f64>, usize)> {
    let mut times = Vec::with_capacity(count);
    let mut bytes = 0;
    let (rounds, each) = if fresh { (count, 1) } else { (1, count) };
    for _ in 0..rounds {
        bytes += connection(&target, each, &mut times).await?;
    }
    Ok((times, bytes))
}

/// Makes `count` requests over one connection. Connecting is part of the first one's time.
async fn connection(target: &Target, count: usize, times: &mut Vec<f64>) -> Result<usize> {
    let failed = |cause: std::io::Error| error!("bench: http: {cause}");
    let begun = Instant::now();
    let Target { host, port, path, tls } = target;
    let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUser-Agent: bench\r\n\r\n");
    let Some(tls) = tls else {
        return requests(stream, &request, count, begun, times).await;
    };
    let name = ServerName::try_from(host.clone()).map_err(|cause| error!("bench: {cause}"))?;
    let stream = tls.connect(name, stream).await.map_err(failed)?;
    requests(stream, &request, count, begun, times).await
}

async fn requests<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    request: &str,
    count: usize,
    mut begun: Instant,
    times: &mut Vec<f64>,
) -> Result<usize> {
    let mut buffer = Vec::with_capacity(PIECE);
    let mut bytes = 0;
    for _ in 0..count {
        let one = async {
            stream.write_all(request.as_bytes()).await?;
            stream.flush().await?;
            answer(&mut stream, &mut buffer).await
        };
        let answered = tokio::time::timeout(PATIENCE, one).await;
        let slow = |_| error!("bench: http: no answer within {} s", PATIENCE.as_secs());
        bytes += answered.map_err(slow)?.map_err(|cause| error!("bench: http: {cause}"))?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        begun = Instant::now();
    }
    Ok(bytes)
}

/// Reads one whole answer: the size of its body.
async fn answer<S: AsyncRead + Unpin>(
    stream: &mut S,
    buffer: &mut Vec<u8>,
) -> std::io::Result<usize> {
    let odd = |what: String| std::io::Error::new(std::io::ErrorKind::InvalidData, what);
    let end = loop {
        if let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(buffer).await? == 0 {
            return Err(odd("the answer has no head".to_owned()));
        }
    };
    let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
    let mut lines = head.lines();
    let first = lines.next().unwrap_or_default();
    if first.split(' ').nth(1) != Some("200") {
        return Err(odd(format!("the answer was {first:?}")));
    }
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse::<usize>().ok())
        .ok_or_else(|| odd("an answer without a length".to_owned()))?;
    let mut got = buffer.len() - end;
    if got >= length {
        buffer.drain(..end + length);
        return Ok(length);
    }
    // A long body is looked at by nobody.
    while got < length {
        buffer.clear();
        let more = stream.read_buf(buffer).await?;
        if more == 0 {
            return Err(odd("the answer was cut short".to_owned()));
        }
        got += more;
    }
    buffer.clear();
    if got == length { Ok(length) } else { Err(odd("more than the answer".to_owned())) }
}
