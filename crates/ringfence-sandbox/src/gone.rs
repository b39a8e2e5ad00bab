//! What a command wrote into a private home is gone with the run: that is told at the end, so that nobody takes it for kept.

use crate::plan::{Plan, Tier};
use ringfence_policy::shown;
use ringfence_sys as sys;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{Metadata, read_dir};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use sys::fd::{CWD, DIRECTORY, NO_FOLLOW, PATH_ONLY, through};

/// Names of one directory that are looked at, and directories.
const MOST_NAMES: usize = 1024;
const MOST_DIRECTORIES: usize = 64;
/// Names that are told.
const TOLD: usize = 3;

/// The private home of a command that runs in a view of its own: held, as nobody outside finds it when the command has
/// ended. One that lets nobody look at it (prctl(2), `PR_SET_DUMPABLE`) has none.
pub(crate) fn of_command(plan: &Plan, pid: i32) -> Option<OwnedFd> {
    let home = plan.home.as_ref().filter(|_| plan.tier == Tier::Namespace && pid > 0)?;
    let root = CString::new(format!("/proc/{pid}/root")).ok()?;
    let root = sys::fd::open_at(CWD, &root, PATH_ONLY, 0).ok()?;
    let path = CString::new(home.as_os_str().as_bytes()).ok()?;
    let home = sys::file::open_in_root(root.as_fd(), &path).ok()?;
    // The number may be somebody else's by now, who sees the host's home.
    let of = |path: &Path| path.metadata().map(|data| (data.dev(), data.ino())).ok();
    (of(&through(&home)) != of(plan.home.as_ref()?)).then_some(home)
}

/// The process tier's, below the session's private directory.
pub(crate) fn of_session(private: &Path) -> Option<OwnedFd> {
    open(CWD, private.join("home").as_os_str())
}

/// A sentence about what is in a private home, if there is such: files at its top, and in directories there, that are not
/// hidden. What is mounted in it is the host's.
pub(crate) fn told(home: &OwnedFd, real: &Path) -> Option<String> {
    let top = open(home.as_raw_fd(), OsStr::new("."))?;
    let device = through(&top).metadata().ok()?.dev();
    let (files, directories) = entries(&top, device);
    let mut files: Vec<PathBuf> = files.into_iter().map(PathBuf::from).collect();
    for name in directories.into_iter().take(MOST_DIRECTORIES) {
        let Some(directory) = open(top.as_raw_fd(), &name) else { continue };
        let (within, _) = entries(&directory, device);
        files.extend(within.into_iter().map(|file| Path::new(&name).join(file)));
    }
    files.sort_by_cached_key(|file| (file.components().count(), file.clone()));
    let first = real.join(files.first()?);
    let names = files.iter().take(TOLD).map(|file| shown::path(&Path::new("~").join(file)));
    let names = names.collect::<Vec<_>>().join(", ");
    let more = match files.len().saturating_sub(TOLD) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let grant = shown::option("--write", &first, false);
    let kept = match (first.symlink_metadata().is_ok(), files.len()) {
        (true, 1) => format!("{grant} keeps it"),
        (true, _) => format!("{grant} keeps the first"),
        (false, 1) => format!("to keep it, make it outside first, and grant it: {grant}"),
        (false, _) => format!("to keep the first, make it outside first, and grant it: {grant}"),
    };
    let kept = shown::line(&kept);
    Some(format!("gone with the run, as the home is private: {names}{more}; {kept}"))
}

/// The files and the directories in a directory, but for those that are hidden, of another file system, or anything else.
fn entries(directory: &OwnedFd, device: u64) -> (Vec<OsString>, Vec<OsString>) {
    let (mut files, mut directories) = (Vec::new(), Vec::new());
    let all = read_dir(through(directory)).into_iter().flatten().flatten().take(MOST_NAMES);
    for entry in all.filter(|entry| !entry.file_name().as_bytes().starts_with(b".")) {
        // Of a link it is the link's own.
        let own = |data: &Metadata| data.dev() == device;
        match entry.metadata().ok().filter(own) {
            // One that is empty holds nothing that could be gone.
            Some(data) if data.is_file() && data.len() > 0 => files.push(entry.file_name()),
            Some(data) if data.is_dir() => directories.push(entry.file_name()),
            _ => {}
        }
    }
    directories.sort();
    (files, directories)
}

/// A directory, and no link to one; nothing else is opened, so that nobody waits for it.
fn open(at: i32, name: &OsStr) -> Option<OwnedFd> {
    let name = CString::new(name.as_bytes()).ok()?;
    sys::fd::open_at(at, &name, DIRECTORY | NO_FOLLOW, 0).ok()
}
