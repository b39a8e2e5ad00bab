//! Somebody who may write to a tree, and changes what its names mean all the time: links to the outside, pipes and
//! directories in the place of files, parents that are moved away, files that grow and shrink.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, ResolveFlags, linkat, mkdirat, mknodat,
    openat, openat2, renameat_with, symlinkat, unlinkat,
};
use rustix::io::Errno;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Who does that, until it is told to stop.
pub struct Racer<'a> {
    /// The tree.
    pub tree: &'a Path,
    /// Where links lead.
    pub outside: &'a Path,
    /// Names in the tree whose meaning changes.
    pub names: &'a [&'a str],
    /// Tells it to stop.
    pub stop: AtomicBool,
    /// What it has done.
    pub acts: AtomicU64,
}

/// A sequence of numbers that is the same each time (xorshift).
pub struct Numbers(pub u64);

impl Numbers {
    pub fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % most as u64) as usize
    }
}

impl<'a> Racer<'a> {
    pub fn new(tree: &'a Path, outside: &'a Path, names: &'a [&'a str]) -> Racer<'a> {
        let (stop, acts) = (AtomicBool::new(false), AtomicU64::new(0));
        Racer { tree, outside, names, stop, acts }
    }

    /// Returns when it is at work.
    pub fn has_begun(&self) {
        while self.acts.load(Ordering::Relaxed) < 10 {
            std::thread::yield_now();
        }
    }

    /// Goes on until it is told to stop. It reaches nothing but the tree itself, as if it were confined.
    pub fn run(&self, seed: u64) {
        let mut numbers = Numbers(seed);
        // Beside the tree, where nobody removes it: what is exchanged with names in it.
        let own = self.tree.with_file_name(format!("racer-{seed}"));
        fs::create_dir(&own).unwrap();
        let (tree, own) = (directory(CWD, self.tree).unwrap(), directory(CWD, &own).unwrap());
        while !self.stop.load(Ordering::Relaxed) {
            let name = Path::new(self.names[numbers.below(self.names.len())]);
            let parent = name.parent().filter(|parent| !parent.as_os_str().is_empty());
            let parent = directory(&tree, parent.unwrap_or(Path::new(".")));
            if let (Ok(parent), Some(name)) = (parent, name.file_name()) {
                let _ = self.act(&own, &parent, Path::new(name), &mut numbers);
                self.acts.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// One act. Whether it works is another matter.
    fn act(
        &self,
        own: &OwnedFd,
        parent: &OwnedFd,
        name: &Path,
        numbers: &mut Numbers,
    ) -> Result<(), Errno> {
        let spare = numbers.below(4).to_string();
        let spare = &spare[..];
        match numbers.below(9) {
            0 => drop(openat(own, spare, OFlags::CREATE | OFlags::EXCL, Mode::RWXU)?),
            1 => symlinkat(self.outside.join("secret"), own, spare)?,
            2 => symlinkat(self.outside, own, spare)?,
            3 => mknodat(own, spare, FileType::Fifo, Mode::RWXU, 0)?,
            4 => mkdirat(own, spare, Mode::RWXU)?,
            5 => linkat(parent, name, own, spare, AtFlags::empty())?,
            6 => renameat_with(parent, name, own, spare, RenameFlags::NOREPLACE)?,
            7 => {
                // A pipe would hold us up.
                let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW;
                let file = openat(parent, name, flags, Mode::empty())?;
                rustix::fs::ftruncate(file, numbers.below(1 << 18) as u64)?;
            }
            _ => {
                let gone = unlinkat(own, spare, AtFlags::empty());
                gone.or_else(|_| unlinkat(own, spare, AtFlags::REMOVEDIR))?;
            }
        }
        let swap = |flags| renameat_with(own, spare, parent, name, flags);
        swap(RenameFlags::EXCHANGE).or_else(|_| swap(RenameFlags::NOREPLACE))
    }
}

/// Opens a directory without following links.
fn directory(at: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat2(at, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
}

/// All that must not change, by path: content, times and modes of what is there.
pub fn untouched(outside: &Path) -> Vec<(PathBuf, String)> {
    use std::os::unix::fs::MetadataExt;
    let mut all = Vec::new();
    let mut pending = vec![outside.to_owned()];
    while let Some(path) = pending.pop() {
        let found = path.symlink_metadata().unwrap();
        let times = (found.mtime_nsec(), found.ctime_nsec(), found.mode(), found.nlink());
        let text = if found.is_file() { fs::read_to_string(&path).unwrap() } else { String::new() };
        if found.is_dir() {
            pending.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        all.push((path, format!("{times:?} {text}")));
    }
    all.sort();
    all
}

/// No file below a directory holds a text.
pub fn nowhere(top: &Path, text: &str) {
    let mut pending = vec![top.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).unwrap().flatten() {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            if kind.is_dir() {
                pending.push(path);
            } else if kind.is_file() {
                let bytes = fs::read(&path).unwrap();
                let found = bytes.windows(text.len()).any(|part| part == text.as_bytes());
                assert!(!found, "{} holds what is outside", path.display());
            }
        }
    }
}
