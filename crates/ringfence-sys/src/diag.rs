//! Whose a connection is (sock_diag(7)): from addresses to the socket, in the network namespace that the asking
//! socket was made in.

use crate::fd::owned;
use crate::{Errno, Result, sys};
use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

pub(crate) const NETLINK_SOCK_DIAG: i32 = 4;
/// The groups of those that tell of UDP sockets that end, in both families (`SKNLGRP_INET_UDP_DESTROY` and
/// `SKNLGRP_INET6_UDP_DESTROY`).
pub const ENDS_OF_DATAGRAMS: u32 = 1 << 1 | 1 << 3;
/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST`, `NLM_F_DUMP`.
const REQUEST: u16 = 1;
const DUMP: u16 = 0x300;
/// `NLMSG_ERROR`, `NLMSG_DONE`.
const ERROR: u16 = 2;
const DONE: u16 = 3;
const HEADER: usize = 16;
/// Bytes of `struct inet_diag_sockid` and `inet_diag_req_v2`.
const IDENTITY: usize = 48;
const QUESTION: usize = 8 + IDENTITY;
/// Where in a `struct inet_diag_msg` the cookie is, in two halves, and the inode, its last field.
const COOKIE: usize = 44;
const INODE: usize = 68;
/// Where its attributes begin, and the one that says that a listener takes no IPv4 (`INET_DIAG_SKV6ONLY`).
const ATTRIBUTES: usize = 72;
const ONLY_IPV6: u16 = 11;
/// Where a question names the states that it asks for, and `TCPF_LISTEN`.
const STATES: usize = HEADER + 4;
const LISTENS: u32 = 1 << LISTEN;
/// `TCP_SYN_SENT`, `TCP_LISTEN`.
const SYN_SENT: u8 = 2;
const LISTEN: u8 = 10;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// A socket to ask by, of the caller's network namespace whoever holds it later.
///
/// # Errors
/// The kernel's; `EPROTONOSUPPORT` without CONFIG_INET_DIAG.
pub fn open() -> Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes numbers only.
    unsafe { sys!(socket, libc::AF_NETLINK, kind, NETLINK_SOCK_DIAG) }.map(owned)
}

/// A socket that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its inode; nothing for one that has been closed.
    pub inode: Option<u64>,
    /// Its own number, which no other socket gets while the system runs (`SO_COOKIE`).
    pub number: u64,
    /// It asks to be connected, and has no answer yet (`SYN_SENT`).
    pub connecting: bool,
    /// It waits for whoever comes.
    pub listens: bool,
}

/// The TCP socket at `local` that is connected to `remote`, or else listens at `local`.
///
/// # Errors
/// `ENOENT` when there is none.
pub fn tcp(by: BorrowedFd<'_>, local: SocketAddr, remote: SocketAddr) -> Result<Found> {
    ask(by, &question(TCP, local, remote, 0))?;
    let mut socket = Err(Errno::ENOENT);
    receive(by, |answer| socket = socket.or(found(answer).ok_or(Errno::EBADMSG)))?;
    socket
}

/// The inode of a UDP socket that is bound to that port.
///
/// # Errors
/// `ENOENT` when there is none.
pub fn udp(by: BorrowedFd<'_>, ipv6: bool, port: u16) -> Result<u64> {
    let any = if ipv6 { IpAddr::from([0u8; 16]) } else { IpAddr::from([0u8; 4]) };
    let any = SocketAddr::new(any, 0);
    ask(by, &question(UDP, any, any, DUMP))?;
    let mut found = Err(Errno::ENOENT);
    receive(by, |answer| {
        if is_at(answer, port) {
            found = found.or(word(answer, INODE).map(u64::from).ok_or(Errno::EBADMSG));
        }
    })?;
    found
}

/// The numbers (`SO_COOKIE`) of the UDP sockets that are bound to a port, whatever the address.
///
/// # Errors
/// The kernel's; `ENOENT` without CONFIG_INET_UDP_DIAG.
pub fn bound(by: BorrowedFd<'_>, port: u16) -> Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for any in [IpAddr::from([0u8; 4]), IpAddr::from([0u8; 16])] {
        let (local, anywhere) = (SocketAddr::new(any, port), SocketAddr::new(any, 0));
        ask(by, &question(UDP, local, anywhere, DUMP))?;
        receive(by, |answer| {
            if is_at(answer, port) {
                numbers.extend(found(answer).map(|found| found.number));
            }
        })?;
    }
    Ok(numbers)
}

/// Takes what is told next by a socket of [`ENDS_OF_DATAGRAMS`]: whether one may have ended that was bound to the port.
///
/// # Errors
/// `EAGAIN` when there is nothing.
pub fn has_ended(by: BorrowedFd<'_>, port: u16) -> Result<bool> {
    let mut buffer = [0; 1024];
    match take(by, &mut buffer) {
        Ok(count) => Ok(buffer[..count].get(HEADER..).is_some_and(|told| is_at(told, port))),
        // More was told than there was room for.
        Err(Errno::ENOBUFS) => Ok(true),
        Err(errno) => Err(errno),
    }
}

/// Whether a `struct inet_diag_msg` is of a socket that is bound to the port.
fn is_at(answer: &[u8], port: u16) -> bool {
    answer.get(4..6) == Some(&port.to_be_bytes()[..])
}

/// The numbers (`SO_COOKIE`) of the TCP sockets that listen where a connection to this address can come to.
///
/// # Errors
/// The kernel's.
pub fn listeners(by: BorrowedFd<'_>, at: SocketAddr) -> Result<Vec<u64>> {
    let mut numbers = Vec::new();
    all_at(by, at.port(), |answer| {
        if listens_at(answer, at) {
            numbers.extend(found(answer).map(|found| found.number));
        }
    })?;
    Ok(numbers)
}

/// The numbers of all TCP sockets that listen.
///
/// # Errors
/// The kernel's.
pub fn all_listeners(by: BorrowedFd<'_>) -> Result<HashSet<u64>> {
    let mut numbers = HashSet::new();
    all_at(by, 0, |answer| numbers.extend(found(answer).map(|found| found.number)))?;
    Ok(numbers)
}

/// Gives each TCP socket that listens at a port to `each`, or at any (0): the kernel picks them out, of which a machine
/// may have very many.
fn all_at(by: BorrowedFd<'_>, port: u16, mut each: impl FnMut(&[u8])) -> Result<()> {
    for any in [IpAddr::from([0u8; 4]), IpAddr::from([0u8; 16])] {
        let (local, anywhere) = (SocketAddr::new(any, port), SocketAddr::new(any, 0));
        let mut question = question(TCP, local, anywhere, DUMP);
        question[STATES..STATES + 4].copy_from_slice(&LISTENS.to_ne_bytes());
        ask(by, &question)?;
        receive(by, &mut each)?;
    }
    Ok(())
}

/// Whether a listener's `struct inet_diag_msg` is one that connections to this address can come to.
fn listens_at(answer: &[u8], at: SocketAddr) -> bool {
    if answer.len() < ATTRIBUTES || answer[4..6] != at.port().to_be_bytes() {
        return false;
    }
    let bytes: [u8; 16] = answer[8..24].try_into().unwrap_or_default();
    if answer[0] == libc::AF_INET as u8 {
        let [a, b, c, d, ..] = bytes;
        let own = IpAddr::from([a, b, c, d]);
        return at.is_ipv4() && (own.is_unspecified() || own == at.ip());
    }
    let own = IpAddr::from(bytes);
    let both = at.is_ipv6() || !only_ipv6(&answer[ATTRIBUTES..]);
    own.to_canonical() == at.ip().to_canonical() || (own.is_unspecified() && both)
}

fn only_ipv6(mut attributes: &[u8]) -> bool {
    while let [a, b, c, d, rest @ ..] = attributes {
        let length = usize::from(u16::from_ne_bytes([*a, *b]));
        if u16::from_ne_bytes([*c, *d]) == ONLY_IPV6 {
            return rest.first().is_some_and(|&only| only != 0);
        }
        let next = length.max(4).next_multiple_of(4);
        attributes = attributes.get(next..).unwrap_or_default();
    }
    false
}

/// One `inet_diag_req_v2` with its header.
fn question(protocol: u8, local: SocketAddr, remote: SocketAddr, flags: u16) -> Vec<u8> {
    let mut bytes = ((HEADER + QUESTION) as u32).to_ne_bytes().to_vec();
    bytes.extend_from_slice(&BY_FAMILY.to_ne_bytes());
    bytes.extend_from_slice(&(REQUEST | flags).to_ne_bytes());
    bytes.extend_from_slice(&[0; 8]);
    let family = if local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    bytes.extend_from_slice(&[family as u8, protocol, 0, 0]);
    bytes.extend_from_slice(&u32::MAX.to_ne_bytes());
    bytes.extend_from_slice(&local.port().to_be_bytes());
    bytes.extend_from_slice(&remote.port().to_be_bytes());
    for address in [local.ip(), remote.ip()] {
        let mut field = [0; 16];
        match address {
            IpAddr::V4(ip) => field[..4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => field = ip.octets(),
        }
        bytes.extend_from_slice(&field);
    }
    // A socket that is bound to an interface is found by that alone, others by any: the loopback's is the first. Any cookie.
    let interface = u32::from(local.ip().is_loopback());
    bytes.extend_from_slice(&interface.to_ne_bytes());
    bytes.extend_from_slice(&[0xFF; 8]);
    bytes
}

fn ask(by: BorrowedFd<'_>, question: &[u8]) -> Result<()> {
    // What an earlier question left behind.
    let mut rest = [0; 4096];
    while take(by, &mut rest).is_ok() {}
    crate::fd::write_all(by, question)
}

fn take(by: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize> {
    let null = std::ptr::null::<u8>();
    let (at, length) = (buffer.as_mut_ptr(), buffer.len());
    // SAFETY: the pointer and length describe `buffer`; no address is asked for.
    unsafe { sys!(recvfrom, by.as_raw_fd(), at, length, libc::MSG_DONTWAIT, null, null) }
}

/// Gives each answer to `each`. The kernel has answered by the time that the question was written,
/// and continues a long list with each part that is taken.
fn receive(by: BorrowedFd<'_>, mut each: impl FnMut(&[u8])) -> Result<()> {
    let mut buffer = [0u8; 16 * 1024];
    loop {
        let count = match take(by, &mut buffer) {
            Ok(count) => count,
            Err(Errno::EAGAIN) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        let mut bytes = &buffer[..count];
        while bytes.len() >= HEADER {
            let word = |at: usize| {
                u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
            };
            let (length, kind) = (word(0) as usize, word(4) as u16);
            if length < HEADER || length > bytes.len() {
                return Err(Errno::EBADMSG);
            }
            match kind {
                DONE => return Ok(()),
                ERROR if length >= HEADER + 4 => match word(HEADER) as i32 {
                    0 => return Ok(()),
                    code => return Err(Errno::new(-code)),
                },
                _ => each(&bytes[HEADER..length]),
            }
            bytes = &bytes[length.next_multiple_of(4).min(bytes.len())..];
        }
    }
}

/// Reads a `struct inet_diag_msg`.
fn found(answer: &[u8]) -> Option<Found> {
    let inode = word(answer, INODE)?;
    Some(Found {
        inode: (inode != 0).then_some(inode.into()),
        number: u64::from(word(answer, COOKIE)?) | u64::from(word(answer, COOKIE + 4)?) << 32,
        connecting: answer[1] == SYN_SENT,
        listens: answer[1] == LISTEN,
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listener::behalf;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;

    fn inode_of(socket: &impl AsRawFd) -> u64 {
        std::fs::metadata(format!("/proc/self/fd/{}", socket.as_raw_fd())).expect("a file").ino()
    }

    #[test]
    fn both_ends_of_a_connection_and_its_listener_are_found() {
        let by = open().expect("a socket");
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let to = listener.local_addr().expect("an address");
        let client = TcpStream::connect(to).expect("connected");
        let from = client.local_addr().expect("an address");
        let (server, _) = listener.accept().expect("accepted");
        let found = |local, remote| tcp(by.as_fd(), local, remote);
        let is = |inode, socket, listens| {
            let number = behalf::cookie(socket).expect("a number");
            Ok(Found { inode: Some(inode), number, connecting: false, listens })
        };
        assert_eq!(found(from, to), is(inode_of(&client), client.as_fd(), false));
        assert_eq!(found(to, from), is(inode_of(&server), server.as_fd(), false));
        let nobody = SocketAddr::new([127, 0, 0, 9].into(), 1);
        assert_eq!(found(to, nobody), is(inode_of(&listener), listener.as_fd(), true));
        assert_eq!(found(nobody, to), Err(Errno::ENOENT));
        // While the other end is there its number is known, though nobody holds it.
        let number = behalf::cookie(client.as_fd()).expect("a number");
        drop(client);
        let gone = Found { inode: None, number, connecting: false, listens: false };
        assert_eq!(found(from, to), Ok(gone));
    }

    #[test]
    fn one_that_has_no_answer_yet_is_told_from_others() {
        let by = open().expect("a socket");
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let to = listener.local_addr().expect("an address");
        behalf::listen(listener.as_fd(), 0).expect("listens");
        // Of so many some find no room in its queue.
        let clients = [(); 4].map(|()| crate::socket::begin_to_connect(to).expect("begun"));
        for (client, connected) in &clients {
            let from = behalf::local(client.as_fd()).expect("an address");
            let found = tcp(by.as_fd(), from, to).expect("found");
            assert_eq!(found.connecting, !connected);
        }
        assert!(clients.iter().any(|(_, connected)| !connected));
        assert!(clients.iter().any(|(_, connected)| *connected));
    }

    #[test]
    fn listeners_are_told_by_where_they_can_be_reached() {
        let by = open().expect("a socket");
        let number = |listener: &TcpListener| behalf::cookie(listener.as_fd()).expect("a number");
        let at = |address| listeners(by.as_fd(), address).expect("an answer");
        let one = TcpListener::bind("127.0.0.1:0").expect("bound");
        let to = one.local_addr().expect("an address");
        assert_eq!(at(to), [number(&one)]);
        assert_eq!(at(SocketAddr::new([127, 0, 0, 9].into(), to.port())), []);
        drop(one);
        assert_eq!(at(to), []);
        let any = TcpListener::bind("[::]:0").expect("bound");
        let port = any.local_addr().expect("an address").port();
        for address in ["127.0.0.1", "::1"] {
            let to = SocketAddr::new(address.parse().expect("an address"), port);
            assert_eq!(at(to), [number(&any)]);
        }
    }

    #[test]
    fn of_those_at_other_ports_the_kernel_says_nothing() {
        let by = open().expect("a socket");
        let listeners = [(); 9].map(|()| TcpListener::bind("127.0.0.1:0").expect("bound"));
        let number = |listener: &TcpListener| behalf::cookie(listener.as_fd()).expect("a number");
        let all = all_listeners(by.as_fd()).expect("an answer");
        assert!(listeners.iter().all(|listener| all.contains(&number(listener))));
        for listener in &listeners {
            let mut told = Vec::new();
            let port = listener.local_addr().expect("an address").port();
            all_at(by.as_fd(), port, |answer| told.extend(found(answer))).expect("an answer");
            assert_eq!(told.iter().map(|is| is.number).collect::<Vec<_>>(), [number(listener)]);
        }
        let one = number(&listeners[0]);
        drop(listeners);
        assert!(!all_listeners(by.as_fd()).expect("an answer").contains(&one));
    }

    #[test]
    fn a_datagram_socket_is_found_by_its_port() {
        let by = open().expect("a socket");
        let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
        let port = socket.local_addr().expect("an address").port();
        assert_eq!(udp(by.as_fd(), false, port), Ok(inode_of(&socket)));
        drop(socket);
        assert_eq!(udp(by.as_fd(), false, port), Err(Errno::ENOENT));
    }
}
