//! Supervised calls where no Landlock domain keeps signals inside: those to the caller's own group of
//! processes, `kill(0, …)`, and to the one that the command would lead without a sandbox (`kill -- -$$`).
//!
//! What is started in the sandbox is in the group that the launcher was started in, until it makes one of
//! its own, as shells do for jobs and timeout(1) does for its command. From there nobody comes back: a group
//! is named by its number, and that of the launcher's has none inside. The kernel would signal all of that
//! group, the launcher and its neighbours too. So the launcher sends the signal, to those that are inside.
//!
//! Who is in a sandbox of its own in there may not reach what is around that: it is refused.

use ringfence_sys as sys;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use sys::Errno;
use sys::notify::{self, Notification};

/// The number inside of what `run` starts; the warden is 1.
pub(crate) const FIRST: i32 = 2;
const SIGKILL: i32 = 9;
const SIGSTOP: i32 = 19;
/// `_NSIG`.
const LAST_SIGNAL: i32 = 64;
/// A kill is repeated for what was started meanwhile, not for ever.
const ROUNDS: u32 = 32;

/// A process inside that is in the launcher's group.
struct Member {
    pid: i32,
    inside: i32,
    pidfd: OwnedFd,
}

/// What becomes of a call.
enum Lot {
    /// The kernel carries it out: it reaches nobody outside.
    GoOn,
    /// Ended, with this result.
    Done(Result<(), Errno>),
}

/// Answers a call that waits: the kernel carries it out when the group that it names is none outside.
pub(crate) fn answer(listener: BorrowedFd<'_>, call: &Notification) {
    let lot = lot(listener, call).unwrap_or(Lot::Done(Err(Errno::EPERM)));
    // Gone meanwhile: nobody waits for the answer.
    let _ = match lot {
        Lot::GoOn => notify::go_on(listener, call.id),
        Lot::Done(result) => notify::finish(listener, call.id, result),
    };
}

fn lot(listener: BorrowedFd<'_>, call: &Notification) -> Option<Lot> {
    // The kernel takes the low halves.
    let (named, signal) = (call.arguments[0] as i32, call.arguments[1] as i32);
    let own = sys::process::group();
    let caller = sys::caller::process(call)?;
    let of_caller = sys::process::group_of(caller).ok()?;
    let namespace = namespace(caller)?;
    // Else all this may be another's, with the same number.
    if !notify::waits(listener, call.id) {
        return None;
    }
    if named == 0 && of_caller != own {
        return Some(Lot::GoOn);
    }
    let members = members(own, &namespace);
    if named != 0 {
        // By the first process's number: its own group, which is the launcher's if a shell made that for ringfence.
        let leads = own == std::process::id().cast_signed();
        if named != -FIRST || !leads || !members.iter().any(|member| member.inside == FIRST) {
            return Some(Lot::GoOn);
        }
    }
    if is_confined_further(caller, &namespace) {
        return None;
    }
    if !(0..=LAST_SIGNAL).contains(&signal) {
        return Some(Lot::Done(Err(Errno::EINVAL)));
    }
    if signal == 0 {
        return Some(Lot::Done(Ok(())));
    }
    signal_all(listener, call, (own, &namespace), members, caller, signal);
    Some(Lot::Done(Ok(())))
}

/// Whether a process holds more filters than another one inside: it is in a sandbox in this one, whose launcher is such
/// another one, or as good as in one. Nobody gets rid of a filter.
fn is_confined_further(caller: i32, within: &PathBuf) -> bool {
    let filters = |pid: i32| sys::process::filters(pid.cast_unsigned());
    let (Some(own), Some(callers)) = (sys::process::filters(std::process::id()), filters(caller))
    else {
        return true;
    };
    // What `run` starts has one more than its launcher.
    callers > own + 1
        && pids().any(|pid| {
            let inside = || sys::process::numbers(pid.cast_unsigned()).last() > Some(&1);
            filters(pid).is_some_and(|count| count < callers)
                && namespace(pid).as_ref() == Some(within)
                && inside()
        })
}

/// Signals each of them, and the caller last, who would otherwise not be there to wait for the answer.
fn signal_all(
    listener: BorrowedFd<'_>,
    call: &Notification,
    (group, namespace): (i32, &PathBuf),
    mut members: Vec<Member>,
    caller: i32,
    signal: i32,
) {
    let mut reached = BTreeSet::new();
    // What a handler starts is not meant; these two have none.
    let rounds = if matches!(signal, SIGKILL | SIGSTOP) { ROUNDS } else { 1 };
    let mut own = None;
    for _ in 0..rounds {
        let mut any = false;
        for member in members {
            if member.pid == caller {
                own = Some(member.pidfd);
            } else if reached.insert(member.pid) {
                any = true;
                let _ = sys::signal::send(member.pidfd.as_fd(), signal);
            }
        }
        members = if any && rounds > 1 { self::members(group, namespace) } else { Vec::new() };
    }
    let Some(own) = own else { return };
    if !deaf_while_waiting() {
        // It would be woken, and make the call again when it has handled the signal.
        let _ = notify::finish(listener, call.id, Ok(()));
    }
    let _ = sys::signal::send(own.as_fd(), signal);
}

/// Whether callers that wait are woken by signals only that kill them: the listener's flag of Linux 5.19.
fn deaf_while_waiting() -> bool {
    let release = sys::identity::kernel_release();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let mut next = || numbers.next().and_then(Result::ok).unwrap_or_default();
    (next(), next()) >= (5, 19)
}

/// The PID namespace that a process is in, as /proc names it.
fn namespace(pid: i32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok()
}

/// All processes that can be seen.
pub(crate) fn pids() -> impl Iterator<Item = i32> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Those of a group that are in a namespace, but for its PID 1, the warden.
fn members(group: i32, within: &PathBuf) -> Vec<Member> {
    pids()
        .filter(|&pid| sys::process::group_of(pid) == Ok(group))
        .filter_map(|pid| {
            // What is looked at after this is of the same process, or of none that a signal by it reaches.
            let pidfd = sys::process::pidfd(pid).ok()?;
            let is_one =
                sys::process::group_of(pid) == Ok(group) && namespace(pid).as_ref() == Some(within);
            let inside = sys::process::numbers(pid.cast_unsigned()).last()?.cast_signed();
            if !is_one || inside <= 1 {
                return None;
            }
            Some(Member { pid, inside, pidfd })
        })
        .collect()
}
