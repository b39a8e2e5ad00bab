//! Makes a network namespace.

use crate::Result;
use crate::call::{close, sys};

/// A flag of `unshare(2)` and `setns(2)`.
pub(crate) const CLONE_NEWNET: usize = 0x4000_0000;

/// Makes a network namespace for the caller, brings its loopback up, and returns a descriptor of it.
pub(crate) fn make_network() -> Result<i32> {
    const AF_INET: usize = 2;
    const SOCK_DGRAM_CLOEXEC: usize = 2 | 0o2_000_000;
    const SIOCSIFFLAGS: usize = 0x8914;
    const SIOCGSKNS: usize = 0x894C;
    const IFF_UP: u16 = 1;
    /// `struct ifreq` with the flags member in use, padded to the kernel's size.
    #[repr(C)]
    struct InterfaceFlags {
        name: [u8; 16],
        flags: u16,
        rest: [u8; 22],
    }
    // SAFETY: takes a number only.
    unsafe { sys!(unshare, CLONE_NEWNET) }?;
    // SAFETY: takes numbers only.
    let socket = unsafe { sys!(socket, AF_INET, SOCK_DGRAM_CLOEXEC, 0) }?;
    let mut request = InterfaceFlags { name: [0; 16], flags: IFF_UP, rest: [0; 22] };
    request.name[0] = b'l';
    request.name[1] = b'o';
    // SAFETY: `request` has the size and layout of the ifreq that the operation reads.
    unsafe { sys!(ioctl, socket, SIOCSIFFLAGS, &raw const request) }?;
    // SAFETY: the operation takes no operand and returns a descriptor of the namespace.
    let namespace = unsafe { sys!(ioctl, socket, SIOCGSKNS, 0) };
    close(socket as i32);
    namespace.map(|namespace| namespace as i32)
}
