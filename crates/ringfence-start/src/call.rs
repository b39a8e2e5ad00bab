//! System calls, raw.

use crate::{Errno, Result, Sysno};

/// Makes a call with up to six words.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// As for the call: pointers among the arguments must be valid for what the kernel does there.
pub unsafe fn call(number: u32, a: [usize; 6]) -> Result<usize> {
    let result: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel's convention (syscall(2)); the caller answers for the arguments.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
            in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the kernel's convention (syscall(2)); the caller answers for the arguments.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number as usize,
            inlateout("x0") a[0] => result,
            in("x1") a[1], in("x2") a[2], in("x3") a[3], in("x4") a[4], in("x5") a[5],
            options(nostack)
        );
    }
    if result < 0 { Err(Errno::new(-result as i32)) } else { Ok(result as usize) }
}

/// [`call`] by name.
macro_rules! sys {
    ($name:ident) => { $crate::call::call($crate::Sysno::$name as u32, [0; 6]) };
    ($name:ident $(, $arg:expr)+) => {
        $crate::call::call($crate::Sysno::$name as u32, $crate::call::words(&[$($arg as usize),+]))
    };
}
pub(crate) use sys;

/// Up to six words, the rest zero.
#[inline(always)]
pub(crate) fn words(given: &[usize]) -> [usize; 6] {
    let word = |index: usize| given.get(index).copied().unwrap_or(0);
    [word(0), word(1), word(2), word(3), word(4), word(5)]
}

/// Ends the process; by a fault, where no call is carried out any more: under a filter whose listener is gone each one
/// that it tells of is ENOSYS (seccomp(2)), this one too.
pub fn exit(code: i32) -> ! {
    // SAFETY: takes a number, and does not return where it is carried out.
    let _ = unsafe { call(Sysno::exit_group as u32, [code as usize, 0, 0, 0, 0, 0]) };
    // SAFETY: no instruction at all: the kernel ends the process by SIGILL, a namespace's PID 1 as well (`force_sig`).
    #[cfg(target_arch = "x86_64")]
    unsafe {
        core::arch::asm!("ud2", options(noreturn, nomem, nostack))
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        core::arch::asm!("udf #0", options(noreturn, nomem, nostack))
    }
}

/// Closes a descriptor that this code opened.
pub fn close(fd: i32) {
    // SAFETY: takes a number.
    let _ = unsafe { sys!(close, fd) };
}

/// Looks for something that is about to be there, so many times at most, each about a microsecond, and lets others
/// run in between. To be woken from a sleep takes a virtual machine thirty microseconds and more where its processor
/// has gone idle meanwhile.
pub(crate) fn glance(mut there: impl FnMut() -> bool) -> bool {
    const TIMES: usize = 64;
    let mut times = 0;
    while times < TIMES {
        if there() {
            return true;
        }
        // SAFETY: takes nothing.
        let _ = unsafe { sys!(sched_yield) };
        times += 1;
    }
    false
}

/// Sends one message on a socket, without raising `SIGPIPE`.
///
/// # Errors
/// `EPIPE`, `ECONNRESET`.
pub fn send(socket: i32, message: &[u8]) -> Result<usize> {
    const MSG_NOSIGNAL: usize = 0x4000;
    // SAFETY: the pointer and length describe `message`.
    unsafe { sys!(sendto, socket, message.as_ptr(), message.len(), MSG_NOSIGNAL, 0, 0) }
}

/// Whether a socket's other end is closed, whatever lies in its queue.
pub(crate) fn is_hung_up(socket: i32) -> bool {
    const POLLHUP: u64 = 16;
    // struct pollfd: descriptor, no wanted events, returned events.
    let mut entry = u64::from(socket as u32);
    let at_once = [0u64; 2];
    // SAFETY: the pointers are to one pollfd and a timespec; no mask is given.
    let polled = unsafe { sys!(ppoll, &raw mut entry, 1, at_once.as_ptr(), 0, 8) };
    polled.is_ok() && entry >> 48 & POLLHUP != 0
}

/// Receives one message; 0 means that the other side is gone. Without `wait` an empty queue is
/// `EAGAIN`.
///
/// # Errors
/// The kernel's (`EINTR` is retried).
pub fn receive(socket: i32, buffer: &mut [u8], wait: bool) -> Result<usize> {
    const MSG_DONTWAIT: usize = 0x40;
    let flags = if wait { 0 } else { MSG_DONTWAIT };
    loop {
        // SAFETY: the pointer and length describe `buffer`, which is writable.
        match unsafe { sys!(recvfrom, socket, buffer.as_mut_ptr(), buffer.len(), flags, 0, 0) } {
            Err(Errno::EINTR) => {}
            other => return other,
        }
    }
}
