//! The host's tree is let go of, by one process, while another one looks whether it is.

use crate::call::sys;
use crate::stamp::{AT_FDCWD, Looked, look};
use crate::{Errno, Result};
use core::ffi::CStr;

/// Unmounts what `pivot_root(".", ".")` stacked on the root (pivot_root(2) NOTES). A path that ends in a mount
/// point means what is on top of it here (umount2(2)).
///
/// # Errors
/// Those of `umount2(2)`; `EBUSY` where something lies over the root still: no command is to see that.
pub(crate) fn leave_host() -> Result<()> {
    const MNT_DETACH: usize = 2;
    // SAFETY: the path ends with a zero byte.
    unsafe { sys!(umount2, c"/".as_ptr(), MNT_DETACH) }?;
    match (mount(c"/"), mount(c"/..")) {
        (Some(root), Some(above)) if root != above => Err(Errno::EBUSY),
        _ => Ok(()),
    }
}

/// The number of the mount that a path leads to; not known before Linux 5.8, which does not tell mounts apart.
fn mount(path: &CStr) -> Option<u64> {
    let mut looked = Looked::new();
    look(&mut looked, AT_FDCWD as i32, path.as_ptr().cast(), 0).ok()?.mount()
}

/// Whether that is done, as far as any path can tell: the parent of the root is the root, and nothing above it.
/// Not known before Linux 5.8, which does not tell mounts apart. Who does it has begun, or is about to.
pub(crate) fn has_left_host() -> bool {
    /// Some hundred microseconds.
    const TRIES: usize = 64;
    let Some(root) = mount(c"/") else { return false };
    let mut tries = 0;
    while tries < TRIES {
        match mount(c"/..") {
            Some(above) if above == root => return true,
            Some(_) => core::hint::spin_loop(),
            None => return false,
        }
        tries += 1;
    }
    false
}
