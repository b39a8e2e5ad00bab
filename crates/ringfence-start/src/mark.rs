//! A point in the time of files: what changed before has an earlier change time.

use crate::call::{close, sys};
use crate::stamp::{EMPTY_PATH, Looked, look};

const MFD_CLOEXEC: usize = 1;
const CLOCK_REALTIME_COARSE: usize = 5;

/// [`Clock::mark`], once.
pub fn time_mark() -> u64 {
    let mut clock = Clock::open();
    let mark = clock.mark();
    clock.close();
    mark
}

/// The coarsest times that file systems keep: vfat's even seconds. ext4's are whole ones where its inodes take 128 bytes.
const GRAIN: u64 = 2_000_000_000;

/// The last moment at which what has this change time can have been changed: the time itself, unless it is of whole
/// seconds, as those of file systems are that keep no finer ones.
pub fn latest(changed: u64) -> u64 {
    if changed.is_multiple_of(1_000_000_000) { changed.saturating_add(GRAIN - 1) } else { changed }
}

/// The first such moment, of a last one.
pub fn earliest(latest: u64) -> u64 {
    let whole = latest.saturating_add(1).is_multiple_of(1_000_000_000);
    if whole { latest.saturating_sub(GRAIN - 1) } else { latest }
}

/// What tells the time of files: one of no name, which is looked at and changed.
#[derive(Clone, Copy, Debug)]
pub struct Clock(i32);

impl Clock {
    /// None: it tells the clock's standing time.
    pub const NONE: Clock = Clock(0);

    /// One, or none where no file can be had.
    pub fn open() -> Clock {
        // SAFETY: the name is a string that ends with a zero byte.
        let file = unsafe { sys!(memfd_create, c"clock".as_ptr(), MFD_CLOEXEC) };
        Clock(file.unwrap_or(0) as i32)
    }

    /// Nanoseconds since 1970: what changed before has an earlier change time, what changes from now on has this
    /// one or a later one.
    ///
    /// The clock of change times stands still for milliseconds. Since Linux 6.13 a change of a file whose time was
    /// looked at takes the precise time, and no later change of any file is dated before it
    /// (Documentation/filesystems/multigrain-ts.rst), so the file is looked at and changed. On older kernels
    /// what changed within the standing clock's last step counts as later.
    pub fn mark(self) -> u64 {
        let standing = crate::trace::clock(CLOCK_REALTIME_COARSE);
        let Some((before, size)) = self.look() else { return standing };
        // Changes it without a page of memory.
        // SAFETY: takes numbers.
        let _ = unsafe { sys!(ftruncate, self.0, size + 1) };
        let after = self.look().map_or(0, |(changed, _)| changed);
        standing.max(before).max(after)
    }

    /// Its change time, and its size.
    fn look(self) -> Option<(u64, u64)> {
        if self.0 <= 0 {
            return None;
        }
        let mut room = Looked::new();
        let looked = look(&mut room, self.0, c"".as_ptr().cast(), EMPTY_PATH).ok()?;
        let [.., changed] = looked.identity();
        Some((changed, looked.size))
    }

    /// Lets go of it, once.
    pub fn close(&mut self) {
        if self.0 > 0 {
            close(self.0);
        }
        *self = Clock::NONE;
    }
}
