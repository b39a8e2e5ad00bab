//! Notes of runs that begin and end, in the file that [`past`](super::past) judges by.
//!
//! A note is written when a run begins, without an end, and completed in its place when the run has
//! ended: by the launcher, or by the warden when the launcher is gone, to whom the open file is left for
//! that. What ringfence itself puts into a tree for a program, when none runs (a commit, a revert, a
//! copy), is noted like a run ([`written`]).

use super::{Guarding, said};
use crate::plan::GuardedTree;
use ringfence_policy::shown;
use ringfence_start::runs::{self, ABOVE_A_TREE, LONGEST, NOTE};
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

/// Where something is noted of runs. Directories of the user's may be made, a home may not.
pub(super) fn state(name: &str) -> Option<PathBuf> {
    let home =
        ringfence_sys::identity::home().filter(|home| home.is_absolute() && home.is_dir())?;
    Some(crate::state::directory(&home).ok()?.join(name))
}

pub(super) fn file() -> Option<PathBuf> {
    state("runs")
}

pub(super) fn nanoseconds(time: i128) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
}

/// Of this build: one that has another hash takes notes of its own.
pub(super) fn hash(path: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.as_os_str().hash(&mut hasher);
    hasher.finish()
}

/// The same of a file that was granted, which is no hash of a path: what is below it is not meant.
pub(super) fn hash_of_file(path: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    (path.as_os_str(), "file").hash(&mut hasher);
    hasher.finish()
}

