//! Writes kept apart: what a run changed in its writable trees, until it is committed or dropped.
//!
//! During the run the kernel's overlayfs shows each tree with a layer on top (see the launcher);
//! afterwards this module reads the layer and carries it over.
//!
//! # What holds
//! - **Nothing is written to a real tree but by a commit**, and a commit reaches names beneath the
//!   tree's own descriptor only: links in the layer or in the tree lead nowhere.
//! - **Three sides are looked at**: the layer, the real tree now, and when it was last changed.
//!   What the host changed since the run began is a conflict, and a commit with a conflict does
//!   nothing. The host's change is known by the change time of the file, which no program can set
//!   back; for a file that is gone, by its directory's. Not seen: a clock that was set back, and a
//!   directory that was replaced by an older one, as a whole, and then written to.
//! - **Protected names stay in the layer**, as do sockets, pipes and devices; each is named.
//! - **A commit is journalled**: killed at any point, or stopped by a full disk, it is finished by
//!   committing again. Until all of it is done, the layer is whole.
//! - Kept: bytes, modes, times, symbolic links, hard links within the layer, holes, the user's
//!   extended attributes, names of any bytes. Set-user-ID bits are not given to new files.

mod apply;
mod clean;
mod copy;
mod equal;
mod in_use;
mod interrupted;
mod judge;
mod layer;
mod ours;
mod record;
mod remnant;
mod renamed;
mod steps;
mod top;

pub use crate::snapshot::{Kind, What};
pub use copy::{Copied, begin_as, can_be_copied};
pub use in_use::InUse;
pub use interrupted::{in_use, unfinished};
pub use layer::{Change, Trouble};
pub use record::{End, Guard, Names, Record, Tree};

use crate::error::{Result, SessionError};
use crate::place;
use crate::snapshot::beneath::{self, shown};
use crate::wrote::Writing;
use apply::Apply;
use in_use::lock;
use layer::Layer;
use ours::{Ours, Written};
use rustix::fd::OwnedFd;
use std::fs::DirBuilder;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use steps::Journal;

/// Where the overlay of a session is.
pub fn directory(session: &Path) -> PathBuf {
    session.join("overlay")
}

/// Changes of this session wait to be committed or dropped.
pub fn kept(session: &Path) -> bool {
    directory(session).join("record.json").exists()
}

/// Makes the layers for a run: `N/upper` and `N/work` for each tree.
///
/// # Errors
/// The file system's; there is one already.
pub fn begin(session: &Path, record: &Record) -> Result<InUse> {
    begin_with(session, record.clone(), |at, record| {
        for (number, tree) in record.trees.iter_mut().enumerate() {
            tree.top = top::make(tree, &at.join(number.to_string()).join("upper"));
        }
        Ok(())
    })
}

/// Makes them, with something in them from the beginning.
fn begin_with(
    session: &Path,
    mut record: Record,
    fill: impl FnOnce(&Path, &mut Record) -> Result<()>,
) -> Result<InUse> {
    let at = directory(session);
    place::private_directory(session)?;
    DirBuilder::new()
        .mode(0o700)
        .create(&at)
        .map_err(|error| SessionError::call("mkdir", &at, error))?;
    let made = layers(&at, &record).and_then(|in_use| {
        fill(&at, &mut record)?;
        // By it others see that something waits to be committed: all of it, or nothing.
        record.write(&at.join("record.json"))?;
        Ok(in_use)
    });
    if made.is_err() {
        // Nothing runs: nothing waits either.
        let _ = clean::whole(&at);
        let _ = std::fs::remove_dir(session);
    }
    made
}

/// The directories. Until their record is there, and it comes last, they are nobody's to commit.
fn layers(at: &Path, record: &Record) -> Result<InUse> {
    let lock = lock(at)?;
    for number in 0..record.trees.len() {
        for name in ["upper", "work"] {
            let path = at.join(number.to_string()).join(name);
            let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
            made.map_err(|error| SessionError::call("mkdir", &path, error))?;
        }
    }
    Ok(lock)
}

/// Removes the layers of a session, whatever is in them.
///
/// # Errors
/// The session runs; the file system's.
pub fn remove(session: &Path) -> Result<()> {
    let at = directory(session);
    if !at.exists() {
        return Ok(());
    }
    let _lock = lock(&at)?;
    clean::whole(&at)
}

