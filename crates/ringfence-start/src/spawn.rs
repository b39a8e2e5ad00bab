//! Finds the command in the sandbox's own view and starts it, confined.

use crate::Errno;
use crate::bytes::{Text, before, from};
use crate::call::{exit, sys};
use crate::image::register;
use crate::machine::{Failed, Machine};
use core::ffi::c_void;

/// The longest path that the kernel takes.
pub const MOST_PATH: usize = 4096;

/// `execvp(3)`'s default where `PATH` is unset.
const DEFAULT_SEARCH: &[u8] = b"/usr/local/bin:/usr/bin:/bin";

/// What to execute.
#[derive(Clone, Copy)]
pub struct Command {
    /// Arguments, the name first; null-terminated.
    pub arguments: *const *const u8,
    /// Environment, null-terminated.
    pub environment: *const *const u8,
    /// The directory to start in, a string.
    pub workdir: *const u8,
    /// Descriptors for the standard streams, or -1 each to leave them.
    pub streams: [i32; 3],
    /// The child leads a session of its own (setsid(2)).
    pub session: bool,
    /// Its standard input is the session's terminal.
    pub terminal: bool,
    /// It is a job of its own ([`crate::job`]).
    pub job: bool,
}

/// Why nothing could be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No such file.
    NotFound,
    /// There is one, but it may not be executed.
    NotExecutable,
    /// A step of the confinement failed.
    Confine(Failed),
    /// `execve` failed.
    Execute(Errno),
    /// No process could be made.
    Clone(Errno),
}

/// Where the command is: written to `path`, with a zero byte.
///
/// # Errors
/// [`Refused::NotFound`], [`Refused::NotExecutable`].
pub fn find(
    path: &mut Text<'_>,
    name: &[u8],
    search: Option<&[u8]>,
    workdir: &[u8],
) -> Result<(), Refused> {
    const X_OK: usize = 1;
    let named = crate::bytes::position(name, b'/').is_some();
    let mut rest = if named { b"" } else { search.unwrap_or(DEFAULT_SEARCH) };
    let mut refused = Refused::NotFound;
    if name.is_empty() {
        return Err(refused);
    }
    loop {
        let end = crate::bytes::position(rest, b':').unwrap_or(rest.len());
        let directory = before(rest, end);
        path.clear();
        let absolute = |text: &[u8]| text.first() == Some(&b'/');
        if !absolute(if named { name } else { directory }) {
            path.push(workdir);
            path.push(b"/");
        }
        // An empty entry means the current directory, as in execvp(3).
        if !named && !directory.is_empty() {
            path.push(directory);
            path.push(b"/");
        }
        path.push(name);
        if let Some(text) = path.terminated() {
            // SAFETY: the text ends with a zero byte.
            match unsafe { sys!(faccessat, -100_isize, text, X_OK) } {
                Ok(_) => return Ok(()),
                Err(Errno::EACCES) => refused = Refused::NotExecutable,
                Err(_) => {}
            }
        }
        if end == rest.len() {
            return Err(refused);
        }
        rest = from(rest, end + 1);
    }
}

/// What the child tells its parent through the memory they share.
struct Shared<'a> {
    machine: &'a mut Machine,
    command: &'a Command,
    path: *const u8,
    refused: Option<Refused>,
}

/// Starts the command, confined; returns its PID once it executes.
///
/// # Errors
/// What failed; no process is left then.
///
/// # Safety
/// As for [`Machine::run`]; the command's pointers must be valid. The caller must be
/// single-threaded, with all signals blocked.
pub unsafe fn spawn(
    machine: &mut Machine,
    command: &Command,
    path: *const u8,
    stack: &mut [u8],
) -> Result<i32, Refused> {
    machine.registers[register::WORKDIR as usize] = command.workdir as usize;
    let mut shared = Shared { machine, command, path, refused: None };
    let argument = (&raw mut shared).cast::<c_void>();
    // SAFETY: `confine_and_execute` makes raw calls only and ends or executes.
    let pid = unsafe { crate::clone::vfork(stack, confine_and_execute, argument) }
        .map_err(Refused::Clone)?;
    // Written by the child, which the compiler cannot see.
    // SAFETY: `shared` lives; the child has executed or ended.
    match unsafe { (&raw const shared.refused).read_volatile() } {
        None => Ok(pid),
        Some(refused) => {
            let mut status = 0i32;
            // SAFETY: `status` is room for the answer. The child has ended: collect it.
            let _ = unsafe { sys!(wait4, pid, &raw mut status, 0, 0) };
            Err(refused)
        }
    }
}

extern "C" fn confine_and_execute(argument: *mut c_void) -> ! {
    // SAFETY: `spawn` passes a pointer to its `Shared`, and sleeps meanwhile.
    let shared = unsafe { &mut *argument.cast::<Shared<'_>>() };
    // SAFETY: as promised to `spawn`.
    let refused = unsafe { enter(shared) };
    // SAFETY: as above; volatile, since the parent reads it.
    unsafe { (&raw mut shared.refused).write_volatile(Some(refused)) };
    exit(0)
}

/// All steps and `execve`; returns only what failed.
unsafe fn enter(shared: &mut Shared<'_>) -> Refused {
    let command = shared.command;
    let mut fd = 0;
    while let Some(&stream) = command.streams.get(fd) {
        if stream >= 0 {
            // SAFETY: takes numbers.
            if let Err(errno) = unsafe { sys!(dup3, stream, fd, 0) } {
                return Refused::Clone(errno);
            }
        }
        fd += 1;
    }
    if command.session {
        // SAFETY: takes nothing.
        if let Err(errno) = unsafe { sys!(setsid) } {
            return Refused::Clone(errno);
        }
    }
    if command.terminal {
        const TIOCSCTTY: usize = 0x540E;
        // SAFETY: takes numbers.
        if let Err(errno) = unsafe { sys!(ioctl, 0, TIOCSCTTY, 0) } {
            return Refused::Clone(errno);
        }
    }
    if command.job {
        // SAFETY: takes nothing.
        if let Ok(own) = unsafe { sys!(getpid) } {
            crate::job::begin(own as i32);
        }
    }
    let Some(image) = shared.machine.image else { return Refused::Clone(Errno::EINVAL) };
    let (first, all) = (image.header().aside as usize, image.confine().len());
    // SAFETY: by the promise of `spawn`'s caller.
    unsafe {
        match shared.machine.run(image.confine(), first, all) {
            Ok(()) => execute(shared.machine, command, shared.path),
            Err(failed) => Refused::Confine(failed),
        }
    }
}

/// `execve`; returns only what failed.
///
/// # Safety
/// The path must be a string, the command's lists null-terminated arrays of strings.
pub(crate) unsafe fn execute(machine: &Machine, command: &Command, path: *const u8) -> Refused {
    // What is not an argument of this call tells the filter that it is ours.
    let [first, second] = register::MARKS;
    let (first, second) = (machine.registers[first as usize], machine.registers[second as usize]);
    let (arguments, environment) = (command.arguments, command.environment);
    // SAFETY: by the caller's promise.
    let result = unsafe { sys!(execve, path, arguments, environment, first, second) };
    Refused::Execute(result.err().unwrap_or(Errno::EINVAL))
}
