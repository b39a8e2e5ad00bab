//! Group `snapshot`: the operations on snapshots of a workspace.

use super::{Entry, Outcome, Stop};
use crate::bench::Bench;
use crate::error::{Result, error};
use crate::interleave::{Reading, Rounds, Trial, interleave};
use crate::model::Group;
use std::path::Path;

pub const ENTRY: Entry = Entry {
    name: "snapshot",
    summary: "create, list, changes, revert, delete of 10, 100 and 500 files",
    method: "Files of 4 KiB with random bytes. In each round: create; overwrite one file with as many other \
             bytes, delete one, add one; list; changes; revert; delete. `cli` is a whole `ringfence snapshot` \
             command, its process included (`start` shows that share).",
    seconds: (20.0, 6.0),
    run,
};

fn run(bench: &mut Bench, group: &mut Group) -> Outcome {
    bench.has("snapshot").map_err(Stop::Unavailable)?;
    let sizes: &[usize] = if bench.options.quick { &[10, 100] } else { &[10, 100, 500] };
    bench.progress.workloads(sizes.len());
    for &count in sizes {
        let dir = bench.work.fresh("snapshots")?;
        fill(&dir, count)?;
        let trial = Trial::new("cli", "", |bench| cycle(bench, &dir));
        let rounds = Rounds { most: 30, ..Rounds::short(bench) };
        interleave(bench, group, &format!("{count} files"), vec![trial], rounds);
        bench.progress.next();
    }
    Ok(())
}

fn random_page() -> Vec<u8> {
    std::iter::repeat_with(|| fastrand::u8(1..)).take(4096).collect()
}

fn fill(dir: &Path, count: usize) -> Result<()> {
    for number in 0..count {
        crate::work::write(&dir.join(format!("file{number}")), &random_page())?;
    }
    Ok(())
}

/// One life of a snapshot, each operation timed.
fn cycle(bench: &mut Bench, dir: &Path) -> Result<Vec<Reading>> {
    let name = "bench";
    let mut readings = Vec::new();
    let mut timed = |bench: &mut Bench, what: &str, args: &[&str]| -> Result<String> {
        let args: Vec<&str> = ["snapshot"].into_iter().chain(args.iter().copied()).collect();
        let command = bench.product_in(dir, &args)?;
        let ran = bench.run(&command, true)?;
        readings.push(Reading::millis(what, ran.wall));
        Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
    };
    timed(bench, "create", &["create", "--name", name])?;
    let kept = std::fs::read(dir.join("file0")).unwrap_or_default();
    crate::work::write(&dir.join("file0"), &random_page())?;
    crate::work::write(&dir.join("added"), b"new")?;
    let _ = std::fs::remove_file(dir.join("file1"));
    timed(bench, "list", &["list"])?;
    let changes = timed(bench, "changes", &["changes", name])?;
    if !["file0", "file1", "added"].iter().all(|file| changes.contains(file)) {
        return Err(error!("`snapshot changes` missed a change: it said {changes:?}"));
    }
    timed(bench, "revert", &["revert", name])?;
    if std::fs::read(dir.join("file0")).ok() != Some(kept) || dir.join("added").exists() {
        return Err(error!("`snapshot revert` did not bring the files back"));
    }
    timed(bench, "delete", &["delete", name])?;
    Ok(readings)
}
