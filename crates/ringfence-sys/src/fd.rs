//! Descriptors: open, pipe, socketpair, poll, and closing what must not be inherited.

use crate::{Result, sys};
use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Opens for reading (`O_RDONLY`).
pub const READ_ONLY: i32 = libc::O_RDONLY;
/// Opens a directory for listing (`O_RDONLY | O_DIRECTORY`).
pub const DIRECTORY: i32 = libc::O_RDONLY | libc::O_DIRECTORY;
/// Opens for writing (`O_WRONLY`).
pub const WRITE_ONLY: i32 = libc::O_WRONLY;
/// Flags for [`open_at`]: read and write; a terminal does not become the caller's.
pub const READ_WRITE: i32 = libc::O_RDWR | libc::O_NOCTTY;

/// Opens a path as a place, not for its content (`O_PATH`).
pub const PATH_ONLY: i32 = libc::O_PATH;

/// Calls on what is opened return instead of waiting; so does the opening of a FIFO (`O_NONBLOCK`).
pub const NON_BLOCKING: i32 = libc::O_NONBLOCK;

/// Opens no link at a path's end (`O_NOFOLLOW`).
pub const NO_FOLLOW: i32 = libc::O_NOFOLLOW;

/// The directory descriptor that stands for the current directory (`AT_FDCWD`).
pub const CWD: RawFd = libc::AT_FDCWD;

/// Takes ownership of a descriptor that a system call just returned.
pub(crate) fn owned(raw: usize) -> OwnedFd {
    // SAFETY: callers pass the non-negative result of a call that creates a descriptor,
    // which nothing else owns yet.
    unsafe { OwnedFd::from_raw_fd(raw as RawFd) }
}

/// `openat(2)` with `O_CLOEXEC` added.
///
/// # Errors
/// The kernel's.
pub fn open_at(dir: RawFd, path: &CStr, flags: i32, mode: u32) -> Result<OwnedFd> {
    // SAFETY: `path` is a NUL-terminated string that outlives the call.
    unsafe { sys!(openat, dir, path.as_ptr(), flags | libc::O_CLOEXEC, mode) }.map(owned)
}

/// A path to what a descriptor of this process holds (proc_pid_fd(5)), which no rename redirects.
pub fn through(descriptor: &impl AsRawFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))
}

/// Opens an absolute or relative path of which no component may be a symbolic link
/// (`openat2(2)`, `RESOLVE_NO_SYMLINKS`, Linux 5.6): what a path meant when it was checked,
/// it still means, or the call fails with `ELOOP`.
///
/// # Errors
/// The kernel's; `ELOOP` where a link turned up.
pub fn open_without_links(dir: RawFd, path: &CStr, flags: i32) -> Result<OwnedFd> {
    const RESOLVE_NO_MAGICLINKS: u64 = 2;
    const RESOLVE_NO_SYMLINKS: u64 = 4;
    let how = [(flags | libc::O_CLOEXEC) as u64, 0, RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS];
    // SAFETY: `path` is NUL-terminated; `how` has the layout and size of `struct open_how`.
    unsafe { sys!(openat2, dir, path.as_ptr(), how.as_ptr(), size_of_val(&how)) }.map(owned)
}

/// `pipe2(2)`, close-on-exec: (read end, write end).
///
/// # Errors
/// `EMFILE`, `ENFILE`.
pub fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0 as RawFd; 2];
    // SAFETY: `fds` is room for the two descriptors that the call writes.
    unsafe { sys!(pipe2, fds.as_mut_ptr(), libc::O_CLOEXEC) }?;
    Ok((owned(fds[0] as usize), owned(fds[1] as usize)))
}

/// A pair of connected Unix sequenced-packet sockets, close-on-exec.
///
/// # Errors
/// `EMFILE`, `ENFILE`.
pub fn socket_pair() -> Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0 as RawFd; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: `fds` is room for the two descriptors that the call writes.
    unsafe { sys!(socketpair, libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) }?;
    Ok((owned(fds[0] as usize), owned(fds[1] as usize)))
}