/// Removes the layers when nothing was written to them, so that a launch that failed leaves
/// nothing.
///
/// # Errors
/// The session runs; the file system's.
pub fn remove_if_empty(session: &Path) -> Result<bool> {
    let at = directory(session);
    if !at.exists() {
        return Ok(true);
    }
    let record = Record::read(&at.join("record.json"))?;
    for (number, tree) in record.trees.iter().enumerate() {
        let path = at.join(number.to_string()).join("upper");
        let upper = beneath::open_root(&path).map_err(|e| SessionError::call("open", &path, e))?;
        let names = layer::names(&upper).map_err(|e| SessionError::call("open", &path, e))?;
        if !names.is_empty() || tree.top.as_ref().is_some_and(|top| top.is_changed(&upper)) {
            return Ok(false);
        }
    }
    remove(session).map(|()| true)
}

/// A path of a tree; of the tree itself, without a slash behind it.
fn below(root: &Path, path: &[u8]) -> PathBuf {
    if path.is_empty() { root.to_owned() } else { root.join(shown(path)) }
}

/// What to commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Select {
    /// These paths, absolute, and what is below them; none: everything.
    pub paths: Vec<PathBuf>,
    /// What the host changed meanwhile is replaced.
    pub force: bool,
}

/// A change, with the tree it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Number of the tree.
    pub tree: usize,
    /// Absolute.
    pub path: PathBuf,
    /// It.
    pub change: Change,
}

/// What a commit did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// What is now in the real trees.
    pub committed: Vec<Found>,
    /// What the host changed meanwhile: then nothing was committed.
    pub conflicts: Vec<Found>,
    /// What stays in the layer, with the reason in its trouble.
    pub left: Vec<Found>,
    /// What could not be done wholly, a sentence each.
    pub kept: Vec<String>,
    /// An interrupted commit was finished first.
    pub resumed: bool,
    /// So many changes were no part of that one, and wait as they did: nobody asked for them.
    pub waiting: usize,
    /// Nothing waits any more.
    pub empty: bool,
}

/// The changes of a session.
#[derive(Debug)]
pub struct Overlay {
    at: PathBuf,
    record: Record,
}

impl Overlay {
    /// Opens the overlay of a session.
    ///
    /// # Errors
    /// There is none; it is damaged or of a later version.
    pub fn open(session: &Path) -> Result<Overlay> {
        if !kept(session) {
            let name = session.file_name().unwrap_or_default().display();
            return Err(SessionError::usage(format!("session {name} keeps no changes apart")));
        }
        let at = directory(session);
        let record = Record::read(&at.join("record.json"))?;
        Ok(Overlay { at, record })
    }

    /// What was known at its start.
    pub fn record(&self) -> &Record {
        &self.record
    }

    fn journal(&self) -> PathBuf {
        self.at.join("journal.json")
    }

    /// The same file once all steps are done, and only the layer is to be cleaned.
    fn applied(&self) -> PathBuf {
        self.at.join("applied.json")
    }

    fn temporary(&self) -> Vec<u8> {
        format!(".ringfence-commit-{}", self.record.session).into_bytes()
    }

    /// The layer of a tree, for reading what is in it.
    pub fn layer(&self, tree: usize) -> PathBuf {
        self.at.join(tree.to_string()).join("upper")
    }

    /// The real directory that a tree's paths are relative to.
    pub fn root(&self, tree: usize) -> &Path {
        self.record.trees.get(tree).map_or(Path::new("/"), Tree::root)
    }

    fn open_layer(&self, tree: usize) -> Result<OwnedFd> {
        let path = self.layer(tree);
        beneath::open_root(&path).map_err(|error| SessionError::call("open", &path, error))
    }

    /// All changes, in the order of trees and paths.
    ///
    /// # Errors
    /// The file system's.
    pub fn changes(&self) -> Result<Vec<Found>> {
        let (mut all, ours) = (Vec::new(), Ours::read(&self.at)?);
        for (number, tree) in self.record.trees.iter().enumerate() {
            let (upper, lower) = (self.open_layer(number)?, tree.open()?);
            let changes = self.scan(tree, ours.of(number), &upper, &lower)?;
            all.extend(changes.into_iter().map(|change| Found {
                tree: number,
                path: below(tree.root(), &change.path),
                change,
            }));
        }
        Ok(all)
    }

