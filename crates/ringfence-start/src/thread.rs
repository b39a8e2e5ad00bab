//! `clone(2)` with a stack of its own, and a network namespace that a second thread makes while
//! the first one goes on.
//!
//! Making one takes the kernel longer than anything else in a launch (some 0.3 ms), and needs
//! nothing of what comes next; on a machine with two processors it costs next to nothing so.

use crate::call::{exit, sys};
use crate::image::Image;
use crate::later::Later;
use crate::{Errno, Result};
use core::ffi::c_void;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};

const CLONE_VM: usize = 0x100;
const CLONE_FS: usize = 0x200;
const CLONE_FILES: usize = 0x400;
const CLONE_SIGHAND: usize = 0x800;
const CLONE_VFORK: usize = 0x4000;
const CLONE_THREAD: usize = 0x1_0000;
const CLONE_SYSVSEM: usize = 0x4_0000;
const CLONE_CHILD_CLEARTID: usize = 0x20_0000;
const CLONE_NEWNET: usize = 0x4000_0000;
const SIGCHLD: usize = 17;

/// `clone` onto another stack, where `entry(argument)` is called; returns as the call does.
///
/// # Safety
/// `stack` must be the upper end of unused memory, 16-byte aligned, that lives as long as the
/// new task; with `CLONE_VM` the task shares all memory and may only make raw calls.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn clone_onto(
    flags: usize,
    stack: *mut u8,
    cleared: *mut u32,
    entry: extern "C" fn(*mut c_void) -> !,
    argument: *mut c_void,
) -> isize {
    // clone(flags, stack, parent_tid, child_tid, tls); the kernel keeps r8 and r9.
    core::arch::naked_asm!(
        "mov r9, rcx",
        "mov r10, rdx",
        "xor edx, edx",
        "mov eax, 56",
        "syscall",
        "test rax, rax",
        "jnz 2f",
        "xor ebp, ebp",
        "mov rdi, r8",
        "call r9",
        "ud2",
        "2: ret",
    )
}

/// As on x86-64.
///
/// # Safety
/// As there.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn clone_onto(
    flags: usize,
    stack: *mut u8,
    cleared: *mut u32,
    entry: extern "C" fn(*mut c_void) -> !,
    argument: *mut c_void,
) -> isize {
    // clone(flags, stack, parent_tid, tls, child_tid).
    core::arch::naked_asm!(
        "mov x9, x3",
        "mov x10, x4",
        "mov x4, x2",
        "mov x2, #0",
        "mov x3, #0",
        "mov x8, #220",
        "svc #0",
        "cbnz x0, 2f",
        "mov x29, #0",
        "mov x30, #0",
        "mov x0, x10",
        "blr x9",
        "brk #1",
        "2: ret",
    )
}

/// The top of a stack in an array, aligned as calls want it.
fn top(stack: &mut [u8]) -> *mut u8 {
    let end = stack.as_mut_ptr() as usize + stack.len();
    (end - end % 16) as *mut u8
}

/// Starts a child that shares memory with the caller, who sleeps until it has executed or ended.
///
/// # Errors
/// `EAGAIN` at a limit of processes.
///
/// # Safety
/// `entry` may make raw calls only, and must not unwind or return.
pub(crate) unsafe fn vfork(
    stack: &mut [u8],
    entry: extern "C" fn(*mut c_void) -> !,
    argument: *mut c_void,
) -> Result<i32> {
    let flags = CLONE_VM | CLONE_VFORK | SIGCHLD;
    // SAFETY: the stack is the caller's own and the caller sleeps meanwhile.
    let result = unsafe { clone_onto(flags, top(stack), core::ptr::null_mut(), entry, argument) };
    if result < 0 { Err(Errno::new(-result as i32)) } else { Ok(result as i32) }
}

/// What the two threads share; must not move while the helper runs.
pub struct Network {
    /// The namespace's descriptor, or a negative error number.
    result: AtomicI32,
    /// The helper's thread number until the kernel clears it at the helper's end.
    running: AtomicU32,
    /// What the helper looks at when it is made.
    later: Later,
    stack: [u8; 4096],
}

