//! What a hosts file says (hosts(5)).

use std::net::IpAddr;

/// What a line of a hosts file says: an address, and its names.
pub(super) fn entry(line: &str) -> Option<(IpAddr, impl Iterator<Item = &str>)> {
    let mut words = line.split('#').next().unwrap_or(line).split_whitespace();
    Some((words.next()?.parse().ok()?, words))
}

/// The addresses that a hosts file gives a name.
pub(super) fn in_hosts(text: &str, name: &str) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = text
        .lines()
        .filter_map(|line| {
            let (address, mut names) = entry(line)?;
            let same = |word: &str| word.trim_end_matches('.').eq_ignore_ascii_case(name);
            names.any(same).then_some(address)
        })
        .collect();
    addresses.sort_by_key(IpAddr::is_ipv6);
    addresses
}
