//! Where ringfence keeps snapshots and sessions, by the XDG base directory rules.

use crate::error::{Result, SessionError};
use crate::ledger;
use ringfence_policy::kept::Kept;
use ringfence_policy::own::LEARNING;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// `$XDG_STATE_HOME/ringfence`, or `~/.local/state/ringfence`.
///
/// # Errors
/// There is no home directory; others decide what lies there.
pub fn state() -> Result<PathBuf> {
    let given = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    // A home that does not exist is not ours to make.
    let home = ringfence_sys::identity::home().filter(|home| home.is_absolute() && home.is_dir());
    if home.is_none() && !given.is_some_and(|state| state.is_absolute()) {
        let none = "there is no home directory; set HOME, or XDG_STATE_HOME";
        return Err(SessionError::usage(none));
    }
    let (home, user) = (home.unwrap_or_default(), ringfence_sys::identity::user());
    Kept::State.own(&home, user).map_err(SessionError::usage)
}

/// The directory of all sessions.
///
/// # Errors
/// There is no home directory.
pub fn sessions() -> Result<PathBuf> {
    Ok(learning().map_or_else(state, Ok)?.join("sessions"))
}

/// The directory, in the state's, in which each run that is watched by `learn` has one.
pub const LEARN: &str = "learn";

/// The one in which this run is to keep its session.
pub fn learning() -> Option<PathBuf> {
    std::env::var_os(LEARNING).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// The directory, among those of sessions, that holds a link for each name.
pub(crate) const NAMES: &str = "by-name";

/// A name that is one harmless file name, and cannot be taken for an option.
///
/// # Errors
/// It is none.
pub fn check_name(name: &str) -> Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if begins && name.len() <= 64 && name.chars().all(plain) && name != "latest" {
        return Ok(());
    }
    Err(SessionError::usage(format!(
        "--name {name:?}: a name is up to 64 letters, digits, '-', '_' and '.', begins with a letter \
         or a digit, and is not \"latest\""
    )))
}

/// The file, among the links, that is locked while one of them is looked at and changed. Its lock ends with who holds it.
const LOCK: &str = ".lock";

fn locked(names: &Path) -> std::io::Result<File> {
    let mut options = File::options();
    let lock = options.read(true).append(true).create(true).mode(0o600).open(names.join(LOCK))?;
    while let Err(error) = flock(&lock, FlockOperation::LockExclusive) {
        if error != Errno::INTR {
            return Err(error.into());
        }
    }
    Ok(lock)
}

/// The session that a name leads to.
fn leads_to(link: &Path) -> Option<OsString> {
    Some(std::fs::read_link(link).ok()?.file_name()?.to_owned())
}

/// Names a session that lives: from now on the name leads to its directory. Returns the link.
///
/// # Errors
/// It is no name; another session that lives has it.
pub(crate) fn name(sessions: &Path, name: &str, directory: &Path) -> Result<PathBuf> {
    check_name(name)?;
    let names = sessions.join(NAMES);
    let link = names.join(name);
    let id = directory.file_name().unwrap_or_default();
    let target = Path::new("..").join(id);
    let mut beside = OsString::from(".");
    beside.push(id);
    let beside = names.join(beside);
    let failed = |error| SessionError::call("symlink", &link, error);
    // Of several that begin at once, one finds it free.
    let lock = match locked(&names) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            private_directory(&names)?;
            locked(&names)
        }
        other => other,
    };
    let _lock = lock.map_err(|error| SessionError::call("flock", &names.join(LOCK), error))?;
    let held = leads_to(&link).filter(|other| other != id);
    if let Some(other) = held.filter(|other| ledger::live(&sessions.join(other))) {
        let id = other.to_string_lossy().into_owned();
        return Err(SessionError::Taken { name: name.to_owned(), id });
    }
    std::os::unix::fs::symlink(&target, &beside).map_err(failed)?;
    // In place of an ended session's, in one step.
    std::fs::rename(&beside, &link).map_err(failed)?;
    Ok(link)
}

