//! What each request does.

use super::abi::{Body, Fields, INIT_FLAGS, MAJOR, MINOR, Opcode, set};
use super::found::{stat, stat_at};
use super::{Files, Handle, ROOT, Result, name, own, wanted};
use crate::wire::MOST_DATA;
use rustix::fs::{
    Access, AtFlags, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, SeekFrom, Timespec,
    Timestamps, Uid,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What of the flags of an open reaches the host's.
const OPEN_FLAGS: u32 = (OFlags::RDWR.bits() | OFlags::WRONLY.bits())
    | OFlags::APPEND.bits()
    | OFlags::TRUNC.bits()
    | OFlags::DSYNC.bits()
    | OFlags::SYNC.bits();
const GETATTR_HANDLE: u32 = 1;
/// `FUSE_WRITE_CACHE`: pages of a mapping, by whatever handle can write.
const WRITE_CACHE: u32 = 1;
/// `FOPEN_KEEP_CACHE`: what was read of the file before is still true.
const KEEP_CACHE: u32 = 2;
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

fn os(name: &[u8]) -> &OsStr {
    OsStr::from_bytes(name)
}

impl Files {
    pub(super) fn serve(&mut self, opcode: Opcode, node: u64, fields: Fields<'_>) -> Result<Body> {
        let mut f = fields;
        let mut body = Body::default();
        match opcode {
            Opcode::Init => return init(&mut f),
            Opcode::Lookup => {
                return self.look_up(node, name(&mut f)?);
            }
            Opcode::GetAttr if self.whole && own::is(node) => return Ok(own::state(node)),
            Opcode::GetAttr => {
                let flags = wanted(f.word())?;
                f.word();
                let handle = (flags & GETATTR_HANDLE != 0).then(|| f.long()).flatten();
                let found = match handle.and_then(|handle| self.file(handle).ok()) {
                    Some(file) => stat(file)?,
                    None => self.state(node)?,
                };
                return Ok(self.attribute_reply(node, &found));
            }
            // What is in their places here is this sandbox's: its own further commands come in by `/dev`.
            Opcode::SetAttr | Opcode::SetAttribute | Opcode::RemoveAttribute
                if self.is_own(node) =>
            {
                return Err(Errno::PERM);
            }
            Opcode::SetAttr => return self.set_attributes(node, &mut f),
            Opcode::ReadLink => {
                let target = rustix::fs::readlinkat(&self.named(node)?, "", Vec::new())?;
                body.0 = target.into_bytes();
            }
            Opcode::Symlink => {
                let name = name(&mut f)?;
                let target = wanted(f.text())?;
                let directory = self.parent(node)?;
                rustix::fs::symlinkat(os(target), &directory, os(name))?;
                return self.found(&directory, node, name);
            }
            Opcode::MakeNode => {
                let mode = wanted(f.word())?;
                f.skip(12);
                let (name, directory) = (name(&mut f)?, self.parent(node)?);
                let kind = FileType::from_raw_mode(mode);
                // Devices would be the host's.
                if !matches!(kind, FileType::RegularFile | FileType::Fifo | FileType::Socket) {
                    return Err(Errno::PERM);
                }
                let mode = Mode::from_raw_mode(mode & 0o7777);
                rustix::fs::mknodat(&directory, os(name), kind, mode, 0)?;
                return self.found(&directory, node, name);
            }
            Opcode::MakeDirectory => {
                let mode = wanted(f.word())?;
                f.word();
                let (name, directory) = (name(&mut f)?, self.parent(node)?);
                rustix::fs::mkdirat(&directory, os(name), Mode::from_raw_mode(mode & 0o7777))?;
                return self.found(&directory, node, name);
            }
            Opcode::Unlink | Opcode::RemoveDirectory => {
                let (name, directory) = (name(&mut f)?, self.parent(node)?);
                let whole = opcode == Opcode::RemoveDirectory;
                let flags = if whole { AtFlags::REMOVEDIR } else { AtFlags::empty() };
                rustix::fs::unlinkat(&directory, os(name), flags)?;
                self.nodes.remove(node, name);
            }
            Opcode::Rename | Opcode::Rename2 => {
                let to = wanted(f.long())?;
                let mut flags = 0;
                if opcode == Opcode::Rename2 {
                    flags = wanted(f.word())?;
                    f.word();
                }
                let (old, new) = (name(&mut f)?, name(&mut f)?);
                let flags = RenameFlags::from_bits_retain(flags);
                // A whiteout is a device.
                if !(RenameFlags::NOREPLACE | RenameFlags::EXCHANGE).contains(flags) {
                    return Err(Errno::INVAL);
                }
                self.rename(node, old, to, new, flags)?;
            }
            Opcode::Link => {
                let file = wanted(f.long())?;
                let from = self.named(file)?;
                let (name, directory) = (name(&mut f)?, self.parent(node)?);
                // By its name in /proc: a descriptor as such may be linked only with a capability.
                let path = Files::through(&from);
                let cwd = rustix::fs::CWD;
                rustix::fs::linkat(cwd, &path, &directory, os(name), AtFlags::SYMLINK_FOLLOW)?;
                self.linked(file, &stat(&from)?);
                return self.found(&directory, node, name);
            }
            Opcode::Open => {
                let flags = wanted(f.word())?;
                // What has no name by now has another one while it is open (`/proc/self/fd/N`).
                let mut file = reopen(&self.meant(node)?, flags)?;
                self.written |= writes(flags);
                let found = stat(&file)?;
                if self.is_machine_id(node, &found) {
                    file = ringfence_sys::fd::in_memory(&self.machine_id).or(Err(Errno::NOMEM))?;
                }
                let constant = self.mount(node, &found).is_ok_and(|mount| mount.read_only);
                let handle = self.keep(Handle::File { file, node })?;
                body.long(handle).word(if constant { KEEP_CACHE } else { 0 }).word(0);
            }
            Opcode::Create => return self.create(node, &mut f),
            Opcode::Read => {
                let (handle, offset) = (wanted(f.long())?, wanted(f.long())?);
                let size = (wanted(f.word())? as usize).min(MOST_DATA);
                let file = self.file(handle)?;
                body.0.resize(size, 0);
                let mut filled = 0;
                while filled < size {
                    match rustix::io::pread(file, &mut body.0[filled..], offset + filled as u64) {
                        Ok(0) => break,
                        Ok(count) => filled += count,
                        Err(Errno::INTR) => {}
                        Err(_) if filled > 0 => break,
                        Err(errno) => return Err(errno),
                    }
                }
                body.0.truncate(filled);
            }
            Opcode::Write => {
                let (handle, offset) = (wanted(f.long())?, wanted(f.long())?);
                let (size, how) = (wanted(f.word())? as usize, wanted(f.word())?);
                f.skip(16);
                let data = wanted(f.0.get(..size))?;
                let written = if how & WRITE_CACHE != 0 {
                    let written = self.file(handle).and_then(|file| write_at(file, data, offset));
                    self.written_back(node, size, written)?
                } else {
                    rustix::io::pwrite(self.file(handle)?, data, offset)?
                };
                body.word(written as u32).word(0);
            }
            Opcode::StatFs => {
                let fd = self.named(node).or_else(|_| self.named(ROOT))?;
                let found = rustix::fs::fstatvfs(&fd)?;
                body.long(found.f_blocks).long(found.f_bfree).long(found.f_bavail);
                body.long(found.f_files).long(found.f_ffree).word(found.f_bsize as u32);
                body.word(255).word(found.f_frsize as u32).zeroes(28);
            }
            Opcode::Release | Opcode::ReleaseDirectory => {
                let handle = wanted(f.long())?;
                self.handles.remove(&handle);
            }
            // What is written is the host's at once: the kernel need not ask again.
            Opcode::Flush => return Err(Errno::NOSYS),
            Opcode::Sync => {
                let (handle, flags) = (wanted(f.long())?, wanted(f.word())?);
                let file = self.file(handle)?;
                if flags & 1 != 0 {
                    rustix::fs::fdatasync(file)?;
                } else {
                    rustix::fs::fsync(file)?;
                }
            }
            Opcode::SyncDirectory => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let named = self.named(node)?;
                rustix::fs::fsync(rustix::fs::open(Files::through(&named), flags, Mode::empty())?)?;
            }
            Opcode::OpenDirectory => return self.open_directory(node),
            Opcode::ReadDirectory | Opcode::ReadDirectoryPlus => {
                return self.list(node, &mut f, opcode == Opcode::ReadDirectoryPlus);
            }
            Opcode::Access => {
                let mask = wanted(f.word())?;
                let access = Access::from_bits_truncate(mask & 7);
                // F_OK is granted with the node itself.
                let (named, found) = self.identified(node)?;
                let path = Files::through(&named);
                rustix::fs::accessat(rustix::fs::CWD, &path, access, AtFlags::EACCESS)?;
                let kind = FileType::from_raw_mode(found.stx_mode.into());
                if kind == FileType::Directory && !self.is_own(node) {
                    self.places.hold(node, named);
                }
            }
            Opcode::Allocate => {
                let (handle, offset) = (wanted(f.long())?, wanted(f.long())?);
                let (length, mode) = (wanted(f.long())?, wanted(f.word())?);
                let mode = FallocateFlags::from_bits_retain(mode);
                rustix::fs::fallocate(self.file(handle)?, mode, offset, length)?;
            }
            Opcode::Seek => {
                let (handle, offset) = (wanted(f.long())?, wanted(f.long())?);
                let to = match wanted(f.word())? {
                    SEEK_DATA => SeekFrom::Data(offset),
                    SEEK_HOLE => SeekFrom::Hole(offset),
                    _ => return Err(Errno::INVAL),
                };
                body.long(rustix::fs::seek(self.file(handle)?, to)?);
            }
            Opcode::CopyRange => {
                let (from, mut read) = (wanted(f.long())?, wanted(f.long())?);
                let (_, to, mut write) = (f.long(), wanted(f.long())?, wanted(f.long())?);
                // Bounded: everything else waits for it.
                let length = wanted(f.long())?.min(16 << 20) as usize;
                let (from, to) = (self.file(from)?, self.file(to)?);
                let (read, write) = (Some(&mut read), Some(&mut write));
                let copied = rustix::fs::copy_file_range(from, read, to, write, length)?;
                body.word(copied as u32).word(0);
            }
            Opcode::SetAttribute => self.set_attribute(node, &mut f)?,
            Opcode::GetAttribute => return self.attribute(node, &mut f),
            Opcode::ListAttributes => return self.list_attributes(node, &mut f),
            Opcode::RemoveAttribute => self.remove_attribute(node, &mut f)?,
            Opcode::Destroy => {
                self.handles.clear();
                self.places.clear();
            }
            Opcode::Forget | Opcode::BatchForget | Opcode::Interrupt => {}
        }
        Ok(body)
    }

    /// `struct fuse_attr_out`.
    fn attribute_reply(&mut self, node: u64, found: &rustix::fs::Statx) -> Body {
        let mut body = Body::default();
        body.long(self.believed(node, found)).word(0).word(0);
        self.attributes(&mut body, node, found);
        body
    }

    fn set_attributes(&mut self, node: u64, f: &mut Fields<'_>) -> Result<Body> {
        let valid = wanted(f.word())?;
        f.word();
        let (handle, size) = (wanted(f.long())?, wanted(f.long())?);
        f.long();
        let (atime, mtime, _) = (wanted(f.long())?, wanted(f.long())?, f.long());
        let (atime_ns, mtime_ns, _) = (wanted(f.word())?, wanted(f.word())?, f.word());
        let (mode, _) = (wanted(f.word())?, f.word());
        let (user, group) = (wanted(f.word())?, wanted(f.word())?);
        let file = (valid & set::HANDLE != 0).then(|| self.file(handle).ok()).flatten();
        let fd = self.named(node)?;
        let path = Files::through(&fd);
        let cwd = rustix::fs::CWD;
        if valid & (set::USER | set::GROUP) != 0 {
            // None is what chown(2) takes the largest number for.
            let wanted = |set, id| (valid & set != 0 && id != u32::MAX).then_some(id);
            let user = wanted(set::USER, user).map(Uid::from_raw);
            let group = wanted(set::GROUP, group).map(Gid::from_raw);
            rustix::fs::chownat(cwd, &path, user, group, AtFlags::empty())?;
        }
        if valid & set::MODE != 0 {
            let mode = Mode::from_raw_mode(mode & 0o7777);
            rustix::fs::chmodat(cwd, &path, mode, AtFlags::empty())?;
        }
        if valid & set::SIZE != 0 {
            match file {
                Some(file) => rustix::fs::ftruncate(file, size)?,
                None => rustix::fs::ftruncate(reopen(&fd, OFlags::WRONLY.bits())?, size)?,
            }
        }
        if valid & (set::ATIME | set::MTIME | set::ATIME_NOW | set::MTIME_NOW) != 0 {
            let time = |given: u32, now: u32, seconds: u64, nanoseconds: u32| Timespec {
                tv_sec: seconds as i64,
                tv_nsec: match (valid & now != 0, valid & given != 0) {
                    (true, _) => rustix::fs::UTIME_NOW,
                    (_, true) => i64::from(nanoseconds),
                    _ => rustix::fs::UTIME_OMIT,
                },
            };
            let times = Timestamps {
                last_access: time(set::ATIME, set::ATIME_NOW, atime, atime_ns),
                last_modification: time(set::MTIME, set::MTIME_NOW, mtime, mtime_ns),
            };
            rustix::fs::utimensat(cwd, &path, &times, AtFlags::empty())?;
        }
        let found = stat(&fd)?;
        Ok(self.attribute_reply(node, &found))
    }

    /// Remembers what of a mapping could not be written: its program need not be there any more to hear of it.
    fn written_back(&mut self, node: u64, size: usize, written: Result<usize>) -> Result<usize> {
        let why = match written {
            Ok(count) if count == size => return written,
            // What was written is where a file, or its disk, ends.
            Ok(_) => Errno::NOSPC,
            Err(errno) => errno,
        };
        if self.lost.is_none() {
            let path = self.nodes.path(node).unwrap_or_else(|| b"a removed file".to_vec());
            self.lost = Some((Path::new("/").join(os(&path)), why));
        }
        written
    }

    fn rename(
        &mut self,
        from: u64,
        old: &[u8],
        to: u64,
        new: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        if !self.nodes.known(to) {
            return Err(Errno::STALE);
        }
        let (source, target) = (self.parent(from)?, self.parent(to)?);
        rustix::fs::renameat_with(&source, os(old), &target, os(new), flags)?;
        if flags.contains(RenameFlags::EXCHANGE) {
            self.nodes.exchange((from, old), (to, new));
        } else {
            self.nodes.rename((from, old), (to, new));
        }
        Ok(())
    }

    fn create(&mut self, parent: u64, f: &mut Fields<'_>) -> Result<Body> {
        let (flags, mode) = (wanted(f.word())?, wanted(f.word())?);
        f.skip(8);
        let (name, directory) = (name(f)?, self.parent(parent)?);
        let exclusive = flags & OFlags::EXCL.bits();
        let flags = OFlags::from_bits_retain(flags & OPEN_FLAGS | exclusive)
            | OFlags::CREATE
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::NOCTTY
            | OFlags::CLOEXEC;
        // What is there may be no regular file: it must not even be opened.
        match stat_at(&directory, name) {
            Ok(found)
                if FileType::from_raw_mode(found.stx_mode.into()) != FileType::RegularFile =>
            {
                return Err(Errno::OPNOTSUPP);
            }
            Ok(_) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
        let mode = Mode::from_raw_mode(mode & 0o7777);
        let file = rustix::fs::openat(&directory, os(name), flags, mode)?;
        self.written |= writes(flags.bits());
        let found = stat(&file)?;
        if FileType::from_raw_mode(found.stx_mode.into()) != FileType::RegularFile {
            return Err(Errno::OPNOTSUPP);
        }
        let mut body = Body::default();
        let node = self.entry(&mut body, parent, name, &found)?;
        let handle = self.keep(Handle::File { file, node })?;
        body.long(handle).word(0).word(0);
        Ok(body)
    }
}

fn writes(flags: u32) -> bool {
    flags & (OFlags::WRONLY.bits() | OFlags::RDWR.bits()) != 0
}

/// Writes a mapping's bytes where they belong: by a handle that appends, Linux would append them
/// (pwrite(2), "Bugs").
fn write_at(file: &OwnedFd, data: &[u8], offset: u64) -> Result<usize> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    if !flags.contains(OFlags::APPEND) {
        return rustix::io::pwrite(file, data, offset);
    }
    rustix::fs::fcntl_setfl(file, flags - OFlags::APPEND)?;
    let written = rustix::io::pwrite(file, data, offset);
    rustix::fs::fcntl_setfl(file, flags)?;
    written
}

pub(super) fn init(f: &mut Fields<'_>) -> Result<Body> {
    let (major, minor) = (wanted(f.word())?, wanted(f.word())?);
    let (ahead, flags) = (wanted(f.word())?, wanted(f.word())?);
    if major != MAJOR || minor < MINOR {
        return Err(Errno::PROTO);
    }
    let mut body = Body::default();
    body.word(MAJOR).word(MINOR).word(ahead.min(MOST_DATA as u32)).word(flags & INIT_FLAGS);
    body.short(64).short(48).word(MOST_DATA as u32).word(1);
    body.short((MOST_DATA / 4096) as u16).short(0).zeroes(32);
    Ok(body)
}

/// Opens what a descriptor names, if it is a regular file: anything else could do something by being opened, or wait.
pub(super) fn reopen(named: &OwnedFd, flags: u32) -> Result<OwnedFd> {
    let kind = FileType::from_raw_mode(stat(named)?.stx_mode.into());
    if kind != FileType::RegularFile {
        return Err(Errno::OPNOTSUPP);
    }
    let flags = OFlags::from_bits_retain(flags & OPEN_FLAGS) | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(Files::through(named), flags, Mode::empty())
}
