//! Addresses and ranges of addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A range of addresses in CIDR form; a single address is a range of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpNet {
    address: IpAddr,
    prefix: u8,
}

impl IpNet {
    /// The range of this one address.
    pub fn of(address: IpAddr) -> IpNet {
        let address = canonical(address);
        IpNet { address, prefix: width(address) }
    }

    /// Reads `ADDRESS/LENGTH`.
    ///
    /// # Errors
    /// A sentence that says what is wrong; bits set after the prefix are an error, since they
    /// show that the writer meant another range.
    pub fn parse(text: &str) -> Result<IpNet, String> {
        let (address, length) = text.split_once('/').ok_or("a range is ADDRESS/LENGTH")?;
        let address: IpAddr = address.parse().map_err(|_| {
            "before `/` stands an address, as in 10.0.0.0/8; after a name there is no path: \
                 leave it out, or rule requests by --http 'METHOD HOST/PATH'"
        })?;
        let digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
        let length: u8 = (if digits { length.parse().ok() } else { None })
            .filter(|&length| length <= width(address))
            .ok_or_else(|| format!("after `/` stands a number up to {}", width(address)))?;
        let (address, prefix) = match (address, canonical(address)) {
            // ::ffff:10.0.0.0/104 is 10.0.0.0/8; a shorter prefix would mix the families.
            (IpAddr::V6(_), IpAddr::V4(inner)) if length >= 96 => (IpAddr::V4(inner), length - 96),
            (IpAddr::V6(_), IpAddr::V4(_)) => {
                return Err("this range mixes IPv4 and IPv6; write two".to_owned());
            }
            (address, _) => (address, length),
        };
        let net = IpNet { address: masked(address, prefix), prefix };
        if net.address == address {
            Ok(net)
        } else {
            Err(format!("the range of that length is {net}"))
        }
    }

    /// The first address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// How many leading bits are fixed.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// The address, when the range holds only one.
    pub fn single(&self) -> Option<IpAddr> {
        (self.prefix == width(self.address)).then_some(self.address)
    }

    /// Whether an address is in the range; IPv4 within IPv6 counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = canonical(address);
        address.is_ipv4() == self.address.is_ipv4() && masked(address, self.prefix) == self.address
    }
}

impl fmt::Display for IpNet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.single() {
            Some(address) => address.fmt(f),
            None => write!(f, "{}/{}", self.address, self.prefix),
        }
    }
}

/// The address itself, or the IPv4 address that an IPv6 one maps.
pub fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// Whether this is `127.0.0.1` or `::1`, the addresses that `localhost` means, or what `connect(2)` takes for them:
/// `0.0.0.0` and `::`.
pub(crate) fn means_localhost(address: IpAddr) -> bool {
    is_localhost(address) || address.is_unspecified()
}

/// Whether this is `127.0.0.1` or `::1`.
pub(crate) fn is_localhost(address: IpAddr) -> bool {
    address == IpAddr::V4(Ipv4Addr::LOCALHOST) || address == IpAddr::V6(Ipv6Addr::LOCALHOST)
}

/// Whether a connection from this host to the address is one to itself, whatever its networks are: a loopback address, or
/// the unspecified one.
pub(crate) fn leads_here(address: IpAddr) -> bool {
    let address = canonical(address);
    address.is_loopback() || address.is_unspecified()
}

/// Whether an address belongs to the public internet: not this host, not a private or local
/// network, not a range kept for benchmarks, multicast or translation.
///
/// Ranges for documentation (RFC 5737, 3849, 9637) count as public: nothing of the host or its
/// networks is there, and closed-off machines give such addresses to the mirrors they may reach.
///
/// What is not known to be public counts as not public: in IPv6 that is everything outside
/// 2000::/3, and the ranges inside it that lead to IPv4 by embedding it.
pub fn is_public(address: IpAddr) -> bool {
    match canonical(address) {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let local = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast();
    let shared = a == 100 && (64..128).contains(&b);
    let benchmark = a == 198 && (b == 18 || b == 19);
    let protocol = a == 192 && b == 0 && c == 0;
    let relay = a == 192 && b == 88 && c == 99;
    !(local || shared || benchmark || protocol || relay || a == 0 || a >= 240)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, ..] = address.segments();
    let global = a & 0xe000 == 0x2000;
    // 2001::/23: Teredo, ORCHID, benchmarking; 2002::/16: 6to4.
    let special = (a == 0x2001 && b < 0x0200) || a == 0x2002;
    global && !special
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn masked(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_holds_its_addresses_in_both_spellings() {
        let net = IpNet::parse("10.0.0.0/8").expect("a range");
        assert!(net.contains("10.255.0.1".parse().expect("an address")));
        assert!(net.contains("::ffff:10.1.2.3".parse().expect("an address")));
        assert!(!net.contains("11.0.0.1".parse().expect("an address")));
        assert_eq!(IpNet::parse("::ffff:10.0.0.0/104"), Ok(net));
        let all = IpNet::parse("0.0.0.0/0").expect("a range");
        assert!(all.contains("203.0.113.9".parse().expect("an address")));
        assert!(!all.contains("2001:db8::1".parse().expect("an address")));
    }

    #[test]
    fn a_range_that_means_another_is_refused_with_that_other() {
        let message = IpNet::parse("10.1.0.0/8").expect_err("bits after the prefix");
        assert!(message.contains("10.0.0.0/8"), "{message}");
        for wrong in ["10.0.0.0/33", "10.0.0.0/", "10.0.0.0/+8", "x/8", "::ffff:0:0/95"] {
            assert!(IpNet::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_the_public_internet_is_public() {
        let public = [
            "1.1.1.1",
            "8.8.8.8",
            "2606:4700::1111",
            "::ffff:1.1.1.1",
            "100.63.0.1",
            "203.0.113.9",
            "2001:db8::1",
        ];
        for public in public {
            assert!(is_public(public.parse().expect(public)), "{public}");
        }
        let private = [
            "127.0.0.1",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "0.0.0.0",
            "100.64.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "fd00::1",
            "ff02::1",
            "2002:7f00:1::",
            "::ffff:127.0.0.1",
            "64:ff9b::7f00:1",
            "::127.0.0.1",
            "fd00:ec2::254",
            "2001::1",
        ];
        for private in private {
            assert!(!is_public(private.parse().expect(private)), "{private}");
        }
    }
}
