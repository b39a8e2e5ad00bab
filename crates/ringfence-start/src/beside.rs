//! The process that becomes the command, made before the boundary is built: it does beside the warden what
//! needs nothing of the view.
//!
//! To make a network namespace takes the kernel longer than anything else in a launch, and to give up rights and
//! to install the filter as long as a third of the view. None of it needs what comes before it, so that on a
//! machine with two processors it costs next to nothing. The process shares memory and descriptors with the
//! warden until it executes the command; it does not get on before the warden has said that all is built.
//!
//! ```text
//! warden  ── start ── view, rules ── enters the network ── go ── lets go of the host's tree ── waits ── watches
//!              └── places ── network, its loopback ── rights, filter ── finds, confines ── is told that the plan holds: execve
//! ```
//!
//! The unmount of the host's tree waits for every processor (`synchronize_rcu_expedited`), long after nobody can
//! reach the tree: 64 µs at rest, 800 where the others are busy. So it is the warden's last step, after its word to go,
//! and who executes sees to it that the tree is gone before any path is followed that can have a link or `..` in it:
//! before the command is looked for. The launcher's word that the plan holds is waited for by who executes, and only
//! when nothing else is left to do: nobody has to be woken to pass it on.
//!
//! Where a view is put together of hundreds of files (`--libs exact`), it makes the places for them too: names in
//! the view's own file system, on which the warden mounts then.

use crate::apart::{has_left_host, leave_host};
use crate::before::Before;
use crate::bytes::{Text, string};
use crate::call::{exit, sys};
use crate::clone;
use crate::image::{Header, Image, PROCESS_TIER, register, special};
use crate::later::Later;
use crate::machine::{Machine, orphaned};
use crate::network::Network;
use crate::spawn::{Command, MOST_PATH, Refused, execute_as_text, find};
use crate::waits::{wait_beside, wait_soon, wait_while, wake};
use crate::{Errno, Result};
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicI64, AtomicU32, Ordering};

const SIGKILL: usize = 9;

/// [`Beside::running`]: the network is being made.
const BEGUN: u32 = 1;
/// [`Beside::running`]: it is made, or is not to be, or cannot be.
const BEYOND_NETWORK: u32 = 2;

/// [`Beside::stage`]: the registers are there with which places are to be made.
const PLACES: u32 = 1;
/// [`Beside::stage`]: the view is built, but the host's tree may still be mounted over the root.
const BUILT: u32 = 2;
/// [`Beside::stage`]: it is not any more.
const APART: u32 = 4;
/// [`Beside::stage`]: all that the command needs is done.
const GO: u32 = 8;

/// [`Beside::word`]: the launcher has said that the plan holds.
const HEARD: u32 = 1;
/// [`Beside::word`]: it died instead.
const UNHEARD: u32 = 2;

/// [`Beside::places`]: all are made.
const MADE: u32 = 1;

