//! Where things go that a sandboxed program put at a protected path.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The session's quarantine; made when the first thing goes there.
pub(super) struct Quarantine {
    directory: Option<PathBuf>,
    taken: u32,
}

impl Quarantine {
    /// Without a session nothing is kept. Things have numbers, from those that it has by now.
    pub fn new(session: Option<&str>, taken: u32) -> Quarantine {
        let home = ringfence_sys::identity::home().filter(|home| home.is_absolute());
        let directory = session
            .zip(home)
            .map(|(session, home)| crate::state::directory(&home).join("quarantine").join(session));
        Quarantine { directory, taken }
    }

    /// Moves a path away; returns where to, or nothing when it was removed instead (another
    /// file system, and no plain file).
    ///
    /// # Errors
    /// It is still there.
    pub fn take(&mut self, path: &Path) -> io::Result<Option<PathBuf>> {
        unlock(path, 0);
        match self.keep(path) {
            Ok(kept) => Ok(Some(kept)),
            Err(_) => remove(path).map(|()| None),
        }
    }

    /// How many it has taken.
    pub fn taken(&self) -> u32 {
        self.taken
    }

    /// Moves a path away in one step, whatever it is, without reading or following anything.
    ///
    /// # Errors
    /// It is still there: on another file system, or a directory that may not be moved.
    pub fn move_away(&mut self, path: &Path) -> io::Result<PathBuf> {
        let target = self.target(path)?;
        fs::rename(path, &target).map(|()| target)
    }

    fn target(&mut self, path: &Path) -> io::Result<PathBuf> {
        let none = || io::Error::from(io::ErrorKind::NotFound);
        let directory = self.directory.clone().ok_or_else(none)?;
        crate::state::make_directory(&directory)?;
        self.taken += 1;
        let mut name = OsString::from(format!("{}-", self.taken));
        name.push(path.file_name().ok_or_else(none)?);
        Ok(directory.join(name))
    }

    fn keep(&mut self, path: &Path) -> io::Result<PathBuf> {
        let target = self.target(path)?;
        match fs::rename(path, &target) {
            Ok(()) => Ok(target),
            // Across file systems only plain files are worth a copy.
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                if !path.symlink_metadata()?.is_file() {
                    return Err(error);
                }
                fs::copy(path, &target)?;
                fs::remove_file(path)?;
                Ok(target)
            }
            Err(error) => Err(error),
        }
    }
}

/// Removes what nobody misses.
pub(super) fn discard(path: &Path) {
    unlock(path, 0);
    let _ = remove(path);
}

fn remove(path: &Path) -> io::Result<()> {
    if path.symlink_metadata()?.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}

/// Gives the owner back the right to enter and to empty directories that were locked on purpose.
/// Links are not followed, and the depth is bounded: what lies deeper is not ours to chase.
fn unlock(path: &Path, depth: usize) {
    let Ok(data) = path.symlink_metadata() else { return };
    if !data.is_dir() || depth > 256 {
        return;
    }
    if data.permissions().mode() & 0o700 != 0o700 {
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o700));
    }
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        unlock(&entry.path(), depth + 1);
    }
}