    fn scan(
        &self,
        tree: &Tree,
        ours: ours::Known,
        upper: &OwnedFd,
        lower: &OwnedFd,
    ) -> Result<Vec<Change>> {
        let since = self.record.since;
        let mut layer = Layer { upper, lower, since, ours, changes: Vec::new() };
        layer.scan(tree.only().map(OsStrExt::as_bytes), tree.top.as_ref())?;
        let mut changes = layer.changes;
        changes.sort_by(|a, b| a.path.cmp(&b.path));
        renamed::moved(upper, lower, &mut changes);
        judge::judge(&self.record, tree, (upper, lower), &self.temporary(), &mut changes)?;
        Ok(changes)
    }

    /// Drops everything.
    ///
    /// # Errors
    /// A commit was interrupted (unless `force`), the session runs; the file system's.
    pub fn discard(self, force: bool) -> Result<()> {
        let _lock = lock(&self.at)?;
        if self.interrupted() && !force {
            return Err(SessionError::usage(
                "a commit of these changes was interrupted; commit again to finish it, or discard \
                 with --force to leave the trees half committed",
            ));
        }
        let swept = self.sweep();
        clean::whole(&self.at)?;
        swept
    }

    /// Carries changes over to the real trees. An interrupted commit is finished first, and that is all where none are
    /// named: what it left out waits for a word of its own.
    ///
    /// # Errors
    /// A path that is no change; the file system's: then committing again goes on where it stopped.
    pub fn commit(&self, select: &Select) -> Result<Done> {
        let writing = Writing::begin();
        let done = self.commit_all(select);
        (0..self.record.trees.len()).for_each(|tree| writing.ends_in(self.root(tree)));
        done
    }

    fn commit_all(&self, select: &Select) -> Result<Done> {
        let _lock = lock(&self.at)?;
        let mut done = Done::default();
        let finished = self.finish(select.force, &mut done)?;
        if !self.at.exists() {
            done.empty = true;
            return Ok(done);
        }
        let all = self.changes()?;
        let rest = finished.map(|journal| self.rest(select, &journal, &all));
        if let Some(None) = &rest {
            done.waiting = all.len();
            return Ok(done);
        }
        let select = rest.flatten().unwrap_or_else(|| select.clone());
        let select = &select;
        let chosen = self.choose(&all, select)?;
        let trouble = |found: &&Found| found.change.trouble.clone();
        let conflict = |found: &&Found| matches!(trouble(found), Some(Trouble::Conflict(_)));
        let left = |found: &&Found| matches!(trouble(found), Some(Trouble::Left(_)));
        done.left = chosen.iter().copied().filter(|found| left(found)).cloned().collect();
        let conflicts = chosen.iter().copied().filter(|found| conflict(found) && !select.force);
        done.conflicts = conflicts.cloned().collect();
        if !done.conflicts.is_empty() {
            return Ok(done);
        }
        let commit: Vec<&Found> = chosen.into_iter().filter(|found| !left(found)).collect();
        done.committed = commit.iter().copied().cloned().collect();
        let whole = commit.len() == all.len();
        self.enough_space(&commit)?;
        let (mut trees, mut written, ours) = (Vec::new(), Vec::new(), Ours::read(&self.at)?);
        for (number, tree) in self.record.trees.iter().enumerate() {
            let (upper, lower) = (self.open_layer(number)?, tree.open()?);
            let since = self.record.since;
            let ours = ours.of(number);
            let layer = Layer { upper: &upper, lower: &lower, since, ours, changes: Vec::new() };
            let mine = commit.iter().filter(|found| found.tree == number);
            let mine: Vec<&Change> = mine.map(|found| &found.change).collect();
            let steps = steps::of(&layer, &mine)?;
            written.push(Written::by(&steps, &lower, |path, dir| layer.later(path, dir)));
            trees.push(steps);
        }
        let journal = Journal::new(trees, whole);
        journal.write(&self.journal())?;
        self.carry_out(&journal, select.force, Some(written), &mut done)?;
        if !whole && self.changes()?.is_empty() {
            clean::whole(&self.at)?;
        }
        done.empty = !self.at.exists();
        Ok(done)
    }

