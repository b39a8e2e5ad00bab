//! What only the first process of a guest kernel does.

use crate::{Result, sys};
use std::os::fd::{AsRawFd, BorrowedFd};

/// `RNDADDENTROPY`: `_IOW('R', 0x03, int [2])`.
const ADD_ENTROPY: usize = 0x4008_5203;
/// `RNDRESEEDCRNG`: `_IO('R', 0x07)`.
const RESEED: usize = 0x5207;

/// The process that everything in a guest waits for comes before all others: its children do not.
///
/// # Errors
/// `EPERM` without `CAP_SYS_NICE`.
pub fn come_first() -> Result<()> {
    const RESET_ON_FORK: u64 = 1;
    const FIRST: u64 = -20_i32 as u32 as u64;
    // struct sched_attr (48 bytes): size and policy (`SCHED_OTHER`), flags, nice value and priority, and the
    // other policies' three.
    let attributes = [48_u64, RESET_ON_FORK, FIRST, 0, 0, 0];
    // SAFETY: `attributes` has the layout and size of `struct sched_attr`; the process is this one.
    unsafe { sys!(sched_setattr, 0, attributes.as_ptr(), 0) }.map(drop)
}

/// By its device (`/dev/urandom`, open to write), adds randomness to the kernel's and lets nothing be drawn from what was there before
/// (random(4)): of a clone, all that was is known to its siblings.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`.
pub fn reseed(device: BorrowedFd<'_>, entropy: &[u8]) -> Result<()> {
    let mut pool = Vec::with_capacity(8 + entropy.len());
    // struct rand_pool_info: bits, bytes, the bytes.
    pool.extend((entropy.len() as i32 * 8).to_ne_bytes());
    pool.extend((entropy.len() as i32).to_ne_bytes());
    pool.extend_from_slice(entropy);
    // SAFETY: the operation reads the two numbers and as many bytes after them as the second says.
    unsafe { sys!(ioctl, device.as_raw_fd(), ADD_ENTROPY, pool.as_ptr()) }?;
    // SAFETY: takes no argument.
    unsafe { sys!(ioctl, device.as_raw_fd(), RESEED, 0) }.map(drop)
}
