//! Linked worktrees of a repository (`git worktree`): which of their `commondir` files a mount need not hold.
//!
//! Git removes a worktree with its own directory, `.git/worktrees/NAME`, and no mount in that lets it go. Where the
//! worktree is checked out in a writable tree, below its top, a mount of `commondir` keeps nothing that is not open
//! anyway: who is inside can as well write the `.git` file of the checkout. There it is put right at the end, as that
//! file is; not with `--strict`. A worktree elsewhere is somebody's whom no run may lead astray: its `commondir` is held, and so is the
//! `gitdir` that says where it is, by which a run would have the next one take it for one in the tree.

use super::Wanted;
use crate::facts::Kind;
use crate::planner::links::real;
use ringfence_policy::gitread::Said;
use ringfence_policy::path::normal;
use ringfence_policy::protect::{git_common_allowed, git_file_target, git_of_worktree, git_path};
use ringfence_policy::{Guarded, Source};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

impl Wanted<'_, '_> {
    /// The `commondir` files of worktrees in writable trees; of the others `gitdir` is protected as well.
    pub(super) fn worktrees(&mut self) -> BTreeSet<PathBuf> {
        let common = |(path, rule): (&PathBuf, &(PathBuf, Guarded, Source))| {
            let is = rule.1 == Guarded::GitCommon
                && self.planning.paths.kind(path) == Kind::File
                && path.parent().and_then(git_of_worktree).is_some();
            is.then(|| (path.clone(), rule.2.clone()))
        };
        let all: Vec<(PathBuf, Source)> = self.rules.iter().filter_map(common).collect();
        let (inside, elsewhere): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(path, _)| self.is_inside(path) == Some(true));
        for (path, rule) in elsewhere {
            self.add(path.with_file_name("gitdir"), Guarded::ExistingOnly, &rule);
        }
        inside.into_iter().map(|(path, _)| path).collect()
    }

    /// Whether a worktree and its checkout lead to each other, and that is in a writable tree, below its top, where
    /// `.git` is held.
    fn is_inside(&self, common: &Path) -> Option<bool> {
        let paths = self.planning.paths;
        let read = |path: &Path| match self.pass.read(|| paths.git(path)) {
            Said::Bytes(bytes) => Some(bytes),
            Said::Nothing | Said::Unknown(_) => None,
        };
        let own = common.parent()?;
        git_common_allowed(common, &read(common)?)?;
        let named = read(&own.join("gitdir"))?;
        let checkout = normal(&own.join(git_path(&named)?));
        let directory = checkout.parent().filter(|_| checkout.ends_with(".git"))?;
        let straight =
            real(paths, directory).is_some_and(|real| real.exists && real.path == directory);
        let leads = straight && paths.kind(&checkout) == Kind::File && {
            let file = read(&checkout)?;
            normal(&directory.join(git_file_target(&file)?)) == own
        };
        Some(leads && self.tree(&checkout).is_some_and(|tree| tree != directory))
    }
}
