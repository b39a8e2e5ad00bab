//! Puts protected paths right after a run, where the kernel could not hold them during it.
//!
//! [`Guarding::record`] notes what is there before the run; [`Guarding::enforce`] runs when
//! nothing of the sandbox lives any more. What was created or changed is moved to the session's
//! quarantine and what was there before is put back. Everything on the way is opened without
//! following links: the tree was in the hands of the sandboxed program a moment ago.

mod locked;
mod past;
mod quarantine;
mod saved;
mod sweep;
mod vigil;

use crate::error::LaunchError;
use crate::plan::{Found, GuardStep, GuardedTree, Plan};
pub(crate) use past::WILL;
pub use past::written;
use past::{Begun, Past};
use quarantine::Quarantine;
use ringfence_policy::gitconfig::executes_in;
use ringfence_policy::protect::git_common_allowed;
use ringfence_policy::settings::{self, Judged};
use ringfence_policy::{Guarded, shown};
use ringfence_sys as sys;
pub(crate) use saved::Saved;
use std::cell::{Cell, OnceCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;
use sys::Errno;
pub(crate) use vigil::Vigil;

/// What was there before the run.
#[derive(Debug)]
pub(crate) struct Guarding {
    steps: Vec<(GuardStep, Saved)>,
    /// Directories that hold guarded paths which do not exist: unchanged, they need no look.
    parents: BTreeMap<PathBuf, Stamp>,
    /// All directories that were looked at for that.
    noted: BTreeSet<PathBuf>,
    trees: Vec<GuardedTree>,
    /// Change times from here on belong to the run.
    since: i128,
    started: Instant,
    /// How many things went to the quarantine.
    taken: Cell<u32>,
    /// This run, noted for later ones; of the launcher.
    begun: Option<Begun>,
    /// Its end is noted.
    ended: Cell<bool>,
}

impl Drop for Guarding {
    /// A command that could not be started has no end of its own.
    fn drop(&mut self) {
        if let Some(begun) = self.begun.as_ref().filter(|_| !self.ended.get()) {
            begun.end();
        }
    }
}

/// Identity and change time of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp(u64, u64, i128);

fn changed(data: &fs::Metadata) -> i128 {
    i128::from(data.ctime()) * 1_000_000_000 + i128::from(data.ctime_nsec())
}

impl Guarding {
    /// Notes what is at the guarded paths.
    ///
    /// # Errors
    /// A guarded tree that is too large to be kept.
    pub fn record(plan: &Plan) -> Result<Guarding, LaunchError> {
        let since = sys::file::time_mark();
        let mut guarding = Guarding {
            steps: Vec::with_capacity(plan.guards.len()),
            parents: BTreeMap::new(),
            noted: BTreeSet::new(),
            trees: plan.guarded_trees.clone(),
            since,
            started: Instant::now(),
            taken: Cell::default(),
            begun: past::begin(&plan.guarded_trees, since),
            ended: Cell::default(),
        };
        for step in &plan.guards {
            let saved = match step.found {
                Found::Absent => {
                    guarding.note_parent(&step.path);
                    Saved::Nothing
                }
                Found::Symlink | Found::Present => Saved::of(&step.path).map_err(|why| {
                    LaunchError::Setup(format!(
                        "cannot keep {} to put it back after the run: {why}; use the namespace \
                         tier, or --allow-degraded protect",
                        shown::path(&step.path)
                    ))
                })?,
            };
            guarding.steps.push((step.clone(), saved));
        }
        for tree in &plan.guarded_trees {
            guarding.note(&tree.tree);
        }
        Ok(guarding)
    }

    fn note_parent(&mut self, path: &Path) {
        if let Some(parent) = path.parent() {
            self.note(parent);
        }
    }

    /// A directory whose change time is older than the clock's grain shows by it whether names
    /// were added.
    fn note(&mut self, directory: &Path) {
        if !self.noted.insert(directory.to_owned()) {
            return;
        }
        if let Ok(data) = directory.symlink_metadata()
            && changed(&data) < self.since
        {
            let stamp = Stamp(data.dev(), data.ino(), changed(&data));
            self.parents.insert(directory.to_owned(), stamp);
        }
    }

    /// What a later start under the same plan needs: what was saved, in the order of the plan's
    /// guards, and the directories to note.
    pub fn kept(&self) -> (Vec<Saved>, Vec<PathBuf>) {
        let saved = self.steps.iter().map(|(_, saved)| saved.clone()).collect();
        (saved, self.noted.iter().cloned().collect())
    }

    /// The clock's time from which on changes belong to the run, in nanoseconds.
    pub fn since(&self) -> i128 {
        self.since
    }

    /// Notes of an earlier start that were found to hold, with the directories as they are now:
    /// device, inode and change time, zeroes where there is none.
    pub fn again(
        plan: &Plan,
        saved: Vec<Saved>,
        notes: impl Iterator<Item = (PathBuf, [u64; 3])>,
        since: u64,
    ) -> Option<Guarding> {
        let since = i128::from(since);
        let stamp = |[device, inode, changed]: [u64; 3]| {
            let (major, minor) = (device >> 32, device & 0xffff_ffff);
            // As stat(2) has it, from the halves that statx(2) gives (makedev(3)).
            let device = (major & 0xfff) << 8 | (major & !0xfff) << 32;
            let device = device | (minor & 0xff) | (minor & !0xff) << 12;
            Stamp(device, inode, i128::from(changed))
        };
        let parents: BTreeMap<PathBuf, Stamp> = notes
            .filter(|(_, note)| note[1] != 0 && i128::from(note[2]) < since)
            .map(|(path, note)| (path, stamp(note)))
            .collect();
        (saved.len() == plan.guards.len()).then(|| Guarding {
            steps: plan.guards.iter().cloned().zip(saved).collect(),
            noted: parents.keys().cloned().collect(),
            parents,
            trees: plan.guarded_trees.clone(),
            since,
            started: Instant::now(),
            taken: Cell::default(),
            begun: None,
            ended: Cell::default(),
        })
    }

    /// Whether a directory certainly got no new names since it was noted.
    fn untouched(&self, directory: &Path) -> bool {
        self.parents.get(directory).is_some_and(|stamp| {
            directory
                .symlink_metadata()
                .is_ok_and(|data| *stamp == Stamp(data.dev(), data.ino(), changed(&data)))
        })
    }

    /// Puts right what the run created or changed; returns a sentence for each. Without a
    /// session (the launcher is dead) nothing is kept.
    pub fn enforce(&self, session: Option<&str>) -> Vec<String> {
        let mut work = self.work(self.quarantine(session));
        self.pass(&mut work);
        self.taken.set(work.quarantine.taken());
        if session.is_some() {
            past::end(self.begun.as_ref(), &self.trees, self.since);
            self.ended.set(true);
        }
        work.said
    }

    fn quarantine(&self, session: Option<&str>) -> Quarantine {
        Quarantine::new(session, self.taken.get())
    }

    fn work(&self, quarantine: Quarantine) -> Work<'_> {
        let past = OnceCell::new();
        Work { guarding: self, quarantine, past, unlocked: Vec::new(), said: Vec::new() }
    }

    fn pass(&self, work: &mut Work<'_>) {
        for (step, saved) in &self.steps {
            let parent = step.path.parent().unwrap_or(Path::new("/"));
            if step.found != Found::Absent || !self.untouched(parent) {
                work.step(step, saved);
            }
        }
        for tree in &self.trees {
            if !self.untouched(&tree.tree) {
                work.repository(&tree.tree);
                work.absent_names(tree);
            }
            sweep::sweep(work, tree);
        }
        locked::lock_again(work);
    }
}

