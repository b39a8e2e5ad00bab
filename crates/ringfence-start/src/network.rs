//! Makes a network namespace.

use crate::Result;
use crate::call::{close, sys};

/// A flag of `unshare(2)` and `setns(2)`.
pub(crate) const CLONE_NEWNET: usize = 0x4000_0000;

/// A socket in a network namespace, and a descriptor of the namespace.
pub(crate) struct Network {
    socket: i32,
    namespace: i32,
}

impl Network {
    /// Makes a network namespace for the caller, whose loopback is up.
    ///
    /// # Errors
    /// Those of `unshare(2)`, of `socket(2)`, and of `SIOCSIFFLAGS` (netdevice(7)).
    pub(crate) fn make() -> Result<Network> {
        const AF_INET: usize = 2;
        const SOCK_DGRAM_CLOEXEC: usize = 2 | 0o2_000_000;
        const SIOCGSKNS: usize = 0x894C;
        // SAFETY: takes a number only.
        crate::withdrawn::again(|| unsafe { sys!(unshare, CLONE_NEWNET) })?;
        // SAFETY: takes numbers only.
        let socket = unsafe { sys!(socket, AF_INET, SOCK_DGRAM_CLOEXEC, 0) }?;
        // SAFETY: the operation takes no operand and returns a descriptor of the namespace.
        let namespace = unsafe { sys!(ioctl, socket, SIOCGSKNS, 0) }?;
        let network = Network { socket: socket as i32, namespace: namespace as i32 };
        network.bring_up().map(|()| network)
    }

    /// As one number that is not negative.
    pub(crate) fn to_number(&self) -> i64 {
        i64::from(self.socket) << 32 | i64::from(self.namespace)
    }

    /// Of that.
    pub(crate) fn of_number(number: i64) -> Network {
        Network { socket: (number >> 32) as i32, namespace: number as i32 }
    }

    /// Enters it, and lets go of the descriptors.
    ///
    /// # Errors
    /// Those of `setns(2)`.
    pub(crate) fn enter(self) -> Result<()> {
        // SAFETY: takes numbers only.
        let entered = unsafe { sys!(setns, self.namespace, CLONE_NEWNET) }.map(drop);
        close(self.namespace);
        close(self.socket);
        entered
    }

    fn bring_up(&self) -> Result<()> {
        const SIOCSIFFLAGS: usize = 0x8914;
        const IFF_UP: u16 = 1;
        /// `struct ifreq` with the flags member in use, padded to the kernel's size.
        #[repr(C)]
        struct InterfaceFlags {
            name: [u8; 16],
            flags: u16,
            rest: [u8; 22],
        }
        let mut request = InterfaceFlags { name: [0; 16], flags: IFF_UP, rest: [0; 22] };
        request.name[0] = b'l';
        request.name[1] = b'o';
        // SAFETY: `request` has the size and layout of the ifreq that the operation reads.
        unsafe { sys!(ioctl, self.socket, SIOCSIFFLAGS, &raw const request) }.map(drop)
    }
}
