//! Group `snapshot`: the operations on snapshots of a workspace.

use super::{Entry, Outcome, Stop};
use crate::bench::Bench;
use crate::error::{Error, Result, error};
use crate::interleave::{Reading, Rounds, Trial, interleave};
use crate::mcp::Gateway;
use crate::model::Group;
use std::path::Path;
use std::time::Duration;

pub const ENTRY: Entry = Entry {
    name: "snapshot",
    summary: "create, list, changes, revert, delete of 10, 100 and 500 files",
    method: "Files of 4 KiB with random bytes. In each round: create; overwrite one file with as many other \
             bytes, delete one, add one; list; changes; revert; delete. `cli` is a whole `ringfence snapshot` \
             command, its process included (`parts` shows that share); `gateway` is a call of the same \
             operation over MCP to a server that runs already.",
    seconds: (20.0, 6.0),
    run,
};

fn run(bench: &mut Bench, group: &mut Group) -> Outcome {
    bench.has("snapshot").map_err(Stop::Unavailable)?;
    let sizes: &[usize] = if bench.options.quick { &[10, 100] } else { &[10, 100, 500] };
    bench.progress.workloads(sizes.len());
    let mut note = None;
    for &count in sizes {
        let dir = bench.work.fresh("snapshots")?;
        fill(&dir, count)?;
        let mut trials = vec![Trial::new("cli", "", |bench| {
            cycle(&dir, |what, arguments| by_command(bench, &dir, what, arguments))
        })];
        match Gateway::start(bench, &dir) {
            Ok(mut gateway) => trials.push(Trial::new("gateway", "", move |_| {
                cycle(&gateway.dir.clone(), |what, arguments| gateway.snapshot(what, arguments))
            })),
            Err(cause) => note = Some(format!("gateway: {cause}")),
        }
        let rounds = Rounds { most: 30, ..Rounds::short(bench) };
        interleave(bench, group, &format!("{count} files"), trials, rounds);
        bench.progress.next();
    }
    if !bench.options.quick {
        many(bench, group)?;
    }
    group.notes.extend(note);
    Ok(())
}

/// A tree in which little changes: the cost of the next snapshot must grow with that.
fn many(bench: &mut Bench, group: &mut Group) -> Result<()> {
    const FILES: usize = 100_000;
    const CHANGED: usize = 100;
    let dir = bench.work.fresh("many")?;
    let file = |number: usize| dir.join(format!("{}/file{number}", number % 1000));
    for number in 0..FILES {
        if number < 1000 {
            let directory = dir.join(number.to_string());
            std::fs::create_dir(&directory)
                .map_err(|cause| Error::file("make", &directory, cause))?;
        }
        crate::work::write(&file(number), &number.to_le_bytes())?;
    }
    let mut gateway = Gateway::start(bench, &dir)?;
    gateway.snapshot("create", None)?;
    let trials = vec![Trial::new("gateway", "", move |_| {
        for number in 0..CHANGED {
            crate::work::write(&file(number * 997), &random_page())?;
        }
        let (time, _) = gateway.snapshot("create", None)?;
        Ok(vec![Reading::millis("create", time)])
    })];
    let rounds = Rounds { most: 20, ..Rounds::short(bench) };
    interleave(bench, group, "100,000 files, 100 changed", trials, rounds);
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

/// One life of a snapshot, each operation timed by `call`.
fn cycle(
    dir: &Path,
    mut call: impl FnMut(&str, Option<&str>) -> Result<(Duration, String)>,
) -> Result<Vec<Reading>> {
    let name = Some("bench");
    let mut readings = Vec::new();
    let mut timed = |what: &str, name: Option<&str>| -> Result<String> {
        let (time, said) = call(what, name)?;
        readings.push(Reading::millis(what, time));
        Ok(said)
    };
    timed("create", name)?;
    let kept = std::fs::read(dir.join("file0")).unwrap_or_default();
    crate::work::write(&dir.join("file0"), &random_page())?;
    crate::work::write(&dir.join("added"), b"new")?;
    let _ = std::fs::remove_file(dir.join("file1"));
    timed("list", None)?;
    let changes = timed("changes", name)?;
    if !["file0", "file1", "added"].iter().all(|file| changes.contains(file)) {
        return Err(error!("`snapshot changes` missed a change: it said {changes:?}"));
    }
    timed("revert", name)?;
    if std::fs::read(dir.join("file0")).ok() != Some(kept) || dir.join("added").exists() {
        return Err(error!("`snapshot revert` did not bring the files back"));
    }
    timed("delete", name)?;
    Ok(readings)
}

/// An operation as a whole command.
fn by_command(
    bench: &mut Bench,
    dir: &Path,
    what: &str,
    name: Option<&str>,
) -> Result<(Duration, String)> {
    let mut args = vec!["snapshot", what];
    if what == "create" {
        args.push("--name");
    }
    args.extend(name);
    let command = bench.product_in(dir, &args)?;
    let ran = bench.run(&command, true)?;
    Ok((ran.wall, String::from_utf8_lossy(&ran.stdout).into_owned()))
}
