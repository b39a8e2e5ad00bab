//! The host's files while a proposal is made: what each name is, is asked once.

use ringfence_policy::{FileView, HostFiles};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// The real files, with what was found out about links.
#[derive(Debug, Default)]
pub struct Looked {
    links: RefCell<HashMap<OsString, Option<PathBuf>>>,
}

impl FileView for Looked {
    fn link(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        if let Some(known) = self.links.borrow().get(path.as_os_str()) {
            return Ok(known.clone());
        }
        let found = HostFiles.link(path)?;
        self.links.borrow_mut().insert(path.into(), found.clone());
        Ok(found)
    }

    fn names(&self, directory: &Path, most: usize) -> io::Result<Vec<OsString>> {
        HostFiles.names(directory, most)
    }

    fn text(&self, path: &Path, most: u64) -> io::Result<String> {
        HostFiles.text(path, most)
    }

    fn beginning(&self, path: &Path, most: u64) -> io::Result<Vec<u8>> {
        HostFiles.beginning(path, most)
    }

    fn socket(&self, path: &Path) -> bool {
        HostFiles.socket(path)
    }

    fn owner_and_mode(&self, path: &Path) -> Option<(u32, u32)> {
        HostFiles.owner_and_mode(path)
    }

    fn closed_in(&self, directory: &Path) -> Vec<OsString> {
        HostFiles.closed_in(directory)
    }
}
