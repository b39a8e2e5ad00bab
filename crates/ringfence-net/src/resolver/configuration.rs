//! What resolv.conf(5) says.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

/// Its servers, domains and options.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Configuration {
    pub servers: Vec<SocketAddr>,
    pub search: Vec<String>,
    /// How long a server may take.
    pub patience: Duration,
    /// How often all are asked.
    pub rounds: usize,
    /// So many dots make a name a whole one.
    pub dots: usize,
}

impl Configuration {
    /// Reads it, with the C library's bounds.
    pub fn of(text: &str) -> Configuration {
        let (mut servers, mut search) = (Vec::new(), Vec::new());
        let (mut seconds, mut rounds, mut dots) = (5, 2, 1);
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => servers.extend(words.next().and_then(server)),
                Some("search" | "domain") => {
                    search = words.map(|word| word.trim_end_matches('.').to_owned()).collect();
                }
                Some("options") => {
                    for (name, value) in words.filter_map(|word| word.split_once(':')) {
                        let Ok(value) = value.parse::<u32>() else { continue };
                        match name {
                            "timeout" => seconds = value.clamp(1, 30),
                            "attempts" => rounds = value.clamp(1, 5),
                            "ndots" => dots = value.min(15),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        if servers.is_empty() {
            servers.push(SocketAddr::from((Ipv4Addr::LOCALHOST, 53)));
        }
        servers.truncate(3);
        search.truncate(6);
        let patience = Duration::from_secs(seconds.into());
        Configuration { servers, search, patience, rounds: rounds as usize, dots: dots as usize }
    }

    /// A name with enough dots is whole; another may be short for one of a search domain.
    pub fn spellings(&self, name: &str) -> Vec<String> {
        let mut spellings = Vec::new();
        if name.matches('.').count() < self.dots {
            spellings.extend(self.search.iter().map(|domain| format!("{name}.{domain}")));
        }
        spellings.push(name.to_owned());
        spellings
    }
}

/// An address, which on a link has the interface's name or number behind a `%`.
fn server(text: &str) -> Option<SocketAddr> {
    let Some((address, zone)) = text.split_once('%') else {
        return Some(SocketAddr::new(text.parse::<IpAddr>().ok()?, 53));
    };
    let address: Ipv6Addr = address.parse().ok()?;
    let named = || {
        let plain = !zone.is_empty() && !zone.contains('/') && !zone.starts_with('.');
        let number = std::fs::read_to_string(format!("/sys/class/net/{zone}/ifindex"));
        number.ok().filter(|_| plain)?.trim().parse().ok()
    };
    let number = zone.parse().ok().or_else(named)?;
    Some(SocketAddr::V6(SocketAddrV6::new(address, 53, 0, number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_and_search_domains_are_taken_and_there_is_always_a_server() {
        let read = Configuration::of(
            "search corp.example. x\nnameserver 10.0.0.53\nnameserver fe80::1%2\nnameserver x%2\n",
        );
        let link = SocketAddrV6::new("fe80::1".parse().expect("an address"), 53, 0, 2);
        assert_eq!(
            read.servers,
            ["10.0.0.53:53".parse().expect("an address"), SocketAddr::V6(link)]
        );
        assert_eq!(read.spellings("db"), ["db.corp.example", "db.x", "db"]);
        assert_eq!(read.spellings("a.org"), ["a.org"]);
        let none = Configuration::of("");
        assert_eq!((none.servers.len(), none.rounds), (1, 2));
        assert_eq!(none.patience, Duration::from_secs(5), "the C library's");
    }

    #[test]
    fn its_options_are_taken_within_their_bounds() {
        let read = Configuration::of(
            "search ns.svc.cluster.local\noptions timeout:12 attempts:3 edns0\noptions ndots:5 x:y timeout:z\n",
        );
        assert_eq!((read.patience, read.rounds), (Duration::from_secs(12), 3));
        assert_eq!(read.spellings("db.other"), ["db.other.ns.svc.cluster.local", "db.other"]);
        assert_eq!(read.spellings("a.b.c.d.e.f"), ["a.b.c.d.e.f"]);
        let wild = Configuration::of("options timeout:0 attempts:99 ndots:99");
        assert_eq!((wild.patience, wild.rounds, wild.dots), (Duration::from_secs(1), 5, 15));
    }
}
