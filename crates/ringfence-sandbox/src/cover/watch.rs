//! The launcher's part: which mounts are gone.

use super::Cover;
use ringfence_sys as sys;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use sys::Errno;
use sys::fd::CWD;

/// Room for what is told of the mounts of a view: half of it is used mostly.
const MOUNTS: usize = 16 << 10;

/// Directories watched at most.
const MOST: usize = 512;

/// A name that is away for so long was removed. Editors rename or remove what they replace, and git does, before they
/// make it anew: that is one change, after which the name is held as before.
const SETTLES: Duration = Duration::from_millis(100);

/// Device and inode.
pub(crate) type Identity = (u64, u64);

/// Watches over the mounts of one sandbox.
pub(crate) struct Watch {
    covers: Vec<Cover>,
    /// The process whose view it is.
    warden: i32,
    names: Option<sys::inotify::Names>,
    watched: HashMap<i32, PathBuf>,
    /// What is at the names, as they were when the watch began.
    there: HashMap<PathBuf, Identity>,
    /// Protected names that were not there at a look, and since when nothing was told of them.
    away: BTreeMap<PathBuf, Instant>,
    /// Those that another run is to put back: they are not there, and nobody has removed them.
    awaited: BTreeSet<PathBuf>,
    /// Those that stayed away.
    removed: BTreeSet<PathBuf>,
    /// Something is not watched: there are too many directories, or somebody has taken what the user may have.
    blind: bool,
}

impl Watch {
    /// Watches from now on; nothing where there is nothing to watch.
    pub fn begin(mut covers: Vec<Cover>, awaited: Vec<Cover>, warden: i32) -> Option<Watch> {
        let waits = awaited.iter().map(|cover| cover.path.clone()).collect();
        covers.extend(awaited);
        if covers.is_empty() {
            return None;
        }
        let names = sys::inotify::Names::new().ok();
        let blind = names.is_none();
        // Their mounts keep them where they are as far as the program is concerned.
        let identity = |cover: &Cover| {
            let data = cover.path.symlink_metadata().ok()?;
            Some((cover.path.clone(), (data.dev(), data.ino())))
        };
        let there = covers.iter().filter_map(identity).collect();
        let mut watch = Watch {
            there,
            covers,
            warden,
            names,
            watched: HashMap::new(),
            away: BTreeMap::new(),
            awaited: waits,
            removed: BTreeSet::new(),
            blind,
        };
        watch.look_at(&Vec::from_iter(0..watch.covers.len()));
        Some(watch)
    }

    /// Readable when names were made.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.names.as_ref().map(sys::inotify::Names::descriptor)
    }

    /// Whether all of them are to be looked at from time to time.
    pub fn is_blind(&self) -> bool {
        self.blind
    }

    /// Those that are gone, of all.
    pub fn gone(&mut self) -> Vec<Cover> {
        self.gone_of(&Vec::from_iter(0..self.covers.len()))
    }

    /// Protected names that somebody has removed, since this was asked, and what was there.
    pub fn removed(&mut self) -> Vec<(PathBuf, Option<Identity>)> {
        let removed = std::mem::take(&mut self.removed).into_iter();
        removed.map(|path| (path.clone(), self.there.get(&path).copied())).collect()
    }

    /// Those that are gone, of those to which something happened.
    pub fn serve(&mut self) -> Vec<Cover> {
        let told = self.names.as_ref().map(sys::inotify::Names::take_all).unwrap_or_default();
        let made: HashSet<PathBuf> = told
            .names
            .into_iter()
            .filter_map(|named| Some(self.watched.get(&named.directory)?.join(named.name)))
            .collect();
        for number in &told.gone {
            self.watched.remove(number);
        }
        let concerned = |cover: &Cover| cover.path.ancestors().any(|path| made.contains(path));
        let concerned: Vec<usize> =
            (0..self.covers.len()).filter(|&at| told.lost || concerned(&self.covers[at])).collect();
        if concerned.is_empty() {
            return Vec::new();
        }
        self.look_at(&concerned);
        // What was told of is being replaced.
        self.away.retain(|path, _| !made.contains(path));
        self.gone_of(&concerned)
    }

    /// Those at which something else is now than when the watch began, whether it has its mount or not.
    pub fn exchanged(&self) -> Vec<PathBuf> {
        let other = |(path, was): &(&PathBuf, &Identity)| {
            path.symlink_metadata().is_ok_and(|data| (data.dev(), data.ino()) != **was)
        };
        self.there.iter().filter(other).map(|(path, _)| path.clone()).collect()
    }

    /// When those that are away are looked at next.
    pub fn settles(&self) -> Option<Instant> {
        self.away.values().min().map(|since| *since + SETTLES)
    }

    /// Looks at those that are away for long enough: the ones that are back, and are to be made again.
    pub fn settle(&mut self) -> Vec<Cover> {
        let long =
            |path: &PathBuf| self.away.get(path).is_some_and(|since| since.elapsed() >= SETTLES);
        let settled: Vec<usize> =
            (0..self.covers.len()).filter(|&at| long(&self.covers[at].path)).collect();
        let gone = self.gone_of(&settled);
        for path in settled.into_iter().map(|at| &self.covers[at].path) {
            // One that was there at this look is none of these any more.
            if self.away.remove(path).is_some() {
                self.removed.insert(path.clone());
            }
        }
        gone
    }

    /// Watches the directories on the way to names, from each tree's top on.
    fn look_at(&mut self, covers: &[usize]) {
        const PATH_DIRECTORY: i32 = 0o10_000_000 | ringfence_start::flags::DIRECTORY as i32;
        let Some(names) = &self.names else { return };
        let way = |&at: &usize| {
            let Cover { path, tree, .. } = &self.covers[at];
            let above = path.ancestors().skip(1);
            above.take_while(move |path| path.starts_with(tree)).map(Path::to_path_buf)
        };
        // Many are in one directory.
        let directories: BTreeSet<PathBuf> = covers.iter().flat_map(way).collect();
        for directory in directories {
            let Ok(path) = CString::new(directory.as_os_str().as_bytes()) else { continue };
            let open = match sys::fd::open_without_links(CWD, &path, PATH_DIRECTORY) {
                Ok(open) => open,
                // The directory above it tells when it is there.
                Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => continue,
                Err(_) => {
                    self.blind = true;
                    continue;
                }
            };
            match names.watch_both(open.as_fd()) {
                Ok(number) => drop(self.watched.insert(number, directory)),
                Err(_) => self.blind = true,
            }
            if self.watched.len() > MOST {
                self.blind = true;
                return;
            }
        }
    }

    fn gone_of(&mut self, covers: &[usize]) -> Vec<Cover> {
        let mounted = mounted(self.warden);
        // Where that cannot be read, the warden looks.
        let mut gone = Vec::new();
        for cover in covers.iter().map(|&at| &self.covers[at]) {
            if mounted.as_ref().is_some_and(|mounted| mounted.contains(&cover.path)) {
                self.away.remove(&cover.path);
                self.awaited.remove(&cover.path);
            } else if cover.path.symlink_metadata().is_ok() {
                self.away.remove(&cover.path);
                gone.push(cover.clone());
            } else if cover.protected && !self.awaited.contains(&cover.path) {
                self.away.entry(cover.path.clone()).or_insert_with(Instant::now);
            }
        }
        gone
    }
}

