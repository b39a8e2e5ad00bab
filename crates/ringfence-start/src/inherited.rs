//! What a process has from whoever started it: standard streams, the masks of signals and files, signals that are
//! ignored, and how many files it may have open.

use crate::call::sys;
use crate::stamp::{AT_FDCWD, EMPTY_PATH, Looked, Stat, look};
use crate::{Errno, Result};
use core::mem::MaybeUninit;

/// Signals that stay as they are in the launcher: faults, SIGKILL, SIGSTOP.
pub(crate) const LEFT_ALONE: u64 =
    1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 10 | 1 << 8 | 1 << 18;

/// SIGTTIN and SIGTTOU: a launcher stops itself, so that somebody keeps watch meanwhile; who has none to keep is
/// stopped by them.
pub(crate) const OF_THE_TERMINAL: u64 = 1 << 20 | 1 << 21;

/// SIGPIPE, which Rust's runtime ignores: a bit, as the next two are.
pub const OF_PIPES: usize = 1;
/// SIGXFSZ, which a launcher with libc ignores.
pub const OF_LIMITS: usize = 2;
/// SIGCHLD, of which a launcher has to hear.
pub const OF_CHILDREN: usize = 4;
/// Whether the one of a bit was ignored.
const IGNORED: u32 = 3;
/// Where the limit of open files begins.
const FILES: u32 = 8;
/// The kernel's number of that limit.
const RLIMIT_NOFILE: usize = 7;
/// A launcher without libc has so few descriptors of its own that these are plenty.
const PLENTY: u64 = 256;

/// A word of what was changed of the caller's: which of the signals, which of all were ignored by him, and how many files
/// he may have open (0: as many as now).
pub const fn of(changed: usize, ignored: usize, files: u64) -> usize {
    let ignored = (ignored & (OF_PIPES | OF_LIMITS | OF_CHILDREN)) << IGNORED;
    changed | ignored | (files as usize) << FILES
}

/// Gives all that back.
///
/// # Errors
/// The kernel's.
pub fn give_back(inherited: usize) -> Result<()> {
    // Not on the stack, where they would be filled by `memset`: the kernel's structures for SIG_DFL and SIG_IGN.
    static DEFAULT: [u64; 4] = [0; 4];
    static IGNORE: [u64; 4] = [1, 0, 0, 0];
    let mut bit = OF_PIPES;
    while bit <= OF_CHILDREN {
        if inherited & bit != 0 {
            let ignored = inherited & bit << IGNORED != 0;
            let action = if ignored { IGNORE.as_ptr() } else { DEFAULT.as_ptr() };
            // SAFETY: the structure has the kernel's size, and installs no handler.
            unsafe { sys!(rt_sigaction, number(bit), action, 0, 8) }?;
        }
        bit <<= 1;
    }
    match (inherited >> FILES) as u64 {
        0 => Ok(()),
        files => {
            let now = limit(RLIMIT_NOFILE)?;
            let wanted = [if files < now[1] { files } else { now[1] }, now[1]];
            // SAFETY: `wanted` outlives the call; nothing is asked back.
            unsafe { sys!(prlimit64, 0, RLIMIT_NOFILE, wanted.as_ptr(), 0) }.map(drop)
        }
    }
}

/// Which of the signals this process ignores.
pub(crate) fn ignored() -> usize {
    is_ignored(OF_PIPES) | is_ignored(OF_LIMITS) | is_ignored(OF_CHILDREN)
}

/// The bit of a signal, if this process ignores it.
pub(crate) fn is_ignored(bit: usize) -> usize {
    const SIG_IGN: u64 = 1;
    let mut action = MaybeUninit::<[u64; 4]>::uninit();
    // SAFETY: room for the kernel's structure, whose first word is the handler; nothing is set.
    unsafe {
        match sys!(rt_sigaction, number(bit), 0, action.as_mut_ptr(), 8) {
            Ok(_) if action.as_ptr().cast::<u64>().read() == SIG_IGN => bit,
            _ => 0,
        }
    }
}

fn number(bit: usize) -> usize {
    match bit {
        OF_PIPES => 13,
        OF_LIMITS => 25,
        _ => 17,
    }
}

/// A limit of this process: soft, hard.
pub(crate) fn limit(resource: usize) -> Result<[u64; 2]> {
    let mut now = [0u64; 2];
    // SAFETY: pid 0 is ourselves; `now` is room for the answer.
    unsafe { sys!(prlimit64, 0, resource, 0, now.as_mut_ptr()) }.map(|_| now)
}

/// Whether so many files may be open that none of a launcher's own can be one too many. `main` has the words for it.
pub(crate) fn has_descriptors() -> bool {
    limit(RLIMIT_NOFILE).is_ok_and(|now| now[0] >= PLENTY)
}

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
