//! The memory that a start uses before libc is up, and what `main` is told of it.

use crate::before::Before;
use crate::beside::Beside;
use crate::brief::{Heard, Room};
use crate::image::Image;
use crate::key::{Caller, MOST};
use crate::machine::Machine;
use crate::mark::Clock;
use crate::runs::Begun;
use crate::spawn::MOST_PATH;
use crate::tops::Tops;
use crate::warden::{Wanted, Warden};
use core::cell::UnsafeCell;

/// Variables of a command's environment.
pub(crate) const MOST_VARIABLES: usize = 2048;
/// Ends within a page.
const STACK: usize = (64 << 10) + 2560;

/// A launch that is under way when `main` begins.
pub struct Launched {
    /// The image; its data is patched for this session.
    pub image: Option<Image>,
    /// The child.
    pub pid: i32,
    /// A pidfd of it.
    pub pidfd: i32,
    /// The launcher's end of the control socket.
    pub control: i32,
    /// The session's number.
    pub session: u32,
    /// The caller's file creation mask.
    pub umask: u32,
    /// The caller's signal mask.
    pub mask: u64,
    /// The place of the command among the arguments.
    pub command: usize,
    /// The time of files, while no `main` runs.
    pub(crate) clock: Clock,
    /// What was seen before the command could run.
    pub before: Before,
    /// Its writable trees.
    pub tops: Tops,
    /// This run, noted for later ones, if that was done already.
    pub runs: Option<Begun>,
    /// The command is a job of its own ([`crate::job`]).
    pub job: bool,
}

/// What this process is when `main` begins.
#[derive(Clone, Copy)]
// All zeroes while it is ordinary, so that the memory that holds it takes no place in the file.
#[repr(u8)]
pub enum Role {
    /// Started as any program.
    Ordinary,
    /// A launcher whose child builds the sandbox, or runs in it already.
    Launcher,
    /// The child, which has to become more than a simple warden.
    Warden(Warden, Wanted),
    /// A client of `exec` whose request has gone over this connection.
    Client(i32),
}

/// What is written on the way to a command lies close together: a page that is new, or that both sides of a fork write
/// to, costs a virtual machine microseconds each time.
#[repr(C, align(4096))]
pub(crate) struct Memory {
    pub caller: UnsafeCell<Option<Caller>>,
    pub role: UnsafeCell<Role>,
    pub mask: UnsafeCell<u64>,
    pub ignored: UnsafeCell<usize>,
    pub machine: UnsafeCell<Machine>,
    pub beside: UnsafeCell<Beside>,
    pub launched: UnsafeCell<Launched>,
    pub environment: UnsafeCell<[*const u8; MOST_VARIABLES]>,
    pub becoming: Becoming,
    pub key: UnsafeCell<Page<[u8; MOST]>>,
    pub heard: UnsafeCell<Page<Heard>>,
    pub room: UnsafeCell<Room>,
}

/// Written by the process that becomes the command: the end of its stack and the beginning of a path are on one page.
#[repr(C, align(4096))]
pub(crate) struct Becoming {
    pub stack: UnsafeCell<[u8; STACK]>,
    pub path: UnsafeCell<[u8; MOST_PATH]>,
}

/// Begins a page.
#[repr(C, align(4096))]
pub(crate) struct Page<T>(pub T);

// SAFETY: used by the one thread that runs before libc, and afterwards only read.
unsafe impl Sync for Memory {}

// Only [`memory`] names it: named from code that is compiled into other crates it would be reached
// through a table of addresses, which nobody has filled in yet.
static MEMORY: Memory = Memory {
    caller: UnsafeCell::new(None),
    role: UnsafeCell::new(Role::Ordinary),
    launched: UnsafeCell::new(Launched {
        image: None,
        pid: 0,
        pidfd: 0,
        control: 0,
        session: 0,
        umask: 0,
        mask: 0,
        command: 0,
        clock: Clock::NONE,
        before: Before::NONE,
        tops: Tops::NONE,
        runs: None,
        job: false,
    }),
    heard: UnsafeCell::new(Page(Heard::new())),
    room: UnsafeCell::new(Room::NEW),
    key: UnsafeCell::new(Page([0; MOST])),
    becoming: Becoming {
        stack: UnsafeCell::new([0; STACK]),
        path: UnsafeCell::new([0; MOST_PATH]),
    },
    environment: UnsafeCell::new([core::ptr::null(); MOST_VARIABLES]),
    beside: UnsafeCell::new(Beside::new()),
    mask: UnsafeCell::new(0),
    ignored: UnsafeCell::new(0),
    machine: UnsafeCell::new(Machine::NEW),
};

#[inline(never)]
pub(crate) fn memory() -> &'static Memory {
    &MEMORY
}

/// How the program was called, if it came through this entry.
pub fn caller() -> Option<Caller> {
    // SAFETY: written once, before there was a second thread.
    unsafe { *memory().caller.get() }
}

/// What this process is.
pub fn role() -> Role {
    // SAFETY: written once, before there was a second thread.
    unsafe { *memory().role.get() }
}

/// Which signals whoever started this program had it ignore ([`crate::inherited`]), if it came through this entry.
pub fn ignored() -> usize {
    // SAFETY: written before there was a second thread.
    unsafe { *memory().ignored.get() }
}

/// The machine that carried an image out in this process, if it is a warden.
pub fn machine() -> Option<*mut Machine> {
    matches!(role(), Role::Warden(..)).then(|| memory().machine.get())
}

/// What the launcher has taken from the control socket already.
pub fn heard() -> &'static Heard {
    // SAFETY: written before there was a second thread.
    unsafe { &(*memory().heard.get()).0 }
}

/// The strings of the command's environment, if an image was found for it.
pub fn environment() -> impl Iterator<Item = &'static [u8]> {
    let mut at = 0;
    core::iter::from_fn(move || {
        // SAFETY: written before there was a second thread; the list ends with a null pointer,
        // its strings live as long as the process.
        unsafe {
            let entry = (*memory().environment.get()).get(at).copied()?;
            at += 1;
            (!entry.is_null()).then(|| crate::bytes::string(entry))
        }
    })
}

/// The launch that is under way, if there is one.
pub fn launched() -> Option<&'static Launched> {
    // SAFETY: written before there was a second thread.
    unsafe { (*memory().launched.get()).image.is_some().then(|| &*memory().launched.get()) }
}
