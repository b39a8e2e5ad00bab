//! For programs that insist on a proxy: HTTP (`CONNECT` and whole URLs) and SOCKS5 (RFC 1928) on
//! one port, behind the same rules. Here a refusal can be read.

use crate::decision::Way;
use crate::first::{self, First};
use crate::flow::{self, Course, Refusal};
use crate::gateway::{Shared, Subject};
use crate::held::Held;
use crate::inspect;
use crate::who;
use ringfence_policy::Host;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// The most bytes of a request's head.
const HEAD: usize = 32 * 1024;
/// How long a client may take for its request.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a client may take to read a refusal.
const LINGER: Duration = Duration::from_secs(2);
const SOCKS5: u8 = 5;
const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// Serves one client of the proxy.
pub(crate) async fn serve(mut client: TcpStream, shared: &Arc<Shared>) {
    let asked = tokio::time::timeout(PATIENCE, request(&mut client)).await;
    let Ok(Ok(asked)) = asked else { return };
    let (subject, result, early) = match asked {
        Asked::Socks(host, port) => {
            let (host, _name) = meant(shared, host);
            let mut subject = flow::ask(shared, Way::Socks, host, port);
            seek(shared, &mut subject, &client);
            let result = flow::settle(Some(&client), shared, &mut subject).await;
            socks_answer(&mut client, &result).await;
            (subject, result, Vec::new())
        }
        Asked::SocksWrong(code) => {
            let _ = client.write_all(&[SOCKS5, code, 0, 1, 0, 0, 0, 0, 0, 0]).await;
            return;
        }
        Asked::Http { host, port, early, tunnel } => {
            let (host, _name) = meant(shared, host);
            let mut subject = flow::ask(shared, Way::HttpProxy, host, port);
            seek(shared, &mut subject, &client);
            // A request that was read already is to be passed on, whether or not anybody waits for its answer.
            let waits = early.is_empty().then_some(&client);
            let result = flow::settle(waits, shared, &mut subject).await;
            if tunnel && result.is_ok() {
                let _ = client.write_all(ESTABLISHED).await;
            }
            (subject, result, early)
        }
        Asked::HttpWrong(why) => {
            let _ = plain(&mut client, "400 Bad Request", why).await;
            return;
        }
    };
    match result {
        Ok(Course::Inspected(inspection)) => {
            inspect::connection(shared, inspection, subject, client, early).await;
        }
        Ok(Course::Relayed(server)) => flow::carry(shared, &subject, client, server, early).await,
        Err(refusal) => refused(shared, &subject, client, refusal).await,
    }
}

/// What is meant by an address: of a client that looks names up itself it is one that stands for a name here. Held, the
/// address stays that name's.
fn meant(shared: &Shared, host: Host) -> (Host, Option<Arc<str>>) {
    match host {
        Host::Address(address) => shared.names().host(address, Instant::now()),
        host => (host, None),
    }
}

/// Begins to look for the process that asks.
fn seek(shared: &Arc<Shared>, subject: &mut Subject, client: &TcpStream) {
    if let Ok(to) = client.local_addr() {
        who::seek(shared, subject, client, SocketAddr::new(to.ip().to_canonical(), to.port()));
    }
}