/// What the two processes share; must not move while both run.
pub struct Beside {
    /// The second one's own.
    machine: Machine,
    command: *const Command,
    /// `PATH` of the command's environment.
    search: Option<*const [u8]>,
    /// Room for the command's path, which it finds.
    path: *mut [u8; MOST_PATH],
    stack: *mut u8,
    /// As [`crate::child::Start`] has it.
    shell: *mut *const u8,
    /// Its number, or 0.
    pid: i32,
    /// The first one's number.
    warden: i32,
    wants_network: bool,
    /// What it looks at when the network is made.
    later: Later,
    /// The [`Network`], or a negative error number.
    network: AtomicI64,
    /// [`BEGUN`], [`BEYOND_NETWORK`]; the kernel clears it when the command executes, or at the end.
    running: AtomicU32,
    /// Of [`PLACES`], [`BUILT`], [`APART`], [`GO`] what has been reached.
    stage: AtomicU32,
    /// Where the launcher's word is put that the plan holds; null where it does not say so.
    before: *mut Before,
    /// [`HEARD`], [`UNHEARD`].
    word: AtomicU32,
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
            search: None,
            path: core::ptr::null_mut(),
            stack: core::ptr::null_mut(),
            shell: core::ptr::null_mut(),
            pid: 0,
            warden: 0,
            wants_network: false,
            later: Later::NONE,
            network: AtomicI64::new(0),
            running: AtomicU32::new(0),
            stage: AtomicU32::new(0),
            before: core::ptr::null_mut(),
            word: AtomicU32::new(0),
            places: AtomicU32::new(0),
            failed: AtomicU32::new(0),
            refused: MaybeUninit::uninit(),
        }
    }

    /// Has it look at an image's later stamps too.
    pub fn look_later(&mut self, image: Image) {
        self.later.set(image);
    }

    /// What it is to find, in these directories, and to execute, once it is told to; it writes down where that is.
    ///
    /// # Safety
    /// As for [`clone::beside`]; the command, the directories and the room must live as long.
    pub(crate) unsafe fn prepare(
        &mut self,
        machine: &Machine,
        (command, shell, search): (*const Command, *mut *const u8, Option<&[u8]>),
        path: *mut [u8; MOST_PATH],
        stack: &mut [u8],
        before: Option<&mut Before>,
    ) {
        self.before = before.map_or(core::ptr::null_mut(), core::ptr::from_mut);
        self.machine.image = machine.image;
        self.machine.trace = machine.trace;
        self.command = command;
        self.shell = shell;
        self.search = search.map(core::ptr::from_ref);
        self.path = path;
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
            (*this).own_pages();
            let running = (*this).running.as_ptr();
            (*this).pid = clone::beside((*this).stack, running, true, live, this.cast())?;
            crate::processors::part_from((*this).pid);
        }
        Ok(())
    }

    /// Has the kernel copy now what both will write to of the pages that were the launcher's: where one process
    /// has it copied, the other one's processor is interrupted for it, which takes a virtual machine 20 to 50 µs.
    ///
    /// # Safety
    /// As for [`Beside::start`], before it.
    unsafe fn own_pages(&self) {
        // SAFETY: prepared: there is room for a path, and a stack, of which nothing is used yet.
        unsafe {
            self.path.cast::<u8>().write_volatile(0);
            self.stack.sub(1).write_volatile(0);
        }
        let Some(image) = self.machine.image else { return };
        let lists = [image.build(), image.confine()];
        let mut list = 0;
        while let Some(ops) = lists.get(list) {
            let mut at = 0;
            while let Some(op) = ops.get(at) {
                if op.call == special::STORE
                    && let Some(place) = image.pointer(op.arguments[0], 1)
                {
                    // SAFETY: a byte of the image's, which nobody else looks at now.
                    unsafe { touch(place) };
                }
                at += 1;
            }
            list += 1;
        }
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
            reach(&(*this).stage, PLACES);
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
        wait_soon(running, pid, |now| now == BEGUN);
        match network.load(Ordering::Acquire) {
            0 => Err(Errno::ESRCH),
            result if result < 0 => Err(Errno::new(-result as i32)),
            network => Network::of_number(network).enter(),
        }
    }

    /// All is built: has the command go, and lets go of the host's tree, which is mounted over the root, meanwhile.
    /// One that becomes a job of its own is told by [`Beside::execute`].
    ///
    /// # Errors
    /// Those of `umount2(2)`: the command, which has followed no path then, must be abandoned. `ESRCH` when the launcher
    /// died, where no word of it is waited for.
    ///
    /// # Safety
    /// As for [`Beside::start`].
    pub(crate) unsafe fn all_built(this: *mut Beside, control: i32) -> Result<()> {
        // SAFETY: the stage is atomic, the rest was written before it was started.
        let (stage, heard, job) =
            unsafe { (&(*this).stage, !(*this).before.is_null(), (*(*this).command).job) };
        if !heard && orphaned(control) {
            return Err(Errno::ESRCH);
        }
        reach(stage, if job { BUILT } else { BUILT | GO });
        leave_host()?;
        reach(stage, APART);
        Ok(())
    }

    /// Has it execute the command, when the launcher has said so, and waits until it does; returns its PID, or nothing
    /// when the launcher died instead.
    ///
    /// # Errors
    /// What failed; no process is left then.
    ///
    /// # Safety
    /// As for [`Beside::start`].
    pub(crate) unsafe fn execute(this: *mut Beside) -> core::result::Result<Option<i32>, Refused> {
        // SAFETY: what is touched here is atomic, or its own until it has executed or ended.
        unsafe {
            if (*this).pid <= 0 {
                return Err(Refused::Clone(Errno::ESRCH));
            }
            if (*(*this).command).job {
                // Nor is the terminal given away before it is known that this is the command that runs.
                if !(*this).before.is_null() {
                    wait_beside(&(*this).word, (*this).pid, |now| now == 0);
                }
                // By itself it would ask the launcher, by the filter that it has installed.
                if (*this).word.load(Ordering::Acquire) != UNHEARD {
                    crate::job::begin((*this).pid);
                }
            }
            reach(&(*this).stage, GO);
            wait_beside(&(*this).running, (*this).pid, |now| now != 0);
            if (*this).word.load(Ordering::Acquire) == UNHEARD {
                clone::collect((*this).pid);
                return Ok(None);
            }
            if (*this).failed.load(Ordering::Acquire) == 0 {
                return Ok(Some((*this).pid));
            }
            clone::collect((*this).pid);
            Err((*this).refused.assume_init_read())
        }
    }

    /// Ends it, where it has begun.
    ///
    /// # Safety
    /// As for [`Beside::start`].
    pub(crate) unsafe fn abandon(this: *mut Beside) {
        // SAFETY: written by `start` alone.
        let pid = unsafe { (*this).pid };
        // The caller has not collected it yet.
        if pid > 0 {
            clone::withdraw(pid);
        }
    }
}

