//! Flags of `open(2)` whose bits are not the same on all machines (`asm/fcntl.h`).

/// `O_DIRECTORY`: what is no directory is not opened.
#[cfg(target_arch = "x86_64")]
pub const DIRECTORY: u32 = 0o200_000;
/// `O_DIRECTORY`: what is no directory is not opened.
#[cfg(target_arch = "aarch64")]
pub const DIRECTORY: u32 = 0o40_000;

/// `O_NOFOLLOW`: a link at the end of the path is not followed.
#[cfg(target_arch = "x86_64")]
pub const NO_FOLLOW: u32 = 0o400_000;
/// `O_NOFOLLOW`: a link at the end of the path is not followed.
#[cfg(target_arch = "aarch64")]
pub const NO_FOLLOW: u32 = 0o100_000;
