//! Makes the workspace what it was.
//!
//! A revert is a comparison carried out: whatever is different is put right, so that doing it
//! again finishes what was interrupted. Nothing is ever written in place (a hard link may lead
//! out of the workspace), and nothing is removed that is not in the store by then.

use super::beneath::{self, Placed, shown, split};
use super::compare::{Change, What};
use super::content;
use super::database::Database;
use super::entry::{Entry, Kind, Seen};
use super::fault;
use super::scan::Scan;
use super::spent::Spent;
use super::unopened;
use crate::error::{Result, SessionError};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Directories that are held open at most: how many there are was a program's to decide.
const OPENED: usize = 64;

/// Carries changes from the snapshot to the workspace out backwards.
pub(super) struct Apply<'a> {
    pub database: &'a Database,
    pub root: &'a OwnedFd,
    pub path: &'a Path,
    pub scan: &'a Scan,
    pub temporary: &'a [u8],
    /// Every hard link of the snapshot: other name, first name.
    pub links: Vec<(Vec<u8>, Entry)>,
    /// What could not be put right, a sentence each.
    pub kept: Vec<String>,
    /// The kernel lets nobody change some of it.
    pub refused: bool,
    /// A program asks for it, which may write to a file while it is made: none gets set-user-ID or
    /// set-group-ID.
    pub plain: bool,
    /// Directories that were opened up for us, with the mode to give back.
    pub opened: Vec<(OwnedFd, u32)>,
    /// What was replaced.
    pub spent: Spent,
}

