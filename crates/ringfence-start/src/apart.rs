//! The host's tree is let go of, by one process, while another one looks whether it is.

use crate::Result;
use crate::call::sys;
use crate::stamp::{AT_FDCWD, Looked, look};

/// Unmounts what `pivot_root(".", ".")` stacked on the root (pivot_root(2) NOTES). A path that ends in a mount
/// point means what is on top of it here (umount2(2)).
pub(crate) fn leave_host() -> Result<()> {
    const MNT_DETACH: usize = 2;
    // SAFETY: the path ends with a zero byte.
    unsafe { sys!(umount2, c"/".as_ptr(), MNT_DETACH) }.map(drop)
}

/// Whether that is done, as far as any path can tell: the parent of the root is the root, and nothing above it.
/// Not known before Linux 5.8, which does not tell mounts apart. Who does it has begun, or is about to.
pub(crate) fn has_left_host() -> bool {
    /// Some hundred microseconds.
    const TRIES: usize = 64;
    let (mut root, mut above) = (Looked::new(), Looked::new());
    let Ok(root) = look(&mut root, AT_FDCWD as i32, c"/".as_ptr().cast(), 0) else { return false };
    let Some(root) = root.mount() else { return false };
    let mut tries = 0;
    while tries < TRIES {
        match look(&mut above, AT_FDCWD as i32, c"/..".as_ptr().cast(), 0) {
            Ok(above) if above.mount() == Some(root) => return true,
            Ok(_) => core::hint::spin_loop(),
            Err(_) => return false,
        }
        tries += 1;
    }
    false
}
