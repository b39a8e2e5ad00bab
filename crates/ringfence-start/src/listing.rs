//! Whether a directory still has just those of some names that it had.
//!
//! What a workspace has at its top changes all the time, and a plan depends on a few names of it
//! only: those that are protected.

use crate::bytes::{equal, string};
use crate::call::sys;
use crate::flags;
use crate::image::Image;
use crate::stamp::AT_FDCWD;
use crate::{Errno, Result};
use core::mem::MaybeUninit;

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

/// `struct linux_dirent64` (getdents64(2)): inode, offset, length, type, name.
const LENGTH_AT: usize = 16;
const NAME_AT: usize = 19;

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

fn read(image: &Image, directory: usize, list: u32) -> Option<bool> {
    let mut room = MaybeUninit::<[u64; 1024]>::uninit();
    let first = room.as_mut_ptr().cast::<u8>();
    let (mut names, mut found) = (0, 0);
    loop {
        // SAFETY: the room is writable for so many bytes.
        let filled: Result<usize> = unsafe { sys!(getdents64, directory, first, 8192) };
        let filled = match filled {
            Ok(0) => return Some(found == wanted(image, list)?),
            Ok(filled) => filled,
            Err(Errno::EINTR) => continue,
            Err(_) => return Some(false),
        };
        // SAFETY: the kernel has filled so many bytes.
        let entries = unsafe { core::slice::from_raw_parts(first.cast_const(), filled) };
        let mut at = 0;
        while at < filled {
            let length = *entries.get(at + LENGTH_AT..)?.first_chunk::<2>()?;
            // SAFETY: names end with a zero byte, within what was filled.
            let name = unsafe { string(entries.get(at + NAME_AT..)?.as_ptr()) };
            at = at.checked_add(usize::from(u16::from_ne_bytes(length)).max(NAME_AT))?;
            if equal(name, b".") || equal(name, b"..") {
                continue;
            }
            names += 1;
            match judge(image, name, list)? {
                THERE => found += 1,
                ABSENT => return Some(false),
                _ => {}
            }
            if names > MOST {
                return Some(false);
            }
        }
    }
}

/// The next name of a list: its mark, itself, where the list goes on.
fn next(image: &Image, at: u32) -> Option<(u8, &[u8], u32)> {
    let entry = image.pointer(u64::from(at), 1)?.cast_const();
    // SAFETY: strings in the data end within it.
    let entry = unsafe { string(entry) };
    let (mark, name) = match entry.first() {
        None => (0, entry),
        Some(mark) => (*mark, entry.get(1..)?),
    };
    Some((mark, name, at.checked_add(u32::try_from(entry.len()).ok()?)?.checked_add(1)?))
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

fn ends_with(whole: &[u8], end: &[u8]) -> bool {
    let begin = whole.len().checked_sub(end.len());
    begin.and_then(|begin| whole.get(begin..)).is_some_and(|rest| equal(rest, end))
}
