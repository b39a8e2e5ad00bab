//! Puts a directory that a session packed (`tar`) at its place on the host.
//!
//! The program that packs is one inside: what it says may be anything, and the place may lie in a tree that
//! the sandbox writes to. So the archive is unpacked where nothing inside can reach, and from there only files,
//! directories and symbolic links go on, without set-user-ID and set-group-ID, into directories that are
//! opened without following links.

use crate::error::Fault;
use crate::heard::Heard;
use crate::held;
use ringfence_policy::host_program;
use ringfence_session::{arriving, live, outside};
use ringfence_sys::{self as sys, Errno};
use std::ffi::{CString, OsStr};
use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

/// As many things that are left out are named.
const TOLD: usize = 20;

/// What a mode may carry over.
const MODE: u32 = 0o777;

/// A directory of the user's own that no sandbox sees; gone with this.
pub struct Fresh(PathBuf, #[allow(dead_code, reason = "held for its lock")] fs::File);

impl Fresh {
    /// Makes it among ringfence's state.
    ///
    /// # Errors
    /// There is no place for it.
    pub fn make() -> Result<Fresh, Fault> {
        let none = "there is no home directory; set HOME, or XDG_STATE_HOME";
        let home = sys::identity::home().ok_or_else(|| Fault::usage(none))?;
        let all = ringfence_sandbox::state::directory(&home).map_err(Fault::usage)?.join("copies");
        let failed = |error| Fault::usage(format!("{}: {error}", all.display()));
        ringfence_sandbox::state::make_directory(&all).map_err(failed)?;
        held::tidy(&all, remove);
        held::make(&all).map(|(path, lock)| Fresh(path, lock)).map_err(failed)
    }

    /// Unpacks an archive there.
    ///
    /// # Errors
    /// tar(1) cannot be started.
    pub fn unpack(&self, archive: Stdio) -> Result<(ExitStatus, Heard), Fault> {
        let mut tar = host_program::command("tar").map_err(Fault::usage)?;
        // Times are another kernel's: a moment in the future is no news.
        tar.args(["--warning=no-timestamp", "--no-same-owner", "--no-same-permissions"]);
        tar.args(["-xf", "-", "-C"]).arg(&self.0).stdin(archive);
        let failed = |error| Fault::usage(format!("tar: {error}"));
        let mut tar = tar.stderr(Stdio::piped()).spawn().map_err(failed)?;
        let heard = Heard::of(&mut tar)?;
        let status = tar.wait().map_err(failed)?;
        // What is closed to its owner can be neither judged nor moved on.
        let failed =
            |(path, error): (PathBuf, _)| Fault::usage(format!("{}: {error}", shown(&path)));
        open_up(&self.0).map_err(failed)?;
        Ok((status, heard))
    }

    /// Takes away what a program of the host would run or trust by itself at its place, and says so.
    ///
    /// # Errors
    /// It cannot be judged, or not be taken away: then nothing may be copied.
    pub fn judge(&self, to: &Place, name: &OsStr) -> Result<(), Fault> {
        let home = sys::identity::home().unwrap_or_default();
        let homes = ringfence_policy::homes(sys::identity::user(), &home);
        let held = arriving::judge(&self.0, (&to.path, to.open.as_fd()), name, &homes);
        let held = held.map_err(|error| Fault::usage(error.to_string()))?;
        for (path, _) in &held {
            let path = self.0.join(path);
            let gone = match path.symlink_metadata() {
                Ok(data) if data.is_dir() => fs::remove_dir_all(&path),
                _ => fs::remove_file(&path),
            };
            gone.map_err(|error| Fault::usage(format!("{}: {error}", shown(&path))))?;
        }
        for (path, why) in held.iter().take(TOLD) {
            sys::say!("ringfence: not copied: {}: {why}", shown(path));
        }
        if let more @ 1.. = held.len().saturating_sub(TOLD) {
            sys::say!("ringfence: not copied: {more} more of the kind");
        }
        if !held.is_empty() {
            sys::say!(
                "ringfence: programs outside run or trust these by themselves; --with-protected copies them as well"
            );
        }
        Ok(())
    }

    /// Moves what is there to its place.
    ///
    /// # Errors
    /// Something is in the way, or the file system's; what was moved before stays.
    pub fn settle(&self, to: &Place, name: &OsStr) -> Result<(), Fault> {
        let target = to.path.join(name);
        let failed = |at: &Path, error| Fault::usage(format!("{}: {error}", shown(at)));
        let from = fs::File::open(&self.0).map_err(|error| failed(&self.0, error))?;
        let from = Place { open: from.into(), path: self.0.clone() };
        let into = to.directory(name, MODE).map_err(|error| failed(&target, error))?;
        merge(&from, &into).map_err(|(below, error)| failed(&target.join(below), error))
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

fn remove(path: &Path) {
    let _ = open_up(path);
    let _ = fs::remove_dir_all(path);
}

/// Gives the owner of directories, which nobody else can reach, all that can be done with them; the first of them, and
/// why, where that cannot be.
fn open_up(top: &Path) -> Result<(), (PathBuf, std::io::Error)> {
    let (mut left, mut failed) = (vec![top.to_owned()], Ok(()));
    while let Some(path) = left.pop() {
        match directories(&path) {
            Ok(inner) => left.extend(inner),
            Err(error) => failed = failed.and(Err((path, error))),
        }
    }
    failed
}

/// The same for one; those in it.
fn directories(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    const OWNER: u32 = 0o700;
    let mode = path.symlink_metadata()?.mode();
    if mode & OWNER != OWNER {
        fs::set_permissions(path, Permissions::from_mode(mode & MODE | OWNER))?;
    }
    let mut inner = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            inner.push(entry.path());
        }
    }
    Ok(inner)
}

/// A directory, through which names in it are reached whatever its path means by now.
pub struct Place {
    open: OwnedFd,
    /// Where it was found.
    pub path: PathBuf,
}

impl Place {
    /// The directory that something of a session's is to come to, made where there is none. Links on the way
    /// are the user's word, but for those that a program in a sandbox may have made, the session's or another.
    ///
    /// # Errors
    /// There is such a link; the file system's.
    pub fn of(session: &OsStr, directory: &Path) -> Result<Place, Fault> {
        let fault = |error: ringfence_session::SessionError| Fault::usage(error.to_string());
        let (known, _) = live::find(&session.to_string_lossy()).map_err(fault)?;
        let path =
            outside::real(&known, directory, &ringfence_sandbox::made_by_a_run).map_err(fault)?;
        let open = outside::directory_made(&path).map_err(fault)?;
        Ok(Place { open, path })
    }

    /// A name in it.
    pub fn at(&self, name: &OsStr) -> PathBuf {
        outside::at(&self.open, name)
    }

    /// A directory in it that is no link.
    fn enter(&self, name: &OsStr) -> std::io::Result<Place> {
        let path = self.path.join(name);
        let name = CString::new(name.as_bytes())?;
        match sys::fd::open_without_links(self.open.as_raw_fd(), &name, sys::fd::DIRECTORY) {
            Ok(open) => Ok(Place { open, path }),
            Err(Errno::ELOOP) => Err(std::io::Error::other("a symbolic link is in the way")),
            Err(Errno::ENOTDIR) => Err(std::io::Error::other("a file is in the way")),
            Err(errno) => Err(std::io::Error::from_raw_os_error(errno.into_raw())),
        }
    }

    /// The same, made where nothing is.
    fn directory(&self, name: &OsStr, mode: u32) -> std::io::Result<Place> {
        match fs::DirBuilder::new().mode(mode | 0o700).create(self.at(name)) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
            _ => self.enter(name),
        }
    }
}

