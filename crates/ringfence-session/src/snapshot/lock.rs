//! One writer for each store: a lock on an open file, which ends with its holder, however
//! that ends.

use crate::error::{Result, SessionError};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

/// How long to wait for another process's operation.
const PATIENCE: Duration = Duration::from_secs(60);

/// A held lock. Dropping it lets go.
pub(crate) struct Lock(#[expect(dead_code, reason = "held for its lock")] File);

/// Takes the lock, waiting for its holder for a bounded time.
///
/// # Errors
/// The file cannot be opened; the holder does not let go.
pub(crate) fn take(path: &Path) -> Result<Lock> {
    let failed = |error: std::io::Error| SessionError::call("flock", path, error);
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let mut file = options.open(path).map_err(failed)?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        wait(&mut file, path)?;
    }
    // Only for the message of somebody who waits.
    // Always of one length, so that nothing must be cut off: that would cost 0.2 ms on ext4.
    let _ = file.rewind();
    let _ = file.write_all(format!("{:<10}", std::process::id()).as_bytes());
    Ok(Lock(file))
}

/// A second thread sleeps in the kernel for us, so that the wait can be bounded without
/// polling. The lock belongs to the open file, which both share.
fn wait(file: &mut File, path: &Path) -> Result<()> {
    let failed = |error: std::io::Error| SessionError::call("flock", path, error);
    let shared = file.try_clone().map_err(failed)?;
    let (done, taken) = mpsc::channel();
    std::thread::spawn(move || {
        let result = flock(&shared, FlockOperation::LockExclusive);
        // Nobody listens any more: the lock goes with the last descriptor, here.
        let _ = done.send(result);
    });
    match taken.recv_timeout(PATIENCE) {
        Ok(result) => result.map_err(|error| failed(error.into())),
        Err(_) => {
            let mut holder = String::new();
            let _ = file.rewind().and_then(|()| file.read_to_string(&mut holder));
            let seconds = PATIENCE.as_secs();
            let holder = holder.trim().to_owned();
            Err(SessionError::Busy { path: path.to_owned(), holder, seconds })
        }
    }
}
