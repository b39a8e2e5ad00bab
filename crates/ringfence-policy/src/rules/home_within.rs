//! A home within a tree that ships as readable (`/opt/jenkins`, `/usr/src/app`): what is beside it is granted, and not the
//! tree, which would show all of the home.

use super::{Grant, Rules};
use crate::error::PolicyError;
use crate::files::FileView;
use crate::guard::plain;
use crate::merge::Entry;
use crate::policy::Access;
use crate::workspace::SYSTEM;
use std::path::{Path, PathBuf};

/// Directories of `/usr` and `/usr/local` that are somebody's home by the list of accounts (`daemon`, `games`), and no
/// user's own.
const OF_THE_SYSTEM: [&str; 14] = [
    "bin", "etc", "games", "include", "lib", "lib32", "lib64", "libexec", "libx32", "local", "man",
    "sbin", "share", "src",
];

/// So many names beside a home are granted one by one.
const MOST: usize = 1_000;

/// Whether a home is a user's own place, and not a directory of the system's that everybody needs.
pub(super) fn is_own(home: &Path, uid: u32, files: &dyn FileView) -> bool {
    let shared = |directory: &str| home == Path::new(directory);
    let name = home.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let of_programs =
        ["/usr", "/usr/local"].iter().any(|usr| home.parent() == Some(Path::new(usr)))
            && OF_THE_SYSTEM.contains(&name);
    let owner = files.owner_and_mode(home).map(|(owner, _)| owner);
    !of_programs && !shared("/") && !SYSTEM.iter().any(|&one| shared(one)) && owner == Some(uid)
}

impl Rules<'_, '_> {
    /// Grants what a tree holds beside the homes in it. What is made there later is in the next plan: the names are
    /// among what this one is derived from.
    pub(super) fn beside_homes(&mut self, entry: &Entry, tree: &Path) -> Result<(), PolicyError> {
        let within = |path: &Path| self.homes.iter().any(|home| home.starts_with(path));
        let (mut pending, mut granted, mut links) = (vec![tree.to_owned()], Vec::new(), Vec::new());
        while let Some(directory) = pending.pop() {
            // A home itself: all of it is private.
            if self.homes.contains(&directory) {
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
