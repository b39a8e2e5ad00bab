//! Commands that can be stopped. What stops a program by a signal that it may handle (SIGTSTP, SIGTTIN, SIGTTOU) does nothing
//! to a process group whose processes' parents are all in other sessions (setpgid(2), "orphaned"), nor to one whose parents
//! are the first process: a command's group is both.

use super::boot;
use ringfence_sys::process::{self, Forked, Namespaces};
use ringfence_sys::signal::{self, SignalSet};
use rustix::fs::{Mode, OFlags};
use rustix::process::Pid;
use std::os::fd::AsFd;

const SIGSTOP: i32 = 19;
/// SIGTSTP, SIGTTIN, SIGTTOU
const STOPS: [i32; 3] = [20, 21, 22];

/// Has a process join the caller's group, a session's first, whose parent is another one of this session: what a terminal's
/// keys and the program itself say stops it then. Both hear no signal, are nobody's that the command could wait for, and
/// end with it. Without them (a limit is reached) it cannot be stopped so.
pub fn accompany() {
    let own = rustix::process::getpid();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // They are none of the command's.
    let outside = rustix::fs::open(boot::GROUPS, flags, Mode::empty()).ok();
    let Ok((ready, hold)) = ringfence_sys::fd::pipe() else { return };
    match process::fork_into(Namespaces::NONE, outside.as_ref().map(AsFd::as_fd)) {
        Ok(Forked::Child) => {
            let _ = signal::set_mask(SignalSet::ALL);
            parent(own);
            process::exit_now(0)
        }
        Ok(Forked::Parent(..)) => {
            drop(hold);
            while process::wait_any(true).is_ok() {}
            // Both have let go of it when they stand where they belong.
            let _ = rustix::io::read(&ready, &mut [0; 1][..]);
        }
        Err(_) => {}
    }
}

/// Forks the parent, which is a child of the first process as soon as the caller ends.
fn parent(own: Pid) {
    let number = own.as_raw_nonzero().get();
    if !matches!(process::fork_into(Namespaces::NONE, None), Ok(Forked::Child)) {
        return;
    }
    let apart = rustix::process::setpgid(None, None).is_ok();
    match process::fork_into(Namespaces::NONE, None) {
        Ok(Forked::Child) if apart => {
            let _ = rustix::process::setpgid(None, Some(own));
            process::linger(number)
        }
        Ok(Forked::Parent(..)) => process::linger(number),
        _ => {}
    }
}

/// What is sent to a command without such a companion, so that it does what was meant.
pub fn meant(number: i32, status: &str) -> i32 {
    let set = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or_default()
    };
    let own = (set("SigIgn:") | set("SigCgt:") | set("SigBlk:")) >> (number - 1) & 1 == 1;
    if STOPS.contains(&number) && !own { SIGSTOP } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_that_a_program_does_not_handle_is_one() {
        let status = |name: &str| format!("State:\tS (sleeping)\n{name}:\t0000000000080000\n");
        for name in ["SigIgn", "SigCgt", "SigBlk"] {
            assert_eq!(meant(20, &status(name)), 20, "{name}");
            assert_eq!(meant(21, &status(name)), SIGSTOP, "{name}");
        }
        assert_eq!((meant(20, ""), meant(22, ""), meant(15, ""), meant(18, "")), (19, 19, 15, 18));
    }
}
