//! Reads a layer: what the run created, changed and deleted, beside the real tree as it is now.
//!
//! The layer is what the kernel wrote (Documentation/filesystems/overlayfs.rst): a deleted name is
//! a character device 0:0, a directory that was made anew is `opaque`, a file that was there before
//! is whole, and marked by `origin`. The names in it are the program's choice: every directory is
//! opened beneath the layer's own descriptor, and no link is followed.

use super::equal::{go_on, same_bytes};
use super::ours::Known;
use super::top::Top;
use crate::error::{Result, SessionError};
use crate::snapshot::What;
use crate::snapshot::beneath::{self, Found, join, shown};
use crate::snapshot::content;
use crate::snapshot::entry::{Kind, Stamp};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;
use std::collections::BTreeSet;

/// Attributes by which overlayfs marks its layers.
const OPAQUE: &[u8] = b"user.overlay.opaque";
const ORIGIN: &[u8] = b"user.overlay.origin";
pub(super) const OVERLAYS_OWN: &[u8] = b"user.overlay.";

/// Directories further down are not looked into: each level takes descriptors.
pub(super) const DEEPEST: usize = 200;
/// Nor is more than this deleted: a descriptor each.
const DEEPEST_DELETED: usize = 500;

/// Why a change is not committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The host changed the same thing meanwhile; what it did.
    Conflict(String),
    /// It is not a thing that a commit makes; why.
    Left(String),
}

/// One difference between the layer and the real tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Relative to the tree's directory.
    pub path: Vec<u8>,
    /// What happened.
    pub what: What,
    /// What is there now; of a deleted name, what was.
    pub kind: Kind,
    /// Bytes, of a file.
    pub size: u64,
    /// Why it cannot be committed.
    pub trouble: Option<Trouble>,
    /// What the real tree has there.
    pub(super) before: Option<Stamp>,
    /// That is a directory.
    pub(super) directory_before: bool,
    /// It makes way for something of another kind.
    pub(super) early: bool,
    /// The nearest directory above it, itself included, that was made anew over a real one.
    pub(super) anew: Option<Vec<u8>>,
}

/// A layer and the real tree below it.
pub(super) struct Layer<'a> {
    pub upper: &'a OwnedFd,
    pub lower: &'a OwnedFd,
    /// When the run began.
    pub since: i64,
    /// Directories whose last change was a commit's.
    pub ours: Known,
    pub changes: Vec<Change>,
}

/// A directory that is being compared.
struct At<'a> {
    path: &'a [u8],
    /// The real one is not seen through the layer.
    hidden: bool,
    /// The real one was itself moved or its mode changed on the host during the run.
    moved: bool,
    anew: Option<&'a [u8]>,
}

