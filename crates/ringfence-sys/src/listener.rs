//! A listening socket of the host for a program that must reach nothing else of the host.
//!
//! Whoever holds a socket can do more with it than accept: `connect(AF_UNSPEC)` or `shutdown` make
//! it an ordinary socket again, of the *host's* network namespace, and so do they with every
//! connection that it accepted. What holds for all of them, since accepted sockets inherit it and
//! nobody without capabilities over the host's network can take it off, is:
//!
//! - a filter, locked (`SO_LOCK_FILTER`): what is not for the published port is not received, nor is
//!   an answer to a connection that the socket itself began (SYN with ACK), so that none is ever
//!   established, and no other port can be served;
//! - for a loopback address, the interface `lo` (`SO_BINDTOIFINDEX`): nothing, not one packet,
//!   leaves the machine.
//!
//! Where only `CAP_NET_ADMIN` may attach filters, the lock must be around the program instead: it
//! may then not connect, bind or listen by itself, whatever the socket ([`Lock::Program`]).

pub mod behalf;

use crate::fd::owned;
use crate::seccomp::Instruction;
use crate::{Errno, Result, sys};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

const SO_BINDTOIFINDEX: i32 = 62;
const SO_LOCK_FILTER: i32 = 44;
const LOOPBACK: i32 = 1;
/// Connections that wait until the program listens; it then says how many itself.
const BACKLOG: i32 = 511;

/// What is known of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// IPv6.
    pub ipv6: bool,
    /// IPv6 and nothing else.
    pub only_ipv6: bool,
    /// `SO_REUSEPORT`.
    pub reuse_port: bool,
    /// `O_NONBLOCK`.
    pub nonblocking: bool,
}

/// What keeps a program from using a socket of the host for more than its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// The socket itself.
    Socket,
    /// The program holds a filter and a Landlock domain in which it cannot connect, bind or listen
    /// but through its supervisor; the socket is locked too where that is possible.
    Program,
}

/// Looks at a socket; nothing when it is no TCP socket.
pub fn kind(socket: BorrowedFd<'_>) -> Option<Kind> {
    let domain = get(socket, libc::SOL_SOCKET, libc::SO_DOMAIN).ok()?;
    let stream = get(socket, libc::SOL_SOCKET, libc::SO_TYPE).ok()? == libc::SOCK_STREAM;
    let tcp = get(socket, libc::SOL_SOCKET, libc::SO_PROTOCOL).ok()? == libc::IPPROTO_TCP;
    if !stream || !tcp || !matches!(domain, libc::AF_INET | libc::AF_INET6) {
        return None;
    }
    let ipv6 = domain == libc::AF_INET6;
    // SAFETY: takes numbers only.
    let flags = unsafe { sys!(fcntl, socket.as_raw_fd(), libc::F_GETFL) }.ok()?;
    Some(Kind {
        ipv6,
        only_ipv6: ipv6 && get(socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY).ok()? != 0,
        reuse_port: get(socket, libc::SOL_SOCKET, libc::SO_REUSEPORT).ok()? != 0,
        nonblocking: flags as i32 & libc::O_NONBLOCK != 0,
    })
}

/// Whether it is a UDP socket.
pub fn is_udp(socket: BorrowedFd<'_>) -> bool {
    let is = |name, value| get(socket, libc::SOL_SOCKET, name) == Ok(value);
    let ip = is(libc::SO_DOMAIN, libc::AF_INET) || is(libc::SO_DOMAIN, libc::AF_INET6);
    ip && is(libc::SO_TYPE, libc::SOCK_DGRAM) && is(libc::SO_PROTOCOL, libc::IPPROTO_UDP)
}

