//! The names in a directory, read in small pieces (`getdents64(2)`).

use crate::fd::{CWD, DIRECTORY, open_at};
use crate::{Result, sys};
use std::ffi::{CStr, CString, OsString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What a name is, as far as the directory says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind(u8);

impl Kind {
    /// Whether it is a directory, and no link to one; where the file system does not say, the
    /// path is looked at.
    pub fn is_directory(self, path: impl FnOnce() -> PathBuf) -> bool {
        match self.0 {
            libc::DT_UNKNOWN => path().symlink_metadata().is_ok_and(|data| data.is_dir()),
            kind => kind == libc::DT_DIR,
        }
    }

    /// Whether it may be a symbolic link: where the file system does not say, it may.
    pub fn may_be_link(self) -> bool {
        matches!(self.0, libc::DT_LNK | libc::DT_UNKNOWN)
    }
}

/// When a name in a directory was changed last, its link not followed, in nanoseconds since 1970 (`st_ctim`, inode(7)).
///
/// # Errors
/// The kernel's.
pub fn changed(directory: BorrowedFd<'_>, name: &CStr) -> Result<i128> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    let (fd, flags) = (directory.as_raw_fd(), libc::AT_SYMLINK_NOFOLLOW);
    // SAFETY: the name ends with a zero byte, and `stat` is room for the answer.
    unsafe { sys!(newfstatat, fd, name.as_ptr(), stat.as_mut_ptr(), flags) }?;
    // SAFETY: the call has filled it.
    let stat = unsafe { stat.assume_init() };
    Ok(i128::from(stat.st_ctime) * 1_000_000_000 + i128::from(stat.st_ctime_nsec))
}

/// Bytes read at once: some hundred names.
const PIECE: usize = 4096;

/// The names, in the order of the directory, without `.` and `..`.
#[derive(Debug)]
pub struct Names<D = OwnedFd> {
    directory: D,
    buffer: Vec<u8>,
    at: usize,
}

impl<'d> Names<BorrowedFd<'d>> {
    /// Of a directory that has just been opened to be read: they are read once from one descriptor.
    pub fn once(directory: BorrowedFd<'d>) -> Names<BorrowedFd<'d>> {
        Names { directory, buffer: Vec::new(), at: 0 }
    }
}

impl Names {
    /// Opens a directory.
    ///
    /// # Errors
    /// The kernel's.
    pub fn of(path: &Path) -> Result<Names> {
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| crate::Errno::EINVAL)?;
        let directory = open_at(CWD, &path, DIRECTORY, 0)?;
        Ok(Names { directory, buffer: Vec::new(), at: 0 })
    }
}

impl<D: AsFd> Names<D> {
    /// Reads the next piece; false at the end.
    fn fill(&mut self) -> bool {
        self.buffer.resize(PIECE, 0);
        self.at = 0;
        let (fd, first) = (self.directory.as_fd().as_raw_fd(), self.buffer.as_mut_ptr());
        // SAFETY: the pointer and length describe the buffer, which is writable.
        let read = unsafe { sys!(getdents64, fd, first, PIECE) }.unwrap_or(0);
        self.buffer.truncate(read);
        read > 0
    }
}

impl<D: AsFd> Iterator for Names<D> {
    type Item = (OsString, Kind);

    fn next(&mut self) -> Option<(OsString, Kind)> {
        loop {
            if self.at >= self.buffer.len() && !self.fill() {
                return None;
            }
            // struct linux_dirent64: inode, offset, length of the record, type, name.
            let record = self.buffer.get(self.at..)?;
            let length = u16::from_ne_bytes(record.get(16..18)?.try_into().ok()?);
            let kind = Kind(*record.get(18)?);
            let name = record.get(19..usize::from(length))?;
            let name = name.split(|&byte| byte == 0).next()?.to_vec();
            self.at += usize::from(length);
            if name != b"." && name != b".." {
                return Some((OsString::from_vec(name), kind));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn all_names_come_once_with_their_kinds() {
        let root = std::env::temp_dir().join(format!("ringfence-names-{}", std::process::id()));
        std::fs::create_dir(&root).expect("a directory");
        for number in 0..500 {
            std::fs::write(root.join(format!("file-{number}")), "").expect("a file");
        }
        std::fs::create_dir(root.join("directory")).expect("a directory");
        std::os::unix::fs::symlink("directory", root.join("link")).expect("a link");
        let names: Vec<_> = Names::of(&root).expect("it opens").collect();
        let own: BTreeSet<_> = names.iter().map(|(name, _)| name.clone()).collect();
        let theirs = std::fs::read_dir(&root).expect("it opens").flatten();
        assert_eq!(own, theirs.map(|entry| entry.file_name()).collect());
        assert_eq!(names.len(), 502);
        let open = std::fs::File::open(&root).expect("it opens");
        let theirs = root.join("link").symlink_metadata().expect("it is there");
        let theirs = i128::from(theirs.ctime()) * 1_000_000_000 + i128::from(theirs.ctime_nsec());
        assert_eq!(changed(open.as_fd(), c"link"), Ok(theirs));
        assert_eq!(changed(open.as_fd(), c"absent"), Err(crate::Errno::ENOENT));
        assert!(Names::once(open.as_fd()).eq(names.iter().cloned()));
        let directories: Vec<_> = names
            .iter()
            .filter(|(name, kind)| kind.is_directory(|| root.join(name)))
            .map(|(name, _)| name.clone())
            .collect();
        std::fs::remove_dir_all(&root).expect("ours");
        assert_eq!(directories, ["directory"]);
    }
}
