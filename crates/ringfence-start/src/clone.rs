//! `clone(2)` with a stack of its own.

use crate::call::sys;
use crate::inherited::{self, OF_CHILDREN};
use crate::{Errno, Result};
use core::ffi::c_void;

const CLONE_VM: usize = 0x100;
const CLONE_FILES: usize = 0x400;
const CLONE_CHILD_CLEARTID: usize = 0x20_0000;
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
pub(crate) fn top(stack: &mut [u8]) -> *mut u8 {
    let end = stack.as_mut_ptr() as usize + stack.len();
    (end - end % 16) as *mut u8
}

/// Starts a child that shares memory, and where it is to its descriptors, with the caller until it executes, and goes
/// on beside it: the kernel clears `running` and wakes who waits for that (futex(2)) when it has executed or ended.
///
/// # Errors
/// `EAGAIN` at a limit of processes.
///
/// # Safety
/// `stack` must be the upper end of memory that nobody else uses, 16-byte aligned; it, `running` and `argument`
/// must live until then. `entry` may make raw calls only, and must not unwind or return.
pub(crate) unsafe fn beside(
    stack: *mut u8,
    running: *mut u32,
    descriptors: bool,
    entry: extern "C" fn(*mut c_void) -> !,
    argument: *mut c_void,
) -> Result<i32> {
    let files = if descriptors { CLONE_FILES } else { 0 };
    let flags = CLONE_VM | files | CLONE_CHILD_CLEARTID | SIGCHLD;
    // SAFETY: by the caller's promise.
    let result = unsafe { clone_onto(flags, stack, running, entry, argument) };
    if result < 0 { Err(Errno::new(-result as i32)) } else { Ok(result as i32) }
}

/// Ends a child that executes nothing, and collects it: its number is its own until then.
pub(crate) fn withdraw(child: i32) {
    const SIGKILL: usize = 9;
    // SAFETY: takes numbers.
    let _ = unsafe { sys!(kill, child, SIGKILL) };
    collect(child);
}

/// Collects a child that ends.
pub(crate) fn collect(child: i32) {
    let mut status = 0i32;
    // SAFETY: `status` is room for the answer; no usage is asked for.
    while unsafe { sys!(wait4, child, &raw mut status, 0, 0) } == Err(Errno::EINTR) {}
}

/// Whoever started us may ignore SIGCHLD, and so would we: the end of children would be told to
/// nobody (`sigaction(2)`). Returns the signal's bit ([`crate::inherited`]) where it was ignored.
pub(crate) fn hear_of_children() -> usize {
    let ignored = inherited::is_ignored(OF_CHILDREN);
    if ignored != 0 {
        // As of a caller who did not ignore it.
        let _ = inherited::give_back(inherited::of(OF_CHILDREN, 0, 0));
    }
    ignored
}

/// `clone3(2)` as a fork; the child sees pid 0.
pub(crate) fn fork(namespaces: u64) -> Result<(i32, i32)> {
    const CLONE_PIDFD: u64 = 0x1000;
    const SIGCHLD: u64 = 17;
    let mut pidfd = -1i32;
    let mut arguments = [0u64; 8];
    arguments[0] = namespaces | CLONE_PIDFD;
    arguments[1] = &raw mut pidfd as u64;
    arguments[4] = SIGCHLD;
    // SAFETY: no CLONE_VM, so the child has a copy of all memory and goes on with the same
    // stack; the structure has the size of clone_args' first version.
    let mut pid = unsafe { sys!(clone3, arguments.as_ptr(), 64) };
    if pid == Err(Errno::ENOSYS) {
        // Filters of containers hide it, whose flags they cannot see (clone(2): the pidfd has the place of the parent's number).
        // SAFETY: as above.
        pid = unsafe { sys!(clone, arguments[0] | SIGCHLD, 0, &raw mut pidfd, 0, 0) };
    }
    let pid = pid?;
    if pid > 0 && pidfd < 0 {
        return Err(Errno::EBADF);
    }
    Ok((pid as i32, pidfd))
}
