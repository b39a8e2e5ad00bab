//! Calls on names below the workspace. The sandboxed program may be renaming directories and
//! planting links at this moment, so that no path is ever resolved from outside: a directory is
//! opened beneath the workspace's own descriptor, without following links and without crossing
//! a mount, and everything else is one name in it.

use super::entry::Stamp;
use super::fault;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags, StatxAttributes, StatxFlags,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A rename somewhere on the way makes the kernel give up; then we ask again.
const TRIES: usize = 64;

/// Opens a directory of our own.
pub(crate) fn open_root(path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Opens the workspace itself, by the path that it has with all links followed. A program in another
/// sandbox, which may write around it, could put a link in its place meanwhile.
pub(crate) fn open_workspace(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), resolve)
}

/// The kernel takes no longer path at once (PATH_MAX, with the byte at its end).
const LONGEST: usize = 4095;

/// Opens a directory by its path relative to the root; empty is the root. One that is too long for the kernel is gone
/// in parts.
pub(crate) fn open_directory(root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let (mut rest, mut above) = (path, None::<OwnedFd>);
    while rest.len() > LONGEST {
        let cut = rest[..=LONGEST].iter().rposition(|&byte| byte == b'/');
        let cut = cut.ok_or(Errno::NAMETOOLONG)?;
        let from = above.as_ref().map_or(root, AsFd::as_fd);
        let part = open_beneath(from, &rest[..cut], OFlags::PATH)?;
        (rest, above) = (&rest[cut + 1..], Some(part));
    }
    open_beneath(above.as_ref().map_or(root, AsFd::as_fd), rest, OFlags::RDONLY)
}

fn open_beneath(root: BorrowedFd<'_>, path: &[u8], how: OFlags) -> Result<OwnedFd, Errno> {
    let flags = how | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    let path = if path.is_empty() { b"." } else { path };
    let mut result = Err(Errno::AGAIN);
    for _ in 0..TRIES {
        result = rustix::fs::openat2(root, path, flags, Mode::empty(), resolve);
        if !matches!(result, Err(Errno::AGAIN)) {
            break;
        }
    }
    result
}

/// Opens a file for reading. A pipe that took its place does not block us, a link is not
/// followed.
pub(crate) fn open_file(directory: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::empty())
}

/// What the kernel says of a name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub stamp: Stamp,
    pub file_type: FileType,
    /// 512-byte units. No part of the stamp: it changes when the system gets to writing.
    pub blocks: u64,
    /// Something is mounted here.
    pub mount: bool,
}

impl Found {
    /// A name that is listed, and of which the kernel tells nothing.
    pub fn untold(device: u64) -> Found {
        let stamp = Stamp { device, ..Stamp::default() };
        Found { stamp, file_type: FileType::Unknown, blocks: 0, mount: false }
    }

    /// The bytes that are there to be read: holes are passed over.
    pub fn on_disk(&self) -> u64 {
        self.stamp.size.min(self.blocks.saturating_mul(512))
    }
}

/// One `statx`; an empty name asks for the descriptor itself.
pub(crate) fn stat(directory: impl AsFd, name: &[u8]) -> Result<Found, Errno> {
    let mut flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    // With it the kernel looks at each name twice.
    flags.set(AtFlags::EMPTY_PATH, name.is_empty());
    let found = rustix::fs::statx(directory, name, flags, StatxFlags::BASIC_STATS)?;
    let mode = u32::from(found.stx_mode);
    let stamp = Stamp {
        device: rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor),
        inode: found.stx_ino,
        size: found.stx_size,
        mode: mode & 0o7777,
        uid: found.stx_uid,
        gid: found.stx_gid,
        links: found.stx_nlink,
        modified: nanos(found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec),
        changed: nanos(found.stx_ctime.tv_sec, found.stx_ctime.tv_nsec),
    };
    let mount = found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
    let file_type = FileType::from_raw_mode(mode);
    Ok(Found { stamp, file_type, blocks: found.stx_blocks, mount })
}

/// When a thing was made, in nanoseconds since 1970; nothing where the file system does not note it. What gets the number
/// of something that is gone was made later.
pub(crate) fn born(directory: impl AsFd, name: &[u8]) -> Option<i64> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let found = rustix::fs::statx(directory, name, flags, StatxFlags::BTIME).ok()?;
    let noted = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
    noted.then(|| nanos(found.stx_btime.tv_sec, found.stx_btime.tv_nsec))
}

