//! Group `scale`: many sandboxes.

use super::{Entry, Outcome};
use crate::background::Holder;
use crate::bench::Bench;
use crate::error::{Result, error};
use crate::interleave::{Reading, Rounds, Trial, interleave};
use crate::lanes::{BARE, Kind, Lane};
use crate::model::{Better, Group, Measure};
use crate::sys::process::{Child, Ended, Prepared, Stdio, allowed_cpus, pin, raise_open_files};
use crate::work::find;
use std::ffi::OsString;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub const ENTRY: Entry = Entry {
    name: "scale",
    summary: "launches per second; start, memory and exec latency of 10, 100, 1,000 live sandboxes",
    method: "Launches: as many `true`s, one after the other on each processor, as end within the burst. Live \
             sandboxes hold a process that does nothing; the memory is the proportional set size (PSS) of the \
             sandbox's processes, that of the held process included (see its own in the unsandboxed lane).",
    seconds: (90.0, 15.0),
    run,
};

/// How long starting one level of live sandboxes may take.
const PATIENCE: Duration = Duration::from_secs(60);

fn run(bench: &mut Bench, group: &mut Group) -> Outcome {
    let main = bench.main_lane()?;
    let quick = bench.options.quick;
    let levels: &[usize] = if quick { &[10, 50] } else { &[10, 100, 1000] };
    let mut lanes = vec![Lane::bare(), main.clone()];
    lanes.extend(bench.peers.iter().filter(|lane| lane.name == "bwrap").cloned());
    bench.progress.workloads(2 + levels.len() * lanes.len());
    let cpus = allowed_cpus();
    for (name, cpus) in [("one processor", &cpus[..1]), ("all processors", &cpus[..])] {
        launches(bench, group, name, cpus)?;
        bench.progress.next();
    }
    raise_open_files();
    for &level in levels {
        for lane in &lanes {
            live(bench, group, lane, level);
            bench.progress.next();
        }
    }
    Ok(())
}

/// Launches as fast as they go.
fn launches(bench: &mut Bench, group: &mut Group, name: &str, cpus: &[usize]) -> Result<()> {
    let Some(program) = find("true") else { return Ok(()) };
    let argv: Vec<OsString> = vec![program.into()];
    let burst = Duration::from_millis(if bench.options.quick { 300 } else { 1000 });
    let mut trials = Vec::new();
    for lane in bench.lanes() {
        let commands: Result<Vec<Prepared>> =
            cpus.iter().map(|_| bench.command(&lane, &argv, &[])).collect();
        trials.push(Trial::new(&lane.name, BARE, move |bench| {
            let commands = commands.as_ref().map_err(Clone::clone)?;
            let rate = burst_of(bench, commands, cpus, burst)?;
            Ok(vec![Reading::new("launches", "1/s", Better::Higher, rate)])
        }));
    }
    let rounds = Rounds { warm_up: 0, ..Rounds::long(bench) };
    interleave(bench, group, &format!("launches, {name}"), trials, rounds);
    Ok(())
}

/// Starts a command over and over on each of `cpus` at once: how many ended in a second.
fn burst_of(bench: &Bench, commands: &[Prepared], cpus: &[usize], burst: Duration) -> Result<f64> {
    let null = bench.null();
    let stdio = Stdio { stdin: null, stdout: null, stderr: bench.error_file(), extra: None };
    let done = AtomicUsize::new(0);
    let began = Instant::now();
    let worker = |cpu: usize, command: &Prepared| -> std::io::Result<bool> {
        pin(&[cpu])?;
        while began.elapsed() < burst {
            let ended = Child::start(command, &stdio)?.wait(Some(PATIENCE))?;
            if ended != Some(Ended::Code(0)) {
                return Ok(false);
            }
            done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(true)
    };
    let worker = &worker;
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = cpus
            .iter()
            .zip(commands)
            .map(|(&cpu, command)| scope.spawn(move || worker(cpu, command)))
            .collect();
        threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    });
    let rate = done.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64();
    if results.iter().all(|result| matches!(result, Ok(Ok(true)))) {
        Ok(rate)
    } else {
        Err(error!("a launch failed when {} ran at once", cpus.len()))
    }
}

/// Starts `count` sandboxes, measures them while they all live, and ends them.
fn live(bench: &mut Bench, group: &mut Group, lane: &Lane, count: usize) {
    let workload = format!("{count} live");
    let baseline = if lane.name == BARE { "" } else { BARE };
    let mut add = |metric: &str, unit: &str, samples: Vec<f64>, error: String| {
        let (lane, baseline) = (lane.name.clone(), baseline.to_owned());
        let (workload, metric, unit) = (workload.clone(), metric.to_owned(), unit.to_owned());
        let better = Better::Lower;
        group.measures.push(Measure {
            workload,
            lane,
            metric,
            unit,
            better,
            baseline,
            samples,
            error,
        });
    };
    let (mut holders, mut starts) = (Vec::new(), Vec::new());
    let session = format!("live{}", std::process::id());
    let began = Instant::now();
    for number in 0..count {
        bench.progress.show(&format!("{workload} · {} · {number}", lane.name));
        bench.progress.within(number as f64 / count as f64);
        let one = Instant::now();
        let options: &[&str] =
            if number == 0 && lane.is_ringfence() { &["--name", &session] } else { &[] };
        let started = if began.elapsed() > PATIENCE {
            Err(error!("only {number} of {count} started within {} s", PATIENCE.as_secs()))
        } else {
            Holder::start(bench, lane, options)
        };
        match started {
            Ok(holder) => holders.push(holder),
            Err(cause) => {
                add("start of one", "ms", Vec::new(), cause.to_string());
                return;
            }
        }
        starts.push((one.elapsed().as_nanos() as f64 / 1e3).round() / 1e3);
    }
    add("start of one", "ms", starts, String::new());
    let memory: Vec<f64> = holders.iter().take(50).map(|holder| memory_of(holder.pid())).collect();
    add("memory of one", "KiB", memory, String::new());
    if lane.is_ringfence() {
        let launcher = holders.iter().take(50).map(|holder| pss(holder.pid())).collect();
        add("memory of one launcher", "KiB", launcher, String::new());
    }
    match exec_while(bench, lane, &session) {
        Some(Ok(samples)) => add("exec meanwhile", "ms", samples, String::new()),
        Some(Err(cause)) => add("exec meanwhile", "ms", Vec::new(), cause.to_string()),
        None => {}
    }
}

/// How long one more command takes in the first of the live sandboxes (or beside them, unsandboxed).
fn exec_while(bench: &mut Bench, lane: &Lane, session: &str) -> Option<Result<Vec<f64>>> {
    let program: OsString = find("true")?.into();
    let command = match &lane.kind {
        Kind::Bare => bench.plain(&[program]),
        Kind::Ringfence { exe, .. } if bench.has("exec").is_ok() => {
            bench.plain(&[exe.into(), "exec".into(), session.into(), "--".into(), program])
        }
        _ => return None,
    };
    let sample = |bench: &mut Bench| -> Result<Vec<f64>> {
        let command = command?;
        (0..20)
            .map(|_| Ok((bench.run(&command, false)?.wall.as_nanos() as f64 / 1e3).round() / 1e3))
            .collect()
    };
    Some(sample(bench))
}

/// The memory of a process and all below it, in KiB.
fn memory_of(pid: i32) -> f64 {
    let below = crate::guard::descendants_of(pid);
    below.into_iter().chain([pid]).map(pss).sum()
}

/// The proportional set size of one process, in KiB.
fn pss(pid: i32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0.0)
}
