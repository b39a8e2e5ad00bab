//! Directories that programs went to, held as they are: the host may move one, or what it is in, and programs stay in it.
//!
//! Which directory a program is in is never said, but going there asks whether it may (`FUSE_ACCESS`; path names do not). So
//! the last ones for which that was asked are held, of which programs are in some.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

/// The most of them.
const MOST: usize = 1024;

/// Descriptors that only name directories, by node.
pub(super) struct Places {
    held: HashMap<u64, (OwnedFd, u64)>,
    /// How often one was taken.
    taken: u64,
    most: usize,
}

impl Places {
    /// None yet; at most an eighth of what this process may have open.
    pub fn new(open_files: usize) -> Places {
        Places { held: HashMap::new(), taken: 0, most: MOST.min(open_files / 8) }
    }

    /// A program goes to a directory: the one to which none has gone for longest may have to make room.
    pub fn hold(&mut self, node: u64, directory: OwnedFd) {
        if self.most == 0 {
            return;
        }
        let full = self.held.len() >= self.most && !self.held.contains_key(&node);
        let oldest = full.then(|| self.held.iter().min_by_key(|(_, (_, taken))| taken));
        if let Some(oldest) = oldest.flatten().map(|(&node, _)| node) {
            self.held.remove(&oldest);
        }
        self.taken += 1;
        self.held.insert(node, (directory, self.taken));
    }

    /// The directory of a node, where it is held.
    pub fn get(&self, node: u64) -> Option<&OwnedFd> {
        self.held.get(&node).map(|(directory, _)| directory)
    }

    /// The guest does not know a node any more.
    pub fn forget(&mut self, node: u64) {
        self.held.remove(&node);
    }

    /// Nor any.
    pub fn clear(&mut self) {
        self.held.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_held_and_no_more() {
        let mut places = Places::new(16);
        let any = || OwnedFd::from(std::fs::File::open("/").expect("opened"));
        for node in [7, 8, 7, 9] {
            places.hold(node, any());
        }
        let held = |places: &Places| [7, 8, 9].map(|node| places.get(node).is_some());
        assert_eq!(held(&places), [true, false, true]);
        places.forget(7);
        assert_eq!(held(&places), [false, false, true]);
        Places::new(7).hold(7, any());
    }
}
