//! One proxy: where it is, what it is asked, and what it may answer.

use crate::flow::io_text;
use crate::gateway::Shared;
use crate::inward;
use crate::reach;
use ringfence_policy::Host;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The most bytes of its answer.
const ANSWER: usize = 16 * 1024;
/// The most answers that come before it (1xx, RFC 9110 §15.2).
const INTERIM: usize = 8;

/// Where a proxy is, and how it is asked.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub host: Host,
    pub port: u16,
    /// SOCKS5 (RFC 1928); else `CONNECT`.
    socks: bool,
    user: Option<User>,
}

/// Who asks it.
#[derive(Clone, PartialEq, Eq)]
struct User {
    name: Vec<u8>,
    password: Vec<u8>,
}

impl Place {
    /// Reads `[http://|socks5://|socks5h://][USER[:PASSWORD]@]HOST[:PORT]`.
    pub fn parse(text: &str) -> Option<Place> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        let socks = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "socks5" | "socks5h" => true,
            _ => return None,
        };
        let rest = rest.split(['/', '?', '#']).next()?;
        let (user, place) = match rest.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, rest),
        };
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
            _ => (place, 1080),
        };
        let user = user.map(|user| {
            let (name, password) = user.split_once(':').unwrap_or((user, ""));
            User { name: decoded(name), password: decoded(password) }
        });
        Some(Place { host: Host::parse(host).ok()?, port, socks, user })
    }

    /// Whether it is at the host's own loopback, by whatever name.
    pub fn is_here(&self) -> bool {
        match self.host {
            Host::Address(address) => inward::reachable(address.to_canonical()).is_loopback(),
            Host::Name(_) => self.host.is_loopback(),
        }
    }

    pub async fn connect(
        &self,
        shared: &Shared,
        host: &Host,
        port: u16,
    ) -> Result<TcpStream, String> {
        const HERE: [IpAddr; 2] =
            [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        let addresses = match &self.host {
            Host::Address(address) => vec![*address],
            Host::Name(_) if self.host.is_loopback() => HERE.to_vec(),
            Host::Name(name) => {
                let found = shared.resolver.resolve(name).await;
                found.map_err(|why| format!("cannot be resolved: {why}"))?
            }
        };
        // It is told the user's password, and what goes through it is for the other end alone.
        let reached = reach::first(&addresses, self.port, shared.beside()).await;
        let (mut stream, _) = reached.map_err(|why| self.unreached(&why))?;
        let _ = stream.set_nodelay(true);
        if self.socks {
            self.socks(&mut stream, host, port).await?;
        } else {
            self.http(&mut stream, host, port).await?;
        }
        Ok(stream)
    }

    /// Why it cannot be reached; its address is told already where it is called by that.
    fn unreached(&self, why: &str) -> String {
        let known = match &self.host {
            Host::Address(address) => format!("{}: ", SocketAddr::new(*address, self.port)),
            Host::Name(_) => String::new(),
        };
        format!("cannot be reached: {}", why.strip_prefix(&known).unwrap_or(why))
    }

    /// Asks by `CONNECT`.
    async fn http(&self, stream: &mut TcpStream, host: &Host, port: u16) -> Result<(), String> {
        let mut request = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n");
        if let Some(User { name, password }) = &self.user {
            let user = base64(&[name, &b":"[..], password].concat());
            request.push_str(&format!("Proxy-Authorization: Basic {user}\r\n"));
        }
        request.push_str("\r\n");
        stream.write_all(request.as_bytes()).await.map_err(broken)?;
        let mut line = String::new();
        for _ in 0..=INTERIM {
            let head = head(stream).await?;
            let first = head.split(|&byte| byte == b'\r' || byte == b'\n').next();
            line = String::from_utf8_lossy(first.unwrap_or_default()).into_owned();
            // What it changes to would be no tunnel.
            let interim = |code: &str| code.len() == 3 && code.starts_with('1') && code != "101";
            if !line.starts_with("HTTP/1.") || !line.split(' ').nth(1).is_some_and(interim) {
                break;
            }
        }
        match line.split(' ').nth(1) {
            Some(code) if code.len() == 3 && code.starts_with('2') => Ok(()),
            Some("407") if self.user.is_none() => {
                Err("answers 407: its variable is to have USER:PASSWORD@ before the host"
                    .to_owned())
            }
            // No other words of it: they may be what it was asked, with the password, and the program reads this.
            Some(code) if code.len() == 3 && code.bytes().all(|byte| byte.is_ascii_digit()) => {
                Err(format!("answers {code}"))
            }
            _ => Err("answers what is no HTTP".to_owned()),
        }
    }

    /// Asks as RFC 1928 and RFC 1929 have it. Nothing is read beyond the answers.
    async fn socks(&self, stream: &mut TcpStream, host: &Host, port: u16) -> Result<(), String> {
        const NONE: u8 = 0;
        const PASSWORD: u8 = 2;
        let method = if self.user.is_some() { PASSWORD } else { NONE };
        stream.write_all(&[5, 1, method]).await.map_err(broken)?;
        let mut answer = [0; 4];
        read(stream, &mut answer[..2]).await?;
        if answer[..2] != [5, method] {
            return Err("speaks no SOCKS5, or wants another user and password".to_owned());
        }
        if let Some(User { name, password }) = &self.user {
            let mut message = vec![1];
            for word in [name, password] {
                let length = u8::try_from(word.len());
                message.push(length.map_err(|_| "takes no such long user and password")?);
                message.extend_from_slice(word);
            }
            stream.write_all(&message).await.map_err(broken)?;
            read(stream, &mut answer[..2]).await?;
            if answer[1] != 0 {
                return Err("refuses the user and password".to_owned());
            }
        }
        let mut message = vec![5, 1, 0];
        match host {
            Host::Address(IpAddr::V4(ip)) => message.extend([&[1][..], &ip.octets()].concat()),
            Host::Address(IpAddr::V6(ip)) => message.extend([&[4][..], &ip.octets()].concat()),
            // A name has at most 253 bytes.
            Host::Name(name) => message.extend([&[3, name.len() as u8], name.as_bytes()].concat()),
        }
        message.extend(port.to_be_bytes());
        stream.write_all(&message).await.map_err(broken)?;
        read(stream, &mut answer).await?;
        if answer[..2] != [5, 0] {
            return Err(format!("answers with SOCKS5 error {}", answer[1]));
        }
        // Where it connects from, and the port of that.
        let rest = match answer[3] {
            1 => 4,
            4 => 16,
            3 => {
                read(stream, &mut answer[..1]).await?;
                usize::from(answer[0])
            }
            _ => return Err("answers what is no SOCKS5".to_owned()),
        };
        read(stream, &mut vec![0; rest + 2]).await
    }
}

