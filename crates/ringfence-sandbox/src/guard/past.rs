//! When sandboxes could write to which trees.
//!
//! A program can prepare in one run, under names that mean nothing, what a rename in another run
//! makes a repository or an editor's settings: what is in a renamed directory keeps its change times.
//! So what is found at a protected name below the top of a tree is judged when it was changed in this
//! run or in any earlier one. Change times cannot be set by a program.
//!
//! One file of the user's own state, `runs`, read at the end of a run: for each run and tree the times
//! of its start and end in nanoseconds and a hash of the tree's path, eight bytes each, so that
//! thousands of them are looked through in microseconds. What was granted by name is the user's wish:
//! runs that had such a grant in a tree are not noted for it.

use crate::plan::GuardedTree;
use ringfence_sys as sys;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Bytes of a note.
const NOTE: usize = 24;
/// Longer, the file loses its older half: some eight thousand runs.
const LONGEST: u64 = (NOTE as u64) << 13;

/// Earlier runs.
#[derive(Debug, Default)]
pub(super) struct Past(Vec<u8>);

impl Past {
    /// Whether a path could be changed from inside at a time.
    pub fn holds(&self, path: &Path, time: i128) -> bool {
        let Ok(time) = i64::try_from(time) else { return false };
        let trees: Vec<u64> = path.ancestors().map(hash).collect();
        self.0.as_chunks::<NOTE>().0.iter().any(|note| {
            let (start, end, tree) = parse(note);
            (start..=end).contains(&time) && trees.contains(&tree)
        })
    }
}

fn parse(note: &[u8; NOTE]) -> (i64, i64, u64) {
    let number = |at: usize| -> [u8; 8] { std::array::from_fn(|byte| note[at + byte]) };
    let (start, end) = (i64::from_ne_bytes(number(0)), i64::from_ne_bytes(number(8)));
    (start, end, u64::from_ne_bytes(number(16)))
}

fn write(start: i128, end: i128, tree: &Path) -> [u8; NOTE] {
    let time = |time: i128| i64::try_from(time).unwrap_or(i64::MAX).to_ne_bytes();
    let mut note = [0; NOTE];
    note[..8].copy_from_slice(&time(start));
    note[8..16].copy_from_slice(&time(end));
    note[16..].copy_from_slice(&hash(tree).to_ne_bytes());
    note
}

/// Of this build: one that has another hash takes notes of its own.
fn hash(path: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.as_os_str().hash(&mut hasher);
    hasher.finish()
}

/// Directories of the user's may be made, a home may not.
fn file() -> Option<PathBuf> {
    let home =
        ringfence_sys::identity::home().filter(|home| home.is_absolute() && home.is_dir())?;
    Some(crate::state::directory(&home).join("runs"))
}

/// Reads what was noted; nothing where there is nothing to be read.
pub(super) fn read() -> Past {
    Past(file().and_then(|path| fs::read(path).ok()).unwrap_or_default())
}

/// Notes a run that ends now. One that cannot be noted is no reason to fail: its own changes have
/// been judged.
pub(super) fn note(trees: &[GuardedTree], start: i128) {
    let trees: Vec<&GuardedTree> = trees.iter().filter(|tree| tree.lifted.is_empty()).collect();
    let Some(path) = file().filter(|_| !trees.is_empty()) else { return };
    let end = sys::file::time_mark();
    let notes: Vec<u8> = trees.iter().flat_map(|tree| write(start, end, &tree.tree)).collect();
    let open = || fs::OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
    let file = open().or_else(|_| {
        path.parent().map_or(Ok(()), crate::state::make_directory)?;
        open()
    });
    let Ok(mut file) = file else { return };
    let before = file.metadata().map_or(0, |data| data.len());
    // A full disk has cut one off: what follows would not be read.
    let whole = before - before % NOTE as u64;
    if whole != before && file.set_len(whole).is_err() {
        return;
    }
    // One call, so that runs that end at once do not mix.
    let _ = file.write_all(&notes);
    if before > LONGEST {
        let _ = shorten(&path);
    }
}

/// Leaves out the older half.
fn shorten(path: &Path) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.read_to_end(&mut bytes)?;
    let half = bytes.len() / NOTE / 2 * NOTE;
    let beside = path.with_extension(std::process::id().to_string());
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(&beside)?.write_all(&bytes[half..])?;
    fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_judged_by_the_runs_that_could_write_it() {
        let mut notes = write(50, 90, Path::new("/w/other")).to_vec();
        notes.extend(write(5, 9, Path::new("/w/a b\nc")));
        // Cut off: not read.
        notes.extend(&write(0, i128::from(i64::MAX), Path::new("/"))[..NOTE - 1]);
        let past = Past(notes);
        let inside = Path::new("/w/a b\nc/x/.git/config");
        assert!(past.holds(inside, 5) && past.holds(inside, 9));
        assert!(past.holds(Path::new("/w/other"), 50));
        assert!(!past.holds(inside, 4) && !past.holds(inside, 10) && !past.holds(inside, 60));
        assert!(!past.holds(Path::new("/w/a b\ncd/.git/config"), 7));
        assert!(!past.holds(inside, i128::MAX) && !Past::default().holds(inside, 5));
    }
}
