//! Finds and kills the descendants of a process where no PID namespace holds them together.

use ringfence_sys as sys;
use std::fs;
use std::time::Duration;
use sys::process::Change;
use sys::signal::SignalSet;

const SIGKILL: i32 = 9;
const SIGCHLD: i32 = 17;
const SIGSTOP: i32 = 19;

/// How long an end is waited for before they are looked for again.
const PATIENCE: Duration = Duration::from_millis(100);
/// So often in a row in vain; what is killed and still there by then hangs in the kernel, or is another's to trace, and
/// does nothing any more that we could wait for.
const MOST_IN_VAIN: usize = 100;

/// Children of a process, over all its threads (`/proc/PID/task/TID/children`, Linux 3.5).
fn children(pid: i32) -> Vec<i32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists =
        tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| {
            list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()
        })
        .collect()
}

/// Stops, then kills all that descends from `pid` now, but not `pid` itself. Stopping first
/// keeps a process from starting another one behind our back. Returns whether there was any.
pub(crate) fn kill_all(pid: i32) -> bool {
    let mut found = Vec::new();
    let mut open = children(pid);
    while let Some(child) = open.pop() {
        let _ = sys::signal::kill(child, SIGSTOP);
        open.extend(children(child));
        found.push(child);
    }
    for child in &found {
        let _ = sys::signal::kill(*child, SIGKILL);
    }
    !found.is_empty()
}

/// Ends all descendants of the caller, which is a subreaper and blocks SIGCHLD: those that were orphaned, in sessions of
/// their own too, are its children by now, or become so when their parents die.
pub(crate) fn end_all() {
    end_by(|| kill_all(std::process::id() as i32), ends_come);
}

/// Kills and waits by turns, until there is nobody or nobody ends. One that was orphaned while they were looked for is
/// on no list that was read: only another look finds it, so no wait may be for all of them.
fn end_by(mut kill: impl FnMut() -> bool, mut ends_come: impl FnMut() -> bool) {
    let mut in_vain = 0;
    while in_vain < MOST_IN_VAIN && kill() {
        in_vain = if ends_come() { 0 } else { in_vain + 1 };
    }
}

/// Waits for a moment for ends, and takes them; whether anything came.
fn ends_come() -> bool {
    let mut came = sys::signal::wait(SignalSet::of(&[SIGCHLD]), Some(PATIENCE)).is_ok();
    while let Ok(Some((_, change))) = sys::process::wait_any(false) {
        came |= matches!(change, Change::Exited(_) | Change::Killed(_));
    }
    came
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn one_that_was_missed_is_killed_in_the_next_round() {
        // Of three, a look finds all but the last one that is left, as one that is orphaned meanwhile.
        let (left, killed, waits) = (Cell::new(3), Cell::new(0), Cell::new(0));
        let looks = Cell::new(0);
        let kill = || {
            looks.set(looks.get() + 1);
            killed.set(if looks.get() == 1 { 2 } else { left.get() });
            left.get() > 0
        };
        let ends_come = || {
            waits.set(waits.get() + 1);
            assert!(waits.get() < 1000, "waits for one that nobody killed");
            let ended = killed.replace(0).min(1);
            left.set(left.get() - ended);
            ended > 0
        };
        end_by(kill, ends_come);
        assert_eq!((left.get(), waits.get()), (0, 3));
    }

    #[test]
    fn who_does_not_end_is_not_waited_for_for_ever() {
        let waits = Cell::new(0);
        end_by(
            || true,
            || {
                waits.set(waits.get() + 1);
                assert!(waits.get() < 1000, "waits for one that does not end");
                // One ends at first, which begins the patience anew.
                waits.get() == 50
            },
        );
        assert_eq!(waits.get(), 50 + MOST_IN_VAIN);
    }
}
