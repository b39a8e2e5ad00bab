//! The memory that a clone starts from: the template's file, open for reading only, which QEMU maps privately. So nothing
//! is copied before it is used, sessions share what they leave as it is, and a QEMU that was taken over cannot change
//! what later ones start from.
//!
//! QEMU opens such a file to read and write, whatever it does with it. That one call is answered by the launcher of
//! its sandbox: QEMU gets its standard input once more, as it is.

use ringfence_sys::caller::read_text;
use ringfence_sys::notify::{self, Notification};
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};

/// Where QEMU finds it.
pub(super) const PATH: &str = "/proc/self/fd/0";

/// Answers a call of openat(2) that waits: the launcher's own standard input is the command's.
pub(crate) fn answer(listener: BorrowedFd<'_>, call: &Notification) {
    let path = read_text(listener, call, call.arguments[1]);
    let own = path.is_ok_and(|path| CStr::to_bytes(&path) == PATH.as_bytes());
    // Gone meanwhile: nobody waits for the answer.
    let _ = if own {
        notify::give(listener, call.id, std::io::stdin().as_fd())
            .or_else(|errno| notify::finish(listener, call.id, Err(errno)))
    } else {
        notify::go_on(listener, call.id)
    };
}
