//! Datagrams (udp(7)): which address they were sent to and are to come from, and sockets made in the
//! network namespace of a sandbox by somebody outside of it.

use crate::fd::owned;
use crate::listener::behalf;
use crate::{Errno, Result, sys};
use std::ffi::{c_int, c_void};
use std::fs::File;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// `struct cmsghdr` and the larger of `struct in_pktinfo` and `struct in6_pktinfo`.
#[repr(align(8))]
struct Control([u8; 64]);

/// Bytes of `struct cmsghdr`.
const HEADER: usize = 16;

/// A datagram that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its bytes, at the buffer's start.
    pub length: usize,
    /// Who sent it.
    pub from: SocketAddr,
    /// The address that it was sent to, where the kernel tells.
    pub to: Option<IpAddr>,
}

/// Makes a socket tell the address that each datagram was sent to (`IP_PKTINFO`,
/// `IPV6_RECVPKTINFO`).
///
/// # Errors
/// The kernel's.
pub fn tell_destination(socket: BorrowedFd<'_>, ipv6: bool) -> Result<()> {
    if ipv6 {
        return set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1);
    }
    set(socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)
}

/// What was asked for a socket's queue of datagrams (`SO_RCVBUF`): the kernel doubles that, and tells the double.
///
/// # Errors
/// The kernel's.
pub fn queue(socket: BorrowedFd<'_>) -> Result<i32> {
    Ok(crate::listener::get(socket, libc::SOL_SOCKET, libc::SO_RCVBUF)? / 2)
}

/// Asks for room for so many bytes in a socket's queue, where it has less: the kernel gives what `net.core.rmem_max`
/// allows.
///
/// # Errors
/// The kernel's.
pub fn ask_for_queue(socket: BorrowedFd<'_>, bytes: i32) -> Result<()> {
    if queue(socket)? >= bytes {
        return Ok(());
    }
    set(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes)
}

/// Receives one, never waiting.
///
/// # Errors
/// `EAGAIN` when there is none; what an earlier one came to.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<Received> {
    let mut control = Control([0; 64]);
    let mut name = [0u8; 128];
    let part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: msghdr is plain data, for which all zeroes are valid.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_name = name.as_mut_ptr().cast();
    message.msg_namelen = name.len() as u32;
    message.msg_iov = (&raw const part).cast_mut();
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len();
    // SAFETY: `message` describes `name`, `buffer` and `control`, all writable and of that length.
    let length =
        unsafe { sys!(recvmsg, socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) }?;
    let name = name.get(..message.msg_namelen as usize).ok_or(Errno::EINVAL)?;
    let from = scoped(name).ok_or(Errno::EAFNOSUPPORT)?;
    let told = control.0.get(..message.msg_controllen).and_then(destination);
    Ok(Received { length, from, to: told })
}

/// Sends one, never waiting, from an address of this host where it is known which.
///
/// # Errors
/// `EAGAIN` when there is no room; the kernel's.
pub fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    to: SocketAddr,
    from: Option<IpAddr>,
) -> Result<()> {
    let mut control = Control([0; 64]);
    let mut name = behalf::raw(to, to.is_ipv6());
    if let SocketAddr::V6(to) = to {
        name[24..28].copy_from_slice(&to.scope_id().to_ne_bytes());
    }
    let (level, kind, length) = match from {
        Some(IpAddr::V4(ip)) => {
            // struct in_pktinfo: interface, the address to send from, the destination's.
            control.0[HEADER + 4..HEADER + 8].copy_from_slice(&ip.octets());
            (libc::IPPROTO_IP, libc::IP_PKTINFO, HEADER + 12)
        }
        Some(IpAddr::V6(ip)) => {
            control.0[HEADER..HEADER + 16].copy_from_slice(&ip.octets());
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, HEADER + 20)
        }
        None => (0, 0, 0),
    };
    control.0[..8].copy_from_slice(&length.to_ne_bytes());
    control.0[8..12].copy_from_slice(&level.to_ne_bytes());
    control.0[12..16].copy_from_slice(&kind.to_ne_bytes());
    let part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: msghdr is plain data, for which all zeroes are valid.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_name = name.as_mut_ptr().cast();
    message.msg_namelen = name.len() as u32;
    message.msg_iov = (&raw const part).cast_mut();
    message.msg_iovlen = 1;
    if length > 0 {
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = length.next_multiple_of(8);
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: `message` describes `name`, `bytes` and `control`, which outlive the call; sendmsg
    // writes to none of them.
    unsafe { sys!(sendmsg, socket.as_raw_fd(), &raw const message, flags) }.map(drop)
}

