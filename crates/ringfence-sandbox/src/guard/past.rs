//! When sandboxes could write to which trees.
//!
//! A program can prepare in one run, under names that mean nothing, what a rename in another run
//! makes a repository or an editor's settings: what is in a renamed directory keeps its change times.
//! So what is found at a protected name below the top of a tree is judged when it was changed in this
//! run or in any earlier one. Change times cannot be set by a program.
//!
//! One file of the user's own state, `runs`: for each run and tree the times of its start and end in
//! nanoseconds and a hash of the tree's path, eight bytes each, and the same with one of its device and inode, as it can be
//! renamed, so that thousands of them are looked through in microseconds. A note is written when a run begins and
//! completed when it has ended. Where those that should have completed it were killed a later run finds a note without
//! an end that nobody has open (a lock tells, which the kernel takes back), and must take it that the run went on until
//! then, or until the machine went down. What was granted by name is the user's wish: a note of such a place,
//! which has the run's start with a minus, says that what lies there is none of that run's.
//!
//! What one run prepares in its tree, another one whose tree has that in it can move elsewhere. So directories that a
//! tree is in are noted as well: what changed in a tree counts wherever it may have been moved since.
//!
//! What is written there is written by [`notes`](super::notes).

use super::notes::{file, hash, hash_of_file, nanoseconds, within};
use ringfence_start::mark;
use ringfence_start::runs::{ABOVE_A_TREE, NOTE, OPEN};
use ringfence_sys as sys;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use sys::words::Words;

/// Words of a note.
const WORDS: usize = NOTE / size_of::<AtomicI64>();

/// Earlier runs, and those that go on.
#[derive(Debug, Default)]
pub(super) struct Past {
    notes: Notes,
    /// When those ended, or will at the earliest, that have no end: by their places in the list.
    ends: BTreeMap<usize, i64>,
}

/// What is in the file.
#[derive(Debug)]
enum Notes {
    /// Mapped: there are hundreds of kilobytes, and of most notes the first word is looked at alone.
    Mapped(Words),
    /// Read, where that cannot be.
    Read(Vec<AtomicI64>),
}

impl Default for Notes {
    fn default() -> Notes {
        Notes::Read(Vec::new())
    }
}

impl Notes {
    fn of(mut file: &File) -> std::io::Result<Notes> {
        let length = usize::try_from(file.metadata()?.len()).unwrap_or(0);
        if let Ok(words) = Words::map(file.as_fd(), length / NOTE * WORDS) {
            return Ok(Notes::Mapped(words));
        }
        let mut bytes = Vec::with_capacity(length);
        file.read_to_end(&mut bytes)?;
        Ok(Notes::from(bytes.as_slice()))
    }

    fn words(&self) -> &[AtomicI64] {
        match self {
            Notes::Mapped(words) => words.as_ref(),
            Notes::Read(words) => words,
        }
    }
}

impl From<&[u8]> for Notes {
    fn from(bytes: &[u8]) -> Notes {
        let words = bytes.as_chunks::<8>().0.iter();
        Notes::Read(words.map(|word| AtomicI64::new(i64::from_ne_bytes(*word))).collect())
    }
}

impl Past {
    /// Whether a path could be changed from inside at a time, its last moment ([`mark::latest`]). `trees` are those of the run that goes on: what lies in
    /// one of them can have come from each. `ctime` is when something was changed last: what is moved is changed by that
    /// (on Linux's own file systems), so that what nobody moved is left alone.
    pub fn holds(
        &self,
        path: &Path,
        trees: &[&Path],
        time: i128,
        ctime: &dyn Fn(&Path) -> Option<i128>,
    ) -> bool {
        let Ok(time) = i64::try_from(time) else { return false };
        let first = u64::try_from(time).ok().and_then(|time| mark::earliest(time).try_into().ok());
        let first: i64 = first.unwrap_or(time);
        let (whole, file) = (path, hash_of_file(path));
        let path = path.ancestors().map(hash).collect::<Vec<u64>>();
        let tops = trees;
        let trees: Vec<u64> = trees.iter().flat_map(|tree| tree.ancestors()).map(hash).collect();
        let notes = || self.notes();
        // By what the directories are: a tree can have been renamed since.
        let known = OnceCell::new();
        let known = |place| known.get_or_init(|| by_identity(whole, tops)).contains(&place);
        let here = |place| path.contains(&place) || trees.contains(&place) || known(place);
        // Something on the way to it, below the tree of the run that could move it, was changed since that began, and so
        // was the directory that it is in.
        let since = |start, place| {
            let changed = |at: &Path| ctime(at).is_none_or(|time| time >= i128::from(start));
            let mut below = whole.ancestors().take_while(|above| hash(above) != place);
            below.any(|at| changed(at) && at.parent().is_none_or(changed))
        };
        // A run could move it here from a tree within its own, then or later.
        let moved = |start| {
            let above = |&(of, mark, _): &(i64, i64, u64)| of == start && mark == ABOVE_A_TREE;
            notes().filter(above).map(|note| note.2).filter(|place| here(*place)).any(|place| {
                let later = |(start, end, tree)| {
                    start >= 0 && end >= first && tree == place && since(start, place)
                };
                notes().any(later)
            })
        };
        notes().any(|(start, end, tree)| {
            let changed = start >= 0 && start <= time && first <= end;
            let by_name = |place| path.contains(&place) || place == file || known(place);
            let granted = || notes().any(|(of, _, place)| of == -start && by_name(place));
            changed && (here(tree) || moved(start)) && !granted()
        })
    }

