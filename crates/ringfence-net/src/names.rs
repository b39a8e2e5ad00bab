//! Names and the addresses that stand for them inside: a connection to a synthetic address is a
//! connection to that name.

use crate::dns::TTL;
use ringfence_policy::Host;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The first IPv4 address given out; its range is 198.18.0.0/15, kept for benchmarks (RFC 2544).
const FIRST4: u32 = 0xC612_0001;
/// What the IPv6 addresses begin with, in fd00::/8 (RFC 4193); the last 32 bits count.
const PREFIX6: u128 = 0xfd72_696e_6766_656e_6365 << 48;
/// The most names at once: more than most programs ask for, less than fills the range.
pub(crate) const MOST: usize = 65_536;
/// How long a name keeps its address after it was used last: as long as programs were told to believe it.
const KEPT: Duration = Duration::from_secs(TTL as u64);

/// The names that were asked for and allowed.
#[derive(Debug, Default)]
pub struct Names {
    indices: HashMap<Arc<str>, u32>,
    slots: Vec<Slot>,
    /// Numbers by when they were used, the one that was longest ago first.
    uses: BTreeMap<u64, u32>,
    /// Of the next use.
    turn: u64,
    /// That there was no number left has been told.
    told: bool,
}

/// What a number stands for.
#[derive(Debug)]
struct Slot {
    /// Connections to it hold it too.
    name: Arc<str>,
    turn: u64,
    used: Instant,
}

/// Who holds a name besides connections: its slot, and the way to its number.
const HOLDERS: usize = 2;

impl Names {
    /// The number that stands for a name, a new one if need be. Where all are given out it is that of a name which nobody
    /// has asked for, or connected to, for as long as the answer stays true, and to which there is no connection; nothing
    /// where there is none.
    pub fn index(&mut self, name: &str, now: Instant) -> Option<u32> {
        if let Some(&index) = self.indices.get(name) {
            self.touch(index, now);
            return Some(index);
        }
        let index = if self.slots.len() < MOST { None } else { Some(self.free(now)?) };
        let name: Arc<str> = name.into();
        let turn = self.next();
        let slot = Slot { name: name.clone(), turn, used: now };
        let index = match index {
            Some(index) => {
                let before = std::mem::replace(self.slots.get_mut(index as usize)?, slot);
                self.uses.remove(&before.turn);
                self.indices.remove(&before.name);
                index
            }
            None => {
                self.slots.push(slot);
                u32::try_from(self.slots.len() - 1).ok()?
            }
        };
        self.uses.insert(turn, index);
        self.indices.insert(name, index);
        Some(index)
    }

    /// A number that can stand for another name. Those with a connection to them are looked past, and tried again when
    /// their turn comes once more.
    fn free(&mut self, now: Instant) -> Option<u32> {
        for _ in 0..self.uses.len() {
            let (_, &index) = self.uses.first_key_value()?;
            let slot = self.slots.get(index as usize)?;
            if now.saturating_duration_since(slot.used) <= KEPT {
                return None;
            }
            if Arc::strong_count(&slot.name) <= HOLDERS {
                return Some(index);
            }
            self.touch(index, now);
        }
        None
    }

    /// Says that a number has been used now.
    fn touch(&mut self, index: u32, now: Instant) {
        let turn = self.next();
        if let Some(slot) = self.slots.get_mut(index as usize) {
            self.uses.remove(&slot.turn);
            self.uses.insert(turn, index);
            (slot.turn, slot.used) = (turn, now);
        }
    }

    fn next(&mut self) -> u64 {
        self.turn += 1;
        self.turn
    }

    /// Whether it is to be told that there is no number left: once.
    pub fn tells(&mut self) -> bool {
        !std::mem::replace(&mut self.told, true)
    }

    /// Whether a name has an address already.
    pub fn knows(&self, name: &str) -> bool {
        self.indices.contains_key(name)
    }

    fn number(&self, address: IpAddr) -> Option<u32> {
        let index = match address.to_canonical() {
            IpAddr::V4(address) => address.to_bits().checked_sub(FIRST4)?,
            IpAddr::V6(address) => u32::try_from(address.to_bits().checked_sub(PREFIX6)?).ok()?,
        };
        usize::try_from(index).is_ok_and(|at| at < self.slots.len()).then_some(index)
    }

