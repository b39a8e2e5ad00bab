//! The command as a job of its own.
//!
//! A shell makes a group of processes of what it runs, and has the terminal listen to it (setpgid(2), tcsetpgrp(3)).
//! A launcher that leads such a group has no number inside (pid_namespaces(7)): what gives the terminal away there, as
//! gdb and shells do for what they start, could not take it back. So where the launcher is all of a shell's job, the
//! command leads a group of its own, to which the terminal listens instead; the launcher stops and goes on as that
//! does, and what the shell says to its job it passes on. One that leads its session (by `ssh -t`, in a window of tmux)
//! has no shell: no key stops anything there. In a pipe there are others in the job who use the terminal: nothing is
//! changed then.

use crate::call::sys;
use crate::{Errno, Result};

const TIOCGPGRP: usize = 0x540F;
const TIOCSPGRP: usize = 0x5410;

/// Whether this process, by its number, leads a group that has the terminal, which all of its standard streams are.
pub fn is_led(own: i32) -> bool {
    // SAFETY: takes a number.
    if unsafe { sys!(getpgid, 0) } != Ok(own as usize) {
        return false;
    }
    let mut fd = 0;
    while fd < 3 {
        if foreground(fd) != Ok(own) {
            return false;
        }
        fd += 1;
    }
    true
}

/// The group that a terminal listens to; it must be the caller's controlling one.
///
/// # Errors
/// `ENOTTY`.
pub fn foreground(terminal: i32) -> Result<i32> {
    let mut group = 0i32;
    // SAFETY: the operation fills the four bytes of `group`.
    unsafe { sys!(ioctl, terminal, TIOCGPGRP, &raw mut group) }?;
    Ok(group)
}

/// Makes a process, this one or a child that has executed nothing, a job of its own, which has the terminal. Where that
/// has been hung up, there is nothing to be had.
pub(crate) fn begin(process: i32) {
    // SAFETY: takes numbers.
    let _ = unsafe { sys!(setpgid, process, 0) };
    let _ = give(0, process);
}

/// Has a terminal listen to the caller's group again, where it listens to one of which nobody is left: of what ran
/// inside. Somebody else has been given it by the shell.
pub fn take_back(terminal: i32) {
    let Ok(group) = foreground(terminal) else { return };
    if is_left(group) {
        return;
    }
    // SAFETY: takes a number.
    let own = unsafe { sys!(getpgid, 0) };
    let _ = own.and_then(|own| give(terminal, own as i32));
}

/// Whether anybody is left of a group.
pub fn is_left(group: i32) -> bool {
    // SAFETY: takes numbers.
    unsafe { sys!(kill, -group as isize, 0) != Err(Errno::ESRCH) }
}

/// Has a terminal listen to a group of the caller's session. From the background too: the
/// signal that would stop the caller for it is held off meanwhile.
///
/// # Errors
/// `ENOTTY`, `EIO` when the terminal is hung up; `EPERM`, `ESRCH` for a group of another session or none.
pub fn give(terminal: i32, group: i32) -> Result<()> {
    const SIG_BLOCK: usize = 0;
    const SIG_SETMASK: usize = 2;
    // SIGTTOU.
    let held = 1u64 << 21;
    let mut before = 0u64;
    // SAFETY: the pointers are to eight bytes each, and to four.
    unsafe {
        sys!(rt_sigprocmask, SIG_BLOCK, &raw const held, &raw mut before, 8)?;
        let given = sys!(ioctl, terminal, TIOCSPGRP, &raw const group);
        sys!(rt_sigprocmask, SIG_SETMASK, &raw const before, 0, 8)?;
        given.map(drop)
    }
}

/// Sends a signal to all of a command's job; to the command alone where it has left that.
pub(crate) fn signal(command: i32, signal: i32) {
    // SAFETY: takes numbers.
    let sent = unsafe { sys!(kill, -command as isize, signal) };
    if sent == Err(Errno::ESRCH) {
        // SAFETY: takes numbers.
        let _ = unsafe { sys!(kill, command, signal) };
    }
}
