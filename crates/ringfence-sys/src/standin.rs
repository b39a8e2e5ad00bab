//! A stop of this process, in which a second one does its work: it shares all memory and descriptors, so that
//! what it did is done when the stopped one goes on.

use crate::{Errno, Result, fd, sys};
use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Instant;

/// Room for the second process's stack, the last page of which is no one's.
const STACK: usize = 2 << 20;
const GUARD: usize = 1 << 16;

/// What the second process is started with.
struct Order<'a> {
    work: &'a mut dyn FnMut(Standin<'_>),
    over: BorrowedFd<'a>,
    front: i32,
}

/// The second process, as it sees the first one.
#[derive(Clone, Copy, Debug)]
pub struct Standin<'a> {
    over: BorrowedFd<'a>,
    front: i32,
}

impl Standin<'_> {
    /// Becomes readable when the first process goes on, and waits for our end.
    pub fn over(&self) -> BorrowedFd<'_> {
        self.over
    }

    /// Has the first process go on. A SIGCONT that comes just before it stops is lost: to be sent again until it
    /// says that it goes on.
    pub fn wake(&self) {
        let _ = crate::signal::kill(self.front, libc::SIGCONT);
    }
}

/// Stops this process ([`crate::signal::stop_until`]) while `work` is done by one that shares its memory, its
/// descriptors and its mask of signals. `work` has to return when [`Standin::over`] is readable; this returns when it
/// has. Its end, whatever causes it, is a SIGCONT for the first process; and its own end is that of the second one.
/// Other threads of this process stop with it, and `work` must not wait for them.
///
/// Returns whether a SIGTSTP has come, which the second one's end discards where it is blocked: whoever has us go on may
/// stop us once more before we do.
///
/// # Errors
/// No process is to be had (`EAGAIN`, `ENOMEM`), nor descriptors: nothing has been stopped then. `ECHILD` when
/// the second process ended before it was told to.
pub fn stop_until(moment: Option<Instant>, work: &mut dyn FnMut(Standin<'_>)) -> Result<bool> {
    let (over, tell) = fd::pipe()?;
    let stack = Stack::new()?;
    // SAFETY: takes nothing.
    let front = unsafe { sys!(getpid) }? as i32;
    let mut order = Order { work, over: over.as_fd(), front };
    let flags = libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_FS | libc::SIGCONT;
    let argument = (&raw mut order).cast::<c_void>();
    // SAFETY: the stack is used by nobody else, and is let go of when that process has ended. It has this thread's
    // own storage too: until its end only system calls are made here, without libc's `errno`, and nothing that
    // `order` leads to is touched.
    let pid = unsafe { libc::clone(begin, stack.top(), flags, argument) };
    if pid < 0 {
        let number = std::io::Error::last_os_error().raw_os_error();
        return Err(Errno::new(number.unwrap_or(libc::EAGAIN)));
    }
    crate::signal::stop_until(moment);
    let anew = crate::signal::pending().has(libc::SIGTSTP);
    let word = 1u8;
    let mut status = 0i32;
    // SAFETY: the pointers are to a byte, and to room for the answer; no usage is asked for. Its end is told by
    // another signal than SIGCHLD.
    let ended = unsafe {
        let _ = sys!(write, tell.as_raw_fd(), &raw const word, 1usize);
        loop {
            match sys!(wait4, pid, &raw mut status, libc::__WALL, 0usize) {
                Err(Errno::EINTR) => {}
                ended => break ended,
            }
        }
    };
    ended.and(if status == 0 { Ok(anew) } else { Err(Errno::ECHILD) })
}

extern "C" fn begin(order: *mut c_void) -> c_int {
    // SAFETY: `stop_until` made it, and waits.
    let order = unsafe { &mut *order.cast::<Order<'_>>() };
    // A signal to the first one's group, by the terminal too, is not about us.
    // SAFETY: takes numbers.
    let bound = unsafe {
        let _ = sys!(setpgid, 0usize, 0usize);
        sys!(prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0usize, 0usize, 0usize)
    };
    // SAFETY: takes nothing.
    let parent = unsafe { sys!(getppid) };
    if bound.is_err() || parent != Ok(order.front as usize) {
        return 1;
    }
    (order.work)(Standin { over: order.over, front: order.front });
    0
}

/// Memory for a stack.
struct Stack(*mut c_void);

impl Stack {
    fn new() -> Result<Stack> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: new memory, at a place of the kernel's choice.
        let place = unsafe { sys!(mmap, 0usize, STACK, access, flags, -1isize, 0usize) }?;
        let stack = Stack(place as *mut c_void);
        // SAFETY: of that memory, of which nothing is used yet.
        unsafe { sys!(mprotect, place, GUARD, libc::PROT_NONE) }?;
        Ok(stack)
    }

    /// Where it begins: it grows downwards.
    fn top(&self) -> *mut c_void {
        self.0.wrapping_byte_add(STACK)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: our own memory, which nobody uses any more.
        let _ = unsafe { sys!(munmap, self.0, STACK) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// The test program itself stops, with all of its threads, until the stand-in has it go on.
    #[test]
    fn what_is_done_meanwhile_is_done_in_the_same_memory() {
        let mut done = Vec::with_capacity(1);
        // It wakes us long before that, unless another thread was stopped with memory in its hands.
        let moment = Some(Instant::now() + Duration::from_secs(10));
        let stopped = stop_until(moment, &mut |standin| {
            done.push(std::process::id());
            loop {
                standin.wake();
                let over = fd::poll_readable(&[standin.over()], 10).is_ok_and(|ready| ready[0]);
                if over {
                    return;
                }
            }
        });
        assert_eq!(stopped, Ok(false));
        assert_eq!(done.len(), 1);
        assert_ne!(done[0], std::process::id());
    }

    #[test]
    fn the_moment_ends_the_stop() {
        let mut rounds = 0;
        let moment = Some(Instant::now() + Duration::from_millis(20));
        let stopped = stop_until(moment, &mut |standin| {
            rounds += 1;
            let _ = fd::poll_readable(&[standin.over()], -1);
        });
        assert_eq!((stopped, rounds), (Ok(false), 1));
    }

    #[test]
    fn a_stop_that_comes_before_we_go_on_is_told() {
        use crate::signal::{SignalSet, pending, set_mask};
        let before = set_mask(SignalSet::of(&[libc::SIGTSTP])).expect("a mask");
        // SAFETY: takes nothing.
        let us = unsafe { sys!(gettid) }.expect("a thread");
        // Whether it comes before we look is up to the kernel: once in so many times it does.
        let told = (0..1000).any(|_| {
            let moment = Some(Instant::now() + Duration::from_secs(10));
            let stopped = stop_until(moment, &mut |standin| {
                loop {
                    standin.wake();
                    // SAFETY: takes numbers.
                    let _ = unsafe { sys!(tgkill, standin.front, us, libc::SIGTSTP) };
                    let over = fd::poll_readable(&[standin.over()], 10).is_ok_and(|ready| ready[0]);
                    if over {
                        return;
                    }
                }
            });
            assert!(!pending().has(libc::SIGTSTP), "its end has discarded it");
            stopped.expect("it stopped")
        });
        set_mask(before).expect("a mask");
        assert!(told);
    }
}
