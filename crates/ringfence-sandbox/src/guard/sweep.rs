//! Looks for protected names below the top of a writable tree, after a run.
//!
//! The top is guarded name by name; repositories and settings further down cannot be known
//! without walking the tree, which a start must not do. After the run the directories are
//! walked, nearest first, within a budget that grows with the run's length, so that the walk
//! stays a small part of it. What was created or changed since the start and is executed or
//! trusted by host programs is moved away.

use super::{Directory, Work, changed, expand, harmless};
use crate::guard::saved::Saved;
use crate::plan::GuardedTree;
use crate::planner::glob;
use ringfence_policy::Guarded;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Entries looked at in any case, and for each millisecond of the run.
const ENTRIES: usize = 200;
const ENTRIES_PER_MILLISECOND: usize = 40;
/// What makes git take a directory for a repository.
const PARTS_OF_A_REPOSITORY: [&str; 3] = ["HEAD", "objects", "refs"];
/// A directory costs as much as this many entries.
const DIRECTORY: usize = 20;

pub(super) fn sweep(work: &mut Work<'_>, tree: &GuardedTree) {
    // First component → what may follow it.
    let mut names: BTreeMap<&OsStr, Vec<(&Path, Guarded)>> = BTreeMap::new();
    let mut wild: Vec<(&OsStr, Guarded)> = Vec::new();
    for (name, guarded) in &tree.nested {
        let name = Path::new(name.as_ref());
        let Some(first) = name.iter().next() else { continue };
        if first.as_bytes().contains(&b'*') {
            wild.push((first, *guarded));
        } else {
            names.entry(first).or_default().push((name, *guarded));
        }
    }
    let elapsed = work.guarding.started.elapsed().as_millis();
    let milliseconds = usize::try_from(elapsed).unwrap_or(usize::MAX);
    let mut budget = milliseconds.saturating_mul(ENTRIES_PER_MILLISECOND).saturating_add(ENTRIES);
    let mut queue = VecDeque::from([tree.tree.clone()]);
    while let Some(path) = queue.pop_front() {
        let Some(left) = budget.checked_sub(DIRECTORY) else { return };
        budget = left;
        let Ok(directory) = Directory::open(&path) else { continue };
        // In small pieces: libc would read a thousand names of which a few are looked at.
        let Ok(entries) = ringfence_sys::directory::Names::of(&directory.at("")) else { continue };
        let top = path == tree.tree;
        let mut bare = 0;
        for (name, kind) in entries {
            // One directory may be larger than all that is left.
            let Some(left) = budget.checked_sub(1) else { return };
            budget = left;
            bare += usize::from(PARTS_OF_A_REPOSITORY.iter().any(|part| name == *part));
            let wild: Vec<_> = wild.iter().filter(|(pattern, _)| matches(pattern, &name)).collect();
            // Those that were there at the start have been judged by themselves.
            let judged = |name: &OsStr| {
                let path = path.join(name);
                work.guarding.steps.iter().any(|(step, _)| step.path == path)
            };
            if !wild.is_empty() && judged(&name) {
                continue;
            }
            for (_, guarded) in wild {
                look(work, &path, Path::new(&name), *guarded);
            }
            if let Some(candidates) = names.get(name.as_os_str()) {
                if !top {
                    below(work, &directory, &path, &name, candidates);
                }
            } else if kind.is_directory(|| path.join(&name)) {
                queue.push_back(path.join(name));
            }
        }
        if bare == PARTS_OF_A_REPOSITORY.len() {
            // A bare repository: git takes hooks and configuration from the directory itself.
            look(work, &path, Path::new("hooks"), Guarded::GitHooks);
            look(work, &path, Path::new("config"), Guarded::GitConfig);
        }
    }
}

fn matches(pattern: &OsStr, name: &OsStr) -> bool {
    pattern.to_str().zip(name.to_str()).is_some_and(|(pattern, name)| glob(pattern, name))
}

/// A directory holds the first component of protected names.
fn below(
    work: &mut Work<'_>,
    directory: &Directory,
    path: &Path,
    first: &OsStr,
    candidates: &[(&Path, Guarded)],
) {
    let at = directory.at(first);
    let Ok(data) = at.symlink_metadata() else { return };
    if first == ".git" && !data.is_dir() {
        if changed(&data) >= work.guarding.since {
            work.git_link(&at, &path.join(first));
        }
        return;
    }
    if data.is_symlink() {
        // What it leads to is looked at where it really is; the link itself is what a host
        // program would follow.
        if changed(&data) >= work.guarding.since {
            work.take_away(&at, &path.join(first), "created or changed");
        }
        return;
    }
    for (relative, guarded) in candidates {
        for found in expand(path, &relative.to_string_lossy()) {
            if let Ok(relative) = found.strip_prefix(path) {
                look(work, path, relative, *guarded);
            }
        }
    }
}

/// Judges one protected name below a directory.
fn look(work: &mut Work<'_>, path: &Path, relative: &Path, guarded: Guarded) {
    let shown = path.join(relative);
    let Some((inner, name)) = open_parent(path, relative) else { return };
    let at = inner.at(name);
    let Ok(data) = at.symlink_metadata() else { return };
    let recent = |data: &fs::Metadata| changed(data) >= work.guarding.since;
    match guarded {
        Guarded::GitHooks if data.is_dir() => {
            let Ok(hooks) = fs::read_dir(&at) else { return };
            let changed_ones: Vec<_> = hooks
                .flatten()
                .filter(|hook| !hook.file_name().as_bytes().ends_with(b".sample"))
                .filter(|hook| hook.path().symlink_metadata().is_ok_and(|data| recent(&data)))
                .map(|hook| hook.file_name())
                .collect();
            for hook in changed_ones {
                work.take_away(&at.join(&hook), &shown.join(&hook), "created or changed");
            }
        }
        _ if !recent_within(&at, &data, work.guarding.since) => {}
        _ => {
            let now = Saved::of(&at).unwrap_or(Saved::Unknown);
            if !harmless(guarded, &shown, &now, &Saved::Nothing) {
                work.take_away(&at, &shown, "created or changed");
            }
        }
    }
}

/// Whether a path, or for a directory anything directly in it, changed since then.
fn recent_within(at: &Path, data: &fs::Metadata, since: i128) -> bool {
    if changed(data) >= since {
        return true;
    }
    let entries = data.is_dir().then(|| fs::read_dir(at).ok()).flatten();
    entries
        .into_iter()
        .flatten()
        .flatten()
        .any(|entry| entry.path().symlink_metadata().is_ok_and(|data| changed(&data) >= since))
}

/// The directory that holds the last component, reached without links.
fn open_parent<'a>(path: &Path, relative: &'a Path) -> Option<(Directory, &'a OsStr)> {
    let name = relative.file_name()?;
    let parent: PathBuf = match relative.parent() {
        Some(parent) if parent.as_os_str().is_empty() => path.to_owned(),
        Some(parent) => path.join(parent),
        None => return None,
    };
    Directory::open(&parent).ok().map(|directory| (directory, name))
}
