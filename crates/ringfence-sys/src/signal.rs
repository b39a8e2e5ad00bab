//! Signals: blocked, waited for, sent.

mod outset;

use crate::fd::owned;
use crate::{Errno, Result, sys};
pub use outset::Outset;
use ringfence_start::inherited;
use ringfence_start::order;
pub use ringfence_start::warden::END;
use ringfence_start::warden::{ANY_STOP, GO_ON, OF_JOB, TO_JOB, VALUE, WITH_TERMINAL};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

/// A set of signals, bit `n - 1` for signal `n`, as the kernel has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalSet(u64);

impl SignalSet {
    /// No signal.
    pub const EMPTY: SignalSet = SignalSet(0);
    /// Every signal.
    pub const ALL: SignalSet = SignalSet(u64::MAX);

    /// These signals.
    pub fn of(signals: &[i32]) -> SignalSet {
        SignalSet(signals.iter().fold(0, |set, signal| set | 1 << (signal - 1)))
    }

    /// Whether a signal is one of them.
    pub fn has(self, signal: i32) -> bool {
        self.0 & SignalSet::of(&[signal]).0 != 0
    }

    /// The bits.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// A set from its bits.
    pub fn of_bits(bits: u64) -> SignalSet {
        SignalSet(bits)
    }

    /// All but these signals.
    pub fn without(self, signals: &[i32]) -> SignalSet {
        SignalSet(self.0 & !SignalSet::of(signals).0)
    }
}

/// Replaces the calling thread's mask and returns the former one.
///
/// # Errors
/// None that a caller could cause.
pub fn set_mask(set: SignalSet) -> Result<SignalSet> {
    let mut old = 0u64;
    // SAFETY: both pointers are to eight bytes, the size given.
    unsafe { sys!(rt_sigprocmask, libc::SIG_SETMASK, &raw const set.0, &raw mut old, 8) }?;
    Ok(SignalSet(old))
}

/// Blocked signals that wait to be taken, by the calling thread or any of the process, and go on waiting (sigpending(2)).
pub fn pending() -> SignalSet {
    let mut set = 0u64;
    // SAFETY: the pointer is to eight bytes, the size given.
    let _ = unsafe { sys!(rt_sigpending, &raw mut set, 8usize) };
    SignalSet(set)
}

/// A signal that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Its number.
    pub signal: i32,
    /// Sent by another process (`kill(2)`), not by the kernel (a terminal's Ctrl-C reaches the
    /// command by itself): SIGXFSZ and SIGPIPE, which are for what the receiver wrote, look as if it had sent them.
    pub by_process: bool,
    /// Sent by `kill(2)` from outside the receiver's PID namespace, or because the parent there
    /// died. A process inside cannot make it look so: the number of who calls `kill` is the
    /// kernel's, and what `sigqueue(3)` says of itself does not count. But for real-time signals, where there are
    /// so many that the kernel keeps no more of one than its number.
    pub from_outside: bool,
    /// What [`go_on`] and [`send_to_job`] say by it, and nobody else.
    pub value: Option<i32>,
}

/// After which stop a command is to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// The one with this number, as a warden counts them, and not a later one.
    Stop(u8),
    /// Any.
    Any,
}

/// What goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The command alone.
    Command,
    /// All of its job ([`ringfence_start::job`]), to which the terminal is handed where it is to have it.
    Job {
        /// It is to have it.
        terminal: bool,
    },
}

impl Arrived {
    fn new(signal: i32, code: i32, sender: i32, value: u64) -> Arrived {
        const SI_USER: i32 = 0;
        let from_outside = code == SI_USER && sender == 0;
        let queued = matches!(signal, GO_ON | TO_JOB) && code == libc::SI_QUEUE;
        let by_process = code <= 0 && sender.cast_unsigned() != std::process::id();
        Arrived {
            signal,
            by_process,
            from_outside,
            value: if queued { order::open(value) } else { None },
        }
    }
}

