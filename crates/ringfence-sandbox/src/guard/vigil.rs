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
//! has them all, the names are looked for ten times a second. So they are where it makes more directories in protected
//! ones than are watched.
//!
//! Who is inside may make names faster than they are taken away. So one turn does a part of it, what the list names
//! first, and the launcher has a look at everything else before the next one.

use super::absent::{Absent, Names, Rank, Standing, Wanted, told};
use super::locked::{self, ALL, ENTER_AND_LIST};
use super::pending::Pending;
use super::quarantine::{Away, Copies};
use super::reach::Reach;
use super::said::{self, AGAIN};
use super::watched::{MOST, Told, Watched};
use super::{Directory, Guarding, Said};
use ringfence_policy::{Guarded, shown};
use ringfence_sys::Errno;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsString;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What waits aside at most; more of it is left to the look at the whole tree.
const WAITING: usize = 256;
/// Names that are known to be given to it. One that is forgotten is given another.
const GIVEN: usize = 1024;
/// So many names are looked at in one turn, and not for longer than that.
const IN_A_TURN: usize = 64;
const A_TURN: Duration = Duration::from_millis(20);
/// Directories further down are not looked into here.
const DEEPEST: usize = 8;
/// Names of a directory that are read to find those that match a pattern.
pub(super) const LISTED: usize = 4096;
/// Between two looks, where the kernel tells nothing.
pub(crate) const BLIND: Duration = Duration::from_millis(100);
/// What is told one by one of what was made in the same protected directory: a repository that is cloned
/// there, or a package that is unpacked, is one matter for who reads it.
const EACH: usize = 3;
/// After so many that were taken from one protected directory it is taken itself, with what is in it by then.
const WHOLE: usize = 64;

/// What was taken from one protected name.
struct Taken {
    count: usize,
    /// Where the first one is kept.
    kept: PathBuf,
    /// Its directory cannot be moved in one step.
    stays: bool,
}

/// Watches for protected names.
pub(crate) struct Vigil<'a> {
    pub(super) guarding: &'a Guarding,
    /// Without one nothing is kept.
    session: Option<String>,
    watched: Watched,
    /// When it is looked again, where nothing tells, or not of everything.
    again: Instant,
    crowded: bool,
    /// When the last turn was.
    turned: Instant,
    /// What is judged when another run had a moment to put it back.
    pub(super) later: BTreeMap<PathBuf, Instant>,
    /// Directories of this look that may be many.
    looked: usize,
    absent: Names,
    pending: Pending,
    copies: Copies,
    /// What is out of the way until the end: where it was, its name beside that, and where it is to go.
    waiting: Vec<(PathBuf, OsString, io::Result<PathBuf>)>,
    /// The last of these names, in protected directories too: they are ours, and taken once.
    given: VecDeque<PathBuf>,
    /// What was taken from each protected name so far.
    taken: BTreeMap<PathBuf, Taken>,
    said: Said,
}

impl Guarding {
    /// Watches from now on; nothing where no protected name can be made.
    pub fn vigil(&self, session: &str) -> Option<Vigil<'_>> {
        self.vigil_of(Some(session))
    }

    fn vigil_of(&self, session: Option<&str>) -> Option<Vigil<'_>> {
        let absent = self.absent();
        if absent.is_empty() {
            return None;
        }
        let mut vigil = Vigil {
            guarding: self,
            session: session.map(str::to_owned),
            watched: Watched::new(),
            again: Instant::now(),
            crowded: false,
            turned: Instant::now(),
            later: BTreeMap::new(),
            looked: 0,
            absent,
            pending: Pending::default(),
            copies: Copies::default(),
            waiting: Vec::new(),
            given: VecDeque::new(),
            taken: BTreeMap::new(),
            said: Said::default(),
        };
        vigil.look();
        Some(vigil)
    }

    /// Leaves those of some paths that are taken while the command runs.
    pub(super) fn keep_told(&self, paths: &mut BTreeSet<PathBuf>) {
        let absent = self.absent();
        let is = |absent: &Absent, path: &Path| absent.standing(path).0 == Standing::Protected;
        paths.retain(|path| absent.around(path).any(|absent| is(absent, path)));
    }
}

