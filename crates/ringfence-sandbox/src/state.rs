//! Where ringfence keeps things on the host, by the XDG base directory rules.

use crate::error::LaunchError;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
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

/// Makes the process tier's directory (`home`, `tmp`), with links to what home shows.
pub(crate) fn make_private(
    session: &str,
    links: &[(PathBuf, PathBuf)],
) -> Result<PathBuf, LaunchError> {
    let path = std::env::temp_dir().join(format!("ringfence-{session}"));
    let failed = |error: std::io::Error| {
        let errno = ringfence_sys::Errno::new(error.raw_os_error().unwrap_or(5));
        let advice = "TMPDIR must name a directory that can be written";
        LaunchError::call(format!("mkdir({})", path.display()), errno, advice)
    };
    // Not recursive: somebody else's directory of that name is an error.
    fs::DirBuilder::new().mode(0o700).create(&path).map_err(failed)?;
    let made = (|| {
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
    })();
    if made.is_err() {
        remove_private(&path);
    }
    made.map_err(failed).map(|()| path)
}

/// Removes it. What the command left in it goes too; links are removed, not followed.
pub(crate) fn remove_private(path: &Path) {
    let _ = fs::remove_dir_all(path);
}
