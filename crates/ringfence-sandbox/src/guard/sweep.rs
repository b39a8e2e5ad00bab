//! Looks for protected names below the top of a writable tree, after a run.
//!
//! The top is guarded name by name; repositories and settings further down cannot be known
//! without walking the tree, which a start must not do. After the run the directories are
//! walked, nearest first. What the run itself made or changed is all looked into: to make it took
//! longer. For the rest there is a budget that grows with the run's length, so that the walk
//! stays a small part of it. A launcher without libc walks the same way to see whether there is anything to do
//! (`ringfence_start::quiet`), and must not pass over what is looked at here. What was created or changed inside and is executed or trusted by
//! host programs is moved away.

use super::{Directory, Work, changed, expand, git, latest, locked, named, quarantine};
use crate::plan::GuardedTree;
use crate::planner::glob;
use ringfence_policy::Guarded;
use ringfence_policy::protect::git_of_worktree;
use ringfence_start::quiet::{
    A_DIRECTORY, ENTRIES, ENTRIES_PER_MILLISECOND, is_repository, part_of_a_repository,
};
use ringfence_sys::directory::{Names, changed as changed_at};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{CString, OsStr};
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The longest path of a directory that is looked into: names below it are looked for by their paths, of which the kernel
/// takes 4,095 bytes.
const LONGEST: usize = 4095 - 512;

/// `leads_to` is where a `.git` at the top that is no directory leads.
pub(super) fn sweep(work: &mut Work<'_>, tree: &GuardedTree, leads_to: Option<&Path>) {
    // First component → what may follow it.
    let mut names: BTreeMap<&OsStr, Vec<(&Path, Guarded)>> = BTreeMap::new();
    // With what every name that fits ends with.
    let mut wild: Vec<(&[u8], &[u8], Guarded)> = Vec::new();
    for (name, guarded) in &tree.nested {
        let name = Path::new(name.as_ref());
        let Some(first) = name.iter().next() else { continue };
        if first.as_bytes().contains(&b'*') {
            let first = first.as_bytes();
            wild.push((first, end_of(first), *guarded));
        } else {
            names.entry(first).or_default().push((name, *guarded));
        }
    }
    granted_files(work, tree);
    work.budget = budget(work);
    work.innards = work.budget;
    if let Some(target) = leads_to {
        led_to(work, target, names.get(OsStr::new(".git")).map(Vec::as_slice).unwrap_or_default());
    }
    // Whether the directory that a directory is in was changed by the run.
    let mut queue = VecDeque::from([(tree.tree.clone(), true)]);
    while let Some((path, by_run)) = queue.pop_front() {
        work.answer();
        if !by_run {
            let Some(left) = work.budget.checked_sub(A_DIRECTORY) else { continue };
            work.budget = left;
        }
        let Ok((directory, data)) = locked::open_known(work, &path) else { continue };
        let by_run = changed(&data) >= work.guarding.since;
        // In small pieces: libc would read a thousand names of which a few are looked at.
        let entries = Names::once(directory.0.as_fd());
        let top = path == tree.tree;
        let mut parts = 0;
        for (name, kind) in entries {
            if !by_run {
                // One directory may be larger than all that is left.
                let Some(left) = work.budget.checked_sub(1) else { break };
                work.budget = left;
            }
            parts |= part_of_a_repository(name.as_bytes());
            if quarantine::is_aside(name.as_bytes()) {
                left_aside(work, &directory, &path, &name);
            }
            for (pattern, end, guarded) in &wild {
                // Most names are none of them, by their ends.
                if name.as_bytes().ends_with(end) && glob(pattern, name.as_bytes()) {
                    look(work, tree, &path, Path::new(&name), *guarded);
                }
            }
            if let Some(candidates) = names.get(name.as_os_str()) {
                below(work, tree, &directory, &path, &name, candidates, top);
                let shown = path.join(&name);
                let whole = is_judged_whole(candidates, &name) && !tree.is_file(&shown);
                if whole || tree.lifted.contains(&shown) {
                    continue;
                }
            }
            if kind.is_directory(|| path.join(&name)) {
                let inner = path.join(&name);
                if tree.lifted.contains(&inner) {
                    continue;
                }
                if inner.as_os_str().len() > LONGEST {
                    too_deep(work, &directory.at(&name), &inner);
                } else {
                    queue.push_back((inner, by_run));
                }
            }
        }
        if is_repository(parts) {
            // A bare repository: git takes hooks and configuration from the directory itself, or, as a worktree's,
            // from the one that it is in.
            let git = names.get(OsStr::new(".git")).map(Vec::as_slice).unwrap_or_default();
            let own = git_of_worktree(&path).filter(|own| own.starts_with(&tree.tree));
            own.into_iter().chain([path.as_path()]).for_each(|at| repository(work, tree, at, git));
        }
    }
}

