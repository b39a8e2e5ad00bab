//! What the vigil has been told of and has not looked at yet.

use super::absent::Rank;
use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};

/// So much is kept of what one can make as much of as one likes; the rest is found by the next look.
const MOST: usize = 4096;

/// A path to be looked at, and how deep below what was told.
pub(super) type Next = (PathBuf, usize);

/// Paths, each once: those of which there are few first, the others in the order in which they came.
#[derive(Default)]
pub(super) struct Pending {
    known: VecDeque<Next>,
    matched: VecDeque<Next>,
    inside: VecDeque<Next>,
    all: HashSet<PathBuf>,
}

impl Pending {
    /// One more; false where it is one too many.
    pub fn add(&mut self, path: PathBuf, rank: Rank, depth: usize) -> bool {
        if self.all.contains(&path) {
            return true;
        }
        let queue = self.queue(rank);
        if rank != Rank::Known && queue.len() >= MOST {
            return false;
        }
        queue.push_back((path.clone(), depth));
        self.all.insert(path);
        true
    }

    fn queue(&mut self, rank: Rank) -> &mut VecDeque<Next> {
        match rank {
            Rank::Known => &mut self.known,
            Rank::Matched => &mut self.matched,
            Rank::Inside => &mut self.inside,
        }
    }

    /// The next one.
    pub fn take(&mut self) -> Option<(Next, Rank)> {
        for rank in [Rank::Known, Rank::Matched, Rank::Inside] {
            if let Some(next) = self.queue(rank).pop_front() {
                self.all.remove(&next.0);
                return Some((next, rank));
            }
        }
        None
    }

    /// What is in a directory that is gone needs no look.
    pub fn forget_in(&mut self, directory: &Path) {
        let all = &mut self.all;
        self.inside.retain(|(path, _)| !path.starts_with(directory) || !all.remove(path));
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_come_first_and_many_are_bounded() {
        let mut pending = Pending::default();
        let file = |number: usize| PathBuf::from(format!("/p/.a/{number}"));
        for number in 0..MOST {
            assert!(pending.add(file(number), Rank::Inside, 0));
        }
        assert!(pending.add(file(7), Rank::Inside, 0), "it is there");
        assert!(!pending.add(file(MOST), Rank::Inside, 0));
        for (name, rank) in [("/p/x", Rank::Matched), ("/p/.b", Rank::Known)] {
            assert!(pending.add(PathBuf::from(name), rank, 0));
        }
        let next = |pending: &mut Pending| pending.take().map(|((path, _), _)| path);
        for wanted in ["/p/.b", "/p/x", "/p/.a/0", "/p/.a/1"] {
            assert_eq!(next(&mut pending).as_deref(), Some(Path::new(wanted)));
        }
        assert!(pending.add(PathBuf::from("/p/.ab"), Rank::Known, 0));
        pending.forget_in(Path::new("/p/.a"));
        assert_eq!(next(&mut pending).as_deref(), Some(Path::new("/p/.ab")));
        assert!(pending.is_empty() && next(&mut pending).is_none());
    }
}
