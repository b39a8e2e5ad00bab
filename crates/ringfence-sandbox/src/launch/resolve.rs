//! Finds the command, in the sandbox's own view, without executing anything on the way.

use ringfence_sys as sys;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use sys::Errno;

/// `execvp(3)`'s default where `PATH` is unset.
const DEFAULT: &[u8] = b"/usr/local/bin:/usr/bin:/bin";

/// The directories of `PATH` in the command's environment.
pub(crate) fn search_path(environment: &[CString]) -> Vec<PathBuf> {
    let path = environment.iter().find_map(|entry| entry.as_bytes().strip_prefix(b"PATH="));
    path.unwrap_or(DEFAULT)
        .split(|&byte| byte == b':')
        // An empty entry means the current directory, as in execvp(3).
        .map(|entry| if entry.is_empty() { b".".as_slice() } else { entry })
        .map(|entry| PathBuf::from(OsStr::from_bytes(entry)))
        .collect()
}

/// Why nothing can be executed: the message and whether something was there.
pub(crate) struct Unresolved {
    pub message: String,
    pub found: bool,
}

/// The file that the command names.
pub(crate) fn command(
    name: &OsString,
    search: &[PathBuf],
    workdir: &Path,
) -> Result<CString, Unresolved> {
    let shown = name.display();
    let direct = [PathBuf::new()];
    let named = name.as_bytes().contains(&b'/');
    let candidates = if named { &direct[..] } else { search };
    let mut refused = None;
    for directory in candidates {
        if name.is_empty() {
            break;
        }
        let path = workdir.join(directory).join(name);
        let Ok(path) = CString::new(path.into_os_string().as_bytes()) else { continue };
        match sys::process::may_execute(&path) {
            Ok(()) => return Ok(path),
            Err(Errno::EACCES) => refused = refused.or(Some(path)),
            Err(_) => {}
        }
    }
    match refused {
        Some(path) => Err(Unresolved {
            message: format!(
                "cannot execute {}: permission denied (it is not executable, or not granted)",
                path.to_string_lossy()
            ),
            found: true,
        }),
        None if named => Err(Unresolved {
            message: format!(
                "command not found: {shown} does not exist in the sandbox (ringfence why -- exec {shown} says whether it is granted)"
            ),
            found: false,
        }),
        None => Err(Unresolved {
            message: format!(
                "command not found: {shown} is in no directory of PATH that the sandbox can see"
            ),
            found: false,
        }),
    }
}
