//! Sockets: descriptors passed over them, where a redirected connection was going, who is on the
//! other side, and bytes moved between them without copying.

use crate::fd::owned;
use crate::listener::behalf;
use crate::{Errno, Result, sys};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// The most descriptors that one message carries (`SCM_MAX_FD`, unix(7)).
pub const MOST_DESCRIPTORS: usize = 253;

/// Room for the control messages of [`MOST_DESCRIPTORS`] and of credentials, aligned as `struct
/// cmsghdr` wants it.
#[repr(align(8))]
struct Control([u8; CONTROL]);

const CONTROL: usize = 16 + MOST_DESCRIPTORS * 4 + 32;

/// Sends one message with descriptors (`SCM_RIGHTS`, unix(7)); the receiver gets copies.
///
/// # Errors
/// `EINVAL` for more than [`MOST_DESCRIPTORS`]; `EPIPE`, `EAGAIN`, …
pub fn send_with(fd: BorrowedFd<'_>, bytes: &[u8], pass: &[BorrowedFd<'_>]) -> Result<()> {
    message(fd, bytes, pass, 0).map(drop)
}

/// Has a worker of the kernel close a descriptor whose last close would make us wait. Others that are open for the same
/// keep it open, as always.
///
/// It is left in the queue of a socket that nothing but this queue holds: the kernel looks for such ones whenever a socket
/// is closed, and lets go of what they hold (`unix_gc` in net/unix/garbage.c: a worker since Linux 6.9; before, whoever
/// closed the socket, which is no worse than to have closed the descriptor).
pub fn close_aside(fd: OwnedFd) {
    let Ok((near, far)) = crate::fd::socket_pair() else { return };
    let _ = message(near.as_fd(), b"c", &[far.as_fd(), fd.as_fd()], libc::MSG_DONTWAIT);
    // The descriptor itself goes before the sockets, whose end has the kernel look.
    drop(fd);
}

/// [`send_with`], with flags; how many bytes were sent.
pub(crate) fn message(
    fd: BorrowedFd<'_>,
    bytes: &[u8],
    pass: &[BorrowedFd<'_>],
    flags: i32,
) -> Result<usize> {
    if pass.len() > MOST_DESCRIPTORS {
        return Err(Errno::EINVAL);
    }
    let mut control = Control([0; CONTROL]);
    let length = 16 + pass.len() * 4;
    control.0[..8].copy_from_slice(&length.to_ne_bytes());
    control.0[8..12].copy_from_slice(&libc::SOL_SOCKET.to_ne_bytes());
    control.0[12..16].copy_from_slice(&libc::SCM_RIGHTS.to_ne_bytes());
    for (index, fd) in pass.iter().enumerate() {
        let at = 16 + index * 4;
        control.0[at..at + 4].copy_from_slice(&fd.as_raw_fd().to_ne_bytes());
    }
    let part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: msghdr is plain data, for which all zeroes are valid.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = (&raw const part).cast_mut();
    message.msg_iovlen = 1;
    if !pass.is_empty() {
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = length.next_multiple_of(8);
    }
    let flags = flags | libc::MSG_NOSIGNAL;
    // SAFETY: `message` describes `bytes` and `control`, which outlive the call; sendmsg writes
    // to neither.
    unsafe { sys!(sendmsg, fd.as_raw_fd(), &raw const message, flags) }
}

/// Receives one message and the descriptors that came with it, close-on-exec. A length of 0 means
/// that the other side is gone. With `wait` unset an empty queue is `EAGAIN`.
///
/// # Errors
/// The kernel's (`EINTR` is retried); `EMSGSIZE` when more descriptors came than fit.
pub fn receive_with(
    fd: BorrowedFd<'_>,
    buffer: &mut [u8],
    wait: bool,
) -> Result<(usize, Vec<OwnedFd>)> {
    receive_about(fd, buffer, wait).map(|message| (message.length, message.descriptors))
}

/// What came with one message.
#[derive(Debug)]
pub struct Message {
    /// Its bytes, at the buffer's start; 0 means that the other side is gone.
    pub length: usize,
    /// Descriptors, close-on-exec.
    pub descriptors: Vec<OwnedFd>,
    /// The process it is about, where [`crate::unix::ask_for_processes`] asked for it.
    pub pid: Option<i32>,
}

/// [`receive_with`], and the number of the process that the message is about.
///
/// # Errors
/// As [`receive_with`].
pub fn receive_about(fd: BorrowedFd<'_>, buffer: &mut [u8], wait: bool) -> Result<Message> {
    let mut control = Control([0; CONTROL]);
    let part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: msghdr is plain data, for which all zeroes are valid.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = (&raw const part).cast_mut();
    message.msg_iovlen = 1;
    let flags = libc::MSG_CMSG_CLOEXEC | if wait { 0 } else { libc::MSG_DONTWAIT };
    let count = loop {
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = control.0.len();
        // SAFETY: `message` describes `buffer` and `control`, both writable and of that length.
        match unsafe { sys!(recvmsg, fd.as_raw_fd(), &raw mut message, flags) } {
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
            Ok(count) => break count,
        }
    };
    let control = &control.0[..message.msg_controllen.min(control.0.len())];
    let (descriptors, pid) = take_control(control);
    if message.msg_flags & libc::MSG_CTRUNC != 0 {
        return Err(Errno::EMSGSIZE);
    }
    Ok(Message { length: count, descriptors, pid })
}

/// Takes ownership of the descriptors that the kernel wrote into control messages.
fn take_control(mut control: &[u8]) -> (Vec<OwnedFd>, Option<i32>) {
    let word = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map_or(0, i32::from_ne_bytes)
    };
    let (mut fds, mut pid) = (Vec::new(), None);
    while control.len() >= 16 {
        let length = (word(control, 0) as usize).min(control.len());
        if length < 16 {
            break;
        }
        if word(control, 8) == libc::SOL_SOCKET && word(control, 12) == libc::SCM_RIGHTS {
            fds.extend(control[16..length].chunks_exact(4).map(|raw| {
                let raw = i32::from_ne_bytes([raw[0], raw[1], raw[2], raw[3]]);
                owned(raw as usize)
            }));
        }
        if word(control, 8) == libc::SOL_SOCKET && word(control, 12) == libc::SCM_CREDENTIALS {
            pid = Some(word(control, 16)).filter(|_| length >= 20);
        }
        control = &control[length.next_multiple_of(8).min(control.len())..];
    }
    (fds, pid)
}

