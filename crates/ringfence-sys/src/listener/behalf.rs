//! Calls on a copy of another process's socket, in its place: bind(2), connect(2), listen(2).
//!
//! A copy leads to the same open socket whatever the program does with its own number meanwhile, and
//! the address was read once: what was judged is what is done.

use super::get;
use crate::fd::owned;
use crate::{Errno, Result, sys};
use std::ffi::CStr;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// `SO_NETNS_COOKIE` (Linux 5.14).
const SO_NETNS_COOKIE: i32 = 71;

/// What kind of socket it is: `SO_DOMAIN`, `SO_TYPE`.
///
/// # Errors
/// `ENOTSOCK`, `EBADF`.
pub fn family_and_type(socket: BorrowedFd<'_>) -> Result<(i32, i32)> {
    let family = get(socket, libc::SOL_SOCKET, libc::SO_DOMAIN)?;
    Ok((family, get(socket, libc::SOL_SOCKET, libc::SO_TYPE)?))
}

/// The number of the network namespace that a socket belongs to, unique while the system runs.
///
/// # Errors
/// `ENOPROTOOPT` before Linux 5.14.
pub fn namespace(socket: BorrowedFd<'_>) -> Result<u64> {
    number(socket, SO_NETNS_COOKIE)
}

fn number(socket: BorrowedFd<'_>, name: i32) -> Result<u64> {
    let mut value = 0u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    let level = libc::SOL_SOCKET;
    let (at, size) = (&raw mut value, &raw mut length);
    // SAFETY: the pointers are to the value and its size.
    unsafe { sys!(getsockopt, socket.as_raw_fd(), level, name, at, size) }?;
    Ok(value)
}

/// The number of the socket itself, which no other one gets while the system runs (`SO_COOKIE`).
///
/// # Errors
/// `ENOTSOCK`, `EBADF`.
pub fn cookie(socket: BorrowedFd<'_>) -> Result<u64> {
    number(socket, libc::SO_COOKIE)
}

/// Whether it is a listener (`SO_ACCEPTCONN`).
pub fn listens(socket: BorrowedFd<'_>) -> bool {
    get(socket, libc::SOL_SOCKET, libc::SO_ACCEPTCONN) == Ok(1)
}

/// Whether it takes no IPv4 connections (`IPV6_V6ONLY`).
pub fn only_ipv6(socket: BorrowedFd<'_>) -> bool {
    get(socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) == Ok(1)
}

/// How an attempt to connect has ended (`SO_ERROR`).
///
/// # Errors
/// How it failed.
pub fn ended(socket: BorrowedFd<'_>) -> Result<()> {
    match get(socket, libc::SOL_SOCKET, libc::SO_ERROR)? {
        0 => Ok(()),
        error => Err(Errno::new(error)),
    }
}

/// Where a socket of IP is bound (getsockname(2)); nothing for one of another family.
pub fn local(socket: BorrowedFd<'_>) -> Option<SocketAddr> {
    let mut raw = [0u8; 128];
    let mut length = raw.len() as libc::socklen_t;
    let (at, size) = (raw.as_mut_ptr(), &raw mut length);
    // SAFETY: the pointers are to a buffer and its size.
    unsafe { sys!(getsockname, socket.as_raw_fd(), at, size) }.ok()?;
    crate::socket::address(raw.get(..length as usize)?)
}

/// Whether a socket is connected (getpeername(2)).
pub fn connected(socket: BorrowedFd<'_>) -> bool {
    let mut raw = [0u8; 128];
    let mut length = raw.len() as libc::socklen_t;
    let (at, size) = (raw.as_mut_ptr(), &raw mut length);
    // SAFETY: the pointers are to a buffer and its size.
    unsafe { sys!(getpeername, socket.as_raw_fd(), at, size) }.is_ok()
}

/// An address as the kernel takes it; IPv4 for a socket of IPv6 is written as a mapped one. IPv6 stays what it is, and
/// a socket of IPv4 refuses it.
pub fn raw(address: SocketAddr, ipv6: bool) -> Vec<u8> {
    let ipv6 = ipv6 || address.is_ipv6();
    let family = if ipv6 { libc::AF_INET6 } else { libc::AF_INET };
    let mut raw = (family as u16).to_ne_bytes().to_vec();
    raw.extend_from_slice(&address.port().to_be_bytes());
    match (address.ip(), ipv6) {
        (IpAddr::V4(ip), false) => raw.extend_from_slice(&ip.octets()),
        (IpAddr::V4(ip), true) => {
            raw.extend_from_slice(&[0; 4]);
            raw.extend_from_slice(&ip.to_ipv6_mapped().octets());
        }
        (IpAddr::V6(ip), _) => {
            raw.extend_from_slice(&[0; 4]);
            raw.extend_from_slice(&ip.octets());
        }
    }
    raw.resize(if ipv6 { 28 } else { 16 }, 0);
    raw
}

