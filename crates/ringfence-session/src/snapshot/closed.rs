//! Opens up what a program has closed to its own user (`chmod -R 600`), for a revert: what cannot be read can be neither
//! kept nor put right.

use super::beneath::{self, Found, join, shown, split};
use super::compare::{Change, What};
use super::entry::{Entry, Kind, Seen};
use super::scan::DEEPEST;
use crate::error::Result;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags};
use std::collections::{HashMap, HashSet};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Files with other names that are opened up at most: each is held by a descriptor, of which a process may have some
/// hundreds. The rest stays closed, and is told.
const HELD: usize = 512;

/// One that was opened up.
struct Opened {
    path: Vec<u8>,
    /// By its device, inode and whether it is a directory it is known to be the same at the end. How many there are was the
    /// program's to decide: none is held for that.
    what: (u64, u64, bool),
    /// A revert puts another file at its path, and it stays what it is under its other names.
    file: Option<OwnedFd>,
    /// As it was, and is to be where nothing else becomes of it.
    mode: u32,
}

/// All of them. Those of which nothing else was made are closed again at the end, whatever that is.
#[derive(Default)]
pub(super) struct Closed {
    root: Option<OwnedFd>,
    opened: Vec<Opened>,
    /// Files with other names, with the mode that they had.
    linked: HashMap<(u64, u64, bool), u32>,
}

impl Drop for Closed {
    fn drop(&mut self) {
        let Some(root) = &self.root else { return };
        // What is below first: the way to it is closed then.
        for opened in self.opened.iter().rev() {
            let mode = opened.mode;
            if let Some(file) = &opened.file {
                let _ = chmod(file.as_fd(), mode);
            } else if let Some((file, found)) = place(root, &opened.path)
                && what(&found) == opened.what
            {
                let _ = chmod(file.as_fd(), mode);
            }
        }
    }
}

impl Closed {
    /// Opens these paths, with all below them, in a directory that is given twice. Whose they are not, and what the snapshot
    /// could not read either (`wanted` tells what it has), stays closed.
    pub fn open(
        (root, again): (&OwnedFd, OwnedFd),
        device: u64,
        unreadable: &[PathBuf],
        wanted: impl Fn(&[u8]) -> Result<Option<Entry>>,
    ) -> Result<Closed> {
        let mut closed = Closed { root: Some(again), opened: Vec::new(), linked: HashMap::new() };
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
        let (file, found) = place(root, path)?;
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
        if let Some(&was) = self.linked.get(&what(&found)) {
            // Another name of one that was opened up by now.
            let (path, what) = (path.to_vec(), what(&found));
            self.opened.push(Opened { path, what, file: None, mode: was });
            return None;
        }
        if mode & needed != needed {
            let linked = needed == 0o400 && found.stamp.links > 1;
            if linked && self.linked.len() == HELD {
                return None;
            }
            chmod(file.as_fd(), mode | needed).ok()?;
            let (path, what) = (path.to_vec(), what(&found));
            if linked {
                self.linked.insert(what, mode);
            }
            self.opened.push(Opened { path, what, file: linked.then_some(file), mode });
        }
        (needed == 0o700).then(|| beneath::open_directory(root.as_fd(), path).ok())?
    }

    pub fn is_empty(&self) -> bool {
        self.opened.is_empty()
    }

    /// The modes by which they are known.
    pub fn modes(&self) -> HashMap<Vec<u8>, u32> {
        self.opened.iter().map(|opened| (opened.path.clone(), opened.mode)).collect()
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
        self.opened.retain(|opened| !dressed.contains(&opened.path[..]));
    }
}

/// What is at a path.
fn place(root: &OwnedFd, path: &[u8]) -> Option<(OwnedFd, Found)> {
    let (above, name) = split(path);
    let parent = beneath::open_directory(root.as_fd(), above).ok()?;
    // By a descriptor: the name may be a link by now, and lead anywhere.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&parent, name, flags, Mode::empty()).ok()?;
    let found = beneath::stat(&file, b"").ok()?;
    Some((file, found))
}

fn what(found: &Found) -> (u64, u64, bool) {
    let Found { stamp, file_type, .. } = found;
    (stamp.device, stamp.inode, *file_type == FileType::Directory)
}

/// Of an open file of any kind, which may be no more than its place.
fn chmod(file: BorrowedFd<'_>, mode: u32) -> rustix::io::Result<()> {
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
