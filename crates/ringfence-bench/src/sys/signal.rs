//! Signals as something to wait for, and processes to end.

pub use libc::{SIGCHLD, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM};

/// The signals that ask a bench to stop.
pub const STOPPING: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];

fn set_of(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: the set is made empty before use; sigaddset refuses bad numbers.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for &signal in signals {
            libc::sigaddset(&raw mut set, signal);
        }
        set
    }
}

/// Holds back the stopping signals and SIGCHLD, so that [`next`] receives them.
pub fn hold() {
    let mut all = STOPPING.to_vec();
    all.push(SIGCHLD);
    let set = set_of(&all);
    // SAFETY: `set` is a valid set; the old mask is not asked for.
    unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
}

/// Undoes [`hold`].
pub fn release() {
    let set = set_of(&[]);
    // SAFETY: `set` is a valid set; the old mask is not asked for.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut()) };
}

/// Waits for the next signal that [`hold`] held back.
#[must_use]
pub fn next() -> i32 {
    let mut all = STOPPING.to_vec();
    all.push(SIGCHLD);
    let set = set_of(&all);
    loop {
        // SAFETY: `set` is a valid set; no siginfo is asked for.
        let signal = unsafe { libc::sigwaitinfo(&raw const set, std::ptr::null_mut()) };
        if signal > 0 {
            return signal;
        }
    }
}

/// Sends `signal` to process `pid`.
pub fn send(pid: i32, signal: i32) {
    if pid > 0 {
        // SAFETY: a plain call on integers; never a group, never everyone.
        unsafe { libc::kill(pid, signal) };
    }
}

/// Reaps one child: its number and the code to report for it. `None` when there is no child left,
/// or, unless `block`, none that has ended.
#[must_use]
pub fn reap(block: bool) -> Option<(i32, i32)> {
    let mut status = 0;
    let flags = if block { 0 } else { libc::WNOHANG };
    // SAFETY: `status` is ours.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, flags) };
    let code = if libc::WIFSIGNALED(status) {
        128 + libc::WTERMSIG(status)
    } else {
        libc::WEXITSTATUS(status)
    };
    (pid > 0).then_some((pid, code))
}
