//! Which new files of a layer are deleted ones under another name: the kernel copies what is renamed there, and marks
//! nothing.

use super::{Found, Overlay};
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
        let mut left = MOST;
        // By size first: what has no counterpart is not read.
        let mut gone: HashMap<u64, Vec<usize>> = HashMap::new();
        for (at, found) in all.iter().enumerate().rev() {
            if found.change.what == What::Deleted
                && found.change.kind == Kind::File
                && let Some(size) = self.open_side(found).map(|(_, size)| size)
                && size > 0
            {
                gone.entry(size).or_default().push(at);
            }
        }
        let mut hashes: HashMap<usize, Option<blake3::Hash>> = HashMap::new();
        let mut pairs = HashMap::new();
        for (at, found) in all.iter().enumerate() {
            let new = found.change.what == What::Added && found.change.kind == Kind::File;
            let Some(candidates) = gone.get_mut(&found.change.size).filter(|_| new) else {
                continue;
            };
            let Some(own) = self.hash(found, &mut left) else { continue };
            let same = candidates.iter().rposition(|&old| {
                *hashes.entry(old).or_insert_with(|| self.hash(&all[old], &mut left)) == Some(own)
            });
            if let Some(old) = same {
                pairs.insert(at, candidates.remove(old));
            }
        }
        pairs
    }

    fn hash(&self, found: &Found, left: &mut u64) -> Option<blake3::Hash> {
        let (file, size) = self.open_side(found)?;
        *left = left.checked_sub(size)?;
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(std::fs::File::from(file).take(size)).ok()?;
        Some(hasher.finalize())
    }

    /// The file that a change is about, where it is now: a new one in the layer, a deleted one in the real tree.
    fn open_side(&self, found: &Found) -> Option<(OwnedFd, u64)> {
        let root = match found.change.what {
            What::Deleted => beneath::open_root(self.root(found.tree)).ok()?,
            _ => self.open_layer(found.tree).ok()?,
        };
        let (parent, name) = beneath::split(&found.change.path);
        let parent = beneath::open_directory(root.as_fd(), parent).ok()?;
        let file = beneath::open_file(&parent, name).ok()?;
        let regular = beneath::stat(&file, b"").ok()?;
        (regular.file_type == FileType::RegularFile).then_some((file, regular.stamp.size))
    }
}
