//! Whether a run that has ended left nothing that could have to be put right: looked at before libc is up,
//! since most short runs do not.
//!
//! This decides nothing: where it finds anything that the guards (`guard` in `ringfence-sandbox`) would look
//! at more closely, it says so, and they do it all from the beginning. It walks a tree as they do
//! (`guard::sweep`), within the same budget, and is content only with directories that no run changed and
//! that hold none of the names they look for.

use crate::bytes::{Text, equal, from, position, starts_with};
use crate::call::{close, sys};
use crate::entries::{DIRECTORY, LINK, UNKNOWN, each, ends_with};
use crate::image::{Image, Span};
use crate::listing::{ENDING, Known, next};
use crate::mark::latest;
use crate::stamp::{AT_FDCWD, EMPTY_PATH, Looked, look};
use crate::{Errno, flags};
use core::ffi::CStr;

/// In a tree's list: a protected name. At the top it is judged by itself.
pub const NAME: u8 = b'=';
/// In a tree's list: the first component of protected names. At the top they are judged by themselves, and it is
/// walked like other directories.
pub const WAY: u8 = b'/';
/// In a tree's list: such a component, and names below it are looked for at the top as well.
pub const ANYWHERE: u8 = b'!';
/// In a tree's list: a repository, in which names with a pattern are looked for below [`IN_REPOSITORY`] and
/// [`LISTED`] only.
pub const REPOSITORY: u8 = b'g';
/// Where a repository has further ones.
pub const IN_REPOSITORY: [&str; 2] = ["worktrees", "modules"];
/// Its directories whose own entries are names. What was there before the run is a guarded path of the plan's.
pub const LISTED: [&str; 2] = ["remotes", "branches"];
/// Entries looked at in any case, and for each millisecond of the run.
pub const ENTRIES: usize = 200;
/// See [`ENTRIES`].
pub const ENTRIES_PER_MILLISECOND: usize = 40;
/// A directory costs as much as this many entries.
pub const A_DIRECTORY: usize = 20;

/// Milliseconds for which the trees are looked through while the command runs: one that takes longer is
/// looked after anew. What these allow of a crowded directory comes with one read of it, which takes some
/// 50 µs there.
const AHEAD: usize = 3;
/// At most so many directories are held until it ends.
const MOST_HELD: usize = 32;

/// Bytes of the paths of directories that are still to be walked.
pub const ROOM: usize = 32 << 10;

/// Owner's right to enter and list.
const ENTER_AND_LIST: u16 = 0o500;

/// A tree's list.
struct List {
    at: u32,
    known: Known,
}

/// What was found while the command ran: directories that held none of the names. As long as none of them has
/// changed since, that is so.
pub struct Ahead {
    /// Open, so that it is they that are looked at again, and their change times.
    held: [(i32, u64); MOST_HELD],
    count: usize,
    /// Which of them are repositories, a bit each.
    repositories: u32,
    /// Whether they are all that there is to look at.
    whole: bool,
}

impl Ahead {
    /// Nothing looked at. All zeroes, so that a static one takes no place in the file.
    pub const NONE: Ahead =
        Ahead { held: [(0, 0); MOST_HELD], count: 0, repositories: 0, whole: false };

    /// Keeps a directory that no run had changed at this time; without room it is closed.
    fn keep(&mut self, directory: usize, changed: u64, repository: bool) -> Option<()> {
        let Some(place) = self.held.get_mut(self.count) else {
            close(directory as i32);
            return None;
        };
        *place = (directory as i32, changed);
        self.repositories |= u32::from(repository) << self.count;
        self.count += 1;
        Some(())
    }

    /// Whether all of it holds still.
    fn holds(&self, run: &Run<'_>) -> bool {
        let held = self.held.get(..self.count).unwrap_or(&[]);
        let mut repositories = self.repositories;
        let same = |&(directory, changed): &(i32, u64)| {
            let repository = repositories & 1 != 0;
            repositories >>= 1;
            run.is_unchanged(directory as usize) == Some(changed)
                && (!repository || run.state_is_unchanged(directory as usize))
        };
        self.whole && run.milliseconds <= AHEAD && held.iter().all(same)
    }

