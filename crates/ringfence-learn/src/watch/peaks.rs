//! The most that a run had at once: memory, processes, open files. Looked at when a program starts
//! and when one ends, not in between.

use std::collections::BTreeSet;

/// Of more processes than these, only their number is taken.
const MOST: usize = 64;

/// The most of something, and by which program.
pub type Most = (u64, String);

/// The most that was seen at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peaks {
    /// Memory of all processes together, in bytes: the sum of what each had at its most.
    pub memory: u64,
    /// Memory of one process, in bytes.
    pub largest: Most,
    /// Processes and threads.
    pub tasks: u64,
    /// Places for open files that the kernel made for one process: it never had more open.
    pub files: Most,
    /// Processor time of all, in milliseconds.
    pub processor: u64,
    /// Bytes that all of them wrote to disks.
    pub written: u64,
}

/// What `/proc/PID/status` says (proc_pid_status(5)).
struct Status {
    process: u32,
    memory: u64,
    tasks: u64,
    files: u64,
    name: String,
}

fn status(thread: u32) -> Option<Status> {
    let text = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        Some(line?.trim())
    };
    let number = |name: &str| value(name)?.split_whitespace().next()?.parse::<u64>().ok();
    Some(Status {
        process: u32::try_from(number("Tgid")?).ok()?,
        // Of a process that has let go of its memory there is none.
        memory: number("VmHWM").unwrap_or(0) << 10,
        tasks: number("Threads").unwrap_or(1),
        files: number("FDSize").unwrap_or(0),
        name: value("Name").unwrap_or_default().to_owned(),
    })
}

/// The processes that live.
#[derive(Debug, Default)]
pub(super) struct Living {
    processes: BTreeSet<u32>,
}

impl Living {
    /// A thread starts a program, or `ends` one: takes the state of all. What a process has that is
    /// about to become another program is not that program's.
    pub fn look(&mut self, thread: u32, ends: bool, peaks: &mut Peaks) {
        let Some(own) = status(thread) else { return };
        self.processes.insert(own.process);
        let (mut memory, mut tasks) = (0, 0);
        let mut gone = Vec::new();
        for &process in self.processes.iter().take(MOST) {
            let Some(one) = status(process) else {
                gone.push(process);
                continue;
            };
            tasks += one.tasks;
            if process == own.process && !ends {
                continue;
            }
            memory += one.memory;
            let by = || one.name.clone();
            if one.memory > peaks.largest.0 {
                peaks.largest = (one.memory, by());
            }
            if one.files > peaks.files.0 {
                peaks.files = (one.files, by());
            }
        }
        for process in gone {
            self.processes.remove(&process);
        }
        tasks += self.processes.len().saturating_sub(MOST) as u64;
        peaks.memory = peaks.memory.max(memory);
        peaks.tasks = peaks.tasks.max(tasks);
    }
}

/// What the children of this very process have used so far: processor time in milliseconds, and
/// bytes written to disks.
pub(super) fn spent() -> (u64, u64) {
    /// Ticks of `/proc/PID/stat` in a second, on every architecture (`USER_HZ`).
    const TICKS: u64 = 100;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // proc_pid_stat(5): cutime and cstime are the 14th and 15th after the name in parentheses.
    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
    let ticks = after.split_whitespace().skip(13).take(2);
    let ticks: u64 = ticks.filter_map(|word| word.parse::<u64>().ok()).sum();
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let written = io.lines().find_map(|line| line.strip_prefix("write_bytes:"));
    let written = written.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    (ticks * (1000 / TICKS), written)
}

impl Peaks {
    /// What was used, and limits with room to grow; a line each. None where nothing was seen, and nothing of what was not: a
    /// process that is killed is not looked at, so that what a signal `cut` off may have used more.
    pub fn lines(&self, cut: bool) -> Vec<String> {
        if self.tasks == 0 {
            return Vec::new();
        }
        let shown = |bytes: u64| format!("{} MiB", bytes.div_ceil(1 << 20));
        let plain = |name: &str| -> String {
            name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
        };
        let twice = |number: u64, least: u64| (number * 2).next_power_of_two().max(least);
        let (mut used, mut limits) = (Vec::new(), Vec::new());
        if self.memory > 0 {
            let (memory, (largest, by)) = (shown(self.memory), &self.largest);
            let (largest, by) = (shown(*largest), plain(by));
            used.push(format!("{memory} of memory at once ({largest} of it by {by})"));
            let memory = twice(self.memory.div_ceil(1 << 20), 16);
            limits.push(format!("memory = \"{memory}MiB\""));
        }
        used.push(format!("{} processes and threads", self.tasks));
        limits.push(format!("pids = {}", twice(self.tasks, 16)));
        if self.files.0 > 0 {
            used.push(format!("{} open files (by {})", self.files.0, plain(&self.files.1)));
            limits.push(format!("open_files = {}", twice(self.files.0, 256)));
        }
        let (seconds, hundredths) = (self.processor / 1000, self.processor % 1000 / 10);
        let written = shown(self.written);
        let used = used.join(", ");
        let in_all = format!(
            "in all {seconds}.{hundredths:02} s of processor time, and {written} written to disks."
        );
        if cut {
            return vec![format!(
                "It was ended from outside, and what it had then was not looked at. Before, it used up to {used}; {in_all}"
            )];
        }
        vec![
            format!("It used at most {used}; {in_all}"),
            format!("Limits with room for twice that: {}", limits.join(", ")),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_process_is_seen() {
        let mut peaks = Peaks::default();
        let mut living = Living::default();
        // One that is gone does not count.
        living.processes.insert(u32::MAX - 1);
        let memory = vec![1_u8; 8 << 20];
        living.look(std::process::id(), false, &mut peaks);
        assert_eq!((peaks.memory, peaks.largest.0), (0, 0), "it is about to be another program");
        living.look(std::process::id(), true, &mut peaks);
        assert!(peaks.memory >= memory.len() as u64, "{peaks:?}");
        assert_eq!(peaks.memory, peaks.largest.0);
        assert!(peaks.tasks >= 1 && peaks.files.0 >= 3, "{peaks:?}");
        assert_eq!(living.processes.len(), 1);
        let lines = peaks.lines(false);
        assert!(lines[0].contains("processes and threads") && lines[1].contains("open_files"));
        assert!(Peaks::default().lines(false).is_empty());
        // One that was killed before anybody looked.
        let killed = Peaks { tasks: 3, ..Peaks::default() };
        let lines = killed.lines(false);
        assert!(
            lines[0].starts_with("It used at most 3 processes and threads; in all"),
            "{lines:?}"
        );
        assert_eq!(lines[1], "Limits with room for twice that: pids = 16");
        let cut = peaks.lines(true);
        assert!(cut.len() == 1 && cut[0].contains("Before, it used up to "), "{cut:?}");
    }
}
