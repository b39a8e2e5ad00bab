//! Where ringfence keeps things on the host, by the XDG base directory rules.

use crate::error::LaunchError;
use crate::plan::Plan;
use crate::removal;
use ringfence_policy::kept::Kept;
use ringfence_sys::fd;
use std::ffi::{CString, OsStr};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// `$XDG_STATE_HOME/ringfence`, or `~/.local/state/ringfence`: for whatever is to be read, written or removed there.
///
/// # Errors
/// A sentence: others decide what lies there.
pub fn directory(home: &Path) -> Result<PathBuf, String> {
    Kept::State.own(home, crate::facts::user())
}

/// Where named homes are kept, whoever has that.
pub fn homes(home: &Path) -> PathBuf {
    Kept::State.path(home).join("homes")
}

/// Makes a directory and its parents for the user alone.
///
/// # Errors
/// The file system's.
pub fn make_directory(path: &Path) -> std::io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Makes a named home when it does not exist yet.
pub(crate) fn make_home(path: &Path) -> Result<(), LaunchError> {
    directory(&ringfence_sys::identity::home().unwrap_or_default()).map_err(LaunchError::Setup)?;
    make_directory(path).map_err(|error| {
        let errno = ringfence_sys::Errno::new(error.raw_os_error().unwrap_or(5));
        LaunchError::call(
            format!("mkdir({})", path.display()),
            errno,
            "--home cannot be kept there",
        )
    })
}

/// Stands for the launcher's process number in texts of an image.
pub(crate) const PID_MARK: &str = "\x01launcher";
/// Stands for the session's number in texts of an image.
pub(crate) const SESSION_MARK: &str = "\x01session";

/// The directory of a user's private directories, among those for temporary files.
pub(crate) fn private_name(user: u32) -> String {
    format!("ringfence-{user}")
}

/// Enough for what a command keeps there. A container's `/dev/shm` is as small as 64 MiB.
const ENOUGH: u64 = 1 << 30;

/// Where private directories are made: at the usual place, unless somebody else has the name
/// there already.
pub(crate) fn temporary() -> PathBuf {
    let (usual, user) = (usual(), crate::facts::user());
    let taken = match usual.join(private_name(user)).symlink_metadata() {
        Ok(data) => !data.is_dir() || data.uid() != user,
        Err(_) => false,
    };
    if taken { apart().unwrap_or(usual) } else { usual }
}

/// Where `TMPDIR` says; in memory, where the host's `/dev/shm` serves as `/tmp` would (removing a
/// directory from a disk takes longer than making the sandbox does); else in `/tmp`.
fn usual() -> PathBuf {
    const MEMORY: &str = "/dev/shm";
    // One that is empty, or means another place in each directory, says nothing.
    let said = std::env::var_os("TMPDIR").map(PathBuf::from);
    if let Some(said) = said.filter(|path| path.is_absolute()) {
        return said;
    }
    let path = Path::new(MEMORY);
    let serves = || {
        let data = path.symlink_metadata().ok()?;
        let for_all = data.is_dir() && data.mode() & 0o1777 == 0o1777;
        let usual = for_all && ringfence_sys::file::room_in_memory(c"/dev/shm")? >= ENOUGH;
        Some(usual)
    };
    if serves() == Some(true) { path.to_owned() } else { PathBuf::from("/tmp") }
}

/// A place where nobody else can take a name: `$XDG_RUNTIME_DIR`, where it serves as `/tmp` would,
/// else among ringfence's own.
pub(crate) fn apart() -> Option<PathBuf> {
    let variable = |name| {
        std::env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute())
    };
    let serves = |path: &PathBuf| {
        let name = CString::new(path.as_os_str().as_bytes()).ok();
        let room = name.and_then(|name| ringfence_sys::file::room_in_memory(&name));
        room.is_some_and(|room| room >= ENOUGH) && is_ours_alone(path)
    };
    let own =
        || variable("HOME").map(|home| Kept::State.path(&home)).filter(|path| is_ours_alone(path));
    variable("XDG_RUNTIME_DIR").filter(serves).or_else(own)
}

