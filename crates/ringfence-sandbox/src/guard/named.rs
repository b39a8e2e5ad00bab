//! What the configuration of a repository below the top of a tree names (hooks, further configuration, programs), and
//! where links lead that stand at protected names there. The files that git's configuration names at the top are known
//! when the run is planned, and held; these are found by the walk after it.
//!
//! What an earlier run made, and the user named since, is his: he had a look at it, or could have. What this run
//! changed is not.

use super::{Directory, Work, changed, expand, locked, short};
use ringfence_policy::files::is_program;
use ringfence_policy::git_everywhere::everywhere;
use ringfence_policy::gitconfig::last_path;
use ringfence_policy::gitnamed::Reader;
use ringfence_policy::gitread::{NotKnown, Pass, Said, read_for};
use ringfence_policy::path::normal;
use ringfence_policy::{Guarded, HostFiles, Resolver, home_of, shown};
use ringfence_sys as sys;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::{env, fs};
use sys::Errno;

/// Entries that are gone through where a configuration could name any of them.
const MOST: usize = 200_000;

/// Who names a file: where his own things begin, and when he was changed last; whether all counts that is in a directory.
#[derive(Clone, Copy)]
struct By<'a> {
    around: &'a Path,
    at: i128,
    whole: bool,
}

/// Judges what a repository names that has its configuration in `git`, and whose files are in `worktree`.
pub(super) fn repository(work: &mut Work<'_>, worktree: &Path, git: &Path) {
    let files = vec![git.join("config"), git.join("config.worktree")];
    let own = work.pass.read(|| text(&files[0])).bytes();
    let own = own.and_then(|text| last_path(text, "core", "worktree"));
    let worktree = own.map_or(worktree.to_owned(), |own| normal(&git.join(own)));
    configured(work, &worktree, files);
    users(work, &worktree);
}

/// Judges what the user's own configuration names in each of his repositories.
fn users(work: &mut Work<'_>, worktree: &Path) {
    let pass = Rc::clone(&work.pass);
    let all = work.everywhere.get_or_insert_with(|| {
        let home = sys::identity::home();
        let found = home.map(|home| everywhere(&home, &|name| env::var_os(name), &reader(&pass)));
        found.unwrap_or_default().into()
    });
    for one in &*Rc::clone(all) {
        let at = fs::metadata(&one.by).map_or(i128::MIN, |data| changed(&data));
        let by = By { around: worktree, at, whole: false };
        look(work, &worktree.join(&one.path), one.guarded, by);
    }
}

/// The same for a directory whose `.git` is a file, which has been judged.
pub(super) fn worktree(work: &mut Work<'_>, worktree: &Path) {
    let pass = Rc::clone(&work.pass);
    loop {
        match reader(&pass).of_worktree(worktree) {
            Ok(Some((common, private))) => {
                let files = vec![common.join("config"), private.join("config.worktree")];
                configured(work, worktree, files);
                return users(work, worktree);
            }
            Ok(None) => return,
            Err(unknown) if goes(work, &unknown, worktree) => {}
            Err(unknown) => return anything(work, &unknown),
        }
    }
}

fn configured(work: &mut Work<'_>, worktree: &Path, files: Vec<PathBuf>) {
    let pass = Rc::clone(&work.pass);
    loop {
        let known = reader(&pass).each(files.clone(), worktree, &home, |file, _, path, guarded| {
            let at = fs::metadata(file).map_or(i128::MIN, |data| changed(&data));
            look(work, path, guarded, By { around: worktree, at, whole: false });
        });
        match known {
            Ok(()) => return,
            // What else there is has to be known all the same.
            Err(unknown) if goes(work, &unknown, worktree) => {}
            Err(unknown) => return anything(work, &unknown),
        }
    }
}

fn reader(pass: &Pass) -> Reader<'_> {
    Reader { real: &|path| path.canonicalize().ok(), text: &text, program: &is_program, pass }
}

/// Takes a configuration away that cannot be read, if a run made it: it may have been harmless when it was judged, and
/// one too many by now. Whether it is gone, for which of several it was is told of one only.
fn goes(work: &mut Work<'_>, (file, why): &NotKnown, worktree: &Path) -> bool {
    if fs::metadata(file).is_err() {
        return false;
    }
    look(work, file, Guarded::Plain, By { around: worktree, at: i128::MIN, whole: false });
    let gone = fs::metadata(file).is_err();
    if gone {
        work.beyond(file, *why);
    }
    gone
}