/// Fills a buffer.
async fn read(stream: &mut TcpStream, buffer: &mut [u8]) -> Result<(), String> {
    match stream.read_exact(buffer).await {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(gone()),
        Err(error) => Err(broken(error)),
    }
}

fn broken(error: io::Error) -> String {
    format!("breaks the connection: {}", io_text(&error))
}

fn gone() -> String {
    "ends the connection before it has answered".to_owned()
}

/// Reads the head of an answer, and nothing of what follows, which is the server's already.
async fn head(stream: &mut TcpStream) -> Result<Vec<u8>, String> {
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while head.len() < ANSWER {
        let seen = stream.peek(&mut buffer).await.map_err(broken)?;
        if seen == 0 {
            return Err(gone());
        }
        let before = head.len();
        head.extend_from_slice(&buffer[..seen]);
        // An empty line ends it; some have no carriage returns.
        let lines = head.windows(3).enumerate().skip(before.saturating_sub(2));
        let ends = |three: &[u8]| three == b"\n\r\n" || three[1..] == *b"\n\n";
        let end = lines.map(|(at, three)| (at + 3, three)).find(|(_, three)| ends(three));
        let end = end.map(|(end, _)| end);
        read(stream, &mut buffer[..end.unwrap_or(head.len()) - before]).await?;
        if let Some(end) = end {
            head.truncate(end);
            return Ok(head);
        }
    }
    Err(format!("sends a head of more than {} KiB", ANSWER / 1024))
}

