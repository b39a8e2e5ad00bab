//! File systems, by the mount API of Linux 5.2. Launches make theirs by the steps of an image
//! (`ringfence-start`); here is what a probe needs, and a warden that makes one again.

use crate::fd::owned;
use crate::{Result, sys};
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Parts of `/proc` through which a process that is root could act on the kernel (the list of the container runtimes).
pub const PROC_OF_THE_KERNEL: [&str; 6] = ["asound", "bus", "fs", "irq", "sys", "sysrq-trigger"];

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

/// Attributes of a mount (`MOUNT_ATTR_*`, mount_setattr(2)).
pub mod attribute {
    /// Nothing in it can be changed.
    pub const READ_ONLY: u64 = 0x1;
    /// Nothing in it gives another identity.
    pub const NO_SUID: u64 = 0x2;
    /// Device nodes in it do not work.
    pub const NO_DEVICES: u64 = 0x4;
    /// Nothing in it can be executed.
    pub const NO_EXEC: u64 = 0x8;
}

/// A mount, attached nowhere yet, of a directory or a file that is empty and that nobody may open.
///
/// # Errors
/// The kernel's.
pub fn nothing(directory: bool) -> Result<OwnedFd> {
    const FSCONFIG_SET_STRING: u32 = 1;
    const CLOSED: u64 =
        attribute::READ_ONLY | attribute::NO_SUID | attribute::NO_DEVICES | attribute::NO_EXEC;
    let null = std::ptr::null::<u8>();
    // SAFETY: the name is a string; flag 1 is FSOPEN_CLOEXEC.
    let context = owned(unsafe { sys!(fsopen, c"tmpfs".as_ptr(), 1) }?);
    let raw = context.as_raw_fd();
    // SAFETY: key and value are strings; the create command takes no operands.
    unsafe {
        sys!(fsconfig, raw, FSCONFIG_SET_STRING, c"mode".as_ptr(), c"0".as_ptr(), 0)?;
        sys!(fsconfig, raw, FSCONFIG_CMD_CREATE, null, null, 0)?;
    }
    let attributes = if directory { CLOSED } else { CLOSED & !attribute::READ_ONLY };
    // SAFETY: flag 1 is FSMOUNT_CLOEXEC; the rest are numbers.
    let made = owned(unsafe { sys!(fsmount, raw, 1, attributes) }?);
    if directory {
        return Ok(made);
    }
    const NAME: &CStr = c"nothing";
    // SAFETY: the name is a string, the rest are numbers.
    unsafe { sys!(mknodat, made.as_raw_fd(), NAME.as_ptr(), libc::S_IFREG, 0) }?;
    let place = libc::O_PATH | libc::O_NOFOLLOW;
    let file = crate::fd::open_at(made.as_raw_fd(), NAME, place, 0)?;
    match copy(file.as_fd(), CLOSED) {
        // Only what is attached can be copied (before Linux 6.15): over the root, where for that moment `..` leads
        // to it, which nobody may search.
        Err(crate::Errno::EINVAL) => {}
        copied => return copied,
    }
    let root = crate::fd::open_at(libc::AT_FDCWD, c"/", libc::O_PATH, 0)?;
    attach(made.as_fd(), root.as_fd())?;
    let copied = copy(file.as_fd(), CLOSED);
    // A path that ends in a mount point means what is on top of it here (umount2(2)).
    // SAFETY: the path is a string.
    unsafe { sys!(umount2, c"/".as_ptr(), libc::MNT_DETACH) }?;
    copied
}

/// A copy of what is mounted at a place, with all below it, attached nowhere yet, with attributes added.
///
/// # Errors
/// The kernel's.
pub fn copy(place: BorrowedFd<'_>, attributes: u64) -> Result<OwnedFd> {
    const OPEN_TREE_CLONE: i32 = 1;
    const AT_RECURSIVE: i32 = 0x8000;
    let flags = OPEN_TREE_CLONE | libc::O_CLOEXEC | libc::AT_EMPTY_PATH | AT_RECURSIVE;
    // SAFETY: the path is an empty string.
    let tree = owned(unsafe { sys!(open_tree, place.as_raw_fd(), c"".as_ptr(), flags) }?);
    let setting = [attributes, 0, 0, 0];
    let (flags, size) = (libc::AT_EMPTY_PATH | AT_RECURSIVE, size_of_val(&setting));
    // SAFETY: the path is an empty string; `setting` has the layout and size of `struct mount_attr`.
    unsafe { sys!(mount_setattr, tree.as_raw_fd(), c"".as_ptr(), flags, setting.as_ptr(), size) }?;
    Ok(tree)
}

/// Attaches a mount on a place, a symbolic link itself too.
///
/// # Errors
/// The kernel's; `ENOENT` where the place has no name any more.
pub fn attach(mount: BorrowedFd<'_>, place: BorrowedFd<'_>) -> Result<()> {
    // MOVE_MOUNT_F_EMPTY_PATH, MOVE_MOUNT_T_EMPTY_PATH.
    const BOTH_THEMSELVES: u32 = 0x4 | 0x40;
    let empty = c"".as_ptr();
    // SAFETY: both paths are empty strings.
    unsafe { sys!(move_mount, mount.as_raw_fd(), empty, place.as_raw_fd(), empty, BOTH_THEMSELVES) }
        .map(drop)
}

fn stat(place: BorrowedFd<'_>) -> Result<libc::statx> {
    let mut room = std::mem::MaybeUninit::<libc::statx>::zeroed();
    let mask = libc::STATX_BASIC_STATS | libc::STATX_MNT_ID;
    let flags = libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: the path is an empty string; there is room for the answer.
    unsafe { sys!(statx, place.as_raw_fd(), c"".as_ptr(), flags, mask, room.as_mut_ptr()) }?;
    // SAFETY: numbers only, zeroed before.
    Ok(unsafe { room.assume_init() })
}

/// Takes the topmost mount on a path away, not that on what a link there leads to.
///
/// # Errors
/// The kernel's; `EINVAL` where nothing is mounted.
pub fn take_off(path: &CStr) -> Result<()> {
    let flags = libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW;
    // SAFETY: the path is a string.
    unsafe { sys!(umount2, path.as_ptr(), flags) }.map(drop)
}

/// The number of the mount that an open file is in.
///
/// # Errors
/// The kernel's; `ENOSYS` before Linux 5.8, which does not tell.
pub fn number(place: BorrowedFd<'_>) -> Result<u64> {
    let stat = stat(place)?;
    if stat.stx_mask & libc::STATX_MNT_ID == 0 {
        return Err(crate::Errno::ENOSYS);
    }
    Ok(stat.stx_mnt_id)
}

/// Whether an open file is a directory.
///
/// # Errors
/// The kernel's.
pub fn is_directory(place: BorrowedFd<'_>) -> Result<bool> {
    Ok(u32::from(stat(place)?.stx_mode) & libc::S_IFMT == libc::S_IFDIR)
}
