//! Directories that a commit of some paths wrote to: what their times say since is our doing, not the host's.

use super::record::bytes;
use super::steps::{Act, Step};
use crate::error::{Result, SessionError};
use crate::snapshot::beneath::{self, Found, split};
use rustix::fd::{AsFd, OwnedFd};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A directory, relative to its tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Directory(#[serde(with = "bytes")] PathBuf);

/// One as a commit left it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Left {
    tree: usize,
    directory: Directory,
    inode: u64,
    changed: i64,
}

/// All of them, in a file beside the record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ours(Vec<Left>);

/// Those of one tree: inode and change time by path.
#[derive(Clone, Debug, Default)]
pub(super) struct Known(HashMap<Vec<u8>, (u64, i64)>);

impl Known {
    /// It is as a commit left it.
    pub fn has(&self, path: &[u8], found: &Found) -> bool {
        self.0.get(path) == Some(&(found.stamp.inode, found.stamp.changed))
    }
}

/// The directories that steps write to and the host did not: `later` says so of one that is there.
pub(super) fn untouched(
    steps: &[Step],
    lower: &OwnedFd,
    later: impl Fn(&[u8], &Found) -> bool,
) -> Vec<Directory> {
    let mut all = BTreeSet::new();
    for step in steps {
        all.insert(split(step.path()).0);
        if matches!(step.act, Act::Directory | Act::Dress { .. }) {
            all.insert(step.path());
        }
    }
    let host = |path: &[u8]| stat(lower, path).is_some_and(|found| later(path, &found));
    let ours = all.into_iter().filter(|path| !host(path));
    ours.map(|path| Directory(std::ffi::OsString::from_vec(path.to_vec()).into())).collect()
}

fn stat(lower: &OwnedFd, path: &[u8]) -> Option<Found> {
    let directory = beneath::open_directory(lower.as_fd(), path).ok()?;
    beneath::stat(&directory, b"").ok()
}

impl Ours {
    fn file(at: &Path) -> PathBuf {
        at.join("ours.json")
    }

    pub fn read(at: &Path) -> Result<Ours> {
        let path = Ours::file(at);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Ours::default());
            }
            Err(error) => return Err(SessionError::call("read", &path, error)),
        };
        serde_json::from_slice(&text)
            .map_err(|error| SessionError::Corrupt { path, what: error.to_string() })
    }

    /// Takes these directories as they are now.
    pub fn take(&mut self, tree: usize, lower: &OwnedFd, all: &[Directory]) {
        for directory in all {
            self.0.retain(|left| left.tree != tree || left.directory != *directory);
            let Some(found) = stat(lower, directory.0.as_os_str().as_bytes()) else { continue };
            let (inode, changed) = (found.stamp.inode, found.stamp.changed);
            self.0.push(Left { tree, directory: directory.clone(), inode, changed });
        }
    }

    pub fn write(&self, at: &Path) -> Result<()> {
        let path = Ours::file(at);
        let beside = path.with_extension("new");
        let text = serde_json::to_vec(self).map_err(std::io::Error::other);
        text.and_then(|text| std::fs::write(&beside, text))
            .and_then(|()| std::fs::rename(&beside, &path))
            .map_err(|error| SessionError::call("write", &path, error))
    }

    pub fn of(&self, tree: usize) -> Known {
        let mine = self.0.iter().filter(|left| left.tree == tree);
        let path = |left: &Left| left.directory.0.as_os_str().as_bytes().to_vec();
        Known(mine.map(|left| (path(left), (left.inode, left.changed))).collect())
    }
}
