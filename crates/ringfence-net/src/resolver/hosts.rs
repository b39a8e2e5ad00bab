//! What a hosts file says (hosts(5)). Some are lists of very many names that are not to be reached, and a program may
//! have the file asked as often as it likes: so an address is parsed only where it is of account.

use std::net::IpAddr;

/// What a line of a hosts file says: an address, and its names.
fn entry(line: &str) -> Option<(&str, impl Iterator<Item = &str>)> {
    let mut words = line.split('#').next().unwrap_or(line).split_whitespace();
    Some((words.next()?, words))
}

/// The addresses that a hosts file gives a name.
pub(super) fn in_hosts(text: &str, name: &str) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = text
        .lines()
        .filter_map(|line| {
            let (address, mut names) = entry(line)?;
            let same = |word: &str| word.trim_end_matches('.').eq_ignore_ascii_case(name);
            names.any(same).then(|| address.parse().ok())?
        })
        .collect();
    addresses.sort_by_key(IpAddr::is_ipv6);
    addresses
}

/// The names that a hosts file gives an address.
pub(super) fn names_in_hosts(text: &str, address: IpAddr) -> impl Iterator<Item = &str> {
    // IPv4 is written in one way.
    let written = address.to_string();
    let is = move |word: &str| match address {
        IpAddr::V4(_) => word == written,
        IpAddr::V6(_) => word.contains(':') && word.parse() == Ok(address),
    };
    text.lines().filter_map(entry).filter(move |(word, _)| is(word)).flat_map(|(_, names)| names)
}