impl Layer<'_> {
    /// Finds all changes; with `only`, of one name at the top. Of the top itself what it was made as is known.
    pub fn scan(&mut self, only: Option<&[u8]>, top: Option<&Top>) -> Result<()> {
        self.changes.extend(top.and_then(|top| top.change(self)));
        let at = At { path: b"", hidden: false, moved: false, anew: None };
        self.directory(&at, only)
    }

    fn directory(&mut self, at: &At<'_>, only: Option<&[u8]>) -> Result<()> {
        let upper = beneath::open_directory(self.upper.as_fd(), at.path)
            .map_err(|error| failed("open", at.path, error))?;
        let own = names(&upper).map_err(|error| failed("getdents64", at.path, error))?;
        let lower = match beneath::open_directory(self.lower.as_fd(), at.path) {
            Ok(lower) => Some(lower),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => None,
            // Nothing is looked for in it: `closed` saw to that.
            Err(Errno::ACCESS) if !at.hidden && own.is_empty() => return Ok(()),
            Err(error) => return Err(failed("open", at.path, error)),
        };
        let mut all = BTreeSet::new();
        for name in own {
            if only.is_none_or(|only| only == name) {
                self.name(at, &upper, lower.as_ref(), &name)?;
            }
            all.insert(name);
        }
        if let (true, Some(lower)) = (at.hidden, &lower) {
            let below = names(lower).map_err(|error| failed("getdents64", at.path, error))?;
            for name in below.into_iter().filter(|name| !all.contains(name)) {
                self.deleted(lower, &join(at.path, &name), &name, false, at.anew)?;
            }
        }
        Ok(())
    }

    fn name(
        &mut self,
        at: &At<'_>,
        upper: &OwnedFd,
        lower: Option<&OwnedFd>,
        name: &[u8],
    ) -> Result<()> {
        go_on().map_err(|_| interrupted())?;
        let path = join(at.path, name);
        let new = beneath::stat(upper, name).map_err(|error| failed("statx", &path, error))?;
        let old = match lower.map(|lower| beneath::stat(lower, name)) {
            None | Some(Err(Errno::NOENT)) => None,
            Some(Err(error)) => return Err(failed("statx", &path, error)),
            Some(Ok(old)) => Some(old),
        };
        if new.file_type == FileType::CharacterDevice && is_whiteout(upper, name) {
            return match lower {
                Some(lower) if old.is_some() => self.deleted(lower, &path, name, false, at.anew),
                _ => Ok(()),
            };
        }
        let copied = has_attribute(upper, name, ORIGIN, new.file_type);
        let moved_away = self.path_changed(at, lower);
        let mut change = Change {
            path,
            what: What::Added,
            kind: kind(new.file_type),
            size: if new.file_type == FileType::RegularFile { new.stamp.size } else { 0 },
            trouble: None,
            before: old.as_ref().map(|old| old.stamp),
            directory_before: old.as_ref().is_some_and(|old| old.file_type == FileType::Directory),
            early: false,
            anew: at.anew.map(<[u8]>::to_vec),
        };
        change.trouble = match &old {
            Some(old) if old.mount => {
                Some(Trouble::Left("another file system is mounted there".into()))
            }
            Some(old) if old.file_type != FileType::Directory && self.later(&change.path, old) => {
                Some(meanwhile())
            }
            Some(_) if at.moved && new.file_type != FileType::Directory => {
                Some(Trouble::Conflict("the host moved its directory meanwhile".into()))
            }
            // Moved here inside, or deleted by the host: where the host did nothing, the first; else `renamed` tells.
            None if copied && moved_away => Some(vanished()),
            _ => None,
        };
        match new.file_type {
            FileType::Directory => self.is_directory(at, upper, lower, name, (new, old), change),
            FileType::RegularFile | FileType::Symlink => {
                self.is_file(upper, lower, name, (new, old), change)
            }
            _ => {
                let what = change.kind.word();
                let what = if change.kind == Kind::Foreign { "device" } else { what };
                change.what = if old.is_some() { What::Kind } else { What::Added };
                change.trouble = Some(Trouble::Left(format!("it is a {what}")));
                self.changes.push(change);
                Ok(())
            }
        }
    }

    fn is_file(
        &mut self,
        upper: &OwnedFd,
        lower: Option<&OwnedFd>,
        name: &[u8],
        (new, old): (Found, Option<Found>),
        mut change: Change,
    ) -> Result<()> {
        if let (Some(lower), Some(old)) = (lower, &old) {
            if old.file_type == FileType::Directory {
                self.deleted(lower, &change.path.clone(), name, true, change.anew.as_deref())?;
                // Its own removal is part of this change.
                let own = self.changes.pop().and_then(|own| own.trouble);
                change.trouble = change.trouble.take().or(own);
            }
            change.what = if old.file_type == new.file_type {
                match same(lower, upper, name, old, &new) {
                    Ok(Same::All) => return Ok(()),
                    Ok(Same::Bytes) => What::Attributes,
                    Err(Errno::INTR) => return Err(interrupted()),
                    Ok(Same::Nothing) | Err(_) => What::Modified,
                }
            } else {
                What::Kind
            };
        }
        self.changes.push(change);
        Ok(())
    }

    fn is_directory(
        &mut self,
        at: &At<'_>,
        upper: &OwnedFd,
        lower: Option<&OwnedFd>,
        name: &[u8],
        (new, old): (Found, Option<Found>),
        mut change: Change,
    ) -> Result<()> {
        let opaque = has_attribute(upper, name, OPAQUE, FileType::Directory);
        let over = old.as_ref().filter(|old| old.file_type == FileType::Directory);
        let hidden = at.hidden || opaque;
        let mut moved = at.moved;
        if let (Some(old), Some(lower)) = (over, lower) {
            let later = self.later(&change.path, old);
            // New names change both times, a move and a new mode only the second.
            moved |= later && old.stamp.changed > old.stamp.modified;
            let differs = !same_attributes(lower, upper, name, &old.stamp, &new.stamp);
            change.what = What::Attributes;
            // A directory is copied up with the mode and attributes that it has then: those that the host gave it since
            // would be taken back. Which of the two changed them nobody can tell.
            if later && (hidden || differs) {
                change.trouble = Some(meanwhile());
            }
            if differs || change.trouble.is_some() {
                self.changes.push(change.clone());
            }
        } else {
            if let (Some(_), Some(_)) = (&old, lower) {
                change.what = What::Kind;
            }
            self.changes.push(change.clone());
        }
        let deep = change.path.iter().filter(|&&byte| byte == b'/').count() >= DEEPEST;
        let closed = self.closed(&change.path, hidden && over.is_some());
        if deep || closed.is_some() {
            change.trouble = Some(blind(closed));
            self.changes.retain(|other| other.path != change.path);
            self.changes.push(change);
            return Ok(());
        }
        let over_real = over.is_some() && hidden;
        let anew = if at.anew.is_none() && over_real { Some(&change.path[..]) } else { at.anew };
        let below = At { path: &change.path, hidden: hidden || over.is_none(), moved, anew };
        self.directory(&below, None)
    }

    /// Everything real at a path goes, what is in it first.
    fn deleted(
        &mut self,
        lower: &OwnedFd,
        path: &[u8],
        name: &[u8],
        early: bool,
        anew: Option<&[u8]>,
    ) -> Result<()> {
        let old = beneath::stat(lower, name).map_err(|error| failed("statx", path, error))?;
        let directory = old.file_type == FileType::Directory;
        let mut closed = None;
        if directory && !old.mount {
            let deep = path.iter().filter(|&&byte| byte == b'/').count() >= DEEPEST_DELETED;
            let opened = beneath::open_directory(lower.as_fd(), name);
            match opened.and_then(|opened| Ok((looked_into(&opened)?, opened))) {
                Ok((below, opened)) if !deep || below.is_empty() => {
                    for name in below {
                        self.deleted(&opened, &join(path, &name), &name, early, anew)?;
                    }
                }
                Ok(_) => closed = Some(blind(None)),
                Err(error @ Errno::ACCESS) => closed = Some(blind(Some(error))),
                Err(error) => return Err(failed("open", path, error)),
            }
        }
        let trouble = if old.mount {
            Some(Trouble::Left("another file system is mounted there".to_owned()))
        } else if closed.is_some() {
            closed
        } else if self.later(path, &old) {
            // What makes way was deleted inside, or came when the host put it into the place of a file.
            let gone =
                || Trouble::Conflict("deleted inside, and the host changed it meanwhile".into());
            Some(if early { meanwhile() } else { gone() })
        } else {
            None
        };
        self.changes.push(Change {
            path: path.to_vec(),
            what: What::Deleted,
            kind: kind(old.file_type),
            size: old.stamp.size,
            trouble,
            before: Some(old.stamp),
            directory_before: directory,
            early,
            anew: anew.map(<[u8]>::to_vec),
        });
        Ok(())
    }
}

