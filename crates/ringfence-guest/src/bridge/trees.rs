//! What is in the sandbox's own directories (a private `/tmp`, a private home), for the sandbox of a fork: written down by
//! the one bridge, and made again by the other.
//!
//! Both are inside their sandboxes, as the command's user: what is read is what the guest could read, and what is made is
//! made where the guest could make it. What is mounted in such a directory is none of it. A file is written down by its
//! parts that are no holes, and all of it together is bounded: a guest makes a long file of nothing in a moment.

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Statx, StatxFlags, Timespec, Timestamps, Uid,
};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const DIRECTORY: u8 = b'd';
const END: u8 = b'e';
const FILE: u8 = b'f';
const LINK: u8 = b'l';
const NAME: u8 = b'n';
const SPECIAL: u8 = b's';
/// As deep as a guest can make directories.
const DEEPEST: usize = 2048;
/// The longest name, target or path in a list.
const LONGEST: usize = DEEPEST * 256;

type Result<T> = std::result::Result<T, String>;

fn failed<E: std::fmt::Display>(what: &str, name: &[u8]) -> impl FnOnce(E) -> String {
    move |error| format!("{what}({}): {error}", String::from_utf8_lossy(name))
}

fn os(name: &[u8]) -> &OsStr {
    OsStr::from_bytes(name)
}

fn look(directory: impl AsFd, name: &[u8], flags: AtFlags) -> rustix::io::Result<Statx> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    rustix::fs::statx(directory, os(name), flags, wanted)
}

fn open(directory: impl AsFd, name: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    rustix::fs::openat(directory, os(name), flags, Mode::empty())
}

/// By which mount something is seen, or on which file system where mounts have no numbers.
fn mount(found: &Statx) -> (u64, u32, u32) {
    (found.stx_mnt_id, found.stx_dev_major, found.stx_dev_minor)
}

/// Writes down what is in directories, in this order, in so many bytes at most, but for one that is this session's alone.
///
/// # Errors
/// A sentence: it is too much, something cannot be read, or there is no memory left.
pub fn save(places: &[PathBuf], except: &Path, to: File, most: u64) -> Result<()> {
    let mut saving = Saving {
        to: BufWriter::new(to),
        most,
        left: most,
        names: HashMap::new(),
        mount: (0, 0, 0),
        path: PathBuf::new(),
        place: PathBuf::new(),
    };
    for place in places {
        let name = place.as_os_str().as_bytes();
        let directory = open(CWD, name, OFlags::RDONLY | OFlags::DIRECTORY);
        let directory = directory.map_err(failed("open", name))?;
        let found = look(&directory, b"", AtFlags::EMPTY_PATH).map_err(failed("statx", name))?;
        (saving.mount, saving.names) = (mount(&found), HashMap::new());
        (saving.path, saving.place) = (place.clone(), place.clone());
        saving.tree(directory, found, except)?;
    }
    saving.to.flush().map_err(failed("write", b"memory"))
}

/// A directory that is being written down.
struct Level {
    fd: OwnedFd,
    found: Statx,
    /// What of it is still to come.
    names: Vec<Vec<u8>>,
}

struct Saving {
    to: BufWriter<File>,
    /// How much may be in memory in all, and is not yet.
    most: u64,
    left: u64,
    /// Where files with several names were met first.
    names: HashMap<u64, Vec<u8>>,
    mount: (u64, u32, u32),
    /// Where it is, and in which of the directories.
    path: PathBuf,
    place: PathBuf,
}

impl Saving {
    /// Something is to be in memory, here or there.
    fn take(&mut self, length: u64) -> Result<()> {
        let most = self.most >> 20;
        self.left = self.left.checked_sub(length).ok_or_else(|| {
            format!(
                "they hold more than {most} MiB, all of which a fork has once more in memory: remove \
                 what it does not need"
            )
        })?;
        Ok(())
    }

    fn put(&mut self, parts: &[&[u8]]) -> Result<()> {
        self.take(parts.iter().map(|part| part.len() as u64).sum())?;
        parts
            .iter()
            .try_for_each(|part| self.to.write_all(part))
            .map_err(failed("write", b"memory"))
    }

    fn text(&mut self, text: &[u8]) -> Result<()> {
        self.put(&[&(text.len() as u32).to_le_bytes(), text])
    }

