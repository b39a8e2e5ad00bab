//! Supervised calls of the process tier by which a process joins a group: `setpgid` into one that is there.
//!
//! There the sandbox has no numbers of its own, and another job of the user's shell is in the same session: who joined
//! it would be stopped, continued and ended with it, and might read what is typed for it. So a program joins groups
//! that programs inside have made, and the one that its command was started in. The first of the others cannot be
//! joined, so that whichever has a member from inside is one of these.
//!
//! Between the look and the call the last member could end, and its number come to be a group's outside: all numbers
//! would have to be used up in between.

use ringfence_sys as sys;
use std::os::fd::BorrowedFd;
use sys::caller;
use sys::notify::{self, Notification};

/// Generations looked at.
const MOST: usize = 4096;

/// Answers a call that waits: the kernel carries it out when the group is none outside.
pub(crate) fn answer(listener: BorrowedFd<'_>, call: &Notification) {
    // Gone meanwhile: nobody waits for the answer. A refusal is what the kernel says of groups of other sessions.
    let _ = notify::go_on_if(may_join(listener, call) == Some(true), listener, call.id);
}

fn may_join(listener: BorrowedFd<'_>, call: &Notification) -> Option<bool> {
    // The kernel takes the low halves.
    let (named, group) = (call.arguments[0] as i32, call.arguments[1] as i32);
    let caller = caller::process(call)?;
    let process = if named == 0 { caller } else { named };
    // What is below 0 is refused by the kernel; a process that is to lead makes a group.
    let may = group <= 0 || group == process || is_ours(group);
    // Else all this may be of another one with the same number.
    Some(may && notify::waits(listener, call.id))
}

/// Whether it is the group that the command was started in, or one of those inside.
pub(crate) fn is_ours(group: i32) -> bool {
    group == sys::process::group() || is_inside(group)
}

/// Whether a group has a member inside: first whom it is called after, who has ended perhaps.
fn is_inside(group: i32) -> bool {
    let own = sys::process::filters(std::process::id());
    let member = |&pid: &i32| {
        sys::process::group_of(pid) == Ok(group)
            && sys::process::filters(pid.cast_unsigned()) > own
            && descends(pid)
    };
    member(&group) || crate::own_group::pids().any(|pid| member(&pid))
}

/// Whether this process started another one, or one that started it: it takes over orphans.
pub(crate) fn descends(pid: i32) -> bool {
    let launcher = std::process::id().cast_signed();
    let mut line = std::iter::successors(Some(pid), |&pid| sys::process::parent_of(pid));
    line.by_ref().skip(1).take(MOST).any(|pid| pid == launcher)
}