/// What every name ends with that fits a pattern.
fn end_of(pattern: &[u8]) -> &[u8] {
    let last = pattern.iter().rposition(|byte| matches!(byte, b'*' | b'?'));
    last.map_or(pattern, |last| &pattern[last + 1..])
}

/// A directory whose names no path reaches any more (`PATH_MAX`, path_resolution(7)): what is in it can be moved to where
/// programs find it. Of the user's own, which no run made, nothing is taken.
fn too_deep(work: &mut Work<'_>, at: &Path, shown: &Path) {
    let data = at.symlink_metadata();
    if data.is_ok_and(|data| data.is_dir() && work.suspect(shown, &data)) {
        work.take(at, shown, "lies too deep for protected names in it to be looked for");
    }
}

/// Who grants a file by a protected name means no directory: the next run would have all of that granted.
fn granted_files(work: &mut Work<'_>, tree: &GuardedTree) {
    for (file, _) in tree.files.iter().filter(|(_, protected)| *protected) {
        let (Some(parent), Some(name)) = (file.parent(), file.file_name()) else { continue };
        let Ok(directory) = locked::open(work, parent) else { continue };
        let at = directory.at(name);
        let data = at.symlink_metadata();
        if data.is_ok_and(|data| data.is_dir() && work.suspect(file, &data)) {
            work.take_away(&at, file, "created");
        }
    }
}

/// Whether all that is in a directory is judged with its name: there is nothing to walk. One that only begins
/// a longer name is a directory like others.
fn is_judged_whole(candidates: &[(&Path, Guarded)], name: &OsStr) -> bool {
    name == ".git" || candidates.iter().any(|(relative, _)| relative.as_os_str() == name)
}

/// What was taken from a protected name, by a launcher that was killed before it had it in the quarantine.
fn left_aside(work: &mut Work<'_>, directory: &Directory, path: &Path, name: &OsStr) {
    // Who cannot keep it leaves it to the next look.
    if !work.quarantine.keeps() {
        return;
    }
    let (at, shown) = (directory.at(name), path.join(name));
    // This run's own has been told.
    if work.guarding.asides.borrow().contains(&shown) {
        return;
    }
    if at.symlink_metadata().is_ok_and(|data| work.suspect(&shown, &data)) {
        work.take_aside(&at, &shown);
    }
}

