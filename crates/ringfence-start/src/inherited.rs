//! What a process has from whoever started it: standard streams, and the masks of signals and files.

use crate::Errno;
use crate::call::sys;
use crate::stamp::{AT_FDCWD, EMPTY_PATH, Looked, Stat, look};

/// Signals that stay as they are in the launcher: faults, SIGKILL, SIGSTOP.
pub(crate) const LEFT_ALONE: u64 =
    1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 10 | 1 << 8 | 1 << 18;

/// SIGTTIN and SIGTTOU: a launcher stops itself, so that somebody keeps watch meanwhile; who has none to keep is
/// stopped by them.
pub(crate) const OF_THE_TERMINAL: u64 = 1 << 20 | 1 << 21;

/// Whether the descriptors 0, 1 and 2 are open, and none is a directory: by one all that is in it could be listed
/// and have its modes changed, whatever is granted. Nor a socket that [`leads_out`]. `main` has the words for it.
pub(crate) fn streams_are_usable() -> bool {
    let mut fd = 0;
    while fd < 3 {
        let mut looked = Looked::new();
        match look(&mut looked, fd, c"".as_ptr().cast(), EMPTY_PATH) {
            Ok(stat) if stat.is_directory() || stat.is_socket() && leads_out(fd) => return false,
            Ok(_) => fd += 1,
            Err(_) => return false,
        }
    }
    true
}

/// Opens `/dev/null` on those of the descriptors 0, 1 and 2 that are closed, so that nothing else comes to be there. What
/// is written to a closed one is lost and its writer told (`EBADF`), as outside: so the outputs are not open for writing.
/// (Rust's runtime would open them for both.)
pub(crate) fn fill_closed_streams() {
    const F_GETFD: usize = 1;
    const O_RDONLY: usize = 0;
    const O_RDWR: usize = 2;
    let mut fd = 0;
    while fd < 3 {
        // SAFETY: takes numbers.
        if unsafe { sys!(fcntl, fd, F_GETFD) } == Err(Errno::EBADF) {
            let how = if fd == 0 { O_RDWR } else { O_RDONLY };
            // SAFETY: the path ends with a zero byte. The lowest number that is free is this one.
            let _ = unsafe { sys!(openat, AT_FDCWD, c"/dev/null".as_ptr(), how) };
        }
        fd += 1;
    }
}

/// Whether a descriptor is a socket that can be connected to something else, or sends to any address: one of the
/// network's (connect(2) with `AF_UNSPEC` lets go of what a TCP socket was connected to), or a local one for datagrams
/// (unix(7)).
pub fn leads_out(fd: i32) -> bool {
    const SO_TYPE: usize = 3;
    const SO_DOMAIN: usize = 39;
    const AF_UNIX: i32 = 1;
    const SOCK_STREAM: i32 = 1;
    const SOCK_SEQPACKET: i32 = 5;
    match (option(fd, SO_DOMAIN), option(fd, SO_TYPE)) {
        (Some(AF_UNIX), Some(kind)) => kind != SOCK_STREAM && kind != SOCK_SEQPACKET,
        (Some(_), _) => true,
        // No socket.
        (None, _) => false,
    }
}

/// An option of a socket's that is a number (socket(7)).
fn option(fd: i32, name: usize) -> Option<i32> {
    const SOL_SOCKET: usize = 1;
    let (mut value, mut length) = (0i32, 4u32);
    // SAFETY: the pointers are to four bytes each, as the length says.
    let got = unsafe { sys!(getsockopt, fd, SOL_SOCKET, name, &raw mut value, &raw mut length) };
    got.ok().map(|_| value)
}

/// Lets what the standard streams are be opened once more, as they are open: for reading, for writing. Programs
/// do so by `/dev/stdin` and `/dev/stderr`, and a file that the caller lent may lie where nothing is granted.
/// Nothing is gained by it: whoever holds the descriptor can do with it what the new one can. Where a stream is
/// nothing of the kind, or the kernel takes no rule for it, there is just none.
pub(crate) fn grant_streams(ruleset: usize, known: u64) {
    const F_GETFL: usize = 3;
    const O_ACCMODE: usize = 3;
    const O_PATH: usize = 0o10_000_000;
    const PATH_BENEATH: usize = 1;
    const WRITE_FILE: u64 = 1 << 1;
    const READ_FILE: u64 = 1 << 2;
    const TRUNCATE: u64 = 1 << 14;
    const IOCTL_DEV: u64 = 1 << 15;
    /// `struct landlock_path_beneath_attr`.
    #[repr(C, packed)]
    struct Rule {
        rights: u64,
        fd: i32,
    }
    let mut fd = 0;
    while fd < 3 {
        // SAFETY: takes numbers.
        let flags = unsafe { sys!(fcntl, fd, F_GETFL) }.unwrap_or(O_PATH);
        let mut looked = Looked::new();
        let stat = look(&mut looked, fd, c"".as_ptr().cast(), EMPTY_PATH);
        if flags & O_PATH == 0 && stat.is_ok_and(opened_again) {
            let rights = match flags & O_ACCMODE {
                0 => READ_FILE | IOCTL_DEV,
                1 => WRITE_FILE | TRUNCATE | IOCTL_DEV,
                _ => READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV,
            };
            let rule = Rule { rights: rights & known, fd };
            // SAFETY: the rule outlives the call.
            let _ = unsafe { sys!(landlock_add_rule, ruleset, PATH_BENEATH, &raw const rule, 0) };
        }
        fd += 1;
    }
}

/// Regular files, terminals, and the devices that every sandbox has. Pipes and sockets Landlock does not rule.
fn opened_again(stat: &Stat) -> bool {
    stat.is_file()
        || match stat.character_device() {
            // null, zero, full, random, urandom.
            Some([1, 3 | 5 | 7 | 8 | 9]) => true,
            // Terminals that programs make. A console is the next one's who logs in, and a descriptor of it
            // dead by then, which one that is opened anew would not be.
            Some([136..=143, _]) => true,
            _ => false,
        }
}

/// Sets the file creation mask; the one before.
pub(crate) fn umask(mask: u32) -> u32 {
    // SAFETY: takes a number, cannot fail.
    unsafe { sys!(umask, mask) }.unwrap_or(0o022) as u32
}

/// Sets the signal mask; the one before.
pub(crate) fn mask(set: u64) -> u64 {
    const SIG_SETMASK: usize = 2;
    let mut old = 0u64;
    // SAFETY: both pointers are to eight bytes.
    let _ = unsafe { sys!(rt_sigprocmask, SIG_SETMASK, &raw const set, &raw mut old, 8) };
    old
}
