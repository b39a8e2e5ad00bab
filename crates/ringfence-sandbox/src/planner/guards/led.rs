//! What protected names lead to: who writes that, or a link on the way to it, writes what is executed or trusted.

use super::{Protected, Wanted};
use crate::facts::Kind;
use crate::planner::links;
use ringfence_policy::files::Real;
use ringfence_policy::{Access, Guarded, Source};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Links that are followed of one directory.
pub(super) const MOST_LINKS: usize = 1024;

/// Where rules of our own come from.
const BUILT_IN: &str = "built in";

impl Wanted<'_, '_> {
    /// Something in a writable tree that a protected name leads to; who grants exactly it lifts that.
    pub(super) fn add_led_to(&mut self, path: PathBuf, guarded: Guarded, rule: &Source) {
        let policy = self.planning.policy;
        let granted = policy.paths.iter().any(|rule| {
            rule.access == Access::Write && rule.pattern.is_none() && rule.path == path
        });
        if !granted && !policy.may_appear.contains(&path) && !self.grants.trees.contains_key(&path)
        {
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

    /// Something that git's configuration names, and what that leads to; a program where it is none that is a directory.
    pub(super) fn add_named(&mut self, path: PathBuf, guarded: Guarded, rule: &Source) {
        let absent = guarded == Guarded::Program;
        let counts = match self.planning.paths.kind(&path) {
            _ if !absent && guarded != Guarded::ExistingOnly => true,
            _ if self.tree(&path).is_none() => self.leads_in(&path, absent),
            // What a directory is named for is not known.
            Kind::Directory => false,
            Kind::Absent => absent,
            Kind::File | Kind::Symlink(_) => true,
        };
        if !counts {
            return;
        }
        let followed = guarded == Guarded::GitHooks || self.tree(&path).is_none();
        match links::real(self.planning.paths, &path).filter(|_| followed) {
            Some(real) => {
                if guarded == Guarded::GitHooks {
                    self.hooks.insert(real.path.clone());
                }
                self.add_real(real, guarded, rule);
            }
            None => self.add_led_to(path, guarded, rule),
        }
    }

    /// Whether a path of the user's own outside of all writable trees leads to a file in one, or to one that may be made.
    pub(super) fn leads_in(&self, path: &Path, absent: bool) -> bool {
        let paths = self.planning.paths;
        let home = &self.planning.policy.home_dir;
        let own = home.parent().is_some() && path.starts_with(home);
        let real = own.then(|| links::real(paths, path)).flatten();
        let in_tree = real.filter(|real| self.tree(&real.path).is_some());
        in_tree.is_some_and(|real| match paths.kind(&real.path) {
            Kind::File => true,
            kind => absent && kind == Kind::Absent,
        })
    }

    /// Where links lead that stand at protected names, or in a directory that is protected, whether that is there or could
    /// be made. Links that lead out of all writable trees are nothing that could be written.
    pub(super) fn led_to(&mut self) {
        let mut rules: Vec<_> =
            self.rules.iter().map(|(path, rule)| (path.clone(), rule.clone())).collect();
        while let Some((path, (_, guarded, rule))) = rules.pop() {
            let links = match self.planning.paths.kind(&path) {
                Kind::Symlink(_) => {
                    // What is in a directory is led to as well, by links in it too.
                    rules.extend(self.add_directory_behind(&path, guarded, &rule));
                    vec![path]
                }
                Kind::Directory if guarded == Guarded::GitHooks || self.holds_hooks(&path) => {
                    if self.planning.paths.unlisted(&path) {
                        self.close(path.clone(), &rule);
                    }
                    self.led_by(&path, true)
                }
                // What a rule of the user's protects is not known to be run.
                Kind::Directory if guarded != Guarded::Private && rule.origin == BUILT_IN => {
                    self.led_by(&path, false)
                }
                _ => continue,
            };
            for link in links {
                self.add_file_behind(&link, guarded, &rule);
            }
        }
    }

    /// The file that a link leads to, or that may be made there, and the links on the way to it.
    pub(super) fn add_file_behind(&mut self, link: &Path, of_link: Guarded, rule: &Source) {
        let paths = self.planning.paths;
        let Kind::Symlink(_) = paths.kind(link) else { return };
        let Some(real) = links::real(paths, link) else { return };
        match paths.kind(&real.path) {
            Kind::File => self.add_real(real, Guarded::ExistingOnly, rule),
            // A word of another meaning names what is there.
            Kind::Absent if of_link != Guarded::ExistingOnly || self.listed.contains(link) => {
                self.add_real(real, Guarded::Program, rule);
            }
            _ => {}
        }
    }

    /// The directory that a link at a protected name leads to, or that may be made there, and the links on the way to it:
    /// all that is in it has that name. Tells of it where nothing else protects it.
    fn add_directory_behind(
        &mut self,
        link: &Path,
        guarded: Guarded,
        rule: &Source,
    ) -> Option<(PathBuf, Protected)> {
        let paths = self.planning.paths;
        let listed = self.listed.contains(link);
        let real = listed.then(|| links::real(paths, link)).flatten()?;
        let counts = match paths.kind(&real.path) {
            Kind::Directory => true,
            Kind::Absent => guarded != Guarded::ExistingOnly,
            Kind::File | Kind::Symlink(_) => false,
        };
        if !counts || self.rules.contains_key(&real.path) {
            return None;
        }
        let path = real.path.clone();
        self.add_real(real, guarded, rule);
        self.rules.get_key_value(&path).map(|(path, rule)| (path.clone(), rule.clone()))
    }

    /// The links in a protected directory that count; git runs no sample of a hook.
    pub(super) fn led_by(&mut self, directory: &Path, hooks: bool) -> Vec<PathBuf> {
        let mut links = self.links_of(directory);
        links.retain(|link| !hooks || !link.as_os_str().as_bytes().ends_with(b".sample"));
        links
    }

    /// The links in a directory, as many as are followed.
    pub(super) fn links_of(&mut self, directory: &Path) -> Vec<PathBuf> {
        let mut links = self.planning.paths.links(directory, MOST_LINKS + 1);
        if links.len() > MOST_LINKS {
            links.truncate(MOST_LINKS);
            self.crowded = Some(directory.to_owned());
        }
        links.into_iter().map(|name| directory.join(name)).collect()
    }

    /// Whether a directory is one of hooks that is no repository's own.
    fn holds_hooks(&self, path: &Path) -> bool {
        let name = path.file_name();
        name.is_some_and(|name| name == ".husky" || name == ".githooks")
            || self.hooks.contains(path)
    }
}