    /// The name that an address stands for.
    pub fn name(&self, address: IpAddr) -> Option<&Arc<str>> {
        let index = self.number(address)?;
        self.slots.get(index as usize).map(|slot| &slot.name)
    }

    /// What a connection to this address is a connection to, and what it has to hold as long as it lives: until then the
    /// address stands for no other name.
    pub fn host(&mut self, address: IpAddr, now: Instant) -> (Host, Option<Arc<str>>) {
        let Some(index) = self.number(address) else {
            return (Host::Address(address.to_canonical()), None);
        };
        self.touch(index, now);
        let held = self.name(address).cloned();
        let name = held.as_deref().unwrap_or_default().to_owned();
        (Host::Name(name), held)
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

    fn named(name: &str) -> Host {
        Host::Name(name.to_owned())
    }

    #[test]
    fn a_name_keeps_its_address_and_the_address_leads_back() {
        let (mut names, now) = (Names::default(), Instant::now());
        let index = names.index("example.org", now).expect("room");
        assert_eq!(names.index("example.org", now), Some(index));
        let other = names.index("example.com", now).expect("room");
        assert_ne!(index, other);
        for address in [IpAddr::V4(address4(other)), IpAddr::V6(address6(other))] {
            assert_eq!(names.host(address, now).0, named("example.com"));
        }
        let mapped = IpAddr::V6(address4(index).to_ipv6_mapped());
        assert_eq!(names.host(mapped, now).0, named("example.org"));
        for unknown in ["198.18.0.3", "198.18.0.0", "203.0.113.1", "fd72:696e::1", "::1"] {
            let unknown: IpAddr = unknown.parse().expect("an address");
            assert_eq!(names.host(unknown, now).0, Host::Address(unknown));
        }
    }

    /// All numbers given out, at this moment.
    fn full(now: Instant) -> Names {
        let mut names = Names::default();
        for number in 0..MOST {
            assert!(names.index(&format!("n{number}.example.org"), now).is_some());
        }
        names
    }

    #[test]
    fn the_range_is_never_left() {
        let now = Instant::now();
        let mut names = full(now);
        assert_eq!(names.index("one-more.example.org", now + KEPT), None);
        assert!(names.tells() && !names.tells(), "it is told once");
        assert!(names.index("n5.example.org", now).is_some());
        assert!(address4(MOST as u32).octets()[1] < 20);
    }

    #[test]
    fn a_number_is_given_again_when_nobody_means_its_name_any_more() {
        let begun = Instant::now();
        let mut names = full(begun);
        let address = |number: u32| IpAddr::V4(address4(number));
        // To the first there is a connection, the second is asked for again, to the third there was one lately.
        let (host, held) = names.host(address(0), begun);
        assert_eq!(host, named("n0.example.org"));
        let soon = begun + Duration::from_secs(60);
        assert_eq!(names.index("n1.example.org", soon), Some(1));
        drop(names.host(address(2), soon));
        let later = begun + KEPT + Duration::from_secs(1);
        assert_eq!(names.index("new.example.org", later), Some(3));
        assert_eq!(names.host(address(3), later).0, named("new.example.org"));
        assert!(!names.knows("n3.example.org") && names.knows("n0.example.org"));
        for number in 4..MOST as u32 {
            assert_eq!(names.index(&format!("new{number}.example.org"), later), Some(number));
        }
        assert_eq!(names.index("one-more.example.org", later), None);
        let later = soon + KEPT + Duration::from_secs(1);
        for number in [1, 2] {
            assert_eq!(names.index(&format!("newer{number}.example.org"), later), Some(number));
        }
        assert_eq!(names.host(address(0), later).0, named("n0.example.org"));
        // The connection has ended.
        drop(held);
        let last = later + KEPT + Duration::from_secs(1);
        let given: Vec<_> = (0..MOST).map(|n| names.index(&format!("last{n}"), last)).collect();
        assert!(given.contains(&Some(0)) && given.iter().all(Option::is_some));
    }
}