/// What is noted of places in a directory that is known by what it is; none where it is not there.
pub(super) fn within(directory: &Path) -> Option<impl Fn(u64) -> u64> {
    let data = directory.symlink_metadata().ok()?;
    // The halves that statx(2) gives, from what stat(2) has (makedev(3)).
    let device = data.dev();
    let major = device >> 8 & 0xfff | device >> 32 & !0xfff;
    let minor = device & 0xff | device >> 12 & 0xffff_ff00;
    Some(move |place| runs::within(major << 32 | minor, data.ino(), place))
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
/// judged, and its end says so.
pub(super) fn begin(trees: &[GuardedTree], start: i128) -> Option<Begun> {
    let trees = noted(trees);
    let path = file().filter(|_| !trees.is_empty())?;
    begin_in(&path, &trees, start).ok()
}

/// What a note is about.
#[derive(Clone, Copy)]
pub(super) enum Noted<'a> {
    /// A tree that a run can write to.
    Tree(&'a Path),
    /// A place in it that was granted by its name.
    Granted(&'a Path),
    /// A file in it that was.
    GrantedFile(&'a Path),
    /// A directory that a tree is in.
    Above(&'a Path),
    /// A tree, or a place in it that was granted, by what the tree is: it can be renamed.
    In(&'a Path, Granted<'a>),
}

/// What is known of a tree by its device and inode.
#[derive(Clone, Copy)]
pub(super) enum Granted<'a> {
    /// The tree itself.
    Nothing,
    /// A place in it, granted by its name: from its top.
    Place(&'a Path),
    /// A file in it.
    File(&'a Path),
}

impl Noted<'_> {
    /// The note, with an end if it takes one.
    pub(super) fn note(self, start: i64, end: i64) -> [u8; NOTE] {
        let (start, end) = match self {
            Noted::Tree(_) | Noted::In(_, Granted::Nothing) => (start, end),
            Noted::Granted(_) | Noted::GrantedFile(_) | Noted::In(..) => (-start, end),
            Noted::Above(_) => (start, ABOVE_A_TREE),
        };
        let mut note = [0; NOTE];
        note[..8].copy_from_slice(&start.to_ne_bytes());
        note[8..16].copy_from_slice(&end.to_ne_bytes());
        note[16..].copy_from_slice(&self.place().to_ne_bytes());
        note
    }

    /// The place, as it is noted.
    fn place(self) -> u64 {
        match self {
            Noted::Tree(place) | Noted::Granted(place) | Noted::Above(place) => hash(place),
            Noted::GrantedFile(file) => hash_of_file(file),
            // One that is gone is found by nothing.
            Noted::In(tree, _) => within(tree).map_or(0, |within| within(self.inner())),
        }
    }

    /// The place within its tree.
    fn inner(self) -> u64 {
        match self {
            Noted::In(_, Granted::Place(place)) => hash(place),
            Noted::In(_, Granted::File(file)) => hash_of_file(file),
            _ => hash(Path::new("")),
        }
    }
}

/// All that is noted of a run. What has an end comes first.
pub(super) fn noted(trees: &[GuardedTree]) -> Vec<Noted<'_>> {
    let granted = trees.iter().flat_map(|tree| {
        let files = tree.files.iter().map(|(file, _)| Noted::GrantedFile(file));
        tree.lifted.iter().map(|place| Noted::Granted(place)).chain(files)
    });
    let above: BTreeSet<_> = trees.iter().flat_map(|tree| tree.tree.ancestors().skip(1)).collect();
    let own = trees.iter().map(|tree| Noted::Tree(&tree.tree));
    let known = trees.iter().flat_map(|guarded| {
        let tree = &*guarded.tree;
        let places = guarded.lifted.iter().filter_map(move |at| at.strip_prefix(tree).ok());
        let files = guarded.files.iter().filter_map(move |(at, _)| at.strip_prefix(tree).ok());
        let granted = places.map(Granted::Place).chain(files.map(Granted::File));
        [Granted::Nothing].into_iter().chain(granted).map(move |what| Noted::In(tree, what))
    });
    own.chain(known).chain(granted).chain(above.into_iter().map(Noted::Above)).collect()
}

pub(super) fn begin_in(path: &Path, trees: &[Noted<'_>], start: i128) -> std::io::Result<Begun> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    let places = places(trees, &[]);
    let begin = || runs::begin(name.as_ptr().cast(), nanoseconds(start), &places, &[]);
    let begun = begin().or_else(|_| {
        // Made, shortened, or ended where a full disk cut a note off.
        open(path)?;
        begin().map_err(|errno| std::io::Error::from_raw_os_error(errno.into_raw()))
    });
    begun.map(Begun::of)?.ok_or_else(|| std::io::ErrorKind::NotFound.into())
}

/// As [`runs::begin`] takes them, by which these directories will be looked at.
fn places(trees: &[Noted<'_>], directories: &[PathBuf]) -> Vec<u8> {
    let place = |noted: &Noted<'_>| {
        let mark = match noted {
            Noted::Tree(_) | Noted::In(_, Granted::Nothing) => runs::TREE,
            Noted::Granted(_) | Noted::GrantedFile(_) | Noted::In(..) => runs::GRANTED,
            Noted::Above(_) => runs::ABOVE,
        };
        let known = |at: &Path| directories.iter().position(|directory| directory == at);
        let (which, place) = match noted {
            Noted::In(tree, _) => match known(tree).and_then(|at| u8::try_from(at + 1).ok()) {
                Some(which) => (which, noted.inner()),
                None => (0, noted.place()),
            },
            _ => (0, noted.place()),
        };
        [&[mark, which][..], &place.to_ne_bytes()].concat()
    };
    trees.iter().flat_map(place).collect()
}

/// Where runs are noted, and what is noted of one with these trees, for a start that does it by itself; none
/// where it cannot, nothing where there is nothing to note. It looks at these directories.
pub(crate) fn noted_by_image(trees: &[GuardedTree], directories: &[PathBuf]) -> Option<Vec<u8>> {
    let trees = noted(trees);
    if trees.is_empty() {
        return Some(Vec::new());
    }
    let path = file().filter(|_| trees.len() <= runs::MOST_PLACES)?;
    Some([path.as_os_str().as_bytes(), b"\0", &places(&trees, directories)].concat())
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

/// Notes the end of a run; a sentence where that cannot be.
pub(super) fn end(begun: Option<&Begun>, trees: &[GuardedTree], start: i128) -> Option<String> {
    if begun.is_some_and(Begun::end) {
        return None;
    }
    let unnoted = |why| unnoted("this run", &trees[0].tree, &why);
    note(&noted(trees), start).err().map(unnoted)
}

/// What a program can bring about, by filling the disk.
fn unnoted(what: &str, tree: &Path, why: &std::io::Error) -> String {
    let notes = file().unwrap_or_default();
    format!(
        "{what} cannot be noted in {} ({why}): what is in {} by it counts as yours in later runs; look at it before you \
         start one",
        shown::path(&notes),
        shown::path(tree)
    )
}

/// Notes that files of programs were put into a tree since a moment ([`time_mark`]).
///
/// [`time_mark`]: ringfence_sys::file::time_mark
pub fn written(tree: &Path, since: i128) {
    let above = tree.ancestors().skip(1).map(Noted::Above);
    let own = [Noted::Tree(tree), Noted::In(tree, Granted::Nothing)];
    let noted = note(&own.into_iter().chain(above).collect::<Vec<_>>(), since);
    if let Err(why) = noted {
        said::now(&unnoted("what was written now", tree, &why));
    }
}

/// Notes what began at a moment and has ended now.
fn note(trees: &[Noted<'_>], start: i128) -> std::io::Result<()> {
    let Some(path) = file().filter(|_| !trees.is_empty()) else { return Ok(()) };
    let end = nanoseconds(sys::file::time_mark());
    open(&path).and_then(|mut file| append(&mut file, start, end, trees))
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
