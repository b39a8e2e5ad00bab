//! A file of numbers that others write to: mapped, it takes no memory of its own and no time to be read.

use crate::{Errno, Result, sys};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::AtomicI64;

/// Signed numbers of eight bytes, in the machine's own order, that a file begins with.
#[derive(Debug)]
pub struct Words {
    at: *const AtomicI64,
    count: usize,
}

impl Words {
    /// Maps the first `count` of a file, which must have as many and keep them: who shortens it ends the program at
    /// its next look (SIGBUS, mmap(2)).
    ///
    /// # Errors
    /// Those of `mmap(2)`: `EINVAL` for none, `ENODEV` where the file system has no mappings.
    pub fn map(file: BorrowedFd<'_>, count: usize) -> Result<Words> {
        let length = count.checked_mul(size_of::<AtomicI64>()).ok_or(Errno::ENOMEM)?;
        let (null, fd) = (std::ptr::null::<u8>(), file.as_raw_fd());
        // All of it is looked at, and what is in the page cache is mapped in one go.
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: asks for a new mapping wherever there is room.
        let at = unsafe { sys!(mmap, null, length, libc::PROT_READ, flags, fd, 0) }?;
        Ok(Words { at: at as *const AtomicI64, count })
    }
}

impl AsRef<[AtomicI64]> for Words {
    fn as_ref(&self) -> &[AtomicI64] {
        // SAFETY: the mapping is readable, as long, and there until `self` is gone; it begins with a page. Nobody here
        // writes to it, and what others write is read as one word.
        unsafe { std::slice::from_raw_parts(self.at, self.count) }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's own, and used no more.
        let _ = unsafe { sys!(munmap, self.at, self.count * size_of::<AtomicI64>()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::Ordering;

    #[test]
    fn what_others_write_is_seen_and_none_is_an_error() {
        let path = std::env::temp_dir().join(format!("ringfence-words-{}", std::process::id()));
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(&path).expect("a file");
        std::fs::remove_file(&path).expect("a file of ours");
        file.write_at(&[1_i64.to_ne_bytes(), (-2_i64).to_ne_bytes()].concat(), 0).expect("written");
        assert_eq!(Words::map(file.as_fd(), 0).expect_err("nothing to map"), Errno::EINVAL);
        let words = Words::map(file.as_fd(), 2).expect("mapped");
        let read = || words.as_ref().iter().map(|word| word.load(Ordering::Relaxed));
        assert_eq!(read().collect::<Vec<_>>(), [1, -2]);
        file.write_at(&3_i64.to_ne_bytes(), 8).expect("written");
        assert_eq!(read().collect::<Vec<_>>(), [1, 3]);
    }
}
