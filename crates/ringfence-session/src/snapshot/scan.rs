//! Looks at the workspace: one `statx` for each name, and reading only what changed.

use super::ahead::{Ahead, Looked};
use super::beneath::{self, Found, join, shown};
use super::bounds::{Most, too_much};
use super::closed::as_it_was;
use super::content::{self, Trouble};
use super::database::Database;
use super::entry::{Cached, Entry, Hash, Kind, NONE, Seen, write_tree};
use super::ignored::Rules;
use super::unopened;
use crate::error::{Result, SessionError};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::FileType;
use rustix::io::Errno;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files are stamped with the last tick of the clock, up to 10 ms old: a file that changed so
/// shortly before it was read may change again under the same stamp.
const TICK: i64 = 20_000_000;

/// A file that is written to all the time is stored as it was read.
const TRIES: usize = 3;

/// Directories nested deeper are not looked into: only somebody who means harm makes them.
pub(super) const DEEPEST: usize = 512;

/// A `.gitignore` beyond this ignores nothing.
const LONGEST_RULES: u64 = 1 << 20;

/// So many files are read again rather than noted in a directory's row, which is written as a whole.
const FEW: usize = 32;

/// Where the rules for leaving out come from.
#[derive(Clone, Copy)]
pub(super) enum Leave {
    /// Nothing is left out.
    Nothing,
    /// By the files on disk.
    Disk,
    /// By those in this tree.
    Tree(Hash),
}

/// What is looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Aim {
    /// What there is.
    Look,
    /// The same, to be stored.
    Keep,
    /// The same, before it is reverted.
    Revert,
}

/// What was seen.
#[derive(Default)]
pub(super) struct Scan {
    /// The entries of each directory, by its path relative to the workspace.
    pub directories: HashMap<Vec<u8>, Vec<Seen>>,
    /// The tree of the workspace.
    pub root: Hash,
    pub files: u64,
    pub bytes: u64,
    pub links: u64,
    /// How many files had to be read.
    pub read: u64,
    pub unreadable: Vec<PathBuf>,
    /// Files that changed each time while they were read.
    pub unsettled: Vec<PathBuf>,
}

/// Looks at the workspace.
pub(super) struct Scanner<'a> {
    pub database: &'a mut Database,
    pub root: &'a OwnedFd,
    pub path: &'a Path,
    pub aim: Aim,
    pub leave: Leave,
    /// What was opened up, with the mode that it had.
    pub closed: HashMap<Vec<u8>, u32>,
    /// Directories of ringfence itself, device and inode.
    pub hidden: Vec<(u64, u64)>,
    pub rules: Rules,
    pub scan: Scan,
    pub buffer: Vec<u8>,
    /// What it may take.
    pub most: Option<Most>,
    /// Names that were looked at.
    pub names: u64,
    /// Bytes that were read.
    pub taken: u64,
}