/// [`crate::socket::address`], with the interface that a link-local address belongs to.
fn scoped(raw: &[u8]) -> Option<SocketAddr> {
    match crate::socket::address(raw)? {
        SocketAddr::V6(plain) => {
            let scope = u32::from_ne_bytes(raw.get(24..28)?.try_into().ok()?);
            Some(SocketAddrV6::new(*plain.ip(), plain.port(), 0, scope).into())
        }
        four => Some(four),
    }
}

/// The address in `struct in_pktinfo` or `struct in6_pktinfo`, which stands alone there.
fn destination(control: &[u8]) -> Option<IpAddr> {
    let word = |at: usize| Some(i32::from_ne_bytes(control.get(at..at + 4)?.try_into().ok()?));
    match (word(8)?, word(12)?) {
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
            // The address to answer from, which is another one only for a broadcast.
            let ip: [u8; 4] = control.get(HEADER + 4..HEADER + 8)?.try_into().ok()?;
            Some(Ipv4Addr::from(ip).into())
        }
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
            let ip: [u8; 16] = control.get(HEADER..HEADER + 16)?.try_into().ok()?;
            Some(Ipv6Addr::from(ip).into())
        }
        _ => None,
    }
}

fn set(socket: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> Result<()> {
    let size = size_of::<i32>();
    // SAFETY: the pointer is to the value, whose size is given.
    unsafe { sys!(setsockopt, socket.as_raw_fd(), level, name, &raw const value, size) }.map(drop)
}

/// The user and network namespaces of a process, which stay as long as this does.
#[derive(Debug)]
pub struct Within {
    user: File,
    network: File,
    /// What makes every address local there.
    routes: [Vec<u8>; 2],
}

/// What the process that enters them is to do, and what came of it.
#[repr(C)]
struct Entry {
    user: i32,
    network: i32,
    /// Family, type and protocol of the socket.
    kind: [i32; 3],
    address: *const u8,
    length: usize,
    /// Messages to make every address local; null where that is not needed.
    routes: [(*const u8, usize); 2],
    /// The descriptor, or a negated error.
    result: isize,
}

impl Within {
    /// Those of a process (or thread) by its number. The caller makes sure that it is the process
    /// that is meant, afterwards.
    ///
    /// # Errors
    /// The kernel's.
    pub fn of(process: i32) -> std::io::Result<Within> {
        let open = |kind| File::open(format!("/proc/{process}/ns/{kind}"));
        let routes = crate::route::all_local_bytes();
        Ok(Within { user: open("user")?, network: open("net")?, routes })
    }

    /// Makes a datagram socket there, bound to an address that need not be one of the namespace's:
    /// where it is no loopback one, all addresses are made local to the namespace.
    ///
    /// A process must be alone to enter a user namespace, so that another one does it (`clone(2)` with
    /// the caller's memory and descriptors, which waits meanwhile, as vfork(2) does).
    ///
    /// # Errors
    /// `EPERM` for who is not the user that made the namespaces, `EADDRINUSE`, `EADDRNOTAVAIL`, …
    pub fn datagrams(&self, from: SocketAddr) -> Result<OwnedFd> {
        let address = behalf::raw(from, from.is_ipv6());
        let family = if from.is_ipv6() { libc::AF_INET6 } else { libc::AF_INET };
        let kind = [family, libc::SOCK_DGRAM, libc::IPPROTO_UDP];
        self.socket(kind, &address, !from.ip().is_loopback())
    }

    /// Makes a socket of sock_diag(7) there, which is told of what is in `groups` ([`crate::diag`]; 0 for nothing).
    ///
    /// # Errors
    /// As [`Within::datagrams`]; `EPROTONOSUPPORT` without CONFIG_INET_DIAG.
    pub fn diag(&self, groups: u32) -> Result<OwnedFd> {
        let kind = [libc::AF_NETLINK, libc::SOCK_RAW, crate::diag::NETLINK_SOCK_DIAG];
        // struct sockaddr_nl: the family, a gap, a number that the kernel chooses, the groups.
        let mut address = [0; 12];
        address[..2].copy_from_slice(&(libc::AF_NETLINK as u16).to_ne_bytes());
        address[8..].copy_from_slice(&groups.to_ne_bytes());
        self.socket(kind, &address, false)
    }

    /// Makes a socket of a family, type and protocol there, bound to an address.
    fn socket(&self, kind: [i32; 3], address: &[u8], all_local: bool) -> Result<OwnedFd> {
        const STACK: usize = 64 * 1024;
        let message = |routes: &Vec<u8>| match all_local {
            false => (std::ptr::null(), 0),
            true => (routes.as_ptr(), routes.len()),
        };
        let mut entry = Entry {
            user: self.user.as_raw_fd(),
            network: self.network.as_raw_fd(),
            kind,
            address: address.as_ptr(),
            length: address.len(),
            routes: [message(&self.routes[0]), message(&self.routes[1])],
            result: -(libc::EAGAIN as isize),
        };
        let mut stack = vec![0u128; STACK / size_of::<u128>()];
        let top = stack.as_mut_ptr_range().end.cast::<c_void>();
        // Without a signal at its end nobody else takes it for a child of theirs.
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FILES;
        // SAFETY: the stack and `entry` outlive the process, since CLONE_VFORK lets this thread go on
        // only when it has ended; it makes system calls and nothing else with them.
        let process = unsafe { libc::clone(enter, top, flags, (&raw mut entry).cast()) };
        if process < 0 {
            let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EAGAIN);
            return Err(Errno::new(errno));
        }
        let null = std::ptr::null::<u8>();
        // SAFETY: takes numbers only; nothing is written.
        while unsafe { sys!(wait4, process, null, libc::__WCLONE, null) } == Err(Errno::EINTR) {}
        // The other process wrote it.
        // SAFETY: `entry` is a live local.
        let result = unsafe { std::ptr::read_volatile(&raw const entry.result) };
        match result {
            0.. => Ok(owned(result as usize)),
            errno => Err(Errno::new(-errno as i32)),
        }
    }
}

