//! Takes protected names away while the sandbox lives, as soon as they are made.
//!
//! Directories that can get such a name tell of it (inotify): the tops of writable trees, and what
//! lies between them and the name. Only what needs no look at its content is taken here: a name of
//! which everything is protected, and hooks. The rest, and what is deeper in a tree, waits for the
//! end of the run, as does a directory that cannot be moved away in one step.
//!
//! Who made the name is still there, and may put anything in its place at any moment. So nothing is
//! followed here: a directory is opened without links, and a name in it is moved by one
//! `rename(2)`. What that takes is what stood at the protected name. Where the quarantine is on another
//! file system, it is a copy that is kept there (`Quarantine::move_away`).
//!
//! A user may have so many sets of watches (`fs.inotify.max_user_instances`, 128), and the command's are his: where it
//! has them all, the names are looked for ten times a second.

use super::quarantine::{Away, Copies};
use super::said::{self, AGAIN};
use super::{Directory, Guarding, Said};
use crate::plan::Found;
use crate::planner::glob;
use ringfence_policy::{Guarded, shown};
use ringfence_sys as sys;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};
use sys::Errno;
use sys::inotify::Named;

/// Directories watched at most.
const MOST: usize = 512;
/// What waits aside at most; more of it is left to the look at the whole tree.
const WAITING: usize = 256;
/// So many names told at once are much.
const MUCH: usize = 64;
/// Directories further down are not looked into here.
const DEEPEST: usize = 8;
/// Between two looks, where the kernel tells nothing.
pub(crate) const BLIND: Duration = Duration::from_millis(100);
/// What is told one by one of what was made in the same protected directory: a repository that is cloned
/// there, or a package that is unpacked, is one matter for who reads it.
const EACH: usize = 3;

/// A protected name that was not there: the directory that was, and the way from it.
struct Absent {
    base: PathBuf,
    way: Vec<OsString>,
    hooks: bool,
}

/// Watches for protected names.
pub(crate) struct Vigil<'a> {
    pub(super) guarding: &'a Guarding,
    session: String,
    /// None where all that the user may have are taken, by the command itself perhaps: it is looked again and again
    /// then.
    names: Option<sys::inotify::Names>,
    /// When it is looked again, where nothing tells.
    again: Instant,
    /// What is judged when another run had a moment to put it back.
    pub(super) later: BTreeMap<PathBuf, Instant>,
    /// Directories of this look.
    looked: usize,
    watched: HashMap<i32, PathBuf>,
    absent: Vec<Absent>,
    copies: Copies,
    /// What is out of the way until the end: where it was, its name beside that, and where it is to go.
    waiting: Vec<(PathBuf, OsString, PathBuf)>,
    /// How many were taken from each protected name so far, and where the first one is kept.
    taken: BTreeMap<PathBuf, (usize, PathBuf)>,
    said: Said,
}

impl Guarding {
    /// Watches from now on; nothing where no protected name can be made.
    pub fn vigil(&self, session: &str) -> Option<Vigil<'_>> {
        let absent = self.absent();
        if absent.is_empty() {
            return None;
        }
        let mut vigil = Vigil {
            guarding: self,
            session: session.to_owned(),
            names: sys::inotify::Names::new().ok(),
            again: Instant::now(),
            later: BTreeMap::new(),
            looked: 0,
            watched: HashMap::new(),
            absent,
            copies: Copies::default(),
            waiting: Vec::new(),
            taken: BTreeMap::new(),
            said: Said::default(),
        };
        vigil.look();
        Some(vigil)
    }

    /// Whether a path is taken while the command runs.
    pub(super) fn is_told(&self, path: &Path) -> bool {
        self.absent().iter().any(|absent| absent.standing(path) == Standing::Protected)
    }

    /// The names that can be told by themselves.
    fn absent(&self) -> Vec<Absent> {
        let way = |path: &Path| -> Option<Vec<OsString>> {
            let names = path.components().map(|one| match one {
                Component::Normal(name) => Some(name.to_owned()),
                _ => None,
            });
            names.collect::<Option<Vec<_>>>().filter(|way| !way.is_empty())
        };
        let mut all = Vec::new();
        for tree in &self.trees {
            for (name, guarded) in tree.absent.iter().filter(|(_, guarded)| told(*guarded)) {
                if let Some(way) = way(Path::new(name.as_ref())) {
                    let hooks = *guarded == Guarded::GitHooks;
                    all.push(Absent { base: tree.tree.clone(), way, hooks });
                }
            }
        }
        let steps = self.steps.iter().map(|(step, _)| step);
        for step in steps.filter(|step| step.found == Found::Absent && told(step.guarded)) {
            // What of its way is there.
            let base = step.path.ancestors().skip(1).find(|path| path.is_dir());
            let relative = base.and_then(|base| Some((base, step.path.strip_prefix(base).ok()?)));
            if let Some((base, relative)) = relative
                && let Some(way) = way(relative)
            {
                let hooks = step.guarded == Guarded::GitHooks;
                all.push(Absent { base: base.to_owned(), way, hooks });
            }
        }
        all
    }
}

