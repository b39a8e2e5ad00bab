//! Images of plans (`ringfence-start`), carried out by a process that has libc: the same calls
//! in the same order, with the words of the command as Rust has them.

use ringfence_start::beside::Beside;
use ringfence_start::child::{self, Start};
use ringfence_start::entry;
use ringfence_start::image::{Image, register};
use ringfence_start::inherited::{self, OF_CHILDREN, OF_LIMITS, OF_PIPES};
use ringfence_start::machine::Machine;
use ringfence_start::spawn::{Command, MOST_PATH};
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

pub use ringfence_start::machine::Failed;
pub use ringfence_start::spawn::Refused;
pub use ringfence_start::trace::Trace;
pub use ringfence_start::warden::{SERVICE, Stops, Wanted, Warden, pass_on};

use crate::signal::SignalSet;

/// What is executed, and how it is called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// Arguments, the name first; never empty.
    pub arguments: Vec<CString>,
    /// `NAME=value` strings.
    pub environment: Vec<CString>,
    /// The directory to start in.
    pub workdir: CString,
}

impl Words {
    /// `PATH` of the environment.
    pub fn search(&self) -> Option<&[u8]> {
        self.environment.iter().find_map(|entry| entry.as_bytes().strip_prefix(b"PATH="))
    }
}

/// The session (setsid(2)) of a further command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Session {
    /// The caller's.
    #[default]
    Kept,
    /// One of its own, so that it is signalled and stopped apart.
    Own,
    /// One of its own, whose terminal is its standard input.
    OwnTerminal,
}

/// What the command has of the launcher's own caller.
#[derive(Clone, Copy, Debug)]
pub struct Inherited {
    /// The file creation mask.
    pub umask: u32,
    /// The signal mask.
    pub mask: SignalSet,
    /// A shell's job, as one of its own ([`ringfence_start::job`]).
    pub job: bool,
    /// How many files may be open, where the launcher may have more; or 0.
    pub files: u64,
}

/// So much has a mapping of its own: what is not used of it is never touched, where a smaller one would be filled with zeroes.
const STACK: usize = 256 << 10;

/// An image in the course of being carried out: in the end, what confines further commands like
/// the first one.
pub struct Carrier {
    machine: &'static mut Machine,
    stack: Vec<u8>,
}

impl std::fmt::Debug for Carrier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Carrier").finish_non_exhaustive()
    }
}

fn pointers(list: &[CString]) -> Vec<*const u8> {
    list.iter().map(|text| text.as_ptr().cast()).chain([std::ptr::null()]).collect()
}

/// A trace for the child.
pub fn trace(out: Option<RawFd>, elapsed: std::time::Duration, fault: Option<&CStr>) -> Trace {
    let now = ringfence_start::trace::now();
    Trace {
        out: out.unwrap_or(-1),
        start: now.saturating_sub(elapsed.as_nanos() as u64),
        fault: fault.map_or(std::ptr::null(), |name| name.as_ptr().cast()),
    }
}

/// Carries out an image as the child of a launcher: returns when a simple warden does not
/// suffice any more, and otherwise ends the process.
///
/// `assist` does what the image leaves to the launcher, and returns 0 or an error number.
pub fn carry_out(
    image: Image,
    words: &Words,
    control: &OwnedFd,
    inherited: Inherited,
    trace: Trace,
    assist: &mut dyn FnMut(u64, usize) -> i32,
) -> (Warden, Wanted, Carrier) {
    let machine = Box::leak(Box::new(Machine::NEW));
    let beside = Box::leak(Box::new(Beside::new()));
    let Inherited { umask, mask, job, files } = inherited;
    let ignored = entry::ignored();
    // The launcher's own are other ones, whether it knows the caller's or not.
    let inherited = inherited::of(OF_PIPES | OF_LIMITS | OF_CHILDREN, ignored, files);
    let mask = Box::leak(Box::new(mask.bits()));
    machine.set(image, beside, trace);
    child::prepare(machine, control.as_raw_fd(), umask, mask, inherited);
    let mut assist = assist;
    machine.assist = Some((help, (&raw mut assist).cast()));
    let arguments = pointers(&words.arguments);
    let environment = pointers(&words.environment);
    // `/bin/sh`, a place for the file, the arguments behind the name.
    let rest = arguments.get(1..).unwrap_or_default();
    let shell = [c"/bin/sh".as_ptr().cast(), std::ptr::null()];
    let mut shell: Vec<*const u8> = shell.into_iter().chain(rest.iter().copied()).collect();
    let mut carrier = Carrier { machine, stack: vec![0; STACK] };
    let mut path = Box::new([0; MOST_PATH]);
    let start = Start {
        machine: &mut *carrier.machine,
        command: Command {
            arguments: arguments.as_ptr(),
            environment: environment.as_ptr(),
            workdir: words.workdir.as_ptr().cast(),
            streams: [-1; 3],
            session: false,
            terminal: false,
            job,
        },
        shell: shell.as_mut_ptr(),
        search: words.search(),
        stack: &mut carrier.stack,
        path: &mut path,
        before: None,
    };
    // SAFETY: the image was compiled by this program, or found under a key that names this very
    // binary; its calls are of a fixed list that touches no memory but its own data. All
    // pointers above outlive the call.
    let (warden, wanted) = unsafe { child::main(start) };
    carrier.machine.assist = None;
    (warden, wanted, carrier)
}