    /// Mode, owner, times.
    fn state(&mut self, found: &Statx) -> Result<()> {
        let mode = u32::from(found.stx_mode);
        for word in [mode, found.stx_uid, found.stx_gid] {
            self.put(&[&word.to_le_bytes()])?;
        }
        for time in [&found.stx_atime, &found.stx_mtime] {
            self.put(&[&time.tv_sec.to_le_bytes(), &time.tv_nsec.to_le_bytes()])?;
        }
        Ok(())
    }

    /// A failure of a call about what is being looked at.
    fn failed<E: std::fmt::Display>(&self, what: &str) -> impl FnOnce(E) -> String {
        failed(what, self.path.as_os_str().as_bytes())
    }

    /// What is in a directory, however deep: a guest chooses that, and a thread's stack is small.
    fn tree(&mut self, top: OwnedFd, found: Statx, except: &Path) -> Result<()> {
        let mut levels = vec![self.level(top, found)?];
        while let Some(level) = levels.last_mut() {
            let Some(name) = level.names.pop() else {
                let found = level.found;
                levels.pop();
                self.path.pop();
                self.put(&[&[END]])?;
                self.state(&found)?;
                continue;
            };
            self.path.push(os(&name));
            let below = if self.path == except { None } else { self.entry(&level.fd, &name)? };
            match below {
                Some(_) if levels.len() > DEEPEST => {
                    return Err(format!("{}: too deep", self.path.display()));
                }
                Some(below) => levels.push(below),
                None => drop(self.path.pop()),
            }
        }
        Ok(())
    }

    fn level(&mut self, fd: OwnedFd, found: Statx) -> Result<Level> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&fd).map_err(self.failed("getdents"))? {
            let entry = entry.map_err(self.failed("getdents"))?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                self.take(name.len() as u64)?;
                names.push(name.to_vec());
            }
        }
        Ok(Level { fd, found, names })
    }

    /// Writes down what a name stands for; of a directory, what is in it comes next.
    fn entry(&mut self, directory: &OwnedFd, name: &[u8]) -> Result<Option<Level>> {
        let found = look(directory, name, AtFlags::SYMLINK_NOFOLLOW);
        let found = found.map_err(self.failed("statx"))?;
        if mount(&found) != self.mount {
            return Ok(None);
        }
        let kind = FileType::from_raw_mode(found.stx_mode.into());
        if kind != FileType::Directory && found.stx_nlink > 1 {
            let whole = self.path.strip_prefix(&self.place).unwrap_or(&self.path);
            let whole = whole.as_os_str().as_bytes().to_vec();
            if let Some(first) = self.names.get(&found.stx_ino).cloned() {
                self.put(&[&[NAME]])?;
                self.text(name)?;
                return self.text(&first).map(|()| None);
            }
            self.take(whole.len() as u64)?;
            self.names.insert(found.stx_ino, whole);
        }
        match kind {
            FileType::Directory => {
                let opened = open(directory, name, OFlags::RDONLY | OFlags::DIRECTORY);
                let opened = opened.map_err(self.failed("open"))?;
                self.put(&[&[DIRECTORY]])?;
                self.text(name)?;
                return self.level(opened, found).map(Some);
            }
            FileType::RegularFile => {
                let opened = open(directory, name, OFlags::RDONLY);
                let opened = File::from(opened.map_err(self.failed("open"))?);
                self.put(&[&[FILE]])?;
                self.text(name)?;
                self.state(&found)?;
                self.put(&[&found.stx_size.to_le_bytes()])?;
                self.content(opened, found.stx_size)?;
            }
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(directory, os(name), Vec::new());
                let target = target.map_err(self.failed("readlink"))?;
                self.put(&[&[LINK]])?;
                self.text(name)?;
                self.text(target.as_bytes())?;
            }
            FileType::Fifo | FileType::Socket => {
                self.put(&[&[SPECIAL]])?;
                self.text(name)?;
                self.state(&found)?;
            }
            // There are no devices: nobody inside can make one.
            _ => {}
        }
        Ok(None)
    }

    /// The parts of a file that are no holes, each with its place and length; then one of no length.
    fn content(&mut self, mut file: File, size: u64) -> Result<()> {
        let mut at = 0;
        while at < size {
            let part = match ringfence_sys::file::next_part(file.as_fd(), at) {
                Ok(None) => break,
                Ok(Some(part)) => part.start..part.end.min(size),
                // A file system that does not know of holes.
                Err(ringfence_sys::Errno::EINVAL) => at..size,
                Err(errno) => return Err(self.failed("lseek")(format!("{errno:?}"))),
            };
            let length = part.end.saturating_sub(part.start);
            if length == 0 {
                break;
            }
            self.put(&[&part.start.to_le_bytes(), &length.to_le_bytes()])?;
            self.take(length)?;
            file.seek(SeekFrom::Start(part.start)).map_err(self.failed("lseek"))?;
            let copied = io::copy(&mut (&mut file).take(length), &mut self.to);
            if copied.map_err(self.failed("read"))? != length {
                return Err(format!("{} changes", self.path.display()));
            }
            at = part.end;
        }
        self.put(&[&size.to_le_bytes(), &0_u64.to_le_bytes()])
    }
}

