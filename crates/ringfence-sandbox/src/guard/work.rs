//! What is done with what a run left at a protected path: nothing, a part of it, or all of it taken
//! away and what was there put back.

use super::aside::Asides;
use super::crowd::Crowd;
use super::directory::Directory;
use super::past::{self, Past};
use super::quarantine::Quarantine;
use super::said::{self, inside};
use super::saved::replace;
use super::stays::leads_straight;
use super::{Guarding, Said, Saved, changed, locked, named};
use crate::plan::{Found, GuardStep, GuardedTree};
use crate::removal;
use ringfence_policy::git_everywhere::Everywhere;
use ringfence_policy::gitread::Pass;
use ringfence_policy::path::normal;
use ringfence_policy::protect::{git_bare_worktree, git_file_target, git_link_allowed};
use ringfence_policy::settings::{self, Judged};
use ringfence_policy::{Guarded, shown};
use ringfence_sys as sys;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;
use sys::Errno;

/// One pass of putting right.
pub(super) struct Work<'a> {
    pub guarding: &'a Guarding,
    pub quarantine: Quarantine,
    /// Earlier runs, read when something is as old.
    pub past: OnceCell<Past>,
    /// Directories that were made enterable for a look, and their modes.
    pub unlocked: Vec<(PathBuf, u32)>,
    pub said: Said,
    /// When whoever wants the launcher to end is told that this comes first; `None`: told, or nobody is there to tell.
    pub patience: Option<Instant>,
    /// Entries that the look at a tree may yet go through, of what the run did not change.
    pub budget: usize,
    /// The same within repositories.
    pub innards: usize,
    /// What may yet be read of git's configuration, and bytes of what git keeps for itself, and in directories of hooks.
    pub pass: Rc<Pass>,
    pub state: u64,
    pub samples: u64,
    /// All that the run changed was judged, since a configuration that cannot be read could name it.
    pub anything: bool,
    pub crowd: Crowd,
    pub asides: Asides,
    /// Directories of git that `.git` files led to, and that were looked at for that.
    pub led_to: BTreeSet<PathBuf>,
    /// What the user's own configuration of git names in each repository, once that was asked.
    pub everywhere: Option<Rc<[Everywhere]>>,
}

