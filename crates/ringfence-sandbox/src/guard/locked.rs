//! Directories that a run left unlistable, to hide in them what a host program finds by its name:
//! git needs no listing of the directories that it goes through. Or unwritable, so that it stays.

use super::{Directory, Guarding, Work, changed};
use ringfence_policy::shown;
use ringfence_sys as sys;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use sys::Errno;

pub(super) const ENTER_AND_LIST: u32 = 0o500;
pub(super) const ALL: u32 = 0o700;

/// A directory that is open for a moment, while the command runs: what was closed has its mode again at the end.
pub(super) struct Ajar {
    pub directory: Directory,
    _closed: Closed,
}

/// Directories that get these modes back.
#[derive(Default)]
struct Closed(Vec<(Directory, u32)>);

impl Drop for Closed {
    fn drop(&mut self) {
        // The last first: it may be in another.
        for (place, mode) in self.0.drain(..).rev() {
            let _ = set(&place, mode);
        }
    }
}

/// Opens a directory, without following links, with these rights of its owner for a moment where the run took them
/// away, of it or of directories on the way. Nothing is there where its tree is elsewhere.
pub(super) fn ajar(guarding: &Guarding, path: &Path, rights: u32) -> Result<Ajar, Errno> {
    let opened = Directory::open(path);
    if !guarding.in_place(path) {
        return Err(Errno::ENOENT);
    }
    let may = |directory: &Directory| {
        let has = |data: fs::Metadata| data.mode() & rights == rights;
        sys::identity::user() == 0 || fs::metadata(directory.at(".")).is_ok_and(has)
    };
    match opened {
        Ok(directory) if may(&directory) => {
            return Ok(Ajar { directory, _closed: Closed::default() });
        }
        Ok(_) | Err(Errno::EACCES) => {}
        Err(errno) => return Err(errno),
    }
    // What was opened is closed again, however this ends.
    let mut closed = Closed::default();
    for directory in way(guarding, path) {
        let Some((place, data)) = place(directory) else { break };
        let wanted = if directory == path { rights } else { ENTER_AND_LIST };
        let mode = data.permissions().mode() & 0o7777;
        if mode & wanted != wanted && changed(&data) >= guarding.since {
            set(&place, mode | wanted).map_err(|_| Errno::EACCES)?;
            closed.0.push((place, mode));
        }
    }
    let directory = Directory::open(path)?;
    Ok(Ajar { directory, _closed: closed })
}

/// The directories from the top of a writable tree to a path, and that one itself.
fn way<'p>(guarding: &Guarding, path: &'p Path) -> Vec<&'p Path> {
    let inside = |path: &&Path| guarding.trees.iter().any(|tree| path.starts_with(&tree.tree));
    let mut way: Vec<&Path> = path.ancestors().take_while(inside).collect();
    way.reverse();
    way
}

/// Opens a directory for a look at names in it, without following links. Where the run took away the rights
/// that this needs, of it or of directories on the way, they are given back until [`lock_again`].
pub(super) fn open(work: &mut Work<'_>, path: &Path) -> Result<Directory, Errno> {
    open_known(work, path).map(|(directory, _)| directory)
}

/// The same, and what it was then.
pub(super) fn open_known(
    work: &mut Work<'_>,
    path: &Path,
) -> Result<(Directory, fs::Metadata), Errno> {
    let mut opened = Directory::open(path);
    if matches!(opened, Err(Errno::EACCES)) {
        way(work.guarding, path).into_iter().for_each(|directory| unlock(work, directory));
        opened = Directory::open(path);
    }
    let directory = opened?;
    let data = directory.data()?;
    if data.mode() & 0o100 == 0 {
        unlock(work, path);
    }
    Ok((directory, data))
}

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
    if mode & rights == rights || !work.suspect(path, &data) {
        return false;
    }
    let granted = set(&place, mode | rights);
    match &granted {
        Ok(()) => work.unlocked.push((path.to_owned(), mode)),
        Err(error) => work.said.open(format!(
            "{} was closed inside (mode {mode:04o}) and cannot be opened for a look: {error}; what is in it was \
             not judged: look before you use anything there",
            shown::path(path)
        )),
    }
    granted.is_ok()
}

/// Gives them the modes that they had, the last first: a directory may be in another.
pub(super) fn lock_again(work: &mut Work<'_>) {
    for (path, mode) in std::mem::take(&mut work.unlocked).into_iter().rev() {
        if let Some((place, _)) = place(&path) {
            let _ = set(&place, mode);
        }
    }
}

/// A directory of the user's, reached without links, whatever its mode.
fn place(path: &Path) -> Option<(Directory, fs::Metadata)> {
    let place = Directory::place(path).ok()?;
    let data = fs::metadata(place.at("")).ok()?;
    (data.is_dir() && data.uid() == sys::identity::user()).then_some((place, data))
}

fn set(place: &Directory, mode: u32) -> io::Result<()> {
    fs::set_permissions(place.at(""), fs::Permissions::from_mode(mode))
}
