//! Directories that a run could rename or replace by links: opened without following any, and gone on from there.

use super::short;
use ringfence_sys as sys;
use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use sys::Errno;

/// A directory opened without following links, through which names in it are reached.
pub(super) struct Directory(pub File);

impl Directory {
    pub fn open(path: &Path) -> Result<Directory, Errno> {
        Directory::open_as(path, sys::fd::DIRECTORY)
    }

    /// The same of what is there, whatever its mode: only to be looked at, or gone on from.
    pub fn place(path: &Path) -> Result<Directory, Errno> {
        Directory::open_as(path, sys::fd::PATH_ONLY)
    }

    fn open_as(path: &Path, flags: i32) -> Result<Directory, Errno> {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)?;
        let open = sys::fd::open_without_links(sys::fd::CWD, &name, flags).map_err(short::note)?;
        Ok(Directory(open.into()))
    }

    /// A directory in it, and no link to one. Where there is another sandbox in the same tree, what
    /// was a directory at a look may be a link by now.
    pub fn enter(&self, name: &OsStr) -> Option<Directory> {
        let name = CString::new(name.as_bytes()).ok()?;
        let flags = sys::fd::DIRECTORY | sys::fd::NO_FOLLOW;
        let open =
            sys::fd::open_at(self.0.as_raw_fd(), &name, flags, 0).map_err(short::note).ok()?;
        Some(Directory(open.into()))
    }

    /// What it is now.
    pub fn data(&self) -> Result<fs::Metadata, Errno> {
        self.0.metadata().map_err(|_| Errno::EIO)
    }

    /// A path to a name in it that no rename elsewhere can redirect.
    pub fn at(&self, name: impl AsRef<OsStr>) -> PathBuf {
        sys::fd::through(&self.0).join(name.as_ref())
    }
}
