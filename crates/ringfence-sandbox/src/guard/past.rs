//! When sandboxes could write to which trees.
//!
//! A program can prepare in one run, under names that mean nothing, what a rename in another run
//! makes a repository or an editor's settings: what is in a renamed directory keeps its change times.
//! So what is found at a protected name below the top of a tree is judged when it was changed in this
//! run or in any earlier one. Change times cannot be set by a program.
//!
//! One file of the user's own state, `runs`: for each run and tree the times of its start and end in
//! nanoseconds and the tree's path, ended by a NUL. What was granted by name is the user's wish: runs
//! that had such a grant in a tree are not noted for it.

use crate::plan::GuardedTree;
use ringfence_sys as sys;
use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Longer, it loses its older half: some thousand runs.
const LONGEST: u64 = 512 << 10;

/// Earlier runs.
#[derive(Debug, Default)]
pub(super) struct Past(Vec<Run>);

#[derive(Debug, PartialEq, Eq)]
struct Run {
    start: i128,
    end: i128,
    tree: PathBuf,
}

impl Past {
    /// Whether a path could be changed from inside at a time.
    pub fn holds(&self, path: &Path, time: i128) -> bool {
        let within = |run: &Run| (run.start..=run.end).contains(&time);
        self.0.iter().any(|run| within(run) && path.starts_with(&run.tree))
    }
}

/// Directories of the user's may be made, a home may not.
fn file() -> Option<PathBuf> {
    let home =
        ringfence_sys::identity::home().filter(|home| home.is_absolute() && home.is_dir())?;
    Some(crate::state::directory(&home).join("runs"))
}

/// Reads what was noted; nothing where there is nothing to be read.
pub(super) fn read() -> Past {
    let bytes = file().and_then(|path| fs::read(path).ok()).unwrap_or_default();
    Past(bytes.split(|&byte| byte == 0).filter_map(parse).collect())
}

fn parse(line: &[u8]) -> Option<Run> {
    let mut words = line.splitn(3, |&byte| byte == b' ');
    let mut number = || std::str::from_utf8(words.next()?).ok()?.parse().ok();
    let (start, end) = (number()?, number()?);
    let tree = PathBuf::from(OsStr::from_bytes(words.next()?));
    tree.is_absolute().then_some(Run { start, end, tree })
}

/// Notes a run that ends now. One that cannot be noted is no reason to fail: its own changes have
/// been judged.
pub(super) fn note(trees: &[GuardedTree], start: i128) {
    let trees: Vec<&GuardedTree> = trees.iter().filter(|tree| tree.lifted.is_empty()).collect();
    let Some(path) = file().filter(|_| !trees.is_empty()) else { return };
    let end = sys::file::time_mark();
    let mut lines = Vec::new();
    for tree in trees {
        lines.extend_from_slice(format!("{start} {end} ").as_bytes());
        lines.extend_from_slice(tree.tree.as_os_str().as_bytes());
        lines.push(0);
    }
    let open = || fs::OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
    let file = open().or_else(|_| {
        path.parent().map_or(Ok(()), crate::state::make_directory)?;
        open()
    });
    let Ok(mut file) = file else { return };
    // One call, so that runs that end at once do not mix.
    let _ = file.write_all(&lines);
    if file.metadata().is_ok_and(|data| data.len() > LONGEST) {
        let _ = shorten(&path);
    }
}

/// Leaves out the older half.
fn shorten(path: &Path) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.read_to_end(&mut bytes)?;
    let half = bytes.len() / 2;
    let from = bytes[half..].iter().position(|&byte| byte == 0).map_or(half, |at| half + at + 1);
    let beside = path.with_extension(std::process::id().to_string());
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(&beside)?.write_all(&bytes[from..])?;
    fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_judged_by_the_runs_that_could_write_it() {
        let line = b"5 9 /w/a b\nc";
        let run = parse(line).expect("a line");
        assert_eq!(run, Run { start: 5, end: 9, tree: PathBuf::from("/w/a b\nc") });
        let past = Past(vec![run]);
        let inside = Path::new("/w/a b\nc/x/.git/config");
        assert!(past.holds(inside, 5) && past.holds(inside, 9));
        assert!(!past.holds(inside, 4) && !past.holds(inside, 10));
        assert!(!past.holds(Path::new("/w/a b\ncd/.git/config"), 7));
        for bad in [&b""[..], b"5 9", b"5 x /w", b"5 9 w"] {
            assert_eq!(parse(bad), None);
        }
    }
}
