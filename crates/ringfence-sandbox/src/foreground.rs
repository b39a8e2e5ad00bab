//! Supervised calls that have the terminal listen to another group of processes (`TIOCSPGRP`).
//!
//! Who has it reads what is typed, is sent its keys' signals, and told of each new size of its window. A program in the
//! background that ignores SIGTTOU would take it from the user's shell, and read what is typed for that. So it is given
//! away only where one of these groups has it: the launcher's own, one inside, one of which nobody is left (as a job
//! inside that ended). In the process tier it goes to no group outside either; in the namespace tier no number inside
//! names one.
//!
//! What is judged is the launcher's own terminal: a call of its session reaches no other one, whatever its descriptor is
//! by then. In the namespace tier the kernel carries the call out, which stops callers in the background as ever. Between
//! the look and the call the shell may have taken the terminal: that gains a program, once, which was in the foreground
//! when it asked; or in the moment in which a job of the shell's has ended, after which the shell takes it anyway.
//! Which group is meant lies in memory that may change: nothing is judged by it there.

use crate::other_group::is_ours;
use crate::plan::{CallRule, Test, Tier, Verdict};

use ringfence_sys as sys;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use sys::notify::{self, Notification};
use sys::{Errno, Sysno, caller};

const TIOCSPGRP: u32 = 0x5410;

/// What the arguments of an `ioctl` are that gives the terminal.
pub(crate) const GIVES: [(u8, Test); 1] = [(1, Test::Equals(TIOCSPGRP))];

/// Whether such a call was let.
static GIVEN: AtomicBool = AtomicBool::new(false);

/// Whether it is such a call. The kernel takes the low half.
pub(crate) fn gives(call: &Notification) -> bool {
    call.call == Sysno::ioctl.id() && call.arguments[1] as u32 == TIOCSPGRP
}

/// Whether it is the rule for it.
pub(crate) fn is_ruled_by(rule: &CallRule) -> bool {
    rule.verdict == Verdict::Supervise && rule.call == "ioctl" && rule.tests == GIVES
}

/// Answers it.
pub(crate) fn answer(listener: BorrowedFd<'_>, call: &Notification, tier: Tier) {
    let session = caller::process(call).and_then(|pid| sys::process::session_of(pid).ok());
    // Who left the launcher's session does not come back, and has no terminal but that of its own.
    let elsewhere = session.is_some_and(|session| session != sys::process::session());
    let may = if elsewhere { Ok(()) } else { may_be_given() };
    // Gone meanwhile: nobody waits for the answer.
    let _ = match may {
        Ok(()) if elsewhere || tier != Tier::Process => notify::go_on(listener, call.id),
        may => notify::finish(listener, call.id, may.and_then(|()| give(listener, call))),
    };
}

/// Whether whom the terminal listens to is one of those from whom it may be taken.
fn may_be_given() -> Result<(), Errno> {
    // Without a terminal the launcher's session has none.
    let terminal = sys::terminal::own().ok_or(Errno::ENOTTY)?;
    let group = sys::terminal::foreground(terminal.as_fd())?;
    if !is_ours(group) && sys::terminal::is_left(group) {
        return Err(Errno::EPERM);
    }
    GIVEN.store(true, Ordering::Relaxed);
    Ok(())
}

/// Gives it in the caller's place, who might name another group meanwhile; from the background too.
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

/// At the end, when nobody inside lives: where the terminal was given to a group inside, it listens to the launcher's
/// again.
pub(crate) fn take_back() {
    if GIVEN.load(Ordering::Relaxed)
        && let Some(terminal) = sys::terminal::own()
    {
        sys::terminal::take_back(terminal.as_fd());
    }
}
