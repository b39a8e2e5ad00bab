//! The loopback interface of a new network namespace, by ioctl (netdevice(7)).

use crate::fd::owned;
use crate::{Result, sys};
use std::os::fd::AsRawFd;

/// `struct ifreq` with the flags member in use, padded to the kernel's size.
#[repr(C)]
struct InterfaceFlags {
    name: [u8; 16],
    flags: u16,
    rest: [u8; 22],
}

/// Brings `lo` up in the caller's network namespace; the kernel then gives it its addresses.
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN` over that namespace.
pub fn loopback_up() -> Result<()> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    // SAFETY: takes numbers only.
    let socket = owned(unsafe { sys!(socket, libc::AF_INET, kind, 0) }?);
    let mut request = InterfaceFlags { name: [0; 16], flags: libc::IFF_UP as u16, rest: [0; 22] };
    request.name[..2].copy_from_slice(b"lo");
    let raw = socket.as_raw_fd();
    // SAFETY: `request` has the size and layout of the ifreq that the operation reads.
    unsafe { sys!(ioctl, raw, libc::SIOCSIFFLAGS, &raw const request) }.map(drop)
}