/// A directory holds the first component of protected names. At the top of a tree only those with a
/// pattern, and what git keeps for itself, are looked for: the others have been judged by themselves.
fn below(
    work: &mut Work<'_>,
    tree: &GuardedTree,
    directory: &Directory,
    path: &Path,
    first: &OsStr,
    candidates: &[(&Path, Guarded)],
    top: bool,
) {
    let (at, shown) = (directory.at(first), path.join(first));
    let Ok(data) = at.symlink_metadata() else { return };
    if tree.lifted.contains(&shown) || tree.is_file(&shown) {
        return;
    }
    if first == ".git" && !data.is_dir() {
        if top {
            return;
        }
        if work.suspect(&shown, &data) {
            let target = work.git_link(&at, &shown);
            target.into_iter().for_each(|target| led_to(work, &target, candidates));
        }
        return named::worktree(work, path);
    }
    if data.is_symlink() {
        // The link itself is what a host program would follow.
        let pattern = |name: &Path| name.as_os_str().as_bytes().contains(&b'*');
        let looked_for = candidates.iter().filter(|(name, _)| !top || pattern(name));
        return named::on_the_way(work, (&at, &shown, &data), &looked_for.collect::<Vec<_>>(), top);
    }
    if data.is_dir() {
        locked::unlock(work, &shown);
    }
    if first == ".git" {
        innards(work, tree, &shown, candidates);
    }
    // Directories on the way to names, and those that are such: the walk goes past them.
    let ways = candidates.iter().flat_map(|(relative, _)| relative.ancestors());
    for way in ways.filter(|way| !way.as_os_str().is_empty()).collect::<BTreeSet<_>>() {
        for found in expand(path, &way.to_string_lossy()) {
            let Ok(directory) = Directory::open(&found) else { continue };
            let names = Names::once(directory.0.as_fd());
            for (name, _) in names.filter(|(name, _)| quarantine::is_aside(name.as_bytes())) {
                left_aside(work, &directory, &found, &name);
            }
        }
    }
    for (relative, guarded) in candidates {
        let pattern = relative.to_string_lossy();
        if top && !pattern.contains('*') && *guarded != Guarded::GitState {
            continue;
        }
        for found in expand(path, &pattern) {
            if let Ok(relative) = found.strip_prefix(path) {
                look(work, tree, path, relative, *guarded);
            }
        }
    }
    // At the top they are known before the run.
    if first == ".git" && !top {
        named::repository(work, path, &shown);
    }
}

/// A repository in a directory that is not called `.git`: what is protected in one that is.
fn repository(work: &mut Work<'_>, tree: &GuardedTree, path: &Path, git: &[(&Path, Guarded)]) {
    innards(work, tree, path, git);
    names_in_repository(work, tree, path, git);
    named::repository(work, path, path);
}

/// The directory that a `.git` file leads to, and the one of the repository, where that is a worktree's: the walk may not
/// come by there.
fn led_to(work: &mut Work<'_>, target: &Path, git: &[(&Path, Guarded)]) {
    let guarding = work.guarding;
    let inside = |tree: &&GuardedTree| target.starts_with(&tree.tree);
    let Some(tree) = guarding.trees.iter().find(inside) else { return };
    for at in git_of_worktree(target).into_iter().chain([target]) {
        // As many files as a program likes lead to the same one.
        if work.led_to.insert(at.to_owned()) {
            names_in_repository(work, tree, at, git);
        }
    }
}

fn names_in_repository(
    work: &mut Work<'_>,
    tree: &GuardedTree,
    path: &Path,
    git: &[(&Path, Guarded)],
) {
    for (name, guarded) in git {
        let Ok(name) = name.strip_prefix(".git") else { continue };
        // A worktree's leads to the repository that it is in.
        let common = name == Path::new("commondir");
        let guarded = if common { &Guarded::GitCommon } else { guarded };
        for found in expand(path, &name.to_string_lossy()) {
            if let Ok(relative) = found.strip_prefix(path) {
                look(work, tree, path, relative, *guarded);
            }
        }
    }
}

/// Whether a name is that of a directory which holds nothing but objects.
fn is_of_objects(name: &OsStr) -> bool {
    name.len() == 2 && name.as_bytes().iter().all(u8::is_ascii_hexdigit)
}

/// Whether a run changed such a directory, in which it may have put something else. There may be 256 of them in each
/// repository, so the others are not looked into.
fn is_by_run(work: &Work<'_>, directory: &Directory, name: &OsStr) -> bool {
    // By the descriptor: through its path in /proc each look takes three times as long.
    let name = CString::new(name.as_bytes()).ok();
    let known = name.and_then(|name| changed_at(directory.0.as_fd(), &name).ok());
    known.is_some_and(|time| latest(time) >= work.guarding.since)
}