impl Scanner<'_> {
    /// Looks at everything.
    pub fn run(mut self) -> Result<Scan> {
        let device = beneath::stat(self.root, b"")
            .map_err(|error| SessionError::call("statx", self.path, error))?
            .stamp
            .device;
        let base = if let Leave::Tree(hash) = self.leave { Some(hash) } else { None };
        let mut pending = vec![(Vec::new(), base)];
        // Depth first, with the rules of the way down on a stack.
        let mut depths: Vec<Vec<u8>> = Vec::new();
        while let Some((path, base)) = pending.pop() {
            while depths.last().is_some_and(|above| !beneath::inside(above, &path)) {
                depths.pop();
                self.rules.leave();
            }
            let Some(below) = self.directory(&path, base, device)? else { continue };
            if !matches!(self.leave, Leave::Nothing) {
                depths.push(path);
            }
            pending.extend(below);
        }
        links(&mut self.scan);
        let mut root = Vec::new();
        self.hash(&mut root)?;
        Ok(self.scan)
    }

    /// What is new is stored.
    fn stores(&self) -> bool {
        self.aim != Aim::Look
    }

    /// One directory; returns those below it.
    #[expect(clippy::type_complexity, reason = "paths with the trees that hold their rules")]
    fn directory(
        &mut self,
        path: &[u8],
        base: Option<Hash>,
        device: u64,
    ) -> Result<Option<Vec<(Vec<u8>, Option<Hash>)>>> {
        if path.iter().filter(|&&byte| byte == b'/').count() >= DEEPEST {
            self.unreadable(path);
            return Ok(None);
        }
        let opened = beneath::open_directory(self.root.as_fd(), path);
        let directory = match opened {
            Ok(directory) => Arc::new(directory),
            // Gone, or another thing by now.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) if !path.is_empty() => {
                self.forget(path);
                return Ok(None);
            }
            Err(_) if !path.is_empty() => {
                self.unreadable(path);
                return Ok(None);
            }
            Err(error) => return Err(SessionError::call("open", self.path, error)),
        };
        let names = match beneath::names(&directory) {
            Ok(names) => Arc::new(names),
            Err(_) if !path.is_empty() => {
                self.unreadable(path);
                return Ok(None);
            }
            Err(error) => return Err(SessionError::call("getdents", self.path, error)),
        };
        self.names += names.count() as u64;
        if let Some(most) = self.most.filter(|most| self.names > most.names) {
            return Err(too_much(&most));
        }
        let base_entries = match base {
            Some(hash) => self.database.tree(&hash)?,
            None => Vec::new(),
        };
        self.enter(path, &directory, &base_entries)?;
        let old = self.database.cached(path)?;
        let mut cached = Cached::of(old.as_deref().unwrap_or_default());
        // What goes into the cache, written as it comes: most of it is copied from what was there.
        let mut keep = Vec::with_capacity(old.as_deref().map_or(0, <[u8]>::len) + 256);
        // Names of which more can be trusted than before.
        let mut learnt = 0;
        let (mut all, mut below) = (Vec::with_capacity(names.count()), Vec::new());
        for (name, Looked { began, found }) in names.iter().zip(Ahead::of(&directory, &names)) {
            let found = match found {
                Ok(found) => found,
                Err(Errno::NOENT) => continue,
                // One that is not told of is no matter of the others: a file system of another user's that is mounted
                // there, or one whose server is gone.
                Err(_) if beneath::stat(&directory, b".").is_ok() => Found::untold(device),
                // A directory can be listed though it may not be entered. What is in it is not gone.
                Err(_) if !path.is_empty() => {
                    self.unreadable(path);
                    return Ok(None);
                }
                Err(error) => return Err(SessionError::call("statx", self.path, error)),
            };
            // What is not told of may be one, and is left alone either way.
            let is_directory = matches!(found.file_type, FileType::Directory | FileType::Unknown);
            // The rules themselves are always kept: comparing needs them.
            let ruled = !matches!(self.leave, Leave::Nothing) && name != b".gitignore";
            if ruled && self.rules.ignore(&join(path, name), is_directory) {
                continue;
            }
            let before = cached.of_name(name);
            let foreign = found.mount
                || found.stamp.device != device
                || self.hidden.contains(&(found.stamp.device, found.stamp.inode));
            let seen = match before {
                Some((seen, bytes)) if seen.settled && seen.stamp == found.stamp && !foreign => {
                    keep.extend_from_slice(bytes);
                    seen
                }
                before => {
                    let looked =
                        self.look(&directory, path, name.to_vec(), &found, foreign, began)?;
                    let Some(mut seen) = looked else { continue };
                    as_it_was(&self.closed, path, &mut seen);
                    // Only what is in the store may be trusted to be there.
                    let stored = self.stores()
                        || before.as_ref().is_some_and(|(b, _)| {
                            b.entry.same_content(&seen.entry) && b.entry.xattrs == seen.entry.xattrs
                        });
                    match before {
                        _ if stored => seen.write(&mut keep),
                        Some((_, bytes)) => keep.extend_from_slice(bytes),
                        None => {}
                    }
                    learnt += usize::from(stored);
                    seen
                }
            };
            if seen.entry.kind == Kind::Directory {
                let child = base_entries.binary_search_by(|e| e.name.cmp(&seen.entry.name)).ok();
                let child = child.map(|at| base_entries[at].hash).filter(|_| base.is_some());
                below.push((join(path, &seen.entry.name), child));
            }
            all.push(seen);
        }
        let worth = match self.aim {
            Aim::Keep => true,
            // Names that are gone do no harm.
            Aim::Look => learnt > 0,
            // What is reverted is another file at once.
            Aim::Revert => learnt > FEW,
        };
        if worth && old.as_deref() != Some(&keep[..]) {
            self.database.set_cached(path, &keep)?;
        }
        self.scan.directories.insert(path.to_vec(), all);
        Ok(Some(below))
    }

    fn enter(&mut self, path: &[u8], directory: &OwnedFd, base: &[Entry]) -> Result<()> {
        let text = match self.leave {
            Leave::Nothing => return Ok(()),
            Leave::Disk => beneath::open_file(directory, b".gitignore").ok().and_then(|file| {
                let found = beneath::stat(&file, b"").ok()?;
                let plain = found.file_type == FileType::RegularFile;
                let mut text = Vec::new();
                let mut file = std::io::Read::take(std::fs::File::from(file), LONGEST_RULES);
                (plain && std::io::Read::read_to_end(&mut file, &mut text).is_ok()).then_some(text)
            }),
            Leave::Tree(_) => {
                let rules = base.iter().find(|entry| entry.name == b".gitignore");
                match rules.filter(|entry| entry.kind == Kind::File) {
                    Some(entry) => content::whole(self.database, entry, LONGEST_RULES)?,
                    None => None,
                }
            }
        };
        self.rules.enter(path, &text.unwrap_or_default());
        Ok(())
    }

    /// Reads what a name stands for. `None`: it is gone.
    fn look(
        &mut self,
        directory: &OwnedFd,
        path: &[u8],
        name: Vec<u8>,
        found: &Found,
        foreign: bool,
        began: i64,
    ) -> Result<Option<Seen>> {
        let kind = match found.file_type {
            _ if foreign => Kind::Foreign,
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Symlink,
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            _ => Kind::Foreign,
        };
        let stamp = found.stamp;
        let (uid, gid, mode) = (stamp.uid, stamp.gid, stamp.mode);
        let entry = Entry {
            name,
            kind,
            mode,
            uid,
            gid,
            size: 0,
            hash: NONE,
            xattrs: None,
            link: None,
            sparse: false,
        };
        let settled = stamp.latest().saturating_add(TICK) < began;
        let mut seen = Seen { entry, stamp, settled };
        if found.file_type == FileType::Unknown && !foreign {
            return Ok(Some(self.closed(path, seen)));
        }
        match kind {
            Kind::File => return self.file(directory, path, seen, *found),
            Kind::Directory => {
                let attributes = beneath::open_directory(directory.as_fd(), &seen.entry.name)
                    .and_then(content::attributes);
                // What cannot be opened is found out when it is entered.
                seen.entry.xattrs = self.keep_attributes(&attributes.unwrap_or_default())?;
            }
            Kind::Symlink => {
                let Ok(target) =
                    rustix::fs::readlinkat(directory, &seen.entry.name[..], Vec::new())
                else {
                    return Ok(None);
                };
                let target = target.into_bytes();
                seen.entry.hash = *blake3::hash(&target).as_bytes();
                seen.entry.size = target.len() as u64;
                seen.entry.mode = 0o777;
                if self.stores() {
                    self.database.put(&seen.entry.hash, &target)?;
                }
            }
            Kind::Fifo => {
                let list = unopened::attributes(directory, &seen.entry.name);
                seen.entry.xattrs = self.keep_attributes(&list)?;
            }
            _ => seen.entry.mode = 0,
        }
        Ok(Some(seen))
    }

    fn file(
        &mut self,
        directory: &OwnedFd,
        path: &[u8],
        mut seen: Seen,
        mut found: Found,
    ) -> Result<Option<Seen>> {
        for attempt in 1..=TRIES {
            let began = beneath::now();
            let opened = beneath::open_file(directory, &seen.entry.name);
            let read = opened.and_then(|file| {
                // Asked for after `began` and before the look: who begins to write later leaves a later stamp.
                let written = found.stamp.size <= content::LARGE
                    && ringfence_sys::file::has_writers(file.as_fd()) == Some(true);
                let now = beneath::stat(&file, b"")?;
                let same = now.file_type == FileType::RegularFile;
                if same { Ok((file, now, written)) } else { Err(Errno::STALE) }
            });
            let (file, now, written) = match read {
                Ok(read) => read,
                Err(Errno::NOENT | Errno::LOOP | Errno::STALE | Errno::NXIO) => return Ok(None),
                Err(_) => return Ok(Some(self.closed(path, seen))),
            };
            found = now;
            let attributes = content::attributes(&file).unwrap_or_default();
            let again = file.try_clone().map_err(|e| SessionError::call("dup", self.path, e))?;
            let size = found.stamp.size;
            self.taken = self.taken.saturating_add(found.on_disk());
            let over = |most: &Most| self.taken > most.bytes || self.scan.read >= most.files;
            if let Some(most) = self.most.filter(over) {
                return Err(too_much(&most));
            }
            let buffer = &mut self.buffer;
            match content::take(self.database, file, size, self.aim != Aim::Look, buffer) {
                Ok(hash) => seen.entry.hash = hash,
                Err(Trouble::Store(error)) => return Err(error),
                Err(Trouble::Read) => return Ok(Some(self.closed(path, seen))),
            }
            self.scan.read += 1;
            seen.entry.xattrs = self.keep_attributes(&attributes)?;
            // By a mapping that was written to before, a file is changed without any sign of it.
            seen.settled = !written && found.stamp.latest().saturating_add(TICK) < began;
            let after = beneath::stat(&again, b"").map(|after| after.stamp);
            if after == Ok(found.stamp) {
                break;
            }
            seen.settled = false;
            // What is read now may have been written after the mode was seen, and such writes take
            // set-user-ID and set-group-ID away.
            let later = after.map_or(0, |after| after.mode);
            found.stamp.mode &= later | 0o1777;
            if attempt == TRIES {
                self.scan.unsettled.push(shown(&join(path, &seen.entry.name)));
            }
        }
        let stamp = found.stamp;
        seen.stamp = stamp;
        let entry = &mut seen.entry;
        (entry.mode, entry.uid, entry.gid, entry.size) =
            (stamp.mode, stamp.uid, stamp.gid, stamp.size);
        entry.sparse = stamp.size >= 65536 && found.blocks * 512 + 65536 <= stamp.size;
        Ok(Some(seen))
    }

    fn keep_attributes(&mut self, all: &[(Vec<u8>, Vec<u8>)]) -> Result<Option<Hash>> {
        if all.is_empty() {
            return Ok(None);
        }
        let (hash, bytes) = content::write_attributes(all);
        if self.stores() {
            self.database.put(&hash, &bytes)?;
        }
        Ok(Some(hash))
    }

    fn closed(&mut self, path: &[u8], mut seen: Seen) -> Seen {
        self.scan.unreadable.push(shown(&join(path, &seen.entry.name)));
        seen.entry.kind = Kind::Unreadable;
        seen.settled = false;
        seen
    }

    /// Marks a directory that could not be entered in its parent.
    fn unreadable(&mut self, path: &[u8]) {
        self.scan.unreadable.push(shown(path));
        if let Some(seen) = self.in_parent(path) {
            seen.entry.kind = Kind::Unreadable;
            seen.entry.hash = NONE;
        }
    }

    fn forget(&mut self, path: &[u8]) {
        let (parent, name) = beneath::split(path);
        if let Some(all) = self.scan.directories.get_mut(parent) {
            all.retain(|seen| seen.entry.name != name);
        }
    }

    fn in_parent(&mut self, path: &[u8]) -> Option<&mut Seen> {
        let (parent, name) = beneath::split(path);
        find(&mut self.scan, parent, name)
    }

    /// The tree of a directory, from those below it.
    fn hash(&mut self, path: &mut Vec<u8>) -> Result<Hash> {
        let Some(mut all) = self.scan.directories.remove(&path[..]) else { return Ok(NONE) };
        let length = path.len();
        for seen in &mut all {
            if seen.entry.kind == Kind::Directory {
                *path = join(path, &seen.entry.name);
                seen.entry.hash = self.hash(path)?;
                path.truncate(length);
            }
            self.scan.files += u64::from(seen.entry.kind == Kind::File);
            self.scan.bytes = self.scan.bytes.saturating_add(seen.entry.size);
        }
        let entries: Vec<&Entry> = all.iter().map(|seen| &seen.entry).collect();
        let bytes = write_tree(&entries);
        let hash = *blake3::hash(&bytes).as_bytes();
        match self.aim {
            Aim::Look => {}
            Aim::Keep => self.database.put(&hash, &bytes)?,
            // It is kept for the next ten reverts: packing is for what stays.
            Aim::Revert => self.database.put_plain(&hash, &bytes)?,
        }
        self.scan.directories.insert(path.clone(), all);
        self.scan.root = hash;
        Ok(hash)
    }
}

/// Names of one inode point to the first of them.
fn links(scan: &mut Scan) {
    let mut groups: HashMap<(u64, u64), Vec<Vec<u8>>> = HashMap::new();
    for (directory, all) in &mut scan.directories {
        for seen in all {
            seen.entry.link = None;
            if seen.entry.kind == Kind::File && seen.stamp.links > 1 {
                let names = groups.entry((seen.stamp.device, seen.stamp.inode)).or_default();
                names.push(join(directory, &seen.entry.name));
            }
        }
    }
    for mut names in groups.into_values().filter(|names| names.len() > 1) {
        names.sort();
        scan.links += names.len() as u64;
        for other in &names[1..] {
            let (directory, name) = beneath::split(other);
            if let Some(seen) = find(scan, directory, name) {
                seen.entry.link = Some(names[0].clone());
            }
        }
    }
}

fn find<'a>(scan: &'a mut Scan, directory: &[u8], name: &[u8]) -> Option<&'a mut Seen> {
    let all = scan.directories.get_mut(directory)?;
    let at = all.binary_search_by(|seen| seen.entry.name[..].cmp(name)).ok()?;
    all.get_mut(at)
}
