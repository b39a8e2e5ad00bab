//! Where ringfence keeps things on the host, by the XDG base directory rules.

use crate::error::LaunchError;
use crate::plan::Plan;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// `$XDG_STATE_HOME/ringfence`, or `~/.local/state/ringfence`.
pub fn directory(home: &Path) -> PathBuf {
    match std::env::var_os("XDG_STATE_HOME").map(PathBuf::from) {
        Some(state) if state.is_absolute() => state.join("ringfence"),
        _ => home.join(".local/state/ringfence"),
    }
}

/// Where named homes are kept.
pub fn homes(home: &Path) -> PathBuf {
    directory(home).join("homes")
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

/// Where private directories are made: where `TMPDIR` says; in memory, where the host's
/// `/dev/shm` serves as `/tmp` would (removing a directory from a disk takes longer than making
/// the sandbox does); else in `/tmp`.
pub(crate) fn temporary() -> PathBuf {
    const MEMORY: &str = "/dev/shm";
    /// A container's is as small as 64 MiB.
    const ENOUGH: u64 = 1 << 30;
    if std::env::var_os("TMPDIR").is_some() {
        return std::env::temp_dir();
    }
    let path = Path::new(MEMORY);
    let serves = || {
        let data = path.symlink_metadata().ok()?;
        let for_all = data.is_dir() && data.mode() & 0o1777 == 0o1777;
        let usual = for_all && ringfence_sys::file::room_in_memory(c"/dev/shm")? >= ENOUGH;
        Some(usual)
    };
    if serves() == Some(true) { path.to_owned() } else { std::env::temp_dir() }
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

/// Removes what launchers that are gone left behind.
fn remove_dead(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.split('-').next()?.parse::<i32>().ok());
        if pid.is_some_and(|pid| {
            ringfence_sys::signal::kill(pid, 0) == Err(ringfence_sys::Errno::ESRCH)
        }) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Removes it. What the command left in it goes too; links are removed, not followed.
pub(crate) fn remove_private(path: &Path) {
    let _ = fs::remove_dir_all(path);
    if let Some(parent) = path.parent() {
        remove_dead(parent);
        // Only the last one out succeeds.
        let _ = fs::remove_dir(parent);
    }
}