/// What the other process does.
extern "C" fn enter(argument: *mut c_void) -> c_int {
    // SAFETY: `socket` passes its `Entry`, which nobody else uses meanwhile.
    let entry = unsafe { &mut *argument.cast::<Entry>() };
    // SAFETY: the pointers in it are to live buffers of the lengths beside them.
    entry.result = match unsafe { make(entry) } {
        Ok(socket) => socket as isize,
        Err(errno) => -(errno.into_raw() as isize),
    };
    0
}

/// # Safety
/// The pointers in `entry` are to readable memory of the lengths beside them.
unsafe fn make(entry: &Entry) -> Result<usize> {
    // SAFETY: all of these take numbers, or pointers to live memory of the sizes that are given.
    unsafe {
        match sys!(setns, entry.user, libc::CLONE_NEWUSER) {
            // It is the caller's own already.
            Err(Errno::EINVAL) => {}
            entered => drop(entered?),
        }
        sys!(setns, entry.network, libc::CLONE_NEWNET)?;
        for (message, length) in entry.routes.into_iter().filter(|(_, length)| *length > 0) {
            let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
            let netlink = sys!(socket, libc::AF_NETLINK, kind, libc::NETLINK_ROUTE)?;
            // They may be there already, or the family may not; the bind tells.
            let _ = sys!(write, netlink, message, length);
            let _ = sys!(close, netlink);
        }
        let [family, kind, protocol] = entry.kind;
        let kind = kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let socket = sys!(socket, family, kind, protocol)?;
        let on = 1i32;
        // Netlink knows neither.
        let (level, name) = match family {
            libc::AF_INET6 => (libc::IPPROTO_IPV6, libc::IPV6_FREEBIND),
            _ => (libc::IPPROTO_IP, libc::IP_FREEBIND),
        };
        let _ = sys!(setsockopt, socket, level, name, &raw const on, size_of::<i32>());
        if let Err(errno) = sys!(bind, socket, entry.address, entry.length) {
            let _ = sys!(close, socket);
            return Err(errno);
        }
        Ok(socket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    /// Waits until something is there.
    fn next(socket: &UdpSocket, buffer: &mut [u8]) -> Received {
        loop {
            match receive(socket.as_fd(), buffer) {
                Err(Errno::EAGAIN) => {
                    let _ = crate::fd::poll_readable(&[socket.as_fd()], -1);
                }
                other => return other.expect("received"),
            }
        }
    }

    #[test]
    fn an_answer_comes_from_the_address_that_was_asked() {
        let mut buffer = [0; 64];
        for (any, asked) in [("0.0.0.0:0", "127.0.0.7"), ("[::]:0", "127.0.0.8")] {
            let Ok(server) = UdpSocket::bind(any) else { continue };
            tell_destination(server.as_fd(), any.starts_with('[')).expect("set");
            let port = server.local_addr().expect("an address").port();
            let client = UdpSocket::bind("127.0.0.1:0").expect("bound");
            client.connect((asked, port)).expect("connected");
            client.send(b"question").expect("sent");
            let question = next(&server, &mut buffer);
            assert_eq!(&buffer[..question.length], b"question");
            let to = question.to.expect("told");
            assert_eq!(to.to_canonical().to_string(), asked);
            // A connected socket hears nobody else.
            send(server.as_fd(), b"answer", question.from, Some(to)).expect("sent");
            let answer = next(&client, &mut buffer);
            assert_eq!(&buffer[..answer.length], b"answer");
        }
    }

    fn the_end_of_a_socket_is_told_and_who_is_left(within: &Within) {
        // It takes a capability, even for one's own.
        let Ok(ends) = within.diag(crate::diag::ENDS_OF_DATAGRAMS) else { return };
        let by = within.diag(0).expect("a socket");
        let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
        let port = socket.local_addr().expect("an address").port();
        let number = behalf::cookie(socket.as_fd()).expect("a number");
        assert_eq!(crate::diag::bound(by.as_fd(), port), Ok(vec![number]));
        drop(socket);
        while crate::diag::has_ended(ends.as_fd(), port) != Ok(true) {
            let _ = crate::fd::poll_readable(&[ends.as_fd()], -1);
        }
        assert_eq!(crate::diag::bound(by.as_fd(), port), Ok(Vec::new()));
    }

    #[test]
    fn a_socket_is_made_in_the_namespaces_of_a_process() {
        let within = Within::of(std::process::id() as i32).expect("our own");
        // Entering a network namespace takes a capability, even for one's own.
        match within.datagrams(SocketAddr::from(([127, 0, 0, 1], 0))) {
            Ok(socket) => {
                let socket = UdpSocket::from(socket);
                assert!(socket.local_addr().expect("an address").ip().is_loopback());
            }
            Err(errno) => assert_eq!(errno, Errno::EPERM),
        }
        the_end_of_a_socket_is_told_and_who_is_left(&within);
        // Nothing is left of the process that did it.
        let mut status = 0i32;
        let null = std::ptr::null::<u8>();
        // SAFETY: `status` is room for the answer.
        let left =
            unsafe { sys!(wait4, -1i32, &raw mut status, libc::__WCLONE | libc::WNOHANG, null) };
        assert_eq!(left, Err(Errno::ECHILD));
    }
}