/// Whether what is judged so is told by its name; else it has to be read, which waits for the end.
fn told(guarded: Guarded) -> bool {
    matches!(guarded, Guarded::Plain | Guarded::GitHooks)
}

/// What a path is to the protected names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// Nothing.
    Free,
    /// A directory on the way to one.
    OnTheWay,
    /// One of them, or something in it.
    Protected,
}

impl Absent {
    /// The protected name itself.
    fn name(&self, path: &Path) -> Option<PathBuf> {
        let relative = path.strip_prefix(&self.base).ok()?;
        Some(self.base.join(relative.iter().take(self.way.len()).collect::<PathBuf>()))
    }

    fn standing(&self, path: &Path) -> Standing {
        let Ok(relative) = path.strip_prefix(&self.base) else { return Standing::Free };
        let mut components = relative.components().map(Component::as_os_str);
        for wanted in &self.way {
            match components.next() {
                None => return Standing::OnTheWay,
                Some(name) if !matches(wanted, name) => return Standing::Free,
                Some(_) => {}
            }
        }
        let sample = |name: &OsStr| name.as_bytes().ends_with(b".sample");
        match components.next() {
            Some(name) if self.hooks && sample(name) => Standing::Free,
            _ => Standing::Protected,
        }
    }
}

fn matches(wanted: &OsStr, name: &OsStr) -> bool {
    name == wanted || (is_pattern(wanted) && glob(wanted.as_bytes(), name.as_bytes()))
}

fn is_pattern(name: &OsStr) -> bool {
    name.as_bytes().iter().any(|byte| matches!(byte, b'*' | b'?'))
}