/// Makes what was written down in so many bytes at most, in the same directories. What is there already stays.
///
/// # Errors
/// A sentence: there is no room, or it is no such list.
pub fn make(places: &[PathBuf], mut from: File, most: u64) -> Result<()> {
    if from.metadata().map_err(failed("fstat", b"memory"))?.len() > most {
        return Err("the list is too long".to_owned());
    }
    from.rewind().map_err(failed("seek", b"memory"))?;
    let mut making = Making { from: BufReader::new(from), place: None };
    for place in places {
        making.place(place)?;
    }
    Ok(())
}

struct Making {
    from: BufReader<File>,
    /// The directory, and by which mount it is seen.
    place: Option<(OwnedFd, (u64, u32, u32))>,
}

/// What an entry has besides its name.
struct State {
    mode: u32,
    owner: (u32, u32),
    times: Timestamps,
}

impl Making {
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes).map_err(failed("read", b"memory"))?;
        Ok(bytes)
    }

    fn word(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn long(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Result<Vec<u8>> {
        let length = self.word()? as usize;
        if length > LONGEST {
            return Err("a name is too long".to_owned());
        }
        let mut text = vec![0; length];
        self.from.read_exact(&mut text).map_err(failed("read", b"memory"))?;
        Ok(text)
    }

    fn name(&mut self) -> Result<Vec<u8>> {
        let name = self.text()?;
        let single = !matches!(&name[..], b"" | b"." | b"..") && !name.contains(&b'/');
        single.then_some(name).ok_or_else(|| "a name is none".to_owned())
    }

    fn state(&mut self) -> Result<State> {
        let (mode, owner) = (self.word()?, (self.word()?, self.word()?));
        // Which chown(2) takes for none.
        if owner.0 == u32::MAX || owner.1 == u32::MAX {
            return Err("an owner is none".to_owned());
        }
        let mut time = || -> Result<Timespec> {
            let seconds = self.array().map(i64::from_le_bytes)?;
            Ok(Timespec { tv_sec: seconds, tv_nsec: self.word()?.into() })
        };
        let times = Timestamps { last_access: time()?, last_modification: time()? };
        Ok(State { mode, owner, times })
    }

    fn place(&mut self, place: &Path) -> Result<()> {
        let name = place.as_os_str().as_bytes();
        let directory = open(CWD, name, OFlags::RDONLY | OFlags::DIRECTORY);
        let directory = directory.map_err(failed("open", name))?;
        let found = look(&directory, b"", AtFlags::EMPTY_PATH).map_err(failed("statx", name))?;
        self.place = Some((directory.try_clone().map_err(failed("dup", name))?, mount(&found)));
        // Above the one that is filled now; `None` for one that is not this directory's own.
        let mut above: Vec<Option<OwnedFd>> = vec![Some(directory)];
        while let Some(current) = above.last() {
            let into = match current {
                Some(fd) => Some(fd.try_clone().map_err(failed("dup", name))?),
                None => None,
            };
            let [kind] = self.array()?;
            match kind {
                END => {
                    let state = self.state()?;
                    if let Some(fd) = into {
                        settle(&fd, &state)?;
                    }
                    above.pop();
                }
                DIRECTORY if above.len() <= DEEPEST => {
                    let name = self.name()?;
                    above.push(into.map(|fd| self.directory(&fd, &name)).transpose()?.flatten());
                }
                _ => self.entry(kind, into.as_ref())?,
            }
        }
        Ok(())
    }

    fn directory(&self, into: &OwnedFd, name: &[u8]) -> Result<Option<OwnedFd>> {
        match rustix::fs::mkdirat(into, os(name), Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed("mkdir", name)(errno)),
        }
        let opened = match open(into, name, OFlags::RDONLY | OFlags::DIRECTORY) {
            Err(Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => return Ok(None),
            opened => opened.map_err(failed("open", name))?,
        };
        let found = look(&opened, b"", AtFlags::EMPTY_PATH).map_err(failed("statx", name))?;
        let own = self.place.as_ref().is_some_and(|(_, own)| *own == mount(&found));
        Ok(Some(opened).filter(|_| own))
    }

    fn entry(&mut self, kind: u8, into: Option<&OwnedFd>) -> Result<()> {
        let name = self.name()?;
        let done = match kind {
            FILE => return self.file(&name, into),
            LINK => {
                let target = self.text()?;
                into.map(|fd| rustix::fs::symlinkat(os(&target), fd, os(&name)))
            }
            NAME => {
                let first = self.text()?;
                into.zip(self.place.as_ref())
                    .map(|(fd, (place, _))| beneath(place, &first, fd, &name))
            }
            SPECIAL => {
                let state = self.state()?;
                let kind = FileType::from_raw_mode(state.mode);
                if !matches!(kind, FileType::Fifo | FileType::Socket) {
                    return Err("an entry is none".to_owned());
                }
                let mode = Mode::from_raw_mode(state.mode & 0o7777);
                into.map(|fd| rustix::fs::mknodat(fd, os(&name), kind, mode, 0))
            }
            _ => return Err("an entry is none".to_owned()),
        };
        match done {
            None | Some(Ok(()) | Err(Errno::EXIST)) => Ok(()),
            Some(Err(errno)) => Err(failed("make", &name)(errno)),
        }
    }

    fn file(&mut self, name: &[u8], into: Option<&OwnedFd>) -> Result<()> {
        let state = self.state()?;
        let size = self.long()?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let made = into.map(|fd| rustix::fs::openat(fd, os(name), flags, Mode::RWXU));
        match made {
            Some(Ok(fd)) => {
                let mut file = File::from(fd);
                self.content(size, Some(&mut file), name)?;
                file.set_len(size).map_err(failed("ftruncate", name))?;
                settle(file.as_fd(), &state)
            }
            None | Some(Err(Errno::EXIST)) => self.content(size, None, name),
            Some(Err(errno)) => Err(failed("make", name)(errno)),
        }
    }

    /// The parts of a file, each behind the one before it.
    fn content(&mut self, size: u64, mut to: Option<&mut File>, name: &[u8]) -> Result<()> {
        let mut at = 0;
        loop {
            let (start, length) = (self.long()?, self.long()?);
            let end = start.checked_add(length).filter(|&end| at <= start && end <= size);
            at = end.ok_or("a part of a file is none")?;
            if length == 0 {
                return Ok(());
            }
            let mut part = (&mut self.from).take(length);
            let copied = match &mut to {
                Some(file) => file
                    .seek(SeekFrom::Start(start))
                    .and_then(|_| io::copy(&mut part, file))
                    .map_err(failed("write", name))?,
                None => io::copy(&mut part, &mut io::sink()).map_err(failed("read", b"memory"))?,
            };
            if copied != length {
                return Err("a file is cut short".to_owned());
            }
        }
    }
}

/// One more name for a file of the same directory.
fn beneath(place: &OwnedFd, first: &[u8], into: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
    let (directory, last) = match first.iter().rposition(|&byte| byte == b'/') {
        Some(at) => (&first[..at], &first[at + 1..]),
        None => (&b"."[..], first),
    };
    let mut at = place.try_clone().map_err(|_| Errno::MFILE)?;
    for step in directory.split(|&byte| byte == b'/') {
        if step == b".." {
            return Err(Errno::INVAL);
        }
        at = open(&at, step, OFlags::PATH | OFlags::DIRECTORY)?;
    }
    rustix::fs::linkat(&at, os(last), into, os(name), AtFlags::empty())
}

/// Gives something its owner, mode and times.
fn settle(fd: impl AsFd, state: &State) -> Result<()> {
    let fd = fd.as_fd();
    let found = look(fd, b"", AtFlags::EMPTY_PATH).map_err(failed("statx", b"file"))?;
    if (found.stx_uid, found.stx_gid) != state.owner {
        let (user, group) = (Uid::from_raw(state.owner.0), Gid::from_raw(state.owner.1));
        // Only root's command can have had another one.
        let _ = rustix::fs::fchown(fd, Some(user), Some(group));
    }
    // What is a mount's own directory may be held.
    let _ = rustix::fs::fchmod(fd, Mode::from_raw_mode(state.mode & 0o7777));
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let _ = rustix::fs::utimensat(CWD, path, &state.times, AtFlags::empty());
    Ok(())
}

#[cfg(test)]
mod tests;