impl Apply<'_> {
    /// Does it.
    pub fn run(&mut self, changes: &[Change]) -> Result<()> {
        let done = self.carry_out(changes);
        // Where it was stopped on the way, too.
        self.close();
        done
    }

    /// Gives directories that were opened up their modes back.
    fn close(&mut self) {
        for (directory, mode) in self.opened.drain(..) {
            let _ = rustix::fs::fchmod(&directory, Mode::from_raw_mode(mode));
        }
    }

    fn carry_out(&mut self, changes: &[Change]) -> Result<()> {
        let bytes = |change: &Change| change.path.as_os_str().as_bytes().to_vec();
        let apply: Vec<(Vec<u8>, &Change)> =
            changes.iter().map(|change| (bytes(change), change)).collect();
        for (path, change) in apply.iter().rev() {
            let gone = match change.what {
                What::Added => true,
                What::Kind => {
                    let directory =
                        |e: &Option<Entry>| e.as_ref().map(|e| e.kind) == Some(Kind::Directory);
                    directory(&change.old) || directory(&change.new)
                }
                _ => false,
            };
            if let (true, Some(new)) = (gone, &change.new) {
                let done = self.remove(path, new);
                self.or_refused(path, done)?;
            }
        }
        let mut written = HashSet::new();
        for (path, change) in &apply {
            let Some(old) = &change.old else { continue };
            match old.kind {
                Kind::Directory if change.what != What::Attributes => self.directory(path)?,
                Kind::Directory | Kind::Socket => {}
                _ => {
                    if old.link.is_none() {
                        let done = self.place(path, old, change.new.as_ref());
                        if self.or_refused(path, done)? {
                            written.insert(path.clone());
                        }
                    }
                }
            }
        }
        let relink: HashMap<&[u8], &Change> = apply
            .iter()
            .filter(|(_, change)| change.old.as_ref().is_some_and(|old| old.link.is_some()))
            .map(|(path, change)| (&path[..], *change))
            .collect();
        for (path, entry) in std::mem::take(&mut self.links) {
            let first = entry.link.clone().unwrap_or_default();
            let change = relink.get(&path[..]).map(|change| change.new.as_ref());
            // Names that are not to be reverted have a part in it where they still are the file that they were.
            let ours = written.contains(&first);
            let first_is_it = ours || self.is_still(&first, &entry);
            match change {
                Some(now) if first_is_it => {
                    let done = self.link(&path, &entry, (&first, ours), now);
                    self.or_refused(&path, done)?;
                }
                Some(now) => {
                    let done = self.place(&path, &entry, now);
                    self.or_refused(&path, done)?;
                }
                None if ours && self.is_still(&path, &entry) => {
                    self.link(&path, &entry, (&first, true), Some(&entry))?;
                }
                None => {}
            }
        }
        self.close();
        for (path, change) in apply.iter().rev() {
            if let Some(old) = change.old.as_ref().filter(|old| old.kind == Kind::Directory) {
                let directory = self.open(path)?;
                let done = self.dress(&directory, old, path);
                self.or_refused(path, done)?;
            }
        }
        Ok(())
    }

    /// Whether it was done. What is immutable (chattr(1)) is no matter of the other paths.
    fn or_refused(&mut self, path: &[u8], done: Result<()>) -> Result<bool> {
        match done {
            Err(SessionError::Call { source, path: of, .. })
                if source.raw_os_error() == Some(Errno::PERM.raw_os_error())
                    && of == self.path.join(shown(path)) =>
            {
                self.refused = true;
                self.kept.push(format!("{}: {source}", shown(path).display()));
                Ok(false)
            }
            done => done.map(|()| true),
        }
    }

    pub(super) fn failed(
        &self,
        call: &'static str,
        path: &[u8],
    ) -> impl Fn(Errno) -> SessionError + use<> {
        let path = self.path.join(shown(path));
        move |error| SessionError::call(call, &path, error)
    }

    fn open(&self, path: &[u8]) -> Result<OwnedFd> {
        beneath::open_directory(self.root.as_fd(), path).map_err(self.failed("open", path))
    }

    /// Does something in a directory; one that is closed to its owner is opened for the time.
    fn within<T>(
        &mut self,
        call: &'static str,
        path: &[u8],
        act: impl Fn(&OwnedFd, &[u8]) -> std::result::Result<T, Errno>,
    ) -> Result<T> {
        let (parent, name) = split(path);
        let directory = self.open(parent)?;
        let mut result = act(&directory, name);
        if matches!(result, Err(Errno::ACCESS)) {
            let mode = beneath::stat(&directory, b"").map(|found| found.stamp.mode);
            let mode = mode.map_err(self.failed("statx", parent))?;
            if rustix::fs::fchmod(&directory, Mode::from_raw_mode(mode | 0o700)).is_ok() {
                result = act(&directory, name);
                self.opened.push((directory, mode));
                // It is opened again where it is needed again.
                if self.opened.len() >= OPENED {
                    self.close();
                }
            }
        }
        result.map_err(self.failed(call, path))
    }

    /// What stands there is still what was stored.
    fn unchanged(&self, path: &[u8]) -> Result<bool> {
        let (parent, name) = split(path);
        let directory = self.open(parent)?;
        let changed = || SessionError::Changed(self.path.join(shown(path)));
        let now = match beneath::stat(&directory, name) {
            Ok(found) => found,
            Err(Errno::NOENT) => return Ok(false),
            Err(error) => return Err(self.failed("statx", path)(error)),
        };
        let seen = self.seen(path).ok_or_else(changed)?.stamp;
        let is_file = now.file_type == FileType::RegularFile;
        let same = now.stamp.stands_for(&seen, is_file);
        if same { Ok(true) } else { Err(changed()) }
    }

    fn seen(&self, path: &[u8]) -> Option<&Seen> {
        let (parent, name) = split(path);
        let all = self.scan.directories.get(parent)?;
        let at = all.binary_search_by(|seen| seen.entry.name[..].cmp(name)).ok()?;
        Some(&all[at])
    }

    /// Whether what was seen at a path is the snapshot's file, whatever its other names.
    fn is_still(&self, path: &[u8], entry: &Entry) -> bool {
        let link = entry.link.clone();
        self.seen(path).is_some_and(|seen| Entry { link, ..seen.entry.clone() }.same(entry))
    }

    fn remove(&mut self, path: &[u8], entry: &Entry) -> Result<()> {
        if !self.unchanged(path)? {
            return Ok(());
        }
        fault::point("remove");
        let directory = entry.kind == Kind::Directory;
        let flags = if directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        let done = self.within("unlink", path, |parent, name| {
            match rustix::fs::unlinkat(parent, name, flags) {
                Err(Errno::NOTEMPTY | Errno::EXIST) if directory => Ok(false),
                Err(Errno::NOENT) => Ok(true),
                result => result.map(|()| true),
            }
        })?;
        if !done {
            let path = shown(path);
            self.kept.push(format!("{}: it holds what is not in the snapshot", path.display()));
        }
        Ok(())
    }

    fn directory(&mut self, path: &[u8]) -> Result<()> {
        fault::point("mkdir");
        self.within("mkdir", path, |parent, name| {
            match rustix::fs::mkdirat(parent, name, Mode::RWXU) {
                // Ours, from before an interruption; a link is found out when it is opened.
                Err(Errno::EXIST) => Ok(()),
                result => result,
            }
        })
    }

    /// Puts a stored file, link or pipe at its path, whole or not at all.
    fn place(&mut self, path: &[u8], entry: &Entry, current: Option<&Entry>) -> Result<()> {
        let replace = current.is_some_and(|now| now.kind != Kind::Directory)
            && entry.kind != Kind::Directory
            && self.unchanged(path)?;
        let temporary = self.temporary;
        fault::point("make");
        let target = match entry.kind {
            Kind::Symlink => self.database.get(&entry.hash)?.0,
            _ => Vec::new(),
        };
        let make = |parent: &OwnedFd| match entry.kind {
            Kind::Symlink => {
                rustix::fs::symlinkat(&target[..], parent, temporary)?;
                unopened::find(parent, temporary)
            }
            Kind::Fifo => {
                let owner = Mode::RUSR | Mode::WUSR;
                rustix::fs::mknodat(parent, temporary, FileType::Fifo, owner, 0)?;
                unopened::find(parent, temporary)
            }
            _ => {
                let flags = OFlags::RDWR
                    | OFlags::CREATE
                    | OFlags::EXCL
                    | OFlags::NOFOLLOW
                    | OFlags::CLOEXEC;
                let mode = Mode::RUSR | Mode::WUSR;
                rustix::fs::openat(parent, temporary, flags, mode)
            }
        };
        let made = self.within("create", path, |parent, _| match make(parent) {
            Err(Errno::EXIST) => match rustix::fs::unlinkat(parent, temporary, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => make(parent),
                Err(error) => Err(error),
            },
            made => made,
        })?;
        let result = self.fill(path, entry, made).and_then(|()| self.rename(path, replace));
        if result.is_err() {
            let (parent, _) = split(path);
            if let Ok(parent) = self.open(parent) {
                let _ = rustix::fs::unlinkat(parent, temporary, AtFlags::empty());
            }
        }
        result
    }

    fn fill(&mut self, path: &[u8], entry: &Entry, made: OwnedFd) -> Result<()> {
        if entry.kind != Kind::File {
            return self.dress_unopened(&made, entry, path);
        }
        fault::point("write");
        let file = File::from(made);
        content::give(self.database, entry, &file, &self.path.join(shown(path)))?;
        self.dress(&file, entry, path)
    }

    /// Moves what was made to its path; a write to what it replaces at the last moment is not lost.
    fn rename(&mut self, path: &[u8], replace: bool) -> Result<()> {
        fault::point("rename");
        let (temporary, seen) = (self.temporary, self.seen(path).map(|seen| seen.stamp));
        let done = self.within("rename", path, |parent, name| {
            beneath::put_in_place(parent, temporary, name, replace, seen)
        })?;
        match done {
            Placed::Done(replaced) => {
                if let Some((file, size)) = replaced {
                    self.spent.take(file, size);
                }
                Ok(())
            }
            Placed::Changed => Err(SessionError::Changed(self.path.join(shown(path)))),
        }
    }

    /// Makes a path another name of the first one, which this revert has written, or which is what was seen there.
    fn link(
        &mut self,
        path: &[u8],
        entry: &Entry,
        (first, ours): (&[u8], bool),
        current: Option<&Entry>,
    ) -> Result<()> {
        let (from, to) = (self.open(split(first).0)?, split(first).1);
        let (temporary, seen) = (self.temporary, self.seen(first).map(|seen| seen.stamp));
        let made = self.within("link", path, |parent, _| {
            let _ = rustix::fs::unlinkat(parent, temporary, AtFlags::empty());
            match rustix::fs::linkat(&from, to, parent, temporary, AtFlags::empty()) {
                Err(Errno::NOENT | Errno::MLINK | Errno::XDEV | Errno::PERM) => Ok(false),
                result => {
                    result?;
                    Ok(ours || beneath::untouched(seen, &beneath::stat(parent, temporary)?))
                }
            }
        })?;
        if !made {
            // The first name is not part of this revert, or another file by now: the bytes are what counts.
            return self.place(path, entry, current);
        }
        let replace = current.is_some();
        fault::point("link");
        self.rename(path, replace)
    }

    /// Gives an open file or directory its owner, attributes and mode, in this order: each may
    /// undo the next.
    fn dress(&mut self, file: impl AsFd, entry: &Entry, path: &[u8]) -> Result<()> {
        let now = beneath::stat(&file, b"").map_err(self.failed("statx", path))?.stamp;
        if (now.uid, now.gid) != (entry.uid, entry.gid) {
            let (uid, gid) = (Uid::from_raw(entry.uid), Gid::from_raw(entry.gid));
            if rustix::fs::fchown(&file, Some(uid), Some(gid)).is_err() {
                let path = shown(path);
                self.kept.push(format!("{}: its owner cannot be given back", path.display()));
            }
        }
        let wanted = match &entry.xattrs {
            Some(hash) => {
                let bad = || self.database.corrupt("attributes are unreadable");
                content::read_attributes(&self.database.get(hash)?.0).ok_or_else(bad)?
            }
            None => Vec::new(),
        };
        let have = content::attributes(&file).unwrap_or_default();
        let mut mode = entry.mode;
        if now.mode & 0o200 == 0 && have != wanted {
            // Attributes of what is read-only are its owner's to change only while it is not. (New files are not.)
            let _ = rustix::fs::fchmod(&file, Mode::from_raw_mode(now.mode | 0o700));
        }
        for (name, _) in have.iter().filter(|(name, _)| !wanted.iter().any(|(w, _)| w == name)) {
            if let Err(error) = rustix::fs::fremovexattr(&file, &name[..])
                && error != Errno::NODATA
            {
                let (path, name) = (shown(path), String::from_utf8_lossy(name));
                self.kept.push(format!("{}: {name} cannot be taken away", path.display()));
            }
        }
        for (name, value) in content::lists_last(&wanted).filter(|pair| !have.contains(pair)) {
            let flags = rustix::fs::XattrFlags::empty();
            match rustix::fs::fsetxattr(&file, &name[..], value, flags) {
                Ok(()) => {}
                Err(error @ (Errno::NOSPC | Errno::DQUOT)) => {
                    let _ = rustix::fs::fchmod(&file, Mode::from_raw_mode(now.mode));
                    return Err(self.failed("fsetxattr", path)(error));
                }
                Err(_) => {
                    mode = content::without_list(mode, name);
                    let (path, name) = (shown(path), String::from_utf8_lossy(name));
                    self.kept.push(format!("{}: {name} cannot be set", path.display()));
                }
            }
        }
        let kept = if self.plain && entry.kind != Kind::Directory { 0o1777 } else { 0o7777 };
        let mode = Mode::from_raw_mode(mode & kept);
        rustix::fs::fchmod(&file, mode).map_err(self.failed("fchmod", path))
    }
}

