//! Images of plans (`ringfence-start`), carried out by a process that has libc: the same calls
//! in the same order, with the words of the command as Rust has them.

use ringfence_start::beside::Beside;
use ringfence_start::child;
use ringfence_start::entry;
use ringfence_start::image::{Image, register};
use ringfence_start::inherited::{self, OF_CHILDREN, OF_LIMITS, OF_PIPES};
use ringfence_start::machine::Machine;
use ringfence_start::spawn::{Command, MOST_PATH, Start};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

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
    begun: Option<Begun>,
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
    let mut carrier = Carrier { machine, stack: vec![0; STACK], begun: None };
    let mut path = Box::new([0; MOST_PATH]);
    let start = child::Start {
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
    Some(Carrier { machine, stack: vec![0; STACK], begun: None })
}

impl Carrier {
    /// Whether a step of the confinement is the one that enters the directory to start in.
    pub fn enters(&self, step: u32) -> bool {
        let op = self.machine.image.and_then(|image| image.confine().get(step as usize).copied());
        op.is_some_and(|op| op.call == ringfence_start::Sysno::chdir as u32)
    }

    /// Begins to start one more command, as confined as the first one, with these standard streams, of which it keeps
    /// those that are given it open; it goes on beside us. One at a time.
    ///
    /// # Errors
    /// What failed; no process is left then.
    pub fn begin(
        &mut self,
        words: Words,
        streams: [RawFd; 3],
        kept: Vec<OwnedFd>,
        session: Session,
    ) -> Result<(), Refused> {
        let mut room = [0; MOST_PATH];
        let mut path = ringfence_start::bytes::Text::new(&mut room);
        let name = words.arguments.first().map(|name| name.as_bytes()).unwrap_or_default();
        ringfence_start::spawn::find(&mut path, name, words.search(), words.workdir.as_bytes())?;
        let path = CStr::from_bytes_until_nul(&room).unwrap_or_default().to_owned();
        self.execute(What { words, streams, _kept: kept, session, path }, false)
    }

    /// The one that has begun: what becomes readable when it executes or has ended.
    pub fn begun(&self) -> Option<BorrowedFd<'_>> {
        self.begun.as_ref().map(|begun| begun.over.as_fd())
    }

    /// The process that is to execute it.
    pub fn begins(&self) -> Option<i32> {
        self.begun.as_ref().map(|begun| begun.pid)
    }

    /// Whether it executes, or has ended.
    pub fn is_over(&self) -> bool {
        // SAFETY: it was begun.
        self.begun.as_ref().is_some_and(|begun| unsafe { Start::is_over(begun.start) })
    }

    /// What came of it, where that is so or its process was `collected`: its words, its PID and path; or what failed, and
    /// no process is left then.
    pub fn result(&mut self, collected: bool) -> Option<(Words, Executes)> {
        if !collected && !self.is_over() {
            return None;
        }
        let mut begun = self.begun.take()?;
        begun.settled = true;
        // SAFETY: as promised to `begin`; it is over.
        let mut result = unsafe { Start::result(begun.start, collected) };
        let what = begun.what.take()?;
        if result == Err(Refused::Execute(crate::Errno::ENOEXEC)) && !begun.shell {
            // A text without `#!` is the shell's, as for execvp(3).
            let words = what.words.clone();
            match self.execute(what, true) {
                Ok(()) => return None,
                Err(refused) => result = Err(refused),
            }
            return Some((words, result.map(|pid| (pid, CString::default()))));
        }
        Some((what.words, result.map(|pid| (pid, what.path))))
    }

    /// Ends it, wherever it is; it must not have been collected.
    pub fn abandon(&mut self) {
        self.begun = None;
    }

    fn execute(&mut self, what: What, shell: bool) -> Result<(), Refused> {
        let (mut file, mut arguments) = (what.path.clone(), what.words.arguments.clone());
        if shell {
            arguments.splice(..1, [c"/bin/sh".to_owned(), file]);
            file = c"/bin/sh".to_owned();
        }
        let lists = [pointers(&arguments), pointers(&what.words.environment)];
        let command = Command {
            arguments: lists[0].as_ptr(),
            environment: lists[1].as_ptr(),
            workdir: what.words.workdir.as_ptr().cast(),
            streams: what.streams,
            session: what.session != Session::Kept,
            terminal: what.session == Session::OwnTerminal,
            job: false,
        };
        // Its process has the other end alone, which is closed when it executes or ends.
        let (over, _begins) = crate::fd::pipe().map_err(Refused::Clone)?;
        let start = Start::new(self.machine, command, file.as_ptr().cast());
        let (start, what) = (Box::into_raw(Box::new(start)), Some(what));
        let mut begun = Begun {
            start,
            pid: 0,
            over,
            shell,
            what,
            settled: true,
            _lists: lists,
            _words: (file, arguments),
        };
        // SAFETY: as for `carry_out`; the warden is single-threaded and blocks all signals. What it is about is kept until
        // that process has executed or ended, and there is one at a time.
        begun.pid = unsafe { Start::begin(start, &mut self.stack) }.map_err(Refused::Clone)?;
        begun.settled = false;
        self.begun = Some(begun);
        Ok(())
    }
}

/// The PID and path of what executes, or what failed.
pub type Executes = Result<(i32, CString), Refused>;

/// What is begun.
struct What {
    words: Words,
    streams: [RawFd; 3],
    _kept: Vec<OwnedFd>,
    session: Session,
    path: CString,
}

/// A start that goes on, with all that its process uses of our memory.
struct Begun {
    start: *mut Start,
    pid: i32,
    over: OwnedFd,
    /// It is the shell's.
    shell: bool,
    what: Option<What>,
    /// It has executed, or was collected, or is not yet there.
    settled: bool,
    _lists: [Vec<*const u8>; 2],
    _words: (CString, Vec<CString>),
}

impl Drop for Begun {
    fn drop(&mut self) {
        // SAFETY: begun and not collected where it is not settled; made by `Box`, and nobody's any more.
        unsafe {
            if !self.settled {
                Start::withdraw(self.start);
            }
            drop(Box::from_raw(self.start));
        }
    }
}