    /// Lets go of it.
    pub fn close(&mut self) {
        let held = self.held.get(..self.count).unwrap_or(&[]);
        held.iter().for_each(|&(directory, _)| close(directory));
        (self.count, self.repositories, self.whole) = (0, 0, false);
    }
}

/// A run that has ended.
pub struct Run<'a> {
    /// Its image.
    pub image: &'a Image,
    /// What was noted of the image's directories at the start.
    pub notes: &'a [[u64; 3]],
    /// Change times from here on belong to the run, in nanoseconds.
    pub since: u64,
    /// How long it took.
    pub milliseconds: usize,
}

impl Run<'_> {
    /// Whether there is certainly nothing to put right. `room` is written over.
    pub fn is_quiet(&self, ahead: &Ahead, room: &mut [u8; ROOM]) -> bool {
        self.untouched().is_some() && (ahead.holds(self) || self.trees(&mut None, room).is_some())
    }

    /// Looks through the trees while the command runs, since a large directory takes long to list. `room` is
    /// written over.
    pub fn look_ahead(&self, ahead: &mut Ahead, room: &mut [u8; ROOM]) {
        let run = Run { milliseconds: AHEAD, ..*self };
        let whole = run.trees(&mut Some(ahead), room).is_some();
        ahead.whole = whole;
    }

    /// Directories that hold protected names got no new ones.
    fn untouched(&self) -> Option<()> {
        let paths = self.image.bytes(self.image.header().notes);
        let (mut start, mut count) = (0, 0);
        while start < paths.len() {
            let [device, inode, changed] = *self.notes.get(count)?;
            let mut looked = Looked::new();
            match look(&mut looked, -100, from(paths, start).as_ptr(), 0) {
                Ok(stat) => {
                    let now = stat.identity();
                    let same = now[0] == device && now[1] == inode && now[4] == changed;
                    (same && inode != 0 && latest(changed) < self.since).then_some(())?;
                }
                // It was not there, and is not.
                Err(Errno::ENOENT) if inode == 0 => {}
                Err(_) => return None,
            }
            count += 1;
            start += position(from(paths, start), 0)? + 1;
        }
        Some(())
    }

    fn trees(&self, ahead: &mut Option<&mut Ahead>, room: &mut [u8; ROOM]) -> Option<()> {
        let Span { at, length } = self.image.header().trees;
        let end = at.checked_add(length)?;
        let mut at = at;
        while at < end {
            // The tree's path, and its list.
            let (_, _, list) = next(self.image, at)?;
            self.tree((at, list), ahead, room)?;
            at = list;
            loop {
                let (mark, _, after) = next(self.image, at)?;
                at = after;
                if mark == 0 {
                    break;
                }
            }
        }
        Some(())
    }

    /// Looks through a tree, and the repository at its top.
    fn tree(
        &self,
        (tree, list): (u32, u32),
        ahead: &mut Option<&mut Ahead>,
        room: &mut [u8; ROOM],
    ) -> Option<()> {
        let list = List { at: list, known: Known::of(self.image, list)? };
        // SAFETY: strings in the data end within it.
        let top = unsafe { crate::bytes::string(self.image.pointer(tree.into(), 1)?.cast_const()) };
        let mut repository = false;
        self.walk((top, b"\0"), ahead, room, |walk, directory, place| {
            self.directory(walk, directory, &list, place, &mut repository)
        })?;
        if repository {
            self.walk((top, b"/.git\0"), ahead, room, |walk, directory, place| {
                self.innards(walk, directory, place)
            })?;
        }
        Some(())
    }

    /// Walks through directories below a path, nearest first, for as long as there is a budget.
    fn walk(
        &self,
        (top, rest): (&[u8], &[u8]),
        ahead: &mut Option<&mut Ahead>,
        room: &mut [u8; ROOM],
        mut visit: impl FnMut(&mut Walk<'_>, usize, (usize, usize)) -> Option<u64>,
    ) -> Option<()> {
        let budget = self.milliseconds.checked_mul(ENTRIES_PER_MILLISECOND)?;
        let budget = budget.checked_add(ENTRIES)?;
        let mut walk = Walk { queue: Text::new(room), waiting: 0, budget };
        walk.queue.push(top);
        walk.queue.push(rest);
        let mut walked = 0;
        loop {
            if walked >= walk.queue.get()?.len() {
                return Some(());
            }
            let length = position(from(walk.queue.get()?, walked), 0)?;
            let here = walked;
            walked += length + 1;
            if here > 0 {
                walk.waiting -= 1;
                let Some(left) = walk.budget.checked_sub(A_DIRECTORY) else { continue };
                walk.budget = left;
            }
            let directory = open(from(walk.queue.get()?, here).as_ptr())?;
            let found = visit(&mut walk, directory, (here, length));
            match (ahead.as_mut(), found) {
                // The top of a walk that has a rest is one.
                (Some(ahead), Some(changed)) => {
                    ahead.keep(directory, changed, here == 0 && rest.len() > 1)?;
                }
                _ => close(directory as i32),
            }
            found?;
        }
    }

    /// When a directory was changed that no run changed, and that its owner can list.
    fn is_unchanged(&self, directory: usize) -> Option<u64> {
        let mut looked = Looked::new();
        let stat = look(&mut looked, directory as i32, c"".as_ptr().cast(), EMPTY_PATH).ok()?;
        let [.., changed] = stat.identity();
        (latest(changed) < self.since && stat.mode & ENTER_AND_LIST == ENTER_AND_LIST)
            .then_some(changed)
    }

    /// Whether no run changed what git keeps in a repository and believes: that is written in its place as well, of
    /// which the directory tells nothing. Nor what is [`LISTED`], which a walk's budget may not reach.
    fn state_is_unchanged(&self, repository: usize) -> bool {
        let unchanged = |name: &CStr, listed: bool| {
            let mut looked = Looked::new();
            match look(&mut looked, repository as i32, name.as_ptr().cast(), 0) {
                Ok(stat) => {
                    let its_kind = if listed { stat.is_directory() } else { stat.is_file() };
                    its_kind && latest(stat.identity()[4]) < self.since
                }
                Err(errno) => errno == Errno::ENOENT,
            }
        };
        // One by one: a list of them would be a table of addresses.
        unchanged(c"index", false)
            && unchanged(c"MERGE_RR", false)
            && unchanged(c"remotes", true)
            && unchanged(c"branches", true)
    }

    /// Looks at a directory's names; adds directories in it to the queue, and says whether it is a repository's.
    fn directory(
        &self,
        walk: &mut Walk<'_>,
        directory: usize,
        list: &List,
        place: (usize, usize),
        repository: &mut bool,
    ) -> Option<u64> {
        let changed = self.is_unchanged(directory)?;
        let top = place.0 == 0;
        let (mut quiet, mut parts) = (true, 0);
        let whole = each(directory, |name, kind| {
            let Some(left) = walk.budget.checked_sub(1) else { return false };
            walk.budget = left;
            parts |= part_of_a_repository(name);
            let judged = match self.judge(name, list) {
                Some(WAY) if top => Some(0),
                judged => judged,
            };
            match judged {
                Some(0) if kind == UNKNOWN => quiet = false,
                Some(0) if kind == DIRECTORY => walk.queue_up(place, name),
                Some(0) => {}
                Some(NAME) if top => {}
                Some(REPOSITORY) if top && kind == DIRECTORY => *repository = true,
                _ => quiet = false,
            }
            quiet
        });
        (whole.is_some() && quiet && !is_repository(parts)).then_some(changed)
    }

    /// Looks at a directory in a repository, where no link may be, nor a further repository.
    fn innards(&self, walk: &mut Walk<'_>, directory: usize, place: (usize, usize)) -> Option<u64> {
        let changed = self.is_unchanged(directory)?;
        let top = place.0 == 0;
        let path = walk.queue.get()?.get(place.0..place.0 + place.1)?;
        let objects = ends_with(path, b"/.git/objects");
        let (mut quiet, mut parts) = (true, 0);
        let whole = each(directory, |name, kind| {
            let Some(left) = walk.budget.checked_sub(1) else { return false };
            walk.budget = left;
            parts |= part_of_a_repository(name);
            // With what is in them, which is looked at by whom has more time: further repositories, and what goes on.
            let further = equal(name, b"worktrees") || equal(name, b"modules");
            let on = equal(name, b"sequencer")
                || equal(name, b"rebase-merge")
                || equal(name, b"rebase-apply");
            let shared = starts_with(name, b"sharedindex.");
            // Hooks are judged by themselves, objects have directories of their own: that a short run put something
            // else into one that was there is not seen.
            let passed_over = match objects {
                true => !equal(name, b"info") && !equal(name, b"pack"),
                false => top && equal(name, b"hooks"),
            };
            quiet = kind != UNKNOWN && kind != LINK && !(top && (further || on || shared));
            if kind == DIRECTORY && !passed_over {
                walk.queue_up(place, name);
            }
            quiet
        });
        let state = !top || self.state_is_unchanged(directory);
        (whole.is_some() && quiet && state && (top || !is_repository(parts))).then_some(changed)
    }

    /// What a name is to a tree's list: one of its marks, or nothing (0).
    fn judge(&self, name: &[u8], list: &List) -> Option<u8> {
        if !list.known.may_be(name) {
            return Some(0);
        }
        let mut at = list.at;
        let mut judged = 0;
        loop {
            let (mark, wanted, after) = next(self.image, at)?;
            match mark {
                0 => return Some(judged),
                ENDING if ends_with(name, wanted) => return Some(ENDING),
                ENDING => {}
                _ if equal(name, wanted) => judged = mark,
                _ => {}
            }
            at = after;
        }
    }
}