    /// Whether one has no end yet, wherever its trees are: what is in one can have been moved to others.
    pub fn goes_on(&self) -> bool {
        self.notes().any(|(_, end, _)| end == i64::MAX)
    }

    /// The start, the end and the place of each note.
    fn notes(&self) -> impl Iterator<Item = (i64, i64, u64)> {
        let notes = self.notes.words().as_chunks::<WORDS>().0.iter().enumerate();
        notes.map(|(at, note)| {
            let [start, end, place] = note.each_ref().map(|word| word.load(Ordering::Relaxed));
            // One that ended since then has its own.
            let end =
                if end == OPEN { self.ends.get(&at).copied().unwrap_or(i64::MAX) } else { end };
            (start, end, place.cast_unsigned())
        })
    }

    /// Gives an end to each run that has none. `end` says when it was, given its place in the file and its start.
    fn close(&mut self, mut end: impl FnMut(usize, i64) -> i64) {
        for (at, note) in self.notes.words().as_chunks::<WORDS>().0.iter().enumerate() {
            let [start, known, _] = note.each_ref().map(|word| word.load(Ordering::Relaxed));
            if known == OPEN {
                self.ends.insert(at, end(at * NOTE, start));
            }
        }
    }
}

/// What may be noted of a path by the directories that it is in, and of trees, whatever these are called now.
fn by_identity(path: &Path, trees: &[&Path]) -> Vec<u64> {
    let mut known = Vec::new();
    for directory in path.ancestors() {
        let Some(within) = within(directory) else { continue };
        let inner = |at: &Path| at.strip_prefix(directory).unwrap_or(at).to_owned();
        let below = path.ancestors().take_while(|at| at.starts_with(directory));
        known.extend(below.map(|at| within(hash(&inner(at)))));
        known.push(within(hash_of_file(&inner(path))));
    }
    let trees = trees.iter().flat_map(|tree| tree.ancestors());
    known.extend(trees.filter_map(within).map(|within| within(hash(Path::new("")))));
    known
}

/// Reads what was noted; nothing where there is nothing to be read.
pub(super) fn read() -> Past {
    file().and_then(|path| read_from(&path).ok()).unwrap_or_default()
}

/// Whether what stands at a path may have been made, or changed, in some run that is noted: one that had a tree around it
/// writable. What is granted by name is the user's.
pub fn made_by_a_run(path: &Path) -> bool {
    let changed = |path: &Path| path.symlink_metadata().ok().map(|found| super::changed(&found));
    changed(path).is_some_and(|time| read().holds(path, &[], time, &changed))
}

fn read_from(path: &Path) -> std::io::Result<Past> {
    let file = fs::OpenOptions::new().read(true).write(true).open(path)?;
    let mut past = Past { notes: Notes::of(&file)?, ends: BTreeMap::new() };
    let now = nanoseconds(sys::file::time_mark());
    past.close(|at, start| {
        if sys::lock::is_held(file.as_fd(), start.unsigned_abs()).unwrap_or(true) {
            // It goes on: whatever is changed there may have been changed by it.
            return i64::MAX;
        }
        // Its launcher and its warden were killed. No run goes on past the machine's own end.
        let end = booted(now).filter(|booted| *booted > start).unwrap_or(now);
        let _ = file.write_at(&end.to_ne_bytes(), at as u64 + 8);
        end
    });
    Ok(past)
}

