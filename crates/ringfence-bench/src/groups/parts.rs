//! Group `parts`: what the stages before a launch cost, one by one.

use super::{Entry, Outcome};
use crate::bench::Bench;
use crate::error::{Result, error};
use crate::interleave::{Reading, Rounds, Trial, interleave};
use crate::library;
use crate::model::{Better, Group, Measure};
use crate::work::find_any;
use std::ffi::OsString;
use std::time::{Duration, Instant};

pub const ENTRY: Entry = Entry {
    name: "parts",
    summary: "the stages before a launch: parse, merge, plan, decide; times and instruction counts",
    method: "The library's functions, called in a loop in this process, each sample at least 200 µs long; and \
             whole commands that end before a launch, their process's start included. Instructions are \
             counted by valgrind, as the difference between two processes: they hardly vary, so that a \
             regression shows on a noisy machine too. `cargo bench -p ringfence-bench` times the same \
             functions with criterion.",
    seconds: (20.0, 8.0),
    run,
};

/// The commands: a name, and the arguments.
const COMMANDS: [(&str, &[&str]); 4] = [
    ("process", &["version"]),
    ("plan", &["plan", "--", "true"]),
    ("decide", &["why", "--", "read", "/etc/hostname"]),
    ("profile", &["profile", "list"]),
];

/// How many calls the difference of two instruction counts is divided by.
const CALLS: u32 = 20;
/// How long one sample of a function takes, at least: many times the clock's noise.
const SAMPLE: Duration = Duration::from_micros(200);

fn run(bench: &mut Bench, group: &mut Group) -> Outcome {
    bench.progress.workloads(4);
    functions(bench, group)?;
    bench.progress.next();
    commands(bench, group)?;
    bench.progress.next();
    if let Err(cause) = function_counts(bench, group) {
        group.notes.push(format!("instruction counts: {cause}"));
    }
    Ok(())
}

/// Times the library's functions in this process.
fn functions(bench: &mut Bench, group: &mut Group) -> Result<()> {
    let mut rounds = Rounds::short(bench);
    (rounds.most, rounds.budget) =
        (200, Duration::from_secs(if bench.options.quick { 1 } else { 4 }));
    for mut part in library::parts(&bench.work.space)? {
        let began = Instant::now();
        (part.run)();
        let once = began.elapsed().max(Duration::from_nanos(1));
        let calls =
            u32::try_from(SAMPLE.as_nanos() / once.as_nanos()).unwrap_or(1).clamp(1, 100_000);
        let name = part.name;
        let trial = Trial::new("library", "", move |_| {
            let began = Instant::now();
            for _ in 0..calls {
                (part.run)();
            }
            let time = began.elapsed().as_nanos() as f64 / 1e3 / f64::from(calls);
            Ok(vec![Reading::new("time", "µs", Better::Lower, time)])
        });
        interleave(bench, group, name, vec![trial], rounds);
    }
    Ok(())
}

/// Times whole commands that end before a launch.
fn commands(bench: &mut Bench, group: &mut Group) -> Result<()> {
    let mut trials = Vec::new();
    for (name, args) in COMMANDS {
        let command = bench.product(args)?;
        match bench.run(&command, false) {
            Ok(_) => {
                let baseline = if name == "process" { "" } else { "process" };
                trials.push(Trial::wall(name, baseline, Ok(command)));
            }
            Err(cause) => group.notes.push(format!("{name} (`{}`): {cause}", args.join(" "))),
        }
    }
    let rounds = Rounds::short(bench);
    interleave(bench, group, "whole command", trials, rounds);
    Ok(())
}

/// Counts the instructions of each function: those of a process that calls it some times more, less
/// those of one that doesn't.
fn function_counts(bench: &mut Bench, group: &mut Group) -> Result<()> {
    for (place, part) in library::parts(&bench.work.space)?.iter().enumerate() {
        bench.progress.show(&format!("instructions · {}", part.name));
        let mut count = |calls: u32| {
            let (place, calls) = (place.to_string(), calls.to_string());
            let line = bench.tool("part", &[place.as_ref(), calls.as_ref()]);
            instructions(bench, &line)
        };
        let each = (count(1 + CALLS)? - count(1)?) / f64::from(CALLS);
        group.measures.push(Measure {
            workload: part.name.into(),
            lane: "library".into(),
            metric: "instructions".into(),
            unit: "instructions".into(),
            better: Better::Lower,
            baseline: String::new(),
            samples: vec![each.max(0.0).round()],
            error: String::new(),
        });
    }
    Ok(())
}

/// The instructions that a command executes in user space, counted by valgrind.
fn instructions(bench: &mut Bench, line: &[OsString]) -> Result<f64> {
    let valgrind = find_any("valgrind").ok_or_else(|| error!("`valgrind` is not installed"))?;
    let log = bench.work.root.join("valgrind.log");
    let mut whole: Vec<OsString> = vec![valgrind.into()];
    whole.extend(["--tool=cachegrind", "--cache-sim=no"].map(OsString::from));
    whole.push("--cachegrind-out-file=/dev/null".into());
    let mut log_option = OsString::from("--log-file=");
    log_option.push(&log);
    whole.push(log_option);
    whole.extend(line.iter().cloned());
    let command = bench.plain(&whole)?;
    bench.run(&command, false)?;
    let text = std::fs::read_to_string(&log).unwrap_or_default();
    total(&text).ok_or_else(|| error!("valgrind gave no count"))
}

/// The total of cachegrind's summary: `==1== I   refs:      1,234`, or `I refs:`.
fn total(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.contains("refs:") && line.contains(" I"))?;
    line.rsplit(':').next()?.trim().replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_count_of_cachegrind_is_found() {
        assert_eq!(super::total("==12== \n==12== I   refs:      1,234,567\n"), Some(1_234_567.0));
        assert_eq!(super::total("==12== nothing\n"), None);
    }
}
