//! Puts protected paths right after a run, where the kernel could not hold them during it.
//!
//! [`Guarding::record`] notes what is there before the run; [`Guarding::enforce`] runs when
//! nothing of the sandbox lives any more. What was created or changed is moved to the session's
//! quarantine and what was there before is put back. Everything on the way is opened without
//! following links: the tree was in the hands of the sandboxed program a moment ago.

mod absent;
mod aside;
mod awaited;
mod crowd;
mod directory;
mod enforce;
mod git;
mod locked;
mod named;
mod notes;
mod others;
mod past;
mod pending;
mod quarantine;
mod reach;
mod renewed;
mod said;
mod saved;
mod short;
mod stays;
mod sweep;
mod tracked;
mod unsure;
mod vigil;
mod watched;
mod whereabouts;
mod whole;
mod work;

use crate::cover::watch::Identity;
use crate::cover::{Cover, What};
use crate::error::LaunchError;
use crate::plan::{Found, GuardStep, GuardedTree, Plan};
use directory::Directory;
use notes::Begun;
pub use notes::written;
pub(crate) use notes::{WILL, noted_by_image};
use others::{Others, Word};
pub use past::made_by_a_run;
use ringfence_policy::{Guarded, shown};
use ringfence_start::mark;
use ringfence_sys as sys;
use said::Said;
pub(crate) use saved::Saved;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use sys::Errno;
pub(crate) use vigil::{BLIND, Vigil};
use work::{Work, expand};

/// What was there before the run.
#[derive(Debug)]
pub(crate) struct Guarding {
    steps: Vec<(GuardStep, Saved)>,
    /// Directories that hold guarded paths which do not exist: unchanged, they need no look.
    parents: BTreeMap<PathBuf, Stamp>,
    /// All directories that were looked at for that.
    noted: BTreeSet<PathBuf>,
    trees: Vec<GuardedTree>,
    /// The directories at their paths before the command could run.
    tops: BTreeMap<PathBuf, Identity>,
    /// These, where they are held: see [`whereabouts`].
    held_tops: RefCell<Option<BTreeMap<PathBuf, File>>>,
    /// Where the trees were, if they are elsewhere: earlier runs are known by that.
    former: Vec<PathBuf>,
    /// The directory of the run, where it is a writable tree and not the home: agents keep snapshots of it in
    /// repositories among their state (`core.worktree`), and git writes nothing there that the run could not.
    project: Option<PathBuf>,
    /// Change times from here on belong to the run.
    since: i128,
    started: Instant,
    /// How many things went to the quarantine.
    taken: Cell<u32>,
    /// Bytes that may be copied there yet.
    room: Cell<u64>,
    /// This run, noted for later ones; of the launcher.
    begun: Option<Begun>,
    /// Its end is noted.
    ended: Cell<bool>,
    /// What it has told runs that begin later.
    word: RefCell<Option<Word>>,
    /// Protected names that a mount held, until somebody outside removed them: from then on they are like those that
    /// were not there.
    removed: RefCell<BTreeMap<PathBuf, Option<Identity>>>,
    /// Names that another run has removed, and will put back: until then no mount holds them.
    awaited: RefCell<BTreeSet<PathBuf>>,
    /// What was at paths of which it is not known what they held before.
    unsure: BTreeMap<PathBuf, Identity>,
    /// What was taken from its place: see [`tracked`].
    missed: RefCell<Vec<PathBuf>>,
    /// What was set aside, and told.
    asides: RefCell<BTreeSet<PathBuf>>,
    /// What begins with a pattern and is held by a mount.
    held: BTreeSet<PathBuf>,
    /// Whether some of what was saved is not what was found, but what another run that goes on found.
    inherits: bool,
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

/// The last moment at which something can have been changed.
fn changed(data: &fs::Metadata) -> i128 {
    latest(i128::from(data.ctime()) * 1_000_000_000 + i128::from(data.ctime_nsec()))
}

/// The last moment that a change time stands for ([`mark::latest`]).
fn latest(changed: i128) -> i128 {
    u64::try_from(changed).map_or(changed, |changed| mark::latest(changed).into())
}

/// What [`Guarding::project`] is.
fn project(plan: &Plan) -> Option<PathBuf> {
    let writable = plan.guarded_trees.iter().any(|tree| tree.tree == plan.workdir);
    let home = sys::identity::home().is_some_and(|home| home.starts_with(&plan.workdir));
    (writable && !home).then(|| plan.workdir.clone())
}

/// The paths that this run guards.
fn places(plan: &Plan) -> BTreeSet<&Path> {
    let trees = plan.guarded_trees.iter().map(|guarded| guarded.tree.as_path());
    trees.chain(plan.guards.iter().map(|step| step.path.as_path())).collect()
}

/// What is at a path. Nothing is, where a link is on the way: what it leads to has a path of its own.
fn keep(path: &Path) -> io::Result<Saved> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Saved::of(path);
    };
    match Directory::open(parent) {
        Ok(directory) => Saved::of(&directory.at(name)),
        Err(Errno::ENOENT | Errno::ELOOP | Errno::ENOTDIR) => Ok(Saved::Nothing),
        Err(errno) => Err(io::Error::from_raw_os_error(errno.into_raw())),
    }
}

