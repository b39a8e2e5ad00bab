//! Directories of one process each, among others of the kind: what has its lock lives. A number of a process says nothing to
//! who sees other processes, in a container with the same home.

use std::fs::{DirBuilder, File};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// What a directory answers that another process tidies up.
const GONE: [ErrorKind; 2] = [ErrorKind::WouldBlock, ErrorKind::NotFound];

/// Makes one with a new name, for the user alone. It is held until the file is closed.
///
/// # Errors
/// The file system's.
pub fn make(all: &Path) -> Result<(PathBuf, File)> {
    loop {
        let path = all.join(format!("{:08x}", ringfence_sys::identity::random()));
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
            made => made?,
        }
        // Who tidies up may have been quicker than the lock: then it is taken away.
        match locked(&path) {
            Ok(lock) if path.symlink_metadata().is_ok() => return Ok((path, lock)),
            Err(error) if !GONE.contains(&error.kind()) => {
                let _ = std::fs::remove_dir(&path);
                return Err(error);
            }
            _ => {}
        }
    }
}

/// Removes what killed processes left: nobody has its lock.
pub fn tidy(all: &Path, remove: impl Fn(&Path)) {
    for entry in std::fs::read_dir(all).into_iter().flatten().flatten() {
        if let Ok(_lock) = locked(&entry.path()) {
            remove(&entry.path());
        }
    }
}

/// A directory with its lock, until this is closed.
fn locked(path: &Path) -> Result<File> {
    let directory = File::open(path)?;
    directory.try_lock().map_err(Error::from)?;
    Ok(directory)
}