/// All that is in a repository, but for directories of objects that the run did not change. Links that the run made are
/// taken away: no git makes any, and one outside would write messages and names of branches, which the program chose, to
/// where they lead, or tidy up there. What the run closed is opened for it. Repositories of submodules and worktrees have
/// what this one has, whatever they are called. The budget is one of its own for all of them: a repository must not hide
/// what is beside it.
fn innards(work: &mut Work<'_>, tree: &GuardedTree, path: &Path, git: &[(&Path, Guarded)]) {
    std::mem::swap(&mut work.budget, &mut work.innards);
    let mut queue = VecDeque::from([(path.to_owned(), true)]);
    while let Some((at, by_run)) = queue.pop_front() {
        work.answer();
        if !by_run {
            let Some(left) = work.budget.checked_sub(A_DIRECTORY) else { continue };
            work.budget = left;
        }
        let Ok((directory, data)) = locked::open_known(work, &at) else { continue };
        let entries = Names::once(directory.0.as_fd());
        let by_run = changed(&data) >= work.guarding.since;
        let (mut parts, mut inner) = (0, Vec::new());
        for (name, kind) in entries {
            if !by_run {
                let Some(left) = work.budget.checked_sub(1) else { break };
                work.budget = left;
            }
            parts |= part_of_a_repository(name.as_bytes());
            let below = at.join(&name);
            if kind.is_directory(|| below.clone()) {
                inner.push(name);
            } else if kind.may_be_link() {
                work.take_link(&below, "created or changed");
            }
        }
        // Further down these may be names of submodules.
        let of_objects = at.parent().is_some_and(|above| above == path.join("objects"));
        if at == path {
            // Judged by themselves.
            inner.retain(|name| name != "hooks");
        } else if at == path.join("objects") {
            inner.retain(|name| !is_of_objects(name) || is_by_run(work, &directory, name));
        } else if of_objects && at.file_name().is_some_and(is_of_objects) {
            // No git makes any, and in a later run this one would be passed over.
            for name in std::mem::take(&mut inner) {
                let (place, below) = (directory.at(&name), at.join(&name));
                if place.symlink_metadata().is_ok_and(|data| work.suspect(&below, &data)) {
                    work.take_away(&place, &below, "created or changed");
                }
            }
        }
        if at != path && is_repository(parts) {
            names_in_repository(work, tree, &at, git);
        }
        queue.extend(inner.into_iter().map(|name| (at.join(name), by_run)));
    }
    std::mem::swap(&mut work.budget, &mut work.innards);
}

/// What a walk may look at beside what the run changed.
fn budget(work: &Work<'_>) -> usize {
    let elapsed = work.guarding.started.elapsed().as_millis();
    let milliseconds = usize::try_from(elapsed).unwrap_or(usize::MAX);
    milliseconds.saturating_mul(ENTRIES_PER_MILLISECOND).saturating_add(ENTRIES)
}

