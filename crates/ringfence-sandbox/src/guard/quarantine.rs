//! Where things go that a sandboxed program put at a protected path.

use super::Saved;
use ringfence_start::flags;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Bytes copied at most where the quarantine is on another file system, in a whole run: what is inside decides how long
/// its files are, and must not decide how long the end takes.
pub(super) const ROOM: u64 = 1 << 30;
/// What a name may have at most (`NAME_MAX`).
pub(super) const LONGEST: usize = 255;
/// What is copied takes no more of a file system than this part of what is free there.
const SHARE: u64 = 4;

/// The session's quarantine; made when the first thing goes there.
pub(super) struct Quarantine {
    pub(super) directory: Option<PathBuf>,
    pub(super) taken: u32,
    pub(super) room: u64,
    /// The directory is there.
    made: bool,
}

impl Quarantine {
    /// Without a session nothing is kept. Things have numbers, from those that it has by now, and so much room is left.
    pub fn new(session: Option<&str>, taken: u32, room: u64) -> Quarantine {
        let home = ringfence_sys::identity::home().filter(|home| home.is_absolute());
        let directory = session.zip(home).and_then(|(session, home)| {
            let state = crate::state::directory(&home).ok()?;
            Some(state.join("quarantine").join(session))
        });
        Quarantine { directory, taken, room, made: false }
    }

    /// Moves a path away; returns where to. Nothing is removed that it cannot keep (another file system, and a directory
    /// or one too many bytes).
    ///
    /// # Errors
    /// It is still there.
    pub fn take(&mut self, path: &Path) -> io::Result<PathBuf> {
        unlock(path, 0);
        let target = self.target(path)?;
        self.keep(path, &target).map(|()| target)
    }

    /// Takes what was left aside, now that nobody writes any more; or says why it is not kept, and stays there.
    ///
    /// # Errors
    /// It is not there.
    pub fn take_waiting(
        &mut self,
        aside: &Path,
        target: io::Result<&Path>,
    ) -> io::Result<Result<(), io::Error>> {
        aside.symlink_metadata()?;
        Ok(target.and_then(|target| self.keep(aside, target)))
    }

    /// Writes what was at a path before, and cannot be put back there; returns where.
    ///
    /// # Errors
    /// It is nowhere.
    pub fn keep_saved(&mut self, path: &Path, saved: &Saved) -> io::Result<PathBuf> {
        let target = self.target(path)?;
        saved.restore(&target).map(|()| target)
    }

    /// Whether anything is kept.
    pub fn keeps(&self) -> bool {
        self.directory.is_some()
    }

    /// Bytes that may be copied yet.
    pub fn room(&self) -> u64 {
        self.room
    }

    /// How many it has taken.
    pub fn taken(&self) -> u32 {
        self.taken
    }

    /// Takes a path away while who made it goes on: one rename, and where that cannot be (the
    /// quarantine is on another file system, or full), a rename to a name that nobody can guess, from
    /// which it is copied, or where it waits for the end. Nothing is followed.
    ///
    /// # Errors
    /// It is still there: a directory of another file system, or one in a directory that may not be
    /// written to.
    pub fn move_away(&mut self, path: &Path, copies: &mut Copies) -> io::Result<Away> {
        match self.target(path) {
            // By another name its program could write it, there too.
            Ok(target) if super::renewed::is_linked(path) => {
                aside(path, Ok(target), copies, io::Error::other("it has another name"))
            }
            Ok(target) => match fs::rename(path, &target) {
                Ok(()) => Ok(Away::Kept(target)),
                Err(why) => aside(path, Ok(target), copies, why),
            },
            none => aside(path, none, copies, io::ErrorKind::CrossesDevices.into()),
        }
    }

    /// A new directory for what was in one.
    pub fn place_for_many(&mut self, parent: &Path) -> io::Result<PathBuf> {
        let place = self.target(parent)?;
        fs::DirBuilder::new().mode(0o700).create(&place).map(|()| place)
    }

    fn target(&mut self, path: &Path) -> io::Result<PathBuf> {
        let none = || io::Error::from(io::ErrorKind::NotFound);
        let others = || {
            let home = ringfence_sys::identity::home()?;
            crate::state::directory(&home).err().map(io::Error::other)
        };
        let directory = self.directory.clone().ok_or_else(|| others().unwrap_or_else(none))?;
        // What could not be made (a full disk) is the reason the next time too, and may be there by then.
        if !self.made {
            crate::state::make_directory(&directory)?;
            self.made = true;
        }
        self.taken += 1;
        let mut name = OsString::from(format!("{}-", self.taken));
        let of = path.file_name().ok_or_else(none)?.as_bytes();
        name.push(OsStr::from_bytes(&of[..of.len().min(LONGEST - name.len())]));
        Ok(directory.join(name))
    }