/// What a client of the proxy wants.
enum Asked {
    Http { host: Host, port: u16, early: Vec<u8>, tunnel: bool },
    HttpWrong(&'static str),
    Socks(Host, u16),
    SocksWrong(u8),
}

async fn socks_answer(client: &mut TcpStream, result: &Result<Course<'_>, Refusal>) {
    // RFC 1928 §6: succeeded, not allowed by the ruleset, host unreachable.
    let code = match result {
        Ok(_) => 0,
        Err(Refusal::Denied(_)) => 2,
        Err(Refusal::Failed(_)) => 4,
    };
    let _ = client.write_all(&[SOCKS5, code, 0, 1, 0, 0, 0, 0, 0, 0]).await;
}

async fn refused(shared: &Shared, subject: &Subject, mut client: TcpStream, refusal: Refusal) {
    let status = match refusal {
        Refusal::Denied(_) => "403 Forbidden",
        Refusal::Failed(_) => "502 Bad Gateway",
    };
    let denied = matches!(refusal, Refusal::Denied(_));
    let mut text = flow::tell(shared, subject, refusal);
    subject.process.settled().await;
    let remedy = subject.decision.as_ref().and_then(|decision| decision.remedy.as_ref());
    if let Some(remedy) = remedy.filter(|_| denied) {
        text = format!("{text}; to allow it: {remedy}");
    }
    if subject.way == Way::HttpProxy {
        let _ = plain(&mut client, status, &text).await;
    }
}

/// Sends a readable refusal, and waits until the client has taken it.
pub(crate) async fn plain(client: &mut TcpStream, status: &str, text: &str) -> io::Result<()> {
    let body = format!("ringfence: {text}\n");
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    client.write_all((head + &body).as_bytes()).await?;
    client.shutdown().await?;
    // To close with bytes unread would be a reset, which can overtake the answer.
    let mut rest = [0; 4096];
    let drain = async {
        while client.read(&mut rest).await? > 0 {}
        Ok::<(), io::Error>(())
    };
    let _ = tokio::time::timeout(LINGER, drain).await;
    Ok(())
}

async fn request<S: AsyncRead + AsyncWrite + Unpin>(client: &mut S) -> io::Result<Asked> {
    let mut head = vec![client.read_u8().await?];
    if head[0] == SOCKS5 {
        return socks(client).await;
    }
    if !head[0].is_ascii_graphic() && !matches!(head[0], b'\r' | b'\n') {
        // SOCKS4, or TLS with the proxy itself: it would wait for an answer, and we for the end of a head.
        return Ok(Asked::HttpWrong("this proxy speaks HTTP and SOCKS5, both without TLS"));
    }
    let mut buffer = [0; 4096];
    let mut held = Held::default();
    loop {
        if let Err(why) = held.set(head.len()) {
            return Ok(Asked::HttpWrong(why));
        }
        if let Some(end) = end_of_head(&head) {
            return Ok(http(&head, end));
        }
        if head.len() > HEAD {
            return Ok(Asked::HttpWrong("the head of the request has no end"));
        }
        match client.read(&mut buffer).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => head.extend_from_slice(&buffer[..count]),
        }
    }
}

/// Where an empty line ends a head; some clients write no carriage returns, and wait for an answer as others do.
fn end_of_head(bytes: &[u8]) -> Option<usize> {
    (1..=bytes.len()).find(|&end| {
        let head = &bytes[..end];
        head.ends_with(b"\n\r\n") || head.ends_with(b"\n\n")
    })
}

/// Reads a request to a proxy, of which `bytes[..end]` is the head.
fn http(bytes: &[u8], end: usize) -> Asked {
    let line_end = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(end - 1);
    let Ok(line) = std::str::from_utf8(&bytes[..line_end]) else {
        return Asked::HttpWrong("the request line is no text");
    };
    // All lines end as the first one does, which is looked at below.
    let (line, ends) = match line.strip_suffix('\r') {
        Some(line) => (line, "\r\n"),
        None => (line, "\n"),
    };
    let words: Vec<&str> = line.split(' ').collect();
    let [method, target, version] = words[..] else {
        return Asked::HttpWrong("this is no request");
    };
    if !version.starts_with("HTTP/1.") {
        return Asked::HttpWrong("only HTTP/1.1 and HTTP/1.0 are spoken here");
    }
    if method == "CONNECT" {
        return match place(target, None) {
            Some((host, port)) => {
                Asked::Http { host, port, early: bytes[end..].to_vec(), tunnel: true }
            }
            None => Asked::HttpWrong("CONNECT takes HOST:PORT"),
        };
    }
    // What servers would read differently is refused here as on the wire.
    if !matches!(first::first(&bytes[..end]), First::Http { .. }) {
        return Asked::HttpWrong("the request is ambiguous");
    }
    let scheme = "http://";
    if !target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)) {
        return Asked::HttpWrong("this is a proxy: it takes CONNECT and http:// URLs");
    }
    let rest = &target[scheme.len()..];
    let path = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let Some((host, port)) = place(&rest[..path], Some(80)) else {
        return Asked::HttpWrong("the URL has no host");
    };
    let slash = if rest[path..].starts_with('/') { "" } else { "/" };
    let mut early = format!("{method} {slash}{} {version}{ends}", &rest[path..]).into_bytes();
    let fields = &bytes[line_end + 1..end - ends.len()];
    let lines = fields.split_inclusive(|&byte| byte == b'\n');
    let upgrade = lines.clone().any(upgrades);
    let mut hop = vec!["proxy-connection", "proxy-authorization", "keep-alive"];
    if !upgrade {
        // One request for each connection, so that the next is decided anew.
        hop.extend(["connection", "upgrade", "http2-settings"]);
        early.extend_from_slice(format!("Connection: close{ends}").as_bytes());
    }
    for line in lines.filter(|line| !hop.iter().any(|name| named(line, name))) {
        early.extend_from_slice(line);
    }
    early.extend_from_slice(ends.as_bytes());
    early.extend_from_slice(&bytes[end..]);
    Asked::Http { host, port, early, tunnel: false }
}

