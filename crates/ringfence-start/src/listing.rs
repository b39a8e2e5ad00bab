//! Whether a directory still has just those of some names that it had.
//!
//! What a workspace has at its top changes all the time, and a plan depends on a few names of it
//! only: those that are protected.

use crate::bytes::{equal, string};
use crate::call::sys;
use crate::entries::{LINK, UNKNOWN, ends_with};
use crate::flags;
use crate::image::Image;
use crate::stamp::AT_FDCWD;

/// A directory with more names is not read through: a start must not depend on its size. One read
/// of a directory returns about as many.
pub const MOST: usize = 256;

/// In a list of names: it is there.
pub const THERE: u8 = b'+';
/// In a list of names: it is not there.
pub const ABSENT: u8 = b'-';
/// In a list of names: with this end, only those are there that are [`THERE`].
pub const ENDING: u8 = b'*';

/// `O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC` (open(2)).
const FLAGS: usize = (flags::DIRECTORY | flags::NO_FOLLOW | 0o2_000_000) as usize;

/// Whether the directory has more than [`MOST`] names; no more than that is read.
pub fn is_crowded(directory: *const u8) -> bool {
    // SAFETY: the path is a string of the image.
    let opened = unsafe { sys!(openat, AT_FDCWD, directory, FLAGS, 0) };
    let Ok(opened) = opened else { return false };
    let mut names = 0;
    let read = crate::entries::each(opened, |_, _| {
        names += 1;
        names <= MOST
    });
    // SAFETY: ours.
    let _ = unsafe { sys!(close, opened) };
    read.is_some() && names > MOST
}

/// Whether the directory has all names of the list that are there, none of those that are not, and
/// at most [`MOST`] in all. The list is in the data: a mark and a name each, the last one empty.
pub fn holds(image: &Image, directory: *const u8, list: u32) -> Option<bool> {
    // SAFETY: the path is a string of the image.
    let opened = unsafe { sys!(openat, AT_FDCWD, directory, FLAGS, 0) };
    let Ok(opened) = opened else { return Some(false) };
    let held = read(image, opened, list);
    // SAFETY: ours.
    let _ = unsafe { sys!(close, opened) };
    held
}

/// Whether the symbolic links of the directory are those of the list, and its names at most [`MOST`].
pub fn holds_links(image: &Image, directory: *const u8, list: u32) -> Option<bool> {
    // SAFETY: the path is a string of the image.
    let opened = unsafe { sys!(openat, AT_FDCWD, directory, FLAGS, 0) };
    let Ok(opened) = opened else { return Some(false) };
    let (mut names, mut found, mut as_wanted) = (0, 0, true);
    let whole = crate::entries::each(opened, |name, kind| {
        names += 1;
        match kind {
            LINK if judge(image, name, list) == Some(THERE) => found += 1,
            LINK | UNKNOWN => as_wanted = false,
            _ => {}
        }
        as_wanted = as_wanted && names <= MOST;
        as_wanted
    });
    // SAFETY: ours.
    let _ = unsafe { sys!(close, opened) };
    Some(whole.is_some() && as_wanted && found == wanted(image, list)?)
}

fn read(image: &Image, directory: usize, list: u32) -> Option<bool> {
    let known = Known::of(image, list)?;
    let (mut names, mut found, mut as_wanted) = (0, 0, true);
    let whole = crate::entries::each(directory, |name, _| {
        names += 1;
        match if known.may_be(name) { judge(image, name, list) } else { Some(0) } {
            Some(THERE) => found += 1,
            Some(ABSENT) | None => as_wanted = false,
            Some(_) => {}
        }
        as_wanted = as_wanted && names <= MOST;
        as_wanted
    });
    Some(whole.is_some() && as_wanted && found == wanted(image, list)?)
}

/// The next name of a list: its mark, itself, where the list goes on.
pub(crate) fn next(image: &Image, at: u32) -> Option<(u8, &[u8], u32)> {
    let entry = image.pointer(u64::from(at), 1)?.cast_const();
    // SAFETY: strings in the data end within it.
    let entry = unsafe { string(entry) };
    let (mark, name) = match entry.first() {
        None => (0, entry),
        Some(mark) => (*mark, entry.get(1..)?),
    };
    Some((mark, name, at.checked_add(u32::try_from(entry.len()).ok()?)?.checked_add(1)?))
}

/// What tells most names that a list does not mean from those that it may mean, without reading it: a bit for
/// each byte (modulo 64) with which one of its names begins, and with which one of its endings ends.
pub(crate) struct Known {
    first: u64,
    last: u64,
}

impl Known {
    /// Of this list; None where it is none.
    pub(crate) fn of(image: &Image, list: u32) -> Option<Known> {
        let mut known = Known { first: 0, last: 0 };
        let mut at = list;
        loop {
            let (mark, name, after) = next(image, at)?;
            match mark {
                0 => return Some(known),
                ENDING => known.last |= bit(name.last()),
                _ => known.first |= bit(name.first()),
            }
            at = after;
        }
    }

    /// Whether the list may mean this name.
    pub(crate) fn may_be(&self, name: &[u8]) -> bool {
        self.first & bit(name.first()) != 0 || self.last & bit(name.last()) != 0
    }
}

/// All of them for nothing: an empty name or ending is to be looked at.
fn bit(byte: Option<&u8>) -> u64 {
    byte.map_or(u64::MAX, |byte| 1 << (byte % 64))
}

/// How many names of the list are there.
fn wanted(image: &Image, list: u32) -> Option<usize> {
    let (mut at, mut count) = (list, 0);
    loop {
        let (mark, _, after) = next(image, at)?;
        match mark {
            0 => return Some(count),
            THERE => count += 1,
            _ => {}
        }
        at = after;
    }
}

/// What a name that is there is to the list: [`THERE`], [`ABSENT`], or nothing (0).
fn judge(image: &Image, name: &[u8], list: u32) -> Option<u8> {
    let (mut at, mut judged) = (list, 0);
    loop {
        let (mark, wanted, after) = next(image, at)?;
        match mark {
            0 => return Some(judged),
            ENDING if ends_with(name, wanted) => judged = ABSENT,
            THERE | ABSENT if equal(name, wanted) => return Some(mark),
            _ => {}
        }
        at = after;
    }
}
