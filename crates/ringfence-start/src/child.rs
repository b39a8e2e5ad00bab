//! The child of the launcher: builds the boundary around itself, starts the command in it, and
//! stays as its warden.

use crate::Errno;
use crate::before::Before;
use crate::beside::Beside;
use crate::bytes::string;
use crate::call::{exit, send, sys};
use crate::image::{ANNOUNCED, AWAITED, PASSING, PROCESS_TIER, register};
use crate::machine::{Failed, Machine, orphaned, report, send_about};
use crate::spawn::{Command, MOST_PATH, Refused};
use crate::warden::{Wanted, Warden};

/// What the child says on the control socket when no command runs. Each is followed by the step
/// (where it has one) and the error, as four bytes each.
pub mod said {
    /// The command executes; its number inside and its path follow.
    pub const EXECUTES: u8 = b'R';
    /// All is built, and the command is told to go.
    pub const GO: u8 = b'g';
    /// A step of building the boundary failed.
    pub const BUILD: u8 = b'b';
    /// A step of confining the command failed.
    pub const CONFINE: u8 = b'c';
    /// No such command.
    pub const NOT_FOUND: u8 = b'n';
    /// The command may not be executed.
    pub const NOT_EXECUTABLE: u8 = b'p';
    /// `execve` failed.
    pub const EXECUTE: u8 = b'x';
    /// No process could be made for the command.
    pub const CLONE: u8 = b'f';
}

/// What the child is started with.
pub struct Start<'a> {
    /// The machine, its registers set.
    pub machine: &'a mut Machine,
    /// What to execute.
    pub command: Command,
    /// The list to use when the kernel finds no format in the file: `/bin/sh`, a free place for
    /// the file, the arguments; or null.
    pub shell: *mut *const u8,
    /// `PATH` of the command's environment.
    pub search: Option<&'a [u8]>,
    /// A stack for the process that becomes the command.
    pub stack: &'a mut [u8],
    /// Room for the command's path.
    pub path: &'a mut [u8; MOST_PATH],
    /// Where the launcher's word is waited for before anything is executed, and put.
    pub before: Option<&'a mut Before>,
}

/// The child's life, until it ends or has to become more than a simple warden.
///
/// # Safety
/// As for [`Machine::run`].
pub unsafe fn main(mut start: Start<'_>) -> (Warden, Wanted) {
    let control = start.machine.control();
    let Some(image) = start.machine.image else { exit(125) };
    let flags = image.header().flags;
    let (beside, command) = (start.machine.beside, start.command);
    let (sought, path) = ((&raw const command, start.shell, start.search), &raw mut *start.path);
    let before = start.before.take();
    // SAFETY: nobody else touches the object, the stack or the path yet; all outlive the process beside us, which
    // has executed or ended when this function returns.
    unsafe { (*beside).prepare(start.machine, sought, path, start.stack, before) };
    // SAFETY: by the caller's promise.
    if let Err(failed) = unsafe { start.machine.run(image.build(), 0, image.build().len()) } {
        // SAFETY: prepared, and not waited for.
        unsafe { Beside::abandon(beside) };
        report(control, said::BUILD, failed);
        exit(125)
    }
    let process_tier = flags & PROCESS_TIER != 0;
    // SAFETY: as above.
    let pid = match unsafe { begin(start) } {
        Ok(Some(pid)) => pid,
        // The launcher is gone. Without a mount namespace there are things of ours to remove.
        Ok(None) if process_tier => {
            let warden = Warden { command: 0, control, process_tier, passing: false };
            return (warden, Wanted::Orphaned);
        }
        Ok(None) => exit(125),
        Err(refused) => {
            say(control, refused);
            exit(125)
        }
    };
    let warden = Warden { command: pid, control, process_tier, passing: flags & PASSING != 0 };
    let wanted = warden.watch();
    (warden, wanted)
}

/// Has the command executed; nothing when the launcher died before.
unsafe fn begin(start: Start<'_>) -> Result<Option<i32>, Refused> {
    let Start { machine, path, .. } = start;
    let flags = machine.image.map_or(0, |image| image.header().flags);
    let control = machine.control();
    let path = path.as_ptr();
    // Where there is a view, who had the command go has seen to that.
    if flags & PROCESS_TIER != 0 && orphaned(control) {
        // SAFETY: prepared, and not waited for.
        unsafe { Beside::abandon(machine.beside) };
        return Ok(None);
    }
    if flags & AWAITED != 0 {
        // While the command is looked for.
        let _ = send(control, &[said::GO]);
    }
    if flags & PROCESS_TIER != 0 {
        // Whoever kills all of the launcher's group is not to kill who ends what left it. The command is a process already,
        // and stays where the launcher was started.
        // SAFETY: takes nothing.
        let _ = unsafe { sys!(setsid) };
    }
    // SAFETY: started by the image.
    let result = unsafe { Beside::execute(machine.beside) };
    if let Ok(Some(pid)) = result {
        if flags & ANNOUNCED != 0 {
            // SAFETY: the path ends with a zero byte.
            let _ = send_about(control, said::EXECUTES, unsafe { string(path) }, pid);
        }
        machine.trace.mark_child(b"executed", control);
    }
    result
}

fn say(control: i32, refused: Refused) {
    let at = |errno| Failed { op: 0, errno };
    match refused {
        Refused::NotFound => report(control, said::NOT_FOUND, at(Errno::ENOENT)),
        Refused::NotExecutable => report(control, said::NOT_EXECUTABLE, at(Errno::EACCES)),
        Refused::Confine(failed) => report(control, said::CONFINE, failed),
        Refused::Execute(errno) => report(control, said::EXECUTE, at(errno)),
        Refused::Clone(errno) => report(control, said::CLONE, at(errno)),
    }
}

/// The registers that a start fills in before the child runs.
pub fn prepare(
    machine: &mut Machine,
    control: i32,
    umask: u32,
    mask: *const u64,
    inherited: usize,
) {
    machine.registers[register::CONTROL as usize] = control as usize;
    machine.registers[register::UMASK as usize] = umask as usize;
    machine.registers[register::SIGNAL_MASK as usize] = mask as usize;
    machine.registers[register::INHERITED as usize] = inherited;
}
