//! Descriptors: a launcher may have as many as its user, while its command has as many as its caller.
//!
//! What a run left at protected names is looked through by descriptors, so that nothing begins without them.

use crate::error::LaunchError;
use ringfence_start::entry::{self, Role};
use ringfence_sys as sys;
use std::sync::OnceLock;
use sys::limit::{self, Resource};

/// So many have to be left when a command is started: for those that a launcher holds while it runs (some 15, or 30 where it
/// inspects requests), and those by which it looks through what was left (16 at most).
const ENOUGH: usize = 48;
/// Where as many may be open, nobody comes close.
const PLENTY: u64 = 1024;

/// How many the caller may have.
static CALLERS: OnceLock<u64> = OnceLock::new();

/// Lets this process have as many as its user may.
///
/// # Errors
/// They are too few for a run.
pub fn take_all() -> Result<(), LaunchError> {
    if let Ok(callers) = limit::raise(Resource::OpenFiles) {
        CALLERS.get_or_init(|| callers);
    }
    // One whose command runs already does what it can.
    if matches!(entry::role(), Role::Launcher) { Ok(()) } else { enough() }
}

/// How many the command may have, or 0: as many as this process.
pub(super) fn callers() -> u64 {
    CALLERS.get().copied().unwrap_or(0)
}

/// Refuses what could not be looked after in the end.
///
/// # Errors
/// Too few can be had.
pub fn enough() -> Result<(), LaunchError> {
    let most = limit::get(Resource::OpenFiles).unwrap_or(0);
    if most >= PLENTY || sys::fd::are_left(ENOUGH) {
        return Ok(());
    }
    Err(LaunchError::Setup(format!(
        "too few files can be opened here (at most {most}, and some are open): {ENOUGH} more are needed to watch a \
         command, and to see to protected names when it has ended; raise the limit of open files (ulimit -n {PLENTY})"
    )))
}
