//! Names and the addresses that stand for them inside: a connection to a synthetic address is a
//! connection to that name.

use ringfence_policy::Host;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// The first IPv4 address given out; its range is 198.18.0.0/15, kept for benchmarks (RFC 2544).
const FIRST4: u32 = 0xC612_0001;
/// What the IPv6 addresses begin with, in fd00::/8 (RFC 4193); the last 32 bits count.
const PREFIX6: u128 = 0xfd72_696e_6766_656e_6365 << 48;
/// The most names in one session: more than any program asks for, less than fills the range.
const MOST: usize = 65_536;

/// The names that were asked for and allowed.
#[derive(Debug, Default)]
pub struct Names {
    indices: HashMap<Arc<str>, u32>,
    names: Vec<Arc<str>>,
}

impl Names {
    /// The number that stands for a name, a new one if need be; nothing when there are too many.
    pub fn index(&mut self, name: &str) -> Option<u32> {
        if let Some(&index) = self.indices.get(name) {
            return Some(index);
        }
        if self.names.len() >= MOST {
            return None;
        }
        let index = u32::try_from(self.names.len()).ok()?;
        let name: Arc<str> = name.into();
        self.names.push(name.clone());
        self.indices.insert(name, index);
        Some(index)
    }

    /// Whether a name has an address already.
    pub fn knows(&self, name: &str) -> bool {
        self.indices.contains_key(name)
    }

    /// The name that an address stands for.
    pub fn name(&self, address: IpAddr) -> Option<&Arc<str>> {
        let index = match address.to_canonical() {
            IpAddr::V4(address) => address.to_bits().checked_sub(FIRST4)?,
            IpAddr::V6(address) => u32::try_from(address.to_bits().checked_sub(PREFIX6)?).ok()?,
        };
        self.names.get(usize::try_from(index).ok()?)
    }

    /// What a connection to this address is a connection to.
    pub fn host(&self, address: IpAddr) -> Host {
        match self.name(address) {
            Some(name) => Host::Name(name.to_string()),
            None => Host::Address(address.to_canonical()),
        }
    }
}

/// The IPv4 address of a number.
pub fn address4(index: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(FIRST4 + index)
}

/// The IPv6 address of a number.
pub fn address6(index: u32) -> Ipv6Addr {
    Ipv6Addr::from_bits(PREFIX6 + u128::from(index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_address_and_the_address_leads_back() {
        let mut names = Names::default();
        let index = names.index("example.org").expect("room");
        assert_eq!(names.index("example.org"), Some(index));
        let other = names.index("example.com").expect("room");
        assert_ne!(index, other);
        for address in [IpAddr::V4(address4(other)), IpAddr::V6(address6(other))] {
            assert_eq!(names.host(address), Host::Name("example.com".to_owned()));
        }
        let mapped = IpAddr::V6(address4(index).to_ipv6_mapped());
        assert_eq!(names.host(mapped), Host::Name("example.org".to_owned()));
        for unknown in ["198.18.0.3", "198.18.0.0", "203.0.113.1", "fd72:696e::1", "::1"] {
            let unknown: IpAddr = unknown.parse().expect("an address");
            assert_eq!(names.host(unknown), Host::Address(unknown));
        }
    }

    #[test]
    fn the_range_is_never_left() {
        let mut names = Names::default();
        for number in 0..MOST {
            assert!(names.index(&format!("n{number}.example.org")).is_some());
        }
        assert_eq!(names.index("one-more.example.org"), None);
        assert!(names.index("n5.example.org").is_some());
        assert!(address4(MOST as u32).octets()[1] < 20);
    }
}
