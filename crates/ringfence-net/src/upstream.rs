//! The user's own proxy: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` outside.
//!
//! Behind such a proxy, names are resolved by it, so that only it can check where they lead.

mod place;

pub(crate) use place::base64;

use crate::gateway::{Shared, Subject};
use place::Place;
use ringfence_policy::{Host, HostRule};
use std::time::Duration;
use tokio::net::TcpStream;

/// How long the proxy may take to connect.
const PATIENCE: Duration = Duration::from_secs(30);
/// Which proxy for what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Upstream {
    plain: Option<Proxy>,
    secure: Option<Proxy>,
    direct: Vec<Direct>,
    all_direct: bool,
}

/// A proxy of the user's.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Proxy {
    /// One that can be asked.
    At(Place),
    /// What this variable names is none that can be. To go around it would be to go where the user does not.
    Unusable(String),
}

impl std::fmt::Debug for Proxy {
    /// Without the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Proxy::At(place) => write!(f, "{}:{}", place.host, place.port),
            Proxy::Unusable(variable) => write!(f, "of {variable}"),
        }
    }
}

/// An entry of `NO_PROXY`: where connections are made directly, at one port or at all.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Direct {
    to: To,
    port: Option<u16>,
}

/// A domain with everything below it, or a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
enum To {
    Domain(String),
    Rule(HostRule),
}

impl Direct {
    /// Reads `NAME`, `.NAME`, `*.NAME`, an address or a range, and `:PORT` behind it.
    fn parse(entry: &str) -> Option<Direct> {
        let whole = |host: &str| host.ends_with(']') || !host.contains(':');
        let (host, port) = match entry.rsplit_once(':') {
            Some((host, port)) if whole(host) => (host, Some(port.parse().ok()?)),
            _ => (entry, None),
        };
        let name = host.trim_start_matches("*.").trim_start_matches('.');
        let to = match Host::parse(name) {
            Ok(Host::Name(name)) => To::Domain(name),
            _ if host.contains(':') && !host.contains('[') => {
                To::Rule(HostRule::parse(&format!("[{host}]:*")).ok()?)
            }
            _ => To::Rule(HostRule::parse(&format!("{host}:*")).ok()?),
        };
        Some(Direct { to, port })
    }

    fn matches(&self, host: &Host, port: u16) -> bool {
        let there = match (&self.to, host) {
            (To::Domain(domain), Host::Name(name)) => {
                let above = name.strip_suffix(domain.as_str());
                above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
            }
            (To::Domain(_), Host::Address(_)) => false,
            (To::Rule(rule), host) => rule.matches_host(host),
        };
        there && self.port.is_none_or(|only| only == port)
    }
}

