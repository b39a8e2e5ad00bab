//! Finds the command in the sandbox's own view and starts it, confined.

use crate::Errno;
use crate::bytes::{Text, before, from};
use crate::call::{exit, sys};
use crate::image::register;
use crate::machine::{Failed, Machine};
use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};

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

/// A command's start, in memory that the child shares with its parent until it executes: must not move meanwhile.
pub struct Start {
    machine: *mut Machine,
    command: Command,
    path: *const u8,
    refused: Option<Refused>,
    /// The kernel clears it when the child has executed or ended.
    running: AtomicU32,
    pid: i32,
}

impl Start {
    /// Of this command, whose file is at this path, a string.
    pub fn new(machine: &mut Machine, command: Command, path: *const u8) -> Start {
        machine.registers[register::WORKDIR as usize] = command.workdir as usize;
        Start { machine, command, path, refused: None, running: AtomicU32::new(0), pid: 0 }
    }

    /// Begins it, and goes on beside it: what is inside can stop a process before it is confined, and nobody may wait for
    /// one without hearing of that. Returns its PID.
    ///
    /// # Errors
    /// `EAGAIN` at a limit of processes.
    ///
    /// # Safety
    /// As for [`Machine::run`]; the command's pointers must be valid, and the caller single-threaded, with all signals
    /// blocked. What it is about and the stack must live, used by nobody else, until [`Start::is_over`], or until
    /// the process was collected.
    pub unsafe fn begin(this: *mut Start, stack: &mut [u8]) -> crate::Result<i32> {
        let (stack, entry) = (crate::clone::top(stack), confine_and_execute);
        // SAFETY: by the caller's promise; `confine_and_execute` makes raw calls only and ends or executes.
        unsafe {
            (*this).running.store(1, Ordering::Release);
            let running = (*this).running.as_ptr();
            let pid = crate::clone::beside(stack, running, false, entry, this.cast())?;
            (*this).pid = pid;
            Ok(pid)
        }
    }

    /// Whether the process has executed the command or ended.
    ///
    /// # Safety
    /// It must be one that was begun.
    pub unsafe fn is_over(this: *const Start) -> bool {
        // SAFETY: atomic.
        unsafe { (*this).running.load(Ordering::Acquire) == 0 }
    }

    /// What came of it, when that is so or the process was `collected`: its PID. One that failed is collected.
    ///
    /// # Errors
    /// What failed; no process is left then.
    ///
    /// # Safety
    /// As promised to [`Start::begin`].
    pub unsafe fn result(this: *const Start, collected: bool) -> Result<i32, Refused> {
        // SAFETY: written by the child, which has executed or ended: volatile, since the compiler cannot see it.
        match unsafe { (&raw const (*this).refused).read_volatile() } {
            // SAFETY: ours.
            None => Ok(unsafe { (*this).pid }),
            Some(refused) => {
                if !collected {
                    // SAFETY: ours. It is past the place where it could be stopped.
                    crate::clone::collect(unsafe { (*this).pid });
                }
                Err(refused)
            }
        }
    }

    /// Ends it, and collects it.
    ///
    /// # Safety
    /// As promised to [`Start::begin`]; it must not have been collected.
    pub unsafe fn withdraw(this: *const Start) {
        // SAFETY: ours.
        crate::clone::withdraw(unsafe { (*this).pid });
    }
}

extern "C" fn confine_and_execute(argument: *mut c_void) -> ! {
    let start = argument.cast::<Start>();
    // SAFETY: `begin` passes a pointer to a `Start`, of which the parent touches `pid` alone meanwhile.
    unsafe {
        let refused = enter(&mut *(*start).machine, &(*start).command, (*start).path);
        // Volatile, since the parent reads it.
        (&raw mut (*start).refused).write_volatile(Some(refused));
    }
    exit(0)
}

/// All steps and `execve`; returns only what failed.
unsafe fn enter(machine: &mut Machine, command: &Command, path: *const u8) -> Refused {
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
    let Some(image) = machine.image else { return Refused::Clone(Errno::EINVAL) };
    let (first, all) = (image.header().aside as usize, image.confine().len());
    // SAFETY: by the promise of `begin`'s caller.
    unsafe {
        match machine.run(image.confine(), first, all) {
            Ok(()) => execute(machine, command, path),
            Err(failed) => Refused::Confine(failed),
        }
    }
}

/// `execve`; returns only what failed.
///
/// # Safety
/// The path must be a string, the command's lists null-terminated arrays of strings.
unsafe fn execute(machine: &Machine, command: &Command, path: *const u8) -> Refused {
    // What is not an argument of this call tells the filter that it is ours.
    let [first, second] = register::MARKS;
    let (first, second) = (machine.registers[first as usize], machine.registers[second as usize]);
    let (arguments, environment) = (command.arguments, command.environment);
    // SAFETY: by the caller's promise.
    let result = unsafe { sys!(execve, path, arguments, environment, first, second) };
    Refused::Execute(result.err().unwrap_or(Errno::EINVAL))
}

/// [`execute`], and where the kernel finds no format in the file, by `/bin/sh` with the `shell`'s list, if there is one: a
/// text without `#!` is the shell's, as for execvp(3). Returns only what failed.
///
/// # Safety
/// As for [`execute`]; the list's second place is free for the file.
pub(crate) unsafe fn execute_as_text(
    machine: &Machine,
    command: &Command,
    shell: *mut *const u8,
    path: *const u8,
) -> Refused {
    // SAFETY: by the caller's promise.
    unsafe {
        let refused = execute(machine, command, path);
        if refused != Refused::Execute(Errno::ENOEXEC) || shell.is_null() {
            return refused;
        }
        *shell.add(1) = path;
        let command = Command { arguments: shell, ..*command };
        execute(machine, &command, c"/bin/sh".as_ptr().cast())
    }
}
