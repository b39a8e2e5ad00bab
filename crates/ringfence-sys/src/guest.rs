//! What only the first process of a guest kernel does.

use crate::{Result, sys};
use std::os::fd::AsRawFd;

/// `RNDADDENTROPY`: `_IOW('R', 0x03, int [2])`.
const ADD_ENTROPY: usize = 0x4008_5203;
/// `RNDRESEEDCRNG`: `_IO('R', 0x07)`.
const RESEED: usize = 0x5207;

/// Adds randomness to the kernel's and lets nothing be drawn from what was there before
/// (random(4)): of a clone, all that was is known to its siblings.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`.
pub fn reseed(entropy: &[u8]) -> Result<()> {
    let device = crate::fd::open_at(crate::fd::CWD, c"/dev/urandom", libc::O_RDWR, 0)?;
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
