//! The process that becomes the command, made before the boundary is built: it does beside the warden what
//! needs nothing of the view.
//!
//! To make a network namespace takes the kernel longer than anything else in a launch, and to give up rights and
//! to install the filter as long as a third of the view. None of it needs what comes before it, so that on a
//! machine with two processors it costs next to nothing. The process shares memory and descriptors with the
//! warden until it executes the command; it does not get on before the warden has said that all is built.
//!
//! ```text
//! warden  ── start ── view ──────── enters the network ── rules ── go ── waits ── watches
//!              └── places ── network ── rights, filter ───────── confined: execve
//! ```
//!
//! Where a view is put together of hundreds of files (`--libs exact`), it makes the places for them too: names in
//! the view's own file system, on which the warden mounts then.

use crate::call::{close, exit, sys};
use crate::clone;
use crate::image::{Header, Image, PROCESS_TIER, register};
use crate::later::Later;
use crate::machine::Machine;
use crate::spawn::{Command, Refused};
use crate::{Errno, Result};
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};

const CLONE_NEWNET: usize = 0x4000_0000;
const SIGKILL: usize = 9;

/// [`Beside::running`]: the network is being made.
const BEGUN: u32 = 1;
/// [`Beside::running`]: it is made, or is not to be, or cannot be.
const BEYOND_NETWORK: u32 = 2;

/// [`Beside::stage`]: the registers are there with which places are to be made.
const PLACES: u32 = 1;
/// [`Beside::stage`]: all is built.
const GO: u32 = 2;

/// [`Beside::places`]: all are made.
const MADE: u32 = 1;

/// What the two processes share; must not move while both run.
pub struct Beside {
    /// The second one's own.
    machine: Machine,
    command: *const Command,
    path: *const u8,
    stack: *mut u8,
    /// Its number, or 0.
    pid: i32,
    /// The first one's number.
    warden: i32,
    wants_network: bool,
    /// What it looks at when the network is made.
    later: Later,
    /// The namespace's descriptor, or a negative error number.
    network: AtomicI32,
    /// [`BEGUN`], [`BEYOND_NETWORK`]; the kernel clears it when the command executes, or at the end.
    running: AtomicU32,
    /// [`PLACES`], [`GO`].
    stage: AtomicU32,
    /// [`MADE`] when the places are made, or more by the error number.
    places: AtomicU32,
    /// 1 when `refused` is written.
    failed: AtomicU32,
    refused: MaybeUninit<Refused>,
}

impl Default for Beside {
    fn default() -> Beside {
        Beside::new()
    }
}

impl Beside {
    /// Nothing begun. All zeroes, so that a static one takes no place in the file.
    pub const fn new() -> Beside {
        Beside {
            machine: Machine::NEW,
            command: core::ptr::null(),
            path: core::ptr::null(),
            stack: core::ptr::null_mut(),
            pid: 0,
            warden: 0,
            wants_network: false,
            later: Later::NONE,
            network: AtomicI32::new(0),
            running: AtomicU32::new(0),
            stage: AtomicU32::new(0),
            places: AtomicU32::new(0),
            failed: AtomicU32::new(0),
            refused: MaybeUninit::uninit(),
        }
    }

    /// Has it look at an image's later stamps too.
    pub fn look_later(&mut self, image: Image) {
        self.later.set(image);
    }

    /// What it is to execute, once it is told to.
    ///
    /// # Safety
    /// As for [`clone::beside`]; the command must live as long.
    pub(crate) unsafe fn prepare(
        &mut self,
        machine: &Machine,
        command: *const Command,
        stack: &mut [u8],
    ) {
        self.machine.image = machine.image;
        self.machine.trace = machine.trace;
        self.command = command;
        self.stack = clone::top(stack);
    }

    /// Starts it; `network`: in a network namespace of its own, which it makes.
    ///
    /// # Errors
    /// `EAGAIN` at a limit of processes; a directory of the later stamps is not there any more.
    ///
    /// # Safety
    /// `this` must have been prepared, and nobody may touch it but by the functions below until the command
    /// executes or [`Beside::abandon`] returned.
    pub(crate) unsafe fn start(
        this: *mut Beside,
        registers: &[usize; register::COUNT],
        network: bool,
    ) -> Result<()> {
        // SAFETY: nobody else is there yet; the stack and the object live as the caller promises.
        unsafe {
            (*this).later.open()?;
            take(&mut (*this).machine, registers);
            (*this).wants_network = network;
            (*this).warden = sys!(getpid)? as i32;
            (*this).running.store(BEGUN, Ordering::Release);
            let running = (*this).running.as_ptr();
            (*this).pid = clone::beside((*this).stack, running, live, this.cast())?;
        }
        Ok(())
    }

