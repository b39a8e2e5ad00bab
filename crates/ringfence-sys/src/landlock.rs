//! Landlock (landlock(7)): rules that the kernel checks on each open, for the process and all
//! it starts, and that can only ever be tightened.

use crate::sys;

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

/// The kernel's Landlock version; 0 when there is none.
pub fn abi() -> u32 {
    const VERSION: u32 = 1;
    let null = std::ptr::null::<u8>();
    // SAFETY: asked for the version, the call reads nothing.
    unsafe { sys!(landlock_create_ruleset, null, 0, VERSION) }.map_or(0, |abi| abi as u32)
}
