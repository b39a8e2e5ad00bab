//! A home within a tree that ships as readable (`/opt/jenkins`, `/usr/src/app`): what is beside it is granted, and not the
//! tree, which would show all of the home.

use super::{Grant, Rules};
use crate::error::PolicyError;
use crate::guard::plain;
use crate::merge::Entry;
use crate::policy::Access;
use crate::workspace::SYSTEM;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Directories of `/usr` and `/usr/local` that are somebody's home by the list of accounts (`daemon`, `games`), and no
/// user's own.
const OF_THE_SYSTEM: [&str; 14] = [
    "bin", "etc", "games", "include", "lib", "lib32", "lib64", "libexec", "libx32", "local", "man",
    "sbin", "share", "src",
];

/// So many names beside a home are granted one by one.
const MOST: usize = 1_000;

/// Whether a home's name is none of a directory of the system's that everybody needs.
fn is_apart(home: &Path) -> bool {
    let name = home.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let above = ["/usr", "/usr/local"].iter().any(|usr| home.parent() == Some(Path::new(usr)));
    let of_programs = above && OF_THE_SYSTEM.contains(&name);
    !of_programs && home.parent().is_some() && !SYSTEM.iter().any(|&one| home == Path::new(one))
}

impl Rules<'_, '_> {
    /// The homes in a tree that are their user's own, where the rule is not about one: `~/x`. Whose they are is asked here
    /// alone, since a plan holds only as long as what was asked has not changed.
    pub(super) fn homes_within(&self, entry: &Entry, tree: &Path) -> Vec<PathBuf> {
        let about = entry.text.as_bytes().starts_with(b"~");
        let homes = self.homes.iter().filter(|(home, _)| !about && home.starts_with(tree));
        let own = homes.filter(|(home, user)| {
            let owner = || self.resolver.files().owner_and_mode(home).map(|(owner, _)| owner);
            is_apart(home) && owner() == Some(*user)
        });
        own.map(|(home, _)| home.clone()).collect()
    }

    /// Grants what a tree holds beside the homes in it. What is made there later is in the next plan: the names are
    /// among what this one is derived from.
    pub(super) fn beside_homes(
        &mut self,
        entry: &Entry,
        tree: &Path,
        homes: &[PathBuf],
    ) -> Result<(), PolicyError> {
        let within = |path: &Path| homes.iter().any(|home| home.starts_with(path));
        let (mut pending, mut granted, mut links) = (vec![tree.to_owned()], Vec::new(), Vec::new());
        while let Some(directory) = pending.pop() {
            // A home itself: all of it is private.
            if homes.contains(&directory) {
                continue;
            }
            let files = self.resolver.files();
            let names = files.names(&directory, MOST + 1).unwrap_or_default();
            if names.len() > MOST {
                let why = format!(
                    "your home is in {}, and is not shown with it; what is beside it is granted name by name, and \
                     there are over {MOST}: put the home elsewhere (HOME), or grant what is needed by a profile of your own",
                    directory.display()
                );
                return Err(PolicyError::value(&self.merged.source(entry), why));
            }
            for path in names.iter().map(|name| directory.join(name)) {
                match files.link(&path) {
                    _ if within(&path) => pending.push(path),
                    Ok(None) => granted.push(path),
                    Ok(Some(target)) => links.push((path, target)),
                    Err(_) => {}
                }
            }
        }
        let source = self.merged.source(entry);
        self.grants.extend(granted.into_iter().map(|path| Grant {
            rule: plain(Access::Read, path, true, source.clone()),
            links: Vec::new(),
            found: false,
        }));
        self.beside.extend::<Vec<(PathBuf, PathBuf)>>(links);
        Ok(())
    }
}