/// One option of a socket, read into `value`; returns how many bytes it has.
fn option(fd: BorrowedFd<'_>, level: i32, name: i32, value: &mut [u8]) -> Result<usize> {
    let mut length = value.len() as libc::socklen_t;
    let at = value.as_mut_ptr();
    // SAFETY: `at` and `length` describe `value`, which is writable; the kernel shortens `length`.
    unsafe { sys!(getsockopt, fd.as_raw_fd(), level, name, at, &raw mut length) }?;
    Ok(length as usize)
}

/// Where a connection that netfilter redirected was going (`SO_ORIGINAL_DST`,
/// `IP6T_SO_ORIGINAL_DST`). Of a dual-stack socket's IPv4 connection the answer is IPv4.
///
/// # Errors
/// `ENOENT` or `ENOPROTOOPT` when nothing was redirected.
pub fn original_destination(fd: BorrowedFd<'_>, ipv6: bool) -> Result<SocketAddr> {
    const SO_ORIGINAL_DST: i32 = 80;
    let level = if ipv6 { libc::SOL_IPV6 } else { libc::SOL_IP };
    let mut raw = [0u8; 28];
    let length = option(fd, level, SO_ORIGINAL_DST, &mut raw)?;
    address(&raw[..length.min(raw.len())]).ok_or(Errno::EAFNOSUPPORT)
}

/// Reads a `struct sockaddr_in` or `sockaddr_in6`.
pub fn address(raw: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(raw.get(..2)?.try_into().ok()?);
    let port = u16::from_be_bytes(raw.get(2..4)?.try_into().ok()?);
    let ip = match i32::from(family) {
        libc::AF_INET => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(raw.get(4..8)?).ok()?)),
        libc::AF_INET6 => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(raw.get(8..24)?).ok()?)),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// The family of a socket (`SO_DOMAIN`).
///
/// # Errors
/// `ENOTSOCK` for any other file.
pub(crate) fn family(fd: BorrowedFd<'_>) -> Result<i32> {
    let mut family = [0; size_of::<i32>()];
    option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN, &mut family)?;
    Ok(i32::from_ne_bytes(family))
}

