//! Where no more files can be opened, nothing can be looked at: that is said as it is, and is no end of a command's own.

use super::Guarding;
use crate::outcome::Outcome;
use ringfence_sys::{self as sys, Errno};
use std::cell::Cell;

/// A look at a tree opens no more than these at once.
const A_LOOK: usize = 16;

thread_local! {
    /// A look of this thread failed for that.
    static SHORT: Cell<bool> = const { Cell::new(false) };
}

/// Takes note of why something could not be opened.
pub(super) fn note(errno: Errno) -> Errno {
    if matches!(errno, Errno::EMFILE | Errno::ENFILE) {
        SHORT.set(true);
    }
    errno
}

/// Whether a look has failed for that.
pub(super) fn came() -> bool {
    SHORT.get()
}

/// Whether as many as a look takes cannot be opened now; that counts as one that failed.
pub(super) fn is_so() -> bool {
    if !sys::fd::are_left(A_LOOK) {
        SHORT.set(true);
    }
    came()
}

/// Begins with the looks at the end of a run.
pub(super) fn begin() {
    SHORT.set(false);
    is_so();
}

/// What is said of it.
pub(super) fn told() -> Option<String> {
    came().then(|| {
        "no more files could be opened (ulimit -n, fs.file-max): what was made or changed at protected names may not all \
         have been found: look before you use anything in what was writable"
            .to_owned()
    })
}

impl Guarding {
    /// A run whose protected names could not be looked after has not ended well, however its command did.
    pub fn judge(&self, outcome: &mut Outcome) {
        if SHORT.take() {
            (outcome.code, outcome.signal) = (125, None);
        }
    }
}
