//! Group `connections`: many connections through the filter, and what is left of them.

use super::http::{trusting, ways};
use super::{Entry, Outcome};
use crate::background::{Background, Server};
use crate::bench::Bench;
use crate::error::{Result, error};
use crate::interleave::{Reading, Rounds, Trial, interleave};
use crate::lanes::{BARE, Lane};
use crate::model::{Better, Group, Measure};
use crate::stats;
use crate::sys::process::{Prepared, raise_open_files};
use std::ffi::OsStr;
use std::time::Duration;

pub const ENTRY: Entry = Entry {
    name: "connections",
    summary: "1,000 connections at once, bursts of 10,000, and what the launcher keeps of them",
    method: "A load generator inside, one sandbox for all rounds of a lane. `at once`: 1,000 connections live together, \
             20 requests on each. `burst`: 10,000 connections one after the other in 64 tasks, a request on each. Any \
             connection or answer that is lost fails the lane. Before each round the descriptors and the memory \
             (proportional set size) are counted that the sandbox's launcher still holds of the rounds before: in a \
             launcher that leaks they grow from sample to sample. With 6 rounds or more a lane fails in which they \
             grew from the first third of the rounds to the last (by 16 descriptors, or by half and 4 MiB).",
    seconds: (60.0, 15.0),
    run,
};

const DESCRIPTORS: &str = "descriptors held";
const MEMORY: &str = "memory held";

/// What the load generator is told: workload, order.
const LOADS: [(&str, &str); 2] =
    [("1,000 at once", "20000 1000 kept"), ("a burst of 10,000", "10000 64 fresh")];

fn run(bench: &mut Bench, group: &mut Group) -> Outcome {
    raise_open_files();
    let server = Server::start(bench)?;
    let main = bench.main_lane()?;
    let port = server.port.to_string();
    let argv = bench.tool("load", &["http", "localhost", &port, "/json"].map(OsStr::new));
    bench.progress.workloads(LOADS.len());
    for (workload, order) in LOADS {
        let bare = trusting(bench, &Lane::bare(), &argv, &[], &server);
        let mut trials = vec![loaded(BARE, order, bare)];
        for (name, options) in ways(server.port) {
            let command = trusting(bench, &main, &argv, &options, &server);
            trials.push(loaded(&format!("{}, {name}", main.name), order, command));
        }
        let rounds = Rounds { warm_up: 1, ..Rounds::long(bench) };
        let rounds = match bench.options.minutes {
            Some(minutes) => {
                let budget = Duration::from_secs_f64(minutes * 60.0 / LOADS.len() as f64);
                Rounds { most: usize::MAX, budget, ..rounds }
            }
            None => rounds,
        };
        interleave(bench, group, workload, trials, rounds);
        bench.progress.next();
    }
    group.measures.iter_mut().for_each(leaks);
    Ok(())
}

/// Rounds from which on growth is told from noise.
const JUDGED: usize = 6;

/// Makes a failure of what grows from round to round.
fn leaks(measure: &mut Measure) {
    let third = measure.samples.len() / 3;
    if measure.samples.len() < JUDGED || measure.lane == BARE {
        return;
    }
    let early = stats::quantile(&measure.samples[..third], 0.5);
    let late = stats::quantile(&measure.samples[measure.samples.len() - third..], 0.5);
    let grown = match measure.metric.as_str() {
        DESCRIPTORS => late > early + 16.0,
        MEMORY => late > early * 1.5 + 4.0,
        _ => false,
    };
    if grown {
        let (metric, unit) = (&measure.metric, &measure.unit);
        measure.error = format!("{metric} grew from {early:.1} to {late:.1} {unit}");
        measure.samples.clear();
    }
}

/// A lane whose load generator lives for all rounds.
fn loaded(lane: &str, order: &'static str, command: Result<Prepared>) -> Trial<'static> {
    let mut process: Option<Background> = None;
    Trial::new(lane, BARE, move |bench| {
        let command = command.as_ref().map_err(Clone::clone)?;
        let running = match &mut process {
            Some(running) => running,
            None => {
                let mut started = Background::start(bench, command)?;
                ready(bench, &mut started)?;
                process.insert(started)
            }
        };
        let held = held(running.pid())?;
        running.send(order)?;
        let mut printed = String::new();
        loop {
            match running.line() {
                Ok(line) if line == "done" => break,
                Ok(line) => printed.extend([&line, "\n"]),
                Err(cause) => return Err(error!("{cause}; {}", bench.last_words())),
            }
        }
        let mut readings = crate::tool::readings(printed.as_bytes())?;
        readings.extend(held);
        Ok(readings)
    })
}

fn ready(bench: &mut Bench, process: &mut Background) -> Result<()> {
    match process.line() {
        Ok(line) if line == "ready" => Ok(()),
        Ok(line) => Err(error!("the load generator said {line:?} instead of being ready")),
        Err(cause) => Err(error!("the load generator: {cause}; {}", bench.last_words())),
    }
}

/// What a process holds: descriptors, and memory.
fn held(pid: i32) -> Result<Vec<Reading>> {
    let failed = |cause: std::io::Error| error!("cannot look at process {pid}: {cause}");
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).map_err(failed)?.count();
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).map_err(failed)?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    let kib = kib.ok_or_else(|| error!("process {pid} has no proportional set size"))?;
    Ok(vec![
        Reading::new(DESCRIPTORS, "", Better::Lower, descriptors as f64),
        Reading::new(MEMORY, "MiB", Better::Lower, kib / 1024.0),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(lane: &str, metric: &str, samples: &[f64]) -> Measure {
        let mut measure = Measure {
            workload: "a burst".into(),
            lane: lane.into(),
            metric: metric.into(),
            unit: String::new(),
            better: Better::Lower,
            baseline: BARE.into(),
            samples: samples.to_vec(),
            error: String::new(),
        };
        leaks(&mut measure);
        measure
    }

    #[test]
    fn what_grows_fails_and_what_goes_up_and_down_does_not() {
        let lane = "ringfence namespace, filtered";
        let growing = series(lane, DESCRIPTORS, &[9.0, 19.0, 29.0, 39.0, 49.0, 59.0]);
        assert!(growing.error.contains("grew from 14.0 to 54.0") && growing.samples.is_empty());
        assert!(series(lane, DESCRIPTORS, &[9.0, 12.0, 9.0, 9.0, 14.0, 9.0]).error.is_empty());
        assert!(!series(lane, MEMORY, &[4.0, 5.0, 8.0, 16.0, 20.0, 25.0]).error.is_empty());
        assert!(series(lane, MEMORY, &[4.0, 5.0, 6.0, 5.0, 6.0, 6.0]).error.is_empty());
        // Too few to tell; and the load generator itself is not judged.
        assert!(series(lane, DESCRIPTORS, &[9.0, 99.0]).error.is_empty());
        assert!(series(BARE, DESCRIPTORS, &[9.0, 19.0, 29.0, 39.0, 49.0, 59.0]).error.is_empty());
    }
}
