//! Takes things out of a layer. Nobody else uses it by then; directories in it may be closed to
//! their owner.

use super::Overlay;
use super::layer::{DEEPEST, failed, make_transparent, names, same_attributes};
use super::steps::{Act, Journal, Step};
use crate::error::{Result, SessionError};
use crate::snapshot::beneath::{self, join, split};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::path::Path;

impl Overlay {
    /// Takes what was committed out of the layers.
    pub(super) fn clean(&self, journal: &Journal) -> Result<()> {
        if journal.whole {
            return whole(&self.at);
        }
        for (number, steps) in journal.trees.iter().enumerate() {
            let lower = self.record.trees.get(number).and_then(|tree| tree.open().ok());
            committed(&self.open_layer(number)?, lower.as_ref(), steps)?;
        }
        let applied = self.applied();
        std::fs::remove_file(&applied)
            .map_err(|error| SessionError::call("unlink", &applied, error))
    }
}

/// Removes an overlay with everything in it: first its record, so that it is gone for all who
/// look for one.
pub(super) fn whole(at: &Path) -> Result<()> {
    let failed = |error| SessionError::call("unlink", at, error);
    match std::fs::remove_file(at.join("record.json")) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(SessionError::call("unlink", at, error));
        }
        _ => {}
    }
    let root = beneath::open_root(at).map_err(failed)?;
    empty(&root)?;
    std::fs::remove_dir(at).map_err(|error| SessionError::call("rmdir", at, error))
}

/// Removes what is in a directory, however deep: what lies two levels down is moved up to the
/// first, so that neither descriptors nor the stack run out.
fn empty(root: &OwnedFd) -> Result<()> {
    let mut number = 0u64;
    loop {
        let first = listed(root)?;
        if first.is_empty() {
            return Ok(());
        }
        for name in first {
            if !is_gone(root, &name)? {
                let directory = open(root, &name).map_err(|error| failed("open", &name, error))?;
                for below in listed(&directory)? {
                    if !is_gone(&directory, &below)? {
                        open(&directory, &below).map_err(|error| failed("open", &below, error))?;
                        number += 1;
                        let moved = format!(".moved-{number}").into_bytes();
                        rustix::fs::renameat(&directory, &below, root, &moved)
                            .map_err(|error| failed("rename", &below, error))?;
                    }
                }
                rustix::fs::unlinkat(root, &name, AtFlags::REMOVEDIR)
                    .map_err(|error| failed("rmdir", &name, error))?;
            }
        }
    }
}

fn listed(directory: &OwnedFd) -> Result<Vec<Vec<u8>>> {
    names(directory).map_err(|error| failed("getdents64", b"", error))
}

/// Removes a name, unless it is a directory with something in it.
fn is_gone(directory: &OwnedFd, name: &[u8]) -> Result<bool> {
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(true),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(failed("unlink", name, error)),
    }
    match rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(error) => Err(failed("rmdir", name, error)),
    }
}

/// Opens a directory of the layer, whatever its mode.
fn open(directory: &OwnedFd, name: &[u8]) -> std::result::Result<OwnedFd, Errno> {
    let found = beneath::stat(directory, name)?;
    if found.file_type == FileType::Directory && found.stamp.mode & 0o700 != 0o700 {
        // No link: it was looked at, and nobody else writes here.
        rustix::fs::chmodat(directory, name, Mode::RWXU, AtFlags::empty())?;
    }
    beneath::open_directory(directory.as_fd(), name)
}

/// Opens a directory of the layer by its path.
fn open_path(upper: &OwnedFd, path: &[u8]) -> std::result::Result<OwnedFd, Errno> {
    match beneath::open_directory(upper.as_fd(), path) {
        Err(Errno::ACCESS) => {
            let (parent, name) = split(path);
            open(&open_path(upper, parent)?, name)
        }
        result => result,
    }
}

/// Takes committed changes out. Directories go when they are empty and hold no change of their own; those that stay are
/// seen together with the real ones from now on.
pub(super) fn committed(upper: &OwnedFd, lower: Option<&OwnedFd>, steps: &[Step]) -> Result<()> {
    let mut own: BTreeSet<&[u8]> = BTreeSet::new();
    let mut directories: BTreeSet<Vec<u8>> = BTreeSet::new();
    for step in steps {
        let path = step.path();
        let (parent, name) = split(path);
        let mut above = parent;
        while !above.is_empty() {
            directories.insert(above.to_vec());
            above = split(above).0;
        }
        match step.act {
            Act::Directory | Act::Dress { .. } => {
                directories.insert(path.to_vec());
                own.insert(path);
                if let Ok(directory) = open_path(upper, path) {
                    make_transparent(&directory);
                }
            }
            Act::Place | Act::Link(_) | Act::Remove => {
                let Ok(parent) = open_path(upper, parent) else { continue };
                let gone = match rustix::fs::unlinkat(&parent, name, AtFlags::empty()) {
                    Err(Errno::ACCESS) => rustix::fs::fchmod(&parent, Mode::RWXU)
                        .and_then(|()| rustix::fs::unlinkat(&parent, name, AtFlags::empty())),
                    result => result,
                };
                match gone {
                    // A directory: what is left of it goes below.
                    Ok(()) | Err(Errno::NOENT | Errno::ISDIR | Errno::NOTDIR) => {}
                    Err(error) => return Err(failed("unlink", path, error)),
                }
            }
        }
    }
    for path in directories.iter().rev() {
        let (parent, name) = split(path);
        if let Ok(parent) = open_path(upper, parent) {
            if !own.contains(&path[..]) && lower.is_some_and(|lower| differs(&parent, lower, path))
            {
                continue;
            }
            let _ = rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR);
        }
    }
    Ok(())
}

/// A directory of the layer changes the real one itself: its mode or attributes.
fn differs(upper: &OwnedFd, lower: &OwnedFd, path: &[u8]) -> bool {
    let (parent, name) = split(path);
    let Ok(lower) = beneath::open_directory(lower.as_fd(), parent) else { return false };
    match (beneath::stat(&lower, name), beneath::stat(upper, name)) {
        (Ok(old), Ok(new)) => {
            old.file_type == new.file_type
                && !same_attributes(&lower, upper, name, &old.stamp, &new.stamp)
        }
        _ => false,
    }
}

/// Bytes that files below a directory take on the disk.
pub(super) fn allocated(path: &Path) -> u64 {
    fn sum(directory: &OwnedFd, path: &[u8], root: &OwnedFd) -> u64 {
        let mut bytes = 0;
        for name in names(directory).unwrap_or_default() {
            let Ok(found) = beneath::stat(directory, &name) else { continue };
            bytes += found.blocks * 512;
            let deep = path.iter().filter(|&&byte| byte == b'/').count() >= DEEPEST;
            if found.file_type == FileType::Directory && !deep {
                let below = join(path, &name);
                if let Ok(opened) = beneath::open_directory(root.as_fd(), &below) {
                    bytes += sum(&opened, &below, root);
                }
            }
        }
        bytes
    }
    beneath::open_root(path).map_or(0, |root| sum(&root, b"", &root))
}
