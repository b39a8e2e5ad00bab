//! Which new files of a layer are deleted ones under another name: the kernel copies what is renamed there, and marks
//! nothing.

use super::{Found, Overlay};
use crate::snapshot::What;
use crate::snapshot::beneath;
use crate::snapshot::entry::Kind;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::FileType;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::io::Read;

/// So many bytes are read to find out, of both sides together. More are told as created and deleted.
const MOST: u64 = 256 << 20;

/// Deleted files of one size: those that nobody looked at yet, and the others by what is in them.
struct Gone<H> {
    unseen: VecDeque<usize>,
    seen: HashMap<H, VecDeque<usize>>,
}

/// Pairs new files with deleted ones, each given with its size, by what is in them: of several the first. Each is read
/// once, and only where there is one of the same size on the other side; who made the names decides how many they are.
fn pairs<H: Eq + Hash>(
    gone: &[(usize, u64)],
    new: &[(usize, u64)],
    mut hash: impl FnMut(usize) -> Option<H>,
) -> HashMap<usize, usize> {
    let mut sizes: HashMap<u64, Gone<H>> = HashMap::new();
    for &(at, size) in gone {
        let (unseen, seen) = Default::default();
        sizes.entry(size).or_insert(Gone { unseen, seen }).unseen.push_back(at);
    }
    let mut pairs = HashMap::new();
    for &(at, size) in new {
        let Some(gone) = sizes.get_mut(&size) else { continue };
        let Some(own) = hash(at) else { continue };
        let mut old = gone.seen.get_mut(&own).and_then(VecDeque::pop_front);
        while old.is_none()
            && let Some(next) = gone.unseen.pop_front()
        {
            match hash(next) {
                Some(other) if other == own => old = Some(next),
                Some(other) => gone.seen.entry(other).or_default().push_back(next),
                None => {}
            }
        }
        pairs.extend(old.map(|old| (at, old)));
    }
    pairs
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local!(static COMPARED: Cell<usize> = const { Cell::new(0) });

    #[derive(Eq)]
    struct Text(usize);

    impl PartialEq for Text {
        fn eq(&self, other: &Text) -> bool {
            COMPARED.set(COMPARED.get() + 1);
            self.0 == other.0
        }
    }

    impl Hash for Text {
        fn hash<S: std::hash::Hasher>(&self, state: &mut S) {
            self.0.hash(state);
        }
    }

    #[test]
    fn as_many_comparisons_as_files() {
        let all = |from: usize| (from..from + 1000).map(|at| (at, 6)).collect::<Vec<_>>();
        let mut read = 0;
        let pairs = pairs(&all(0), &all(1000), |at| {
            read += 1;
            Some(Text(at))
        });
        assert!(pairs.is_empty() && read == 2000, "{read}");
        assert!(COMPARED.get() < 20_000, "{}", COMPARED.get());
    }

    #[test]
    fn the_first_of_the_same_bytes_is_taken_and_what_has_no_counterpart_is_not_read() {
        let text = ["a", "b", "a", "alone", "a", "a", "b", "a", "else"];
        let size = |at: usize| (at, text[at].len() as u64);
        let (gone, new): (Vec<_>, Vec<_>) =
            ((0..4).map(size).collect(), (4..9).map(size).collect());
        let pairs = pairs(&gone, &new, |at| {
            assert!(text[at].len() == 1, "{at}");
            Some(text[at])
        });
        assert_eq!(pairs, HashMap::from([(4, 0), (5, 2), (6, 1)]));
    }
}
