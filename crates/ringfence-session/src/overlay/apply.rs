//! Carries out the steps of a commit in the real tree.
//!
//! Names are reached beneath the tree's own descriptor, without following links, one directory at
//! a time: neither the layer's links nor the host's lead out of it. Files are made whole under
//! a temporary name and exchanged with what they replace, which is looked at once more before it
//! goes. The layer is not touched.

use super::layer::{Same, attributes, same, through};
use super::ours::Written;
use super::steps::{Act, Step};
use super::top::Top;
use crate::error::{Result, SessionError};
use crate::snapshot::beneath::{self, Found, Placed, shown, split};
use crate::snapshot::content;
use crate::snapshot::entry::Stamp;
use crate::snapshot::fault;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// A commit into one tree.
pub(super) struct Apply<'a> {
    pub upper: &'a OwnedFd,
    pub lower: &'a OwnedFd,
    pub root: &'a Path,
    /// What the layer's own directory was made as.
    pub top: Option<&'a Top>,
    pub temporary: &'a [u8],
    /// What the host changed meanwhile is replaced.
    pub force: bool,
    /// The directories that nobody but us wrote to.
    pub written: Written,
    /// What was not done, a sentence each.
    pub kept: Vec<String>,
    /// Directories that were opened up for us, with the mode to give back and where they are.
    pub opened: Vec<(OwnedFd, u32, Vec<u8>)>,
}

