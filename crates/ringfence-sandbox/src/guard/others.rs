//! What was at protected paths before runs that go on: a run that begins beside one keeps that to put it back, not
//! what the other one may have left there in the meantime.
//!
//! Each run that may have to put something back tells it to those that begin later, in a file of the user's own state
//! (`before/`), which it has locked for as long as it lives: the kernel takes the lock back from one that was killed.
//! Without that, what a run changed would become, by the end of another that began meanwhile, what was "there before":
//! put back when the first one has taken it away.

use super::notes;
use super::saved::{CAREFULLY, Saved};
use super::work::expand;
use crate::plan::{GuardStep, GuardedTree};
use ringfence_policy::Guarded;
use ringfence_start::runs::share;
use ringfence_sys as sys;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What runs tell is read up to here, all of it together: each start beside them has to.
const LARGEST: u64 = 64 << 20;
/// What is not finished after so long was left by one that was killed.
const UNFINISHED: Duration = Duration::from_secs(60);

/// Paths that a run's word is about: its trees, and what of its steps is in none of them. The first line of the word, so
/// that one that is about other places is read no further: each start reads those of all sandboxes that run.
type About<'a> = Vec<Named<'a>>;

/// What a run found.
#[derive(Debug, Serialize, Deserialize)]
struct Told<'a> {
    /// Change times from here on can be its own, in nanoseconds since 1970.
    since: i128,
    steps: Vec<(Named<'a>, Cow<'a, Saved>)>,
    trees: Vec<Tree<'a>>,
}

/// What it needs of a [`GuardedTree`].
#[derive(Debug, Serialize, Deserialize)]
struct Tree<'a> {
    tree: Named<'a>,
    absent: Cow<'a, [(Cow<'static, str>, Guarded)]>,
    lifted: Vec<Named<'a>>,
    #[serde(default)]
    files: Vec<Named<'a>>,
}

/// A path, which may be no text.
#[derive(Debug, Serialize, Deserialize)]
struct Named<'a>(#[serde(with = "super::saved::path")] Cow<'a, Path>);

/// What this run has told; gone with it.
#[derive(Debug)]
pub(super) struct Word {
    path: PathBuf,
    /// Locked.
    _file: File,
}

impl Drop for Word {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn directory() -> Option<PathBuf> {
    notes::state("before")
}

/// Tells runs that begin later what was there before this one. Where not even a name can be made, they take what they
/// find.
pub(super) fn tell(
    since: i128,
    steps: &[(GuardStep, Saved)],
    trees: &[GuardedTree],
) -> Option<Word> {
    if steps.is_empty() && trees.is_empty() {
        return None;
    }
    tell_in(&directory()?, since, steps, trees).ok()
}

fn tell_in(
    directory: &Path,
    since: i128,
    steps: &[(GuardStep, Saved)],
    trees: &[GuardedTree],
) -> io::Result<Word> {
    fn named(path: &PathBuf) -> Named<'_> {
        Named(Cow::from(path))
    }
    let told = Told {
        since,
        steps: steps
            .iter()
            .map(|(step, saved)| (named(&step.path), Cow::Borrowed(saved)))
            .collect(),
        trees: trees
            .iter()
            .map(|guarded| Tree {
                tree: named(&guarded.tree),
                absent: Cow::from(&guarded.absent),
                lifted: guarded.lifted.iter().map(named).collect(),
                files: guarded.files.iter().map(|(file, _)| named(file)).collect(),
            })
            .collect(),
    };
    let alone =
        |step: &&GuardStep| !trees.iter().any(|guarded| step.path.starts_with(&guarded.tree));
    let steps = steps.iter().map(|(step, _)| step).filter(alone).map(|step| named(&step.path));
    let about: About<'_> = trees.iter().map(|guarded| named(&guarded.tree)).chain(steps).collect();
    let text = [serde_json::to_vec(&about)?, serde_json::to_vec(&told)?].join(&b'\n');
    let name = format!("{since}-{}", std::process::id());
    // Read by nobody before it is whole.
    let (path, unfinished) = (directory.join(&name), directory.join(format!(".{name}")));
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    let mut file = options.open(&unfinished).or_else(|_| {
        crate::state::make_directory(directory)?;
        options.open(&unfinished)
    })?;
    let told = share(file.as_raw_fd(), 0)
        .map_err(|errno| io::Error::from_raw_os_error(errno.into_raw()))
        // A full disk: what is not whole says that there was something to tell.
        .and_then(|()| file.write_all(&text).or_else(|_| file.set_len(0)))
        .and_then(|()| fs::rename(&unfinished, &path));
    if told.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    told.map(|()| Word { path, _file: file })
}

