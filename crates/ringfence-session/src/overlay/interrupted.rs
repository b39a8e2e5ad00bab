//! A commit that was interrupted: known by its journal, finished by the next one, or dropped half done; and layers that were
//! not made to their end.

use super::apply::Apply;
use super::ours::Written;
use super::steps::Journal;
use super::{Done, Found, Overlay, Select, Tree, directory, kept};
use crate::error::Result;
use crate::snapshot::beneath::shown;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Layers are there without their record: somebody makes them just now, or was killed while they were made.
pub fn unfinished(session: &Path) -> bool {
    directory(session).exists() && !kept(session)
}

/// Somebody works with the layers of this session, or makes them.
pub fn in_use(session: &Path) -> bool {
    let file = File::open(directory(session).join("lock"));
    file.is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared).is_err())
}

impl Overlay {
    /// A commit was interrupted: committing again finishes it.
    pub fn interrupted(&self) -> bool {
        self.journal().exists() || self.applied().exists()
    }

    /// Finishes it, and says what it was to do.
    pub(super) fn finish(&self, force: bool, done: &mut Done) -> Result<Option<Journal>> {
        let journal = match Journal::read(&self.applied())? {
            Some(journal) => {
                self.clean(&journal)?;
                journal
            }
            None => {
                let Some(journal) = Journal::read(&self.journal())? else { return Ok(None) };
                self.carry_out(&journal, force, None, done)?;
                journal
            }
        };
        done.resumed = true;
        Ok(Some(journal))
    }

    /// What is to be committed beside what was finished: the paths that it did not settle. None: nothing more was asked
    /// for.
    pub(super) fn rest(&self, select: &Select, done: &Journal, all: &[Found]) -> Option<Select> {
        if all.is_empty() {
            // What is left of the layer goes, as after any commit of everything.
            return Some(Select { paths: Vec::new(), ..select.clone() });
        }
        let mut settled: Vec<PathBuf> = Vec::new();
        for (number, steps) in done.trees.iter().enumerate() {
            let root = self.record.trees.get(number).map_or(Path::new("/"), Tree::root);
            settled.extend(steps.iter().map(|step| root.join(shown(step.path()))));
        }
        let waits = |path: &PathBuf| all.iter().any(|found| found.path.starts_with(path));
        let was_named = |path: &PathBuf| settled.iter().any(|step| step.starts_with(path));
        let mut rest = select.clone();
        rest.paths.retain(|path| waits(path) || !was_named(path));
        (!rest.paths.is_empty()).then_some(rest)
    }

    /// Removes what it left in the real trees under its temporary name. A tree that is gone has nothing of it.
    pub(super) fn sweep(&self) -> Result<()> {
        let Some(journal) = Journal::read(&self.journal())? else { return Ok(()) };
        let temporary = self.temporary();
        for (number, steps) in journal.trees.iter().enumerate() {
            let Some(tree) = self.record.trees.get(number).filter(|_| !steps.is_empty()) else {
                continue;
            };
            let Ok(lower) = tree.open() else { continue };
            let upper = self.open_layer(number)?;
            let apply = Apply {
                upper: &upper,
                lower: &lower,
                root: tree.root(),
                top: tree.top.as_ref(),
                temporary: &temporary,
                force: false,
                written: Written::default(),
                kept: Vec::new(),
                opened: Vec::new(),
            };
            apply.sweep(steps)?;
        }
        Ok(())
    }
}
