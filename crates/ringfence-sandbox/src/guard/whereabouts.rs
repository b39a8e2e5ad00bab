//! Where the writable trees are by the end of a run.
//!
//! A tree, or a directory above it, can be renamed while a run goes on: by its user, or by another sandbox in whose tree
//! it lies. The command has the directory, not the name. So the tops of trees are held by descriptor while it runs, which
//! tells where each is (`/proc/self/fd`, proc_pid_fd(5)), and what was found at a path before the run is looked at where
//! that is now. What stands at the old path by then is none of the run's, and is left alone.

use super::{Directory, Guarding, Identity, Stamp, said, short};
use crate::plan::{GuardStep, GuardedTree};
use ringfence_policy::shown;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where a tree is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// At its path.
    Same,
    /// At another one.
    At(PathBuf),
    /// It was removed, with all it held.
    Removed,
    /// Not at its path, and not known where.
    Lost,
}

/// What comes after a look at all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// They are still there.
    Settled,
    /// They have been renamed meanwhile, and it is looked anew.
    Again,
    /// So often that it is not.
    Restless,
}

impl Turn {
    /// After so many looks of at most so many, after each of which something was elsewhere.
    pub fn of(turn: usize, most: usize) -> Turn {
        if turn < most { Turn::Again } else { Turn::Restless }
    }
}

/// Opens what is at a path, with no link on the way.
fn top(path: &Path) -> Option<File> {
    Directory::place(path).ok().map(|Directory(top)| top)
}

fn identity(file: &File) -> Option<Identity> {
    file.metadata().ok().map(|data| (data.dev(), data.ino()))
}

/// The directories that the trees are now.
pub(super) fn tops(trees: &[GuardedTree]) -> BTreeMap<PathBuf, Identity> {
    let of = |tree: &GuardedTree| Some((tree.tree.clone(), identity(&top(&tree.tree)?)?));
    trees.iter().filter_map(of).collect()
}

impl Guarding {
    /// Holds the tops of the trees from now on: before the command can run. Who does not hold them takes it that all are
    /// at their paths, which in a view they are.
    pub fn hold(&self) {
        self.hold_these(self.tops.keys().filter_map(|path| Some((path.clone(), top(path)?))));
    }

    /// The same with what was opened already.
    pub fn hold_these(&self, tops: impl Iterator<Item = (PathBuf, File)>) {
        let same = |(path, top): &(PathBuf, File)| self.tops.get(path) == identity(top).as_ref();
        self.held_tops.replace(Some(tops.filter(same).collect()));
    }

    /// Lets go of them: of a child, whose view they would lead out of.
    pub fn let_go(&self) {
        self.held_tops.take();
    }

    /// Whether the tree that a path is in is where it was.
    pub fn in_place(&self, path: &Path) -> bool {
        let of = |tree: &&PathBuf| path.starts_with(tree);
        let tree = self.tops.keys().filter(of).max_by_key(|tree| tree.as_os_str().len());
        tree.is_none_or(|tree| self.place(tree) == Place::Same)
    }

    fn place(&self, tree: &Path) -> Place {
        let held = self.held_tops.borrow();
        let (Some(held), Some(is)) = (held.as_ref(), self.tops.get(tree)) else {
            return Place::Same;
        };
        let is_at = |path: &Path| top(path).and_then(|top| identity(&top)).as_ref() == Some(is);
        // Where nothing can be opened, it is not known either that it was renamed.
        if is_at(tree) || short::came() {
            return Place::Same;
        }
        let Some(top) = held.get(tree) else { return Place::Lost };
        match fs::read_link(format!("/proc/self/fd/{}", top.as_raw_fd())) {
            Ok(path) if is_at(&path) => Place::At(path),
            _ if top.metadata().is_ok_and(|data| data.nlink() == 0) => Place::Removed,
            _ => Place::Lost,
        }
    }

    /// Where each of the trees is that are not where they were.
    pub(super) fn whereabouts(&self) -> BTreeMap<PathBuf, Place> {
        let places = self.trees.iter().map(|tree| (tree.tree.clone(), self.place(&tree.tree)));
        let mut places: BTreeMap<_, _> = places.collect();
        if places.values().all(|place| *place == Place::Same) {
            places.clear();
        }
        places
    }