/// What runs that go on have told, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Others {
    /// When each began; nothing else where what it told is too much, or cannot be read.
    told: Vec<(i128, Option<Told<'static>>)>,
    /// All that was looked at.
    names: BTreeSet<OsString>,
}

impl Others {
    /// Reads what is about these places, or what is in them. What those left that were killed is removed.
    pub fn read(ours: &BTreeSet<&Path>) -> Others {
        directory().map(|directory| Others::read_from(&directory, ours)).unwrap_or_default()
    }

    /// Reads it again, if there is more by now.
    pub fn again(&self, ours: &BTreeSet<&Path>) -> Option<Others> {
        let directory = directory()?;
        let more = !names(&directory).is_subset(&self.names);
        more.then(|| Others::read_from(&directory, ours))
    }

    fn read_from(directory: &Path, ours: &BTreeSet<&Path>) -> Others {
        let names = names(directory);
        let mut room = LARGEST;
        let paths = names.iter().map(|name| directory.join(name));
        let mut told: Vec<_> = paths.filter_map(|path| told(&path, ours, &mut room)).collect();
        told.sort_by_key(|(since, _)| *since);
        Others { told, names }
    }

    /// The paths at which they found something, and what; the oldest first.
    pub fn found(&self) -> impl Iterator<Item = (i128, &Path, &Saved)> {
        let told = self.told.iter().filter_map(|(since, told)| Some((*since, told.as_ref()?)));
        told.flat_map(|(since, told)| {
            let found = told.steps.iter().filter(|(_, saved)| **saved != Saved::Nothing);
            found.map(move |(path, saved)| (since, &*path.0, &**saved))
        })
    }

    /// What was at a path before the first of them that can have changed it, where it has this now; nothing where
    /// none can. Of those alone that began before `until`: what a later one found can be ours.
    pub fn before(&self, path: &Path, now: &Saved, until: i128) -> Option<Saved> {
        let earlier = self.told.iter().take_while(|(since, _)| *since < until);
        earlier.into_iter().find_map(|(since, told)| match told {
            Some(told) => told.before(path, now),
            // By whom it was changed is not known.
            None => {
                (without(path, now, &|at| is_changed(at, *since)) != *now).then_some(Saved::Unknown)
            }
        })
    }
}

fn names(directory: &Path) -> BTreeSet<OsString> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name()).collect()
}

