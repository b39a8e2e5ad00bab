//! What a process has from whoever started it: standard streams, and the masks of signals and files.

use crate::call::sys;

/// Signals that stay as they are in the launcher: faults, SIGKILL, SIGSTOP, SIGTTIN, SIGTTOU.
pub(crate) const LEFT_ALONE: u64 =
    1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 10 | 1 << 8 | 1 << 18 | 1 << 20 | 1 << 21;

/// Whether the descriptors 0, 1 and 2 are open.
pub(crate) fn streams_are_open() -> bool {
    const F_GETFD: usize = 1;
    let mut fd = 0;
    // SAFETY: takes numbers.
    while fd < 3 && unsafe { sys!(fcntl, fd, F_GETFD) }.is_ok() {
        fd += 1;
    }
    fd == 3
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