/// When the machine started, in nanoseconds since 1970, a little late (proc(5), `/proc/uptime`).
fn booted(now: i64) -> Option<i64> {
    const GRAIN: i64 = 20_000_000;
    let text = fs::read_to_string("/proc/uptime").ok()?;
    let seconds: f64 = text.split(' ').next()?.parse().ok()?;
    Some(now - (seconds * 1e9) as i64 + GRAIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::notes::{Begun, Noted, begin_in, noted};
    use crate::plan::GuardedTree;
    use std::os::fd::OwnedFd;
    use std::path::PathBuf;

    fn of(notes: &[u8]) -> Past {
        Past { notes: Notes::from(notes), ends: BTreeMap::new() }
    }

    /// All was changed lately.
    fn lately(_: &Path) -> Option<i128> {
        Some(i128::MAX)
    }

    fn write(start: i64, end: i64, tree: &str) -> [u8; NOTE] {
        Noted::Tree(Path::new(tree)).note(start, end)
    }

    #[test]
    fn a_path_is_judged_by_the_runs_that_could_write_it() {
        let mut notes = write(50, 90, "/w/other").to_vec();
        notes.extend(write(5, 9, "/w/a b\nc"));
        // Cut off: not read.
        notes.extend(&write(0, i64::MAX, "/")[..NOTE - 1]);
        let past = of(&notes);
        let inside = Path::new("/w/a b\nc/x/.git/config");
        assert!(past.holds(inside, &[], 5, &lately) && past.holds(inside, &[], 9, &lately));
        assert!(past.holds(Path::new("/w/other"), &[], 50, &lately));
        assert!(
            !past.holds(inside, &[], 4, &lately)
                && !past.holds(inside, &[], 10, &lately)
                && !past.holds(inside, &[], 60, &lately)
        );
        assert!(!past.holds(Path::new("/w/a b\ncd/.git/config"), &[], 7, &lately));
        assert!(
            !past.holds(inside, &[], i128::MAX, &lately)
                && !Past::default().holds(inside, &[], 5, &lately)
        );
    }

    #[test]
    fn what_was_granted_by_name_is_none_of_that_runs() {
        let mut notes = write(50, 90, "/w").to_vec();
        notes.extend(Noted::Granted(Path::new("/w/sub/.vscode")).note(50, 90));
        let past = of(&notes);
        assert!(past.holds(Path::new("/w/sub/.git/config"), &[], 60, &lately));
        assert!(past.holds(Path::new("/w/sub"), &[], 60, &lately));
        assert!(!past.holds(Path::new("/w/sub/.vscode/tasks.json"), &[], 60, &lately));
        assert!(!past.holds(Path::new("/w/sub/.vscode/tasks.json"), &[], 10, &lately));
        // A file, and not what is made in its place.
        notes.extend(Noted::GrantedFile(Path::new("/w/sub/.envrc")).note(50, 90));
        let past = of(&notes);
        assert!(!past.holds(Path::new("/w/sub/.envrc"), &[], 60, &lately));
        assert!(past.holds(Path::new("/w/sub/.envrc/.git/config"), &[], 60, &lately));
        // Another run, of the same time, had no such grant.
        notes.extend(write(40, 70, "/w"));
        let past = of(&notes);
        assert!(past.holds(Path::new("/w/sub/.vscode/tasks.json"), &[], 60, &lately));
        assert!(past.holds(Path::new("/w/sub/.envrc"), &[], 60, &lately));
    }

    #[test]
    fn what_a_run_prepared_in_a_smaller_tree_counts_where_another_can_move_it() {
        let run = |start, end, trees: &[&str]| -> Vec<u8> {
            let all = trees.iter().map(|tree| GuardedTree {
                tree: PathBuf::from(tree),
                absent: Vec::new(),
                nested: Vec::new(),
                lifted: Vec::new(),
                files: Vec::new(),
                granted: Vec::new(),
            });
            let all: Vec<GuardedTree> = all.collect();
            noted(&all).into_iter().flat_map(|noted| noted.note(start, end)).collect()
        };
        let moved = Path::new("/w/y/.git/config");
        let prepared = run(10, 20, &["/w/sub"]);
        // Nothing could move it so far.
        assert!(!of(&prepared).holds(moved, &[], 15, &lately));
        let past = of(&[prepared.clone(), run(30, 40, &["/w"])].concat());
        assert!(past.holds(moved, &[], 15, &lately) && past.holds(moved, &[], 35, &lately));
        assert!(
            !past.holds(moved, &[], 25, &lately)
                && !past.holds(Path::new("/v/.git"), &[], 15, &lately)
        );
        // Nor by a run that began when it was where it is.
        assert!(!past.holds(moved, &[], 15, &|_| Some(29)));
        let only = |names: &'static [&str]| {
            move |at: &Path| Some(29 + i128::from(names.iter().any(|name| at.ends_with(name))))
        };
        assert!(past.holds(moved, &[], 15, &only(&["w", "y"])));
        assert!(past.holds(moved, &[], 15, &only(&["y", ".git"])));
        // What was only put beside it, or above.
        assert!(!past.holds(moved, &[], 15, &only(&["w"])));
        assert!(!past.holds(moved, &[], 15, &only(&["y"])));
        // A run that was over before it was written did not.
        let early = of(&[run(1, 9, &["/w"]), prepared.clone()].concat());
        assert!(!early.holds(moved, &[], 15, &lately));
        // Two moves, and the second run's tree is where the first put it.
        let twice = [prepared.clone(), run(30, 40, &["/w"]), run(50, 60, &["/w/y"])].concat();
        assert!(of(&twice).holds(moved, &[Path::new("/w/y")], 15, &lately));
        // From one tree of a run into another of its trees.
        let beside = Path::new("/v/.git/config");
        assert!(!of(&prepared).holds(beside, &[Path::new("/v")], 15, &lately));
        assert!(of(&prepared).holds(beside, &[Path::new("/v"), Path::new("/w/sub")], 15, &lately));
    }

    #[test]
    fn a_tree_is_known_under_another_name() {
        let place = std::env::temp_dir().join(format!("ringfence-renamed-{}", std::process::id()));
        let (first, other) = (place.join("first"), place.join("other"));
        fs::create_dir_all(first.join("project/sub")).expect("a directory of ours");
        let project = first.join("project");
        let tree = GuardedTree {
            tree: project.clone(),
            absent: Vec::new(),
            nested: Vec::new(),
            lifted: vec![project.join("sub/.vscode")],
            files: vec![(project.join("sub/.envrc"), true)],
            granted: Vec::new(),
        };
        let trees = [tree];
        let all: Vec<u8> = noted(&trees).into_iter().flat_map(|noted| noted.note(10, 20)).collect();
        let begun = begin_in(&place.join("state/runs"), &noted(&trees), 10).expect("a note");
        assert!(begun.end());
        let written = fs::read(place.join("state/runs")).expect("notes");
        let places = |notes: &[u8]| -> Vec<u64> { of(notes).notes().map(|note| note.2).collect() };
        assert_eq!(places(&written), places(&all), "it is written as it is read");
        let past = of(&all);
        fs::rename(&first, &other).expect("renamed");
        let holds = |name: &str, time| past.holds(&other.join(name), &[], time, &lately);
        assert!(holds("project/sub/.git/config", 15) && !holds("project/sub/.git/config", 25));
        assert!(!holds("sub/.git/config", 15), "beside it");
        assert!(past.holds(Path::new("/v/x"), &[&other.join("project")], 15, &lately));
        // What was granted still is.
        assert!(!holds("project/sub/.vscode/tasks.json", 15) && !holds("project/sub/.envrc", 15));
        assert!(holds("project/sub/.envrc/.git/config", 15));
        fs::remove_dir_all(place).expect("a directory of ours");
    }

    /// A run is noted while it goes on, until it was completed or nobody has its note open.
    #[test]
    fn a_run_without_an_end_counts_for_as_long_as_it_can_have_run() {
        let place = std::env::temp_dir().join(format!("ringfence-past-{}", std::process::id()));
        let path = place.join("state/runs");
        let (tree, inside) = (Path::new("/w"), Path::new("/w/x"));
        let [own, other, above] = [tree, Path::new("/v"), Path::new("/")];
        let trees = [Noted::Tree(own), Noted::Tree(other), Noted::Above(above)];
        let begin = || begin_in(&path, &trees, sys::file::time_mark());
        let now = sys::file::time_mark;
        let before = now() - 1;
        let (completed, killed) = (begin().expect("a note"), begin().expect("another"));
        let first = now();
        let goes_on = || read_from(&path).expect("notes").goes_on();
        assert!(goes_on());
        assert!(!read_from(&path).expect("notes").holds(inside, &[], before, &lately));
        let later = now() + 1_000_000_000;
        assert!(read_from(&path).expect("notes").holds(inside, &[], later, &lately), "both go on");
        // As the warden does it.
        let left = killed.file().try_clone().map(OwnedFd::from).expect("a descriptor");
        let left = Begun::left(left, &killed.place()).expect("left");
        drop(killed);
        assert!(completed.end());
        assert!(
            read_from(&path).expect("notes").holds(inside, &[], later, &lately),
            "the warden has it"
        );
        assert!(goes_on());
        drop(left);
        assert!(!goes_on());
        let past = read_from(&path).expect("notes");
        let closed = now();
        assert!(
            past.holds(inside, &[], first, &lately)
                && past.holds(Path::new("/v/x"), &[], first, &lately)
        );
        assert!(
            !past.holds(inside, &[], later, &lately) && !past.holds(inside, &[], before, &lately)
        );
        // That is written down: it ended before now, whoever asks later.
        let again = read_from(&path).expect("notes");
        assert!(
            again.holds(inside, &[], first, &lately)
                && !again.holds(inside, &[], closed + 1, &lately)
        );
        // One that has got another file is noted anew.
        let begun = begin().expect("a note");
        fs::remove_file(&path).expect("a file of ours");
        assert!(!begun.end());
        fs::remove_dir_all(place).expect("a directory of ours");
    }
}