    /// Of one that was interrupted nothing is `written` by us.
    fn carry_out(
        &self,
        journal: &Journal,
        force: bool,
        written: Option<Vec<Written>>,
        done: &mut Done,
    ) -> Result<()> {
        let (temporary, mut ours) = (self.temporary(), Ours::read(&self.at)?);
        let (resumed, mut written) = (written.is_none(), written.unwrap_or_default().into_iter());
        for (number, steps) in journal.trees.iter().enumerate() {
            let written = written.next().unwrap_or_default();
            let Some(tree) = self.record.trees.get(number).filter(|_| !steps.is_empty()) else {
                continue;
            };
            let (upper, lower) = (self.open_layer(number)?, tree.open()?);
            let mut apply = Apply {
                upper: &upper,
                lower: &lower,
                root: tree.root(),
                top: tree.top.as_ref(),
                temporary: &temporary,
                force,
                written,
                kept: Vec::new(),
                opened: Vec::new(),
            };
            if resumed {
                apply.sweep(steps)?;
            }
            apply.run(steps)?;
            done.kept.append(&mut apply.kept);
            ours.take(number, apply.written);
        }
        if !journal.whole {
            ours.write(&self.at)?;
        }
        let (journalled, applied) = (self.journal(), self.applied());
        std::fs::rename(&journalled, &applied)
            .map_err(|error| SessionError::call("rename", &applied, error))?;
        crate::snapshot::fault::point("applied");
        self.clean(journal)
    }

    /// The chosen changes, and the directories that they need.
    fn choose<'a>(&self, all: &'a [Found], select: &Select) -> Result<Vec<&'a Found>> {
        if select.paths.is_empty() {
            return Ok(all.iter().collect());
        }
        for path in &select.paths {
            if !all.iter().any(|found| found.path.starts_with(path)) {
                return Err(SessionError::usage(format!("{} was not changed", path.display())));
            }
        }
        let covered = |found: &Path| select.paths.iter().any(|path| found.starts_with(path));
        let needed = |found: &Found| {
            let directory = found.change.kind == Kind::Directory;
            let made = matches!(found.change.what, What::Added | What::Kind);
            let above = select.paths.iter().any(|path| path.starts_with(&found.path));
            directory && made && above
        };
        let chosen: Vec<&Found> =
            all.iter().filter(|found| covered(&found.path) || needed(found)).collect();
        for found in &chosen {
            let Some(anew) = &found.change.anew else { continue };
            let tree = self.record.trees.get(found.tree).map_or(Path::new("/"), Tree::root);
            let anew = tree.join(shown(anew));
            if !covered(&anew) {
                return Err(SessionError::usage(format!(
                    "{} lies in {}, which was deleted and made anew inside; commit that as a whole",
                    found.path.display(),
                    anew.display()
                )));
            }
        }
        Ok(chosen)
    }

    /// Refuses before the first step what certainly does not fit. Where blocks are shared nobody
    /// knows.
    fn enough_space(&self, commit: &[&Found]) -> Result<()> {
        const SHARE_BLOCKS: [i64; 3] = [0x9123_683e, 0x5846_5342, 0xca45_1a4e];
        for (number, tree) in self.record.trees.iter().enumerate() {
            let lower = tree.open()?;
            let failed = |error| SessionError::call("fstatfs", tree.root(), error);
            let kind = rustix::fs::fstatfs(&lower).map_err(failed)?.f_type;
            let space = rustix::fs::fstatvfs(&lower).map_err(failed)?;
            let mine = commit.iter().filter(|found| found.tree == number);
            let placed = mine.filter(|found| found.change.what != What::Deleted);
            let needed: u64 = placed.map(|found| found.change.size).sum();
            // Holes need nothing: only a layer that is really that large counts.
            let layer = self.layer(number);
            let real = clean::allocated(&layer);
            if needed.min(real) > space.f_bavail.saturating_mul(space.f_frsize)
                && !SHARE_BLOCKS.contains(&{ kind })
            {
                return Err(SessionError::usage(format!(
                    "no space is left in {} for {} bytes; nothing was committed: free some, then \
                     commit again",
                    tree.root().display(),
                    needed.min(real)
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_let_go_is_free_whoever_has_a_copy_of_the_open_file() {
        let at = std::env::temp_dir().join(format!("ringfence-in-use-{}", std::process::id()));
        std::fs::create_dir_all(&at).expect("a directory");
        let held = lock(&at).expect("nobody has it");
        assert!(lock(&at).is_err(), "it is held");
        let copy = held.0.try_clone().expect("a descriptor");
        drop(held);
        let again = lock(&at);
        std::fs::remove_dir_all(&at).expect("a directory of ours");
        assert!(again.is_ok(), "{again:?}");
        drop(copy);
    }
}