    fn keep(&mut self, path: &Path, target: &Path) -> io::Result<()> {
        match fs::rename(path, target) {
            // Across file systems only files and links are worth a copy.
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                if path.symlink_metadata()?.is_dir() {
                    // An empty one is no copy, and many are left so by what was taken while the command ran.
                    let several = "a directory, and the quarantine is on another file system";
                    fs::remove_dir(path).map_err(|_| io::Error::other(several))?;
                    return fs::DirBuilder::new().mode(0o700).create(target);
                }
                if let Ok(link) = fs::read_link(path) {
                    std::os::unix::fs::symlink(link, target)?;
                    return fs::remove_file(path).inspect_err(|_| drop(fs::remove_file(target)));
                }
                let copied = copy(path, target)?;
                let done = fill(&copied, &mut self.room);
                done.and_then(|()| fs::remove_file(path))
                    .inspect_err(|_| drop(fs::remove_file(target)))
            }
            result => result,
        }
    }
}

/// Where something is that was taken away while who made it goes on.
pub(super) enum Away {
    /// There.
    Kept(PathBuf),
    /// Nowhere: it held nothing.
    Removed(io::Error),
    /// Out of the way until the end: beside, under this name, from where it will go there, if anywhere.
    Waits(OsString, io::Result<PathBuf>),
}

/// What a name begins with that stands, for a moment, where something is taken away.
pub(super) const ASIDE: &str = ".ringfence-aside-";

/// Whether a name is one that only [`rename_aside`] gives: what has it was left by a launcher that was killed.
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
    let name = rename_aside(path)?;
    let aside = path.with_file_name(&name);
    // It may be all that its owner has of it, and at the end there may be room.
    let kept = match target {
        Err(why) => Ok(Away::Waits(name, Err(why))),
        Ok(target) => match fs::read_link(&aside) {
            Ok(link) => Ok(match std::os::unix::fs::symlink(link, &target) {
                Ok(()) => Away::Kept(target),
                Err(_) => Away::Waits(name, Ok(target)),
            }),
            Err(_) => match copies.keep(&aside, &target) {
                Ok(()) => Ok(Away::Kept(target)),
                Err(_) if holds_something(&aside) => Ok(Away::Waits(name, Ok(target))),
                Err(why) => Err(why),
            },
        },
    };
    if matches!(kept, Ok(Away::Waits(..))) {
        return kept;
    }
    match (fs::remove_file(&aside), kept) {
        (_, Ok(kept)) => Ok(kept),
        (Ok(()), Err(why)) => Ok(Away::Removed(why)),
        // It was a directory by then: the end of the run has time for it.
        (Err(error), Err(_)) => {
            let _ = fs::rename(&aside, path);
            Err(error)
        }
    }
}

/// Gives a path another name beside, which nobody can guess.
///
/// # Errors
/// It has its name still.
pub(super) fn rename_aside(path: &Path) -> io::Result<OsString> {
    let name = random_name(ASIDE);
    fs::rename(path, path.with_file_name(&name)).map(|()| name)
}

/// A name that nobody can guess.
pub(super) fn random_name(beginning: &str) -> OsString {
    let random = ringfence_sys::identity::random;
    OsString::from(format!("{beginning}{:08x}{:08x}", random(), random()))
}

/// A socket or a pipe does not. A directory by then is for the end of the run.
fn holds_something(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|data| data.is_file())
}

/// A file and its copy. Neither is opened again: the file may have no name any more, and the copy's
/// directory may be one that the program can write to.
pub(super) struct Copied {
    pub file: File,
    pub copy: File,
}

/// Files held at most for what is written to them yet.
const HELD: usize = 64;
/// Bytes copied at most while a command runs: its program waits for nothing, but who watches it does.
const AT_ONCE: u64 = 16 << 20;
/// What the smallest copy is taken for: a directory of empty files fills a disk as well.
const LEAST: u64 = 4096;

/// Copies of what was taken away while its program may have it open.
pub(super) struct Copies {
    held: Vec<(Copied, PathBuf)>,
    room: u64,
}

impl Default for Copies {
    fn default() -> Copies {
        Copies { held: Vec::new(), room: AT_ONCE }
    }
}

impl Copies {
    /// Copies a file, and holds it until the end: its program may write to it yet.
    fn keep(&mut self, path: &Path, target: &Path) -> io::Result<()> {
        let copied = copy(path, target)?;
        fill(&copied, &mut self.room).inspect_err(|_| drop(fs::remove_file(target)))?;
        if self.held.len() < HELD {
            self.held.push((copied, target.to_owned()));
        }
        Ok(())
    }