/// Percent-decodes a user and password.
fn decoded(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if bytes[at] == b'%' => {
                out.push(byte);
                at += 3;
            }
            _ => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    out
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What a proxy is asked, what comes of its answer, and what the server says then.
    fn asked(proxy: &str, answers: &'static [&'static [u8]]) -> (Vec<u8>, Result<Vec<u8>, String>) {
        use std::io::{Read, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
        let at = listener.local_addr().expect("an address");
        let server = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().expect("accepted");
            let mut heard = Vec::new();
            for answer in answers {
                let mut buffer = [0; 4096];
                let count = client.read(&mut buffer).expect("read");
                heard.extend_from_slice(&buffer[..count]);
                // A client that has heard enough resets.
                let _ = client.write_all(answer);
            }
            heard
        });
        let place = Place::parse(proxy).expect("a proxy");
        let host = Host::parse("a.org").expect("a host");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let said = runtime.expect("a runtime").block_on(async {
            let mut stream = TcpStream::connect(at).await.expect("connected");
            if place.socks {
                place.socks(&mut stream, &host, 443).await?;
            } else {
                place.http(&mut stream, &host, 443).await?;
            }
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await.map_err(|error| io_text(&error))?;
            Ok(rest)
        });
        (server.join().expect("served"), said)
    }

    #[test]
    fn its_user_and_password_are_taken_apart_before_they_are_decoded() {
        let place = Place::parse("HTTP://us%40er:pa%3Ass@proxy.corp:3128/").expect("a proxy");
        let user = User { name: b"us@er".to_vec(), password: b"pa:ss".to_vec() };
        assert_eq!((place.host.to_string().as_str(), place.port), ("proxy.corp", 3128));
        assert!(!place.socks && place.user == Some(user));
    }

    #[test]
    fn one_that_is_not_there_is_told_in_a_sentence() {
        for (proxy, why, said) in [
            ("192.0.2.1:3128", "192.0.2.1:3128: no answer", "no answer"),
            ("[2001:db8::1]:1", "[2001:db8::1]:1: no answer", "no answer"),
            ("p.org:3128", "192.0.2.1:3128: no answer", "192.0.2.1:3128: no answer"),
        ] {
            let place = Place::parse(proxy).expect("a proxy");
            assert_eq!(place.unreached(why), format!("cannot be reached: {said}"));
        }
    }

    #[test]
    fn what_a_proxy_may_answer() {
        static LONG: [u8; 40_000] = [b'x'; 40_000];
        let answers: [(&'static [&'static [u8]], &str); 13] = [
            (&[b"HTTP/1.1 200 OK\r\n\r\nhello"], "hello"),
            (&[b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\n\r\nhello"], "hello"),
            (&[b"HTTP/1.1 102 Wait\r\n\r\nHTTP/1.1 403 No\r\n\r\n"], "answers 403"),
            (&[b"HTTP/1.1 101 Changed\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"], "answers 101"),
            (&[b"HTTP/1.0 200\r\nA: b\r\n\r\n"], ""),
            (&[b"HTTP/1.1 200 OK\n\n\nhello"], "\nhello"),
            (&[b"HTTP/1.1 403 Forbidden\r\n\r\nno"], "answers 403"),
            (
                &[b"HTTP/1.1 407 Authenticate\r\n\r\n"],
                "answers 407: its variable is to have USER:PASSWORD@ before the host",
            ),
            (&[b""], "ends the connection before it has answered"),
            (&[b"HTTP/1.1 200 OK\r\nA: b"], "ends the connection before it has answered"),
            (&[b"SSH-2.0-x\r\n\r\n"], "answers what is no HTTP"),
            (&[b"HTTP/1.1 2000 \x1b[31m\r\n\r\n"], "answers what is no HTTP"),
            (&[b"\r\n\r\n"], "answers what is no HTTP"),
        ];
        for (answer, expected) in answers {
            let (request, said) = asked("http://p:1", answer);
            assert_eq!(request, b"CONNECT a.org:443 HTTP/1.1\r\nHost: a.org:443\r\n\r\n");
            let said = said.map(|rest| String::from_utf8_lossy(&rest).into_owned());
            assert_eq!(said.unwrap_or_else(|why| why), expected);
        }
        let interim: &'static [u8] = "HTTP/1.1 100 Continue\r\n\r\n".repeat(99).leak().as_bytes();
        let (_, said) = asked("http://p:1", vec![interim].leak());
        assert_eq!(said, Err("answers 100".to_owned()));
        // What it was told is given back.
        static BACK: [&[u8]; 1] = [b"HTTP/1.1 407 Basic dTpw\r\n\r\n"];
        for proxy in ["http://u:p@p:1", "http://p:1"] {
            let said = asked(proxy, &BACK).1.expect_err("refused");
            assert!(said.starts_with("answers 407") && !said.contains("dTpw"), "{said}");
        }
        static ENDLESS: [&[u8]; 1] = [&LONG];
        let (_, said) = asked("http://p:1", &ENDLESS);
        assert_eq!(said, Err("sends a head of more than 16 KiB".to_owned()));
        for (user, coded) in [("u:p@", "dTpw"), ("u@", "dTo="), ("u:@", "dTo=")] {
            let (request, _) = asked(&format!("http://{user}p:1"), &[b"HTTP/1.1 200 OK\r\n\r\n"]);
            let request = String::from_utf8(request).expect("text");
            let line = format!("\r\nProxy-Authorization: Basic {coded}\r\n\r\n");
            assert!(request.ends_with(&line), "{request}");
        }
    }

    #[test]
    fn what_a_socks_proxy_may_answer() {
        const GRANTED: &[u8] = b"\x05\0\0\x01\x01\x02\x03\x04\0\x50hello";
        let (request, said) = asked("socks5h://p:1", &[b"\x05\0", GRANTED]);
        assert_eq!(request, b"\x05\x01\0\x05\x01\0\x03\x05a.org\x01\xbb");
        assert_eq!(said.as_deref(), Ok(&b"hello"[..]));
        let (request, said) =
            asked("socks5://u:pw@p:1", &[b"\x05\x02", b"\x01\0", b"\x05\0\0\x03\x01x\0\0ok"]);
        assert_eq!(request, b"\x05\x01\x02\x01\x01u\x02pw\x05\x01\0\x03\x05a.org\x01\xbb");
        assert_eq!(said.as_deref(), Ok(&b"ok"[..]));
        let refused: [(&'static str, &'static [&'static [u8]], &str); 6] = [
            ("socks5://p", &[b"\x05\xff"], "speaks no SOCKS5, or wants another user and password"),
            (
                "socks5://p",
                &[b"HTTP/1.1 400"],
                "speaks no SOCKS5, or wants another user and password",
            ),
            ("socks5://u:p@p", &[b"\x05\x02", b"\x01\x01"], "refuses the user and password"),
            ("socks5://p", &[b"\x05\0", b"\x05\x02\0\x01"], "answers with SOCKS5 error 2"),
            ("socks5://p", &[b"\x05\0", b"\x05\0\0\x09"], "answers what is no SOCKS5"),
            (
                "socks5://p",
                &[b"\x05\0", b"\x05\0\0\x01\0"],
                "ends the connection before it has answered",
            ),
        ];
        for (proxy, answers, expected) in refused {
            assert_eq!(asked(proxy, answers).1, Err(expected.to_owned()));
        }
    }

    #[test]
    fn base64_pads() {
        for (plain, coded) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v")] {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }
}
