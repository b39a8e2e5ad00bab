//! Routes (rtnetlink(7)).

use crate::message::{ACK, CREATE, EXCLUSIVE, Messages};
use crate::{Errno, Result};
use std::net::IpAddr;

/// `RTM_NEWROUTE`, `RTM_GETROUTE`.
const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;
/// `RT_TABLE_LOCAL`.
const TABLE_LOCAL: u8 = 255;
/// `RTPROT_BOOT`.
const BY_BOOT: u8 = 3;
/// `RT_SCOPE_HOST`, `RT_SCOPE_UNIVERSE`.
const SCOPE_HOST: u8 = 254;
const SCOPE_UNIVERSE: u8 = 0;
/// `RTN_LOCAL`.
const LOCAL: u8 = 2;
/// Where in a `struct rtmsg` its type is.
const TYPE: usize = 7;
/// Attributes: the destination, the interface to leave by, the source address to prefer.
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_PREFSRC: u16 = 7;
/// The loopback is the first interface of every network namespace.
const LOOPBACK: u32 = 1;

/// Makes every address local to the caller's network namespace, as
/// `ip route add local default dev lo` and the same with `-6` do.
///
/// Returns whether IPv6 was there to be routed.
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN` over that namespace, `EEXIST` the second time, `ENETDOWN`
/// while the loopback is down.
pub fn all_local() -> Result<bool> {
    let [four, six] = local_messages();
    four.send(libc::NETLINK_ROUTE)?;
    match six.send(libc::NETLINK_ROUTE) {
        Ok(()) => Ok(true),
        // Not built in, switched off at boot, or switched off for the interface.
        Err(Errno::EOPNOTSUPP | Errno::EAFNOSUPPORT | Errno::EACCES | Errno::ENODEV) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Whether what is sent to an address stays in the caller's network namespace: one of its own, whether any interface bears it
/// or a route alone has it local (`ip route add local`).
///
/// # Errors
/// The kernel's; `ENETUNREACH` and others where no route leads there.
pub fn is_local(address: IpAddr) -> Result<bool> {
    let (family, bytes) = match address {
        IpAddr::V4(ip) => (libc::AF_INET, ip.octets().to_vec()),
        IpAddr::V6(ip) => (libc::AF_INET6, ip.octets().to_vec()),
    };
    let fixed = [family as u8, (bytes.len() * 8) as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut question = Messages::new();
    question.add(GET_ROUTE, 0, &fixed, |message| message.attribute(RTA_DST, &bytes));
    let route = question.ask(libc::NETLINK_ROUTE, NEW_ROUTE)?;
    route.get(TYPE).map(|&kind| kind == LOCAL).ok_or(Errno::EBADMSG)
}

/// The two messages that [`all_local`] sends, IPv4's and IPv6's: each is confirmed.
pub fn all_local_bytes() -> [Vec<u8>; 2] {
    local_messages().map(Messages::into_bytes)
}

fn local_messages() -> [Messages; 2] {
    [
        message(libc::AF_INET as u8, SCOPE_HOST, Some([127, 0, 0, 1])),
        message(libc::AF_INET6 as u8, SCOPE_UNIVERSE, None),
    ]
}

fn message(family: u8, scope: u8, source: Option<[u8; 4]>) -> Messages {
    // struct rtmsg: family, lengths of destination and source, TOS, table, protocol, scope,
    // type, flags.
    let fixed = [family, 0, 0, 0, TABLE_LOCAL, BY_BOOT, scope, LOCAL, 0, 0, 0, 0];
    let mut messages = Messages::new();
    messages.add(NEW_ROUTE, CREATE | EXCLUSIVE | ACK, &fixed, |message| {
        message.attribute(RTA_OIF, &LOOPBACK.to_ne_bytes());
        if let Some(source) = source {
            // Else the kernel takes the destination for the source as well, and a program that
            // asks for its own address would get the other side's.
            message.attribute(RTA_PREFSRC, &source);
        }
    });
    messages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_here_and_other_networks_are_not() {
        let local = |text: &str| is_local(text.parse().expect("an address"));
        assert_eq!(["127.0.0.1", "127.5.5.5"].map(local), [Ok(true); 2]);
        // Where there is no IPv6, no route leads there.
        assert_ne!(local("::1"), Ok(false));
        for elsewhere in ["192.0.2.1", "2001:db8::1"] {
            assert_ne!(local(elsewhere), Ok(true), "{elsewhere}");
        }
    }
}