/// Has a TCP socket get its port when it is bound, where it was to get one when it is connected
/// (`IP_BIND_ADDRESS_NO_PORT`, ip(7), Linux 4.2).
///
/// # Errors
/// The kernel's.
pub fn takes_its_port_when_bound(socket: BorrowedFd<'_>) -> Result<()> {
    let no = 0i32;
    let (level, name) = (libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT);
    // SAFETY: the pointer is to four bytes.
    unsafe { sys!(setsockopt, socket.as_raw_fd(), level, name, &raw const no, 4) }.map(drop)
}

/// `bind(2)` at a raw address.
///
/// # Errors
/// The kernel's.
pub fn bind(socket: BorrowedFd<'_>, address: &[u8]) -> Result<()> {
    // SAFETY: the pointer and length describe `address`.
    unsafe { sys!(bind, socket.as_raw_fd(), address.as_ptr(), address.len()) }.map(drop)
}

/// `connect(2)` to a raw address.
///
/// # Errors
/// The kernel's.
pub fn connect(socket: BorrowedFd<'_>, address: &[u8]) -> Result<()> {
    // SAFETY: the pointer and length describe `address`.
    unsafe { sys!(connect, socket.as_raw_fd(), address.as_ptr(), address.len()) }.map(drop)
}

/// Begins to connect a TCP socket, and never waits: a `connect(2)` would wait as long as `O_NONBLOCK` of the open socket
/// says, which is everybody's who holds it. Asked again it tells how far that is.
///
/// # Errors
/// The kernel's: `EINPROGRESS`, and `EALREADY` the next time, while there is no answer. `EOPNOTSUPP` where it cannot be
/// begun so: for any other socket, for an address of no family, and where the system has turned `MSG_FASTOPEN` off
/// (`net.ipv4.tcp_fastopen`); then nothing has been done.
pub fn begin_to_connect(socket: BorrowedFd<'_>, address: &[u8]) -> Result<()> {
    // Datagrams would be sent.
    if get(socket, libc::SOL_SOCKET, libc::SO_PROTOCOL)? != libc::IPPROTO_TCP {
        return Err(Errno::EOPNOTSUPP);
    }
    if address.len() < size_of::<libc::sa_family_t>() {
        return Err(Errno::EINVAL);
    }
    // With no bytes to send it is the connect(2) of one call that does not wait.
    let flags = libc::MSG_FASTOPEN | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let nothing = std::ptr::null::<u8>();
    let (raw, at, length) = (socket.as_raw_fd(), address.as_ptr(), address.len());
    // SAFETY: no bytes are sent; the pointer and length describe `address`.
    unsafe { sys!(sendto, raw, nothing, 0, flags, at, length) }.map(drop)
}

/// `listen(2)`.
///
/// # Errors
/// The kernel's.
pub fn listen(socket: BorrowedFd<'_>, backlog: i32) -> Result<()> {
    // SAFETY: takes numbers only.
    unsafe { sys!(listen, socket.as_raw_fd(), backlog) }.map(drop)
}

/// Whether the open socket waits for nothing (`O_NONBLOCK`), whoever has said so.
///
/// # Errors
/// The kernel's.
pub fn nonblocking(socket: BorrowedFd<'_>) -> Result<bool> {
    // SAFETY: takes numbers only.
    let flags = unsafe { sys!(fcntl, socket.as_raw_fd(), libc::F_GETFL) }? as i32;
    Ok(flags & libc::O_NONBLOCK != 0)
}

/// Sets `O_NONBLOCK` of the open socket, whoever else holds it, and returns what it was.
///
/// # Errors
/// The kernel's.
pub fn set_nonblocking(socket: BorrowedFd<'_>, nonblocking: bool) -> Result<bool> {
    // SAFETY: takes numbers only.
    let flags = unsafe { sys!(fcntl, socket.as_raw_fd(), libc::F_GETFL) }? as i32;
    let was = flags & libc::O_NONBLOCK != 0;
    if was != nonblocking {
        let flags = flags ^ libc::O_NONBLOCK;
        // SAFETY: takes numbers only.
        unsafe { sys!(fcntl, socket.as_raw_fd(), libc::F_SETFL, flags) }?;
    }
    Ok(was)
}

/// Waits until a socket can be written to, or has failed, for at most so many milliseconds.
pub fn writable(socket: BorrowedFd<'_>, milliseconds: i32) -> bool {
    let mut watched = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    let left = libc::timespec {
        tv_sec: i64::from(milliseconds / 1000),
        tv_nsec: i64::from(milliseconds % 1000) * 1_000_000,
    };
    let null = std::ptr::null::<u8>();
    // SAFETY: `watched` is the one entry that is named, `left` a time; no signal mask is given.
    let ready = unsafe { sys!(ppoll, &raw mut watched, 1, &raw const left, null, 0) };
    matches!(ready, Ok(1..))
}