/// What one has told that goes on, and when it began.
fn told(
    path: &Path,
    ours: &BTreeSet<&Path>,
    room: &mut u64,
) -> Option<(i128, Option<Told<'static>>)> {
    let mut options = fs::OpenOptions::new();
    let mut file = options.read(true).write(true).custom_flags(CAREFULLY).open(path).ok()?;
    let data = file.metadata().ok()?;
    if !data.is_file() || data.uid() != sys::identity::user() {
        return None;
    }
    if !sys::lock::is_held(file.as_fd(), 0).unwrap_or(true) {
        // Between its making and its lock somebody may look: what another one is about to finish stays.
        let unfinished = path.file_name()?.as_encoded_bytes().starts_with(b".");
        let young = || data.modified().ok()?.elapsed().ok().map(|age| age < UNFINISHED);
        if !unfinished || young() == Some(false) {
            let _ = fs::remove_file(path);
        }
        return None;
    }
    let since = path.file_name()?.to_str()?.split('-').next()?.parse().ok()?;
    let text = room.checked_sub(data.len()).and_then(|left| {
        let mut text = Vec::new();
        Read::by_ref(&mut file).take(data.len()).read_to_end(&mut text).ok()?;
        *room = left;
        Some(text)
    });
    let lines = text.as_ref().and_then(|text| {
        let end = text.iter().position(|&byte| byte == b'\n')?;
        Some((&text[..end], &text[end + 1..]))
    });
    let about = lines.and_then(|(about, _)| serde_json::from_slice::<About<'_>>(about).ok());
    if about.is_some_and(|about| !about.iter().any(|place| concerns(&place.0, ours))) {
        *room += data.len();
        return None;
    }
    Some((since, lines.and_then(|(_, told)| serde_json::from_slice(told).ok())))
}

/// Whether a path is one of these, in one of them, or above one.
fn concerns(path: &Path, ours: &BTreeSet<&Path>) -> bool {
    let below = || ours.range(path..).next().is_some_and(|own| own.starts_with(path));
    path.ancestors().any(|above| ours.contains(above)) || below()
}

fn is_changed(at: &Path, since: i128) -> bool {
    at.symlink_metadata().is_ok_and(|data| super::changed(&data) >= since)
}

impl Told<'_> {
    fn before(&self, path: &Path, now: &Saved) -> Option<Saved> {
        let changed = |at: &Path| is_changed(at, self.since);
        if let Some((_, saved)) = self.steps.iter().find(|(known, _)| *known.0 == *path) {
            return Some(saved.clone().into_owned());
        }
        self.trees.iter().find_map(|tree| {
            let relative = path.strip_prefix(&tree.tree.0).ok()?;
            let file = || tree.files.iter().any(|file| *file.0 == *path);
            if tree.lifted.iter().any(|lifted| path.starts_with(&lifted.0)) || file() {
                return None;
            }
            // It was not there, and is none of the user's.
            let absent = tree.absent.iter().any(|(name, _)| match name.contains(['*', '?']) {
                true => expand(&tree.tree.0, name).iter().any(|at| at == path),
                false => relative == Path::new(&**name),
            });
            if absent {
                return Some(Saved::Nothing);
            }
            // In a repository below: that run judges it when it has ended.
            let below = relative.components().skip(1).any(|part| part.as_os_str() == ".git");
            below.then(|| without(path, now, &changed))
        })
    }
}

