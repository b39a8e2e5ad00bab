//! A run's note for later runs: what a guard finds in a tree is judged by when it was changed, and who could
//! change it then (`guard::past` in `ringfence-sandbox` reads the notes).

use crate::call::{close, sys};
use crate::mark::Clock;
use crate::stamp::{EMPTY_PATH, Looked, look};
use crate::{Errno, Result};

/// Bytes of a note: start, end, a hash of the place, eight each.
pub const NOTE: usize = 24;
/// Longer, the file loses its older half: some five thousand runs.
pub const LONGEST: u64 = (NOTE as u64) << 15;
/// The end of a run that goes on. Builds that did not know it read that nothing was changed then.
pub const OPEN: i64 = i64::MIN;
/// In place of an end: a directory that a tree of the run is in. Builds that did not know it read that nothing was
/// changed then.
pub const ABOVE_A_TREE: i64 = i64::MIN + 1;
/// At most so many places are noted here.
pub const MOST_PLACES: usize = 256;
/// Bytes of a place: [`TREE`], [`GRANTED`] or [`ABOVE`]; which of the directories that were looked at before it is in, from
/// one, or zero; and its hash, within that directory.
pub const PLACE: usize = 10;
/// A tree that the run can write to.
pub const TREE: u8 = b'+';
/// A place in one that was granted by its name: noted with the start's minus.
pub const GRANTED: u8 = b'-';
/// A directory that a tree is in: noted with [`ABOVE_A_TREE`]. They come last.
pub const ABOVE: u8 = b'^';

/// What is noted of a place in a directory, which is known by its device, as statx(2) has it, and inode, so that it is
/// found under another name. `place` is the hash of its path from there.
pub const fn within(device: u64, inode: u64, place: u64) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mixed = (device ^ ODD).wrapping_mul(ODD).rotate_left(31) ^ inode;
    let mixed = mixed.wrapping_mul(0xff51_afd7_ed55_8ccd);
    let mixed = (mixed ^ mixed >> 32 ^ place).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    mixed ^ mixed >> 29
}

/// A run that goes on, noted.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    /// The open file, to be written in place.
    pub file: i32,
    /// Where its notes are.
    pub at: u64,
    /// How many of them have an end.
    pub count: u64,
}

/// Notes a run that begins, at a time in nanoseconds since 1970, for places of [`PLACE`] bytes each. `directories` are
/// those that were looked at: device, inode and change time.
///
/// # Errors
/// The kernel's; `EFBIG` where the file has to be shortened first, `EINVAL` where a full disk cut its last
/// note off, or for too many places.
pub fn begin(
    path: *const u8,
    start: i64,
    places: &[u8],
    directories: &[[u64; 3]],
) -> Result<Begun> {
    const O_RDWR_CREAT_APPEND_CLOEXEC: usize = 0o2 | 0o100 | 0o2_000 | 0o2_000_000;
    // SAFETY: the path ends with a zero byte.
    let file =
        unsafe { sys!(openat, -100_isize, path, O_RDWR_CREAT_APPEND_CLOEXEC, 0o600) }? as i32;
    let noted = note(file, start, places, directories);
    if noted.is_err() {
        close(file);
    }
    noted
}

fn note(file: i32, start: i64, places: &[u8], directories: &[[u64; 3]]) -> Result<Begun> {
    const F_SETFL: usize = 4;
    const SEEK_CUR: usize = 1;
    let mut looked = Looked::new();
    let size = look(&mut looked, file, c"".as_ptr().cast(), EMPTY_PATH)?.size;
    let count = places.len() / PLACE;
    if size > LONGEST {
        return Err(Errno::EFBIG);
    }
    if !size.is_multiple_of(NOTE as u64) || count > MOST_PLACES {
        return Err(Errno::EINVAL);
    }
    // Held before it can be read; without locks it is noted all the same.
    let _ = share(file, start.unsigned_abs());
    // Mostly they are few, and need no new page of the stack.
    const FEW: usize = 32;
    let ending = match count {
        0..=FEW => append::<FEW>(file, start, places, directories)?,
        _ => append::<MOST_PLACES>(file, start, places, directories)?,
    };
    // SAFETY: takes numbers.
    let end = unsafe { sys!(lseek, file, 0, SEEK_CUR) }? as u64;
    // What is completed in its place must not be appended.
    // SAFETY: takes numbers.
    unsafe { sys!(fcntl, file, F_SETFL, 0) }?;
    let at = end - (count * NOTE) as u64;
    Ok(Begun { file, at, count: ending })
}

