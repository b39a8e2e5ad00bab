//! Supervised calls where no Landlock domain keeps signals inside: those to the caller's own group of
//! processes, `kill(0, …)`.
//!
//! What is started in the sandbox is in the group that the launcher was started in, until it makes one of
//! its own, as shells do for jobs and timeout(1) does for its command. From there nobody comes back: a group
//! is named by its number, and that of the launcher's has none inside.

use ringfence_sys as sys;
use std::os::fd::BorrowedFd;
use sys::Errno;
use sys::notify::{self, Notification};

/// Answers a call that waits: it is carried out when the caller's group is none outside.
pub(crate) fn answer(listener: BorrowedFd<'_>, call: &Notification) {
    let inside = sys::process::group_of(call.thread.cast_signed())
        .is_ok_and(|group| group != sys::process::group())
        && notify::waits(listener, call.id);
    // Gone meanwhile: nobody waits for the answer.
    let _ = match inside {
        true => notify::go_on(listener, call.id),
        false => notify::finish(listener, call.id, Err(Errno::EPERM)),
    };
}