impl Vigil<'_> {
    /// Readable when there is something to see.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.watched.descriptor()
    }

    /// When there is something to do by itself: to look again where nothing tells, or the rest of what was told.
    pub fn next(&self) -> Option<Instant> {
        let again = (self.watched.is_blind() || self.crowded).then_some(self.again);
        let rest = (!self.pending.is_empty()).then_some(self.turned);
        again.into_iter().chain(rest).chain(self.later.values().copied()).min()
    }

    /// Does what it is time for.
    pub fn due(&mut self) {
        self.settle();
        if (self.watched.is_blind() || self.crowded) && Instant::now() >= self.again {
            self.look();
        }
        self.serve();
    }

    /// Looks at all that is watched.
    fn look(&mut self) {
        let began = Instant::now();
        (self.looked, self.crowded) = (0, false);
        let bases: Vec<PathBuf> = self.absent.bases().map(Path::to_owned).collect();
        for base in bases {
            self.look_into(&base, 0, true);
        }
        // The launcher has more to do than to look.
        self.again = Instant::now() + BLIND.max(began.elapsed() * 9);
    }

    /// One turn: hears all that was told, and looks at some of it.
    pub fn serve(&mut self) {
        let (pending, crowded) = (&mut self.pending, &mut self.crowded);
        let lost = self.watched.take(|path, rank| *crowded |= !pending.add(path, rank, 0));
        if lost {
            self.look();
        }
        let until = Instant::now() + A_TURN;
        for _ in 0..IN_A_TURN {
            let Some(((path, depth), rank)) = self.pending.take() else { break };
            if rank != Rank::Inside || !self.take_whole(&path) {
                self.look_at(&path, depth);
            }
            if Instant::now() >= until {
                break;
            }
        }
        self.turned = Instant::now();
    }

    /// A protected name that was there, and is not any more: it is watched for like those that were not.
    pub fn also(&mut self, path: &Path) {
        if !told(super::by_name(path)) {
            return;
        }
        let Some((base, way)) = self.guarding.base(path) else { return };
        let is = |absent: &Absent| absent.standing(path).0 == Standing::Protected;
        if !self.absent.around(path).any(is) {
            let hooks = path.ends_with("hooks");
            let guarded = if hooks { Guarded::GitHooks } else { Guarded::Plain };
            self.absent.push(Absent { base: base.clone(), way, guarded, new: false });
        }
        self.look_into(&base, 0, true);
    }

    /// What was taken away, a sentence each, once nobody is left who could write to it.
    pub fn said(mut self) -> Vec<String> {
        let mut room = self.guarding.room.get();
        for (kept, why) in self.copies.complete(&mut room) {
            self.said.push(format!("{} is not whole: {why}", shown::path(&kept)));
        }
        self.guarding.room.set(room);
        let mut quarantine = self.guarding.quarantine(self.session.as_deref());
        for (path, aside, target) in self.waiting {
            let Some(parent) = path.parent() else { continue };
            let taken = Directory::open(parent)
                .map_err(|errno| io::Error::from_raw_os_error(errno.into_raw()))
                .and_then(|directory| {
                    let kept = match &target {
                        Ok(target) => Ok(target.as_path()),
                        Err(why) => Err(io::Error::new(why.kind(), why.to_string())),
                    };
                    quarantine.take_waiting(&directory.at(&aside), kept)
                });
            let kept = target.unwrap_or_default();
            let what = match taken {
                Ok(Ok(())) => format!("moved to {}", shown::path(&kept)),
                Ok(Err(why)) => {
                    let aside = path.with_file_name(&aside);
                    self.guarding.told_aside(&aside);
                    let aside = shown::path(&aside);
                    format!(
                        "it cannot be kept elsewhere ({why}), and is {aside} now; move it away, or remove it"
                    )
                }
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
        for (name, Taken { count, kept, .. }) in self.taken.iter().filter(|(_, of)| of.count > EACH)
        {
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
        let counts = |absent: &&Absent| {
            !absent.new || absent.name(path).is_some_and(|name| self.guarding.is_new(&name))
        };
        let all = self.absent.around(path).map(|absent| (absent, absent.standing(path).0));
        let all = all.filter(|(_, standing)| *standing != Standing::Free);
        let counted =
            all.filter(|(absent, standing)| *standing == Standing::OnTheWay || counts(absent));
        counted.map(|(_, standing)| standing).max().unwrap_or(Standing::Free)
    }

    fn look_at(&mut self, path: &Path, depth: usize) {
        if self.given.iter().any(|given| given == path) {
            return;
        }
        if let Some(name) = self.guarding.awaits(path) {
            return self.wait_for(name);
        }
        let held = self.guarding.was_there(path) && !self.guarding.is_removed(path);
        if held || self.guarding.came_back(path) {
            return;
        }
        match self.standing(path) {
            Standing::Free => {}
            Standing::OnTheWay => {
                if !self.look_into(path, depth + 1, true) {
                    self.in_the_way(path);
                }
            }
            // A directory by itself does nothing, and who made it may need it: what is in it is
            // taken, and the directory at the end of the run.
            Standing::Protected => {
                let done = self.look_into(path, depth + 1, false) || self.take(path);
                if !done {
                    self.look_into(path, depth + 1, true);
                }
            }
        }
    }

    /// A link that was made on the way to a protected name, which a host program would follow: taken where it leads to
    /// such a name, or out of the trees, and looked at again where it does not yet.
    fn in_the_way(&mut self, path: &Path) {
        let made = |data: std::fs::Metadata| data.is_symlink() && self.is_made(&data);
        if !path.symlink_metadata().is_ok_and(made) {
            return;
        }
        let trees = self.guarding.trees.iter().map(|tree| &*tree.tree);
        let Some(reach) = Reach::of(path, trees) else { return };
        let below = |absent: &Absent| {
            absent.below(path).is_some_and(|(name, pattern)| reach.has(&name, pattern))
        };
        let leads = self.absent.around(path).any(below);
        if !(leads && self.take(path)) {
            self.crowded = true;
        }
    }

    fn is_made(&self, data: &std::fs::Metadata) -> bool {
        super::changed(data) >= self.guarding.since
    }

    /// Watches a directory, and notes what it has by then of what counts; false where that is none, or one too
    /// many. Those are only looked at, where they are to be.
    fn look_into(&mut self, path: &Path, depth: usize, anyway: bool) -> bool {
        // What is left out waits for the look at the whole tree.
        if depth > DEEPEST && !anyway {
            return false;
        }
        let opened = match locked::ajar(self.guarding, path, ENTER_AND_LIST) {
            Ok(opened) => opened,
            Err(errno) => {
                // Closed by its program once more; what was closed before it began is none of its.
                let made = |data| self.is_made(&data);
                let closed = errno == Errno::EACCES;
                self.crowded |= closed && path.symlink_metadata().map_or(true, made);
                return false;
            }
        };
        let directory = &opened.directory;
        let wanted = Wanted::of(&self.absent, path);
        let few = wanted.rank == Some(Rank::Known) && !wanted.all;
        let told = self.watched.watch(path, directory, wanted.clone());
        if told == Told::No {
            self.crowded = true;
            if wanted.all && !anyway {
                return false;
            }
        }
        if told != Told::Yes && !few {
            self.looked += 1;
            if self.looked > MOST {
                self.crowded = true;
                return false;
            }
        }
        for (name, rank) in self.there(directory, &wanted) {
            self.crowded |= !self.pending.add(path.join(name), rank, depth);
        }
        true
    }

    /// What is in a directory of the names that count there.
    fn there(&mut self, directory: &Directory, wanted: &Wanted) -> Vec<(OsString, Rank)> {
        let names = || ringfence_sys::directory::Names::of(&directory.at("."));
        let names = |most: usize| names().into_iter().flatten().map(|(name, _)| name).take(most);
        let mut there: Vec<OsString> = match wanted.all {
            true => {
                let all: Vec<_> = names(MOST).collect();
                self.crowded |= all.len() == MOST;
                all
            }
            // The names that are wanted, not all there are: a tree may be of any size, and most are not there, which one
            // call tells.
            false => {
                let is = |name: &&OsString| directory.at(name).symlink_metadata().is_ok();
                wanted.plain.iter().filter(is).cloned().collect()
            }
        };
        if !wanted.all && !wanted.patterns.is_empty() {
            there.extend(names(LISTED).filter(|name| wanted.matches(name)));
        }
        there.sort();
        there.dedup();
        let ranked = |name: OsString| wanted.rank(&name).map(|rank| (name, rank));
        there.into_iter().filter_map(ranked).collect()
    }

    /// The protected name that a path is in.
    fn name_of(&self, path: &Path) -> Option<(PathBuf, bool)> {
        let is = |absent: &&Absent| absent.standing(path).0 == Standing::Protected;
        let absent = self.absent.around(path).find(is)?;
        Some((absent.name(path)?, absent.guarded == Guarded::GitHooks))
    }

    /// Takes the protected directory that a path is in, where much was taken from it by now; whether it is gone.
    fn take_whole(&mut self, path: &Path) -> bool {
        let many = |of: &Taken| of.count >= WHOLE && !of.stays;
        if !self.taken.values().any(many) || self.standing(path) != Standing::Protected {
            return false;
        }
        // In one of hooks samples may be.
        let Some((name, false)) = self.name_of(path) else { return false };
        let kept = self.guarding.awaits(&name).is_some()
            || self.guarding.was_there(&name)
            || self.guarding.came_back(path);
        if kept || !self.taken.get(&name).is_some_and(many) {
            return false;
        }
        let gone = self.take(&name);
        let stays = !gone && name.symlink_metadata().is_ok();
        self.taken.entry(name).and_modify(|of| of.stays = stays);
        gone
    }

    /// Counts what was taken from a protected name; how many that makes.
    fn another(&mut self, path: &Path, kept: PathBuf) -> usize {
        let name = self.name_of(path).map_or(path.to_owned(), |(name, _)| name);
        let of = self.taken.entry(name).or_insert(Taken { count: 0, kept, stays: false });
        of.count += 1;
        of.count
    }

    /// Takes what stands at a path; whether it is gone.
    pub(super) fn take(&mut self, path: &Path) -> bool {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return false };
        let Ok(opened) = locked::ajar(self.guarding, parent, ENTER_AND_LIST) else { return false };
        let at = opened.directory.at(name);
        let Ok(data) = at.symlink_metadata() else { return false };
        let (shown, way) = (shown::path(path), self.guarding.way(path));
        let tell = |what: &str| {
            let sentence = format!("{shown} {way}: {what}");
            if way == AGAIN {
                said::now(&sentence);
            }
            sentence
        };
        let mut quarantine = self.guarding.quarantine(self.session.as_deref());
        let mut away = quarantine.move_away(&at, &mut self.copies);
        let refused = |away: &io::Result<Away>| {
            away.as_ref().is_err_and(|why| why.kind() == io::ErrorKind::PermissionDenied)
        };
        if refused(&away) {
            // What cannot be written may have been closed by who made it. A directory is written when it moves.
            let opened = locked::ajar(self.guarding, parent, ALL);
            let itself = data.is_dir().then(|| locked::ajar(self.guarding, path, ALL));
            away = quarantine.move_away(&at, &mut self.copies);
            drop((itself, opened));
            self.crowded |= refused(&away);
        }
        self.guarding.taken.set(quarantine.taken());
        self.guarding.misses(path);
        if away.is_ok() && data.is_dir() {
            self.watched.forget(path);
            self.pending.forget_in(path);
        }
        let what = match away {
            Ok(Away::Kept(kept)) => {
                let told = format!("moved to {} while the command ran", shown::path(&kept));
                if self.another(path, kept) > EACH {
                    return true;
                }
                told
            }
            Ok(Away::Waits(aside, target)) => {
                if self.given.len() >= GIVEN {
                    self.given.pop_front();
                }
                self.given.push_back(path.with_file_name(&aside));
                if self.waiting.len() < WAITING {
                    tell(&format!(
                        "moved aside until the end, to {}",
                        shown::path(Path::new(&aside))
                    ));
                    self.waiting.push((path.to_owned(), aside, target));
                }
                return true;
            }
            Ok(Away::Removed(why)) => format!("removed while the command ran ({why})"),
            Err(_) => return false,
        };
        self.said.push(tell(&what));
        true
    }
}

#[cfg(test)]
#[path = "vigil_tests.rs"]
pub(super) mod tests;