/// One pass of putting right.
struct Work<'a> {
    guarding: &'a Guarding,
    quarantine: Quarantine,
    /// Earlier runs, read when something is as old.
    past: OnceCell<Past>,
    /// Directories that were made enterable for a look, and their modes.
    unlocked: Vec<(PathBuf, u32)>,
    said: Vec<String>,
}

/// A directory opened without following links, through which names in it are reached.
struct Directory(OwnedFd);

impl Directory {
    fn open(path: &Path) -> Result<Directory, Errno> {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)?;
        sys::fd::open_without_links(sys::fd::CWD, &name, sys::fd::DIRECTORY).map(Directory)
    }

    /// A path to a name in it that no rename elsewhere can redirect.
    fn at(&self, name: impl AsRef<OsStr>) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd())).join(name.as_ref())
    }
}

impl Work<'_> {
    /// Whether something was created or changed in this run, or in an earlier one that could write
    /// there: what an earlier one left under a harmless name may have been moved here since.
    fn suspect(&self, path: &Path, data: &fs::Metadata) -> bool {
        let changed = changed(data);
        changed >= self.guarding.since || self.past.get_or_init(past::read).holds(path, changed)
    }

    fn step(&mut self, step: &GuardStep, saved: &Saved) {
        let (Some(parent), Some(name)) = (step.path.parent(), step.path.file_name()) else {
            return;
        };
        let directory = match Directory::open(parent) {
            Ok(directory) => directory,
            Err(Errno::ELOOP | Errno::ENOTDIR) => return self.link_on_the_way(step),
            // Deleted with all it held: nothing is left that could be trusted.
            Err(_) => return,
        };
        let at = directory.at(name);
        let now = Saved::of(&at).unwrap_or(Saved::Unknown);
        if now == *saved || harmless(step.guarded, &step.path, &now, saved) {
            return;
        }
        if step.guarded == Guarded::Settings && self.settings(&directory, step, saved, &now) {
            return;
        }
        if let (Guarded::Skills, Saved::Nothing, Saved::Directory(entries)) =
            (step.guarded, saved, &now)
        {
            return self.skills(&at, &step.path, entries);
        }
        if let (Guarded::GitHooks, Saved::Nothing, Saved::Directory(entries)) =
            (step.guarded, saved, &now)
        {
            let hooks = entries.keys().filter(|name| !name.as_bytes().ends_with(b".sample"));
            for hook in hooks {
                self.take_away(&at.join(hook), &step.path.join(hook), "created");
            }
            return;
        }
        let what = if *saved == Saved::Nothing { "created" } else { "changed" };
        if now != Saved::Nothing {
            self.take_away(&at, &step.path, what);
        }
        if *saved != Saved::Nothing {
            match saved.restore(&at) {
                Ok(()) if now == Saved::Nothing => {
                    self.said.push(format!(
                        "{} was removed inside and is protected: restored",
                        shown::path(&step.path)
                    ));
                }
                Ok(()) => self.said.push(format!("{} was restored", shown::path(&step.path))),
                Err(error) => {
                    self.said.push(format!("cannot restore {}: {error}", shown::path(&step.path)))
                }
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
        // Written beside and put in place at once: a reader sees the old or the new.
        let mut beside = OsStr::new(".ringfence-").to_owned();
        beside.push(name);
        let beside = directory.at(beside);
        let _ = fs::remove_file(&beside);
        let merged = Saved::File { bytes: text.into_bytes(), mode: *mode };
        let put = merged.restore(&beside).and_then(|()| fs::rename(&beside, directory.at(name)));
        if put.is_err() {
            let _ = fs::remove_file(&beside);
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
    fn skills(&mut self, at: &Path, shown: &Path, entries: &BTreeMap<OsString, Saved>) {
        for name in entries.keys() {
            if name == ".system" {
                quarantine::discard(&at.join(name));
            } else {
                self.take_away(&at.join(name), &shown.join(name), "created");
            }
        }
        let _ = fs::remove_dir(at);
    }

    /// Names of the built-in list that were not at the top of a tree.
    fn absent_names(&mut self, tree: &GuardedTree) {
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

    /// A `.git` at the top of a tree that is no directory (any more).
    fn repository(&mut self, tree: &Path) {
        let path = tree.join(".git");
        if let Ok(data) = path.symlink_metadata()
            && !data.is_dir()
            && self.suspect(&path, &data)
        {
            self.git_link(&path, &path);
        }
    }

    /// A `.git` that is a file or a link leads git to a repository elsewhere: only to where the
    /// list guards the configuration. A directory is judged by what is in it.
    fn git_link(&mut self, at: &Path, shown: &Path) {
        let target = match Saved::of(at) {
            Ok(Saved::Link(target)) => Some(target),
            Ok(Saved::File { bytes, .. }) => {
                let text = bytes.strip_prefix(b"gitdir:").map(<[u8]>::trim_ascii);
                text.map(|text| PathBuf::from(OsStr::from_bytes(text)))
            }
            Ok(Saved::Directory(_) | Saved::Nothing) => return,
            Ok(Saved::Unknown) | Err(_) => None,
        };
        let parent = shown.parent().unwrap_or(Path::new("/"));
        let allowed = target.is_some_and(|target| {
            ringfence_policy::protect::git_link_allowed(&ringfence_policy::path::normal(
                &parent.join(target),
            ))
        });
        if !allowed {
            self.take_away(at, shown, "created");
        }
    }

    /// A component on the way to a guarded path is a link, which a host program would follow.
    /// One that was made during the run is taken away.
    fn link_on_the_way(&mut self, step: &GuardStep) {
        let mut ancestors: Vec<&Path> = step.path.ancestors().skip(1).collect();
        ancestors.reverse();
        for ancestor in ancestors {
            let Ok(data) = ancestor.symlink_metadata() else { return };
            if data.is_symlink() {
                if self.suspect(ancestor, &data) {
                    self.take_away(ancestor, ancestor, "created");
                }
                return;
            }
        }
    }

    /// Moves something away and says so. `at` is how it is reached, `shown` its name.
    fn take_away(&mut self, at: &Path, path: &Path, what: &str) {
        let shown = shown::path(path);
        self.said.push(match self.quarantine.take(at) {
            Ok(Some(kept)) => {
                format!(
                    "{shown} was {what} inside and is protected: moved to {}",
                    shown::path(&kept)
                )
            }
            Ok(None) => format!("{shown} was {what} inside and is protected: removed"),
            Err(error) => format!(
                "{shown} was {what} inside and is protected, but CANNOT BE REMOVED: {error}"
            ),
        });
    }
}

/// The existing paths that a name with `*` components stands for below a directory.
fn expand(directory: &Path, name: &str) -> Vec<PathBuf> {
    if !name.contains(['*', '?']) {
        return vec![directory.join(name)];
    }
    crate::planner::expand(&crate::facts::HostPaths, directory, name)
}

/// Whether a created or changed git file holds nothing that is executed.
fn harmless(guarded: Guarded, path: &Path, now: &Saved, before: &Saved) -> bool {
    match (guarded, now, before) {
        (Guarded::GitConfig, Saved::File { bytes, .. }, Saved::Nothing) => {
            // A submodule's `core.worktree` leads out of `.git`, to the repository it is in.
            let directory = path.parent().unwrap_or(path);
            let tree = path.ancestors().find(|at| at.ends_with(".git")).and_then(Path::parent);
            std::str::from_utf8(bytes)
                .is_ok_and(|text| executes_in(text, directory, tree.unwrap_or(directory)).is_none())
        }
        (Guarded::GitCommon, Saved::File { bytes, .. }, Saved::Nothing) => {
            git_common_allowed(path, bytes)
        }
        (Guarded::GitHooks, Saved::Directory(entries), Saved::Nothing) => {
            entries.keys().all(|name| name.as_bytes().ends_with(b".sample"))
        }
        _ => false,
    }
}