/// A configuration that cannot be read, the user's own, could name all that the run changed: it is taken away.
fn anything(work: &mut Work<'_>, (file, why): &NotKnown) {
    // Nor can anything else be read then.
    if short::is_so() {
        return;
    }
    // One that the run made or closed is not there any more.
    if file.symlink_metadata().is_err() || std::mem::replace(&mut work.anything, true) {
        return;
    }
    let (shown, (why, remedy)) = (shown::path(file), why.text());
    work.said.open(format!(
        "{shown} {why}: git could run anything by it, so that what the run changed is taken away ({remedy}, and put back \
         what you trust)"
    ));
    let mut left = MOST;
    let trees = work.guarding.trees.iter();
    let mut queue: Vec<PathBuf> = trees.map(|tree| tree.tree.to_path_buf()).collect();
    while let Some(at) = queue.pop() {
        let Ok(directory) = locked::open(work, &at) else { continue };
        for entry in fs::read_dir(directory.at("")).into_iter().flatten().flatten() {
            let Some(rest) = left.checked_sub(1) else {
                let most = format!("more than {MOST} entries are there: look before you use git");
                return work.said.open(most);
            };
            left = rest;
            let (name, path) = (entry.file_name(), at.join(entry.file_name()));
            match entry.file_type() {
                // What is in a repository is judged by its names.
                Ok(kind) if kind.is_dir() && name != ".git" => queue.push(path),
                Ok(kind) if kind.is_dir() => {}
                _ => judge(
                    work,
                    &path,
                    Guarded::Plain,
                    By { around: &at, at: i128::MAX, whole: false },
                ),
            }
        }
    }
}

/// Judges what is at a path that a link leads to, which stands at a protected name, on the way to one or as a hook,
/// and which the run did not make. All that is in a directory has the name that leads to it.
pub(super) fn led_to(work: &mut Work<'_>, link: &Path, path: &Path, guarded: Guarded) {
    led(work, link, path, (guarded, true));
}

/// The same of a link in a directory that is protected: what is in a directory that it leads to has other names.
pub(super) fn led_to_within(work: &mut Work<'_>, link: &Path) {
    led(work, link, link, (Guarded::Plain, false));
}

fn led(work: &mut Work<'_>, link: &Path, path: &Path, (guarded, whole): (Guarded, bool)) {
    // Git writes by its own names all the time.
    if guarded == Guarded::GitState {
        return;
    }
    let (Ok(data), true) = (link.symlink_metadata(), path.exists()) else { return };
    let by = By { around: link.parent().unwrap_or(link), at: changed(&data), whole };
    follow(work, path, guarded, by, Some(link));
}

/// Judges a link, and what is there at names that begin with it. At the top one that was there when the run began, or was put
/// back since, has been judged by itself.
pub(super) fn on_the_way(
    work: &mut Work<'_>,
    (at, link, data): (&Path, &Path, &fs::Metadata),
    names: &[&(&Path, Guarded)],
    top: bool,
) {
    let Some(parent) = link.parent().filter(|_| !names.is_empty()) else { return };
    // Names with a pattern are found by a listing.
    let trees = &work.guarding.trees;
    let real = link.canonicalize().ok();
    let in_tree = |real: &PathBuf| trees.iter().any(|tree| real.starts_with(&tree.tree));
    if let Some(real) = real.filter(in_tree) {
        locked::unlock(work, &real);
    }
    let known = work.guarding.steps.iter().any(|(step, _)| step.path == link);
    let judged = top && (known || changed(data) < work.guarding.since);
    let mut all = names.iter().map(|(name, _)| *name);
    if !judged && work.suspect(link, data) && !leads_to_nothing(work, link, &mut all) {
        return work.take_away(at, link, "created or changed");
    }
    for (name, guarded) in names {
        for found in expand(parent, &name.to_string_lossy()) {
            led_to(work, link, &found, *guarded);
        }
    }
}

/// Whether a link leads to a directory in a tree that holds none of some names: an ordinary one (`tools`). The names
/// count from the directory that the link is in, and begin with it. It is looked at again in later runs, whose plans
/// hold what it leads to.
pub(super) fn leads_to_nothing<'n>(
    work: &Work<'_>,
    link: &Path,
    mut names: impl Iterator<Item = &'n Path>,
) -> bool {
    let (Some(parent), Ok(real)) = (link.parent(), link.canonicalize()) else { return false };
    let in_tree = work.guarding.trees.iter().any(|tree| real.starts_with(&tree.tree));
    let git = |path: &Path| path.iter().any(|part| part == ".git");
    let nothing = |name: &Path| {
        let found = expand(parent, &name.to_string_lossy());
        name.iter().count() > 1 && !found.iter().any(|path| path.symlink_metadata().is_ok())
    };
    in_tree && !git(&real) && !link.ends_with(".git") && real.is_dir() && names.all(nothing)
}

/// Judges what a path names, and what it leads to.
fn look(work: &mut Work<'_>, path: &Path, guarded: Guarded, by: By<'_>) {
    judge(work, path, guarded, by);
    follow(work, path, guarded, by, None);
}

/// Judges what a path leads to, and the links by which it does, but one that has been judged: a run that made one of
/// them chose where it leads.
fn follow(work: &mut Work<'_>, path: &Path, guarded: Guarded, by: By<'_>, known: Option<&Path>) {
    let Ok(real) = Resolver::new(&HostFiles).real(path) else { return };
    for (link, _) in real.links.iter().filter(|(link, _)| known != Some(link)) {
        judge(work, link, Guarded::Plain, by);
    }
    if real.exists && real.path != path {
        judge(work, &real.path, guarded, by);
    }
}