/// The process that made the other end of a Unix socket (`SO_PEERCRED`): pid, uid, gid, in the
/// caller's namespaces.
///
/// # Errors
/// The kernel's.
pub fn peer_credentials(fd: BorrowedFd<'_>) -> Result<(i32, u32, u32)> {
    let mut raw = [0u8; 12];
    option(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, &mut raw)?;
    let word = |at: usize| u32::from_ne_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
    Ok((word(0) as i32, word(4), word(8)))
}

/// Begins to connect over TCP, without delays for small amounts (`TCP_NODELAY`), and never waits: the
/// socket, and whether it is connected, as it is at once to a server on this machine. Else it will be
/// writable when that has ended, and [`crate::listener::behalf::ended`] tells how.
///
/// # Errors
/// The kernel's; `ECONNREFUSED` where that is known at once.
pub fn begin_to_connect(to: SocketAddr) -> Result<(OwnedFd, bool)> {
    let family = if to.is_ipv6() { libc::AF_INET6 } else { libc::AF_INET };
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes numbers only.
    let socket = owned(unsafe { sys!(socket, family, kind, libc::IPPROTO_TCP) }?);
    let (on, size) = (1i32, size_of::<i32>());
    let (level, name) = (libc::IPPROTO_TCP, libc::TCP_NODELAY);
    // SAFETY: the pointer is to the value, whose size is given.
    unsafe { sys!(setsockopt, socket.as_raw_fd(), level, name, &raw const on, size) }?;
    let raw = behalf::raw(to, to.is_ipv6());
    let result = match behalf::connect(socket.as_fd(), &raw) {
        // Asked again it tells how far it is: on this machine the answer has come already.
        Err(Errno::EINPROGRESS) => behalf::connect(socket.as_fd(), &raw),
        result => result,
    };
    match result {
        Ok(()) => Ok((socket, true)),
        Err(Errno::EALREADY | Errno::EINPROGRESS) => Ok((socket, false)),
        Err(errno) => Err(errno),
    }
}

/// Whether a TCP socket is neither connected nor on its way to be, nor listens: its connection is over, or has never
/// been begun. One at whose other end there is somebody, or was until it ended its side, is not.
pub fn is_over(socket: BorrowedFd<'_>) -> bool {
    const CLOSE: u8 = 7;
    state(socket).is_none_or(|state| state == CLOSE)
}

/// Whether a TCP socket is to be connected, and has no answer yet: it asked for that, or will with the first bytes
/// that are sent (`TCP_FASTOPEN_CONNECT`). When in doubt it is.
pub fn is_under_way(socket: BorrowedFd<'_>) -> bool {
    // `TCP_SYN_SENT`, `TCP_SYN_RECV`, `TCP_NEW_SYN_RECV`.
    state(socket).is_none_or(|state| matches!(state, 2 | 3 | 12))
}

/// The state of a TCP socket: the first field of `struct tcp_info`.
fn state(socket: BorrowedFd<'_>) -> Option<u8> {
    let mut state = [0];
    option(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut state).ok()?;
    Some(state[0])
}

/// Moves up to `length` bytes between a pipe and a socket without copying them (`splice(2)`),
/// never waiting; 0 is the end of the input.
///
/// # Errors
/// `EAGAIN` when nothing can be moved now; what the socket reports.
pub fn splice(from: BorrowedFd<'_>, to: BorrowedFd<'_>, length: usize) -> Result<usize> {
    let null = std::ptr::null::<u8>();
    let flags = libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK;
    // SAFETY: without offsets the call takes numbers only.
    unsafe { sys!(splice, from.as_raw_fd(), null, to.as_raw_fd(), null, length, flags) }
}

/// How many bytes must have arrived before a socket counts as readable (`SO_RCVLOWAT`); its end and its
/// errors do at once.
///
/// # Errors
/// The kernel's.
pub fn receive_low_water(socket: BorrowedFd<'_>, bytes: i32) -> Result<()> {
    set(socket, libc::SO_RCVLOWAT, bytes)
}

/// How many bytes may be on their way from a socket (`SO_SNDBUF`); the kernel doubles it, for what it
/// needs itself, and does not change it any more by what it sees of the connection.
///
/// # Errors
/// The kernel's.
pub fn send_buffer(socket: BorrowedFd<'_>, bytes: i32) -> Result<()> {
    set(socket, libc::SO_SNDBUF, bytes)
}

