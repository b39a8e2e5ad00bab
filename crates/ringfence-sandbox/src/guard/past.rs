//! When sandboxes could write to which trees.
//!
//! A program can prepare in one run, under names that mean nothing, what a rename in another run
//! makes a repository or an editor's settings: what is in a renamed directory keeps its change times.
//! So what is found at a protected name below the top of a tree is judged when it was changed in this
//! run or in any earlier one. Change times cannot be set by a program.
//!
//! One file of the user's own state, `runs`: for each run and tree the times of its start and end in
//! nanoseconds and a hash of the tree's path, eight bytes each, so that thousands of them are looked
//! through in microseconds. It is written when a run begins, without an end, and completed in its place
//! when the run has ended: by the launcher, or by the warden when the launcher is gone, to whom the open
//! file is left for that. Where both were killed a later run finds a note without an end that nobody
//! has open (a lock tells, which the kernel takes back), and must take it that the run went on until
//! then, or until the machine went down. What was granted by name is the user's wish: a note of such a place,
//! which has the run's start with a minus, says that what lies there is none of that run's.
//!
//! What one run prepares in its tree, another one whose tree has that in it can move elsewhere. So directories that a
//! tree is in are noted as well: what changed in a tree counts wherever it may have been moved since.
//!
//! What ringfence itself puts into a tree for a program, when none runs (a commit, a revert, a copy), is
//! noted like a run ([`written`]).

use super::Guarding;
use crate::plan::GuardedTree;
use ringfence_start::runs::{self, ABOVE_A_TREE, LONGEST, NOTE, OPEN};
use ringfence_sys as sys;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Message from the launcher: what is left to the warden.
pub(crate) const WILL: u8 = b'V';

/// Earlier runs, and those that go on.
#[derive(Debug, Default)]
pub(super) struct Past(Vec<u8>);

impl Past {
    /// Whether a path could be changed from inside at a time. `trees` are those of the run that goes on: what lies in
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
        let (whole, path) = (path, path.ancestors().map(hash).collect::<Vec<u64>>());
        let trees: Vec<u64> = trees.iter().flat_map(|tree| tree.ancestors()).map(hash).collect();
        let notes = || self.0.as_chunks::<NOTE>().0.iter().map(parse);
        let here = |place| path.contains(&place) || trees.contains(&place);
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
                    start >= 0 && end >= time && tree == place && since(start, place)
                };
                notes().any(later)
            })
        };
        notes().any(|(start, end, tree)| {
            let changed = start >= 0 && (start..=end).contains(&time);
            let granted = || notes().any(|(of, _, place)| of == -start && path.contains(&place));
            changed && (here(tree) || moved(start)) && !granted()
        })
    }

    /// Gives an end to each run that has none. `end` says when it was, given its start.
    fn close(&mut self, mut end: impl FnMut(usize, i64) -> i64) {
        for (at, note) in self.0.as_chunks_mut::<NOTE>().0.iter_mut().enumerate() {
            let (start, known, _) = parse(note);
            if known == OPEN {
                note[8..16].copy_from_slice(&end(at * NOTE, start).to_ne_bytes());
            }
        }
    }
}

fn parse(note: &[u8; NOTE]) -> (i64, i64, u64) {
    let number = |at: usize| -> [u8; 8] { std::array::from_fn(|byte| note[at + byte]) };
    let (start, end) = (i64::from_ne_bytes(number(0)), i64::from_ne_bytes(number(8)));
    (start, end, u64::from_ne_bytes(number(16)))
}

fn nanoseconds(time: i128) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
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
    file().and_then(|path| read_from(&path).ok()).unwrap_or_default()
}

