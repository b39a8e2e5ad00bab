//! Directories that a run left unlistable, to hide in them what a host program finds by its name:
//! git needs no listing of the directories that it goes through. Or unwritable, so that it stays.

use super::{Directory, Work};
use ringfence_sys as sys;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

const ENTER_AND_LIST: u32 = 0o500;
const ALL: u32 = 0o700;

/// Gives the owner back the right to list and enter a directory that the run changed, until
/// [`lock_again`]. What it cannot change stays as it is.
pub(super) fn unlock(work: &mut Work<'_>, path: &Path) {
    grant(work, path, ENTER_AND_LIST);
}

/// The same, and the right to take something out of it; whether that could be given.
pub(super) fn unlock_all(work: &mut Work<'_>, path: &Path) -> bool {
    grant(work, path, ALL)
}

fn grant(work: &mut Work<'_>, path: &Path, rights: u32) -> bool {
    let Some((place, data)) = place(path) else { return false };
    let mode = data.permissions().mode() & 0o7777;
    // Who changed it is asked last: that may read what was noted of earlier runs.
    let granted =
        mode & rights != rights && work.suspect(path, &data) && set(&place, mode | rights);
    if granted {
        work.unlocked.push((path.to_owned(), mode));
    }
    granted
}

/// Gives them the modes that they had, the last first: a directory may be in another.
pub(super) fn lock_again(work: &mut Work<'_>) {
    for (path, mode) in std::mem::take(&mut work.unlocked).into_iter().rev() {
        if let Some((place, _)) = place(&path) {
            set(&place, mode);
        }
    }
}

/// A directory of the user's, reached without links, whatever its mode.
fn place(path: &Path) -> Option<(Directory, fs::Metadata)> {
    let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).ok()?;
    let place = sys::fd::open_without_links(sys::fd::CWD, &name, sys::fd::PATH_ONLY).ok()?;
    let place = Directory(place);
    let data = fs::metadata(place.at("")).ok()?;
    (data.is_dir() && data.uid() == sys::identity::user()).then_some((place, data))
}

fn set(place: &Directory, mode: u32) -> bool {
    fs::set_permissions(place.at(""), fs::Permissions::from_mode(mode)).is_ok()
}
