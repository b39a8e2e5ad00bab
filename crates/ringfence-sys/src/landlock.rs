//! Landlock (landlock(7)): rules that the kernel checks on each open, for the process and all
//! it starts, and that can only ever be tightened.

use crate::fd::owned;
use crate::{Result, sys};
use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// File rights (`LANDLOCK_ACCESS_FS_*`).
pub mod access {
    /// Execute a file.
    pub const EXECUTE: u64 = 1;
    /// Open a file for writing.
    pub const WRITE_FILE: u64 = 1 << 1;
    /// Open a file for reading.
    pub const READ_FILE: u64 = 1 << 2;
    /// List a directory.
    pub const READ_DIR: u64 = 1 << 3;
    /// Remove a directory.
    pub const REMOVE_DIR: u64 = 1 << 4;
    /// Unlink a file.
    pub const REMOVE_FILE: u64 = 1 << 5;
    /// Make a character device.
    pub const MAKE_CHAR: u64 = 1 << 6;
    /// Make a directory.
    pub const MAKE_DIR: u64 = 1 << 7;
    /// Make a regular file.
    pub const MAKE_REG: u64 = 1 << 8;
    /// Bind a Unix socket.
    pub const MAKE_SOCK: u64 = 1 << 9;
    /// Make a FIFO.
    pub const MAKE_FIFO: u64 = 1 << 10;
    /// Make a block device.
    pub const MAKE_BLOCK: u64 = 1 << 11;
    /// Make a symbolic link.
    pub const MAKE_SYM: u64 = 1 << 12;
    /// Link or rename across directories (ABI 2).
    pub const REFER: u64 = 1 << 13;
    /// Truncate (ABI 3).
    pub const TRUNCATE: u64 = 1 << 14;
    /// Control a device (ABI 5).
    pub const IOCTL_DEV: u64 = 1 << 15;

    /// What can be granted for a file that is no directory.
    pub const FILE: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;

    /// All file rights that an ABI knows.
    pub fn known(abi: u32) -> u64 {
        match abi {
            0 => 0,
            1 => (1 << 13) - 1,
            2 => (1 << 14) - 1,
            3 | 4 => (1 << 15) - 1,
            _ => (1 << 16) - 1,
        }
    }
}

/// Binding a TCP port (ABI 4).
pub const BIND_TCP: u64 = 1;
/// Connecting to a TCP port (ABI 4).
pub const CONNECT_TCP: u64 = 2;
/// Abstract Unix sockets stay within the domain (ABI 6).
pub const SCOPE_ABSTRACT_SOCKETS: u64 = 1;
/// Signals stay within the domain (ABI 6).
pub const SCOPE_SIGNALS: u64 = 2;

/// What a ruleset takes into its hand: everything handled and not granted is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Handled {
    /// File rights.
    pub files: u64,
    /// Network rights.
    pub network: u64,
    /// Scopes.
    pub scopes: u64,
}

#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    parent: i32,
}

#[repr(C)]
struct NetPort {
    allowed: u64,
    port: u64,
}

/// The kernel's Landlock version; 0 when there is none.
pub fn abi() -> u32 {
    const VERSION: u32 = 1;
    let null = std::ptr::null::<u8>();
    // SAFETY: asked for the version, the call reads nothing.
    unsafe { sys!(landlock_create_ruleset, null, 0, VERSION) }.map_or(0, |abi| abi as u32)
}

/// A ruleset being filled.
#[derive(Debug)]
pub struct Ruleset(OwnedFd);

impl Ruleset {
    /// An empty ruleset: everything handled is refused.
    ///
    /// # Errors
    /// `EOPNOTSUPP`, `ENOSYS` without Landlock; `EINVAL` for rights the kernel does not know.
    pub fn new(handled: Handled) -> Result<Ruleset> {
        // An older kernel refuses a longer structure unless the rest is zero: E2BIG is its
        // word for non-zero bytes that it does not know.
        let size = size_of::<Handled>();
        // SAFETY: `handled` is readable memory of `size` bytes.
        unsafe { sys!(landlock_create_ruleset, &raw const handled, size, 0) }
            .map(|fd| Ruleset(owned(fd)))
    }

    /// Grants rights below an open path.
    ///
    /// # Errors
    /// `EINVAL` for rights not handled, or directory rights on a file.
    pub fn allow(&self, path: BorrowedFd<'_>, allowed: u64) -> Result<()> {
        let rule = PathBeneath { allowed, parent: path.as_raw_fd() };
        // SAFETY: rule type 1 is PATH_BENEATH, whose structure `rule` is.
        unsafe { sys!(landlock_add_rule, self.0.as_raw_fd(), 1, &raw const rule, 0) }.map(drop)
    }

    /// Grants rights below a path.
    ///
    /// # Errors
    /// Those of `open(2)` and of [`Ruleset::allow`].
    pub fn allow_path(&self, path: &CStr, allowed: u64) -> Result<()> {
        use std::os::fd::AsFd;
        let file = crate::fd::open_at(crate::fd::CWD, path, libc::O_PATH, 0)?;
        self.allow(file.as_fd(), allowed)
    }

    /// Grants rights on a TCP port.
    ///
    /// # Errors
    /// `EINVAL` for rights not handled.
    pub fn allow_port(&self, port: u16, allowed: u64) -> Result<()> {
        let rule = NetPort { allowed, port: u64::from(port) };
        // SAFETY: rule type 2 is NET_PORT, whose structure `rule` is.
        unsafe { sys!(landlock_add_rule, self.0.as_raw_fd(), 2, &raw const rule, 0) }.map(drop)
    }

    /// Confines the calling thread, for good. `no_new_privs` must be set.
    ///
    /// # Errors
    /// `E2BIG` at the sixteenth nested domain.
    pub fn restrict_self(&self) -> Result<()> {
        // SAFETY: takes numbers only.
        unsafe { sys!(landlock_restrict_self, self.0.as_raw_fd(), 0) }.map(drop)
    }
}
