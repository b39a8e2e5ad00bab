//! What protected names lead to: who writes that, or a link on the way to it, writes what is executed or trusted.

use super::Wanted;
use crate::facts::Kind;
use crate::planner::links;
use ringfence_policy::files::Real;
use ringfence_policy::{Access, Guarded, Source};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

impl Wanted<'_, '_> {
    /// Something in a writable tree that a protected name leads to; who grants exactly it lifts that.
    pub(super) fn add_led_to(&mut self, path: PathBuf, guarded: Guarded, rule: &Source) {
        let granted = self.planning.policy.paths.iter().any(|rule| {
            rule.access == Access::Write && rule.pattern.is_none() && rule.path == path
        });
        if !granted && !self.grants.trees.contains_key(&path) {
            self.add(path, guarded, rule);
        }
    }

    /// The same, and the links by which it is led to, so that they go on leading there.
    pub(super) fn add_real(&mut self, real: Real, guarded: Guarded, rule: &Source) {
        self.add_links(&real, rule);
        self.add_led_to(real.path, guarded, rule);
    }

    /// The links on the way to something.
    pub(super) fn add_links(&mut self, real: &Real, rule: &Source) {
        for (link, _) in &real.links {
            self.add_led_to(link.clone(), Guarded::Plain, rule);
        }
    }

    /// Where links lead that stand at protected names, or as hooks in a directory of hooks. Links that lead out of all
    /// writable trees, or to what is not there, are nothing that could be written.
    pub(super) fn led_to(&mut self) {
        let rules: Vec<_> =
            self.rules.iter().map(|(path, rule)| (path.clone(), rule.clone())).collect();
        for (path, (_, guarded, rule)) in rules {
            let links = match self.planning.paths.kind(&path) {
                Kind::Symlink(_) => vec![path],
                Kind::Directory if guarded == Guarded::GitHooks || holds_hooks(&path) => {
                    if self.planning.paths.unlisted(&path) {
                        self.close(path.clone(), &rule);
                    }
                    let names = self.planning.paths.list(&path);
                    let hooks =
                        names.into_iter().filter(|name| !name.as_bytes().ends_with(b".sample"));
                    hooks.map(|name| path.join(name)).collect()
                }
                _ => continue,
            };
            for link in links {
                self.add_file_behind(&link, &rule);
            }
        }
    }

    /// The file that a link leads to, and the links on the way to it.
    fn add_file_behind(&mut self, link: &Path, rule: &Source) {
        let paths = self.planning.paths;
        let Kind::Symlink(_) = paths.kind(link) else { return };
        let real = links::real(paths, link).filter(|real| paths.kind(&real.path) == Kind::File);
        if let Some(real) = real {
            self.add_real(real, Guarded::ExistingOnly, rule);
        }
    }
}

/// Directories of hooks that are no repository's own.
fn holds_hooks(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == ".husky" || name == ".githooks")
}
