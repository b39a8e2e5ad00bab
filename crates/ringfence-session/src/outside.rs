//! Files of the host that the user names for a command about a session (`cp`, `report --output`). What lies there
//! may be the program's that the session is about: a link that leads where the program itself may not read
//! or write, a pipe that holds up whoever opens it.

use crate::error::{Result, SessionError};
use crate::ledger::Session;
use crate::snapshot::content::write_sparse;
use ringfence_policy::{HostFiles, Resolver, shown};
use ringfence_start::mark;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Says of a link whether some run, an earlier one of another program too, may have made it.
pub type ByARun<'a> = &'a dyn Fn(&Path) -> bool;

/// Where a path leads. Links on the way are the user's word, but for those that a program may have made: the session's, in
/// the directory that it runs in, or since it runs; or any other, as `by_a_run` says.
///
/// # Errors
/// There is such a link; the file system's.
pub fn real(session: &Session, path: &Path, by_a_run: ByARun<'_>) -> Result<PathBuf> {
    let failed = |error| SessionError::call("readlink", path, error);
    // The empty path is the current directory.
    let full = std::env::current_dir().map_err(failed)?.join(path);
    let real = Resolver::new(&HostFiles).real(&full).map_err(failed)?;
    let own = Path::new(&session.cwd);
    let own = own.canonicalize().unwrap_or_else(|_| own.to_owned());
    let planted = |link: &Path| {
        let changed = link.symlink_metadata().map(|found| {
            let changed =
                found.ctime().saturating_mul(1_000_000_000).saturating_add(found.ctime_nsec());
            u64::try_from(changed)
                .map_or(changed / 1000, |changed| (mark::latest(changed) / 1000) as i64)
        });
        // The kernel's own are as new as whoever looks at them.
        let made = link.starts_with(&own) || changed.is_ok_and(|at| at >= session.started);
        (made || by_a_run(link)) && !link.starts_with("/proc")
    };
    match real.links.iter().find(|(link, _)| planted(link)) {
        Some((link, _)) => Err(SessionError::usage(format!(
            "{} is a symbolic link that a program in a sandbox may have made: name what it leads to, {}, if \
             that is right",
            shown::path(link),
            shown::path(&real.path)
        ))),
        None => Ok(real.path),
    }
}

/// What a path leads to, for reading.
#[derive(Debug)]
pub enum Source {
    /// A file.
    File(File),
    /// A directory.
    Directory(OwnedFd),
}

/// Opens what a path leads to (as [`real`] says), for reading.
///
/// # Errors
/// There is nothing; it is neither a file nor a directory, of which none is waited for; those of [`real`].
pub fn open(session: &Session, path: &Path, by_a_run: ByARun<'_>) -> Result<Source> {
    let neither = || {
        SessionError::usage(format!(
            "{} is neither a file nor a directory; what a pipe gives goes in with: ringfence exec SESSION -- \
             sh -c 'cat >FILE'",
            shown::path(path)
        ))
    };
    let real = real(session, path, by_a_run)?;
    let opened = without_links(&real, OFlags::RDONLY | OFlags::NONBLOCK).map_err(|error| {
        // `/dev/stdin` and what `<(…)` names lead to a descriptor, and not to a name.
        if real.starts_with("/proc") { neither() } else { error }
    })?;
    let failed = |error| SessionError::call("fstat", path, error);
    let found = rustix::fs::fstat(&opened).map_err(failed)?;
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => Ok(Source::File(File::from(opened))),
        FileType::Directory => Ok(Source::Directory(opened)),
        _ => Err(neither()),
    }
}

/// Opens a directory by the path that it has with all links followed.
///
/// # Errors
/// It is none any more, or a link turned up meanwhile; the file system's.
pub fn directory(path: &Path) -> Result<OwnedFd> {
    without_links(path, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// The same, and makes what is missing of it: each directory in the one that was opened or made before, so that
/// nothing is made where a link leads that turns up meanwhile.
///
/// # Errors
/// As [`directory`].
pub fn directory_made(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let (parent, name) = match (open_at(CWD, path, flags), path.parent(), path.file_name()) {
        (Err(Errno::NOENT), Some(parent), Some(name)) => (parent, name),
        (opened, ..) => return opened.map_err(|error| SessionError::call("open", path, error)),
    };
    let parent = directory_made(parent)?;
    match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o777)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(SessionError::call("mkdir", path, error)),
    }
    open_at(parent.as_fd(), Path::new(name), flags)
        .map_err(|error| SessionError::call("open", path, error))
}

fn without_links(path: &Path, flags: OFlags) -> Result<OwnedFd> {
    open_at(CWD, path, flags).map_err(|error| SessionError::call("open", path, error))
}

fn open_at(at: BorrowedFd<'_>, path: &Path, flags: OFlags) -> std::result::Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(at, path, flags, Mode::empty(), resolve)
}

/// A name in an open directory, for calls that take paths.
pub fn at(directory: &OwnedFd, name: &OsStr) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name)
}

/// A file of which a name is made when it is whole, so that one that is not done leaves nothing, whatever ends us: without
/// a name where the file system has such files.
#[derive(Debug)]
pub struct Part {
    file: File,
    size: u64,
    /// Its name until then, if it has one.
    named: Option<PathBuf>,
}

