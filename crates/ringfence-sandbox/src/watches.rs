//! Supervised calls of the process tier: what a program is told of (inotify(7)).
//!
//! Landlock does not rule watches, and the kernel asks for nothing but the user's own right to read:
//! a program would be told each name that is made, opened or removed in directories that it may not
//! list. The launcher therefore adds the watch in the caller's place, to a copy of the caller's
//! descriptor, for what was opened once and can be read inside.

use crate::metadata::{open_text, trees};
use crate::plan::{Plan, Rights};
use ringfence_sys as sys;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use sys::Errno;
use sys::fd::CWD;
use sys::notify::{self, Notification};

/// `IN_DONT_FOLLOW`.
const NO_FOLLOW: u64 = 0x0200_0000;
const READ_BY_OTHERS: u32 = 0o004;

/// What may be watched: the trees that can be read, or at least listed. Most commands add no watch, so
/// the plan is looked through for each that one adds, and not at the start.
#[derive(Debug)]
pub(crate) struct Watches<'a> {
    /// What is carried out.
    pub plan: &'a Plan,
    /// The session's own directory.
    pub private: Option<&'a PathBuf>,
}

impl Watches<'_> {
    /// Answers a call that waits.
    pub fn answer(&self, listener: BorrowedFd<'_>, call: &Notification) {
        // Gone meanwhile: nobody waits for the answer.
        let _ = notify::finish_with(listener, call.id, self.add(listener, call));
    }

    fn add(&self, listener: BorrowedFd<'_>, call: &Notification) -> sys::Result<i32> {
        let [inotify, path, events, ..] = call.arguments;
        let path = sys::caller::read_text(listener, call, path)?;
        let place = open_text(listener, call, CWD, &path, events & NO_FOLLOW == 0)?;
        if !self.readable(&place)? {
            return Err(Errno::EACCES);
        }
        let inotify = sys::caller::descriptor(listener, call, inotify as i32)?;
        sys::inotify::watch(inotify.as_fd(), place.as_fd(), events as u32)
    }

    /// Whether the program could read what was opened. The launcher's own capabilities, if it has
    /// any, are not the program's.
    fn readable(&self, place: &OwnedFd) -> sys::Result<bool> {
        let through = format!("/proc/self/fd/{}", place.as_raw_fd());
        let real = std::fs::read_link(through).map_err(|_| Errno::EACCES)?;
        let mut trees =
            trees(self.plan, self.private, &[Rights::List, Rights::Read, Rights::Write]);
        if !trees.any(|tree| real.starts_with(tree)) {
            return Ok(false);
        }
        if self.plan.user.0 != 0 {
            return Ok(true);
        }
        let (owner, mode) = sys::file::owner_and_mode(place.as_fd())?;
        Ok(owner == self.plan.user.0 || mode & READ_BY_OTHERS != 0)
    }
}
