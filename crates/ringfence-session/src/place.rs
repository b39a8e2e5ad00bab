//! Where ringfence keeps snapshots and sessions, by the XDG base directory rules.

use crate::error::{Result, SessionError};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// `$XDG_STATE_HOME/ringfence`, or `~/.local/state/ringfence`.
///
/// # Errors
/// There is no home directory.
pub fn state() -> Result<PathBuf> {
    let given = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    if let Some(state) = given.filter(|state| state.is_absolute()) {
        return Ok(state.join("ringfence"));
    }
    // A home that does not exist is not ours to make.
    let home = ringfence_sys::identity::home().filter(|home| home.is_absolute() && home.is_dir());
    home.map(|home| home.join(".local/state/ringfence")).ok_or_else(|| {
        SessionError::usage("there is no home directory; set HOME, or XDG_STATE_HOME")
    })
}

/// The directory of all sessions.
///
/// # Errors
/// There is no home directory.
pub fn sessions() -> Result<PathBuf> {
    Ok(state()?.join("sessions"))
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

/// Names a session: from now on the name leads to its directory. Returns the link.
pub(crate) fn name(sessions: &Path, name: &str, directory: &Path) -> Result<PathBuf> {
    check_name(name)?;
    let names = sessions.join(NAMES);
    let link = names.join(name);
    let id = directory.file_name().unwrap_or_default();
    let target = Path::new("..").join(id);
    let mut beside = std::ffi::OsString::from(".");
    beside.push(id);
    let beside = names.join(beside);
    let failed = |error| SessionError::call("symlink", &link, error);
    match std::os::unix::fs::symlink(&target, &beside) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            private_directory(&names)?;
            std::os::unix::fs::symlink(&target, &beside).map_err(failed)?;
        }
        other => other.map_err(failed)?,
    }
    // In place of an ended session's, in one step.
    std::fs::rename(&beside, &link).map_err(failed)?;
    Ok(link)
}

/// Removes a name, unless it leads to another session by now.
pub(crate) fn forget_name(link: &Path, directory: &Path) {
    let id = directory.file_name().unwrap_or_default();
    if std::fs::read_link(link).is_ok_and(|target| target == Path::new("..").join(id)) {
        let _ = std::fs::remove_file(link);
    }
}

/// Removes the names of a session that was removed.
pub(crate) fn forget_names(directory: &Path) {
    let Some(sessions) = directory.parent() else { return };
    for link in std::fs::read_dir(sessions.join(NAMES)).into_iter().flatten().flatten() {
        forget_name(&link.path(), directory);
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

/// Makes a directory and its parents for the user alone, and refuses one that others could
/// have prepared.
///
/// # Errors
/// The file system's; the directory belongs to somebody else or is open to others.
pub fn private_directory(path: &Path) -> Result<()> {
    let failed = |error| SessionError::call("mkdir", path, error);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
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