fn read_from(path: &Path) -> std::io::Result<Past> {
    let mut file = fs::OpenOptions::new().read(true).write(true).open(path)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let mut past = Past(bytes);
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

/// A run that goes on, noted.
#[derive(Debug)]
pub(crate) struct Begun {
    file: File,
    /// Where its notes are.
    at: u64,
    count: u64,
}

/// Notes a run that begins. One that cannot be noted is no reason to fail: its own changes will be
/// judged.
pub(super) fn begin(trees: &[GuardedTree], start: i128) -> Option<Begun> {
    let trees = noted(trees);
    let path = file().filter(|_| !trees.is_empty())?;
    begin_in(&path, &trees, start).ok()
}

/// What a note is about.
#[derive(Clone, Copy)]
enum Noted<'a> {
    /// A tree that a run can write to.
    Tree(&'a Path),
    /// A place in it that was granted by its name.
    Granted(&'a Path),
    /// A directory that a tree is in.
    Above(&'a Path),
}

impl Noted<'_> {
    /// The note, with an end if it takes one.
    fn note(self, start: i64, end: i64) -> [u8; NOTE] {
        let (start, end, place) = match self {
            Noted::Tree(tree) => (start, end, tree),
            Noted::Granted(place) => (-start, end, place),
            Noted::Above(place) => (start, ABOVE_A_TREE, place),
        };
        let mut note = [0; NOTE];
        note[..8].copy_from_slice(&start.to_ne_bytes());
        note[8..16].copy_from_slice(&end.to_ne_bytes());
        note[16..].copy_from_slice(&hash(place).to_ne_bytes());
        note
    }
}

/// All that is noted of a run. What has an end comes first.
fn noted(trees: &[GuardedTree]) -> Vec<Noted<'_>> {
    let granted = trees.iter().flat_map(|tree| &tree.lifted).map(|place| Noted::Granted(place));
    let above: BTreeSet<_> = trees.iter().flat_map(|tree| tree.tree.ancestors().skip(1)).collect();
    let own = trees.iter().map(|tree| Noted::Tree(&tree.tree));
    own.chain(granted).chain(above.into_iter().map(Noted::Above)).collect()
}

fn begin_in(path: &Path, trees: &[Noted<'_>], start: i128) -> std::io::Result<Begun> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    let places = places(trees);
    let begin = || runs::begin(name.as_ptr().cast(), nanoseconds(start), &places);
    let begun = begin().or_else(|_| {
        // Made, shortened, or ended where a full disk cut a note off.
        open(path)?;
        begin().map_err(|errno| std::io::Error::from_raw_os_error(errno.into_raw()))
    });
    begun.map(Begun::of)?.ok_or_else(|| std::io::ErrorKind::NotFound.into())
}

/// As [`runs::begin`] takes them.
fn places(trees: &[Noted<'_>]) -> Vec<u8> {
    let place = |noted: &Noted<'_>| {
        let (mark, path) = match noted {
            Noted::Tree(tree) => (runs::TREE, tree),
            Noted::Granted(place) => (runs::GRANTED, place),
            Noted::Above(place) => (runs::ABOVE, place),
        };
        [&[mark][..], &hash(path).to_ne_bytes()].concat()
    };
    trees.iter().flat_map(place).collect()
}

/// Where runs are noted, and what is noted of one with these trees, for a start that does it by itself; none
/// where it cannot, nothing where there is nothing to note.
pub(crate) fn noted_by_image(trees: &[GuardedTree]) -> Option<Vec<u8>> {
    let trees = noted(trees);
    if trees.is_empty() {
        return Some(Vec::new());
    }
    let path = file().filter(|_| trees.len() <= runs::MOST_PLACES)?;
    Some([path.as_os_str().as_bytes(), b"\0", &places(&trees)].concat())
}

fn open(path: &Path) -> std::io::Result<File> {
    let open =
        || fs::OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path);
    let file = open().or_else(|_| {
        path.parent().map_or(Ok(()), crate::state::make_directory)?;
        open()
    })?;
    let length = file.metadata()?.len();
    if length > LONGEST && shorten(path).is_ok() {
        return open();
    }
    // A full disk has cut one off: what follows would not be read.
    if !length.is_multiple_of(NOTE as u64) {
        file.set_len(length - length % NOTE as u64)?;
    }
    Ok(file)
}

/// Adds notes, whole.
fn append(file: &mut File, start: i128, end: i64, trees: &[Noted<'_>]) -> std::io::Result<()> {
    let notes: Vec<u8> =
        trees.iter().flat_map(|noted| noted.note(nanoseconds(start), end)).collect();
    // One call, so that runs that begin at once do not mix.
    file.write_all(&notes)
}

impl Begun {
    fn of(begun: runs::Begun) -> Option<Begun> {
        let file = sys::fd::adopt(begun.file)?.into();
        Some(Begun { file, at: begun.at, count: begun.count })
    }

    /// What another process needs to complete the notes, beside the open file: where they are.
    pub fn place(&self) -> [u8; 16] {
        let mut place = [0; 16];
        place[..8].copy_from_slice(&self.at.to_ne_bytes());
        place[8..].copy_from_slice(&self.count.to_ne_bytes());
        place
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The notes of another process.
    pub fn left(file: OwnedFd, place: &[u8]) -> Option<Begun> {
        let number = |at: usize| place.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes);
        Some(Begun { file: file.into(), at: number(0)?, count: number(8)? })
    }

    /// Says that the run has ended now; false where the file is another one by now.
    pub fn end(&self) -> bool {
        let end = nanoseconds(sys::file::time_mark()).to_ne_bytes();
        let there = self.file.metadata().is_ok_and(|data| data.nlink() > 0);
        let place = |number| self.at + number * NOTE as u64 + 8;
        there && (0..self.count).all(|number| self.file.write_at(&end, place(number)).is_ok())
    }
}

/// Notes the end of a run.
pub(super) fn end(begun: Option<&Begun>, trees: &[GuardedTree], start: i128) {
    if begun.is_some_and(Begun::end) {
        return;
    }
    note(&noted(trees), start);
}

/// Notes that files of programs were put into a tree since a moment ([`time_mark`]).
///
/// [`time_mark`]: ringfence_sys::file::time_mark
pub fn written(tree: &Path, since: i128) {
    let above = tree.ancestors().skip(1).map(Noted::Above);
    note(&[Noted::Tree(tree)].into_iter().chain(above).collect::<Vec<_>>(), since);
}

/// Notes what began at a moment and has ended now.
fn note(trees: &[Noted<'_>], start: i128) {
    let Some(path) = file().filter(|_| !trees.is_empty()) else { return };
    let end = nanoseconds(sys::file::time_mark());
    let _ = open(&path).and_then(|mut file| append(&mut file, start, end, trees));
}

impl Guarding {
    /// Notes for later runs that this one goes on: of a launcher that took a start up again.
    pub fn begin(&mut self) {
        self.begun = begin(&self.trees, self.since);
    }

    /// Takes over the note of a start that noted the run by itself.
    pub fn begun(&mut self, begun: runs::Begun) {
        self.begun = Begun::of(begun);
    }

    /// What the launcher leaves to the warden, should it be killed: the note of this run, to be
    /// completed, as a message and a descriptor.
    pub fn will(&self) -> Option<(Vec<u8>, BorrowedFd<'_>)> {
        let begun = self.begun.as_ref()?;
        let message = [&[WILL][..], &begun.place()].concat();
        Some((message, begun.file().as_fd()))
    }

    /// Carries it out: the run has ended now.
    pub fn carry_out(will: &[u8], file: OwnedFd) {
        let begun = will.strip_prefix(&[WILL]).and_then(|place| Begun::left(file, place));
        begun.as_ref().map(Begun::end);
    }
}

/// Leaves out the older half.
fn shorten(path: &Path) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    File::open(path)?.read_to_end(&mut bytes)?;
    let half = bytes.len() / NOTE / 2 * NOTE;
    let beside = path.with_extension(std::process::id().to_string());
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(&beside)?.write_all(&bytes[half..])?;
    fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let past = Past(notes);
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
        let past = Past(notes.clone());
        assert!(past.holds(Path::new("/w/sub/.git/config"), &[], 60, &lately));
        assert!(past.holds(Path::new("/w/sub"), &[], 60, &lately));
        assert!(!past.holds(Path::new("/w/sub/.vscode/tasks.json"), &[], 60, &lately));
        assert!(!past.holds(Path::new("/w/sub/.vscode/tasks.json"), &[], 10, &lately));
        // Another run, of the same time, had no such grant.
        notes.extend(write(40, 70, "/w"));
        assert!(Past(notes).holds(Path::new("/w/sub/.vscode/tasks.json"), &[], 60, &lately));
    }

    #[test]
    fn what_a_run_prepared_in_a_smaller_tree_counts_where_another_can_move_it() {
        let run = |start, end, trees: &[&str]| -> Vec<u8> {
            let all = trees.iter().map(|tree| GuardedTree {
                tree: PathBuf::from(tree),
                absent: Vec::new(),
                nested: Vec::new(),
                lifted: Vec::new(),
            });
            let all: Vec<GuardedTree> = all.collect();
            noted(&all).into_iter().flat_map(|noted| noted.note(start, end)).collect()
        };
        let moved = Path::new("/w/y/.git/config");
        let prepared = run(10, 20, &["/w/sub"]);
        // Nothing could move it so far.
        assert!(!Past(prepared.clone()).holds(moved, &[], 15, &lately));
        let past = Past([prepared.clone(), run(30, 40, &["/w"])].concat());
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
        let early = Past([run(1, 9, &["/w"]), prepared.clone()].concat());
        assert!(!early.holds(moved, &[], 15, &lately));
        // Two moves, and the second run's tree is where the first put it.
        let twice = [prepared.clone(), run(30, 40, &["/w"]), run(50, 60, &["/w/y"])].concat();
        assert!(Past(twice).holds(moved, &[Path::new("/w/y")], 15, &lately));
        // From one tree of a run into another of its trees.
        let beside = Path::new("/v/.git/config");
        assert!(!Past(prepared.clone()).holds(beside, &[Path::new("/v")], 15, &lately));
        assert!(Past(prepared).holds(beside, &[Path::new("/v"), Path::new("/w/sub")], 15, &lately));
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
        drop(left);
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
