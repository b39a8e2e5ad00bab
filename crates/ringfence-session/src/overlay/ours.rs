//! Directories that a commit of some paths wrote to: what their times say since is our doing, not the host's.

use super::record::bytes;
use super::steps::{Act, Step};
use crate::error::{Result, SessionError};
use crate::snapshot::beneath::{self, Found, split};
use crate::whole;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::FileType;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A directory, relative to its tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Directory(#[serde(with = "bytes")] PathBuf);

/// One as a commit left it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Left {
    tree: usize,
    directory: Directory,
    inode: u64,
    changed: i64,
    /// It is a file that has lost a name, whatever its others are; the directory says nothing.
    #[serde(default)]
    file: bool,
}

/// All of them, in a file beside the record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ours(Vec<Left>);

/// Those of one tree: inode and change time by path, and of files.
#[derive(Clone, Debug, Default)]
pub(super) struct Known(HashMap<Vec<u8>, (u64, i64)>, HashSet<(u64, i64)>);

impl Known {
    /// It is as a commit left it.
    pub fn has(&self, path: &[u8], found: &Found) -> bool {
        let state = state(found);
        match found.file_type {
            FileType::Directory => self.0.get(path) == Some(&state),
            _ => self.1.contains(&state),
        }
    }
}

/// The directories of a tree that a commit writes to and the host did not: each as our last write left it, or as it was
/// before the first. None: it is to be made. Whatever else is seen to happen to one takes it out: from then on it is the
/// host's. Not seen is what happens between the looks before and after a write of ours, nor, where times are as coarse
/// as the clock's tick (before Linux 6.13, and of what is deleted in tmpfs), what happens in the same tick as that. A
/// commit that was interrupted cannot tell who was at them since, and has none.
#[derive(Clone, Debug, Default)]
pub(super) struct Written(
    HashMap<Vec<u8>, Option<(u64, i64)>>,
    /// Files that lost a name by this commit, and have others.
    HashMap<u64, i64>,
);

impl Written {
    /// Those of these steps: `later` says that the host was at one that is there.
    pub fn by(steps: &[Step], lower: &OwnedFd, later: impl Fn(&[u8], &Found) -> bool) -> Written {
        let mut all = HashMap::new();
        for step in steps {
            let own = matches!(step.act, Act::Directory | Act::Dress { .. }).then(|| step.path());
            for path in own.into_iter().chain([split(step.path()).0]) {
                if !all.contains_key(path) {
                    all.insert(path.to_vec(), stat(lower, path));
                }
            }
        }
        let host =
            |path: &[u8], now: &Option<Found>| now.as_ref().is_some_and(|found| later(path, found));
        let ours = all.into_iter().filter(|(path, now)| !host(path, now));
        Written(ours.map(|(path, now)| (path, now.as_ref().map(state))).collect(), HashMap::new())
    }

    /// We write to a directory.
    pub fn around<T>(&mut self, path: &[u8], directory: &OwnedFd, write: impl FnOnce() -> T) -> T {
        let now = || beneath::stat(directory, b"").ok().as_ref().map(state);
        let known = self.0.get(path).is_some_and(|left| *left == now());
        let done = write();
        match (known, now()) {
            (true, Some(now)) => drop(self.0.insert(path.to_vec(), Some(now))),
            _ => drop(self.0.remove(path)),
        }
        done
    }

    /// A file that nobody had changed lost a name by us, which changed the time of its others.
    pub fn lost_a_name(&mut self, file: &OwnedFd) {
        if let Some(found) = beneath::stat(file, b"").ok().filter(|found| found.stamp.links > 0) {
            self.1.insert(found.stamp.inode, found.stamp.changed);
        }
    }

    /// We made one; false: somebody else did.
    pub fn made(&mut self, path: &[u8], directory: &OwnedFd, by_us: bool) {
        let now = beneath::stat(directory, b"").ok().filter(|_| by_us);
        match (self.0.get(path), now) {
            (Some(None), Some(now)) => drop(self.0.insert(path.to_vec(), Some(state(&now)))),
            _ => drop(self.0.remove(path)),
        }
    }
}

fn state(found: &Found) -> (u64, i64) {
    (found.stamp.inode, found.stamp.changed)
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
        // A hint, no more: without it there is a conflict at most.
        Ok(serde_json::from_slice(&text).unwrap_or_default())
    }

    /// Takes these directories as they were left.
    pub fn take(&mut self, tree: usize, written: Written) {
        let path = |directory: &Directory| directory.0.as_os_str().as_bytes().to_vec();
        self.0.retain(|left| {
            left.tree != tree
                || match left.file {
                    true => !written.1.contains_key(&left.inode),
                    false => !written.0.contains_key(&path(&left.directory)),
                }
        });
        for (inode, changed) in written.1 {
            let directory = Directory(PathBuf::new());
            self.0.push(Left { tree, directory, inode, changed, file: true });
        }
        for (path, left) in written.0 {
            let Some((inode, changed)) = left else { continue };
            let directory = Directory(std::ffi::OsString::from_vec(path).into());
            self.0.push(Left { tree, directory, inode, changed, file: false });
        }
    }

    pub fn write(&self, at: &Path) -> Result<()> {
        let path = Ours::file(at);
        let text = serde_json::to_vec(self).map_err(std::io::Error::other);
        text.and_then(|text| whole::write(&path, &text))
            .map_err(|error| SessionError::call("write", &path, error))
    }

    pub fn of(&self, tree: usize) -> Known {
        let mine = self.0.iter().filter(|left| left.tree == tree);
        let (files, mine): (Vec<&Left>, Vec<&Left>) = mine.partition(|left| left.file);
        let path = |left: &Left| left.directory.0.as_os_str().as_bytes().to_vec();
        let state = |left: &Left| (left.inode, left.changed);
        Known(
            mine.into_iter().map(|left| (path(left), state(left))).collect(),
            files.into_iter().map(state).collect(),
        )
    }
}
