//! What a process holds open.

use crate::PATIENCE;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

/// Each open descriptor of a process: what it is, as `/proc/PID/fd` says it.
///
/// # Panics
/// The process is not there, or not the caller's to look at.
pub fn held(pid: u32) -> Vec<PathBuf> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).expect("a process that can be looked at");
    // One that was closed meanwhile is none.
    entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok()).collect()
}

/// Waits until a process has at most so many descriptors.
///
/// # Panics
/// It goes on to have more.
#[track_caller]
pub fn lets_go(pid: u32, most: usize) {
    let since = Instant::now();
    loop {
        let now = held(pid);
        if now.len() <= most {
            return;
        }
        assert!(since.elapsed() < PATIENCE, "{} descriptors, not {most}: {now:?}", now.len());
        std::thread::yield_now();
    }
}