/// Calls the closure behind the context.
unsafe extern "C" fn help(context: *mut std::ffi::c_void, number: u64, operand: usize) -> i32 {
    // SAFETY: `carry_out` passes a pointer to its reference, which lives until the child is done
    // with the image.
    let assist = unsafe { &mut *context.cast::<&mut dyn FnMut(u64, usize) -> i32>() };
    assist(number, operand)
}

/// Takes over what the entry began in this process, which has become more than a simple warden.
pub fn take_over() -> Option<Carrier> {
    let machine = entry::machine()?;
    // SAFETY: the entry is done with it, and this is the only place that asks.
    let machine = unsafe { &mut *machine };
    // What further commands begin with is ignored by Rust's runtime, and by us, since.
    let since = inherited::of(OF_PIPES | OF_LIMITS, entry::ignored(), 0);
    machine.registers[register::INHERITED as usize] |= since;
    Some(Carrier { machine, stack: vec![0; STACK] })
}

impl Carrier {
    /// Whether a step of the confinement is the one that enters the directory to start in.
    pub fn enters(&self, step: u32) -> bool {
        let op = self.machine.image.and_then(|image| image.confine().get(step as usize).copied());
        op.is_some_and(|op| op.call == ringfence_start::Sysno::chdir as u32)
    }

    /// Starts one more command, as confined as the first one; returns its PID.
    ///
    /// # Errors
    /// What failed; no process is left then.
    pub fn spawn(
        &mut self,
        words: &Words,
        streams: Option<[RawFd; 3]>,
        session: Session,
    ) -> Result<(i32, CString), Refused> {
        let mut room = [0; MOST_PATH];
        let mut path = ringfence_start::bytes::Text::new(&mut room);
        let name = words.arguments.first().map(|name| name.as_bytes()).unwrap_or_default();
        ringfence_start::spawn::find(&mut path, name, words.search(), words.workdir.as_bytes())?;
        let path = CStr::from_bytes_until_nul(&room).unwrap_or_default().to_owned();
        let mut result = self.execute(&path, &words.arguments, words, streams, session);
        if result == Err(Refused::Execute(crate::Errno::ENOEXEC)) {
            // A text without `#!` is the shell's, as for execvp(3).
            let mut arguments = words.arguments.clone();
            arguments.splice(..1, [c"/bin/sh".to_owned(), path.clone()]);
            result = self.execute(c"/bin/sh", &arguments, words, streams, session);
        }
        result.map(|pid| (pid, path))
    }

    fn execute(
        &mut self,
        path: &CStr,
        arguments: &[CString],
        words: &Words,
        streams: Option<[RawFd; 3]>,
        session: Session,
    ) -> Result<i32, Refused> {
        let (arguments, environment) = (pointers(arguments), pointers(&words.environment));
        let command = Command {
            arguments: arguments.as_ptr(),
            environment: environment.as_ptr(),
            workdir: words.workdir.as_ptr().cast(),
            streams: streams.unwrap_or([-1; 3]),
            session: session != Session::Kept,
            terminal: session == Session::OwnTerminal,
            job: false,
        };
        // SAFETY: as for `carry_out`; the warden is single-threaded and blocks all signals.
        unsafe {
            ringfence_start::spawn::spawn(
                self.machine,
                &command,
                path.as_ptr().cast(),
                &mut self.stack,
            )
        }
    }
}