    /// Whether it has places to make; without any it does not wait to be told to.
    ///
    /// # Safety
    /// As for [`Beside::start`].
    unsafe fn has_places(this: *const Beside) -> bool {
        // SAFETY: written before it was started.
        unsafe { (*this).machine.image }.is_some_and(|image| places(image.header()) > 0)
    }

    /// Has it make the places of the view, if there are any, with these registers.
    ///
    /// # Safety
    /// As for [`Beside::start`]; this must be said once.
    pub(crate) unsafe fn make_places(this: *mut Beside, registers: &[usize; register::COUNT]) {
        // SAFETY: it touches its registers when it is told to, and not before; the rest is atomic.
        unsafe {
            if !Beside::has_places(this) {
                return;
            }
            take(&mut (*this).machine, registers);
            (*this).stage.store(PLACES, Ordering::Release);
            wake(&(*this).stage);
        }
    }

    /// Waits until these are made.
    ///
    /// # Errors
    /// That of the first one that could not be made; `ESRCH` when it was killed.
    ///
    /// # Safety
    /// As for [`Beside::start`]; it must have been told to.
    pub(crate) unsafe fn places_made(this: *mut Beside) -> Result<()> {
        // SAFETY: `pid` is written by `start` alone, `places` is atomic.
        let (any, pid, places) =
            unsafe { (Beside::has_places(this), (*this).pid, &(*this).places) };
        if !any {
            return Ok(());
        }
        wait_beside(places, pid, |now| now == 0);
        match places.load(Ordering::Acquire) {
            MADE => Ok(()),
            0 => Err(Errno::ESRCH),
            error => Err(Errno::new((error - MADE) as i32)),
        }
    }

    /// Waits until the network namespace is made, and enters it.
    ///
    /// # Errors
    /// Those of `unshare(2)`, of bringing the loopback up, of `setns(2)`; `ESTALE` where a later
    /// stamp does not hold; `ESRCH` when it was killed.
    ///
    /// # Safety
    /// As for [`Beside::start`].
    pub(crate) unsafe fn enter_network(this: *mut Beside) -> Result<()> {
        // SAFETY: both are atomic.
        let (running, network) = unsafe { (&(*this).running, &(*this).network) };
        // SAFETY: `start` wrote it, and nobody does since.
        let pid = unsafe { (*this).pid };
        wait_beside(running, pid, |now| now == BEGUN);
        match network.load(Ordering::Acquire) {
            0 => Err(Errno::ESRCH),
            result if result < 0 => Err(Errno::new(-result)),
            namespace => {
                // SAFETY: takes numbers only.
                let entered = unsafe { sys!(setns, namespace, CLONE_NEWNET) };
                close(namespace);
                entered.map(drop)
            }
        }
    }

    /// Has it execute the command, and waits until it does; returns its PID.
    ///
    /// # Errors
    /// What failed; no process is left then.
    ///
    /// # Safety
    /// As for [`Beside::start`]; the path must be a string.
    pub(crate) unsafe fn execute(
        this: *mut Beside,
        path: *const u8,
    ) -> core::result::Result<i32, Refused> {
        // SAFETY: it looks at the path when it may go on, and not before; the rest are atomic, or its own
        // until it has executed or ended.
        unsafe {
            if (*this).pid <= 0 {
                return Err(Refused::Clone(Errno::ESRCH));
            }
            (*this).path = path;
            (*this).stage.store(GO, Ordering::Release);
            wake(&(*this).stage);
            wait_beside(&(*this).running, (*this).pid, |now| now != 0);
            if (*this).failed.load(Ordering::Acquire) == 0 {
                return Ok((*this).pid);
            }
            collect((*this).pid);
            Err((*this).refused.assume_init_read())
        }
    }

    /// Ends it, where it has begun.
    ///
    /// # Safety
    /// As for [`Beside::start`].
    pub(crate) unsafe fn abandon(this: *mut Beside) {
        // SAFETY: takes numbers; the caller has not collected it yet, so that the number is its own.
        unsafe {
            if (*this).pid > 0 {
                let _ = sys!(kill, (*this).pid, SIGKILL);
                collect((*this).pid);
            }
        }
    }
}

/// How many steps of its list make places of the view.
fn places(header: &Header) -> usize {
    if header.flags & PROCESS_TIER != 0 { 0 } else { header.aside as usize }
}

