//! The layers of a session that is forked, once more for its fork: what the kernel wrote, with its marks.
//!
//! The session is held still meanwhile, so that nobody writes to them. Names in them are its program's choice: each is one
//! name in an open directory, and no link is followed.

use super::layer::{DEEPEST, failed, names};
use super::{InUse, Record, begin_with, directory};
use crate::error::{Result, SessionError};
use crate::snapshot::beneath::{self, Found, join, split};
use crate::snapshot::fault;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes that are copied at once.
const PIECE: usize = 1 << 20;
/// The most of an attribute, and of the names of all (xattr(7)).
const ATTRIBUTE: usize = 64 * 1024;

/// How much of the layers is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copied {
    /// Some more of it.
    Part,
    /// All.
    All,
}

/// Makes the layers for a fork of a session, which hold what that one's hold: `N/upper` and `N/work` for each tree. What the
/// host changed since that session began is a conflict for this one as well. Whoever holds it still is `told` of each part,
/// and in the end: of a session that has gone on before there is no copy.
///
/// # Errors
/// The file system's; other trees are kept apart than there; what `told` says.
pub fn begin_as(
    session: &Path,
    record: &Record,
    source: &Path,
    told: &mut dyn FnMut(Copied) -> Result<()>,
) -> Result<InUse> {
    // Where it has ended, its layers may be gone: that is the reason then.
    told(Copied::Part)?;
    let from = directory(source);
    let was = Record::read(&from.join("record.json"))?;
    let same = record
        .trees
        .iter()
        .zip(&was.trees)
        .all(|(is, was)| is.path == was.path && is.directory == was.directory);
    if !same || record.trees.len() != was.trees.len() {
        return Err(SessionError::usage("other trees would be kept apart than in that session"));
    }
    let mut record = record.clone();
    // Their tops too: what was made of the other one's is a change of this one's.
    (record.since, record.trees) = (was.since, was.trees);
    begin_with(session, record, |at, record| {
        for (number, tree) in record.trees.iter().enumerate() {
            let upper = Path::new(&number.to_string()).join("upper");
            let open = |at: &Path| {
                let path = at.join(&upper);
                beneath::open_root(&path).map_err(|error| SessionError::call("open", &path, error))
            };
            let (from, to) = (open(&from)?, open(at)?);
            let mut copy = Copy {
                tree: &tree.path,
                to: &to,
                names: HashMap::new(),
                path: Vec::new(),
                told: &mut *told,
            };
            copy.directory(&from, &to, 0)?;
            let found = beneath::stat(&from, b"").map_err(|error| failed("statx", b"", error))?;
            copy.settle(&from, &to, &found)?;
        }
        told(Copied::All)
    })
}

/// Looks whether all that is in a session's layers can be read, before it is held still: it may change until then.
///
/// # Errors
/// What its program has closed to its own user.
pub fn can_be_copied(source: &Path) -> Result<()> {
    let from = directory(source);
    // Where there are no layers (any more), to copy them says why.
    let Ok(record) = Record::read(&from.join("record.json")) else { return Ok(()) };
    for (number, tree) in record.trees.iter().enumerate() {
        let upper = beneath::open_root(&from.join(number.to_string()).join("upper"));
        look_into(&upper, &tree.path, 0)?;
    }
    Ok(())
}

/// Looks at what was opened, or was not. The program goes on meanwhile, and removes what it likes: only what it closed counts.
fn look_into(opened: &Opened, path: &Path, depth: usize) -> Result<()> {
    let directory = match opened {
        Ok(directory) if depth <= DEEPEST => directory,
        Err(Errno::ACCESS) => {
            return Err(SessionError::usage(format!(
                "its program has closed {} to its own user: open it there (chmod u+rwX) or remove it",
                path.display()
            )));
        }
        _ => return Ok(()),
    };
    for name in names(directory).unwrap_or_default() {
        let below = match beneath::stat(directory, &name).map(|found| found.file_type) {
            Ok(FileType::Directory) => beneath::open_directory(directory.as_fd(), &name),
            // What is no directory has no names in it.
            Ok(FileType::RegularFile) => beneath::open_file(directory, &name),
            _ => continue,
        };
        look_into(&below, &path.join(beneath::shown(&name)), depth + 1)?;
    }
    Ok(())
}

