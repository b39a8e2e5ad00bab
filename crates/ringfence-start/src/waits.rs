//! Waiting for what a process says that shares memory with the caller (futex(2)).

use crate::Errno;
use crate::call::{glance, sys};
use core::sync::atomic::{AtomicU32, Ordering};

/// Sleeps as long as the number is as told, which it may not be for long.
pub(crate) fn wait_while(number: &AtomicU32, as_told: impl Fn(u32) -> bool) {
    wait_soon(number, 0, as_told);
}

/// [`wait_beside`], after a glance.
pub(crate) fn wait_soon(number: &AtomicU32, child: i32, as_told: impl Fn(u32) -> bool) {
    let _ = glance(|| !as_told(number.load(Ordering::Acquire)));
    wait_beside(number, child, as_told);
}

/// Sleeps as long as the number is as told, but not longer than this child lives, if there is one: kernels before 5.16 do not clear the number
/// of who ends in a core dump (`mm_release` in kernel/fork.c), as a filter that kills may have it.
pub(crate) fn wait_beside(number: &AtomicU32, child: i32, as_told: impl Fn(u32) -> bool) {
    const FUTEX_WAIT: usize = 0;
    /// A `struct timespec` of a fifth of a second: between two looks at the child.
    static MOMENT: [i64; 2] = [0, 200_000_000];
    let limit = if child > 0 { MOMENT.as_ptr() } else { core::ptr::null() };
    loop {
        let now = number.load(Ordering::Acquire);
        if !as_told(now) {
            return;
        }
        // SAFETY: the address is that of a live, aligned 32-bit number; the limit is none, or lives on.
        let waited = unsafe { sys!(futex, number.as_ptr(), FUTEX_WAIT, now, limit) };
        if waited == Err(Errno::ETIMEDOUT) && ended(child) {
            return;
        }
    }
}

/// Whether a child has ended, and leaves it to be collected.
fn ended(child: i32) -> bool {
    const P_PID: usize = 1;
    const WNOHANG_EXITED_NOWAIT: usize = 1 | 4 | 0x100_0000;
    let mut info = [0i32; 32];
    // SAFETY: there is room for a siginfo_t; no usage is asked for.
    let asked = unsafe { sys!(waitid, P_PID, child, info.as_mut_ptr(), WNOHANG_EXITED_NOWAIT, 0) };
    // si_signo, which is 0 while there is nothing to tell (waitid(2)).
    asked.is_err() || info[0] != 0
}

/// Wakes who sleeps there.
pub(crate) fn wake(number: &AtomicU32) {
    const FUTEX_WAKE: usize = 1;
    // SAFETY: as above.
    let _ = unsafe { sys!(futex, number.as_ptr(), FUTEX_WAKE, 1) };
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn who_ends_without_a_word_holds_up_nobody() {
        let mut child = std::process::Command::new("true").spawn().expect("true(1)");
        let running = AtomicU32::new(1);
        wait_beside(&running, child.id().cast_signed(), |now| now != 0);
        assert_eq!(running.load(Ordering::Acquire), 1);
        assert!(child.wait().expect("left to be collected").success());
    }
}
