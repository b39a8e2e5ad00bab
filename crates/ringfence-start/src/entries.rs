//! A directory's names, read before libc is up.

use crate::bytes::{equal, string};
use crate::call::sys;
use crate::{Errno, Result};
use core::mem::MaybeUninit;

/// `d_type` of a directory (`DT_DIR`, getdents64(2)).
pub const DIRECTORY: u8 = 4;
/// `d_type` of a symbolic link (`DT_LNK`).
pub const LINK: u8 = 10;
/// `d_type` where the file system does not say (`DT_UNKNOWN`).
pub const UNKNOWN: u8 = 0;

/// `struct linux_dirent64` (getdents64(2)): inode, offset, length, type, name.
const LENGTH_AT: usize = 16;
const TYPE_AT: usize = 18;
const NAME_AT: usize = 19;

/// Calls for each name but `.` and `..`, with its `d_type`, until one says false: that is no failure. None
/// when the directory cannot be read to that point.
pub fn each(directory: usize, mut wanted: impl FnMut(&[u8], u8) -> bool) -> Option<()> {
    let mut room = MaybeUninit::<[u64; 1024]>::uninit();
    let first = room.as_mut_ptr().cast::<u8>();
    loop {
        // SAFETY: the room is writable for so many bytes.
        let filled: Result<usize> = unsafe { sys!(getdents64, directory, first, 8192) };
        let filled = match filled {
            Ok(0) => return Some(()),
            Ok(filled) => filled,
            Err(Errno::EINTR) => continue,
            Err(_) => return None,
        };
        // SAFETY: the kernel has filled so many bytes.
        let entries = unsafe { core::slice::from_raw_parts(first.cast_const(), filled) };
        let mut at = 0;
        while at < filled {
            let length = *entries.get(at + LENGTH_AT..)?.first_chunk::<2>()?;
            let kind = *entries.get(at + TYPE_AT)?;
            // SAFETY: names end with a zero byte, within what was filled.
            let name = unsafe { string(entries.get(at + NAME_AT..)?.as_ptr()) };
            at = at.checked_add(usize::from(u16::from_ne_bytes(length)).max(NAME_AT))?;
            if !equal(name, b".") && !equal(name, b"..") && !wanted(name, kind) {
                return Some(());
            }
        }
    }
}

/// Whether a name has this end.
pub fn ends_with(whole: &[u8], end: &[u8]) -> bool {
    let begin = whole.len().checked_sub(end.len());
    begin.and_then(|begin| whole.get(begin..)).is_some_and(|rest| equal(rest, end))
}