/// Writes the notes of at most so many places by one call, so that runs that begin at once do not mix; how many of them
/// are to have an end.
#[inline(never)]
fn append<const ROOM: usize>(
    file: i32,
    start: i64,
    places: &[u8],
    directories: &[[u64; 3]],
) -> Result<u64> {
    let count = places.len() / PLACE;
    let mut room = core::mem::MaybeUninit::<[[u64; 3]; ROOM]>::uninit();
    let first = room.as_mut_ptr().cast::<[u64; 3]>();
    let (mut at, mut ending) = (0, 0);
    while at < count.min(ROOM) {
        let place = crate::bytes::from(places, at * PLACE);
        let hash = crate::bytes::from(place, 2).first_chunk::<8>().ok_or(Errno::EINVAL)?;
        let mut hash = u64::from_ne_bytes(*hash);
        if let Some(which) = place.get(1).and_then(|which| usize::from(*which).checked_sub(1)) {
            let [device, inode, _] = *directories.get(which).ok_or(Errno::EINVAL)?;
            hash = within(device, inode, hash);
        }
        let begins = if place.first() == Some(&GRANTED) { -start } else { start };
        let above = place.first() == Some(&ABOVE);
        let ends = if above { ABOVE_A_TREE } else { OPEN };
        // SAFETY: there is room for so many.
        unsafe { first.add(at).write([begins as u64, ends as u64, hash]) };
        at += 1;
        if !above {
            ending = at;
        }
    }
    // SAFETY: so many bytes were written above.
    let written = unsafe { sys!(write, file, first, at * NOTE) }?;
    if written != count * NOTE { Err(Errno::ENOSPC) } else { Ok(ending as u64) }
}

/// Takes a shared lock on one byte, without waiting, which ends when nobody has the file open any more
/// (`F_OFD_SETLK`, fcntl(2)).
///
/// # Errors
/// The kernel's; `EBADF` where the file is not open for reading.
pub fn share(file: i32, at: u64) -> Result<()> {
    const F_OFD_SETLK: usize = 37;
    let start = if at > i64::MAX as u64 - 1 { i64::MAX as u64 - 1 } else { at };
    // struct flock: F_RDLCK and SEEK_SET, which are zeroes; start; length; no process.
    let lock = [0, start, 1, 0];
    // SAFETY: `lock` is whole, and is only read.
    unsafe { sys!(fcntl, file, F_OFD_SETLK, lock.as_ptr()) }.map(drop)
}

impl Begun {
    /// Says that the run has ended now, by this clock; false where the file is another one by now.
    pub fn end(&self, clock: Clock) -> bool {
        let mut looked = Looked::new();
        let stat = look(&mut looked, self.file, c"".as_ptr().cast(), EMPTY_PATH);
        if !stat.is_ok_and(|stat| stat.links > 0) {
            return false;
        }
        let end = clock.mark().to_ne_bytes();
        let mut number = 0;
        while number < self.count {
            let place = self.at + number * NOTE as u64 + 8;
            // SAFETY: the pointer is to eight bytes.
            if unsafe { sys!(pwrite64, self.file, end.as_ptr(), 8, place) } != Ok(8) {
                return false;
            }
            number += 1;
        }
        true
    }
}
