//! The facts of the machine, and whether it is a fit place to measure.

use crate::model::Host;
use crate::stats;
use crate::sys::process;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Above this load per processor, other work disturbs the measurement.
const BUSY: f64 = 0.5;

/// Gathers the facts; `workspace` says which file system is measured on.
#[must_use]
pub fn facts(workspace: &Path) -> Host {
    let cpuinfo = read("/proc/cpuinfo");
    let kernel = |name| read(&format!("/proc/sys/kernel/{name}"));
    Host {
        os: os_name(&read("/etc/os-release")),
        kernel: kernel("osrelease"),
        arch: std::env::consts::ARCH.into(),
        cpu: cpu_model(&cpuinfo),
        cpus: process::allowed_cpus().len(),
        memory_mib: field(&read("/proc/meminfo"), "MemTotal:") / 1024,
        load: read("/proc/loadavg")
            .split(' ')
            .next()
            .and_then(|load| load.parse().ok())
            .unwrap_or(0.0),
        other_work: 0.0,
        governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        virtualised: virtualised(&cpuinfo),
        clock: read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        clock_noise_ns: clock_noise(),
        filesystem: filesystem(workspace, &read("/proc/self/mountinfo")),
        perf: perf_works(&kernel("perf_event_paranoid")),
        uid: process::user(),
    }
}

/// What makes the numbers of this machine less sure, as sentences with the remedy.
#[must_use]
pub fn warnings(host: &Host) -> Vec<String> {
    let mut found = Vec::new();
    let busy = host.load / host.cpus.max(1) as f64;
    if busy > BUSY {
        found.push(format!(
            "the machine is busy (load {:.2} on {} processors): stop other work, or trust ratios only",
            host.load, host.cpus
        ));
    }
    if host.cpus < 2 {
        found.push("there is one processor: a supervisor and what it supervises take turns".into());
    }
    if !host.governor.is_empty() && host.governor != "performance" {
        found.push(format!(
            "the frequency governor is `{}`: `cpupower frequency-set -g performance` steadies times",
            host.governor
        ));
    }
    if !host.virtualised.is_empty() {
        found.push(format!(
            "this runs under {}: system calls and page faults cost more than on bare metal, and \
             neighbours disturb",
            host.virtualised
        ));
    }
    if !host.perf {
        found.push("hardware counters cannot be read: group `profile` leaves them out".into());
    }
    found
}

/// Whether a warning is grave enough for `--strict` to refuse the run.
#[must_use]
pub fn unfit(host: &Host) -> bool {
    host.load / host.cpus.max(1) as f64 > BUSY || host.cpus < 2
}

/// Looks for other work: the share of the processors that is busy while the bench itself does nothing.
#[derive(Default)]
pub struct Lookout {
    busy: u64,
    all: u64,
}

/// How long one look takes. The kernel counts in steps of 10 ms on each processor.
const LOOK: Duration = Duration::from_millis(100);
/// Above this share, the result is marked as disturbed.
pub const DISTURBED: f64 = 0.15;

impl Lookout {
    /// Takes one look.
    pub fn look(&mut self) {
        let before = processor_time();
        std::thread::sleep(LOOK); // this is the measurement, not a wait for something
        let after = processor_time();
        self.busy += after.0.saturating_sub(before.0);
        self.all += after.1.saturating_sub(before.1);
    }

    /// The share seen in all looks so far.
    #[must_use]
    pub fn share(&self) -> f64 {
        let share = self.busy as f64 / self.all.max(1) as f64;
        (share * 1000.0).round() / 1000.0
    }
}

/// The busy and the whole time of all processors, in the kernel's ticks.
fn processor_time() -> (u64, u64) {
    let stat = read("/proc/stat");
    let fields: Vec<u64> = stat
        .lines()
        .next()
        .map_or("", |line| line)
        .split_whitespace()
        .flat_map(str::parse)
        .collect();
    let all = fields.iter().take(8).sum();
    let idle: u64 = fields.iter().skip(3).take(2).sum(); // idle, and idle waiting for a disk
    (all - idle, all)
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim_end().to_owned()
}

fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn os_name(release: &str) -> String {
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.unwrap_or("Linux").trim_matches('"').to_owned()
}

fn cpu_model(cpuinfo: &str) -> String {
    let line = cpuinfo
        .lines()
        .find(|line| ["model name", "Model", "Hardware"].iter().any(|name| line.starts_with(name)));
    line.and_then(|line| line.split_once(':')).map_or("unknown", |(_, name)| name.trim()).to_owned()
}

fn virtualised(cpuinfo: &str) -> String {
    let flag = cpuinfo.lines().any(|line| {
        line.starts_with("flags") && line.split_whitespace().any(|flag| flag == "hypervisor")
    });
    let product = read("/sys/class/dmi/id/sys_vendor");
    let container =
        ["/.dockerenv", "/run/.containerenv"].iter().any(|path| Path::new(path).exists());
    match (flag, container) {
        (true, true) => "a container on a hypervisor".into(),
        (true, false) if product.is_empty() => "a hypervisor".into(),
        (true, false) => format!("a hypervisor ({product})"),
        (false, true) => "a container".into(),
        (false, false) => String::new(),
    }
}

/// The 99th percentile of the distance between two readings of the clock.
fn clock_noise() -> f64 {
    let mut distances = Vec::with_capacity(10_000);
    for _ in 0..10_000 {
        let before = Instant::now();
        distances.push(before.elapsed().as_nanos() as f64);
    }
    stats::quantile(&distances, 0.99).max(process::clock_resolution_ns() as f64)
}

/// The type of the file system that holds `path`, by the longest mount point that it lies below.
fn filesystem(path: &Path, mountinfo: &str) -> String {
    let mut best = (0, String::from("unknown"));
    for line in mountinfo.lines() {
        let Some((mount, rest)) = line.split_once(" - ") else { continue };
        let Some(point) = mount.split(' ').nth(4) else { continue };
        let kind = rest.split(' ').next().unwrap_or_default();
        if path.starts_with(point) && point.len() >= best.0 {
            best = (point.len(), kind.to_owned());
        }
    }
    best.1
}

/// Whether counters may be read (by the paranoia level) and exist (a virtual machine often has none).
fn perf_works(paranoid: &str) -> bool {
    let allowed = paranoid.parse::<i32>().is_ok_and(|level| level <= 2 || process::user() == 0);
    allowed && Path::new("/sys/bus/event_source/devices/cpu").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_mount_names_the_file_system() {
        let info = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:5 / /home rw shared:1 - btrfs x rw\n";
        assert_eq!(filesystem(Path::new("/home/me"), info), "btrfs");
        assert_eq!(filesystem(Path::new("/srv"), info), "ext4");
    }

    #[test]
    fn a_busy_single_processor_is_unfit_and_says_why() {
        let host = Host { cpus: 1, load: 3.0, perf: true, ..Host::default() };
        assert!(unfit(&host));
        let warnings = warnings(&host);
        assert!(warnings.iter().any(|text| text.contains("busy")), "{warnings:?}");
        assert!(warnings.iter().any(|text| text.contains("one processor")), "{warnings:?}");
    }

    #[test]
    fn the_kernels_count_of_busy_time_is_part_of_the_whole() {
        let (busy, all) = processor_time();
        assert!(busy <= all && all > 0);
    }

    #[test]
    fn a_quiet_machine_draws_no_warning() {
        let governor = "performance".to_owned();
        let host = Host { cpus: 8, load: 0.1, perf: true, governor, ..Host::default() };
        assert!(!unfit(&host) && warnings(&host).is_empty());
    }
}
