//! Where things go that a sandboxed program put at a protected path.

use ringfence_start::flags;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Bytes copied at most where the quarantine is on another file system, once nobody writes any more: what is
/// inside decides how long its files are, and must not decide how long the end takes.
const ROOM: u64 = 1 << 30;

/// The session's quarantine; made when the first thing goes there.
pub(super) struct Quarantine {
    directory: Option<PathBuf>,
    taken: u32,
    room: u64,
}

impl Quarantine {
    /// Without a session nothing is kept. Things have numbers, from those that it has by now.
    pub fn new(session: Option<&str>, taken: u32) -> Quarantine {
        let home = ringfence_sys::identity::home().filter(|home| home.is_absolute());
        let directory = session
            .zip(home)
            .map(|(session, home)| crate::state::directory(&home).join("quarantine").join(session));
        Quarantine { directory, taken, room: ROOM }
    }

    /// Moves a path away; returns where to, or nothing when it was removed instead (another
    /// file system, and no plain file or one too many bytes).
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

    /// Takes a path away while who made it goes on: one rename, and where that cannot be (the
    /// quarantine is on another file system, or full), a rename to a name that nobody can guess, from
    /// which it is copied and removed. Nothing is followed.
    ///
    /// # Errors
    /// It is still there: a directory of another file system, or one in a directory that may not be
    /// written to.
    pub fn move_away(&mut self, path: &Path, copies: &mut Copies) -> io::Result<Away> {
        let target = self.target(path);
        let moved = match &target {
            Ok(target) => fs::rename(path, target),
            Err(_) => Err(io::ErrorKind::CrossesDevices.into()),
        };
        match (moved, target) {
            (Ok(()), Ok(target)) => Ok(Away::Kept(target)),
            (Err(why), target) => aside(path, target, copies, why),
            (Ok(()), Err(why)) => Err(why),
        }
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
                let copied = copy(path, &target)?;
                let bytes =
                    fill(&copied, self.room).inspect_err(|_| drop(fs::remove_file(&target)))?;
                self.room -= bytes;
                fs::remove_file(path)?;
                Ok(target)
            }
            Err(error) => Err(error),
        }
    }
}

/// Where something is that was taken away while who made it goes on.
pub(super) enum Away {
    /// There.
    Kept(PathBuf),
    /// Nowhere, and why.
    Removed(io::Error),
}

/// What a name begins with that stands, for a moment, where something is taken away.
const ASIDE: &str = ".ringfence-aside-";

/// Whether a name is one that only [`aside`] gives: what has it was left by a launcher that was killed.
pub(super) fn is_aside(name: &[u8]) -> bool {
    let random = name.strip_prefix(ASIDE.as_bytes());
    random.is_some_and(|random| random.len() == 16 && random.iter().all(u8::is_ascii_hexdigit))
}

/// Takes a path away by way of its own directory. The name that it has in between can be seen, and
/// anything be put there: so nothing is opened that is no plain file, and what is removed there is what
/// its program could have removed.
fn aside(
    path: &Path,
    target: io::Result<PathBuf>,
    copies: &mut Copies,
    why: io::Error,
) -> io::Result<Away> {
    if path.symlink_metadata()?.is_dir() {
        return Err(why);
    }
    let random = ringfence_sys::identity::random;
    let aside = path.with_file_name(format!("{ASIDE}{:08x}{:08x}", random(), random()));
    fs::rename(path, &aside)?;
    let kept = target.and_then(|target| {
        match fs::read_link(&aside) {
            Ok(link) => std::os::unix::fs::symlink(link, &target)?,
            Err(_) => copies.keep(&aside, &target)?,
        }
        Ok(target)
    });
    match (fs::remove_file(&aside), kept) {
        (_, Ok(target)) => Ok(Away::Kept(target)),
        (Ok(()), Err(why)) => Ok(Away::Removed(why)),
        // It was a directory by then: the end of the run has time for it.
        (Err(error), Err(_)) => {
            let _ = fs::rename(&aside, path);
            Err(error)
        }
    }
}

/// A file and its copy. Neither is opened again: the file may have no name any more, and the copy's
/// directory may be one that the program can write to.
struct Copied {
    file: File,
    copy: File,
}

/// Files held at most for what is written to them yet.
const HELD: usize = 64;
/// Bytes copied at most while a command runs: its program waits for nothing, but who watches it does.
const AT_ONCE: u64 = 16 << 20;
/// What the smallest copy is taken for: a directory of empty files fills a disk as well.
const LEAST: u64 = 4096;

/// Copies of what was taken away while its program may have it open.
#[derive(Default)]
pub(super) struct Copies {
    held: Vec<(Copied, PathBuf)>,
    used: u64,
}

impl Copies {
    /// Copies a file, or holds it until the end when it is too large for now.
    fn keep(&mut self, path: &Path, target: &Path) -> io::Result<()> {
        let copied = copy(path, target)?;
        let bytes = fill(&copied, AT_ONCE.saturating_sub(self.used));
        let hold = self.held.len() < HELD;
        match bytes {
            Ok(bytes) => self.used += bytes.max(LEAST),
            Err(why) if hold && why.kind() == io::ErrorKind::FileTooLarge => {}
            Err(why) => {
                let _ = fs::remove_file(target);
                return Err(why);
            }
        }
        if hold {
            self.held.push((copied, target.to_owned()));
        }
        Ok(())
    }

    /// Makes them what their files are now that nobody writes any more; those that could not be made so,
    /// and why.
    pub fn complete(&mut self) -> Vec<(PathBuf, io::Error)> {
        let mut room = ROOM;
        let held = std::mem::take(&mut self.held).into_iter();
        held.filter_map(|(mut copied, kept)| {
            let done = (|| {
                copied.file.rewind()?;
                copied.copy.rewind()?;
                let bytes = fill(&copied, room)?;
                room -= bytes;
                copied.copy.set_len(bytes)
            })();
            done.err().map(|why| (kept, why))
        })
        .collect()
    }
}

/// Opens a plain file and makes an empty one for its copy. What stands there may be a link, a FIFO or a device by
/// now: none of them is opened.
fn copy(path: &Path, target: &Path) -> io::Result<Copied> {
    const NONBLOCK: i32 = 0o4_000;
    let carefully = flags::NO_FOLLOW as i32 | ringfence_sys::fd::PATH_ONLY;
    let place = fs::OpenOptions::new().read(true).custom_flags(carefully).open(path)?;
    if !place.metadata()?.is_file() {
        return Err(io::Error::other("it was no plain file"));
    }
    let through = format!("/proc/self/fd/{}", place.as_raw_fd());
    let file = fs::OpenOptions::new().read(true).custom_flags(NONBLOCK).open(through)?;
    let mut options = fs::OpenOptions::new();
    let copy = options.write(true).create_new(true).mode(0o600).open(target)?;
    Ok(Copied { file, copy })
}

/// Copies the bytes of a file, at most so many; one that is longer gets none.
fn fill(Copied { file, copy }: &Copied, most: u64) -> io::Result<u64> {
    if file.metadata()?.len() > most {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    // It may grow meanwhile.
    let bytes = io::copy(&mut file.take(most), &mut &*copy)?;
    if bytes == most && file.take(1).read(&mut [0])? == 1 {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
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
