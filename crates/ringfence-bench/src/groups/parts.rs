//! Group `parts`: what the stages before a launch cost, one by one.

use super::{Entry, Outcome};
use crate::bench::Bench;
use crate::error::{Result, error};
use crate::interleave::{Rounds, Trial, interleave};
use crate::model::{Better, Group, Measure};
use crate::work::find;
use std::ffi::OsString;

pub const ENTRY: Entry = Entry {
    name: "parts",
    summary: "the stages before a launch: parse, merge, plan, decide; times and instruction counts",
    method: "Whole commands that end at a stage, the process's own start included: `--version` is the process \
             alone, `plan` adds parsing, merging and planning, `why` one decision. Instruction counts by \
             valgrind, which hardly vary from run to run, so that a regression shows on a noisy machine too. \
             `cargo bench -p ringfence-bench` times the library functions themselves.",
    seconds: (20.0, 8.0),
    run,
};

/// The commands: a name, and the arguments.
const PARTS: [(&str, &[&str]); 4] = [
    ("process", &["--version"]),
    ("plan", &["plan", "--", "true"]),
    ("decide", &["why", "--", "read", "/etc/hostname"]),
    ("profile", &["profile", "show", "default"]),
];

fn run(bench: &mut Bench, group: &mut Group) -> Outcome {
    bench.progress.workloads(PARTS.len() + 1);
    let mut trials = Vec::new();
    let mut lines: Vec<(&str, Vec<OsString>)> = Vec::new();
    for (name, args) in PARTS {
        let command = bench.product(args)?;
        match bench.run(&command, false) {
            Ok(_) => {
                let exe = bench.exe.clone().into();
                lines.push((
                    name,
                    std::iter::once(exe).chain(args.iter().map(OsString::from)).collect(),
                ));
                let baseline = if name == "process" { "" } else { "process" };
                trials.push(Trial::wall(name, baseline, Ok(command)));
            }
            Err(cause) => group.notes.push(format!("{name} (`{}`): {cause}", args.join(" "))),
        }
    }
    let rounds = Rounds::short(bench);
    interleave(bench, group, "command", trials, rounds);
    bench.progress.next();
    for (name, line) in lines {
        match instructions(bench, &line) {
            Ok(count) => group.measures.push(Measure {
                workload: "command".into(),
                lane: name.into(),
                metric: "instructions".into(),
                unit: "instructions".into(),
                better: Better::Lower,
                baseline: String::new(),
                samples: vec![count],
                error: String::new(),
            }),
            Err(cause) => {
                group.notes.push(format!("instruction counts: {cause}"));
                break;
            }
        }
        bench.progress.next();
    }
    Ok(())
}

/// The instructions that a command executes in user space, counted by valgrind.
fn instructions(bench: &mut Bench, line: &[OsString]) -> Result<f64> {
    let valgrind = find("valgrind").ok_or_else(|| error!("`valgrind` is not installed"))?;
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
