//! Where a program's datagram sockets are bound.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Where the program's sockets are bound, by family.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Targets {
    four: Option<SocketAddr>,
    six: Option<SocketAddr>,
}

impl Targets {
    /// Adds the address that a program has bound.
    pub fn add(&mut self, bound: SocketAddr, only_ipv6: bool) {
        let port = bound.port();
        match bound.ip().to_canonical() {
            IpAddr::V4(ip) => {
                let ip = if ip.is_unspecified() { Ipv4Addr::LOCALHOST } else { ip };
                self.four = Some((ip, port).into());
            }
            IpAddr::V6(ip) if ip.is_unspecified() => {
                self.six = Some((Ipv6Addr::LOCALHOST, port).into());
                if !only_ipv6 {
                    self.four = Some((Ipv4Addr::LOCALHOST, port).into());
                }
            }
            IpAddr::V6(ip) => self.six = Some((ip, port).into()),
        }
    }

    /// The one for a peer, of its own family where there is one.
    pub fn of(&self, peer: IpAddr) -> Option<SocketAddr> {
        if peer.is_ipv4() { self.four.or(self.six) } else { self.six.or(self.four) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().expect(text)
    }

    #[test]
    fn a_peer_is_served_in_its_own_family_where_that_is_bound() {
        let of = |bound: &[(&str, bool)], peer: &str| {
            let mut targets = Targets::default();
            bound.iter().for_each(|(bound, only)| targets.add(address(bound), *only));
            targets.of(peer.parse().expect(peer)).map(|target| target.to_string())
        };
        let here4 = Some("127.0.0.1:53".to_owned());
        let here6 = Some("[::1]:53".to_owned());
        assert_eq!(of(&[("0.0.0.0:53", false)], "192.0.2.1"), here4);
        assert_eq!(of(&[("0.0.0.0:53", false)], "2001:db8::1"), here4);
        assert_eq!(of(&[("[::]:53", false)], "192.0.2.1"), here4);
        assert_eq!(of(&[("[::]:53", false)], "2001:db8::1"), here6);
        assert_eq!(of(&[("[::]:53", true)], "192.0.2.1"), here6);
        assert_eq!(of(&[("[::ffff:127.0.0.1]:53", false)], "192.0.2.1"), here4);
        assert_eq!(of(&[("10.0.0.1:53", false)], "192.0.2.1"), Some("10.0.0.1:53".to_owned()));
        assert_eq!(of(&[], "192.0.2.1"), None);
    }
}
