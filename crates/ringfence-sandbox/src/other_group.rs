//! Supervised calls of the process tier by which a process joins a group, `setpgid` into one that is there, or gives one
//! the terminal (`TIOCSPGRP`).
//!
//! There the sandbox has no numbers of its own, and another job of the user's shell is in the same session: who joined
//! it would be stopped, continued and ended with it, and might read what is typed for it. So a program joins groups
//! that programs inside have made, and the one that its command was started in. The first of the others cannot be
//! joined, so that whichever has a member from inside is one of these.
//!
//! Between the look and the call the last member could end, and its number come to be a group's outside: all numbers
//! would have to be used up in between.
//!
//! Who has the terminal is sent its keys' signals, and told of each new size of its window: only these groups get it as
//! well. Which group that is lies in memory, so that the launcher gives it, from the background too.

use crate::plan::Test;
use ringfence_sys as sys;
use std::os::fd::{AsFd, BorrowedFd};
use sys::notify::{self, Notification};
use sys::{Errno, Sysno, caller};

const TIOCSPGRP: u32 = 0x5410;

/// What the arguments of an `ioctl` are that gives the terminal.
pub(crate) const GIVES: [(u8, Test); 1] = [(1, Test::Equals(TIOCSPGRP))];

/// Whether it is such a call. The kernel takes the low half.
pub(crate) fn gives(call: &Notification) -> bool {
    call.call == Sysno::ioctl.id() && call.arguments[1] as u32 == TIOCSPGRP
}

/// Answers it.
pub(crate) fn answer_giving(listener: BorrowedFd<'_>, call: &Notification) {
    let session = caller::process(call).and_then(|pid| sys::process::session_of(pid).ok());
    // Who left the launcher's session does not come back, and has no terminal but that of its own.
    if session.is_some_and(|session| session != sys::process::session()) {
        let _ = notify::go_on(listener, call.id);
        return;
    }
    // Gone meanwhile: nobody waits for the answer.
    let _ = notify::finish(listener, call.id, give(listener, call));
}

fn give(listener: BorrowedFd<'_>, call: &Notification) -> Result<(), Errno> {
    let terminal = caller::descriptor(listener, call, call.arguments[0] as i32)?;
    let mut group = [0; 4];
    if caller::read_memory(listener, call, call.arguments[2], &mut group)? < group.len() {
        return Err(Errno::EFAULT);
    }
    match i32::from_ne_bytes(group) {
        ..0 => Err(Errno::EINVAL),
        group if is_ours(group) => sys::terminal::set_foreground(terminal.as_fd(), group),
        // As of a group of another session.
        _ => Err(Errno::EPERM),
    }
}

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
fn is_ours(group: i32) -> bool {
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