impl Apply<'_> {
    /// Does them all.
    pub fn run(&mut self, steps: &[Step]) -> Result<()> {
        let result = steps.iter().try_for_each(|step| self.step(step));
        for (directory, mode, path) in self.opened.drain(..).rev() {
            let mode = Mode::from_raw_mode(mode);
            let _ = self.written.around(&path, &directory, || rustix::fs::fchmod(&directory, mode));
        }
        result?;
        rustix::fs::syncfs(self.lower).map_err(self.failed("syncfs", b""))
    }

    pub(super) fn failed(
        &self,
        call: &'static str,
        path: &[u8],
    ) -> impl Fn(Errno) -> SessionError + use<> {
        let path = self.root.join(shown(path));
        move |error| match error {
            Errno::NOSPC | Errno::DQUOT => SessionError::usage(format!(
                "no space is left for {}; nothing was lost: free some, then do the same again",
                path.display()
            )),
            error => SessionError::call(call, &path, error),
        }
    }

    fn told(&self, path: &[u8]) -> PathBuf {
        if path.is_empty() { self.root.to_owned() } else { shown(path) }
    }

    fn changed(&self, path: &[u8]) -> SessionError {
        SessionError::usage(format!(
            "{} was changed on the host during the commit; it was left as it is: put it right, then \
             commit again to finish, or with --force to replace it",
            self.root.join(shown(path)).display()
        ))
    }

    fn step(&mut self, step: &Step) -> Result<()> {
        match &step.act {
            Act::Place => self.place(step, None),
            Act::Link(first) => {
                use std::os::unix::ffi::OsStrExt;
                self.place(step, Some(first.as_os_str().as_bytes()))
            }
            Act::Directory => self.directory(step.path()),
            Act::Dress { new } => self.dress_directory(step, *new),
            Act::Remove => self.remove(step),
        }
    }

    fn parent(&self, tree: &OwnedFd, path: &[u8]) -> Result<OwnedFd> {
        beneath::open_directory(tree.as_fd(), split(path).0).map_err(self.failed("open", path))
    }

    /// Does something in a real directory; one that is closed to its owner is opened for the time.
    fn within<T>(
        &mut self,
        call: &'static str,
        path: &[u8],
        act: impl Fn(&OwnedFd, &[u8]) -> std::result::Result<T, Errno>,
    ) -> Result<T> {
        let parent = self.parent(self.lower, path)?;
        let (above, name) = split(path);
        let mut result = self.written.around(above, &parent, || act(&parent, name));
        if matches!(result, Err(Errno::ACCESS)) {
            let mode = beneath::stat(&parent, b"").map_err(self.failed("statx", path))?.stamp.mode;
            let open = Mode::from_raw_mode(mode | 0o700);
            let opened = || rustix::fs::fchmod(&parent, open).map(|()| act(&parent, name));
            if let Ok(again) = self.written.around(above, &parent, opened) {
                result = again;
                self.opened.push((parent, mode, above.to_vec()));
            }
        }
        result.map_err(self.failed(call, path))
    }

    fn current(&self, path: &[u8]) -> Result<Option<Found>> {
        let parent = self.parent(self.lower, path)?;
        match beneath::stat(&parent, split(path).1) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.failed("statx", path)(error)),
        }
    }

    fn place(&mut self, step: &Step, first: Option<&[u8]>) -> Result<()> {
        let path = step.path();
        let upper = self.parent(self.upper, path)?;
        let new = beneath::stat(&upper, split(path).1).map_err(self.failed("statx", path))?;
        let current = self.current(path)?;
        let replace = match &current {
            None if step.before.is_none() => false,
            None if self.force => false,
            Some(found) if step.before.is_some() && beneath::untouched(step.before, found) => true,
            Some(found) if self.done(path, &upper, found, &new, step.mode)? => return Ok(()),
            Some(found) if self.force && found.file_type != FileType::Directory => true,
            _ => return Err(self.changed(path)),
        };
        fault::point("make");
        let made = self.make(path, &upper, &new, step.mode, first);
        let result = made.and_then(|()| self.exchange(path, replace, current));
        if result.is_err()
            && let Ok(parent) = self.parent(self.lower, path)
        {
            let _ = rustix::fs::unlinkat(parent, self.temporary, AtFlags::empty());
        }
        result
    }

    /// What stands there is what this step would put there.
    fn done(
        &self,
        path: &[u8],
        upper: &OwnedFd,
        found: &Found,
        new: &Found,
        mode: u32,
    ) -> Result<bool> {
        if found.file_type != new.file_type {
            return Ok(false);
        }
        let link = new.file_type == FileType::Symlink;
        if !link && (found.stamp.mode, found.stamp.modified) != (mode, new.stamp.modified) {
            return Ok(false);
        }
        let lower = self.parent(self.lower, path)?;
        let same = same(&lower, upper, split(path).1, found, new);
        Ok(matches!(same, Ok(Same::All | Same::Bytes)))
    }

    /// Makes the new file or link under the temporary name.
    fn make(
        &mut self,
        path: &[u8],
        upper: &OwnedFd,
        new: &Found,
        mode: u32,
        first: Option<&[u8]>,
    ) -> Result<()> {
        let (temporary, name) = (self.temporary, split(path).1);
        let times = times(&new.stamp);
        if new.file_type == FileType::Symlink {
            let target = rustix::fs::readlinkat(upper, name, Vec::new())
                .map_err(self.failed("readlink", path))?;
            return self.within("symlink", path, |parent, _| {
                rustix::fs::symlinkat(&target, parent, temporary)?;
                rustix::fs::utimensat(parent, temporary, &times, AtFlags::SYMLINK_NOFOLLOW)
            });
        }
        if let Some(first) = first
            && let Some(found) = self.current(first)?
            && (found.stamp.size, found.stamp.modified) == (new.stamp.size, new.stamp.modified)
        {
            let from = self.parent(self.lower, first)?;
            let to = split(first).1;
            let linked = self.within("link", path, |parent, _| {
                match rustix::fs::linkat(&from, to, parent, temporary, AtFlags::empty()) {
                    Err(Errno::MLINK | Errno::XDEV | Errno::PERM) => Ok(false),
                    result => result.map(|()| true),
                }
            })?;
            if linked {
                return Ok(());
            }
        }
        let source = self.source(path, upper, name)?;
        let file = self.within("create", path, |parent, _| {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
            let mode = Mode::RUSR | Mode::WUSR;
            rustix::fs::openat(parent, temporary, flags | OFlags::CLOEXEC, mode)
        })?;
        fault::point("write");
        copy(&source, &file).map_err(self.failed("copy_file_range", path))?;
        self.dress(path, &source, &file, new, mode)?;
        rustix::fs::futimens(&file, &times).map_err(self.failed("utimensat", path))
    }

    /// Opens a file of the layer; one whose mode forbids that to its owner as well.
    fn source(&self, path: &[u8], upper: &OwnedFd, name: &[u8]) -> Result<OwnedFd> {
        match beneath::open_file(upper, name) {
            Err(Errno::ACCESS) => {
                // Its mode is in the journal. It is no link: it was looked at, and nobody else
                // writes to the layer.
                let mode = Mode::RUSR | Mode::WUSR;
                rustix::fs::chmod(&through(upper, name)[..], mode)
                    .and_then(|()| beneath::open_file(upper, name))
            }
            result => result,
        }
        .map_err(self.failed("open", path))
    }

    /// Moves what was made to its place. What it replaces is looked at before it goes.
    fn exchange(&mut self, path: &[u8], replace: bool, current: Option<Found>) -> Result<()> {
        fault::point("rename");
        let temporary = self.temporary;
        let before = current.map(|found| found.stamp);
        let done = self.within("rename", path, |parent, name| {
            beneath::put_in_place(parent, temporary, name, replace, before)
        })?;
        match done {
            Placed::Done(replaced) => {
                if let Some((file, _)) = replaced.filter(|_| !self.force) {
                    self.written.lost_a_name(&file);
                }
                Ok(())
            }
            Placed::Changed => Err(self.changed(path)),
        }
    }

    fn directory(&mut self, path: &[u8]) -> Result<()> {
        fault::point("mkdir");
        let made = self.within("mkdir", path, |parent, name| {
            match rustix::fs::mkdirat(parent, name, Mode::RWXU) {
                Err(Errno::EXIST) => Ok(false),
                result => result.map(|()| true),
            }
        })?;
        // The host's, or ours from before an interruption; anything else is not gone into.
        match beneath::open_directory(self.lower.as_fd(), path) {
            Err(Errno::NOTDIR | Errno::LOOP) => Err(self.changed(path)),
            result => {
                let directory = result.map_err(self.failed("open", path))?;
                self.written.made(path, &directory, made);
                Ok(())
            }
        }
    }

    fn dress_directory(&mut self, step: &Step, new: bool) -> Result<()> {
        fault::point("dress");
        let path = step.path();
        let open = |tree: &OwnedFd| beneath::open_directory(tree.as_fd(), path);
        let source = open(self.upper).map_err(self.failed("open", path))?;
        let target = open(self.lower).map_err(self.failed("open", path))?;
        let found = beneath::stat(&source, b"").map_err(self.failed("statx", path))?;
        let mut written = std::mem::take(&mut self.written);
        let dressed = written.around(path, &target, || {
            self.dress(path, &source, &target, &found, step.mode)?;
            let times = times(&found.stamp);
            if !new {
                return Ok(());
            }
            rustix::fs::futimens(&target, &times).map_err(self.failed("utimensat", path))
        });
        self.written = written;
        dressed?;
        // It has its final mode now: what was noted before would take it back.
        let own = beneath::stat(&target, b"").map_err(self.failed("statx", path))?.stamp;
        self.opened.retain(|(opened, ..)| {
            beneath::stat(opened, b"").map_or(true, |found| found.stamp.inode != own.inode)
        });
        Ok(())
    }

    /// Owner, attributes and mode, in this order: each may undo the next.
    fn dress(
        &mut self,
        path: &[u8],
        source: &OwnedFd,
        target: &OwnedFd,
        new: &Found,
        mut mode: u32,
    ) -> Result<()> {
        let now = beneath::stat(target, b"").map_err(self.failed("statx", path))?.stamp;
        let (real, have) = ((now.uid, now.gid), attributes(target));
        let (mut owner, mut wanted) = ((new.stamp.uid, new.stamp.gid), attributes(source));
        let top = path.is_empty();
        if let Some(made) = self.top.filter(|_| top) {
            (owner, wanted) = made.given((owner, real), (wanted, &have));
        }
        if real != owner {
            let (uid, gid) = (Uid::from_raw(owner.0), Gid::from_raw(owner.1));
            if rustix::fs::fchown(target, Some(uid), Some(gid)).is_err() {
                let path = self.told(path);
                self.kept.push(format!("{}: its owner cannot be given", path.display()));
            }
        }
        if now.mode & 0o200 == 0 && have != wanted {
            // Attributes of what is read-only are its owner's to change only while it is not.
            let _ = rustix::fs::fchmod(target, Mode::from_raw_mode(now.mode | 0o700));
        }
        for (name, _) in have.iter().filter(|(name, _)| !wanted.iter().any(|(w, _)| w == name)) {
            let _ = rustix::fs::fremovexattr(target, &name[..]);
        }
        for (name, value) in content::lists_last(&wanted).filter(|pair| !have.contains(pair)) {
            match rustix::fs::fsetxattr(target, &name[..], value, rustix::fs::XattrFlags::empty()) {
                Ok(()) => {}
                Err(error @ (Errno::NOSPC | Errno::DQUOT)) => {
                    return Err(self.failed("fsetxattr", path)(error));
                }
                Err(_) => {
                    mode = content::without_list(mode, name);
                    let (path, name) = (self.told(path), String::from_utf8_lossy(name));
                    self.kept.push(format!("{}: {name} cannot be set", path.display()));
                }
            }
        }
        match rustix::fs::fchmod(target, Mode::from_raw_mode(mode)) {
            // Inside it is always the user's own.
            Err(Errno::PERM) if top => {
                let path = self.told(path);
                self.kept.push(format!("{}: its mode is its owner's to change", path.display()));
                Ok(())
            }
            result => result.map_err(self.failed("fchmod", path)),
        }
    }

    fn remove(&mut self, step: &Step) -> Result<()> {
        let path = step.path();
        match beneath::open_directory(self.lower.as_fd(), split(path).0) {
            // With all that was in it.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            result => drop(result.map_err(self.failed("open", path))?),
        }
        let Some(found) = self.current(path)? else { return Ok(()) };
        let is_directory = found.file_type == FileType::Directory;
        if is_directory != step.directory {
            // Gone already, and something of another kind is there: what this made way for, or the
            // host's.
            return Ok(());
        }
        if !(self.force || beneath::untouched(step.before, &found)) {
            return Err(self.changed(path));
        }
        fault::point("remove");
        let temporary = self.temporary;
        if is_directory {
            let gone = self.within("rmdir", path, |parent, name| {
                match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
                    Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
                    Err(Errno::NOENT) => Ok(true),
                    result => result.map(|()| true),
                }
            })?;
            if !gone {
                let path = shown(path);
                self.kept.push(format!("{}: the host put something into it", path.display()));
            }
            return Ok(());
        }
        let before = Some(found.stamp);
        let linked = (found.stamp.links > 1 && !self.force).then(|| {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            self.within("open", path, |parent, name| {
                rustix::fs::openat(parent, name, flags, Mode::empty())
            })
        });
        let linked = linked.transpose()?;
        let done = self.within("rename", path, |parent, name| {
            let aside = RenameFlags::NOREPLACE;
            rustix::fs::renameat_with(parent, name, parent, temporary, aside)?;
            fault::point("aside");
            let old = beneath::stat(parent, temporary)?;
            if beneath::untouched(before, &old) {
                return rustix::fs::unlinkat(parent, temporary, AtFlags::empty()).map(|()| true);
            }
            rustix::fs::renameat_with(parent, temporary, parent, name, aside).map(|()| false)
        })?;
        if !done {
            return Err(self.changed(path));
        }
        if let Some(file) = linked {
            self.written.lost_a_name(&file);
        }
        Ok(())
    }
}

