//! Where ringfence keeps things on the host, by the XDG base directory rules.

use crate::error::LaunchError;
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

/// Where the process tier's directory of a session is: below one of the user's own in the
/// directory for temporary files, named for the launcher, so that what a killed launcher left
/// is known.
pub(crate) fn private_path(session: &str) -> PathBuf {
    let user = ringfence_sys::identity::user();
    let name = format!("{}-{session}", std::process::id());
    std::env::temp_dir().join(format!("ringfence-{user}")).join(name)
}

/// Makes the process tier's directory (`home`, `tmp`), with links to what home shows, and
/// removes those of launchers that are gone.
///
/// # Errors
/// The file system's; a directory of the user's name that is not the user's.
pub(crate) fn make_private(path: &Path, links: &[(PathBuf, PathBuf)]) -> std::io::Result<()> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    loop {
        make_parent(parent)?;
        match fs::DirBuilder::new().mode(0o700).create(path) {
            // The last sandbox that ended took the parent with it.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            other => break other?,
        }
    }
    fs::create_dir(path.join("tmp"))?;
    let home = path.join("home");
    fs::create_dir(&home)?;
    for (name, target) in links {
        let link = home.join(name);
        if let Some(parent) = link.parent() {
            fs::create_dir_all(parent)?;
        }
        std::os::unix::fs::symlink(target, link)?;
    }
    Ok(())
}

/// Makes the user's directory, or makes sure that what is there is the user's.
fn make_parent(parent: &Path) -> std::io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(parent) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        other => return other,
    }
    match parent.symlink_metadata() {
        Ok(data) if data.is_dir() && data.uid() == ringfence_sys::identity::user() => {
            remove_dead(parent);
            Ok(())
        }
        Ok(_) => {
            let why = format!("{} is not a directory of this user's", parent.display());
            Err(std::io::Error::other(why))
        }
        // Removed meanwhile: the next try makes it.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

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
        // Only the last one out succeeds.
        let _ = fs::remove_dir(parent);
    }
}
