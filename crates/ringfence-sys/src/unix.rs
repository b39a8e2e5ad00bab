//! Unix sockets with names (unix(7)): listened on, connected to, and messages that say which
//! process they are about.
//!
//! All are sequenced-packet sockets: a message arrives whole or not at all, so that no reader
//! ever waits for the rest of one.

use crate::fd::owned;
use crate::{Errno, Result, sys};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The longest path that a socket's address holds, without its NUL.
pub const LONGEST_PATH: usize = 107;

fn address(path: &Path) -> Result<(libc::sockaddr_un, libc::socklen_t)> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() > LONGEST_PATH {
        return Err(Errno::ENAMETOOLONG);
    }
    // An empty path or one that begins with NUL would be an abstract name.
    if bytes.is_empty() || bytes.contains(&0) {
        return Err(Errno::EINVAL);
    }
    // SAFETY: sockaddr_un is plain bytes, for which all zeroes are valid.
    let mut address: libc::sockaddr_un = unsafe { MaybeUninit::zeroed().assume_init() };
    address.sun_family = libc::AF_UNIX as u16;
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    Ok((address, size_of::<libc::sockaddr_un>() as libc::socklen_t))
}

fn socket(flags: i32) -> Result<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | flags;
    // SAFETY: takes numbers only.
    unsafe { sys!(socket, libc::AF_UNIX, kind, 0) }.map(owned)
}

/// A listening socket under a path, which must not exist; others cannot connect whatever the
/// caller's file creation mask is. Accepting never waits.
///
/// # Errors
/// `ENAMETOOLONG` past [`LONGEST_PATH`]; `EADDRINUSE`; the file system's; `EACCES`, `EPERM` or
/// `EAFNOSUPPORT` inside a sandbox without Unix sockets.
pub fn listen(path: &Path) -> Result<OwnedFd> {
    const WAITING: i32 = 64;
    let (address, length) = address(path)?;
    let socket = socket(libc::SOCK_NONBLOCK)?;
    // The mode of the socket's inode is that of the socket at bind (and the mask's).
    // SAFETY: takes numbers only.
    unsafe { sys!(fchmod, socket.as_raw_fd(), 0o600) }?;
    // SAFETY: `address` and `length` describe one address.
    unsafe { sys!(bind, socket.as_raw_fd(), &raw const address, length) }?;
    // SAFETY: takes numbers only.
    unsafe { sys!(listen, socket.as_raw_fd(), WAITING) }?;
    Ok(socket)
}

/// Connects to a listening socket.
///
/// # Errors
/// `ENOENT` where there is none, `ECONNREFUSED` where nobody listens any more, `EACCES`,
/// `ENAMETOOLONG`.
pub fn connect(path: &Path) -> Result<OwnedFd> {
    let (address, length) = address(path)?;
    let socket = socket(0)?;
    // SAFETY: `address` and `length` describe one address.
    unsafe { sys!(connect, socket.as_raw_fd(), &raw const address, length) }?;
    Ok(socket)
}

/// Takes one waiting connection; reading from it may wait, unless told not to.
///
/// # Errors
/// `EAGAIN` when there is none.
pub fn accept(listener: BorrowedFd<'_>) -> Result<OwnedFd> {
    let null = std::ptr::null::<u8>();
    // SAFETY: no address is asked for.
    unsafe { sys!(accept4, listener.as_raw_fd(), null, null, libc::SOCK_CLOEXEC) }.map(owned)
}

/// Whether something that was sent has not been read by the peer yet (`SIOCOUTQ`); where that is not known, it has.
pub fn is_unread(fd: BorrowedFd<'_>) -> bool {
    let mut unread = 0i32;
    // SAFETY: the pointer is to an integer, which is what the request writes.
    let asked = unsafe { sys!(ioctl, fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut unread) };
    asked.is_ok() && unread > 0
}

/// Whether the peer is gone, even if something that it sent is still to be read.
pub fn is_hung_up(fd: BorrowedFd<'_>) -> bool {
    let mut one = libc::pollfd { fd: fd.as_raw_fd(), events: 0, revents: 0 };
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointers describe one entry and a time; no mask is given.
    let asked = unsafe { sys!(ppoll, &raw mut one, 1, &raw const now, std::ptr::null::<u8>(), 0) };
    asked.is_ok() && one.revents & libc::POLLHUP != 0
}

