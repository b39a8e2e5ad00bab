//! Group `rootfs`: reading the system's files, inside and outside.

use super::{Entry, Outcome, Stop};
use crate::bench::Bench;
use crate::error::Result;
use crate::interleave::Rounds;
use crate::model::Group;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub const ENTRY: Entry = Entry {
    name: "rootfs",
    summary: "reads of system files: large, random, small, stat",
    method: "The same list of files below /usr/bin and /usr/lib in every lane: the largest from end to end \
             (cold after a drop of its cached pages, then cached), random 4 KiB reads over 200 files, 500 \
             small files opened, read and closed, and a stat of each.",
    seconds: (30.0, 8.0),
    run,
};

/// How many files the list holds at most.
const MOST: usize = 3000;

fn run(bench: &mut Bench, group: &mut Group) -> Outcome {
    bench.main_lane()?;
    let argv = line(bench, if bench.options.quick { "1000" } else { "5000" })?;
    let rounds = Rounds::long(bench);
    super::disk::in_every_lane(bench, group, "system files", &argv, rounds);
    Ok(())
}

/// The command line that reads the system's files, with so many random reads.
pub fn line(bench: &Bench, ops: &str) -> std::result::Result<Vec<OsString>, Stop> {
    let mut files = Vec::new();
    for dir in ["/usr/bin", "/usr/lib"] {
        gather(Path::new(dir), &mut files);
    }
    if files.is_empty() {
        return Err(Stop::Unavailable("there are no files below /usr/bin and /usr/lib".into()));
    }
    files.sort_by_key(|(size, _)| std::cmp::Reverse(*size));
    let list = bench.work.space.join(".bench/files");
    let names: String = files.iter().map(|(_, path)| format!("{}\n", path.display())).collect();
    crate::work::write(&list, names.as_bytes())?;
    Ok(bench.tool("rootfs", &[list.as_os_str(), OsStr::new(ops)]))
}

/// Collects regular files that everyone may read, breadth first, up to the limit.
fn gather(dir: &Path, files: &mut Vec<(u64, PathBuf)>) {
    let mut open = std::collections::VecDeque::from([dir.to_owned()]);
    let limit = files.len() + MOST / 2;
    while let Some(dir) = open.pop_front() {
        let Ok(entries) = sorted(&dir) else { continue };
        for path in entries {
            let Ok(meta) = std::fs::symlink_metadata(&path) else { continue };
            if meta.is_dir() {
                open.push_back(path);
            } else if meta.is_file()
                && meta.mode() & 0o004 != 0
                && meta.len() > 0
                && files.len() < limit
            {
                files.push((meta.len(), path));
            }
        }
    }
}

fn sorted(dir: &Path) -> Result<Vec<PathBuf>> {
    let failed = |cause| crate::error::Error::file("read", dir, cause);
    let entries = std::fs::read_dir(dir).map_err(failed)?;
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}