type Opened = std::result::Result<OwnedFd, Errno>;

struct Copy<'a> {
    /// What it is a layer of, for messages.
    tree: &'a Path,
    to: &'a OwnedFd,
    /// Where files with several names were met first.
    names: HashMap<(u64, u64), Vec<u8>>,
    /// Where it is.
    path: Vec<u8>,
    told: &'a mut dyn FnMut(Copied) -> Result<()>,
}

impl Copy<'_> {
    fn failed(&self, call: &'static str) -> impl FnOnce(Errno) -> SessionError + '_ {
        move |error| SessionError::call(call, &self.shown(), error)
    }

    /// Where it is, as the program names that.
    fn shown(&self) -> PathBuf {
        self.tree.join(beneath::shown(&self.path))
    }

    fn directory(&mut self, from: &OwnedFd, to: &OwnedFd, depth: usize) -> Result<()> {
        if depth > DEEPEST {
            return Err(self.failed("copy")(Errno::NAMETOOLONG));
        }
        for name in names(from).map_err(self.failed("getdents64"))? {
            let above = std::mem::take(&mut self.path);
            self.path = join(&above, &name);
            self.entry(from, to, &name, depth)?;
            self.path = above;
        }
        Ok(())
    }

    fn entry(&mut self, from: &OwnedFd, to: &OwnedFd, name: &[u8], depth: usize) -> Result<()> {
        fault::point("fork-copy");
        (self.told)(Copied::Part)?;
        let found = beneath::stat(from, name).map_err(self.failed("statx"))?;
        let stamp = &found.stamp;
        if found.file_type != FileType::Directory && stamp.links > 1 {
            let file = (stamp.device, stamp.inode);
            if let Some(first) = self.names.get(&file) {
                let (above, last) = split(first);
                let above = beneath::open_directory(self.to.as_fd(), above);
                return above
                    .and_then(|above| rustix::fs::linkat(&above, last, to, name, AtFlags::empty()))
                    .map_err(self.failed("linkat"));
            }
            self.names.insert(file, self.path.clone());
        }
        let mode = Mode::from_raw_mode(stamp.mode);
        match found.file_type {
            FileType::Directory => {
                rustix::fs::mkdirat(to, name, Mode::RWXU).map_err(self.failed("mkdirat"))?;
                let open = |at: &OwnedFd| beneath::open_directory(at.as_fd(), name);
                let (below, made) = (
                    open(from).map_err(self.failed("open"))?,
                    open(to).map_err(self.failed("open"))?,
                );
                self.directory(&below, &made, depth + 1)?;
                self.settle(&below, &made, &found)
            }
            FileType::RegularFile => {
                let file = beneath::open_file(from, name).map_err(self.failed("open"))?;
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let made = rustix::fs::openat(to, name, flags, Mode::RWXU);
                let made = File::from(made.map_err(self.failed("open"))?);
                let file = File::from(file);
                // Where the file system can share what both hold, it does.
                if rustix::fs::ioctl_ficlone(&made, &file).is_err() {
                    self.content(&file, &made, stamp.size)?;
                }
                self.settle(&file.into(), &made.into(), &found)
            }
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(from, name, Vec::new());
                let target = target.map_err(self.failed("readlinkat"))?;
                rustix::fs::symlinkat(&target, to, name).map_err(self.failed("symlinkat"))?;
                self.owned(to, name, &found)?;
                rustix::fs::utimensat(to, name, &times(&found), AtFlags::SYMLINK_NOFOLLOW)
                    .map_err(self.failed("utimensat"))
            }
            // A name that was deleted; there are no other devices.
            FileType::CharacterDevice if super::layer::is_whiteout(from, name) => {
                let kind = FileType::CharacterDevice;
                rustix::fs::mknodat(to, name, kind, Mode::empty(), 0)
                    .map_err(self.failed("mknodat"))
            }
            kind @ (FileType::Fifo | FileType::Socket) => {
                rustix::fs::mknodat(to, name, kind, mode, 0).map_err(self.failed("mknodat"))?;
                self.owned(to, name, &found)?;
                rustix::fs::chmodat(to, name, mode, AtFlags::empty()).map_err(self.failed("chmod"))
            }
            _ => Err(self.failed("copy")(Errno::OPNOTSUPP)),
        }
    }

    /// Copies bytes, and leaves holes.
    fn content(&mut self, from: &File, to: &File, size: u64) -> Result<()> {
        let path = self.shown();
        let failed = |error| SessionError::call("copy", &path, error);
        let kernel = |errno: ringfence_sys::Errno| {
            failed(std::io::Error::from_raw_os_error(errno.into_raw()))
        };
        let mut buffer = vec![0; PIECE.min(size as usize)];
        let mut at = 0;
        while let Some(used) = ringfence_sys::file::next_part(from.as_fd(), at).map_err(kernel)? {
            at = used.start;
            while at < used.end {
                let piece = &mut buffer[..PIECE.min((used.end - at) as usize)];
                from.read_exact_at(piece, at).map_err(failed)?;
                to.write_all_at(piece, at).map_err(failed)?;
                at += piece.len() as u64;
                (self.told)(Copied::Part)?;
            }
        }
        to.set_len(size).map_err(failed)
    }

    fn owned(&self, to: &OwnedFd, name: &[u8], found: &Found) -> Result<()> {
        let made = beneath::stat(to, name).map_err(self.failed("statx"))?.stamp;
        if (made.uid, made.gid) == (found.stamp.uid, found.stamp.gid) {
            return Ok(());
        }
        let owner = (Uid::from_raw(found.stamp.uid), Gid::from_raw(found.stamp.gid));
        let mut flags = AtFlags::SYMLINK_NOFOLLOW;
        flags.set(AtFlags::EMPTY_PATH, name.is_empty());
        rustix::fs::chownat(to, name, Some(owner.0), Some(owner.1), flags)
            .map_err(self.failed("chown"))
    }

    /// Gives a file or directory the attributes, owner, mode and times that it had.
    fn settle(&self, from: &OwnedFd, to: &OwnedFd, found: &Found) -> Result<()> {
        let mut list = vec![0; ATTRIBUTE];
        let length = match rustix::fs::flistxattr(from, &mut list[..]) {
            Ok(length) => length,
            Err(Errno::OPNOTSUPP) => 0,
            Err(error) => return Err(self.failed("flistxattr")(error)),
        };
        let mut value = vec![0; ATTRIBUTE];
        for name in list[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
            // Labels are the host's own to give.
            if name.starts_with(b"user.") || name.starts_with(b"system.posix_acl_") {
                let length = rustix::fs::fgetxattr(from, name, &mut value[..]);
                let length = length.map_err(self.failed("fgetxattr"))?;
                rustix::fs::fsetxattr(to, name, &value[..length], XattrFlags::empty())
                    .map_err(self.failed("fsetxattr"))?;
            }
        }
        self.owned(to, b"", found)?;
        let mode = Mode::from_raw_mode(found.stamp.mode);
        rustix::fs::fchmod(to, mode).map_err(self.failed("fchmod"))?;
        rustix::fs::futimens(to, &times(found)).map_err(self.failed("futimens"))
    }
}

fn times(found: &Found) -> Timestamps {
    const SECOND: i64 = 1_000_000_000;
    let time = found.stamp.modified;
    let modified =
        Timespec { tv_sec: time.div_euclid(SECOND), tv_nsec: time.rem_euclid(SECOND) as _ };
    Timestamps { last_access: modified, last_modification: modified }
}