impl Vigil<'_> {
    /// Readable when there is something to see.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.names.as_ref().map(sys::inotify::Names::descriptor)
    }

    /// When to look again, where nothing tells.
    pub fn next(&self) -> Option<Instant> {
        let again = self.names.is_none().then_some(self.again);
        again.into_iter().chain(self.later.values().copied()).min()
    }

    /// Does what it is time for.
    pub fn due(&mut self) {
        self.settle();
        if self.names.is_none() && Instant::now() >= self.again {
            self.look();
        }
    }

    /// Looks at all that is watched.
    fn look(&mut self) {
        let began = Instant::now();
        self.looked = 0;
        let mut bases: Vec<PathBuf> =
            self.absent.iter().map(|absent| absent.base.clone()).collect();
        bases.sort();
        bases.dedup();
        for base in bases {
            self.look_into(&base, 0);
        }
        // The launcher has more to do than to look.
        self.again = Instant::now() + BLIND.max(began.elapsed() * 9);
    }

    /// Looks at what was told: all of it, each name once. Where it is much, who makes so many names may have put them
    /// before the one that counts: those that are known are looked for first.
    pub fn serve(&mut self) {
        let told = self.names.as_ref().map(sys::inotify::Names::take_all).unwrap_or_default();
        if told.lost || told.names.len() > MUCH {
            self.look();
        }
        let names: BTreeSet<Named> = told.names.into_iter().collect();
        for named in names {
            if let Some(directory) = self.watched.get(&named.directory) {
                let path = directory.join(&named.name);
                self.look_at(&path, 0);
            }
        }
    }

    /// A protected name that was there, and is not any more: it is watched for like those that were not.
    pub fn also(&mut self, path: &Path) {
        if !told(super::by_name(path)) {
            return;
        }
        let base = path.ancestors().skip(1).find(|path| path.is_dir());
        let relative = base.and_then(|base| Some((base, path.strip_prefix(base).ok()?)));
        let Some((base, relative)) = relative else { return };
        let is = |absent: &Absent| absent.standing(path) == Standing::Protected;
        if !self.absent.iter().any(is) {
            let way = relative.iter().map(OsStr::to_owned).collect();
            self.absent.push(Absent { base: base.to_owned(), way, hooks: path.ends_with("hooks") });
        }
        self.look_into(base, 0);
    }

    /// What was taken away, a sentence each, once nobody is left who could write to it.
    pub fn said(mut self) -> Vec<String> {
        let mut room = self.guarding.room.get();
        for (kept, why) in self.copies.complete(&mut room) {
            self.said.push(format!("{} is not whole: {why}", shown::path(&kept)));
        }
        self.guarding.room.set(room);
        let mut quarantine = self.guarding.quarantine(Some(&self.session));
        for (path, aside, target) in self.waiting {
            let Some(parent) = path.parent() else { continue };
            let taken = Directory::open(parent)
                .map_err(|errno| std::io::Error::from_raw_os_error(errno.into_raw()))
                .and_then(|directory| quarantine.take_waiting(&directory.at(&aside), &target));
            let what = match taken {
                Ok(Ok(())) => format!("moved to {}", shown::path(&target)),
                Ok(Err(why)) => format!("removed ({why})"),
                // Moved on by its program, or for the look at the whole tree.
                Err(why) => format!("it was {} by then ({why})", shown::path(Path::new(&aside))),
            };
            self.said.push(format!(
                "{} {}: moved aside while the command ran; at the end {what}",
                shown::path(&path),
                self.guarding.way(&path)
            ));
        }
        self.guarding.room.set(quarantine.room());
        for (name, (count, kept)) in self.taken.iter().filter(|(_, (count, _))| *count > EACH) {
            let beside = kept.parent().unwrap_or(kept);
            self.said.push(format!(
                "{}: {} more of what was created in it inside was moved to {} as well",
                shown::path(name),
                count - EACH,
                shown::path(beside)
            ));
        }
        self.said.all()
    }

    fn standing(&self, path: &Path) -> Standing {
        let all = self.absent.iter().map(|absent| absent.standing(path));
        all.max().unwrap_or(Standing::Free)
    }

    fn look_at(&mut self, path: &Path, depth: usize) {
        if let Some(name) = self.guarding.awaits(path) {
            return self.wait_for(name);
        }
        let held = self.guarding.was_there(path) && !self.guarding.is_removed(path);
        if held || self.guarding.came_back(path) {
            return;
        }
        match self.standing(path) {
            Standing::Free => {}
            Standing::OnTheWay => drop(self.look_into(path, depth + 1)),
            // A directory by itself does nothing, and who made it may need it: what is in it is
            // taken, and the directory at the end of the run.
            Standing::Protected if self.look_into(path, depth + 1) => {}
            Standing::Protected => self.take(path),
        }
    }

    /// Watches a directory, and looks at what it has by then; false where that is none, or one too
    /// many.
    fn look_into(&mut self, path: &Path, depth: usize) -> bool {
        // What is left out waits for the look at the whole tree.
        if depth > DEEPEST || self.watched.len() >= MOST || self.looked >= MOST {
            return false;
        }
        let Ok(directory) = Directory::open(path) else { return false };
        match self.names.as_ref().map(|names| names.watch(directory.0.as_fd())) {
            Some(Ok(number)) => drop(self.watched.insert(number, path.to_owned())),
            // No more can be had.
            Some(Err(Errno::ENOSPC | Errno::ENOMEM)) => self.names = None,
            Some(Err(_)) => return false,
            None => self.looked += 1,
        }
        let mut there: Vec<PathBuf> = if self.standing(path) == Standing::Protected {
            let entries = std::fs::read_dir(directory.at(".")).into_iter().flatten().flatten();
            entries.take(MOST).map(|entry| path.join(entry.file_name())).collect()
        } else {
            // The names that are wanted, not all there are: a tree may be of any size.
            let next = |absent: &Absent| {
                let relative = path.strip_prefix(&absent.base).ok()?;
                let name = absent.way.get(relative.components().count())?;
                let plain = !is_pattern(name);
                let wanted = plain && absent.standing(path) == Standing::OnTheWay;
                // Most are not there, and one call tells.
                (wanted && directory.at(name).symlink_metadata().is_ok()).then(|| path.join(name))
            };
            self.absent.iter().filter_map(next).collect()
        };
        there.sort();
        there.dedup();
        there.iter().for_each(|path| self.look_at(path, depth));
        true
    }

    /// Counts what was taken from a protected name; how many that makes.
    fn another(&mut self, path: &Path, kept: PathBuf) -> usize {
        let is = |absent: &&Absent| absent.standing(path) == Standing::Protected;
        let name = self.absent.iter().find(is).and_then(|absent| absent.name(path));
        let (count, _) = self.taken.entry(name.unwrap_or(path.to_owned())).or_insert((0, kept));
        *count += 1;
        *count
    }

    pub(super) fn take(&mut self, path: &Path) {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return };
        let Ok(directory) = Directory::open(parent) else { return };
        let at = directory.at(name);
        if at.symlink_metadata().is_err() {
            return;
        }
        let (shown, way) = (shown::path(path), self.guarding.way(path));
        let tell = |what: &str| {
            let sentence = format!("{shown} {way}: {what}");
            if way == AGAIN {
                said::now(&sentence);
            }
            sentence
        };
        let mut quarantine = self.guarding.quarantine(Some(&self.session));
        let away = quarantine.move_away(&at, &mut self.copies);
        self.guarding.taken.set(quarantine.taken());
        self.guarding.misses(path);
        let what = match away {
            Ok(Away::Kept(kept)) => {
                let told = format!("moved to {} while the command ran", shown::path(&kept));
                if self.another(path, kept) > EACH {
                    return;
                }
                told
            }
            Ok(Away::Waits(aside, target)) => {
                if self.waiting.len() < WAITING {
                    tell(&format!(
                        "moved aside until the end, to {}",
                        shown::path(Path::new(&aside))
                    ));
                    self.waiting.push((path.to_owned(), aside, target));
                }
                return;
            }
            Ok(Away::Removed(why)) => format!("removed while the command ran ({why})"),
            Err(_) => return,
        };
        self.said.push(tell(&what));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_and_what_is_in_it_is_protected_and_its_neighbours_are_free() {
        let absent = |way: &[&str], hooks| Absent {
            base: PathBuf::from("/p"),
            way: way.iter().map(OsString::from).collect(),
            hooks,
        };
        let of = |absent: &Absent, path: &str| absent.standing(Path::new(path));
        let plain = absent(&[".a", "b*"], false);
        assert!(
            of(&plain, "/p") == Standing::OnTheWay && of(&plain, "/p/.a") == Standing::OnTheWay
        );
        for path in ["/p/.a/b", "/p/.a/bc", "/p/.a/b/deep/er"] {
            assert!(of(&plain, path) == Standing::Protected, "{path}");
        }
        for path in ["/p/a", "/p/.a/c", "/q/.a/b", "/"] {
            assert!(of(&plain, path) == Standing::Free, "{path}");
        }
        let hooks = absent(&[".git", "hooks"], true);
        assert!(of(&hooks, "/p/.git/hooks/pre-commit") == Standing::Protected);
        assert!(of(&hooks, "/p/.git/hooks/pre-commit.sample") == Standing::Free);
    }
}