/// What is left of what is at a path without what was changed.
fn without(path: &Path, now: &Saved, changed: &dyn Fn(&Path) -> bool) -> Saved {
    match now {
        Saved::Directory(entries) => {
            let left = entries.iter().map(|(name, entry)| {
                let at = path.join(name);
                (name.clone(), without(&at, entry, changed))
            });
            Saved::Directory(left.filter(|(_, entry)| *entry != Saved::Nothing).collect())
        }
        _ if changed(path) => Saved::Nothing,
        _ => now.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Found;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn what_was_there_before_a_run_is_told_for_as_long_as_it_lives() {
        let place = std::env::temp_dir().join(format!("ringfence-before-{}", std::process::id()));
        let (told, tree) = (place.join("state/before"), place.join("w"));
        let ours = BTreeSet::from([tree.as_path()]);
        fs::create_dir_all(tree.join("sub/.git")).expect("a directory");
        fs::write(tree.join("sub/.git/config"), "x").expect("a file");
        let file = |text: &str| Saved::File { bytes: text.into(), mode: 0o644 };
        let step = |name: &str, saved: &Saved| {
            let rule = crate::planner::built_in("a test");
            let found = Found::Present;
            (
                GuardStep { path: tree.join(name), found, guarded: Guarded::Plain, rule },
                saved.clone(),
            )
        };
        let guarded = GuardedTree {
            tree: tree.clone(),
            absent: vec![(".envrc".into(), Guarded::Plain), (".husky".into(), Guarded::Plain)],
            nested: Vec::new(),
            lifted: vec![tree.join(".husky")],
            files: Vec::new(),
            granted: Vec::new(),
        };
        let trees = [guarded];
        let before = |name: &str| {
            let path = tree.join(name);
            let now = Saved::of(&path).expect("readable");
            Others::read_from(&told, &ours).before(&path, &now, i128::MAX)
        };
        assert_eq!(before("kept"), None);
        let first = [step("kept", &file("one"))];
        let since = i128::from(i64::MAX);
        let early = tell_in(&told, 5, &first, &trees).expect("told");
        let late =
            tell_in(&told, since, &[step("kept", &file("two")), step("new", &file("two"))], &[]);
        assert_eq!(before("kept"), Some(file("one")));
        // What one that began later has found can be our own command's.
        let others = Others::read_from(&told, &ours);
        assert_eq!(others.before(&tree.join("new"), &file("two"), since), None);
        assert_eq!(others.before(&tree.join("kept"), &file("two"), since), Some(file("one")));
        assert_eq!(before("new"), Some(file("two")));
        assert_eq!(before(".envrc"), Some(Saved::Nothing));
        assert_eq!((before("other"), before(".husky")), (None, None));
        // Changed since the first began; and nothing that the late one did.
        assert_eq!(before("sub/.git/config"), Some(Saved::Nothing));
        drop(early);
        assert_eq!(before("kept"), Some(file("two")));
        assert_eq!((before("sub/.git/config"), before(".envrc")), (None, None));
        // Names that are no text are told like others, and so is where links lead.
        let odd = Path::new(std::ffi::OsStr::from_bytes(b"caf\xe9"));
        let link = Saved::Link(odd.to_owned());
        let step = step("odd", &link);
        let odd_tree = GuardedTree {
            tree: tree.join(odd),
            absent: vec![(".envrc".into(), Guarded::Plain)],
            nested: Vec::new(),
            lifted: vec![tree.join(odd).join(odd)],
            files: Vec::new(),
            granted: Vec::new(),
        };
        let third = tell_in(&told, 1, &[step], &[odd_tree]).expect("told");
        assert_eq!(before("odd"), Some(link));
        let others = Others::read_from(&told, &ours);
        let path = tree.join(odd).join(".envrc");
        assert_eq!(others.before(&path, &file("new"), i128::MAX), Some(Saved::Nothing));
        drop(third);
        // One that cannot be read is known to have begun: by whom what was changed since then was changed is not.
        fs::write(tree.join("kept"), "new").expect("a file");
        fs::write(tree.join("old"), "old").expect("a file");
        let fourth = tell_in(&told, 2, &[], &[]).expect("told");
        fourth._file.set_len(0).expect("cut off");
        let others = Others::read_from(&told, &ours);
        assert_eq!(
            others.before(&tree.join("kept"), &file("new"), i128::MAX),
            Some(Saved::Unknown)
        );
        assert_eq!(others.before(&tree.join("gone"), &Saved::Nothing, i128::MAX), None);
        let later = fs::metadata(tree.join("old")).map(|data| super::super::changed(&data) + 1);
        drop(fourth);
        let fifth = tell_in(&told, later.expect("a file"), &[], &[]).expect("told");
        fifth._file.set_len(0).expect("cut off");
        assert_eq!(before("old"), None, "changed before it began");
        drop(fifth);
        // One that is about other places is read no further, whatever it says.
        let elsewhere = ["x", "w/odd"].map(|name| BTreeSet::from([place.join(name)]));
        let told_to = |ours: &BTreeSet<PathBuf>| {
            let ours = ours.iter().map(PathBuf::as_path).collect();
            Others::read_from(&told, &ours).told.len()
        };
        assert_eq!(elsewhere.each_ref().map(told_to), [0, 0]);
        let above = BTreeSet::from([place.clone()]);
        let inside = BTreeSet::from([tree.join("kept"), tree.join("a")]);
        assert_eq!([&above, &inside].map(told_to), [1, 1]);
        // One that was killed says nothing any more.
        let Word { path, _file } = &late.expect("told");
        assert!(path.exists());
        let copy = told.join("killed");
        fs::copy(path, &copy).expect("a copy that nobody has locked");
        assert_eq!(before("kept"), Some(file("two")));
        assert!(!copy.exists() && path.exists());
        fs::remove_dir_all(place).expect("a directory of ours");
    }
}