/// Writes all of `bytes`, going on after a short write or a signal.
///
/// # Errors
/// The kernel's.
pub fn write_all(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        // SAFETY: the pointer and length describe `bytes`.
        match unsafe { sys!(write, fd.as_raw_fd(), bytes.as_ptr(), bytes.len()) } {
            Ok(count) => bytes = &bytes[count..],
            Err(crate::Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// The same for a descriptor by its number, which somebody else owns.
///
/// # Errors
/// The kernel's.
pub fn write_to(fd: RawFd, bytes: &[u8]) -> Result<()> {
    // SAFETY: borrowed for this call; a number that is no descriptor is EBADF.
    write_all(unsafe { BorrowedFd::borrow_raw(fd) }, bytes)
}

/// One `read(2)`.
///
/// # Errors
/// The kernel's (`EINTR` is retried).
pub fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize> {
    loop {
        // SAFETY: the pointer and length describe `buffer`, which is writable.
        match unsafe { sys!(read, fd.as_raw_fd(), buffer.as_mut_ptr(), buffer.len()) } {
            Err(crate::Errno::EINTR) => {}
            other => return other,
        }
    }
}

/// Sends one message without raising `SIGPIPE`; a full or closed peer is an error.
///
/// # Errors
/// `EPIPE`, `EAGAIN`, …
pub fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize> {
    let null = std::ptr::null::<u8>();
    // SAFETY: the pointer and length describe `bytes`; no address is given.
    unsafe {
        sys!(sendto, fd.as_raw_fd(), bytes.as_ptr(), bytes.len(), libc::MSG_NOSIGNAL, null, 0)
    }
}

/// Receives one message; 0 means that the other side is gone. With `wait` unset an empty
/// queue is `EAGAIN`.
///
/// # Errors
/// The kernel's (`EINTR` is retried).
pub fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8], wait: bool) -> Result<usize> {
    let flags = if wait { 0 } else { libc::MSG_DONTWAIT };
    let null = std::ptr::null::<u8>();
    loop {
        // SAFETY: the pointer and length describe `buffer`; no address is asked for.
        match unsafe {
            sys!(recvfrom, fd.as_raw_fd(), buffer.as_mut_ptr(), buffer.len(), flags, null, null)
        } {
            Err(crate::Errno::EINTR) => {}
            other => return other,
        }
    }
}

/// Waits until one of `fds` can be read or is closed by its peer; `timeout_ms` of -1 waits
/// for ever. Returns which are ready.
///
/// # Errors
/// `EINTR` is retried with the same timeout; others are the kernel's.
pub fn poll_readable(fds: &[BorrowedFd<'_>], timeout_ms: i32) -> Result<Vec<bool>> {
    readable(fds, timeout_ms, false)
}

/// [`poll_readable`] of a process that has had nothing to do for a while: what it takes of memory to wait fits into a few
/// pages, and it lets go of its code and constants until something comes.
///
/// # Errors
/// As [`poll_readable`].
pub fn rest_until_readable(fds: &[BorrowedFd<'_>], timeout_ms: i32) -> Result<Vec<bool>> {
    crate::memory::give_back();
    readable(fds, timeout_ms, true)
}

fn readable(fds: &[BorrowedFd<'_>], timeout_ms: i32, at_rest: bool) -> Result<Vec<bool>> {
    let mut list: Vec<libc::pollfd> = fds
        .iter()
        .map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 })
        .collect();
    wait(&mut list, timeout_ms, at_rest)?;
    Ok(list.iter().map(|entry| entry.revents != 0).collect())
}

/// Waits for the first of a list.
fn wait(list: &mut [libc::pollfd], timeout_ms: i32, at_rest: bool) -> Result<()> {
    let time = libc::timespec {
        tv_sec: i64::from(timeout_ms / 1000),
        tv_nsec: i64::from(timeout_ms % 1000) * 1_000_000,
    };
    let limit = if timeout_ms < 0 { std::ptr::null() } else { &raw const time };
    loop {
        let (at, length) = (list.as_mut_ptr(), list.len());
        // SAFETY: the pointers describe `list` and an optional timespec; no mask is given.
        let ended = unsafe {
            if at_rest {
                ringfence_start::code::rest(at.cast(), length, limit.cast())
            } else {
                sys!(ppoll, at, length, limit, std::ptr::null::<u8>(), 0)
            }
        };
        match ended {
            Err(crate::Errno::EINTR) => {}
            other => return other.map(drop),
        }
    }
}

/// What to wait for on a descriptor, and whether it came.
#[derive(Clone, Copy, Debug)]
pub struct Watched<'a> {
    /// The descriptor.
    pub fd: BorrowedFd<'a>,
    /// Wait until it can be read, or its peer is gone.
    pub read: bool,
    /// Wait until it can be written.
    pub write: bool,
}

/// What a descriptor is ready for; both when its peer is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// To be read, or ended.
    pub read: bool,
    /// To be written.
    pub write: bool,
}