impl Layer<'_> {
    /// Why nobody can tell what is in a directory: its mode keeps us out of the layer's, or of the real one that is
    /// compared with it.
    fn closed(&self, path: &[u8], hidden: bool) -> Option<Errno> {
        let look = |tree: &OwnedFd| looked_into(&beneath::open_directory(tree.as_fd(), path)?);
        let refused = |looked: std::result::Result<_, Errno>| {
            looked.err().filter(|error| matches!(*error, Errno::ACCESS | Errno::NAMETOOLONG))
        };
        match look(self.upper) {
            Ok(names) if names.is_empty() && !hidden => None,
            Ok(_) => refused(look(self.lower)),
            failed => refused(failed),
        }
    }

    /// The host changed what is there since the run began.
    pub fn later(&self, path: &[u8], found: &Found) -> bool {
        found.stamp.latest() >= self.since && !self.ours.has(path, found)
    }

    /// Names came or went in the real directory during the run, or it is gone.
    fn path_changed(&self, at: &At<'_>, lower: Option<&OwnedFd>) -> bool {
        let Some(lower) = lower else { return !at.hidden };
        beneath::stat(lower, b"").map_or(true, |found| self.later(at.path, &found))
    }
}

/// The names in a directory in which each of them can be looked at.
fn looked_into(directory: &OwnedFd) -> std::result::Result<Vec<Vec<u8>>, Errno> {
    let all = names(directory)?;
    // It can be listed though it may not be entered.
    if !all.is_empty() {
        beneath::stat(directory, b".")?;
    }
    Ok(all)
}