/// Moves all that a directory holds into another one; the path below it that could not be.
fn merge(from: &Place, to: &Place) -> Result<(), (PathBuf, std::io::Error)> {
    let here = |error| (PathBuf::new(), error);
    for entry in fs::read_dir(from.at(OsStr::new("."))).map_err(here)? {
        let name = entry.map_err(here)?.file_name();
        let of = |error| (PathBuf::from(&name), error);
        let data = from.at(&name).symlink_metadata().map_err(of)?;
        if data.is_dir() {
            let inner = from.enter(&name).map_err(of)?;
            let into = to.directory(&name, data.mode() & MODE).map_err(of)?;
            merge(&inner, &into).map_err(|(below, error)| (Path::new(&name).join(below), error))?;
        } else if data.is_file() || data.is_symlink() {
            transfer(&from.at(&name), &to.at(&name), to, &data).map_err(of)?;
        } else {
            sys::say!(
                "ringfence: not copied, being neither a file nor a link: {}",
                shown(name.as_ref())
            );
        }
    }
    Ok(())
}

/// Moves a file or a link, which replaces a link rather than following it.
fn transfer(from: &Path, to: &Path, into: &Place, data: &fs::Metadata) -> std::io::Result<()> {
    if data.is_file() {
        fs::set_permissions(from, Permissions::from_mode(data.mode() & MODE))?;
    }
    // Each name is a file of its own: what is written by one of them later is not written to the others.
    if data.is_symlink() || data.nlink() == 1 {
        match fs::rename(from, to) {
            Err(error) if error.kind() == ErrorKind::CrossesDevices => {}
            done => return done,
        }
    }
    let part = into.at(format!(".ringfence-part-{}", std::process::id()).as_ref());
    let copied = if data.is_symlink() {
        std::os::unix::fs::symlink(fs::read_link(from)?, &part)
    } else {
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).open(&part).and_then(|mut file| {
            std::io::copy(&mut fs::File::open(from)?, &mut file)?;
            file.set_modified(data.modified()?)?;
            file.set_permissions(Permissions::from_mode(data.mode() & MODE))
        })
    };
    copied.and_then(|()| fs::rename(&part, to)).inspect_err(|_| {
        let _ = fs::remove_file(&part);
    })
}

fn shown(path: &Path) -> String {
    ringfence_policy::shown::path(path)
}