/// Those whose mounts are gone, when nobody is left inside but the warden; nothing where it has died.
pub(crate) fn left(covers: Vec<Cover>, warden: i32) -> Option<Vec<PathBuf>> {
    if covers.is_empty() {
        return Some(Vec::new());
    }
    let mounted = mounted(warden)?;
    let is_left = |path: &PathBuf| !mounted.contains(path) && path.symlink_metadata().is_ok();
    Some(covers.into_iter().map(|cover| cover.path).filter(is_left).collect())
}

/// The mount points of a process's view.
fn mounted(process: i32) -> Option<HashSet<PathBuf>> {
    // The kernel does not say how long it is: without room it is read 32 bytes at first, and twice as many each time.
    let mut text = Vec::with_capacity(MOUNTS);
    let mut file = File::open(format!("/proc/{process}/mountinfo")).ok()?;
    file.read_to_end(&mut text).ok()?;
    Some(mount_points(&text))
}

/// The mount points of a `mountinfo` (proc_pid_mountinfo(5)): the fifth field of each line.
fn mount_points(text: &[u8]) -> HashSet<PathBuf> {
    let lines = text.split(|&byte| byte == b'\n');
    let fifth = lines.filter_map(|line| line.split(|&byte| byte == b' ').nth(4));
    fifth.map(|field| PathBuf::from(OsString::from_vec(unescaped(field)))).collect()
}

/// Spaces, tabs, line ends and backslashes are octal numbers.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.first_chunk::<3>().filter(|_| first == b'\\');
        let number = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match number {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    bytes
}

/// What the warden is told to make again.
pub(crate) fn message(cover: &Cover) -> Vec<u8> {
    [&[super::AGAIN, cover.what.letter()], cover.path.as_os_str().as_bytes()].concat()
}

/// What the warden is told of a protected name that was removed.
pub(crate) fn removal(path: &Path, was: Option<Identity>) -> Vec<u8> {
    let (device, inode) = was.unwrap_or_default();
    let was = [device.to_ne_bytes(), inode.to_ne_bytes()].concat();
    [&[super::REMOVED], &was[..], path.as_os_str().as_bytes()].concat()
}

/// What such a message says.
pub(crate) fn removed(message: &[u8]) -> Option<(&Path, Option<Identity>)> {
    let (was, path) = message.strip_prefix(&[super::REMOVED])?.split_at_checked(16)?;
    let number = |at: usize| was[at..at + 8].try_into().map(u64::from_ne_bytes);
    let was = (number(0).ok()?, number(8).ok()?);
    Some((Path::new(OsStr::from_bytes(path)), Some(was).filter(|was| *was != Identity::default())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read_as_the_kernel_writes_them() {
        let text = b"36 35 98:0 /m /a\\040b\\134c rw - ext4 /dev/root rw\n37 35 0:5 / /x rw - tmpfs t rw\n";
        let wanted = [PathBuf::from("/a b\\c"), PathBuf::from("/x")];
        assert_eq!(mount_points(text), HashSet::from(wanted));
        assert_eq!(unescaped(b"a\\04"), b"a\\04");
    }

    #[test]
    fn the_warden_is_told_what_was_removed() {
        for was in [None, Some((5, 7))] {
            let message = removal(Path::new("/a b"), was);
            assert_eq!(removed(&message), Some((Path::new("/a b"), was)));
        }
        assert_eq!(removed(&[super::super::REMOVED, 1, 2]), None);
    }
}