/// Takes out what can be neither removed nor replaced, with what was in it, and says so of each.
/// Also whether some of it is unreadable now, and was not in the snapshot, or is gone.
pub(super) fn leave_alone(changes: &mut Vec<Change>) -> (Vec<String>, bool) {
    let (mut left, mut now) = (Vec::new(), false);
    let mut top = None;
    changes.retain(|change| {
        // Parents come before what is in them.
        let within = top.as_ref().is_some_and(|top| change.path.starts_with(top));
        let alone = [&change.old, &change.new].into_iter().flatten().any(|e| e.kind.untouchable());
        if alone && !within {
            left.push(format!("{}: could not be read", change.path.display()));
            top = Some(change.path.clone());
            let gone = change.new.is_none();
            now |= gone || change.old.as_ref().is_none_or(|old| !old.kind.untouchable());
        }
        !(alone || within)
    });
    (left, now)
}

/// All hard links below a stored tree: the other names, with what they point to.
pub(super) fn stored_links(
    database: &Database,
    root: &super::Hash,
) -> Result<Vec<(Vec<u8>, Entry)>> {
    let mut found = Vec::new();
    let mut pending = vec![(Vec::new(), *root)];
    while let Some((path, hash)) = pending.pop() {
        for entry in database.tree(&hash)? {
            let below = beneath::join(&path, &entry.name);
            match entry.kind {
                Kind::Directory => pending.push((below, entry.hash)),
                _ if entry.link.is_some() => found.push((below, entry)),
                _ => {}
            }
        }
    }
    Ok(found)
}

/// Removes what an interrupted revert left at its temporary name.
pub(super) fn sweep_temporary(root: &OwnedFd, directories: &[Vec<u8>], name: &[u8]) {
    for directory in directories {
        if let Ok(directory) = beneath::open_directory(root.as_fd(), directory) {
            let _ = rustix::fs::unlinkat(directory, name, AtFlags::empty());
        }
    }
}
