//! Group `storage`: how the places where programs write compare, inside and outside.

use super::disk::readings_of;
use super::{Entry, Outcome};
use crate::bench::Bench;
use crate::interleave::{Rounds, interleave};
use crate::model::{Group, Table};
use std::ffi::OsStr;

pub const ENTRY: Entry = Entry {
    name: "storage",
    summary: "every place a program writes to, by block size, with latencies",
    method: "As `disk`, in the workspace, /tmp, /var/tmp, /dev/shm and the home directory as each lane shows \
             them, with blocks of 4 KiB, 64 KiB and 1 MiB and 2,000 random operations. A sandbox's private \
             /tmp is often memory where the host's is a disk: this is where that shows.",
    seconds: (90.0, 15.0),
    run,
};

fn run(bench: &mut Bench, group: &mut Group) -> Outcome {
    bench.main_lane()?;
    let quick = bench.options.quick;
    let home = std::env::var("HOME").unwrap_or_default();
    let mut places = vec![("workspace", "."), ("/tmp", "/tmp"), ("/dev/shm", "/dev/shm")];
    if !quick {
        places.extend([("/var/tmp", "/var/tmp"), ("home", home.as_str())]);
    }
    let blocks: &[&str] = if quick { &["1024"] } else { &["4", "64", "1024"] };
    let (size, ops) = if quick { ("16", "500") } else { ("64", "2000") };
    bench.progress.workloads(places.len() * blocks.len());
    for (name, path) in places {
        for block in blocks {
            let argv = bench.tool("disk", &[path, size, ops, block].map(OsStr::new));
            let mut lanes = vec![crate::lanes::Lane::bare()];
            lanes.extend(bench.ringfence.clone());
            let trials = lanes.iter().map(|lane| readings_of(bench, lane, &argv, &[])).collect();
            let rounds =
                Rounds { budget: std::time::Duration::from_secs(5), ..Rounds::long(bench) };
            interleave(bench, group, &format!("{name}, {block}K blocks"), trials, rounds);
            bench.progress.next();
        }
    }
    group.tables.push(mounts());
    Ok(())
}

/// What the host's places are made of.
fn mounts() -> Table {
    let info = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let row = |line: &str| {
        let (mount, rest) = line.split_once(" - ")?;
        let point = mount.split(' ').nth(4)?;
        let mut rest = rest.split(' ');
        let (kind, source) = (rest.next()?, rest.next()?);
        let shown = ["/", "/tmp", "/var", "/var/tmp", "/home", "/dev/shm"].contains(&point);
        shown.then(|| vec![point.into(), kind.into(), source.into()])
    };
    Table {
        title: "mounts of the host".into(),
        columns: ["mount point", "file system", "source"].map(String::from).to_vec(),
        rows: info.lines().filter_map(row).collect(),
    }
}
