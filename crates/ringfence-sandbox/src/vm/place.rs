//! The directory of a machine's socket.

use super::machine::{name, remove_dead};
use ringfence_sys as sys;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What the names of such directories begin with; the launcher's process number follows.
const PREFIX: &str = "ringfence-vm-";
/// The socket in one.
pub(super) const SOCKET: &str = "line";

/// Makes one, in the directory of this user's session, else in the one for temporary files.
///
/// # Errors
/// A sentence.
pub(super) fn make() -> Result<PathBuf, String> {
    let user = sys::identity::user();
    let name = name(PREFIX);
    let fits = |parent: &Path| {
        parent.join(&name).join(SOCKET).as_os_str().as_bytes().len() <= sys::unix::LONGEST_PATH
    };
    let own = |path: &PathBuf| {
        path.is_absolute() && fits(path) && path.metadata().is_ok_and(|data| data.uid() == user)
    };
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(own);
    let parent = runtime.unwrap_or_else(std::env::temp_dir);
    let failed = |why: &str| {
        format!(
            "cannot make the virtual machine's directory in {}: {why}; set TMPDIR to a directory of \
             yours that has a short path",
            parent.display()
        )
    };
    if !fits(&parent) {
        let most = sys::unix::LONGEST_PATH;
        return Err(failed(&format!("a socket in it would have a path of more than {most} bytes")));
    }
    remove_dead(&parent, PREFIX);
    let path = parent.join(name);
    let made = fs::DirBuilder::new().mode(0o700).create(&path);
    made.map(|()| path).map_err(|error| failed(&error.to_string()))
}
