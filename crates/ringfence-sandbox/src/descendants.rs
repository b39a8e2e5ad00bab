//! Finds and kills the descendants of a process where no PID namespace holds them together.

use ringfence_sys as sys;
use std::fs;

const SIGKILL: i32 = 9;
const SIGSTOP: i32 = 19;

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
