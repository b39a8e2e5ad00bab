//! Opens up what a program has closed to its own user (`chmod -R 600`), for a revert: what cannot be read can be neither
//! kept nor put right.

use super::beneath::{self, join, shown, split};
use super::compare::{Change, What};
use super::entry::{Entry, Kind, Seen};
use super::scan::DEEPEST;
use crate::error::Result;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags};
use std::collections::{HashMap, HashSet};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// One that was opened up.
struct Opened {
    path: Vec<u8>,
    file: OwnedFd,
    /// As it was, and is to be where nothing else becomes of it.
    mode: u32,
}

/// All of them. Those of which nothing else was made are closed again at the end, whatever that is.
#[derive(Default)]
pub(super) struct Closed(Vec<Opened>);

impl Drop for Closed {
    fn drop(&mut self) {
        // What is below first: the way to it is needed by nobody, but so it was found.
        for opened in self.0.iter().rev() {
            let _ = chmod(&opened.file, opened.mode);
        }
    }
}

impl Closed {
    /// Opens these paths, with all below them. Whose they are not, and what the snapshot could not read either (`wanted`
    /// tells what it has), stays closed.
    pub fn open(
        root: &OwnedFd,
        device: u64,
        unreadable: &[PathBuf],
        wanted: impl Fn(&[u8]) -> Result<Option<Entry>>,
    ) -> Result<Closed> {
        let mut closed = Closed::default();
        let mut pending: Vec<Vec<u8>> =
            unreadable.iter().map(|path| path.as_os_str().as_bytes().to_vec()).collect();
        while let Some(path) = pending.pop() {
            let kept = wanted(&path)?;
            let deep = path.iter().filter(|&&byte| byte == b'/').count() >= DEEPEST;
            if deep || kept.is_some_and(|entry| entry.kind.untouchable()) {
                continue;
            }
            let Some(directory) = closed.one(root, device, &path) else { continue };
            let Ok(names) = beneath::names(&directory) else { continue };
            pending.extend(names.iter().map(|name| join(&path, name)));
        }
        Ok(closed)
    }

    /// Opens one up where its mode keeps its owner out; a directory is returned.
    fn one(&mut self, root: &OwnedFd, device: u64, path: &[u8]) -> Option<OwnedFd> {
        let (above, name) = split(path);
        let parent = beneath::open_directory(root.as_fd(), above).ok()?;
        // By a descriptor: the name may be a link by now, and lead anywhere.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&parent, name, flags, Mode::empty()).ok()?;
        let found = beneath::stat(&file, b"").ok()?;
        let needed = match found.file_type {
            FileType::Directory => 0o700,
            FileType::RegularFile => 0o400,
            _ => return None,
        };
        let ours = found.stamp.uid == rustix::process::geteuid().as_raw();
        if !ours || found.mount || found.stamp.device != device {
            return None;
        }
        let mode = found.stamp.mode;
        if mode & needed != needed {
            chmod(&file, mode | needed).ok()?;
            self.0.push(Opened { path: path.to_vec(), file, mode });
        }
        (needed == 0o700).then(|| beneath::open_directory(parent.as_fd(), name).ok())?
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The modes by which they are known.
    pub fn modes(&self) -> HashMap<Vec<u8>, u32> {
        self.0.iter().map(|opened| (opened.path.clone(), opened.mode)).collect()
    }

    /// These changes were carried out backwards: their directories have the modes of the snapshot. (A file is another one
    /// then, and the one that was opened may have names elsewhere.)
    pub fn settle(&mut self, changes: &[Change]) {
        let dressed = changes.iter().filter(|change| {
            let directory = change.old.as_ref().is_some_and(|old| old.kind == Kind::Directory);
            directory && change.what != What::Kind
        });
        let dressed: HashSet<&[u8]> =
            dressed.map(|change| change.path.as_os_str().as_bytes()).collect();
        self.0.retain(|opened| !dressed.contains(&opened.path[..]));
    }
}

/// Of an open file of any kind, which may be no more than its place.
fn chmod(file: &OwnedFd, mode: u32) -> rustix::io::Result<()> {
    rustix::fs::chmod(format!("/proc/self/fd/{}", file.as_raw_fd()), Mode::from_raw_mode(mode))
}

/// Has what was opened up seen as it was before.
pub(super) fn as_it_was(modes: &HashMap<Vec<u8>, u32>, path: &[u8], seen: &mut Seen) {
    if modes.is_empty() {
        return;
    }
    if let Some(mode) = modes.get(&join(path, &seen.entry.name)) {
        seen.entry.mode = *mode;
        // Its stamp has another.
        seen.settled = false;
    }
}

/// Names what is mounted below a scan, and is no part of it.
pub(super) fn foreign(scan: &super::Scan, hidden: &[(u64, u64)]) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for (directory, entries) in &scan.directories {
        let foreign = entries.iter().filter(|seen| {
            let ours = hidden.contains(&(seen.stamp.device, seen.stamp.inode));
            seen.entry.kind == Kind::Foreign && !ours
        });
        all.extend(foreign.map(|seen| shown(&join(directory, &seen.entry.name))));
    }
    all.sort();
    all
}
