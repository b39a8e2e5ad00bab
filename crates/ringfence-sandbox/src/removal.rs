//! Removing a directory with all that is in it, however deep that is and whatever its user was locked out of.

use ringfence_sys::fd::{self, DIRECTORY, NO_FOLLOW, PATH_ONLY, through};
use std::ffi::CString;
use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Removes a path, with what is in it. Links are removed, not followed. What cannot be removed stays.
pub(crate) fn remove(path: &Path) {
    if is_gone(path) || fs::remove_dir_all(path).is_ok() {
        return;
    }
    // A directory was closed to its own user, or there are more levels than descriptors: that walk holds one for each.
    if let Some(top) = enter(path) {
        flatten(&through(&top));
    }
    let _ = fs::remove_dir(path);
}

/// Empties a directory of its own user's with a descriptor for two levels at a time: what is in a directory within it
/// is moved up into it, so that each directory is looked through once, and nothing gets deeper.
fn flatten(top: &Path) {
    let mut number = 0;
    while empty(top, |directory| {
        let Some(entered) = enter(directory) else { return false };
        let within = through(&entered);
        while empty(&within, |deeper| {
            // A directory that changes its parent is written to itself.
            enter(deeper).is_some() && move_up(deeper, top, &mut number)
        }) {}
        fs::remove_dir(directory).is_ok()
    }) {}
}

/// Removes what is in a directory, and does this with each directory there that is not empty. Returns whether anything
/// went: while a directory changes, a reading of it may pass names over.
fn empty(directory: &Path, mut otherwise: impl FnMut(&Path) -> bool) -> bool {
    let mut went = false;
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        went |= is_gone(&entry.path()) || otherwise(&entry.path());
    }
    went
}

/// Whether a file or an empty directory is removed.
fn is_gone(path: &Path) -> bool {
    fs::remove_file(path).is_ok() || fs::remove_dir(path).is_ok()
}

/// Moves a directory into another one, by a name that nothing has there.
fn move_up(directory: &Path, to: &Path, number: &mut u64) -> bool {
    loop {
        *number += 1;
        match fs::rename(directory, to.join(number.to_string())) {
            Ok(()) => return true,
            Err(error) => match error.kind() {
                // That name is taken.
                ErrorKind::DirectoryNotEmpty
                | ErrorKind::AlreadyExists
                | ErrorKind::NotADirectory => {}
                _ => return false,
            },
        }
    }
}

/// Opens a directory, and no link to one, and lets its user in. It is done by the descriptor: another program of the
/// user's may put a link in a directory's place at any moment.
fn enter(path: &Path) -> Option<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let entered = fd::open_at(fd::CWD, &path, DIRECTORY | NO_FOLLOW | PATH_ONLY, 0).ok()?;
    fs::set_permissions(through(&entered), Permissions::from_mode(0o700)).ok()?;
    Some(entered)
}
