//! What lies above a writable tree and leads into it: a workspace that is a directory of a repository has what git's
//! configuration names there, and what links at protected names lead to. It is out of reach from inside, but who writes
//! what it leads to writes what is executed or trusted in the repository.

use super::{Wanted, built_in_name, first};
use crate::facts::Kind;
use crate::planner::links;
use crate::planner::named;
use ringfence_policy::{Guarded, Source};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What of a repository is in git's own directory.
const GIT: &str = ".git/";

impl Wanted<'_, '_> {
    /// Protects what is led to from the directories above each writable tree, up to the topmost repository.
    pub(super) fn led_to_from_above(&mut self) {
        let mut known = BTreeSet::new();
        for tree in self.trees() {
            if self.kind_of_git(&tree) == Kind::File {
                self.of_git_file(&tree);
            }
            let above: Vec<&Path> = tree.ancestors().skip(1).collect();
            let is_top = |directory: &&Path| self.kind_of_git(directory) != Kind::Absent;
            let Some(topmost) = above.iter().rposition(is_top) else { continue };
            for directory in &above[..=topmost] {
                // In another tree it is that one's.
                if self.tree(directory).is_none() && known.insert(directory.to_path_buf()) {
                    self.names_above(directory);
                    self.repository_above(directory);
                }
            }
        }
    }

    fn kind_of_git(&self, directory: &Path) -> Kind {
        self.planning.paths.kind(&directory.join(".git"))
    }

    /// What the list's names lead to in a directory.
    fn names_above(&mut self, directory: &Path) {
        let policy = self.planning.policy;
        // There they have been looked at (`outside`), but for git's own directory.
        let home = [Some(&policy.home_dir), policy.account_home.as_ref()];
        let home = home.into_iter().flatten().any(|home| home == directory);
        let mut top = self.top(directory);
        for name in &policy.protected_names {
            let first = first(&name.name);
            if home && !name.name.starts_with(GIT) {
                continue;
            }
            let rule = built_in_name(&name.name);
            let found = match first.contains(['*', '?']) {
                true => top.matching(first).into_iter().map(|name| directory.join(name)).collect(),
                false if top.has(first) => self.found(directory, &name.name, &rule),
                false => continue,
            };
            for path in found {
                self.leads(&path, name.guarded, &rule);
            }
        }
    }

    /// What a name stands for below a directory.
    fn found(&mut self, directory: &Path, name: &str, rule: &Source) -> Vec<PathBuf> {
        match name.contains(['*', '?']) {
            true => self.expand(directory, name, rule),
            false => vec![directory.join(name)],
        }
    }

    /// What a path of the list's leads to, and of a directory there the links in it.
    fn leads(&mut self, path: &Path, guarded: Guarded, rule: &Source) {
        let Some(real) = links::real(self.planning.paths, path) else { return };
        let directory = real.path.clone();
        if !real.links.is_empty() {
            self.add_real(real, guarded, rule);
        }
        // What is in a tree is followed with all else there.
        if self.tree(&directory).is_none()
            && self.planning.paths.kind(&directory) == Kind::Directory
        {
            for link in self.led_by(&directory, guarded == Guarded::GitHooks) {
                self.add_file_behind(&link, guarded, rule);
            }
        }
    }

    /// What the configuration of a repository names, and of its submodules.
    fn repository_above(&mut self, top: &Path) {
        match self.kind_of_git(top) {
            Kind::Absent => return,
            Kind::File => self.of_git_file(top),
            Kind::Directory | Kind::Symlink(_) => {}
        }
        let modules = ".git/modules/**/config";
        let modules = self.expand(top, modules, &built_in_name(modules));
        let judged = modules.iter().map(PathBuf::as_path);
        match named::repositories(self.planning.paths, top, judged, self.pass) {
            Ok(all) => all.into_iter().for_each(|repository| self.configured(repository)),
            Err(unknown) => self.unknown = Some(unknown),
        }
    }

    /// What the list's names lead to in the repository that a `.git` file leads to.
    fn of_git_file(&mut self, top: &Path) {
        // What cannot be read is told of where its configuration is read.
        let Ok(all) = named::repositories(self.planning.paths, top, [].into_iter(), self.pass)
        else {
            return;
        };
        let own = all.iter().flat_map(|repository| &repository.files);
        let directories: BTreeSet<&Path> = own.filter_map(|file| file.parent()).collect();
        for directory in directories {
            for name in &self.planning.policy.protected_names {
                let Some(inner) = name.name.strip_prefix(GIT) else { continue };
                let rule = built_in_name(&name.name);
                for path in self.found(directory, inner, &rule) {
                    self.leads(&path, name.guarded, &rule);
                }
            }
        }
    }
}