fn blind(why: Option<Errno>) -> Trouble {
    let why = why.map_or("too deep".to_owned(), |error| error.to_string());
    Trouble::Left(format!("it cannot be looked into: {why}"))
}

fn interrupted() -> SessionError {
    SessionError::usage("interrupted while what the run changed was compared with what is there")
}

pub(super) fn meanwhile() -> Trouble {
    Trouble::Conflict("the host changed it meanwhile".to_owned())
}

/// What is said of a file that was there before, and is new at its name.
pub(super) fn vanished() -> Trouble {
    Trouble::Conflict("the host deleted or moved it meanwhile".to_owned())
}

pub(super) fn failed(call: &'static str, path: &[u8], error: Errno) -> SessionError {
    SessionError::call(call, &shown(path), error)
}

fn kind(file_type: FileType) -> Kind {
    match file_type {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        _ => Kind::Foreign,
    }
}

/// The names in a directory, sorted.
pub(super) fn names(directory: &OwnedFd) -> std::result::Result<Vec<Vec<u8>>, Errno> {
    // From the beginning, however often it was read.
    rustix::fs::seek(directory, rustix::fs::SeekFrom::Start(0))?;
    Ok(beneath::names(directory)?.iter().map(<[u8]>::to_vec).collect())
}

pub(super) fn is_whiteout(directory: &OwnedFd, name: &[u8]) -> bool {
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|found| found.st_rdev == 0)
}

fn has_attribute(directory: &OwnedFd, name: &[u8], attribute: &[u8], kind: FileType) -> bool {
    // Links and special files have no attributes of the user's.
    if !matches!(kind, FileType::RegularFile | FileType::Directory) {
        return false;
    }
    let path = through(directory, name);
    rustix::fs::lgetxattr(&path[..], attribute, &mut [0u8; 256][..]).is_ok()
}

/// A name in an open directory, for calls that take paths only.
pub(super) fn through(directory: &OwnedFd, name: &[u8]) -> Vec<u8> {
    use std::os::fd::AsRawFd;
    let mut path = format!("/proc/self/fd/{}/", directory.as_raw_fd()).into_bytes();
    path.extend_from_slice(name);
    path
}

pub(super) enum Same {
    All,
    Bytes,
    Nothing,
}

/// Compares two files or two links of one name.
pub(super) fn same(
    lower: &OwnedFd,
    upper: &OwnedFd,
    name: &[u8],
    old: &Found,
    new: &Found,
) -> std::result::Result<Same, Errno> {
    if new.file_type == FileType::Symlink {
        let target = |directory| rustix::fs::readlinkat(directory, name, Vec::new());
        return Ok(if target(lower)? == target(upper)? { Same::All } else { Same::Nothing });
    }
    if old.stamp.size != new.stamp.size || !same_bytes(lower, upper, name, new.stamp.size)? {
        return Ok(Same::Nothing);
    }
    let times = old.stamp.modified == new.stamp.modified;
    let all = times && same_attributes(lower, upper, name, &old.stamp, &new.stamp);
    Ok(if all { Same::All } else { Same::Bytes })
}

/// Mode, owner and extended attributes are the same.
pub(super) fn same_attributes(
    lower: &OwnedFd,
    upper: &OwnedFd,
    name: &[u8],
    old: &Stamp,
    new: &Stamp,
) -> bool {
    let plain = |stamp: &Stamp| (stamp.mode, stamp.uid, stamp.gid);
    let list = |directory| {
        let opened = beneath::open_file(directory, name).ok()?;
        Some(attributes(&opened))
    };
    plain(old) == plain(new) && list(lower) == list(upper)
}

/// The extended attributes worth keeping of an open file, but for overlayfs's own.
pub(super) fn attributes(file: &OwnedFd) -> content::Attributes {
    let mut all = content::attributes(file).unwrap_or_default();
    all.retain(|(name, _)| !name.starts_with(OVERLAYS_OWN));
    all
}

/// A directory that was made anew is from now on seen together with the real one.
pub(super) fn make_transparent(directory: &OwnedFd) {
    let _ = rustix::fs::fremovexattr(directory, OPAQUE);
}