/// Takes one blocked signal of `set`, waiting at most `timeout` (without one, for ever).
///
/// # Errors
/// `EAGAIN` when the time ran out; `EINTR` is retried.
pub fn wait(set: SignalSet, timeout: Option<Duration>) -> Result<Arrived> {
    let time = timeout.map(|t| libc::timespec {
        tv_sec: t.as_secs() as i64,
        tv_nsec: i64::from(t.subsec_nanos()),
    });
    let limit = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    loop {
        // SAFETY: siginfo_t is plain data, for which all zeroes are valid.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the pointers are to the set, room for the answer, and an optional timespec.
        match unsafe { sys!(rt_sigtimedwait, &raw const set.0, &raw mut info, limit, 8) } {
            Ok(signal) => {
                // SAFETY: every code up to 0 comes with a number of a process; of others it is not used.
                let sender = unsafe { info.si_pid() };
                // SAFETY: plain numbers in any case; used only of a queued signal, which has one.
                let value =
                    unsafe { (&raw const info).cast::<i32>().add(VALUE).cast::<u64>().read() };
                return Ok(Arrived::new(signal as i32, info.si_code, sender, value));
            }
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// A descriptor that becomes readable when a signal of `set` (which must be blocked) arrives.
///
/// # Errors
/// `EMFILE`, `ENFILE`.
pub fn descriptor(set: SignalSet) -> Result<OwnedFd> {
    let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
    // SAFETY: the pointer is to eight bytes, the size given.
    unsafe { sys!(signalfd4, -1i32, &raw const set.0, 8, flags) }.map(owned)
}

/// Takes one signal from a [`descriptor`].
///
/// # Errors
/// `EAGAIN` when none is waiting.
pub fn take(fd: BorrowedFd<'_>) -> Result<Arrived> {
    // SAFETY: signalfd_siginfo is plain numbers, for which all zeroes are valid.
    let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::signalfd_siginfo>();
    // SAFETY: the pointer and size describe `info`.
    unsafe { sys!(read, fd.as_raw_fd(), &raw mut info, size) }?;
    let (signal, sender) = (info.ssi_signo as i32, info.ssi_pid as i32);
    Ok(Arrived::new(signal, info.ssi_code, sender, info.ssi_ptr))
}

/// `kill(2)`: 0 as signal only asks whether the process is there; -1 as pid means all that
/// may be signalled.
///
/// # Errors
/// `ESRCH`, `EPERM`.
pub fn kill(pid: i32, signal: i32) -> Result<()> {
    // SAFETY: takes numbers only.
    unsafe { sys!(kill, pid, signal) }.map(drop)
}

/// `pidfd_send_signal(2)`: cannot hit a reused number.
///
/// # Errors
/// `ESRCH` when the process is gone.
pub fn send(pidfd: BorrowedFd<'_>, signal: i32) -> Result<()> {
    let null = std::ptr::null::<u8>();
    // SAFETY: without a siginfo the kernel fills in kill(2)'s.
    unsafe { sys!(pidfd_send_signal, pidfd.as_raw_fd(), signal, null, 0) }.map(drop)
}

/// Tells a warden that its command is to go on, by a signal with a value as `sigqueue(3)` has it.
///
/// # Errors
/// `ESRCH` when the process is gone.
pub fn go_on(pidfd: BorrowedFd<'_>, after: After, who: Who) -> Result<()> {
    let after = match after {
        After::Stop(number) => i32::from(number),
        After::Any => ANY_STOP,
    };
    let who = match who {
        Who::Command => 0,
        Who::Job { terminal } => OF_JOB | if terminal { WITH_TERMINAL } else { 0 },
    };
    queue(pidfd, GO_ON, after | who)
}

/// Has a warden pass a signal (0 for none) on to its command's job, which is handed the `terminal` first.
///
/// # Errors
/// `ESRCH` when the process is gone.
pub fn send_to_job(pidfd: BorrowedFd<'_>, signal: i32, terminal: bool) -> Result<()> {
    queue(pidfd, TO_JOB, signal | if terminal { WITH_TERMINAL } else { 0 })
}

fn queue(pidfd: BorrowedFd<'_>, signal: i32, value: i32) -> Result<()> {
    // SAFETY: siginfo_t is plain data, for which all zeroes are valid.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    info.si_signo = signal;
    info.si_code = libc::SI_QUEUE;
    // SAFETY: within the structure, where the kernel has the value (siginfo_t's `_rt`).
    unsafe { (&raw mut info).cast::<i32>().add(VALUE).cast::<u64>().write(order::seal(value)) };
    let info = &raw const info;
    // SAFETY: the pointer is to a siginfo_t.
    unsafe { sys!(pidfd_send_signal, pidfd.as_raw_fd(), signal, info, 0) }.map(drop)
}

/// Gives SIGCHLD its default action: whoever started us may ignore it, and then the end of children
/// would be told to nobody (`sigaction(2)`).
pub fn hear_of_children() {
    // SAFETY: SIG_DFL installs no handler.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Has another program begin with what whoever started us had us ignore, where that is otherwise by now: SIGPIPE by Rust's
/// runtime, SIGXFSZ by [`bear_limits_of_files`], SIGCHLD by [`hear_of_children`].
pub fn as_the_caller(command: &mut Command) -> &mut Command {
    let all = inherited::OF_PIPES | inherited::OF_LIMITS | inherited::OF_CHILDREN;
    let before = inherited::of(all, ringfence_start::entry::ignored(), 0);
    // SAFETY: makes system calls only, which a child of a process with threads may.
    unsafe {
        command.pre_exec(move || {
            inherited::give_back(before)
                .map_err(|errno| io::Error::from_raw_os_error(errno.into_raw()))
        })
    }
}

/// Gives SIGPIPE its default action, as programs expect it: Rust's runtime ignores it.
pub fn end_by_broken_pipes() {
    // SAFETY: SIG_DFL installs no handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// Ignores SIGXFSZ: a write of ours past the user's limit for files (`ulimit -f`) fails then, and ends nobody.
pub fn bear_limits_of_files() {
    // SAFETY: SIG_IGN installs no handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Gives a signal its default action again and raises it: for dying of the signal that the
/// command died of, or stopping as it stopped.
pub fn raise_default(signal: i32) {
    // SAFETY: SIG_DFL installs no handler; raise and the mask change take numbers.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
    let unblocked = SignalSet::of(&[signal]).0;
    let null = std::ptr::null_mut::<u64>();
    // SAFETY: the pointer is to eight bytes, the size given; the pending signal acts here.
    let _ = unsafe { sys!(rt_sigprocmask, libc::SIG_UNBLOCK, &raw const unblocked, null, 8) };
}

/// Stops this process as SIGSTOP does, unless a SIGCONT that is blocked waits to be taken: who sent
/// it wants what it is about to go on, and the kernel drops it when a stop is raised (`signal(7)`).
/// The two calls follow each other with nothing between: a SIGCONT that comes there is lost.
pub fn stop() {
    let ourselves = std::process::id();
    if !pending().has(libc::SIGCONT) {
        // SAFETY: numbers; SIGSTOP has no action but to stop.
        let _ = unsafe { sys!(kill, ourselves, libc::SIGSTOP) };
    }
}

/// [`stop`], at most until a moment. Where no timer is to be had for that, nothing is stopped.
pub fn stop_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => {
            let _ = stop_for(moment.saturating_duration_since(Instant::now()));
        }
        None => stop(),
    }
}

/// [`stop`] that a SIGCONT ends after a time, if nobody's does before (`timer_create(2)`).
///
/// # Errors
/// `EAGAIN` at the limit of pending signals: nothing is stopped then.
fn stop_for(time: Duration) -> Result<()> {
    // SAFETY: sigevent is plain data, for which all zeroes are valid.
    let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
    event.sigev_notify = libc::SIGEV_SIGNAL;
    event.sigev_signo = libc::SIGCONT;
    let mut timer = 0i32;
    // SAFETY: the pointers are to the structure and to room for the timer's number.
    unsafe { sys!(timer_create, libc::CLOCK_MONOTONIC, &raw const event, &raw mut timer) }?;
    let spec = |time: Duration| libc::timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: i64::from(time.subsec_nanos()),
    };
    // Nought would mean never. Again and again: one that comes just before the stop is dropped.
    let first = spec(time.max(Duration::from_millis(1)));
    let times = libc::itimerspec { it_value: first, it_interval: spec(Duration::from_millis(100)) };
    let null = std::ptr::null_mut::<libc::itimerspec>();
    // SAFETY: the pointer is to the structure; the former times are not asked for.
    let set = unsafe { sys!(timer_settime, timer, 0, &raw const times, null) };
    if set.is_ok() {
        stop();
    }
    // SAFETY: takes a number.
    let _ = unsafe { sys!(timer_delete, timer) };
    set.map(drop)
}

/// The last real-time signal: ours for "the launcher died", which nobody else sends.
pub fn parent_death() -> i32 {
    libc::SIGRTMAX()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_waits_is_known_and_goes_on_waiting() {
        let (set, waits) = (SignalSet::of(&[libc::SIGUSR1]), || pending().has(libc::SIGUSR1));
        let before = set_mask(set).expect("blocked");
        assert!(!waits());
        // SAFETY: takes a number; the signal goes to this thread, which blocks it.
        unsafe { libc::raise(libc::SIGUSR1) };
        for _ in 0..2 {
            assert!(waits() && !pending().has(libc::SIGUSR2));
        }
        wait(set, Some(Duration::ZERO)).expect("it is there");
        assert!(!waits());
        set_mask(before).expect("as before");
    }
}
