//! What a program begins with of signals: which it ignores, and which wait.

use super::{SignalSet, inherited};
use crate::{Result, sys};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The kernel's last signal.
const LAST: i32 = 64;
/// Signals whose action Rust's runtime and `main` change, and their bits of [`inherited`].
const CHANGED: [(i32, usize); 3] = [
    (libc::SIGPIPE, inherited::OF_PIPES),
    (libc::SIGXFSZ, inherited::OF_LIMITS),
    (libc::SIGCHLD, inherited::OF_CHILDREN),
];
const SIG_IGN: u64 = 1;

/// What a program begins with (signal(7), "Signal disposition", execve(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outset {
    /// It ignores these, and all others have their default action.
    pub ignored: SignalSet,
    /// These wait until it takes them.
    pub blocked: SignalSet,
}

impl Outset {
    /// As this process was started: it has changed none but those that Rust's runtime and `main` have
    /// ([`as_the_caller`](super::as_the_caller)), and its mask, which was this one.
    pub fn of_this_process(blocked: SignalSet) -> Outset {
        let before = ringfence_start::entry::ignored();
        let ignored = |signal: &i32| match CHANGED.iter().find(|(number, _)| number == signal) {
            Some((_, bit)) => before & bit != 0,
            None => is_ignored(*signal),
        };
        let ignored: Vec<i32> = (1..=LAST).filter(ignored).collect();
        Outset { ignored: SignalSet::of(&ignored), blocked }
    }

    /// Makes it this process's, which was started without signals that it ignores.
    ///
    /// # Errors
    /// None that a caller could cause.
    pub fn take(self) -> Result<()> {
        for signal in 1..=LAST {
            let ignored = self.ignored.has(signal);
            // SIGKILL and SIGSTOP nobody ignores.
            let same = !ignored && CHANGED.iter().all(|&(number, _)| number != signal);
            if same || matches!(signal, libc::SIGKILL | libc::SIGSTOP) {
                continue;
            }
            let handler = if ignored { SIG_IGN } else { 0 };
            let action = [handler, 0, 0, 0];
            // SAFETY: the structure has the kernel's size, and installs no handler.
            unsafe { sys!(rt_sigaction, signal, action.as_ptr(), 0, 8) }?;
        }
        super::set_mask(self.blocked).map(drop)
    }

    /// Has another program begin with it, whatever Rust's library sets for one.
    pub fn to(self, command: &mut Command) -> &mut Command {
        // SAFETY: makes system calls only, which a child of a process with threads may.
        unsafe {
            command.pre_exec(move || {
                self.take().map_err(|errno| io::Error::from_raw_os_error(errno.into_raw()))
            })
        }
    }
}

fn is_ignored(signal: i32) -> bool {
    let mut action = [0u64; 4];
    // SAFETY: room for the kernel's structure, whose first word is the handler; nothing is set.
    let asked = unsafe { sys!(rt_sigaction, signal, 0, action.as_mut_ptr(), 8) };
    asked.is_ok() && action[0] == SIG_IGN
}