/// Whether nobody but the user and root can put something else in a path's place, or make names
/// there. What of it does not exist yet can be made by the user.
pub(crate) fn is_ours_alone(path: &Path) -> bool {
    const STICKY: u32 = 0o1000;
    let user = crate::facts::user();
    let holds = |path: &Path, owners: &[u32], sticky: u32| {
        path.metadata().is_ok_and(|data| {
            let closed = data.mode() & 0o022 == 0 || data.mode() & sticky != 0;
            data.is_dir() && closed && owners.contains(&data.uid())
        })
    };
    let Some(there) = path.ancestors().find(|path| path.symlink_metadata().is_ok()) else {
        return false;
    };
    let Ok(real) = there.canonicalize() else { return false };
    holds(&real, &[user], 0) && real.ancestors().skip(1).all(|path| holds(path, &[user, 0], STICKY))
}

/// A process tier's directory of a session, for the launcher: named for it, so that what a killed
/// launcher left is known.
pub(crate) fn private_path(plan: &Plan, session: &str) -> Option<PathBuf> {
    let launcher = std::process::id();
    plan.private.as_ref().map(|parent| parent.join(format!("{launcher:010}-{session}")))
}

/// The same, with marks for the numbers.
pub(crate) fn private_template(plan: &Plan) -> Option<PathBuf> {
    plan.private.as_ref().map(|parent| parent.join(format!("{PID_MARK}-{SESSION_MARK}")))
}

/// Makes the place of the private directories, where it is among ringfence's own.
pub(crate) fn make_apart(plan: &Plan) {
    let place = plan.private.as_ref().and_then(|parent| parent.parent());
    let own = std::env::var_os("HOME").map(|home| Kept::State.path(Path::new(&home)));
    if let Some(place) = place.filter(|place| own.as_deref() == Some(place)) {
        // Where it cannot be made, the launch says so.
        let _ = make_directory(place);
    }
}

/// Removes it. What the command left in it goes too; links are removed, not followed. Where somebody
/// else has the parent's name, or a link is there, nothing is touched: the launch was refused.
pub(crate) fn remove_private(path: &Path) {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return };
    // Where no descriptor is to be had to look into it, it may be empty all the same: the launch came no further.
    let user = crate::facts::user();
    let own = parent.symlink_metadata().is_ok_and(|data| data.is_dir() && data.uid() == user);
    if let Some(directory) = own_directory(parent) {
        // By the descriptor: who may write beside the parent could put a link in its place meanwhile.
        let place = fd::through(&directory);
        removal::remove(&place.join(name));
        remove_dead(&place);
    }
    if own {
        // Only the last one out succeeds.
        let _ = fs::remove_dir(parent);
    }
}

/// Opens a directory of the user's own, and no link to one.
fn own_directory(path: &Path) -> Option<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let flags = fd::DIRECTORY | fd::NO_FOLLOW;
    let directory = fd::open_at(fd::CWD, &path, flags, 0).ok()?;
    let (owner, _) = ringfence_sys::file::owner_and_mode(directory.as_fd()).ok()?;
    (owner == crate::facts::user()).then_some(directory)
}

/// Removes what launchers that are gone left behind.
fn remove_dead(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let dead = launcher(&entry.file_name()).is_some_and(|pid| {
            ringfence_sys::signal::kill(pid, 0) == Err(ringfence_sys::Errno::ESRCH)
        });
        if dead {
            removal::remove(&entry.path());
        }
    }
}

/// Whose a private directory is, by its name.
fn launcher(name: &OsStr) -> Option<i32> {
    let (pid, session) = name.to_str()?.split_once('-')?;
    let is_hex = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    let ours = pid.len() == 10 && session.len() == 8 && session.bytes().all(is_hex);
    ours.then(|| pid.parse().ok())?
}