/// Makes a socket of that kind that listens at an address in the caller's network namespace.
///
/// # Errors
/// With [`Lock::Socket`], `EPERM` where the kernel lets only `CAP_NET_ADMIN` over the namespace attach filters to sockets
/// (Linux 6.18 does here); `EADDRINUSE`, `EADDRNOTAVAIL`, `EACCES`; `EAFNOSUPPORT` when an IPv4 socket is wanted for an
/// IPv6 address.
pub fn publish(address: SocketAddr, kind: Kind, lock: Lock) -> Result<OwnedFd> {
    let family = if kind.ipv6 { libc::AF_INET6 } else { libc::AF_INET };
    let blocking = if kind.nonblocking { libc::SOCK_NONBLOCK } else { 0 };
    let flags = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | blocking;
    // SAFETY: takes numbers only.
    let socket = owned(unsafe { sys!(socket, family, flags, libc::IPPROTO_TCP) }?);
    set(&socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    if kind.reuse_port {
        set(&socket, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    }
    if kind.ipv6 {
        set(&socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, i32::from(kind.only_ipv6))?;
    }
    if address.ip().is_loopback() {
        set(&socket, libc::SOL_SOCKET, SO_BINDTOIFINDEX, LOOPBACK)?;
    }
    match attach(&socket, address.port()) {
        Err(Errno::EPERM) if lock == Lock::Program => {}
        attached => {
            attached?;
            set(&socket, libc::SOL_SOCKET, SO_LOCK_FILTER, 1)?;
        }
    }
    bind(&socket, address, kind.ipv6)?;
    behalf::listen(socket.as_fd(), BACKLOG)?;
    Ok(socket)
}

/// `struct sock_fprog`.
#[repr(C)]
struct Program {
    length: u16,
    filter: *const Instruction,
}

/// Classic BPF over the TCP header, where a TCP socket's filter begins to read.
fn attach(socket: &OwnedFd, port: u16) -> Result<()> {
    let step =
        |code, jump_true, jump_false, operand| Instruction { code, jump_true, jump_false, operand };
    const SYN_AND_ACK: u32 = 0x12;
    let filter = [
        step(0x28, 0, 0, 2),               // the destination port,
        step(0x15, 0, 4, u32::from(port)), // which must be ours
        step(0x30, 0, 0, 13),              // the flags,
        step(0x54, 0, 0, SYN_AND_ACK),     // of which these two
        step(0x15, 1, 0, SYN_AND_ACK),     // must not both be set
        step(0x06, 0, 0, u32::MAX),
        step(0x06, 0, 0, 0),
    ];
    let program = Program { length: filter.len() as u16, filter: filter.as_ptr() };
    let (level, name) = (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER);
    let size = size_of::<Program>();
    // SAFETY: `program` describes `filter`; both outlive the call, which copies them.
    unsafe { sys!(setsockopt, socket.as_raw_fd(), level, name, &raw const program, size) }.map(drop)
}

fn bind(socket: &OwnedFd, address: SocketAddr, ipv6: bool) -> Result<()> {
    if address.is_ipv6() && !ipv6 {
        return Err(Errno::EAFNOSUPPORT);
    }
    // `::` of a socket for both families covers 0.0.0.0.
    behalf::bind(socket.as_fd(), &behalf::raw(address, ipv6))
}

pub(crate) fn get(socket: BorrowedFd<'_>, level: i32, name: i32) -> Result<i32> {
    let mut value = 0i32;
    let mut length = size_of::<i32>() as libc::socklen_t;
    let (at, size) = (&raw mut value, &raw mut length);
    // SAFETY: the pointers are to the value and its size.
    unsafe { sys!(getsockopt, socket.as_raw_fd(), level, name, at, size) }?;
    Ok(value)
}

fn set(socket: &OwnedFd, level: i32, name: i32, value: i32) -> Result<()> {
    let size = size_of::<i32>();
    // SAFETY: the pointer is to the value, whose size is given.
    unsafe { sys!(setsockopt, socket.as_raw_fd(), level, name, &raw const value, size) }.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    const KIND: Kind =
        Kind { ipv6: false, only_ipv6: false, reuse_port: false, nonblocking: false };

    /// Whether this kernel lets this user attach filters to sockets.
    fn possible() -> bool {
        let possible = !matches!(publish(free(), KIND, Lock::Socket), Err(Errno::EPERM));
        if !possible {
            println!("skipped: this kernel lets only CAP_NET_ADMIN attach filters to sockets");
        }
        possible
    }

    /// A port of the loopback that nobody uses.
    fn free() -> SocketAddr {
        let socket = TcpListener::bind("127.0.0.1:0").expect("bound");
        socket.local_addr().expect("an address")
    }

    /// `connect(2)`, not waiting: the program's own attempt.
    fn connect(socket: BorrowedFd<'_>, address: Option<SocketAddr>) -> Result<()> {
        let mut raw = [0u8; 16];
        if let Some(SocketAddr::V4(address)) = address {
            raw[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            raw[2..4].copy_from_slice(&address.port().to_be_bytes());
            raw[4..8].copy_from_slice(&address.ip().octets());
        }
        // SAFETY: F_SETFL takes numbers; the pointer and length describe `raw`.
        unsafe {
            let _ = sys!(fcntl, socket.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK);
            sys!(connect, socket.as_raw_fd(), raw.as_ptr(), raw.len()).map(drop)
        }
    }

    #[test]
    fn what_is_published_is_served_in_both_families_of_sockets() {
        if !possible() {
            return;
        }
        for ipv6 in [false, true] {
            let address = free();
            let listener =
                publish(address, Kind { ipv6, ..KIND }, Lock::Socket).expect("published");
            assert_eq!(kind(listener.as_fd()).map(|kind| kind.ipv6), Some(ipv6));
            let listener = TcpListener::from(listener);
            let mut client = TcpStream::connect(address).expect("connected");
            let (mut server, _) = listener.accept().expect("accepted");
            server.write_all(b"served").expect("sent");
            drop(server);
            let mut text = String::new();
            client.read_to_string(&mut text).expect("received");
            assert_eq!(text, "served");
        }
    }

    #[test]
    fn the_filter_and_the_interface_cannot_be_taken_off() {
        if !possible() {
            return;
        }
        let socket = publish(free(), KIND, Lock::Socket).expect("published");
        let detach = set(&socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0);
        assert_eq!(detach, Err(Errno::EPERM));
        assert_eq!(set(&socket, libc::SOL_SOCKET, SO_LOCK_FILTER, 0), Err(Errno::EPERM));
        assert_eq!(attach(&socket, 1), Err(Errno::EPERM));
    }

    #[test]
    fn an_ordinary_listener_can_reach_another_server() {
        // The control of the test below: without filter and interface the way is open.
        let other = TcpListener::bind("127.0.0.1:0").expect("bound");
        let socket = OwnedFd::from(TcpListener::bind("127.0.0.1:0").expect("bound"));
        assert_eq!(connect(socket.as_fd(), None), Ok(()));
        let _ = connect(socket.as_fd(), Some(other.local_addr().expect("an address")));
        other.accept().expect("the listener, as a client");
    }

    #[test]
    fn neither_the_listener_nor_what_it_accepted_can_reach_another_server() {
        if !possible() {
            return;
        }
        let other = TcpListener::bind("127.0.0.1:0").expect("bound");
        let other_address = other.local_addr().expect("an address");
        let address = free();
        let listener = publish(address, KIND, Lock::Socket).expect("published");
        let client = TcpStream::connect(address).expect("connected");
        let listener = TcpListener::from(listener);
        let accepted = OwnedFd::from(listener.accept().expect("accepted").0);
        for socket in [OwnedFd::from(listener), accepted] {
            assert_eq!(connect(socket.as_fd(), None), Ok(()), "made ordinary again");
            let begun = connect(socket.as_fd(), Some(other_address));
            assert_eq!(begun, Err(Errno::EINPROGRESS));
            // Whoever comes later is the first whom the other server sees.
            let control = TcpStream::connect(other_address).expect("connected");
            let (_, peer) = other.accept().expect("accepted");
            assert_eq!(peer, control.local_addr().expect("an address"));
            assert_eq!(connect(socket.as_fd(), Some(other_address)), Err(Errno::EALREADY));
        }
        drop(client);
    }

    #[test]
    fn no_other_port_can_be_served() {
        if !possible() {
            return;
        }
        let listener = publish(free(), KIND, Lock::Socket).expect("published");
        let other = free();
        assert_eq!(connect(listener.as_fd(), None), Ok(()));
        // Bound to its port for good; only an accepted socket could be bound anew.
        assert_eq!(bind(&listener, other, false), Err(Errno::EINVAL));
    }
}
