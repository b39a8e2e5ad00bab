//! Mounts, by the API of Linux 5.2 (`fsopen`, `open_tree`, `move_mount`, `mount_setattr`):
//! descriptors instead of paths, and a whole tree made read-only in one call.

use crate::fd::{CWD, owned};
use crate::{Result, sys};
use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Attributes of a mount (`MOUNT_ATTR_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes(u64);

impl Attributes {
    /// No attribute.
    pub const NONE: Attributes = Attributes(0);
    /// Read-only.
    pub const READ_ONLY: Attributes = Attributes(0x1);
    /// Set-user-ID bits have no effect.
    pub const NO_SUID: Attributes = Attributes(0x2);
    /// Device nodes cannot be opened.
    pub const NO_DEVICES: Attributes = Attributes(0x4);
    /// Nothing can be executed.
    pub const NO_EXEC: Attributes = Attributes(0x8);

    /// Both.
    #[must_use]
    pub fn and(self, other: Attributes) -> Attributes {
        Attributes(self.0 | other.0)
    }
}

const FSCONFIG_SET_FLAG: u32 = 0;
const FSCONFIG_SET_STRING: u32 = 1;
const FSCONFIG_CMD_CREATE: u32 = 6;
const MOVE_MOUNT_F_EMPTY_PATH: u32 = 0x4;
const OPEN_TREE_CLONE: u32 = 1;

/// One option of a file system: a flag, or a key with its value.
pub type FsOption<'a> = (&'a CStr, Option<&'a CStr>);

/// Makes a file system of its own, mounted nowhere yet.
///
/// # Errors
/// The failing call's: `EPERM` where the host hides parts of its `/proc` (containers).
pub fn new_file_system(
    kind: &CStr,
    options: &[FsOption<'_>],
    attributes: Attributes,
) -> Result<OwnedFd> {
    // SAFETY: `kind` is NUL-terminated; flag 1 is FSOPEN_CLOEXEC.
    let context = owned(unsafe { sys!(fsopen, kind.as_ptr(), 1) }?);
    let raw = context.as_raw_fd();
    let null = std::ptr::null::<u8>();
    for (key, value) in options {
        let (command, value) = match value {
            Some(value) => (FSCONFIG_SET_STRING, value.as_ptr().cast()),
            None => (FSCONFIG_SET_FLAG, null),
        };
        // SAFETY: key and value are NUL-terminated, or null where the command wants none.
        unsafe { sys!(fsconfig, raw, command, key.as_ptr(), value, 0) }?;
    }
    // SAFETY: the create command takes no operands.
    unsafe { sys!(fsconfig, raw, FSCONFIG_CMD_CREATE, null, null, 0) }?;
    // SAFETY: flag 1 is FSMOUNT_CLOEXEC; the rest are numbers.
    unsafe { sys!(fsmount, raw, 1, attributes.0) }.map(owned)
}

/// A private copy of what is mounted at a path (with everything mounted below it), attached
/// nowhere yet, its attributes set on the whole of it.
///
/// # Errors
/// `ENOENT` when there is nothing, `EINVAL` for a tree that must not be copied.
pub fn copy_tree(
    dir: BorrowedFd<'_>,
    path: &CStr,
    recursive: bool,
    attributes: Attributes,
) -> Result<OwnedFd> {
    let mut flags = OPEN_TREE_CLONE | libc::O_CLOEXEC as u32 | libc::AT_SYMLINK_NOFOLLOW as u32;
    if path.is_empty() {
        flags |= libc::AT_EMPTY_PATH as u32;
    }
    if recursive {
        flags |= libc::AT_RECURSIVE as u32;
    }
    // SAFETY: `path` is NUL-terminated.
    let tree = owned(unsafe { sys!(open_tree, dir.as_raw_fd(), path.as_ptr(), flags) }?);
    if attributes != Attributes::NONE {
        set_attributes(&tree, attributes, recursive)?;
    }
    Ok(tree)
}

/// Adds attributes to a mount, with `recursive` to all below it (`mount_setattr(2)`, Linux 5.12).
///
/// # Errors
/// The kernel's.
pub fn set_attributes(mount: &OwnedFd, attributes: Attributes, recursive: bool) -> Result<()> {
    let attr =
        libc::mount_attr { attr_set: attributes.0, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    let (path, size) = (c"".as_ptr(), size_of::<libc::mount_attr>());
    // SAFETY: `attr` has the size given and outlives the call.
    unsafe { sys!(mount_setattr, mount.as_raw_fd(), path, flags, &raw const attr, size) }.map(drop)
}

/// Attaches a mount at a path, which is not followed when it is a symbolic link.
///
/// # Errors
/// `ENOENT`, `ENOTDIR` (a directory over a file, or the reverse).
pub fn attach(mount: &OwnedFd, dir: BorrowedFd<'_>, path: &CStr) -> Result<()> {
    let mut flags = MOVE_MOUNT_F_EMPTY_PATH;
    if path.is_empty() {
        flags |= 0x40; // MOVE_MOUNT_T_EMPTY_PATH
    }
    let empty = c"".as_ptr();
    // SAFETY: both paths are NUL-terminated.
    unsafe { sys!(move_mount, mount.as_raw_fd(), empty, dir.as_raw_fd(), path.as_ptr(), flags) }
        .map(drop)
}

/// Stops mounts made here from showing in any other namespace, and the reverse
/// (`MS_REC | MS_PRIVATE` on `/`).
///
/// # Errors
/// `EPERM` without a mount namespace of one's own.
pub fn make_private() -> Result<()> {
    let flags = libc::MS_REC | libc::MS_PRIVATE;
    let (none, root) = (c"none".as_ptr(), c"/".as_ptr());
    let null = std::ptr::null::<u8>();
    // SAFETY: strings are NUL-terminated; a propagation change ignores the rest.
    unsafe { sys!(mount, none, root, null, flags, null) }.map(drop)
}

/// Makes the mount behind `root` the root directory, and lets go of the former one: afterwards
/// nothing of the host's tree can be named that was not put into the new one.
///
/// # Errors
/// `EINVAL` when the caller's root is not a mount point.
pub fn change_root(root: BorrowedFd<'_>) -> Result<()> {
    let dot = c".".as_ptr();
    // SAFETY: takes a descriptor.
    unsafe { sys!(fchdir, root.as_raw_fd()) }?;
    // pivot_root(".", "."), see pivot_root(2) NOTES: the old root is stacked on the new one
    // at the same place, and the unmount takes the one on top.
    // SAFETY: NUL-terminated literals.
    unsafe { sys!(pivot_root, dot, dot) }?;
    // SAFETY: a NUL-terminated literal.
    unsafe { sys!(umount2, dot, libc::MNT_DETACH) }?;
    // SAFETY: a NUL-terminated literal.
    unsafe { sys!(chdir, c"/".as_ptr()) }.map(drop)
}

/// Takes a mount out of the tree (`MNT_DETACH`); copies of it stay.
///
/// # Errors
/// `EINVAL` when there is no mount.
pub fn detach(mount: BorrowedFd<'_>) -> Result<()> {
    let path = format!("/proc/self/fd/{}\0", mount.as_raw_fd());
    // SAFETY: a NUL-terminated string.
    unsafe { sys!(umount2, path.as_ptr(), libc::MNT_DETACH) }.map(drop)
}

/// `mkdirat(2)`.
///
/// # Errors
/// The kernel's; one that exists already is none.
pub fn make_directory(dir: BorrowedFd<'_>, path: &CStr, mode: u32) -> Result<()> {
    // SAFETY: `path` is NUL-terminated.
    match unsafe { sys!(mkdirat, dir.as_raw_fd(), path.as_ptr(), mode) } {
        Ok(_) | Err(crate::Errno::EEXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Makes an empty file.
///
/// # Errors
/// The kernel's; one that exists already is none.
pub fn make_file(dir: BorrowedFd<'_>, path: &CStr, mode: u32) -> Result<()> {
    let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: `path` is NUL-terminated.
    unsafe { sys!(openat, dir.as_raw_fd(), path.as_ptr(), flags, mode) }.map(owned).map(drop)
}

/// `symlinkat(2)`.
///
/// # Errors
/// The kernel's.
pub fn make_symlink(target: &CStr, dir: BorrowedFd<'_>, path: &CStr) -> Result<()> {
    // SAFETY: both are NUL-terminated.
    unsafe { sys!(symlinkat, target.as_ptr(), dir.as_raw_fd(), path.as_ptr()) }.map(drop)
}

/// Removes a name: a file, or with `directory` an empty directory.
///
/// # Errors
/// The kernel's.
pub fn remove(dir: BorrowedFd<'_>, path: &CStr, directory: bool) -> Result<()> {
    let flags = if directory { libc::AT_REMOVEDIR } else { 0 };
    // SAFETY: `path` is NUL-terminated.
    unsafe { sys!(unlinkat, dir.as_raw_fd(), path.as_ptr(), flags) }.map(drop)
}

/// A handle to a path, for naming it in later calls (`O_PATH`, last link not followed).
///
/// # Errors
/// The kernel's.
pub fn handle(path: &CStr) -> Result<OwnedFd> {
    crate::fd::open_at(CWD, path, libc::O_PATH | libc::O_NOFOLLOW, 0)
}