const HEAD: u8 = 1;
const OBJECTS: u8 = 2;
const REFS: u8 = 4;
const COMMON: u8 = 8;

/// Which of the names it is, a bit each, that make git take a directory for a repository; 0 for others.
pub fn part_of_a_repository(name: &[u8]) -> u8 {
    match name.first() {
        Some(b'H') if equal(name, b"HEAD") => HEAD,
        Some(b'o') if equal(name, b"objects") => OBJECTS,
        Some(b'r') if equal(name, b"refs") => REFS,
        Some(b'c') if equal(name, b"commondir") => COMMON,
        _ => 0,
    }
}

/// Whether git takes a directory with these parts for a repository: the rest may be where `commondir` says.
pub fn is_repository(parts: u8) -> bool {
    parts & HEAD != 0 && (parts & COMMON != 0 || parts & (OBJECTS | REFS) == OBJECTS | REFS)
}

/// Directories that are still to be looked at.
struct Walk<'a> {
    queue: Text<'a>,
    waiting: usize,
    budget: usize,
}

impl Walk<'_> {
    /// Adds a directory in the one whose path stands in the queue. One that the budget does not reach is not walked:
    /// what is before it in the queue takes as much.
    fn queue_up(&mut self, (here, length): (usize, usize), name: &[u8]) {
        if self.budget < (self.waiting + 1) * A_DIRECTORY {
            return;
        }
        self.waiting += 1;
        let mut at = here;
        while at < here + length {
            let Some(byte) = self.queue.get().and_then(|all| all.get(at)).copied() else { break };
            self.queue.push(&[byte]);
            at += 1;
        }
        self.queue.push(b"/");
        self.queue.push(name);
        // Without room the queue is no text any more, and the walk ends as one that found something.
        self.queue.push(b"\0");
    }
}

/// Opens a directory; no component of the path may be a link.
fn open(path: *const u8) -> Option<usize> {
    const RESOLVE_NO_LINKS: u64 = 0x2 | 0x4;
    let how = [(flags::DIRECTORY | 0o2_000_000) as u64, 0, RESOLVE_NO_LINKS];
    // SAFETY: the path ends with a zero byte, `how` is a whole struct open_how.
    unsafe { sys!(openat2, AT_FDCWD, path, how.as_ptr(), 24) }.ok()
}