impl Upstream {
    /// Reads the variables, lower case before upper case as curl does.
    pub fn of_environment(variable: &dyn Fn(&str) -> Option<String>) -> Upstream {
        let read = |names: &[&str]| {
            let (name, value) = names.iter().find_map(|&name| {
                let value = variable(name).filter(|value| !value.is_empty())?;
                Some((name, value))
            })?;
            Some(Place::parse(&value).map_or(Proxy::Unusable(name.to_owned()), Proxy::At))
        };
        let no_proxy = variable("no_proxy").or_else(|| variable("NO_PROXY")).unwrap_or_default();
        let separates = |c: char| c == ',' || c.is_ascii_whitespace();
        let entries: Vec<&str> = no_proxy.split(separates).filter(|e| !e.is_empty()).collect();
        Upstream {
            plain: read(&["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"]),
            secure: read(&["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]),
            all_direct: entries.contains(&"*"),
            direct: entries.into_iter().filter_map(Direct::parse).collect(),
        }
    }

    /// Whether connections to a host go through one, which is then the one that resolves its name.
    pub fn resolves(&self, host: &Host, port: u16) -> bool {
        self.proxy(host, port).is_some()
    }

    /// Whether one is at this port of the host's own loopback.
    pub fn is_here(&self, port: u16) -> bool {
        [&self.plain, &self.secure].into_iter().flatten().any(|proxy| match proxy {
            Proxy::At(place) => place.port == port && place.is_here(),
            Proxy::Unusable(_) => false,
        })
    }

    /// The proxy for a connection; none when it is made directly.
    pub(crate) fn proxy(&self, host: &Host, port: u16) -> Option<&Proxy> {
        let direct = self.all_direct
            || host.is_loopback()
            || self.direct.iter().any(|direct| direct.matches(host, port));
        if direct {
            return None;
        }
        if port == 80 { self.plain.as_ref() } else { self.secure.as_ref() }
    }
}

impl Proxy {
    /// Asks the proxy to connect.
    pub(crate) async fn dial(&self, shared: &Shared, to: &Subject) -> Result<TcpStream, String> {
        let place = match self {
            Proxy::At(place) => place,
            Proxy::Unusable(variable) => {
                return Err(format!(
                    "the proxy of {variable} is none that ringfence can ask: write it as http://HOST:PORT or \
                     socks5://HOST:PORT, or name {} in NO_PROXY",
                    to.host
                ));
            }
        };
        let failed = |text: String| format!("the proxy {self:?} {text}");
        tokio::time::timeout(PATIENCE, place.connect(shared, &to.host, to.port))
            .await
            .map_err(|_| failed("does not answer".to_owned()))?
            .map_err(failed)
    }
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
        let same = Place::parse("us%40er:pa%3ass@proxy.corp:3128");
        assert_eq!(*proxy, Proxy::At(same.expect("a proxy")));
        assert_eq!(format!("{proxy:?}"), "proxy.corp:3128");
        assert!(upstream.proxy(&host("a.org"), 80).is_none());
        for direct in ["corp", "a.corp", "x.lan", "10.1.2.3", "192.0.2.1", "127.0.0.1", "localhost"]
        {
            assert!(upstream.proxy(&host(direct), 443).is_none(), "{direct}");
        }
        assert!(upstream.proxy(&host("notcorp"), 443).is_some());
    }

    #[test]
    fn one_at_the_loopback_is_known_by_its_port() {
        for (place, here) in [
            ("http://u:p@127.0.0.1:3128", true),
            ("localhost:3128", true),
            ("socks5h://[::1]:3128", true),
            ("http://0.0.0.0:3128", true),
            ("http://[::ffff:127.0.0.1]:3128", true),
            ("http://127.0.0.1:3129", false),
            ("http://192.0.2.1:3128", false),
            ("http://proxy.corp:3128", false),
            ("https://127.0.0.1:3128", false),
        ] {
            for name in ["http_proxy", "HTTPS_PROXY", "ALL_PROXY"] {
                let upstream =
                    Upstream::of_environment(&|asked| (asked == name).then(|| place.to_owned()));
                assert_eq!(upstream.is_here(3128), here, "{place}");
            }
        }
    }

    #[test]
    fn no_variables_no_proxy() {
        assert_eq!(upstream(&[]), Upstream::default());
        let star = upstream(&[("https_proxy", "a:1"), ("no_proxy", "*")]);
        assert!(star.proxy(&host("a.org"), 443).is_none());
    }

    #[test]
    fn a_proxy_that_cannot_be_asked_is_not_gone_around() {
        for other in ["https://a:1", "socks4://a:1", "http://a:port", "http://:3128", "a b"] {
            let upstream =
                Upstream::of_environment(&|name| (name == "ALL_PROXY").then(|| other.to_owned()));
            let proxy = upstream.proxy(&host("a.org"), 443);
            assert_eq!(proxy, Some(&Proxy::Unusable("ALL_PROXY".to_owned())), "{other}");
        }
    }

    #[test]
    fn exemptions_have_ports_and_spaces_between_them() {
        let upstream = upstream(&[
            ("ALL_PROXY", "a:1"),
            (
                "NO_PROXY",
                "a.org:8443 b.org,*.c.org\t[2001:db8::1]:99, 2001:db8:1::/48 192.0.2.0/24:7",
            ),
        ]);
        let direct = |name: &str, port| upstream.proxy(&host(name), port).is_none();
        for (name, port, expected) in [
            ("a.org", 8443, true),
            ("x.a.org", 8443, true),
            ("a.org", 443, false),
            ("b.org", 443, true),
            ("c.org", 443, true),
            ("x.c.org", 80, true),
            ("2001:db8::1", 99, true),
            ("2001:db8::1", 443, false),
            ("2001:db8:1::7", 443, true),
            ("192.0.2.9", 7, true),
            ("192.0.2.9", 8, false),
            ("org", 443, false),
        ] {
            assert_eq!(direct(name, port), expected, "{name}:{port}");
        }
    }
}