impl Part {
    /// Makes it in a directory, for a file that will be called so.
    ///
    /// # Errors
    /// The file system's.
    pub fn new(directory: &Path, name: &OsStr) -> std::io::Result<Part> {
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        match rustix::fs::open(directory, flags, Mode::from_raw_mode(0o666)) {
            Ok(file) => Ok(Part { file: File::from(file), size: 0, named: None }),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {
                let path = directory.join(part_name(name));
                let file = File::create_new(&path)?;
                Ok(Part { file, size: 0, named: Some(path) })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Adds bytes; blocks of zeros become holes.
    ///
    /// # Errors
    /// The file system's.
    pub fn add(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        write_sparse(&self.file, bytes, self.size)?;
        self.size += bytes.len() as u64;
        Ok(())
    }

    /// Gives it its name, in place of what has that.
    ///
    /// # Errors
    /// The file system's.
    pub fn settle(mut self, directory: &Path, name: &OsStr) -> std::io::Result<()> {
        self.file.set_len(self.size)?;
        let path = match &self.named {
            Some(path) => path,
            None => {
                let path = directory.join(part_name(name));
                let open = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                rustix::fs::linkat(CWD, open, CWD, &path, AtFlags::SYMLINK_FOLLOW)?;
                self.named.insert(path)
            }
        };
        std::fs::rename(path, directory.join(name))?;
        self.named = None;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Some(path) = &self.named {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn part_name(name: &OsStr) -> std::ffi::OsString {
    let mut part = name.to_owned();
    part.push(format!(".part-{}", std::process::id()));
    part
}

/// Opens a file that the user names, for reading: a pipe that nobody writes to is at its end, and not waited for.
///
/// # Errors
/// The file system's.
pub fn open_named(path: &Path) -> std::io::Result<File> {
    let opened =
        rustix::fs::open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
    // One that somebody writes to is waited for.
    rustix::fs::fcntl_setfl(&opened, OFlags::empty())?;
    Ok(File::from(opened))
}

/// Writes a file that the user names, whole or not at all. What is at its name is replaced, and neither followed
/// nor opened; without a session a file's mode stays, and its owner where that may be given, but for one of another
/// user's where everybody makes names (`/tmp`): who took the name first is not given the file. With a session, links on the way are judged as [`real`] says; names like `/dev/stdout` are what
/// they are.
///
/// # Errors
/// A link on the way; the file system's.
pub fn write(session: Option<(&Session, ByARun<'_>)>, path: &Path, bytes: &[u8]) -> Result<()> {
    let failed = |error: std::io::Error| SessionError::call("write", path, error);
    let full = std::env::current_dir().map_err(failed)?.join(path);
    let none = || SessionError::usage(format!("{} has no name of its own", shown::path(path)));
    let (Some(parent), Some(name)) = (full.parent(), full.file_name()) else { return Err(none()) };
    if ["/dev", "/dev/fd", "/proc/self/fd"].iter().any(|own| parent == Path::new(own)) {
        return std::fs::write(&full, bytes).map_err(failed);
    }
    let parent = match session {
        Some((session, by_a_run)) => real(session, parent, by_a_run)?,
        None => parent.canonicalize().map_err(failed)?,
    };
    let parent = directory(&parent)?;
    // Another name first: it is a new file, whatever is at either of them.
    let (part, target) = (at(&parent, &part_name(name)), at(&parent, name));
    // What is about a session is for its user alone, as the session's record is.
    let mode = if session.is_some() { 0o600 } else { 0o666 };
    let mut options = File::options();
    let options = options.write(true).create_new(true).mode(mode);
    let mut file = options.open(&part).map_err(failed)?;
    let as_before = || match target.symlink_metadata() {
        Ok(before) if session.is_none() && before.is_file() && stays(&parent, before.uid()) => {
            // The owner first: with a new one some bits are taken away.
            let _ = std::os::unix::fs::fchown(&file, Some(before.uid()), Some(before.gid()));
            file.set_permissions(Permissions::from_mode(before.mode() & 0o777))
        }
        _ => Ok(()),
    };
    let prepared = as_before();
    let written = prepared.and_then(|()| file.write_all(bytes));
    let written = written.and_then(|()| std::fs::rename(&part, target));
    if written.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    written.map_err(failed)
}

/// Whether a file of this owner in a directory was put there by the caller, or by whoever the directory is in the hands of.
fn stays(directory: &OwnedFd, owner: u32) -> bool {
    const WRITTEN: u32 = 0o002;
    let closed = rustix::fs::fstat(directory).is_ok_and(|stat| stat.st_mode & WRITTEN == 0);
    closed || owner == rustix::process::geteuid().as_raw()
}

/// Writes a file that the user names and that is not there, whole or not at all.
///
/// # Errors
/// It is there, of whatever kind; the file system's.
pub fn write_new(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut new = File::options().write(true).create_new(true).open(path)?;
    let written = new.write_all(bytes);
    if written.is_err() {
        let _ = std::fs::remove_file(path);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_pipe_that_nobody_writes_to_is_at_its_end() {
        let path = std::env::temp_dir().join(format!("ringfence-pipe-{}", std::process::id()));
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, mode, 0).expect("a pipe");
        let mut text = String::new();
        open_named(&path).expect("opened").read_to_string(&mut text).expect("read");
        assert_eq!(text, "");
        // One with a writer is waited for.
        let mut reader = open_named(&path).expect("opened");
        let writer = File::options().write(true).open(&path).expect("opened");
        let writing = std::thread::spawn(move || { &writer }.write_all(b"{}"));
        reader.read_to_string(&mut text).expect("read");
        writing.join().expect("ended").expect("written");
        assert_eq!(text, "{}");
        std::fs::remove_file(&path).expect("removed");
    }
}