/// The processor on which a connection's last packet came in (`SO_INCOMING_CPU`, Linux 3.19): on one host that is often
/// the one that the other end runs on.
pub fn last_came_on(socket: BorrowedFd<'_>) -> Option<usize> {
    let mut processor = [0; size_of::<i32>()];
    option(socket, libc::SOL_SOCKET, libc::SO_INCOMING_CPU, &mut processor).ok()?;
    usize::try_from(i32::from_ne_bytes(processor)).ok()
}

fn set(socket: BorrowedFd<'_>, name: i32, value: i32) -> Result<()> {
    let (level, size) = (libc::SOL_SOCKET, size_of::<i32>());
    // SAFETY: the pointer is to the value and its size.
    unsafe { sys!(setsockopt, socket.as_raw_fd(), level, name, &raw const value, size) }.map(drop)
}

/// A pipe for [`splice`] that holds up to `capacity` bytes, less where the system's limit for
/// pipes is reached: (read end, write end).
///
/// # Errors
/// `EMFILE`, `ENFILE`.
pub fn splice_pipe(capacity: usize) -> Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0 as RawFd; 2];
    // SAFETY: `fds` is room for the two descriptors that the call writes.
    unsafe { sys!(pipe2, fds.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) }?;
    let (read, write) = (owned(fds[0] as usize), owned(fds[1] as usize));
    // SAFETY: takes numbers only.
    let _ = unsafe { sys!(fcntl, write.as_raw_fd(), libc::F_SETPIPE_SZ, capacity) };
    Ok((read, write))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_arrive_close_on_exec_and_lead_to_the_same_thing() {
        let (ours, theirs) = crate::fd::socket_pair().expect("a pair");
        let (read, write) = crate::fd::pipe().expect("a pipe");
        send_with(ours.as_fd(), b"Lx", &[read.as_fd(), write.as_fd()]).expect("sent");
        let mut buffer = [0; 16];
        let (count, fds) = receive_with(theirs.as_fd(), &mut buffer, false).expect("received");
        assert_eq!((&buffer[..count], fds.len()), (&b"Lx"[..], 2));
        crate::fd::write_all(fds[1].as_fd(), b"y").expect("written");
        assert_eq!(crate::fd::read(read.as_fd(), &mut buffer), Ok(1));
        let flags = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fds[0].as_raw_fd()));
        let flags = flags.expect("fdinfo");
        assert!(flags.contains("flags:\t02000000"), "{flags}");
        let me = peer_credentials(ours.as_fd()).expect("credentials");
        assert_eq!(me.0, std::process::id() as i32);
    }

    #[test]
    fn a_plain_message_brings_no_descriptor_and_a_dead_peer_reads_as_empty() {
        let (ours, theirs) = crate::fd::socket_pair().expect("a pair");
        send_with(ours.as_fd(), b"R", &[]).expect("sent");
        let mut buffer = [0; 16];
        assert_eq!(receive_with(theirs.as_fd(), &mut buffer, false).map(|r| r.0), Ok(1));
        let empty = receive_with(theirs.as_fd(), &mut buffer, false).map(|r| r.0);
        assert_eq!(empty, Err(Errno::EAGAIN));
        drop(ours);
        assert_eq!(receive_with(theirs.as_fd(), &mut buffer, true).map(|r| r.0), Ok(0));
    }

    #[test]
    fn a_server_on_this_machine_is_connected_to_at_once_or_refuses() {
        for here in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(server) = std::net::TcpListener::bind(here) else { continue };
            let to = server.local_addr().expect("an address");
            let (client, connected) = begin_to_connect(to).expect("begun");
            assert!(connected);
            let client = std::net::TcpStream::from(client);
            assert_eq!(client.peer_addr().ok(), Some(to));
            assert!(client.nodelay().expect("known"));
            drop(server);
            assert_eq!(begin_to_connect(to).map(drop), Err(Errno::ECONNREFUSED));
        }
    }

    #[test]
    fn addresses_are_read_in_both_families_and_nothing_else() {
        let mut four = vec![2, 0, 0x1f, 0x90, 192, 0, 2, 1];
        four.resize(16, 0);
        assert_eq!(address(&four), Some("192.0.2.1:8080".parse().expect("an address")));
        let mut six = vec![10, 0, 0, 80, 0, 0, 0, 0];
        six.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
        assert_eq!(address(&six), Some("[2001:db8::1]:80".parse().expect("an address")));
        for broken in [&[][..], &[1, 0, 0, 0], &four[..7], &six[..20]] {
            assert_eq!(address(broken), None);
        }
    }
}