/// Judges one protected name below a directory.
fn look(work: &mut Work<'_>, tree: &GuardedTree, path: &Path, relative: &Path, guarded: Guarded) {
    let shown = path.join(relative);
    // What was there at the top when the run began has been judged by itself, or was held by a mount, and what is granted
    // by name may be what it likes.
    let judged = work.guarding.steps.iter().any(|(step, _)| step.path == shown);
    if judged || work.guarding.is_held(&shown) || tree.is_lifted(&shown) {
        return;
    }
    let Some((inner, name)) = open_parent(work, path, relative) else {
        return link_on_the_way(work, path, relative);
    };
    let at = inner.at(name);
    let Ok(data) = at.symlink_metadata() else { return };
    match guarded {
        Guarded::GitHooks if data.is_dir() => {
            locked::unlock(work, &shown);
            let Some(directory) = inner.enter(name) else {
                return work.take_link(&shown, "created or changed");
            };
            let Ok(hooks) = fs::read_dir(directory.at("")) else { return };
            let suspects: Vec<_> = hooks
                .flatten()
                .map(|hook| hook.file_name())
                .filter(|hook| {
                    let Ok(data) = directory.at(hook).symlink_metadata() else { return false };
                    // A directory of that name could be a repository.
                    let sample = data.is_file() && hook.as_bytes().ends_with(b".sample");
                    !sample && work.suspect(&shown.join(hook), &data)
                })
                .collect();
            for hook in suspects {
                work.take_away(&directory.at(&hook), &shown.join(&hook), "created or changed");
            }
            links_in(work, &directory, &shown);
        }
        // A directory of that name is a submodule's.
        Guarded::GitState if data.is_dir() || !work.suspect(&shown, &data) => {}
        Guarded::GitState => git::judge(work, &inner, name, &shown),
        _ if !suspect_within(work, &at, &shown, &data) => {
            if data.is_symlink() {
                named::led_to(work, &shown, &shown, guarded);
            } else if data.is_dir()
                && let Some(directory) = inner.enter(name)
            {
                links_in(work, &directory, &shown);
            }
        }
        // Nothing that it may hold is harmless.
        Guarded::Plain => work.take_away(&at, &shown, "created or changed"),
        _ => match work.stays(guarded, &at, &shown) {
            Some(now) => work.alone(&inner, name, &shown, &now),
            None => work.take_away(&at, &shown, "created or changed"),
        },
    }
}

/// What links in a directory lead to that the run did not make.
fn links_in(work: &mut Work<'_>, directory: &Directory, path: &Path) {
    let entries = fs::read_dir(directory.at("")).into_iter().flatten().flatten();
    for link in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink())) {
        let link = path.join(link.file_name());
        named::led_to_within(work, &link);
    }
}

/// A link between a directory and a protected name below it, which a host program would follow.
fn link_on_the_way(work: &mut Work<'_>, path: &Path, relative: &Path) {
    let mut shown = path.to_owned();
    for component in relative {
        shown.push(component);
        let Ok(data) = shown.symlink_metadata() else { return };
        if data.is_symlink() {
            return work.take_link(&shown, "created or changed");
        }
    }
}

/// Whether a path was changed inside, or for a directory anything in it: what is further down as far as the
/// budget goes.
fn suspect_within(work: &mut Work<'_>, at: &Path, shown: &Path, data: &fs::Metadata) -> bool {
    if work.suspect(shown, data) {
        return true;
    }
    let mut queue = VecDeque::new();
    if data.is_dir() {
        queue.push_back((at.to_owned(), shown.to_owned()));
    }
    let mut direct = true;
    while let Some((at, shown)) = queue.pop_front() {
        for entry in fs::read_dir(&at).into_iter().flatten().flatten() {
            if !direct {
                let Some(left) = work.budget.checked_sub(1) else { return false };
                work.budget = left;
            }
            let Ok(data) = entry.path().symlink_metadata() else { continue };
            let shown = shown.join(entry.file_name());
            if work.suspect(&shown, &data) {
                return true;
            }
            if let Some(left) = work.budget.checked_sub(A_DIRECTORY).filter(|_| data.is_dir()) {
                work.budget = left;
                queue.push_back((entry.path(), shown));
            }
        }
        direct = false;
    }
    false
}

/// The directory that holds the last component, reached without links.
fn open_parent<'a>(
    work: &mut Work<'_>,
    path: &Path,
    relative: &'a Path,
) -> Option<(Directory, &'a OsStr)> {
    let name = relative.file_name()?;
    let parent: PathBuf = match relative.parent() {
        Some(parent) if parent.as_os_str().is_empty() => path.to_owned(),
        Some(parent) => path.join(parent),
        None => return None,
    };
    locked::open(work, &parent).ok().map(|directory| (directory, name))
}
