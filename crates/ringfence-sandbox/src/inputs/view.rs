//! The host's files as a policy is resolved by them, each look noted.

use super::{Found, Inputs};
use crate::facts::{self, Kind};
use ringfence_policy::{FileView, HostFiles};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

impl Inputs {
    /// What a path is of, as a file: a directory has no text, whatever is in it.
    ///
    /// # Errors
    /// `NotFound`, where there is nothing to be read, and no further look is due.
    pub(super) fn file(&self, path: &Path) -> io::Result<()> {
        match self.seen(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(error),
            Ok(Kind::Directory) => {}
            _ => self.content(path),
        }
        Ok(())
    }
}

impl FileView for Inputs {
    fn link(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        // A start asks for the same few directories on the way to everything some hundred times.
        if let Some(Found::Plain | Found::Directory | Found::Same(_)) =
            self.paths.borrow().get(path.as_os_str())
        {
            return Ok(None);
        }
        let result = HostFiles.link(path);
        match &result {
            Ok(None) => self.add(path, Found::Plain),
            Ok(Some(target)) => self.add(path, Found::Link(target.clone())),
            Err(error) if facts::nothing(error) => self.add(path, Found::Absent),
            Err(_) => self.add(path, Found::Hidden),
        }
        result
    }

    fn names(&self, directory: &Path, most: usize) -> io::Result<Vec<OsString>> {
        self.content(directory);
        HostFiles.names(directory, most)
    }

    fn text(&self, path: &Path, most: u64) -> io::Result<String> {
        self.file(path)?;
        HostFiles.text(path, most)
    }

    fn beginning(&self, path: &Path, most: u64) -> io::Result<Vec<u8>> {
        self.file(path)?;
        HostFiles.beginning(path, most)
    }

    fn socket(&self, path: &Path) -> bool {
        self.content(path);
        HostFiles.socket(path)
    }

    fn owner_and_mode(&self, path: &Path) -> Option<(u32, u32)> {
        self.content(path);
        HostFiles.owner_and_mode(path)
    }

    fn closed_in(&self, directory: &Path) -> Vec<OsString> {
        self.content(directory);
        HostFiles.closed_in(directory)
    }
}
