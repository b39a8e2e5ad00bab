//! Where things go that a sandboxed program put at a protected path.

use ringfence_start::flags;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
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
                copy(path, &target)?;
                fs::remove_file(path)?;
                Ok(target)
            }
            Err(error) => Err(error),
        }
    }
}

/// Copies a plain file. What stands there may be a link or a FIFO by now: neither leads or stops us.
fn copy(path: &Path, target: &Path) -> io::Result<()> {
    const NONBLOCK: i32 = 0o4_000;
    let carefully = flags::NO_FOLLOW as i32 | NONBLOCK;
    let mut file = fs::OpenOptions::new().read(true).custom_flags(carefully).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::CrossesDevices.into());
    }
    let mut options = fs::OpenOptions::new();
    io::copy(&mut file, &mut options.write(true).create_new(true).mode(0o600).open(target)?)?;
    Ok(())
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
///
/// Another sandbox in the same tree may put a link in a directory's place at any moment, so each is
/// opened first, and what is done, is done by the descriptor.
fn unlock(path: &Path, depth: usize) {
    let carefully = (flags::DIRECTORY | flags::NO_FOLLOW) as i32 | ringfence_sys::fd::PATH_ONLY;
    let place = fs::OpenOptions::new().read(true).custom_flags(carefully).open(path);
    let Some(place) = place.ok().filter(|_| depth <= 256) else { return };
    let through = PathBuf::from(format!("/proc/self/fd/{}", place.as_raw_fd()));
    if place.metadata().is_ok_and(|data| data.permissions().mode() & 0o700 != 0o700) {
        let _ = fs::set_permissions(&through, fs::Permissions::from_mode(0o700));
    }
    for entry in fs::read_dir(&through).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            unlock(&entry.path(), depth + 1);
        }
    }
}
