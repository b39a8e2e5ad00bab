//! Layers belong to one at a time: the run, a commit, a fork that makes them.

use crate::error::{Result, SessionError};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Held while the layers are in use. Dropping it, or the end of the process, lets go.
#[derive(Debug)]
pub struct InUse(pub(super) File);

impl Drop for InUse {
    /// Closing is not enough: the lock belongs to the open file, of which a process that another
    /// thread is just starting has a copy until its program executes.
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Takes the layers in a directory.
///
/// # Errors
/// Another one has them; the file system's.
pub(super) fn lock(at: &Path) -> Result<InUse> {
    let path = at.join("lock");
    let failed = |error: std::io::Error| SessionError::call("flock", &path, error);
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(&path).map_err(failed)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(InUse(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(SessionError::usage(
            "the session is still running, or another commit is; wait for its end",
        )),
        Err(error) => Err(failed(error.into())),
    }
}