/// [`poll_readable`], for writing as well.
///
/// # Errors
/// As [`poll_readable`].
pub fn poll(watched: &[Watched<'_>], timeout_ms: i32) -> Result<Vec<Ready>> {
    ready(watched, timeout_ms, false)
}

/// [`rest_until_readable`], for writing as well.
///
/// # Errors
/// As [`poll_readable`].
pub fn rest(watched: &[Watched<'_>], timeout_ms: i32) -> Result<Vec<Ready>> {
    crate::memory::give_back();
    ready(watched, timeout_ms, true)
}

fn ready(watched: &[Watched<'_>], timeout_ms: i32, at_rest: bool) -> Result<Vec<Ready>> {
    let events = |one: &Watched<'_>| {
        (if one.read { libc::POLLIN } else { 0 }) | if one.write { libc::POLLOUT } else { 0 }
    };
    let entry = |one: &Watched<'_>| {
        // One that waits for nothing is left out: its peer's end would be told again and again.
        let fd = if one.read || one.write { one.fd.as_raw_fd() } else { -1 };
        libc::pollfd { fd, events: events(one), revents: 0 }
    };
    let mut list: Vec<libc::pollfd> = watched.iter().map(entry).collect();
    wait(&mut list, timeout_ms, at_rest)?;
    let ended = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;
    let ready = |entry: &libc::pollfd| Ready {
        read: entry.revents & (libc::POLLIN | ended) != 0,
        write: entry.revents & (libc::POLLOUT | ended) != 0,
    };
    Ok(list.iter().map(ready).collect())
}

/// A flag of an open file ([`flags`]): its owner gets a signal when there is input (`O_ASYNC`).
pub const ASYNCHRONOUS: usize = libc::O_ASYNC as usize;
/// The same: reads leave the access time alone, which only the file's owner may ask for (`O_NOATIME`).
pub const LEAVES_NO_TIME: usize = libc::O_NOATIME as usize;

/// The flags of an open file (`F_GETFL`, fcntl(2)).
///
/// # Errors
/// The kernel's.
pub fn flags(fd: BorrowedFd<'_>) -> Result<usize> {
    // SAFETY: takes numbers only.
    unsafe { sys!(fcntl, fd.as_raw_fd(), libc::F_GETFL) }
}

/// Sets those flags of an open file that can be changed (`F_SETFL`), for all who hold it.
///
/// # Errors
/// The kernel's.
pub fn set_flags(fd: BorrowedFd<'_>, flags: usize) -> Result<()> {
    // SAFETY: takes numbers only.
    unsafe { sys!(fcntl, fd.as_raw_fd(), libc::F_SETFL, flags) }.map(drop)
}

/// Lets calls on an open file return instead of waiting (`O_NONBLOCK`), for all who hold it.
///
/// # Errors
/// The kernel's.
pub fn never_wait(fd: BorrowedFd<'_>) -> Result<()> {
    set_flags(fd, flags(fd)? | libc::O_NONBLOCK as usize)
}

/// One `write(2)`.
///
/// # Errors
/// The kernel's (`EINTR` is retried); `EAGAIN` where it would wait and must not.
pub fn write(fd: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize> {
    loop {
        // SAFETY: the pointer and length describe `bytes`.
        match unsafe { sys!(write, fd.as_raw_fd(), bytes.as_ptr(), bytes.len()) } {
            Err(crate::Errno::EINTR) => {}
            other => return other,
        }
    }
}

/// [`write_all`] to what may return instead of waiting (`O_NONBLOCK`): waits for room itself, as long as `patience` at
/// the most.
///
/// # Errors
/// `EAGAIN` where there was no room for all of it by then; others are the kernel's.
pub fn write_within(fd: BorrowedFd<'_>, mut bytes: &[u8], patience: Duration) -> Result<()> {
    let until = Instant::now() + patience;
    while !bytes.is_empty() {
        match write(fd, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(crate::Errno::EAGAIN) => {
                let left = until.saturating_duration_since(Instant::now()).as_millis();
                let room = [Watched { fd, read: false, write: true }];
                // Less than a millisecond is none.
                if left == 0 || !poll(&room, i32::try_from(left).unwrap_or(i32::MAX))?[0].write {
                    return Err(crate::Errno::EAGAIN);
                }
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// A file in memory that holds these bytes (`memfd_create(2)`).
///
/// # Errors
/// `ENOMEM`, `EMFILE`.
pub fn in_memory(bytes: &[u8]) -> Result<OwnedFd> {
    // SAFETY: the name is a NUL-terminated literal.
    let file = unsafe { sys!(memfd_create, c"ringfence".as_ptr(), libc::MFD_CLOEXEC) }?;
    let file = owned(file);
    write_all(std::os::fd::AsFd::as_fd(&file), bytes)?;
    Ok(file)
}

/// A new file in memory that can be sealed.
///
/// # Errors
/// As [`in_memory`].
pub fn sealable() -> Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a NUL-terminated literal.
    unsafe { sys!(memfd_create, c"ringfence".as_ptr(), flags) }.map(owned)
}

/// Nobody changes a file in memory any more, whoever has it open.
///
/// # Errors
/// `EINVAL` for what is no such file, `EPERM` for one that cannot be sealed (any more), `EBUSY` for one that is mapped
/// and can be written that way.
pub fn seal(file: BorrowedFd<'_>) -> Result<()> {
    let seals = libc::F_SEAL_SEAL | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;
    // SAFETY: no pointer is passed.
    unsafe { sys!(fcntl, file.as_raw_fd(), libc::F_ADD_SEALS, seals) }.map(drop)
}

/// What an open file is (fstat(2)).
fn status(file: BorrowedFd<'_>) -> Result<libc::stat> {
    // SAFETY: stat is plain numbers, for which all zeroes are valid.
    let mut data: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `data` is room for the answer.
    unsafe { sys!(fstat, file.as_raw_fd(), &raw mut data) }?;
    Ok(data)
}

/// The whole of a regular file of at most `most` bytes, wherever it was read to; never waits for
/// anybody to write.
///
/// # Errors
/// `EINVAL` for what is no regular file, `EFBIG` for one that is longer; the kernel's.
pub fn content(file: BorrowedFd<'_>, most: usize) -> Result<Vec<u8>> {
    let data = status(file)?;
    if data.st_mode & libc::S_IFMT != libc::S_IFREG {
        return Err(crate::Errno::EINVAL);
    }
    let length = usize::try_from(data.st_size).unwrap_or(usize::MAX);
    if length > most {
        return Err(crate::Errno::EFBIG);
    }
    let mut bytes = vec![0; length];
    let mut at = 0;
    while at < length {
        let rest = &mut bytes[at..];
        // SAFETY: the pointer and length describe `rest`, which is writable.
        match unsafe { sys!(pread64, file.as_raw_fd(), rest.as_mut_ptr(), rest.len(), at) } {
            Ok(0) => break,
            Ok(count) => at += count,
            Err(crate::Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    bytes.truncate(at);
    Ok(bytes)
}

/// Whether an open file is a device: a terminal is one.
///
/// # Errors
/// The kernel's.
pub fn is_device(file: BorrowedFd<'_>) -> Result<bool> {
    Ok(matches!(status(file)?.st_mode & libc::S_IFMT, libc::S_IFCHR | libc::S_IFBLK))
}

/// Whether the descriptor is open, and a terminal (`isatty(3)`).
pub fn is_terminal(fd: RawFd) -> bool {
    // SAFETY: isatty accepts any number and touches no memory of ours.
    unsafe { libc::isatty(fd) == 1 }
}

/// The path of the terminal that a descriptor is (`/dev/pts/3`), if it is one.
pub fn terminal_name(fd: RawFd) -> Option<PathBuf> {
    is_terminal(fd).then(|| std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()).flatten()
}

/// Opens `/dev/null` on those of the descriptors 0, 1 and 2 that are closed, so that no
/// later `open` lands there and is taken for a standard stream: what was closed when the program began is open already.
///
/// # Errors
/// The kernel's, when `/dev/null` cannot be opened.
pub fn ensure_standard_streams() -> Result<()> {
    for fd in 0..3 {
        // SAFETY: F_GETFD takes a number and touches no memory.
        if unsafe { sys!(fcntl, fd, libc::F_GETFD) } == Err(crate::Errno::EBADF) {
            // SAFETY: the path is a NUL-terminated literal.
            unsafe { sys!(openat, CWD, c"/dev/null".as_ptr(), libc::O_RDWR) }?;
        }
    }
    Ok(())
}

/// Whether so many more descriptors can be had now.
pub fn are_left(count: usize) -> bool {
    // Each is another open file, of which the system has so many only, as the user has descriptors.
    let open = || open_at(CWD, c"/", PATH_ONLY, 0);
    (0..count).map(|_| open()).collect::<Result<Vec<_>>>().is_ok()
}

/// Takes over a descriptor that the caller of the program left open under a known number,
/// and marks it close-on-exec. Of a standard stream it is a copy.
pub fn adopt(fd: RawFd) -> Option<OwnedFd> {
    if (0..3).contains(&fd) {
        // SAFETY: takes numbers only.
        return unsafe { sys!(fcntl, fd, libc::F_DUPFD_CLOEXEC, 3) }.ok().map(owned);
    }
    // SAFETY: F_SETFD takes numbers only.
    unsafe { sys!(fcntl, fd, libc::F_SETFD, libc::FD_CLOEXEC) }.ok()?;
    // SAFETY: the descriptor is open; it was handed to us by number, so nothing else owns it.
    (fd > 2).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether the caller may write to a path, by its effective user (`faccessat2(2)`, Linux 5.8).
pub fn may_write(path: &std::path::Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: a NUL-terminated string.
    unsafe { sys!(faccessat2, CWD, path.as_ptr(), libc::W_OK, libc::AT_EACCESS) }.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn what_does_not_wait_is_waited_for_and_not_for_ever() {
        let (read_end, write_end) = pipe().expect("a pipe");
        never_wait(write_end.as_fd()).expect("set");
        let mut filled = 0;
        while let Ok(count) = write(write_end.as_fd(), &[b'.'; 4096]) {
            filled += count;
        }
        let soon = Duration::from_millis(1);
        assert_eq!(write_within(write_end.as_fd(), b"x", soon), Err(crate::Errno::EAGAIN));
        let reads = std::thread::spawn(move || {
            let (mut all, mut some) = (Vec::new(), [0; 4096]);
            while let Ok(count @ 1..) = read(read_end.as_fd(), &mut some) {
                all.extend(&some[..count]);
            }
            all
        });
        let told = vec![b'x'; filled * 2];
        assert_eq!(write_within(write_end.as_fd(), &told, Duration::from_secs(60)), Ok(()));
        drop(write_end);
        let all = reads.join().expect("read");
        assert!(all.len() == filled * 3 && all.ends_with(&told));
    }
}