/// Takes over what the warden's registers hold.
fn take(machine: &mut Machine, registers: &[usize; register::COUNT]) {
    let mut at = 0;
    while let (Some(place), Some(value)) = (machine.registers.get_mut(at), registers.get(at)) {
        *place = *value;
        at += 1;
    }
}

fn collect(pid: i32) {
    let mut status = 0i32;
    // SAFETY: `status` is room for the answer.
    let _ = unsafe { sys!(wait4, pid, &raw mut status, 0, 0) };
}

/// Sleeps as long as the number is as told.
fn wait_while(number: &AtomicU32, as_told: impl Fn(u32) -> bool) {
    wait_beside(number, 0, as_told);
}

/// The same, but not longer than this child lives, if there is one: kernels before 5.16 do not clear the number
/// of who ends in a core dump (`mm_release` in kernel/fork.c), as a filter that kills may have it.
fn wait_beside(number: &AtomicU32, child: i32, as_told: impl Fn(u32) -> bool) {
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
fn wake(number: &AtomicU32) {
    const FUTEX_WAKE: usize = 1;
    // SAFETY: as above.
    let _ = unsafe { sys!(futex, number.as_ptr(), FUTEX_WAKE, 1) };
}

extern "C" fn live(argument: *mut c_void) -> ! {
    let this = argument.cast::<Beside>();
    // SAFETY: `start` passes a pointer to its object, which outlives this process' part in it. The warden touches
    // nothing of it meanwhile but what is atomic, and `path` before it says `go`.
    unsafe {
        if let Some(refused) = become_command(this) {
            (*this).refused.write(refused);
            (*this).failed.store(1, Ordering::Release);
        }
    }
    // Should the warden take it for the command's own end.
    exit(125)
}

/// All steps and `execve`; returns only what failed, or nothing where the warden knows already.
unsafe fn become_command(this: *mut Beside) -> Option<Refused> {
    const PR_SET_PDEATHSIG: usize = 1;
    // SAFETY: as in `live`.
    unsafe {
        let image = (*this).machine.image?;
        let header = *image.header();
        // In a PID namespace nothing outlives the warden anyway.
        let process_tier = header.flags & PROCESS_TIER != 0;
        if process_tier {
            let _ = sys!(prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
            if sys!(getppid) != Ok((*this).warden as usize) {
                return None;
            }
        }
        let places = places(&header);
        if places > 0 {
            wait_while(&(*this).stage, |now| now == 0);
            let made = (*this).machine.run(image.confine(), 0, places);
            let errno = made.err().map_or(0, |failed| failed.errno.into_raw() as u32);
            (*this).places.store(MADE + errno, Ordering::Release);
            wake(&(*this).places);
            if errno != 0 {
                return None;
            }
        }
        let made = if (*this).wants_network {
            let made = make_network();
            let held = (*this).later.hold();
            let made = made.and_then(|namespace| held.map(|()| namespace));
            (*this)
                .network
                .store(made.unwrap_or_else(|errno| -errno.into_raw()), Ordering::Release);
            made.is_ok()
        } else {
            true
        };
        (*this).running.store(BEYOND_NETWORK, Ordering::Release);
        wake(&(*this).running);
        if !made {
            return None;
        }
        let command = &*(*this).command;
        (*this).machine.registers[register::WORKDIR as usize] = command.workdir as usize;
        let (early, all) = (header.early as usize, image.confine().len());
        if let Err(failed) = (*this).machine.run(image.confine(), places, early) {
            return Some(Refused::Confine(failed));
        }
        wait_while(&(*this).stage, |now| now < GO);
        if process_tier {
            let _ = sys!(prctl, PR_SET_PDEATHSIG, 0, 0, 0, 0);
        }
        if let Err(failed) = (*this).machine.run(image.confine(), early, all) {
            return Some(Refused::Confine(failed));
        }
        Some(crate::spawn::execute(&(*this).machine, command, (*this).path))
    }
}

/// Makes a network namespace for the caller, brings its loopback up, and returns a descriptor of it.
unsafe fn make_network() -> Result<i32> {
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

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn who_ends_without_a_word_holds_up_nobody() {
        let mut child = std::process::Command::new("true").spawn().expect("true(1)");
        let running = AtomicU32::new(BEGUN);
        wait_beside(&running, child.id().cast_signed(), |now| now != 0);
        assert_eq!(running.load(Ordering::Acquire), BEGUN);
        assert!(child.wait().expect("left to be collected").success());
    }
}
