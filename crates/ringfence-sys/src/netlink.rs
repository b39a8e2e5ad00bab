//! The loopback interface of a new network namespace, by ioctl (netdevice(7)).

use crate::fd::owned;
use crate::{Errno, Result, sys};
use std::ffi::c_void;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

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
    raw_loopback_up().map(|socket| drop(owned(socket)))
}

/// Brings `lo` up and returns the socket that it was asked through; raw calls only, see
/// [`NewNetwork`].
fn raw_loopback_up() -> Result<usize> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    // SAFETY: takes numbers only.
    let socket = unsafe { sys!(socket, libc::AF_INET, kind, 0) }?;
    let mut request = InterfaceFlags { name: [0; 16], flags: libc::IFF_UP as u16, rest: [0; 22] };
    request.name[..2].copy_from_slice(b"lo");
    // SAFETY: `request` has the size and layout of the ifreq that the operation reads.
    unsafe { sys!(ioctl, socket, libc::SIOCSIFFLAGS, &raw const request) }?;
    Ok(socket)
}

/// A network namespace that a second thread makes while the first one goes on.
///
/// Making one takes the kernel longer than anything else in a launch (some 0.3 ms), and needs
/// nothing of what comes next; on a machine with two processors it costs next to nothing so.
pub struct NewNetwork {
    work: Box<Work>,
    /// The helper's stack; unused once it is done.
    _stack: Vec<u8>,
}

/// What the two threads share.
struct Work {
    /// The namespace's descriptor, or a negative error number.
    result: AtomicI32,
    /// The helper's thread number until the kernel clears it at the helper's end.
    running: AtomicU32,
}

impl NewNetwork {
    /// Starts making a network namespace, with its loopback up.
    ///
    /// # Errors
    /// `EAGAIN` at a limit of threads.
    pub fn start() -> Result<NewNetwork> {
        const STACK: usize = 32 * 1024;
        let mut stack = vec![0u8; STACK];
        let work = Box::new(Work { result: AtomicI32::new(0), running: AtomicU32::new(1) });
        let flags = libc::CLONE_VM
            | libc::CLONE_FS
            | libc::CLONE_FILES
            | libc::CLONE_SIGHAND
            | libc::CLONE_THREAD
            | libc::CLONE_SYSVSEM
            | libc::CLONE_CHILD_CLEARTID;
        let shared = (&raw const *work).cast_mut();
        // SAFETY: the helper runs `make_network` on a stack of its own, which lives, as `shared`
        // does, until `enter` or `drop` has seen its end. It shares the caller's thread-local
        // storage, and therefore makes raw system calls only: no allocation, no errno.
        let thread = unsafe {
            let top = stack.as_mut_ptr_range().end;
            let top = top.sub(top as usize % 16).cast::<c_void>();
            let cleared = (*shared).running.as_ptr();
            let null = std::ptr::null_mut::<c_void>();
            libc::clone(make_network, top, flags, shared.cast(), null, null, cleared)
        };
        if thread < 0 {
            return Err(Errno::EAGAIN);
        }
        Ok(NewNetwork { work, _stack: stack })
    }

    /// Waits until the namespace is made, and enters it.
    ///
    /// # Errors
    /// Those of `unshare(2)`, of bringing the loopback up, of `setns(2)`.
    pub fn enter(self) -> Result<()> {
        self.wait();
        let result = self.work.result.load(Ordering::Acquire);
        if result < 0 {
            return Err(Errno::new(-result));
        }
        let namespace: OwnedFd = owned(result as usize);
        // SAFETY: takes numbers only.
        unsafe { sys!(setns, namespace.as_raw_fd(), libc::CLONE_NEWNET) }.map(drop)
    }

    /// Waits for the helper's end: the kernel clears the number and wakes the waiter.
    fn wait(&self) {
        let null = std::ptr::null::<u8>();
        loop {
            let thread = self.work.running.load(Ordering::Acquire);
            if thread == 0 {
                return;
            }
            let address = self.work.running.as_ptr();
            // SAFETY: the address is that of a live, aligned 32-bit number.
            let _ = unsafe { sys!(futex, address, libc::FUTEX_WAIT, thread, null) };
        }
    }
}

impl Drop for NewNetwork {
    fn drop(&mut self) {
        self.wait();
    }
}

extern "C" fn make_network(argument: *mut c_void) -> i32 {
    // SAFETY: `start` passes a pointer to its `Work`, which outlives this thread.
    let work = unsafe { &*argument.cast::<Work>() };
    let made = || {
        // SAFETY: takes a number only.
        unsafe { sys!(unshare, libc::CLONE_NEWNET) }?;
        let socket = raw_loopback_up()?;
        const SIOCGSKNS: u32 = 0x894C;
        // SAFETY: the operation takes no operand and returns a descriptor of the namespace.
        let namespace = unsafe { sys!(ioctl, socket, SIOCGSKNS, 0) };
        // SAFETY: the descriptor is ours, and nothing else knows it.
        let _ = unsafe { sys!(close, socket) };
        namespace
    };
    let result = match made() {
        Ok(namespace) => namespace as i32,
        Err(errno) => -errno.into_raw(),
    };
    work.result.store(result, Ordering::Release);
    // SAFETY: ends this thread only; glibc's wrapper would end it with the same call.
    let _ = unsafe { sys!(exit, 0) };
    0
}
