//! Which new files of a layer are deleted ones under another name: the kernel copies what is renamed there, and marks
//! nothing.

use super::layer::{Change, vanished};
use super::{Found, Overlay};
use crate::renamed::{alike, pairs};
use crate::snapshot::What;
use crate::snapshot::beneath;
use crate::snapshot::entry::Kind;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::FileType;
use std::collections::HashMap;
use std::io::Read;

/// So many bytes are read to find out, of both sides together. More are told as created and deleted.
const MOST: u64 = 256 << 20;

impl Overlay {
    /// Pairs of places in `all`: of a new file, and of the deleted one with the same bytes. Each stands in one pair.
    pub fn renamed(&self, all: &[Found]) -> HashMap<usize, usize> {
        let size = |found: &Found| self.open_side(found).map(|(_, size)| size);
        let (mut gone, mut new) = (Vec::new(), Vec::new());
        for (at, found) in all.iter().enumerate().filter(|(_, one)| one.change.kind == Kind::File) {
            match found.change.what {
                What::Deleted => gone.extend(size(found).filter(|&size| size > 0).map(|s| (at, s))),
                What::Added => new.push((at, found.change.size)),
                _ => {}
            }
        }
        let mut left = MOST;
        pairs(&gone, &new, |at| self.hash(&all[at], &mut left))
    }

    fn hash(&self, found: &Found, left: &mut u64) -> Option<blake3::Hash> {
        hash(self.open_side(found)?, left)
    }

    /// The file that a change is about, where it is now: a new one in the layer, a deleted one in the real tree.
    fn open_side(&self, found: &Found) -> Option<(OwnedFd, u64)> {
        let root = match found.change.what {
            What::Deleted => beneath::open_root(self.root(found.tree)).ok()?,
            _ => self.open_layer(found.tree).ok()?,
        };
        open(&root, &found.change.path)
    }
}

/// A file that is new at its name and was there at another one before: where a deleted file has its bytes, it was moved
/// inside, and not deleted by the host. What is too much to be read for that stays unclear.
pub(super) fn moved(upper: &OwnedFd, lower: &OwnedFd, changes: &mut [Change]) {
    let (mut gone, mut new) = (Vec::new(), Vec::new());
    for (at, change) in changes.iter().enumerate().filter(|(_, one)| one.kind == Kind::File) {
        match change.what {
            What::Deleted => gone.push((at, change.size)),
            What::Added if change.trouble == Some(vanished()) => new.push((at, change.size)),
            _ => {}
        }
    }
    let mut left = MOST;
    let same = alike(&gone, &new, |at| {
        let root = if changes[at].what == What::Deleted { lower } else { upper };
        hash(open(root, &changes[at].path)?, &mut left)
    });
    for at in same {
        changes[at].trouble = None;
    }
}

fn open(root: &OwnedFd, path: &[u8]) -> Option<(OwnedFd, u64)> {
    let (parent, name) = beneath::split(path);
    let parent = beneath::open_directory(root.as_fd(), parent).ok()?;
    let file = beneath::open_file(&parent, name).ok()?;
    let regular = beneath::stat(&file, b"").ok()?;
    (regular.file_type == FileType::RegularFile).then_some((file, regular.stamp.size))
}

fn hash((file, size): (OwnedFd, u64), left: &mut u64) -> Option<blake3::Hash> {
    *left = left.checked_sub(size)?;
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(std::fs::File::from(file).take(size)).ok()?;
    Some(hasher.finalize())
}