impl Work<'_> {
    /// Whether something was created or changed in this run, or in an earlier one that could write
    /// there: what an earlier one left under a harmless name may have been moved here since.
    pub fn suspect(&self, path: &Path, data: &fs::Metadata) -> bool {
        let changed = changed(data);
        let ctime = |at: &Path| at.symlink_metadata().ok().map(|data| self::changed(&data));
        let past = || self.past.get_or_init(past::read);
        let former = || self.guarding.former.iter().map(PathBuf::as_path);
        let trees = self.guarding.trees.iter().map(|tree| &*tree.tree);
        let trees = || trees.clone().chain(former()).collect::<Vec<_>>();
        changed >= self.guarding.since || past().holds(path, &trees(), changed, &ctime)
    }

    /// Answers who sends a signal at which the launcher is to end: without a word it looks as if it did nothing, and one
    /// that is killed for that leaves what the run made.
    pub fn answer(&mut self) {
        const END: [i32; 4] = [1, 2, 3, 15];
        let comes = || END.iter().any(|signal| sys::signal::pending().has(*signal));
        if self.patience.is_some_and(|moment| Instant::now() >= moment) && comes() {
            self.patience = None;
            said::now(
                "the command has ended, and what it left is being looked at: that comes first, and is not cut short. \
                 Whoever kills the launcher keeps what was made at protected names",
            );
        }
    }

    pub fn step(&mut self, step: &GuardStep, saved: &Saved) {
        let (Some(parent), Some(name)) = (step.path.parent(), step.path.file_name()) else {
            return;
        };
        let directory = match locked::open(self, parent) {
            Ok(directory) => directory,
            Err(Errno::ELOOP | Errno::ENOTDIR) => {
                self.link_on_the_way(step);
                return self.gone_whole(step, saved);
            }
            Err(Errno::ENOENT) => return self.gone_whole(step, saved),
            // Closed to its user before the run, which had no part in it, or told when it could not be opened.
            Err(Errno::EACCES) if *saved == Saved::Nothing => return,
            Err(errno) => {
                let (path, parent) = (shown::path(&step.path), shown::path(parent));
                return self.said.open(format!(
                    "{path} is protected and cannot be looked at ({parent}: {errno}): look before you use it"
                ));
            }
        };
        let at = directory.at(name);
        if *saved == Saved::Unknown {
            return self.not_known(&directory, name, step);
        }
        let now = match saved {
            Saved::Nothing => self.found(step.guarded, &at, &step.path),
            _ => Saved::of(&at).unwrap_or(Saved::Unknown),
        };
        if now == *saved || self.harmless(step.guarded, &step.path, &now, saved) {
            return match (&now, directory.enter(name)) {
                (Saved::Directory(entries), Some(inner)) => {
                    self.alone_in(&inner, &step.path, entries)
                }
                _ => self.alone(&directory, name, &step.path, &now),
            };
        }
        if step.guarded == Guarded::Settings && self.settings(&directory, step, saved, &now) {
            return;
        }
        if let (Guarded::Skills, Saved::Nothing, Saved::Directory(entries)) =
            (step.guarded, saved, &now)
        {
            return self.skills(&directory, name, &step.path, entries);
        }
        if let (Guarded::GitHooks, Saved::Nothing, Saved::Directory(entries)) =
            (step.guarded, saved, &now)
        {
            let Some(inner) = directory.enter(name) else {
                return self.take_away(&at, &step.path, "created");
            };
            for (hook, _) in entries.iter().filter(|(name, entry)| !entry.is_sample(name)) {
                self.take_away(&inner.at(hook), &step.path.join(hook), "created");
            }
            return;
        }
        match (saved, &now, directory.enter(name)) {
            (Saved::Directory(before), Saved::Directory(entries), Some(inner))
                if saved.is_partly_stamped() =>
            {
                self.put_back_in(&inner, &step.path, before, entries);
            }
            _ => self.put_back(&at, &step.path, saved, &now),
        }
    }

    /// Takes away what is there, and puts back what was.
    pub(super) fn put_back(&mut self, at: &Path, path: &Path, saved: &Saved, now: &Saved) {
        let what = if *saved == Saved::Nothing { "created" } else { "changed" };
        if *now != Saved::Nothing {
            self.take_away(at, path, what);
        }
        if *saved != Saved::Nothing {
            let shown = shown::path(path);
            match saved.restore(at) {
                Ok(()) if *now == Saved::Nothing => {
                    self.said
                        .push(format!("{shown} was removed inside and is protected: restored"));
                }
                Ok(()) => self.said.push(format!("{shown} was restored")),
                Err(error) => self.said.open(match self.quarantine.keep_saved(path, saved) {
                    Ok(kept) => format!(
                        "cannot restore {shown} whole ({error}): what was there is in {}",
                        shown::path(&kept)
                    ),
                    Err(_) => format!("cannot restore {shown}: {error}"),
                }),
            }
        }
    }

    /// The same for each name in a directory that holds what was too large to be kept: that must not be moved for
    /// something beside it.
    fn put_back_in(
        &mut self,
        directory: &Directory,
        path: &Path,
        before: &BTreeMap<OsString, Saved>,
        now: &BTreeMap<OsString, Saved>,
    ) {
        let names: BTreeSet<&OsString> = before.keys().chain(now.keys()).collect();
        for name in names {
            let (at, path) = (directory.at(name), path.join(name));
            let of = |map: &BTreeMap<OsString, Saved>| map.get(name).cloned();
            let (before, now) = (of(before), of(now));
            let (before, now) = (before.unwrap_or(Saved::Nothing), now.unwrap_or(Saved::Nothing));
            match (&before, &now, directory.enter(name)) {
                // Each by itself: what of a directory is read, and what only stamped, depends on what is beside it.
                _ if before == now || before.is_at(&at) => {}
                (Saved::Directory(before), Saved::Directory(now), Some(inner)) => {
                    self.put_back_in(&inner, &path, before, now);
                }
                _ => self.put_back(&at, &path, &before, &now),
            }
        }
    }

    /// What may stay must have no other name: in a later run that would be a way to write it past
    /// the mount that holds it.
    pub fn alone(&mut self, directory: &Directory, name: &OsStr, path: &Path, now: &Saved) {
        let at = directory.at(name);
        let Ok(data) = at.symlink_metadata() else { return };
        let linked = data.is_file() && data.nlink() > 1 && self.suspect(path, &data);
        if linked && replace(directory, name, now).is_err() {
            self.take_away(&at, path, "created");
        }
    }

    /// The same of all that a directory holds.
    fn alone_in(
        &mut self,
        directory: &Directory,
        path: &Path,
        entries: &BTreeMap<OsString, Saved>,
    ) {
        for (name, entry) in entries {
            let path = path.join(name);
            match (entry, directory.enter(name)) {
                (Saved::Directory(entries), Some(inner)) => self.alone_in(&inner, &path, entries),
                _ => self.alone(directory, name, &path, entry),
            }
        }
    }

    /// Settings whose harmless part may change; whether that settles it.
    fn settings(
        &mut self,
        directory: &Directory,
        step: &GuardStep,
        saved: &Saved,
        now: &Saved,
    ) -> bool {
        let before = match saved {
            Saved::Nothing => None,
            Saved::File { bytes, .. } => Some(bytes.as_slice()),
            _ => return false,
        };
        let (Saved::File { bytes, mode }, Some(name)) = (now, step.path.file_name()) else {
            return false;
        };
        let (text, kept) = match settings::judge(before, bytes) {
            Judged::Harmless => return true,
            Judged::Unreadable => return false,
            Judged::Merged { text, kept } => (text, kept),
        };
        let merged = Saved::File { bytes: text.into_bytes(), mode: *mode };
        if replace(directory, name, &merged).is_err() {
            return false;
        }
        let mut keys: Vec<&str> = kept.iter().take(4).map(String::as_str).collect();
        if kept.len() > keys.len() {
            keys.push("…");
        }
        let (path, keys) = (shown::path(&step.path), keys.join(", "));
        self.said.push(format!("{path} was changed inside where it runs or trusts something, and has there what it had: {keys}"));
        true
    }

    /// A directory of skills that was not there: the agent's own, made anew at each start, are
    /// not worth keeping, and not worth a word.
    fn skills(
        &mut self,
        directory: &Directory,
        name: &OsStr,
        shown: &Path,
        entries: &BTreeMap<OsString, Saved>,
    ) {
        let Some(inner) = directory.enter(name) else {
            return self.take_away(&directory.at(name), shown, "created");
        };
        for name in entries.keys() {
            if name == ".system" {
                removal::remove(&inner.at(name));
            } else {
                self.take_away(&inner.at(name), &shown.join(name), "created");
            }
        }
        let _ = fs::remove_dir(directory.at(name));
    }

    /// Names of the built-in list that were not at the top of a tree.
    pub fn absent_names(&mut self, tree: &GuardedTree) {
        let mut looked: Option<(&str, bool)> = None;
        for (name, guarded) in &tree.absent {
            let first = name.split('/').next().unwrap_or_default();
            let there = match looked {
                Some((last, there)) if last == first => there,
                _ => tree.tree.join(first).symlink_metadata().is_ok(),
            };
            looked = Some((first, there));
            if !there {
                continue;
            }
            for path in expand(&tree.tree, name) {
                if self.guarding.was_there(&path) {
                    continue;
                }
                let rule = crate::planner::built_in("protected names");
                let step = GuardStep { path, found: Found::Absent, guarded: *guarded, rule };
                self.step(&step, &Saved::Nothing);
            }
            self.remove_empty(&tree.tree, name);
        }
    }

    /// Removes the directories that were made for a name and are empty now.
    fn remove_empty(&self, tree: &Path, name: &str) {
        let mut relative = Path::new(name);
        while let Some(parent) = relative.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            let path = tree.join(parent);
            let (Some(above), Some(last)) = (path.parent(), path.file_name()) else { return };
            let Ok(directory) = Directory::open(above) else { return };
            if name.starts_with(".git/") || fs::remove_dir(directory.at(last)).is_err() {
                return;
            }
            relative = parent;
        }
    }

    /// A `.git` at the top of a tree that is no directory (any more): where it leads, if it may.
    pub fn repository(&mut self, tree: &Path) -> Option<PathBuf> {
        let path = tree.join(".git");
        // One that was there is protected by its name.
        let held = self.guarding.steps.iter().any(|(step, _)| step.path == path);
        let data = path.symlink_metadata().ok()?;
        let judged = !data.is_dir() && !held && self.suspect(&path, &data);
        judged.then(|| self.git_link(&path, &path)).flatten()
    }

    /// A `.git` that is a file or a link leads git to a repository elsewhere: only to where the
    /// list guards the configuration, over no link, which another run could change. Returns where it may lead. A
    /// directory is judged by what is in it.
    pub fn git_link(&mut self, at: &Path, shown: &Path) -> Option<PathBuf> {
        let target = match self.found(Guarded::GitCommon, at, shown) {
            Saved::Link(target) => Some(target),
            // It leads nowhere: uv marks its cache by one.
            Saved::File { bytes, .. } if bytes.is_empty() => return None,
            Saved::File { bytes, .. } => git_file_target(&bytes).map(Path::to_owned),
            Saved::Directory(_) | Saved::Nothing => return None,
            Saved::Unknown | Saved::Stamped { .. } => None,
        };
        let parent = shown.parent().unwrap_or(Path::new("/"));
        let allowed = target.and_then(|target| {
            let path = parent.join(target);
            let target = normal(&path);
            let bare = |tree: &GuardedTree| git_bare_worktree(&target, &tree.tree);
            let allowed = git_link_allowed(&target) || self.guarding.trees.iter().any(bare);
            (allowed && leads_straight(&path)).then_some(target)
        });
        if allowed.is_none() {
            self.take_away(at, shown, "created or changed");
        }
        allowed
    }

    /// A component on the way to a guarded path is a link, which a host program would follow.
    /// One that was made during the run is taken away, but where it leads to a directory of a tree that has no such
    /// name in it.
    fn link_on_the_way(&mut self, step: &GuardStep) {
        let mut ancestors: Vec<&Path> = step.path.ancestors().skip(1).collect();
        ancestors.reverse();
        for ancestor in ancestors {
            let Ok(data) = ancestor.symlink_metadata() else { return };
            if data.is_symlink() {
                let rest = step.path.strip_prefix(ancestor.parent().unwrap_or(ancestor)).ok();
                if !named::leads_to_nothing(self, ancestor, rest.into_iter()) {
                    self.take_link(ancestor, "created");
                }
                return;
            }
        }
    }

    /// Takes a link away that was made inside. Looked at once more in the directory that holds it:
    /// another sandbox in the same tree may have put a link in the way since.
    pub fn take_link(&mut self, path: &Path, what: &str) {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return };
        let Ok(directory) = locked::open(self, parent) else { return };
        let at = directory.at(name);
        let Ok(data) = at.symlink_metadata() else { return };
        if data.is_symlink() && self.suspect(path, &data) {
            self.take_away(&at, path, what);
        }
    }

    /// Moves something away and says so. `at` is how it is reached, `shown` its name.
    pub fn take_away(&mut self, at: &Path, path: &Path, what: &str) {
        self.take(at, path, &inside(what));
    }

    /// The same, whatever is said of it.
    pub fn take(&mut self, at: &Path, path: &Path, way: &str) {
        let shown = shown::path(path);
        let many = self.take_of_many(at, path);
        let taken = many.map_or_else(|| self.taken(at, path), Ok);
        self.guarding.misses(path);
        let why = match taken {
            Ok(kept) => {
                return self.said.push(format!("{shown} {way}: moved to {}", shown::path(&kept)));
            }
            Err(why) => why,
        };
        // Another run was first.
        let gone = |why: io::Error| why.kind() == io::ErrorKind::NotFound;
        if at.symlink_metadata().err().is_some_and(gone) {
            return;
        }
        // Under another name nothing obeys it, and a later run tells of it.
        let what = match self.set_aside(at, path) {
            Ok(aside) => format!(
                "it cannot be kept elsewhere ({why}), and is {} now; move it away, or remove it",
                shown::path(&aside)
            ),
            Err(error) => self.shut(at, &error),
        };
        self.said.open(format!("{shown} {way}: {what}"));
    }

    /// Moves away what a launcher set aside that was killed then, and says so. It may be all that its owner has of it, and
    /// nothing obeys the name: what cannot be kept stays.
    pub fn take_aside(&mut self, at: &Path, path: &Path) {
        let shown = shown::path(path);
        let taken = self.taken(at, path);
        match taken {
            Ok(kept) => self.said.push(format!(
                "{shown} was left inside, by a run that took it from a protected name: moved to {}",
                shown::path(&kept)
            )),
            Err(why) => self.said.open(format!(
                "{shown} was left inside, by a run that took it from a protected name, and stays there: it cannot be kept \
                 elsewhere ({why}); remove it, or give it another name"
            )),
        }
    }

    /// Takes something, from a directory that is locked as well.
    fn taken(&mut self, at: &Path, path: &Path) -> io::Result<PathBuf> {
        let taken = self.quarantine.take(at);
        let denied =
            taken.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
        match path.parent() {
            Some(parent) if denied && locked::unlock_all(self, parent) => self.quarantine.take(at),
            _ => taken,
        }
    }
}

/// The existing paths that a name with `*` components stands for below a directory.
pub(super) fn expand(directory: &Path, name: &str) -> Vec<PathBuf> {
    if !name.contains(['*', '?']) {
        return vec![directory.join(name)];
    }
    // Where there is nothing below which a pattern could name anything, which is the rule, one look tells.
    let first = Path::new(name).iter().take_while(|part| !part.as_bytes().contains(&b'*'));
    let below = directory.join(first.collect::<PathBuf>());
    if below.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Vec::new();
    }
    crate::planner::expand(&crate::facts::HostPaths, directory, name)
}
