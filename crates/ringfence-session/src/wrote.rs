//! Who hears that files of programs were put into a tree: what a commit or a revert writes is to be judged
//! later as what a run wrote is.

use ringfence_sys::file::time_mark;
use std::path::Path;
use std::sync::OnceLock;

/// Told the tree, and the moment ([`time_mark`]) since which it was written to.
pub type Hearer = fn(&Path, i128);

static HEARER: OnceLock<Hearer> = OnceLock::new();

/// From now on this one hears of it.
pub fn told_to(hearer: Hearer) {
    let _ = HEARER.set(hearer);
}

/// A time in which trees are written to.
pub(crate) struct Writing(i128);

impl Writing {
    pub fn begin() -> Writing {
        Writing(time_mark())
    }

    /// Tells of a tree, whether all that was to be written there was written or not.
    pub fn ends_in(&self, tree: &Path) {
        if let Some(hearer) = HEARER.get() {
            hearer(tree, self.0);
        }
    }
}
