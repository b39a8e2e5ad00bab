//! Entries of directories that did not change for long: one look at the directory stands for all of them.
//!
//! What kind of thing a name is, or that there is none, changes only with the directory that it is in. Many of
//! the names that a policy asks for are in few directories (a home, `/etc`, `/run`), and most of them are absent.

use crate::inputs::{Found, Inputs};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// From so many entries on, one look at their directory is less than a look at each.
const ENOUGH: usize = 2;

/// Paths and what was found there.
pub(super) type Entries = Vec<(PathBuf, Found)>;

/// A directory as it has been since before the first look, where all of the entries are in one, and the entries.
pub(super) type Group = (Option<(PathBuf, [u64; 5])>, Entries);

/// Puts entries of one directory together where it was as it is for `grain` nanoseconds before the first look;
/// what remains comes last.
pub(super) fn groups(inputs: &Inputs, needed: Entries, grain: u64) -> Vec<Group> {
    // By their bytes, as `Inputs`.
    let mut by_directory: BTreeMap<OsString, Entries> = BTreeMap::new();
    let mut rest = Vec::new();
    for (path, found) in needed {
        match path.parent().map(OsString::from).filter(|_| !found.is_within()) {
            None => rest.push((path, found)),
            Some(directory) => by_directory.entry(directory).or_default().push((path, found)),
        }
    }
    let mut groups: Vec<Group> = Vec::new();
    for (directory, entries) in by_directory {
        let directory = PathBuf::from(directory);
        let enough = entries.len() >= ENOUGH;
        match enough.then(|| inputs.settled(&directory, grain)).flatten() {
            Some(identity) => groups.push((Some((directory, identity)), entries)),
            None => rest.extend(entries),
        }
    }
    // What is in a directory is as it was where the directory is, and nothing is below a name that is not in it.
    for (path, found) in std::mem::take(&mut rest) {
        let above = if found == Found::Absent { there_above(&path) } else { None };
        let told_by = |group: &&mut Group| {
            group.0.as_ref().is_some_and(|(directory, identity)| {
                let same = directory.as_os_str() == path.as_os_str();
                above == Some(directory) || same && found.identity() == Some(identity)
            })
        };
        match groups.iter_mut().find(told_by) {
            Some((_, entries)) => entries.push((path, found)),
            None => rest.push((path, found)),
        }
    }
    groups.push((None, rest));
    groups
}

/// The first directory above a path that is there.
fn there_above(path: &Path) -> Option<&Path> {
    let absent = |path: &&Path| {
        path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound)
    };
    path.ancestors().skip(1).find(|above| !absent(above))
}
