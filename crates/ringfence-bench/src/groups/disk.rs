//! Group `disk`: reading and writing in the workspace, inside and outside.

use super::{Entry, Outcome};
use crate::bench::Bench;
use crate::interleave::{Rounds, Trial, interleave};
use crate::lanes::{BARE, Lane};
use crate::model::Group;
use std::ffi::{OsStr, OsString};

pub const ENTRY: Entry = Entry {
    name: "disk",
    summary: "1 MiB sequential and 4K random reads and writes in the workspace",
    method: "One real file in the workspace, filled with random bytes, never zeros. Sequential: blocks of \
             1 MiB, one fdatasync at the end of the write. Random: 4 KiB at places that were written; \
             `+ fdatasync` waits for the device after each write. Cold reads follow a drop of that file's \
             cached pages (posix_fadvise). The same program runs in every lane.",
    seconds: (60.0, 12.0),
    run,
};

fn run(bench: &mut Bench, group: &mut Group) -> Outcome {
    bench.main_lane()?;
    let (size, ops) = if bench.options.quick { ("32", "1000") } else { ("256", "10000") };
    let argv = bench.tool("disk", &[".", size, ops, "1024"].map(OsStr::new));
    let rounds = Rounds::long(bench);
    in_every_lane(bench, group, "workspace", &argv, rounds);
    Ok(())
}

/// Runs a tool that prints readings in the bare lane, ringfence's and the peers'.
pub fn in_every_lane(
    bench: &mut Bench,
    group: &mut Group,
    workload: &str,
    argv: &[OsString],
    rounds: Rounds,
) {
    let lanes = bench.lanes();
    let trials = lanes.iter().map(|lane| readings_of(bench, lane, argv, &[])).collect();
    interleave(bench, group, workload, trials, rounds);
}

/// A trial whose readings are those that a tool prints.
pub fn readings_of(
    bench: &Bench,
    lane: &Lane,
    argv: &[OsString],
    options: &[&str],
) -> Trial<'static> {
    let command = bench.command(lane, argv, options);
    Trial::new(&lane.name, BARE, move |bench| {
        let command = command.as_ref().map_err(Clone::clone)?;
        crate::tool::readings(&bench.run(command, true)?.stdout)
    })
}