fn nanos(seconds: i64, nanos: u32) -> i64 {
    seconds.wrapping_mul(1_000_000_000) + i64::from(nanos)
}

/// Bytes of names that the kernel is asked for at once.
const ROOM: usize = 64 << 10;

/// The names in a directory, one behind the other.
#[derive(Default)]
pub(crate) struct Names {
    bytes: Vec<u8>,
    /// Where each of them is, in the order of the names.
    places: Vec<(usize, usize)>,
}

impl Names {
    pub fn count(&self) -> usize {
        self.places.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.from(0)
    }

    /// Those from a number on.
    pub fn from(&self, number: usize) -> impl Iterator<Item = &[u8]> {
        self.places.iter().skip(number).map(|&(from, to)| &self.bytes[from..to])
    }
}

/// All names but `.` and `..`, sorted.
pub(crate) fn names(directory: &OwnedFd) -> Result<Names, Errno> {
    let mut names = Names::default();
    // A call for some thousand names.
    let mut room = Vec::with_capacity(ROOM);
    let mut entries = rustix::fs::RawDir::new(directory, room.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            let from = names.bytes.len();
            names.bytes.extend_from_slice(name);
            names.places.push((from, names.bytes.len()));
        }
    }
    let Names { bytes, places } = &mut names;
    places.sort_unstable_by(|one, other| bytes[one.0..one.1].cmp(&bytes[other.0..other.1]));
    Ok(names)
}

/// Now, by the clock that stamps files.
pub(crate) fn now() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    now.tv_sec.wrapping_mul(1_000_000_000) + now.tv_nsec
}

/// `directory/name`, relative to the workspace.
pub(crate) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(directory.len() + name.len() + 1);
    path.extend_from_slice(directory);
    if !directory.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// The directory and the name of a relative path.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// A relative path is below a directory.
pub(crate) fn inside(above: &[u8], path: &[u8]) -> bool {
    above.is_empty() || path.strip_prefix(above).is_some_and(|rest| rest.first() == Some(&b'/'))
}

/// For messages and results.
pub(crate) fn shown(path: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(path))
}

/// What is found is what was seen before, untouched.
pub(crate) fn untouched(seen: Option<Stamp>, found: &Found) -> bool {
    let file = found.file_type == FileType::RegularFile;
    seen.is_some_and(|seen| found.stamp.stands_for(&seen, file))
}

/// What became of what was to be put in its place.
pub(crate) enum Placed {
    /// It is there. What was there before has no name any more; its size.
    Done(Option<(OwnedFd, u64)>),
    /// It is not: something else is there by now.
    Changed,
}

/// Moves what was made under a temporary name to its name; with `replace` something is there.
///
/// What it replaces is taken aside by an exchange, and looked at before it is removed: when it is
/// not what was `seen` any more, or cannot be looked at, it is put back. (A
/// plain rename over a file would also make ext4 start to write at once.)
pub(crate) fn put_in_place(
    parent: &OwnedFd,
    temporary: &[u8],
    name: &[u8],
    replace: bool,
    seen: Option<Stamp>,
) -> Result<Placed, Errno> {
    let rename = |flags| rustix::fs::renameat_with(parent, temporary, parent, name, flags);
    let swap = || rename(RenameFlags::EXCHANGE);
    let swapped = if replace { swap() } else { Err(Errno::NOENT) };
    match swapped {
        Ok(()) => {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let aside = rustix::fs::openat(parent, temporary, flags, Mode::empty());
            let found = aside.and_then(|aside| Ok((stat(&aside, b"")?, aside)));
            let Some((found, aside)) = found.ok().filter(|(found, _)| untouched(seen, found))
            else {
                return swap().map(|()| Placed::Changed);
            };
            fault::point("exchanged");
            rustix::fs::unlinkat(parent, temporary, AtFlags::empty())?;
            Ok(Placed::Done(Some((aside, found.stamp.size))))
        }
        Err(error) => {
            // Nothing is there, or this file system cannot exchange.
            let over = replace && error != Errno::NOENT;
            let flags = if over { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
            match rename(flags) {
                Err(Errno::EXIST) => Ok(Placed::Changed),
                result => result.map(|()| Placed::Done(None)),
            }
        }
    }
}
