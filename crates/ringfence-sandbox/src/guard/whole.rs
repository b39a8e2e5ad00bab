//! What a run removed or moved away together with the directory that it was in: where no mount holds a protected name,
//! nothing keeps a directory on the way to it either.

use super::directory::Directory;
use super::work::Work;
use super::{Saved, locked};
use crate::plan::GuardStep;
use ringfence_policy::{Guarded, shown};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

impl Work<'_> {
    /// Puts back what was at a path, with the directories on the way from the top of its tree.
    pub(super) fn gone_whole(&mut self, step: &GuardStep, saved: &Saved) {
        if matches!(saved, Saved::Nothing | Saved::Unknown) || is_gits_to_remove(step) {
            return;
        }
        let trees = self.guarding.trees.iter().map(|tree| tree.tree.as_path());
        let inside = |tree: &&Path| step.path.starts_with(tree) && step.path != **tree;
        let outermost = trees.filter(inside).min_by_key(|tree| tree.as_os_str().len());
        let Some(tree) = outermost.map(Path::to_owned) else { return };
        // A tree that is elsewhere took all along.
        let Ok(top) = locked::open(self, &tree) else { return };
        let (Some(parent), Some(name)) = (step.path.parent(), step.path.file_name()) else {
            return;
        };
        // Nothing is made for what cannot be put there.
        let made = match saved.is_partly_stamped() {
            true => Err(io::Error::other("it was too large to be kept")),
            false => self.make_way(top, &tree, parent),
        };
        match made {
            Ok(directory) => self.put_back(&directory.at(name), &step.path, saved, &Saved::Nothing),
            Err(why) => self.said.open(format!(
                "{} was removed inside with the directory that it was in, is protected, and cannot be restored: {why}",
                shown::path(&step.path)
            )),
        }
    }

    /// Makes the directories from the top of a tree to a path. What the run put in the way of one is moved away.
    fn make_way(&mut self, top: Directory, tree: &Path, to: &Path) -> io::Result<Directory> {
        let (mut directory, mut path) = (top, PathBuf::from(tree));
        for name in to.strip_prefix(tree).into_iter().flatten() {
            path.push(name);
            directory = self.enter_or_make(&directory, name, &path)?;
        }
        Ok(directory)
    }

    fn enter_or_make(
        &mut self,
        directory: &Directory,
        name: &OsStr,
        path: &Path,
    ) -> io::Result<Directory> {
        let at = directory.at(name);
        if at.symlink_metadata().is_ok_and(|data| !data.is_dir() && self.suspect(path, &data)) {
            self.take_away(&at, path, "created");
        }
        match fs::create_dir(&at) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let in_the_way = || io::Error::other(format!("{} is in the way", shown::path(path)));
        directory.enter(name).ok_or_else(in_the_way)
    }
}

/// Whether git itself removes such a path with its directory, as with a worktree or a submodule.
fn is_gits_to_remove(step: &GuardStep) -> bool {
    let parts: Vec<&OsStr> = step.path.iter().collect();
    let within =
        |pair: &[&OsStr]| pair[0] == ".git" && (pair[1] == "worktrees" || pair[1] == "modules");
    matches!(step.guarded, Guarded::GitCommon | Guarded::GitState) || parts.windows(2).any(within)
}