/// What is at a path.
fn identity(path: &Path) -> Option<Identity> {
    path.symlink_metadata().ok().map(|data| (data.dev(), data.ino()))
}

/// How a new one is judged that has a protected path.
fn by_name(path: &Path) -> Guarded {
    let in_git = path.components().any(|part| part.as_os_str() == ".git");
    match path.file_name().and_then(|name| name.to_str()) {
        Some("config" | "config.worktree") if in_git => Guarded::GitConfig,
        Some("hooks") if in_git => Guarded::GitHooks,
        Some("commondir") if in_git => Guarded::GitCommon,
        Some(".gitmodules") => Guarded::GitConfig,
        _ => Guarded::Plain,
    }
}

impl Guarding {
    /// Notes what is at the guarded paths. What came to be there after `since`, when the plan was yet to look, is the run's.
    ///
    /// # Errors
    /// A guarded tree that is too large to be kept.
    pub fn record(plan: &Plan, since: i128) -> Result<Guarding, LaunchError> {
        let mut guarding = Guarding {
            steps: Vec::with_capacity(plan.guards.len()),
            parents: BTreeMap::new(),
            noted: BTreeSet::new(),
            trees: plan.guarded_trees.clone(),
            tops: whereabouts::tops(&plan.guarded_trees),
            held_tops: RefCell::default(),
            former: Vec::new(),
            project: project(plan),
            since,
            started: Instant::now(),
            taken: Cell::default(),
            room: Cell::new(quarantine::ROOM),
            begun: notes::begin(&plan.guarded_trees, since),
            ended: Cell::default(),
            word: RefCell::default(),
            removed: RefCell::default(),
            awaited: RefCell::default(),
            unsure: BTreeMap::new(),
            missed: RefCell::default(),
            asides: RefCell::default(),
            held: absent::held(plan),
            inherits: false,
        };
        let places = places(plan);
        let others = Others::read(&places);
        for step in &plan.guards {
            let saved = match step.found {
                Found::Absent => {
                    guarding.note_parent(&step.path);
                    Saved::Nothing
                }
                Found::Symlink | Found::Present => keep(&step.path).map_err(|why| {
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
        // Our own command has not begun.
        guarding.inherit(&others, i128::MAX);
        // One that has begun meanwhile, after whose command we may have looked.
        if let Some(others) = others.again(&places) {
            guarding.inherit(&others, i128::MAX);
        }
        Ok(guarding)
    }

    /// Keeps what was there before runs that go on, where they can have changed it: of the launcher. Inside, where
    /// the warden of a namespace is, those files are the program's. Not before runs that began after this one, whose
    /// command runs already.
    pub fn inherit_from_others(&mut self, plan: &Plan) {
        self.inherit(&Others::read(&places(plan)), self.since);
    }

    fn inherit(&mut self, others: &Others, until: i128) {
        for (step, saved) in &mut self.steps {
            if let Some(before) =
                others.before(&step.path, saved, until).filter(|before| before != saved)
            {
                if before == Saved::Unknown
                    && let Some(identity) = identity(&step.path)
                {
                    self.unsure.insert(step.path.clone(), identity);
                }
                let there = !matches!(before, Saved::Nothing | Saved::Unknown);
                if step.found == Found::Absent && there {
                    self.awaited.get_mut().insert(step.path.clone());
                }
                *saved = before;
                self.inherits = true;
            }
        }
        // What one of them has removed it will put back: that is not ours to take away.
        for (_, path, saved) in others.found().take_while(|(since, ..)| *since < until) {
            let of = |tree: &&GuardedTree| path.starts_with(&tree.tree) && !tree.is_lifted(path);
            let known = self.steps.iter().any(|(step, _)| step.path == path);
            if known || path.symlink_metadata().is_ok() || !self.trees.iter().any(|tree| of(&tree))
            {
                continue;
            }
            let (found, guarded) = (Found::Present, by_name(path));
            let rule = crate::planner::built_in("protected names");
            let step = GuardStep { path: path.to_owned(), found, guarded, rule };
            self.awaited.get_mut().insert(path.to_owned());
            self.steps.push((step, saved.clone()));
            self.inherits = true;
        }
        // What this run may make, or what has to be read, is judged at the end alone.
        let mut awaited = self.awaited.take();
        if !awaited.is_empty() {
            self.keep_told(&mut awaited);
            self.awaited.replace(awaited);
        }
    }

    /// Whether something was at a path, or on the way to it, before the run.
    fn was_there(&self, path: &Path) -> bool {
        let is = |(step, saved): &(GuardStep, Saved)| {
            *saved != Saved::Nothing && path.starts_with(&step.path)
        };
        self.steps.iter().any(is)
    }

    /// The mounts that names get which another run puts back.
    pub fn awaited(&self) -> Vec<Cover> {
        let cover = |path: &PathBuf| {
            let tree = self.trees.iter().find(|guarded| path.starts_with(&guarded.tree));
            let tree = tree.map_or(path.parent()?, |guarded| &guarded.tree).to_owned();
            Some(Cover { path: path.clone(), what: What::Protects, tree, protected: true })
        };
        self.awaited.borrow().iter().filter_map(cover).collect()
    }

    /// Tells runs that begin from now on what was there before this one: before its command executes, or just
    /// after.
    pub fn tell(&self) {
        *self.word.borrow_mut() = others::tell(self.since, &self.steps, &self.trees);
    }

    /// Whether what was saved is another run's, and no later start's.
    pub fn inherits(&self) -> bool {
        self.inherits
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
    /// device, inode and change time, zeroes where there is none. `since` is the clock's time from which on
    /// changes belong to the run, and how long ago it was.
    pub fn again(
        plan: &Plan,
        saved: Vec<Saved>,
        notes: impl Iterator<Item = (PathBuf, [u64; 3])>,
        (since, ago): (u64, Duration),
    ) -> Option<Guarding> {
        let since = i128::from(since);
        let stamp = |[device, inode, changed]: [u64; 3]| {
            let (major, minor) = (device >> 32, device & 0xffff_ffff);
            // As stat(2) has it, from the halves that statx(2) gives (makedev(3)).
            let device = (major & 0xfff) << 8 | (major & !0xfff) << 32;
            let device = device | (minor & 0xff) | (minor & !0xff) << 12;
            Stamp(device, inode, latest(changed.into()))
        };
        let mut parents: BTreeMap<PathBuf, Stamp> = notes
            .filter(|(_, note)| note[1] != 0)
            .map(|(path, note)| (path, stamp(note)))
            .collect();
        let top = |tree: &GuardedTree| {
            let Stamp(device, inode, _) = parents.get(&tree.tree)?;
            Some((tree.tree.clone(), (*device, *inode)))
        };
        let tops = plan.guarded_trees.iter().filter_map(top).collect();
        parents.retain(|_, Stamp(.., changed)| *changed < since);
        (saved.len() == plan.guards.len()).then(|| Guarding {
            steps: plan.guards.iter().cloned().zip(saved).collect(),
            noted: parents.keys().cloned().collect(),
            parents,
            trees: plan.guarded_trees.clone(),
            tops,
            held_tops: RefCell::default(),
            former: Vec::new(),
            project: project(plan),
            since,
            started: Instant::now().checked_sub(ago).unwrap_or_else(Instant::now),
            taken: Cell::default(),
            room: Cell::new(quarantine::ROOM),
            begun: None,
            ended: Cell::default(),
            word: RefCell::default(),
            removed: RefCell::default(),
            awaited: RefCell::default(),
            unsure: BTreeMap::new(),
            missed: RefCell::default(),
            asides: RefCell::default(),
            held: absent::held(plan),
            inherits: false,
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

    /// Whether what is at a path lay there before the run, below a name that was removed and came back.
    fn came_back(&self, path: &Path) -> bool {
        let removed = self.removed.borrow();
        let is = |(name, was): (&PathBuf, &Option<Identity>)| {
            path.starts_with(name) && was.is_some() && identity(name) == *was
        };
        let old =
            |path: &Path| path.symlink_metadata().is_ok_and(|data| changed(&data) < self.since);
        removed.iter().any(is) && old(path)
    }

    /// A protected name is not there any more, and its mount went with it.
    pub fn removed(&self, path: &Path, was: Option<Identity>) {
        self.removed.borrow_mut().insert(path.to_owned(), was);
    }

    /// The names that were removed.
    pub fn gone(&self) -> Vec<PathBuf> {
        self.removed.borrow().keys().cloned().collect()
    }

    /// Whether a path is a name that was removed, or in one.
    fn is_removed(&self, path: &Path) -> bool {
        self.removed.borrow().keys().any(|name| path.starts_with(name))
    }

    /// What is said of something that was made at a path, or below it.
    fn way(&self, path: &Path) -> String {
        if self.is_removed(path) { said::AGAIN.to_owned() } else { said::inside("created") }
    }

    /// Something was taken from its place.
    fn misses(&self, path: &Path) {
        let mut missed = self.missed.borrow_mut();
        if missed.len() < tracked::MOST {
            missed.push(path.to_owned());
        }
    }

    /// Something was set aside under a name of its own, which is told.
    fn told_aside(&self, path: &Path) {
        let mut asides = self.asides.borrow_mut();
        if asides.len() < tracked::MOST {
            asides.insert(path.to_owned());
        }
    }
}