/// Says that this is reached; a bit of a stage, or the only word of a place.
fn reach(place: &AtomicU32, what: u32) {
    place.fetch_or(what, Ordering::Release);
    wake(place);
}

/// Sleeps until the warden has reached this.
fn wait_for(stage: &AtomicU32, what: u32) {
    wait_while(stage, |now| now & what == 0);
}

/// Writes a byte as it is.
///
/// # Safety
/// It must be readable and writable, and nobody else's now.
unsafe fn touch(byte: *mut u8) {
    // SAFETY: by the caller's promise.
    unsafe { byte.write_volatile(byte.read_volatile()) };
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
            wait_for(&(*this).stage, PLACES);
            let made = (*this).machine.run(image.confine(), 0, places);
            let errno = made.err().map_or(0, |failed| failed.errno.into_raw() as u32);
            (*this).places.store(MADE + errno, Ordering::Release);
            wake(&(*this).places);
            if errno != 0 {
                return None;
            }
        }
        let made = if (*this).wants_network {
            let made = Network::make();
            let held = (*this).later.hold();
            let made = made.and_then(|network| held.map(|()| network.to_number()));
            let told = made.unwrap_or_else(|errno| -i64::from(errno.into_raw()));
            (*this).network.store(told, Ordering::Release);
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
        let stage = &(*this).stage;
        let refused = make_ready(this, places, process_tier);
        // What is refused is told after that too: the launcher's word is not to lie unread at the socket's end.
        if let Some(before) = (*this).before.as_mut() {
            let control = (*this).machine.control();
            if !before.hear(control) || orphaned(control) {
                reach(&(*this).word, UNHEARD);
                return None;
            }
            reach(&(*this).word, HEARD);
        }
        wait_for(stage, GO);
        (*this).machine.trace.mark_command(b"rules", (*this).machine.control());
        if refused.is_some() {
            return refused;
        }
        if process_tier {
            let _ = sys!(prctl, PR_SET_PDEATHSIG, 0, 0, 0, 0);
        }
        let (held, all) = (header.held as usize, image.confine().len());
        if let Err(failed) = (*this).machine.run(image.confine(), held, all) {
            return Some(Refused::Confine(failed));
        }
        let path = (*this).path.cast_const().cast();
        Some(execute_as_text(&(*this).machine, command, (*this).shell, path))
    }
}

/// All steps that can be made before the launcher has said that the plan holds, from one on, and the command is found
/// meanwhile; returns what failed.
unsafe fn make_ready(this: *mut Beside, first: usize, process_tier: bool) -> Option<Refused> {
    // SAFETY: as in `live`.
    unsafe {
        let (image, command) = ((*this).machine.image?, &*(*this).command);
        let (early, held) = (image.header().early as usize, image.header().held as usize);
        if let Err(failed) = (*this).machine.run(image.confine(), first, early) {
            return Some(Refused::Confine(failed));
        }
        let stage = &(*this).stage;
        wait_for(stage, if process_tier { GO } else { BUILT });
        if !process_tier && !has_left_host() {
            wait_for(stage, APART);
        }
        let name = string(*command.arguments);
        let search = (*this).search.map(|directories| &*directories);
        let mut path = Text::new(&mut *(*this).path);
        if let Err(refused) = find(&mut path, name, search, string(command.workdir)) {
            return Some(refused);
        }
        let made = (*this).machine.run(image.confine(), early, held);
        made.err().map(Refused::Confine)
    }
}
