//! Limits of the guest's own, and whether they were reached: the host cannot see that.

use crate::wire::Limit;
use rustix::fs::{Mode, OFlags, SeekFrom};
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Counts what the kernel has ended for lack of memory.
const COUNTS: &str = "/proc/vmstat";
const ENDED: &str = "oom_kill ";
/// Counts the processes that were refused.
const REFUSED: &str = "/cgroup/run/pids.events";

/// What is watched for limits.
pub struct Limits {
    /// The kernel's messages. It has one whenever it has ended something for lack of memory: until then nobody counts.
    log: Option<OwnedFd>,
    ended: u64,
    processes: bool,
}

impl Limits {
    /// As they are now.
    pub fn new() -> Limits {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let log = rustix::fs::open("/dev/kmsg", flags, Mode::empty()).ok();
        let limits = Limits { log, ended: ended(), processes: false };
        limits.heard();
        limits
    }

    /// What to watch.
    pub fn watched(&self) -> Option<BorrowedFd<'_>> {
        self.log.as_ref().map(AsFd::as_fd)
    }

    /// All messages until now count as read.
    fn heard(&self) {
        if let Some(log) = &self.log {
            let _ = rustix::fs::seek(log, SeekFrom::End(0));
        }
    }

    /// Which of these were reached since they were looked at last; that of processes is said once.
    pub fn reached(&mut self, memory: bool, processes: bool) -> Vec<Limit> {
        let mut reached = Vec::new();
        if memory {
            // In this order: what is ended meanwhile makes a message that is not heard yet.
            self.heard();
            let before = std::mem::replace(&mut self.ended, ended());
            let more = self.ended.saturating_sub(before);
            let more = u32::try_from(more).unwrap_or(u32::MAX);
            reached.extend((more > 0).then_some(Limit::Memory(more)));
        }
        if processes && !self.processes && count(REFUSED, "max ") > 0 {
            self.processes = true;
            reached.push(Limit::Processes);
        }
        reached
    }
}

fn ended() -> u64 {
    count(COUNTS, ENDED)
}

/// A number that a line of the kernel's has after its name.
fn count(path: &str, name: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or_default()
}