impl Default for Network {
    fn default() -> Network {
        Network::new()
    }
}

impl Network {
    /// Nothing begun. All zeroes, so that a static one takes no place in the file.
    pub const fn new() -> Network {
        Network {
            result: AtomicI32::new(0),
            running: AtomicU32::new(0),
            later: Later::NONE,
            stack: [0; 4096],
        }
    }

    /// Has the helper look at an image's later stamps too.
    pub fn look_later(&mut self, image: Image) {
        self.later.set(image);
    }

    /// Starts making a network namespace, with its loopback up.
    ///
    /// # Errors
    /// `EAGAIN` at a limit of threads; a directory of the later stamps is not there any more.
    ///
    /// # Safety
    /// The object must stay where it is, untouched, until [`Network::enter`] returned; nothing
    /// is cleaned up when the caller forgets that.
    pub unsafe fn start(&mut self) -> Result<()> {
        self.later.open()?;
        self.running.store(1, Ordering::Release);
        let flags = CLONE_VM
            | CLONE_FS
            | CLONE_FILES
            | CLONE_SIGHAND
            | CLONE_THREAD
            | CLONE_SYSVSEM
            | CLONE_CHILD_CLEARTID;
        let shared = (&raw mut *self).cast();
        let cleared = self.running.as_ptr();
        // SAFETY: the helper gets a stack of its own that lives as long as it does, and makes
        // raw calls only.
        let result = unsafe { clone_onto(flags, top(&mut self.stack), cleared, make, shared) };
        if result < 0 {
            self.running.store(0, Ordering::Release);
            return Err(Errno::new(-result as i32));
        }
        Ok(())
    }

    /// Waits until the namespace is made, and enters it.
    ///
    /// # Errors
    /// Those of `unshare(2)`, of bringing the loopback up, of `setns(2)`; `ESTALE` where a later
    /// stamp does not hold.
    pub fn enter(&mut self) -> Result<()> {
        const FUTEX_WAIT: usize = 0;
        loop {
            let thread = self.running.load(Ordering::Acquire);
            if thread == 0 {
                break;
            }
            // SAFETY: the address is that of a live, aligned 32-bit number.
            let _ = unsafe { sys!(futex, self.running.as_ptr(), FUTEX_WAIT, thread, 0) };
        }
        let result = self.result.load(Ordering::Acquire);
        if result < 0 {
            return Err(Errno::new(-result));
        }
        // SAFETY: takes numbers only.
        let entered = unsafe { sys!(setns, result, CLONE_NEWNET) };
        crate::call::close(result);
        entered.map(drop)
    }
}

extern "C" fn make(argument: *mut c_void) -> ! {
    // SAFETY: `start` passes a pointer to its object, which outlives this thread.
    let (result, this) = unsafe { (make_network(), &*argument.cast::<Network>()) };
    let held = this.later.hold();
    let result = match result.and_then(|namespace| held.map(|()| namespace)) {
        Ok(namespace) => namespace as i32,
        Err(errno) => -errno.into_raw(),
    };
    this.result.store(result, Ordering::Release);
    // SAFETY: ends this thread only.
    let _ = unsafe { sys!(exit, 0) };
    exit(125)
}

/// Makes a network namespace, brings its loopback up, and returns a descriptor of it.
unsafe fn make_network() -> Result<usize> {
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
    crate::call::close(socket as i32);
    namespace
}

/// Whoever started us may ignore SIGCHLD, and so would we: the end of children would be told to
/// nobody (`sigaction(2)`).
pub(crate) fn hear_of_children() {
    // Not on the stack, which would be zeroed by `memset`.
    static DEFAULT: [u64; 4] = [0; 4];
    // SAFETY: the structure has the kernel's size, and its zeroes are SIG_DFL.
    let _ = unsafe { sys!(rt_sigaction, SIGCHLD, DEFAULT.as_ptr(), 0, 8) };
}
