//! Supervised calls of the process tier that name a process by its number, and change how it is scheduled or limited.
//!
//! There the sandbox has no numbers of its own: any process of the user's could be named. 0, the caller itself, needs
//! nobody. But libraries name the caller by its number (pthread_setschedparam(3), pthread_setaffinity_np(3)), which
//! cannot be another's while the caller waits, nor can its process's. Another thread of the caller's could end before
//! the kernel carries the call out, and all numbers be used up until its own is somebody else's: a way too long for
//! what would be won, but for limits, which could end that process.

use ringfence_sys as sys;
use std::os::fd::BorrowedFd;
use std::path::Path;
use sys::Sysno;
use sys::notify::{self, Notification};

/// Calls on a process by number, and which argument the number is; 0 means oneself.
pub(crate) const CALLS: [(&str, u8); 7] = [
    ("setpriority", 1),
    ("ioprio_set", 1),
    ("sched_setaffinity", 0),
    ("sched_setscheduler", 0),
    ("sched_setparam", 0),
    ("sched_setattr", 0),
    ("prlimit64", 0),
];

/// Which argument of a call is the number.
pub(crate) fn place(call: Option<Sysno>) -> Option<usize> {
    let name = call?.name();
    CALLS.iter().find(|(known, _)| *known == name).map(|(_, at)| usize::from(*at))
}

/// Answers a call that waits: the kernel carries it out when it names the caller.
pub(crate) fn answer(listener: BorrowedFd<'_>, call: &Notification, at: usize) {
    let limits = call.call == Sysno::prlimit64.id();
    // The kernel takes the low half.
    let own = is_own(listener, call, call.arguments[at] as u32, limits);
    // Gone meanwhile: nobody waits for the answer.
    let _ = notify::go_on_if(own, listener, call.id);
}

fn is_own(listener: BorrowedFd<'_>, call: &Notification, named: u32, limits: bool) -> bool {
    if named == 0 || named == call.thread {
        return true;
    }
    let Some(process) = sys::caller::process(call) else { return false };
    let beside = || !limits && Path::new(&format!("/proc/{process}/task/{named}")).exists();
    // Else all this may be of another one with the same number.
    (process.cast_unsigned() == named || beside()) && notify::waits(listener, call.id)
}
