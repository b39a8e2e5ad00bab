//! Locks on bytes of a file that belong to an open file description, and end when nobody has it open
//! any more (`F_OFD_SETLK`, fcntl(2)). Bytes past a file's end can be locked as well.

use crate::{Result, sys};
use std::os::fd::{AsRawFd, BorrowedFd};

fn byte(kind: i32, at: u64) -> libc::flock64 {
    // SAFETY: flock64 is plain numbers, for which all zeroes are valid.
    let mut lock: libc::flock64 = unsafe { std::mem::zeroed() };
    lock.l_type = kind as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    lock.l_start = i64::try_from(at).unwrap_or(i64::MAX - 1);
    lock.l_len = 1;
    lock
}

/// Takes a lock on one byte, which others may have as well. The file is open for reading.
///
/// # Errors
/// The kernel's.
pub fn share(file: BorrowedFd<'_>, at: u64) -> Result<()> {
    ringfence_start::runs::share(file.as_raw_fd(), at)
}

/// Gives up the lock of this open file on one byte.
///
/// # Errors
/// The kernel's.
pub fn release(file: BorrowedFd<'_>, at: u64) -> Result<()> {
    let lock = byte(libc::F_UNLCK, at);
    // SAFETY: `lock` is whole, and is only read.
    unsafe { sys!(fcntl, file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) }.map(drop)
}

/// Whether somebody else has a lock on one byte.
///
/// # Errors
/// The kernel's.
pub fn is_held(file: BorrowedFd<'_>, at: u64) -> Result<bool> {
    let mut lock = byte(libc::F_WRLCK, at);
    // SAFETY: `lock` is whole, and room for the answer.
    unsafe { sys!(fcntl, file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) }?;
    Ok(i32::from(lock.l_type) != libc::F_UNLCK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    #[test]
    fn a_lock_is_the_open_files_and_ends_with_it() {
        let path = std::env::temp_dir().join(format!("ringfence-lock-{}", std::process::id()));
        let open = || File::options().read(true).append(true).create(true).open(&path);
        let (one, two, other) =
            (open().expect("one"), open().expect("two"), open().expect("other"));
        let held = |at| is_held(other.as_fd(), at).expect("a lock can be asked for");
        share(one.as_fd(), 7).expect("shared");
        share(two.as_fd(), 7).expect("shared by two");
        let copy = one.try_clone().expect("the same open file");
        drop(one);
        assert!(held(7) && !held(6) && !held(8));
        drop(two);
        assert!(held(7), "the copy is open still");
        share(copy.as_fd(), 9).expect("shared");
        release(copy.as_fd(), 9).expect("released");
        assert!(held(7) && !held(9));
        drop(copy);
        assert!(!held(7));
        std::fs::remove_file(path).expect("a file of ours");
    }
}
