//! How much a snapshot may take that nobody asked for.

use super::beneath::{self, join, names};
use crate::error::{Result, SessionError};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::FileType;

/// What a snapshot may take at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Most {
    /// Names that are looked at.
    pub names: u64,
    /// Files that are read.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Why it is not made.
pub(super) fn too_much(most: &Most) -> SessionError {
    SessionError::usage(format!(
        "the tree has more than {} names, or {} files or {} MiB that no snapshot has; \
         `ringfence snapshot create` keeps it however long that takes, and later ones take less",
        most.names,
        most.files,
        most.bytes >> 20
    ))
}

/// Counts what a first snapshot of a tree would read, and no further than there may be.
pub(super) fn check(root: &OwnedFd, most: &Most) -> Result<()> {
    let (mut seen, mut files, mut bytes) = (0, 0, 0_u64);
    let mut pending = vec![Vec::new()];
    while let Some(path) = pending.pop() {
        // What cannot be read is not kept either.
        let Ok(directory) = beneath::open_directory(root.as_fd(), &path) else { continue };
        for name in names(&directory).unwrap_or_default().iter() {
            let Ok(found) = beneath::stat(&directory, name) else { continue };
            seen += 1;
            match found.file_type {
                FileType::Directory if !found.mount => pending.push(join(&path, name)),
                FileType::RegularFile => {
                    files += 1;
                    bytes = bytes.saturating_add(found.on_disk());
                }
                _ => {}
            }
            if seen > most.names || files > most.files || bytes > most.bytes {
                return Err(too_much(most));
            }
        }
    }
    Ok(())
}