/// Lets messages to this socket bring the number of the process they are about.
///
/// # Errors
/// None that a caller could cause.
pub fn ask_for_processes(fd: BorrowedFd<'_>) -> Result<()> {
    let (on, length) = (1i32, size_of::<i32>());
    let (level, name) = (libc::SOL_SOCKET, libc::SO_PASSCRED);
    // SAFETY: the pointer and length describe `on`.
    unsafe { sys!(setsockopt, fd.as_raw_fd(), level, name, &raw const on, length) }.map(drop)
}

/// `struct cmsghdr` and `struct ucred`.
#[repr(C, align(8))]
struct Credentials {
    length: usize,
    level: i32,
    kind: i32,
    pid: i32,
    user: u32,
    group: u32,
}

/// Sends one message about a process of the caller's PID namespace: the receiver gets its number
/// as its own namespace has it (`SCM_CREDENTIALS`). Without the right to say so (`CAP_SYS_ADMIN`
/// over the namespace) it is sent as from the caller.
///
/// # Errors
/// `EPIPE`, `EAGAIN`, `EMSGSIZE`.
pub fn send_about(fd: BorrowedFd<'_>, bytes: &[u8], pid: i32) -> Result<()> {
    // SAFETY: both take nothing.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    let length = size_of::<usize>() + 5 * size_of::<i32>();
    let (level, kind) = (libc::SOL_SOCKET, libc::SCM_CREDENTIALS);
    let mut about = Credentials { length, level, kind, pid, user, group };
    let part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: msghdr is plain data, for which all zeroes are valid.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = (&raw const part).cast_mut();
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut about).cast();
    message.msg_controllen = size_of::<Credentials>();
    // SAFETY: `message` describes `bytes` and `about`, which outlive the call; sendmsg writes to
    // neither.
    let sent = unsafe { sys!(sendmsg, fd.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    match sent {
        Err(Errno::EPERM | Errno::ESRCH) => crate::fd::send(fd, bytes).map(drop),
        other => other.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{peer_credentials, receive_about};
    use std::os::fd::AsFd;
    use std::os::unix::fs::PermissionsExt;

    fn place(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("ringfence-unix-{}-{name}", std::process::id()))
    }

    #[test]
    fn a_named_socket_is_for_its_user_alone_and_knows_who_connects() {
        let path = place("named");
        let listener = listen(&path).expect("listening");
        assert_eq!(path.metadata().expect("a socket").permissions().mode() & 0o777, 0o600);
        assert_eq!(accept(listener.as_fd()).err(), Some(Errno::EAGAIN));
        let client = connect(&path).expect("connected");
        let server = accept(listener.as_fd()).expect("accepted");
        let (pid, _, _) = peer_credentials(server.as_fd()).expect("credentials");
        assert_eq!(pid, std::process::id() as i32);
        crate::fd::send(client.as_fd(), b"hello").expect("sent");
        let mut buffer = [0; 16];
        assert_eq!(crate::fd::receive(server.as_fd(), &mut buffer, true), Ok(5));
        assert_eq!(listen(&path).err(), Some(Errno::EADDRINUSE));
        drop(listener);
        assert_eq!(connect(&path).err(), Some(Errno::ECONNREFUSED));
        std::fs::remove_file(&path).expect("a socket of ours");
        assert_eq!(connect(&path).err(), Some(Errno::ENOENT));
    }

    #[test]
    fn names_that_are_no_paths_are_refused() {
        let long = Path::new("/").join("x".repeat(LONGEST_PATH));
        assert_eq!(connect(&long).err(), Some(Errno::ENAMETOOLONG));
        for name in ["", "\0abstract", "/a\0b"] {
            assert_eq!(connect(Path::new(name)).err(), Some(Errno::EINVAL), "{name:?}");
        }
    }

    #[test]
    fn a_message_says_which_process_it_is_about() {
        let (ours, theirs) = crate::fd::socket_pair().expect("a pair");
        ask_for_processes(ours.as_fd()).expect("asked");
        let me = std::process::id() as i32;
        send_about(theirs.as_fd(), b"R", me).expect("sent");
        let mut buffer = [0; 16];
        let message = receive_about(ours.as_fd(), &mut buffer, false).expect("received");
        assert_eq!((message.length, message.descriptors.len(), message.pid), (1, 0, Some(me)));
        // Gone, or another's: sent all the same, as from ourselves.
        send_about(theirs.as_fd(), b"x", i32::MAX).expect("sent");
        let message = receive_about(ours.as_fd(), &mut buffer, false).expect("received");
        assert_eq!((message.length, message.pid), (1, Some(me)));
    }
}
