//! Group `startup`: the first start of a program, with nothing of it in memory.

use super::{Entry, Outcome};
use crate::bench::Bench;
use crate::cold::Files;
use crate::interleave::{Reading, Rounds, Trial, interleave};
use crate::lanes::{BARE, Lane};
use crate::model::Group;
use crate::work::find_any;
use std::ffi::OsString;
use std::path::Path;

pub const ENTRY: Entry = Entry {
    name: "startup",
    summary: "cold starts of interpreters and agents' programs, caches dropped",
    method: "`PROGRAM --version`; before each run the cached pages of every file that the program opens are \
             dropped. Dropping is not part of the time.",
    seconds: (60.0, 12.0),
    run,
};

const PROGRAMS: [&str; 7] = ["python3", "node", "git", "claude", "codex", "gemini", "opencode"];

fn run(bench: &mut Bench, group: &mut Group) -> Outcome {
    bench.main_lane()?;
    let programs: Vec<_> =
        PROGRAMS.iter().filter_map(|name| Some((*name, find_any(name)?))).collect();
    bench.progress.workloads(programs.len());
    let quick = bench.options.quick;
    let rounds = Rounds { warm_up: 1, most: if quick { 8 } else { 25 }, ..Rounds::short(bench) };
    for (name, path) in programs {
        let lanes = bench.lanes();
        cold(bench, group, (name, &path), &lanes, rounds);
        bench.progress.next();
    }
    Ok(())
}

/// Cold starts of a program.
pub fn cold(
    bench: &mut Bench,
    group: &mut Group,
    (name, path): (&str, &Path),
    lanes: &[Lane],
    rounds: Rounds,
) {
    let argv: Vec<OsString> = vec![path.into(), "--version".into()];
    let files = match Files::of(bench, &argv) {
        Ok(files) => files,
        Err(cause) => {
            group.notes.push(format!("{name}: it does not start without a sandbox: {cause}"));
            return;
        }
    };
    group.notes.push(format!("{name}: dropped {} files: {}", files.count(), files.method));
    let files = &files;
    let mut trials = Vec::new();
    for lane in lanes {
        let command = bench.command(lane, &argv, &[]);
        trials.push(Trial::new(&lane.name, BARE, move |bench| {
            let command = command.as_ref().map_err(Clone::clone)?;
            files.drop_cached();
            Ok(vec![Reading::millis("cold", bench.run(command, false)?.wall)])
        }));
    }
    interleave(bench, group, name, trials, rounds);
}