/// Whether a header line asks for another protocol, in which no request follows. HTTP/2 without TLS is none such: who offers it
/// goes on with requests, be it taken or not, and a proxy need not pass it on (RFC 9110 §7.8).
fn upgrades(line: &[u8]) -> bool {
    let value = line.iter().position(|&byte| byte == b':').map_or(&line[..0], |at| &line[at + 1..]);
    let mut protocols = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    named(line, "upgrade") && protocols.any(|protocol| !protocol.eq_ignore_ascii_case(b"h2c"))
}

/// Whether a header line is the field of this name.
fn named(line: &[u8], name: &str) -> bool {
    let colon = line.iter().position(|&byte| byte == b':').unwrap_or(0);
    line[..colon].eq_ignore_ascii_case(name.as_bytes())
}

/// Reads `HOST[:PORT]`.
fn place(text: &str, default: Option<u16>) -> Option<(Host, u16)> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => {
            (host, Some(ringfence_policy::port::port(port).ok()?))
        }
        _ => (text, default),
    };
    Some((Host::parse(host).ok()?, port?))
}

async fn socks<S: AsyncRead + AsyncWrite + Unpin>(client: &mut S) -> io::Result<Asked> {
    let mut methods = vec![0; usize::from(client.read_u8().await?)];
    client.read_exact(&mut methods).await?;
    if !methods.contains(&0) {
        client.write_all(&[SOCKS5, 0xFF]).await?;
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    client.write_all(&[SOCKS5, 0]).await?;
    let mut head = [0; 4];
    client.read_exact(&mut head).await?;
    let host = match head[3] {
        1 => {
            let mut raw = [0; 4];
            client.read_exact(&mut raw).await?;
            Some(Host::Address(raw.into()))
        }
        4 => {
            let mut raw = [0; 16];
            client.read_exact(&mut raw).await?;
            Some(Host::Address(std::net::IpAddr::from(raw).to_canonical()))
        }
        3 => {
            let mut name = vec![0; usize::from(client.read_u8().await?)];
            client.read_exact(&mut name).await?;
            std::str::from_utf8(&name).ok().and_then(|name| Host::parse(name).ok())
        }
        _ => return Ok(Asked::SocksWrong(8)),
    };
    let port = client.read_u16().await?;
    Ok(match (head[0], head[1], host) {
        (SOCKS5, 1, Some(host)) if port > 0 => Asked::Socks(host, port),
        (SOCKS5, 2 | 3, _) => Asked::SocksWrong(7),
        _ => Asked::SocksWrong(1),
    })
}

/// What a client of the proxy asks for, by its first bytes: for fuzzing. A host that was understood must be
/// understood the same when it is written out.
pub(crate) fn ask_any(bytes: &[u8]) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().build() else { return };
    let asked = runtime.block_on(async {
        let (mut ours, mut client) = tokio::io::duplex(bytes.len() + 64);
        let _ = client.write_all(bytes).await;
        let _ = client.shutdown().await;
        request(&mut ours).await
    });
    if let Ok(Asked::Http { host, port, .. } | Asked::Socks(host, port)) = asked {
        assert!(port > 0);
        assert_eq!(Host::parse(&host.to_string()).ok(), Some(host));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Asked {
        http(text.as_bytes(), end_of_head(text.as_bytes()).expect("a head"))
    }

    #[test]
    fn a_tunnel_is_asked_for_by_host_and_port() {
        let Asked::Http { host, port, early, tunnel } =
            read("CONNECT A.org:443 HTTP/1.1\r\nHost: x\r\n\r\nearly")
        else {
            panic!("refused");
        };
        assert_eq!((host.to_string().as_str(), port, tunnel), ("a.org", 443, true));
        assert_eq!(early, b"early");
        for wrong in ["a.org", "a.org:0", "a.org:65536", "127.1:80", "a.org\0:80", "[::1%1]:80"] {
            let text = format!("CONNECT {wrong} HTTP/1.1\r\n\r\n");
            assert!(matches!(read(&text), Asked::HttpWrong(_)), "{wrong}");
        }
    }

    #[test]
    fn a_url_becomes_a_request_to_its_server_without_what_is_the_proxys() {
        let Asked::Http { host, port, early, tunnel } = read(
            "POST http://a.org:8080?q HTTP/1.1\r\nHost: a.org\r\nProxy-Authorization: x\r\n\
             Connection: keep-alive\r\nX: y\r\n\r\nbody",
        ) else {
            panic!("refused");
        };
        assert_eq!((host.to_string().as_str(), port, tunnel), ("a.org", 8080, false));
        let wanted = "POST /?q HTTP/1.1\r\nConnection: close\r\nHost: a.org\r\nX: y\r\n\r\nbody";
        assert_eq!(String::from_utf8_lossy(&early), wanted);
    }

    #[test]
    fn an_offer_of_http2_keeps_no_connection() {
        let sent = |fields: &str| {
            let Asked::Http { early, .. } =
                read(&format!("GET http://a.org/ HTTP/1.1\r\nHost: a.org\r\n{fields}\r\n"))
            else {
                panic!("refused");
            };
            String::from_utf8_lossy(&early).into_owned()
        };
        let plain = "GET / HTTP/1.1\r\nConnection: close\r\nHost: a.org\r\n\r\n";
        for fields in [
            "",
            "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
            "upgrade:H2C , h2c\r\n",
        ] {
            assert_eq!(sent(fields), plain, "{fields}");
        }
        for fields in
            ["Connection: Upgrade\r\nUpgrade: websocket\r\n", "Upgrade: h2c, websocket\r\n"]
        {
            let kept = format!("GET / HTTP/1.1\r\nHost: a.org\r\n{fields}\r\n");
            assert_eq!(sent(fields), kept);
        }
    }

    #[test]
    fn a_head_may_have_no_carriage_returns() {
        let Asked::Http { host, early, .. } =
            read("GET http://a.org/x HTTP/1.1\nHost: a.org\nConnection: x\n\nrest\r\n\r\n")
        else {
            panic!("refused");
        };
        assert_eq!(host.to_string(), "a.org");
        let wanted = "GET /x HTTP/1.1\nConnection: close\nHost: a.org\n\nrest\r\n\r\n";
        assert_eq!(String::from_utf8_lossy(&early), wanted);
        let Asked::Http { tunnel: true, early, .. } = read("CONNECT a.org:443 HTTP/1.1\n\nearly")
        else {
            panic!("refused");
        };
        assert_eq!(early, b"early");
        for mixed in [
            "GET http://a.org/x HTTP/1.1\r\nHost: a.org\n\r\n",
            "GET http://a.org/x HTTP/1.1\r\nHost: a.org\n\nHost: b.org\r\n\r\n",
            "GET http://a.org/x HTTP/1.1\nHost: a.org\r\n\r\n",
            "\n\n",
        ] {
            assert!(matches!(read(mixed), Asked::HttpWrong(_)), "{mixed:?}");
        }
    }

    #[test]
    fn what_is_no_request_to_a_proxy_is_refused() {
        for wrong in [
            "GET / HTTP/1.1\r\nHost: a.org\r\n\r\n",
            "GET ftp://a.org/ HTTP/1.1\r\nHost: a.org\r\n\r\n",
            "GET http://a.org/ HTTP/1.1\r\nHost: b.org\r\n\r\n",
            "GET http://a.org/ HTTP/1.1\r\nHost: a.org\r\nHost: b.org\r\n\r\n",
            "GET http://a.org/ HTTP/2\r\nHost: a.org\r\n\r\n",
            "GET\r\n\r\n",
        ] {
            assert!(matches!(read(wrong), Asked::HttpWrong(_)), "{wrong}");
        }
    }
}
