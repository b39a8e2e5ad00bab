//! The user's own proxy: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` outside.
//!
//! Behind such a proxy, names are resolved by it, so that only it can check where they lead.

use crate::flow::io_text;
use crate::gateway::{Shared, Subject};
use ringfence_policy::{Host, HostRule};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long the proxy may take to connect.
const PATIENCE: Duration = Duration::from_secs(30);
/// The most bytes of its answer.
const ANSWER: usize = 16 * 1024;

/// Which proxy for what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Upstream {
    plain: Option<Proxy>,
    secure: Option<Proxy>,
    direct: Vec<Direct>,
    all_direct: bool,
}

/// A proxy that takes `CONNECT`.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    host: Host,
    port: u16,
    /// The value of `Proxy-Authorization`.
    authorization: Option<String>,
}

impl std::fmt::Debug for Proxy {
    /// Without the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// An entry of `NO_PROXY`: a rule, or a domain with everything below it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Direct {
    Domain(String),
    Rule(HostRule),
}

impl Upstream {
    /// Reads the variables, lower case before upper case as curl does. A proxy of another kind
    /// than `http://` is left out: connections are made directly then.
    pub fn of_environment(variable: &dyn Fn(&str) -> Option<String>) -> Upstream {
        let read = |names: &[&str]| {
            let value = names.iter().find_map(|name| variable(name).filter(|v| !v.is_empty()))?;
            Proxy::parse(&value)
        };
        let no_proxy = variable("no_proxy").or_else(|| variable("NO_PROXY")).unwrap_or_default();
        let entries = no_proxy.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let mut upstream = Upstream {
            plain: read(&["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"]),
            secure: read(&["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]),
            ..Upstream::default()
        };
        for entry in entries {
            if entry == "*" {
                upstream.all_direct = true;
            }
            let name = entry.trim_start_matches("*.").trim_start_matches('.');
            match Host::parse(name) {
                Ok(Host::Name(name)) => upstream.direct.push(Direct::Domain(name)),
                _ => upstream.direct.extend(HostRule::parse(&all_ports(entry)).map(Direct::Rule)),
            }
        }
        upstream
    }

    /// The proxy for a connection; none when it is made directly.
    pub fn proxy(&self, host: &Host, port: u16) -> Option<&Proxy> {
        let direct = self.all_direct
            || host.is_loopback()
            || self.direct.iter().any(|direct| match (direct, host) {
                (Direct::Domain(domain), Host::Name(name)) => {
                    let above = name.strip_suffix(domain.as_str());
                    above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
                }
                (Direct::Rule(rule), host) => rule.matches_host(host),
                _ => false,
            });
        if direct {
            return None;
        }
        if port == 80 { self.plain.as_ref() } else { self.secure.as_ref() }
    }
}

fn all_ports(entry: &str) -> String {
    if entry.contains(':') && !entry.contains('[') {
        format!("[{entry}]:*")
    } else {
        format!("{entry}:*")
    }
}

impl Proxy {
    /// Reads `[http://][USER:PASSWORD@]HOST[:PORT]`.
    fn parse(text: &str) -> Option<Proxy> {
        let rest = match text.split_once("://") {
            Some((scheme, rest)) => scheme.eq_ignore_ascii_case("http").then_some(rest)?,
            None => text,
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
        let authorization = user.map(|user| format!("Basic {}", base64(&decoded(user))));
        Some(Proxy { host: Host::parse(host).ok()?, port, authorization })
    }

    /// Asks the proxy to connect.
    pub(crate) async fn dial(&self, shared: &Shared, to: &Subject) -> Result<TcpStream, String> {
        let failed = |text: String| format!("the proxy {self:?} {text}");
        tokio::time::timeout(PATIENCE, self.connect(shared, to))
            .await
            .map_err(|_| failed("does not answer".to_owned()))?
            .map_err(failed)
    }

    async fn connect(&self, shared: &Shared, to: &Subject) -> Result<TcpStream, String> {
        let addresses = match &self.host {
            Host::Address(address) => vec![*address],
            Host::Name(name) if name == "localhost" => vec![[127, 0, 0, 1].into()],
            Host::Name(name) => shared.resolver.resolve(name).await?,
        };
        let mut failure = "has no address".to_owned();
        for address in addresses {
            match TcpStream::connect((address, self.port)).await {
                Ok(stream) => return self.ask(stream, to).await,
                Err(error) => failure = io_text(&error),
            }
        }
        Err(failure)
    }

    async fn ask(&self, mut stream: TcpStream, to: &Subject) -> Result<TcpStream, String> {
        let place = format!("{}:{}", to.host, to.port);
        let mut request = format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n");
        if let Some(authorization) = &self.authorization {
            request.push_str(&format!("Proxy-Authorization: {authorization}\r\n"));
        }
        request.push_str("\r\n");
        let _ = stream.set_nodelay(true);
        let text = |error: std::io::Error| io_text(&error);
        stream.write_all(request.as_bytes()).await.map_err(text)?;
        // Byte by byte: what follows the head is the server's already.
        let mut answer = Vec::with_capacity(256);
        while !answer.ends_with(b"\r\n\r\n") && answer.len() < ANSWER {
            answer.push(stream.read_u8().await.map_err(text)?);
        }
        let line = answer.split(|&byte| byte == b'\r').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        match line.split(' ').nth(1) {
            Some(code) if code.len() == 3 && code.starts_with('2') => Ok(stream),
            _ => Err(format!("answers `{}`", line.escape_debug())),
        }
    }
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

    fn upstream(list: &'static [(&str, &str)]) -> Upstream {
        Upstream::of_environment(&|name| {
            list.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
        })
    }

    fn host(text: &str) -> Host {
        Host::parse(text).expect(text)
    }

    #[test]
    fn the_users_proxy_is_used_but_not_for_what_is_exempt() {
        let upstream = upstream(&[
            ("HTTPS_PROXY", "http://us%40er:pa%3Ass@proxy.corp:3128/"),
            ("NO_PROXY", "corp, .lan,10.0.0.0/8,192.0.2.1"),
        ]);
        let proxy = upstream.proxy(&host("a.org"), 443).expect("a proxy");
        assert_eq!((proxy.host.to_string().as_str(), proxy.port), ("proxy.corp", 3128));
        assert_eq!(proxy.authorization.as_deref(), Some("Basic dXNAZXI6cGE6c3M="));
        assert_eq!(format!("{proxy:?}"), "proxy.corp:3128");
        assert!(upstream.proxy(&host("a.org"), 80).is_none());
        for direct in ["corp", "a.corp", "x.lan", "10.1.2.3", "192.0.2.1", "127.0.0.1", "localhost"]
        {
            assert!(upstream.proxy(&host(direct), 443).is_none(), "{direct}");
        }
        assert!(upstream.proxy(&host("notcorp"), 443).is_some());
    }

    #[test]
    fn no_variables_no_proxy() {
        assert_eq!(upstream(&[]), Upstream::default());
        assert!(upstream(&[("HTTPS_PROXY", "socks5://a:1")]).proxy(&host("a.org"), 443).is_none());
        let star = upstream(&[("https_proxy", "a:1"), ("no_proxy", "*")]);
        assert!(star.proxy(&host("a.org"), 443).is_none());
    }

    #[test]
    fn base64_pads() {
        for (plain, coded) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v")] {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }
}