    /// The same run with its trees where they are; nothing where they are where they were.
    pub(super) fn elsewhere(&self, places: &BTreeMap<PathBuf, Place>) -> Option<Guarding> {
        if places.is_empty() {
            return None;
        }
        // Where what was at a path is; nothing where that is not to be looked at. A tree can lie in another.
        let at = |path: &Path| match path.ancestors().find_map(|top| Some((top, places.get(top)?)))
        {
            None | Some((_, Place::Same)) => Some(path.to_owned()),
            Some((top, Place::At(now))) => {
                let rest = path.strip_prefix(top).unwrap_or(Path::new(""));
                Some(if rest.as_os_str().is_empty() { now.clone() } else { now.join(rest) })
            }
            Some((_, Place::Removed | Place::Lost)) => None,
        };
        let all = |paths: &BTreeSet<PathBuf>| paths.iter().filter_map(|path| at(path)).collect();
        let trees = self.trees.iter().filter_map(|tree| moved(tree, &at)).collect();
        let step = |(step, saved): &(GuardStep, _)| {
            Some((GuardStep { path: at(&step.path)?, ..step.clone() }, Clone::clone(saved)))
        };
        let stamp = |(path, stamp): (&PathBuf, &Stamp)| Some((at(path)?, *stamp));
        let identity = |(path, is): (&PathBuf, &Identity)| Some((at(path)?, *is));
        // What was taken for removed where it went with its tree.
        let removed = |(path, was): (&PathBuf, &Option<Identity>)| {
            let path = at(path)?;
            (was.is_none() || super::identity(&path) != *was).then_some((path, *was))
        };
        let former = self.trees.iter().map(|tree| tree.tree.clone()).chain(self.former.clone());
        Some(Guarding {
            steps: self.steps.iter().filter_map(step).collect(),
            // What is renamed is changed by that: nothing of the trees themselves is known to be untouched.
            parents: self.parents.iter().filter_map(stamp).collect(),
            noted: all(&self.noted),
            trees,
            tops: BTreeMap::new(),
            held_tops: RefCell::default(),
            former: former.collect(),
            project: self.project.as_deref().and_then(at),
            since: self.since,
            started: self.started,
            taken: Cell::new(self.taken.get()),
            room: Cell::new(self.room.get()),
            begun: None,
            ended: Cell::new(true),
            word: RefCell::default(),
            removed: RefCell::new(self.removed.borrow().iter().filter_map(removed).collect()),
            awaited: RefCell::new(all(&self.awaited.borrow())),
            unsure: self.unsure.iter().filter_map(identity).collect(),
            missed: RefCell::new(self.missed.take().iter().filter_map(|path| at(path)).collect()),
            asides: RefCell::new(all(&self.asides.borrow())),
            held: all(&self.held),
            inherits: self.inherits,
        })
    }
}

/// A tree with its paths where they are.
fn moved(tree: &GuardedTree, at: &impl Fn(&Path) -> Option<PathBuf>) -> Option<GuardedTree> {
    let all = |paths: &[PathBuf]| paths.iter().filter_map(|path| at(path)).collect();
    Some(GuardedTree {
        tree: at(&tree.tree)?,
        absent: tree.absent.clone(),
        nested: tree.nested.clone(),
        lifted: all(&tree.lifted),
        files: tree.files.iter().filter_map(|(file, is)| Some((at(file)?, *is))).collect(),
        granted: all(&tree.granted),
    })
}

/// Tells where trees are that are elsewhere; a sentence for each of which it is not known.
pub(super) fn told(places: &BTreeMap<PathBuf, Place>, turn: Turn) -> Vec<String> {
    let told = |(tree, place): (&PathBuf, &Place)| {
        let tree = shown::path(tree);
        match (place, turn) {
            (Place::Same, _) | (_, Turn::Again) => None,
            (Place::Removed, _) => {
                said::now(&format!(
                    "{tree} was removed while the run went on; if it was moved to another file system, that is a copy, in which \
                     protected names were not looked after: look at them before you use it"
                ));
                None
            }
            (Place::At(now), Turn::Settled) => {
                said::now(&format!(
                    "{tree} was renamed to {} while the run went on: protected names were looked after there",
                    shown::path(now)
                ));
                None
            }
            (Place::At(_), Turn::Restless) | (Place::Lost, _) => Some(format!(
                "{tree} was renamed while the run went on, and where it is now is not known: what was made in it at \
                 protected names is still there, look at it before you use it"
            )),
        }
    };
    places.iter().filter_map(told).collect()
}