/// Removes a name, unless it leads to another session by now.
pub(crate) fn forget_name(link: &Path, directory: &Path) {
    // Without the lock, another session's could take its place between the look and the act.
    let _lock = link.parent().and_then(|names| locked(names).ok());
    if leads_to(link).as_deref() == directory.file_name() {
        let _ = std::fs::remove_file(link);
    }
}

/// Removes the names of a session that was removed.
pub(crate) fn forget_names(directory: &Path) {
    let Some(sessions) = directory.parent() else { return };
    for link in std::fs::read_dir(sessions.join(NAMES)).into_iter().flatten().flatten() {
        // Most lead elsewhere, and need no lock.
        if leads_to(&link.path()).as_deref() == directory.file_name() {
            forget_name(&link.path(), directory);
        }
    }
}

/// The directory that holds the snapshots of a workspace. Its name holds a hash of the
/// workspace's path, so that two workspaces never share one.
///
/// # Errors
/// There is no home directory.
pub fn snapshots(workspace: &Path) -> Result<PathBuf> {
    let hash = blake3::hash(workspace.as_os_str().as_bytes()).to_hex();
    let name = workspace.file_name().unwrap_or_default().to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let name: String = name.chars().filter(|&c| plain(c)).take(24).collect();
    Ok(state()?.join("snapshots").join(format!("{name}-{}", &hash[..24])))
}

/// A directory that is removed while one is made in it is made again so often.
const TRIES: usize = 16;

/// Makes a directory and its parents for the user alone, and refuses one that others could
/// have prepared.
///
/// # Errors
/// The file system's; the directory belongs to somebody else or is open to others.
pub fn private_directory(path: &Path) -> Result<()> {
    let failed = |error| SessionError::call("mkdir", path, error);
    let make = || std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    let mut made = make();
    for _ in 1..TRIES {
        match made {
            // Another ringfence removes directories above that are empty.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => made = make(),
            _ => break,
        }
    }
    made.map_err(failed)?;
    let found = std::fs::symlink_metadata(path).map_err(failed)?;
    let own = rustix::process::geteuid().as_raw();
    if !found.is_dir() || found.uid() != own {
        return Err(SessionError::usage(format!(
            "{} is no directory of yours; ringfence keeps private data there: remove it",
            path.display()
        )));
    }
    if found.mode() & 0o077 != 0 {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o700)).map_err(failed)?;
    }
    Ok(())
}

/// Has what is made in a directory lie apart from each other on the disk (`chattr +T`, ext4 alone), for what is removed soon:
/// without a journal ext4 gives no number of a file again for a while, and whatever makes one near by looks at each such
/// one first (`recently_deleted` in fs/ext4/ialloc.c). Where it cannot be had it is only slower.
pub fn spread(directory: &Path) {
    use rustix::fs::{IFlags, Mode, OFlags};
    let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(open) = rustix::fs::open(directory, how, Mode::empty()) else { return };
    if let Ok(flags) = rustix::fs::ioctl_getflags(&open)
        && !flags.contains(IFlags::TOPDIR)
    {
        let _ = rustix::fs::ioctl_setflags(&open, flags | IFlags::TOPDIR);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    /// As `gc` does beside a first run, fewer times than there are tries.
    #[test]
    fn a_directory_is_made_though_the_one_above_is_removed_when_it_is_empty() {
        let top = tempfile::tempdir().unwrap();
        let (above, done) = (top.path().join("sessions"), AtomicBool::new(false));
        let left = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    if left.load(Ordering::Acquire) > 0 && std::fs::remove_dir(&above).is_ok() {
                        left.fetch_sub(1, Ordering::Release);
                    }
                }
            });
            let made = (0..2000).try_for_each(|number| {
                left.store(TRIES / 2, Ordering::Release);
                let path = above.join(number.to_string());
                private_directory(&path)?;
                std::fs::remove_dir(&path)
                    .map_err(|error| SessionError::call("rmdir", &path, error))
            });
            done.store(true, Ordering::Relaxed);
            made.unwrap();
        });
    }
}
