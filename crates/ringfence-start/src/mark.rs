//! A point in the time of files: what changed before has an earlier change time.

use crate::call::sys;
use crate::stamp::{EMPTY_PATH, Looked, look};

const MFD_CLOEXEC: usize = 1;
const CLOCK_REALTIME_COARSE: usize = 5;

/// Nanoseconds since 1970: what changed before has an earlier change time, what changes from now on has this
/// one or a later one.
///
/// The clock of change times stands still for milliseconds. Since Linux 6.13 a change of a file whose time was
/// looked at takes the precise time, and no later change of any file is dated before it
/// (Documentation/filesystems/multigrain-ts.rst), so a file of no name is looked at and changed. On older kernels
/// what changed within the standing clock's last step counts as later.
pub fn time_mark() -> u64 {
    let standing = crate::trace::clock(CLOCK_REALTIME_COARSE);
    // SAFETY: the name is a string that ends with a zero byte.
    let Ok(file) = (unsafe { sys!(memfd_create, c"clock".as_ptr(), MFD_CLOEXEC) }) else {
        return standing;
    };
    let mut latest = standing;
    let mut room = Looked::new();
    for size in 0..2_usize {
        if size > 0 {
            // Changes it without a page of memory.
            // SAFETY: takes numbers.
            let _ = unsafe { sys!(ftruncate, file, size) };
        }
        if let Ok(looked) = look(&mut room, file as i32, c"".as_ptr().cast(), EMPTY_PATH) {
            let [.., changed] = looked.identity();
            latest = latest.max(changed);
        }
    }
    // SAFETY: the descriptor was made above, and nobody else knows it.
    let _ = unsafe { sys!(close, file) };
    latest
}
