//! A writable tree whose writes go to a layer of its own: overlayfs, in the child's namespaces.
//!
//! Attributes of overlayfs are kept as the user's own (`userxattr`, Linux 5.11), which is what a
//! user namespace may write. With them the kernel makes no redirects and no copies of metadata
//! alone: each changed file is whole in the layer, and renaming a directory that is on the host is
//! `EXDEV`, for which `mv` and its kin copy.

use super::{Failure, c_string};
use ringfence_sys as sys;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use sys::mount::Attributes;
use sys::{Errno, describe};

/// Where an overlay is mounted for the moment in which a file of it is taken.
const ASIDE: &std::ffi::CStr = c".overlay";

/// The tree or file, attached nowhere yet. `apart` holds the directories `upper` and `work`.
pub(super) fn tree(
    path: &Path,
    directory: bool,
    apart: &Path,
    memory: BorrowedFd<'_>,
) -> Result<OwnedFd, Failure> {
    if !apart.is_absolute() {
        return Err(format!("no layer was made for the writes to {}", path.display()));
    }
    let at = |errno: Errno| failure(path, apart, errno);
    let (lower, name) = match (directory, path.parent(), path.file_name()) {
        (true, ..) => (path, None),
        (false, Some(parent), Some(name)) => (parent, Some(name)),
        (false, ..) => return Err(at(Errno::EISDIR)),
    };
    let open = |path: &Path| {
        let name = c_string(path)?;
        sys::fd::open_without_links(sys::fd::CWD, &name, sys::fd::PATH_ONLY).map_err(at)
    };
    let (lower, upper, work) =
        (open(lower)?, open(&apart.join("upper"))?, open(&apart.join("work"))?);
    // By descriptor: no name is looked up again, and none has to be quoted.
    let named = |fd: &OwnedFd| {
        CString::new(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap_or_default()
    };
    let (lower, upper, work) = (named(&lower), named(&upper), named(&work));
    let options = [
        (c"lowerdir", Some(lower.as_c_str())),
        (c"upperdir", Some(upper.as_c_str())),
        (c"workdir", Some(work.as_c_str())),
        (c"userxattr", None),
        (c"index", Some(c"off")),
    ];
    let attributes = Attributes::NO_SUID.and(Attributes::NO_DEVICES);
    let whole = sys::mount::new_file_system(c"overlay", &options, attributes).map_err(at)?;
    let Some(name) = name else { return Ok(whole) };
    // Only what is attached can be copied (before Linux 6.15).
    let name = CString::new(name.as_bytes()).unwrap_or_default();
    sys::mount::make_directory(memory, ASIDE, 0o700).map_err(at)?;
    sys::mount::attach(&whole, memory, ASIDE).map_err(at)?;
    let file = sys::mount::copy_tree(whole.as_fd(), &name, false, attributes).map_err(at);
    sys::mount::detach(whole.as_fd()).map_err(at)?;
    sys::mount::remove(memory, ASIDE, true).map_err(at)?;
    file
}

fn failure(path: &Path, apart: &Path, errno: Errno) -> Failure {
    let state = apart.display();
    let why = match errno {
        Errno::EINVAL => format!(
            "; another file system is mounted below it, or the one that holds {state} cannot hold \
             an overlay (one that is an overlay itself cannot; XDG_STATE_HOME names another)"
        ),
        Errno::ELOOP | Errno::EBUSY => format!("; {state} lies in it (XDG_STATE_HOME moves it)"),
        Errno::EPERM => "; unprivileged overlays need Linux 5.11".to_owned(),
        Errno::ENODEV => "; the kernel has no overlay file system (CONFIG_OVERLAY_FS)".to_owned(),
        _ => String::new(),
    };
    format!(
        "cannot keep writes to {} apart: {} ({errno:?}){why}; nothing was run, and nothing written",
        path.display(),
        describe(errno)
    )
}