fn times(stamp: &Stamp) -> Timestamps {
    let time = Timespec {
        tv_sec: stamp.modified.div_euclid(1_000_000_000),
        tv_nsec: stamp.modified.rem_euclid(1_000_000_000),
    };
    Timestamps { last_access: time, last_modification: time }
}

/// Copies all bytes: as shared blocks where the file system can, else without the holes.
fn copy(source: &OwnedFd, target: &OwnedFd) -> std::result::Result<(), Errno> {
    use rustix::fs::{SeekFrom, seek};
    if rustix::fs::ioctl_ficlone(target, source).is_ok() {
        return Ok(());
    }
    let size = beneath::stat(source, b"")?.stamp.size;
    let mut at = 0;
    while at < size {
        let (start, end) = match seek(source, SeekFrom::Data(at)) {
            Ok(start) => (start, seek(source, SeekFrom::Hole(start)).unwrap_or(size)),
            Err(Errno::NXIO) => break,
            // This file system knows no holes.
            Err(_) => (at, size),
        };
        copy_range(source, target, start, end)?;
        at = end;
    }
    rustix::fs::ftruncate(target, size)
}

fn copy_range(
    source: &OwnedFd,
    target: &OwnedFd,
    start: u64,
    end: u64,
) -> std::result::Result<(), Errno> {
    let (mut from, mut to) = (start, start);
    while from < end {
        let length = usize::try_from(end - from).unwrap_or(usize::MAX).min(1 << 30);
        let (at, into) = (Some(&mut from), Some(&mut to));
        match rustix::fs::copy_file_range(source, at, target, into, length) {
            Ok(0) => return Ok(()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM) => {
                return copy_by_hand(source, target, from, end);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Where the kernel does not copy between two file systems.
fn copy_by_hand(
    source: &OwnedFd,
    target: &OwnedFd,
    mut at: u64,
    end: u64,
) -> std::result::Result<(), Errno> {
    let mut buffer = vec![0u8; 1 << 17];
    while at < end {
        let length = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
        let got = rustix::io::pread(source, &mut buffer[..length], at)?;
        let mut rest = &buffer[..got];
        if rest.is_empty() {
            break;
        }
        while !rest.is_empty() {
            let written = rustix::io::pwrite(target, rest, at)?;
            rest = &rest[written..];
            at += written as u64;
        }
    }
    Ok(())
}
