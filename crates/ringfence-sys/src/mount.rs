//! File systems, by the mount API of Linux 5.2. Launches make theirs by the steps of an image
//! (`ringfence-start`); here is what a probe needs.

use crate::fd::owned;
use crate::{Result, sys};
use std::ffi::CStr;
use std::os::fd::{AsRawFd, OwnedFd};

const FSCONFIG_CMD_CREATE: u32 = 6;

/// Makes a file system of its own, mounted nowhere.
///
/// # Errors
/// The failing call's: `EPERM` where the host hides parts of its `/proc` (containers).
pub fn new_file_system(kind: &CStr) -> Result<OwnedFd> {
    // SAFETY: `kind` is NUL-terminated; flag 1 is FSOPEN_CLOEXEC.
    let context = owned(unsafe { sys!(fsopen, kind.as_ptr(), 1) }?);
    let (raw, null) = (context.as_raw_fd(), std::ptr::null::<u8>());
    // SAFETY: the create command takes no operands.
    unsafe { sys!(fsconfig, raw, FSCONFIG_CMD_CREATE, null, null, 0) }?;
    // SAFETY: flag 1 is FSMOUNT_CLOEXEC; the rest are numbers.
    unsafe { sys!(fsmount, raw, 1, 0) }.map(owned)
}