    /// Makes them what their files are now that nobody writes any more, with so much room, of which the rest is left;
    /// those that could not be made so, and why.
    pub fn complete(&mut self, room: &mut u64) -> Vec<(PathBuf, io::Error)> {
        *room = room.saturating_sub(AT_ONCE - self.room);
        let held = std::mem::take(&mut self.held).into_iter();
        held.filter_map(|(mut copied, kept)| {
            let before = copied.copy.metadata().map_or(0, |data| data.len());
            // It is the same in its place, and takes nothing: most are.
            let mut wanted = room.saturating_add(before.max(LEAST));
            let done = copied.file.rewind().and_then(|()| copied.copy.rewind());
            let done = done.and_then(|()| fill(&copied, &mut wanted));
            *room = wanted.min(*room);
            done.err().map(|why| (kept, why))
        })
        .collect()
    }
}

/// Opens a plain file and makes an empty one for its copy. What stands there may be a link, a FIFO or a device by
/// now: none of them is opened.
pub(super) fn copy(path: &Path, target: &Path) -> io::Result<Copied> {
    let carefully = flags::NO_FOLLOW as i32 | ringfence_sys::fd::PATH_ONLY;
    let place = fs::OpenOptions::new().read(true).custom_flags(carefully).open(path)?;
    if !place.metadata()?.is_file() {
        return Err(io::Error::other("it was no plain file"));
    }
    let through = ringfence_sys::fd::through(&place);
    let waits_not = ringfence_sys::fd::NON_BLOCKING;
    let open = || fs::OpenOptions::new().read(true).custom_flags(waits_not).open(&through);
    let file = open().or_else(|why| {
        // Its owner took the right to read it away. It may have other names: the mode is what it was, afterwards.
        let mode = place.metadata()?.permissions();
        fs::set_permissions(&through, Permissions::from_mode(mode.mode() | 0o400))
            .map_err(|_| why)?;
        let file = open();
        let _ = fs::set_permissions(&through, mode);
        file
    })?;
    let mut options = fs::OpenOptions::new();
    let copy = options.write(true).create_new(true).mode(0o600).open(target)?;
    Ok(Copied { file, copy })
}

/// Makes a copy what its file is, with so much room, of which the rest is left; one for which there is not enough, or for
/// which a disk has none, is as long as before.
pub(super) fn fill(Copied { file, copy }: &Copied, room: &mut u64) -> io::Result<()> {
    let too_large = || io::Error::from(io::ErrorKind::FileTooLarge);
    let before = copy.metadata()?.len();
    let free = ringfence_sys::file::free(copy.as_fd()).map_or(*room, |free| free / SHARE);
    let most = free.saturating_add(before).min(*room);
    if *room < LEAST || file.metadata()?.len() > most {
        return Err(too_large());
    }
    // It may grow meanwhile.
    let done = io::copy(&mut file.take(most), &mut &*copy).and_then(|bytes| {
        match bytes == most && file.take(1).read(&mut [0])? == 1 {
            true => Err(too_large()),
            false => copy.set_len(bytes).map(|()| bytes),
        }
    });
    // What was copied in vain took as long.
    let taken = done
        .as_ref()
        .map_or_else(|_| copy.metadata().map_or(most, |data| data.len()), |&bytes| bytes);
    *room = room.saturating_sub(taken.max(LEAST));
    if done.is_err() {
        copy.set_len(before)?;
    }
    done.map(drop)
}

/// Gives the owner back the right to enter and to empty directories that were locked on purpose.
/// Links are not followed, and the depth is bounded: what lies deeper is not ours to chase.
///
/// Another sandbox in the same tree may put a link in a directory's place at any moment, so each is
/// opened first, and what is done, is done by the descriptor.
pub(super) fn unlock(path: &Path, depth: usize) {
    let carefully = (flags::DIRECTORY | flags::NO_FOLLOW) as i32 | ringfence_sys::fd::PATH_ONLY;
    let place = fs::OpenOptions::new().read(true).custom_flags(carefully).open(path);
    let Some(place) = place.ok().filter(|_| depth <= 256) else { return };
    let through = ringfence_sys::fd::through(&place);
    if place.metadata().is_ok_and(|data| data.permissions().mode() & 0o700 != 0o700) {
        let _ = fs::set_permissions(&through, Permissions::from_mode(0o700));
    }
    for entry in fs::read_dir(&through).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            unlock(&entry.path(), depth + 1);
        }
    }
}