/// Judges what is at a path, if that is in a tree and not granted by name.
fn judge(work: &mut Work<'_>, path: &Path, guarded: Guarded, by: By<'_>) {
    let guarding = work.guarding;
    let Some(tree) = guarding.trees.iter().find(|tree| path.starts_with(&tree.tree)) else {
        return;
    };
    let granted = guarding.trees.iter().any(|tree| tree.tree == path)
        || tree.granted.iter().any(|granted| granted == path)
        || tree.is_lifted(path);
    let known = guarding.steps.iter().any(|(step, _)| path.starts_with(&step.path));
    let (false, false, Some(parent), Some(name)) =
        (granted, known, path.parent(), path.file_name())
    else {
        return;
    };
    let directory = match locked::open(work, parent) {
        Ok(directory) => directory,
        Err(Errno::ELOOP | Errno::ENOTDIR) => {
            let below = |above: &&Path| above.starts_with(&tree.tree) && **above != tree.tree;
            let way: Vec<&Path> = path.ancestors().skip(1).take_while(below).collect();
            return way.into_iter().for_each(|above| work.take_link(above, "created or changed"));
        }
        Err(_) => return,
    };
    let at = directory.at(name);
    let Ok(data) = at.symlink_metadata() else { return };
    if data.is_dir() {
        if guarded == Guarded::GitHooks {
            locked::unlock(work, path);
            directory.enter(name).into_iter().for_each(|inner| hooks(work, &inner, path, by));
        } else if guarded == Guarded::Plain && by.whole {
            all_in(work, path, by);
        }
        return;
    }
    if !is_runs(work, path, &data, by) {
        return;
    }
    match work.stays(guarded, &at, path) {
        Some(now) => work.alone(&directory, name, path, &now),
        None => work.take_away(&at, path, "created or changed"),
    }
}

/// All that is in a directory of hooks.
fn hooks(work: &mut Work<'_>, directory: &Directory, path: &Path, by: By<'_>) {
    for hook in fs::read_dir(directory.at("")).into_iter().flatten().flatten() {
        let (name, at) = (hook.file_name(), directory.at(hook.file_name()));
        let Ok(data) = at.symlink_metadata() else { continue };
        let (shown, sample) = (path.join(&name), name.as_bytes().ends_with(b".sample"));
        // Git runs no directory.
        if data.is_symlink() && !is_runs(work, &shown, &data, by) {
            led_to_within(work, &shown);
        } else if !(data.is_dir() || sample && data.is_file()) && is_runs(work, &shown, &data, by) {
            work.take_away(&at, &shown, "created or changed");
        }
    }
}

/// All that is in a directory which has a protected name by a link.
fn all_in(work: &mut Work<'_>, path: &Path, by: By<'_>) {
    let (mut queue, mut left) = (vec![path.to_owned()], MOST);
    while let Some(path) = queue.pop() {
        locked::unlock(work, &path);
        let Ok(directory) = locked::open(work, &path) else { continue };
        for entry in fs::read_dir(directory.at("")).into_iter().flatten().flatten() {
            let Some(rest) = left.checked_sub(1) else {
                let (path, by) = (shown::path(&path), shown::path(by.around));
                return work.said.open(format!(
                    "more than {MOST} entries are in {path}, to which a link in {by} leads: look before you use it"
                ));
            };
            left = rest;
            let (at, path) = (directory.at(entry.file_name()), path.join(entry.file_name()));
            match at.symlink_metadata() {
                Ok(data) if data.is_dir() => queue.push(path),
                Ok(data) if is_runs(work, &path, &data, by) => {
                    work.take_away(&at, &path, "created or changed");
                }
                _ => {}
            }
        }
    }
}

/// Whether what is at a path is a run's doing, and not what the user found there when he named it: this run changed it,
/// or an earlier one, after he did or where this run may have put one directory in the place of another. That changes
/// the directory, and the one that it is in.
fn is_runs(work: &Work<'_>, path: &Path, data: &fs::Metadata, by: By<'_>) -> bool {
    let (time, since) = (changed(data), work.guarding.since);
    if time >= since {
        return true;
    }
    let within = |above: &&Path| match path.starts_with(by.around) {
        true => above.starts_with(by.around) && **above != *by.around,
        false => {
            let mut trees = work.guarding.trees.iter();
            trees.any(|tree| above.starts_with(&tree.tree) && **above != tree.tree)
        }
    };
    let new = |above: &Path| above.symlink_metadata().is_ok_and(|data| changed(&data) >= since);
    let moved = |above: &Path| new(above) && above.parent().is_some_and(new);
    let mut way = path.ancestors().skip(1).take_while(within);
    work.suspect(path, data) && (time > by.at || way.any(moved))
}

/// What a configuration says.
fn text(path: &Path) -> Said {
    read_for(sys::identity::user(), &HostFiles, path)
}

/// The home of a user by his name; of the caller, without one.
fn home(user: &str) -> Option<PathBuf> {
    match user {
        "" => sys::identity::home(),
        user => home_of(&fs::read("/etc/passwd").ok()?, user),
    }
}