/// Opens what a path names below a directory that stands for `/` (`O_PATH`, `RESOLVE_IN_ROOT`):
/// no link and no `..` leads out of it.
///
/// # Errors
/// The kernel's.
pub fn place_below(root: BorrowedFd<'_>, path: &CStr) -> Result<OwnedFd> {
    const RESOLVE_IN_ROOT: u64 = 0x10;
    let how = [(libc::O_PATH | libc::O_CLOEXEC) as u64, 0, RESOLVE_IN_ROOT];
    let (raw, pointer) = (root.as_raw_fd(), path.as_ptr());
    // SAFETY: `path` is NUL-terminated; `how` has the layout and size of `struct open_how`.
    unsafe { sys!(openat2, raw, pointer, how.as_ptr(), size_of_val(&how)) }.map(owned)
}

/// The address of a Unix socket at a path of the caller's own view.
///
/// # Errors
/// `ENAMETOOLONG`.
pub fn unix(path: &[u8]) -> Result<Vec<u8>> {
    if path.len() > 107 {
        return Err(Errno::ENAMETOOLONG);
    }
    let mut raw = (libc::AF_UNIX as u16).to_ne_bytes().to_vec();
    raw.extend_from_slice(path);
    raw.push(0);
    Ok(raw)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    #[test]
    fn addresses_are_written_as_they_are_read() {
        for text in ["192.0.2.1:8080", "[2001:db8::1]:80"] {
            let address: SocketAddr = text.parse().expect("an address");
            assert_eq!(crate::socket::address(&raw(address, address.is_ipv6())), Some(address));
        }
        let mapped = raw("192.0.2.1:80".parse().expect("an address"), true);
        let read = crate::socket::address(&mapped).expect("an address");
        assert_eq!(read.to_string(), "[::ffff:192.0.2.1]:80");
        // Cut to the size of the other family, `::1` would be 0.0.0.0.
        let other: SocketAddr = "[::1]:80".parse().expect("an address");
        assert_eq!(crate::socket::address(&raw(other, false)), Some(other));
    }

    #[test]
    fn a_listener_is_told_from_what_it_accepts() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("an address");
        let client = TcpStream::connect(address).expect("connected");
        let (server, _) = listener.accept().expect("accepted");
        assert!(listens(listener.as_fd()) && !listens(server.as_fd()));
        assert_eq!(local(server.as_fd()), Some(address));
        assert_eq!(namespace(server.as_fd()), namespace(client.as_fd()));
        assert_eq!(ended(client.as_fd()), Ok(()));
    }

    #[test]
    fn a_socket_that_waits_is_connected_without_waiting() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        listen(listener.as_fd(), 0).expect("listens");
        let to = raw(listener.local_addr().expect("an address"), false);
        let tcp = || {
            let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
            // SAFETY: takes numbers only.
            owned(unsafe { sys!(socket, libc::AF_INET, kind, 0) }.expect("a socket"))
        };
        let clients = [(); 4].map(|()| tcp());
        let begun = clients.each_ref().map(|client| begin_to_connect(client.as_fd(), &to));
        assert_eq!(begun, [Err(Errno::EINPROGRESS); 4]);
        // Its queue has room for one.
        let asked = clients.each_ref().map(|client| begin_to_connect(client.as_fd(), &to));
        assert_eq!((asked[0], asked[3]), (Ok(()), Err(Errno::EALREADY)));
        assert!(connected(clients[0].as_fd()) && !connected(clients[3].as_fd()));
        assert!(clients.iter().all(|client| nonblocking(client.as_fd()) == Ok(false)));
        assert_eq!(begin_to_connect(tcp().as_fd(), &[2]), Err(Errno::EINVAL));
        assert_eq!(begin_to_connect(tcp().as_fd(), &[0; 16]), Err(Errno::EOPNOTSUPP));
    }

    #[test]
    fn no_datagram_is_sent_for_a_connection() {
        let there = std::net::UdpSocket::bind("127.0.0.1:0").expect("bound");
        let to = raw(there.local_addr().expect("an address"), false);
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("bound");
        assert_eq!(begin_to_connect(socket.as_fd(), &to), Err(Errno::EOPNOTSUPP));
        socket.send_to(b"sent", there.local_addr().expect("an address")).expect("sent");
        let mut said = [0; 8];
        assert_eq!(there.recv(&mut said).ok(), Some(4), "the only one");
    }

    #[test]
    fn what_was_blocking_is_so_again() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        assert_eq!(set_nonblocking(listener.as_fd(), true), Ok(false));
        assert_eq!(set_nonblocking(listener.as_fd(), false), Ok(true));
        assert_eq!(set_nonblocking(listener.as_fd(), false), Ok(false));
    }
}
