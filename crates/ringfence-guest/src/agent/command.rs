//! A command in the guest: started in the view as the user, with its streams.

use super::Slot;
use crate::flow::{Got, Sink, Source};
use crate::wire::{Exec, Output, ToHost};
use ringfence_sys::process::{self, Forked};
use ringfence_sys::terminal::{self, Size};
use ringfence_sys::{fd, signal};
use rustix::process::{Resource, Rlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, LinkNameSpaceType};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;

/// The place of standard input, or of the terminal.
pub const INPUT: usize = 0;
const OUT: usize = 1;
const ERROR: usize = 2;
/// The place of the pipe that tells whether the command executes.
const START: usize = 3;

/// A command that runs.
pub struct Command {
    /// Its process.
    pub pid: i32,
    input: Option<OwnedFd>,
    sink: Sink,
    out: Option<OwnedFd>,
    out_source: Source,
    error: Option<OwnedFd>,
    error_source: Source,
    /// The terminal's master: input and output are one.
    terminal: bool,
    start: Option<OwnedFd>,
    refusal: Vec<u8>,
}

/// The streams as the command gets them.
struct Theirs {
    streams: [OwnedFd; 3],
    terminal: bool,
}

impl Command {
    /// Starts a command in the view, in a control group where it has limits: it begins there, since to be moved
    /// there would wait for the whole kernel.
    ///
    /// # Errors
    /// A sentence.
    pub fn start(
        exec: &Exec,
        view: BorrowedFd<'_>,
        group: Option<&OwnedFd>,
    ) -> Result<Command, String> {
        let failed = |what: &'static str| move |error| format!("{what}: {error:?}");
        let pipe = || fd::pipe().map_err(failed("pipe"));
        let (start, told) = pipe()?;
        let (errors, their_error) = pipe()?;
        let (input, out, theirs) = if exec.terminal.0 {
            // The guest's own terminals, by a path that does not lead through its files.
            let (master, slave) =
                terminal::open(c"/dev/pts/ptmx").map_err(failed("open(/dev/pts/ptmx)"))?;
            let size = Size([exec.size.0, exec.size.1, 0, 0]);
            let _ = terminal::set_size(master.as_fd(), size);
            let copy = |fd: &OwnedFd| fd.try_clone().map_err(|error| format!("dup: {error}"));
            let error = if exec.terminal.1 { copy(&slave)? } else { their_error };
            let streams = [copy(&slave)?, slave, error];
            (copy(&master)?, master, Theirs { streams, terminal: true })
        } else {
            let ((their_input, input), (out, their_out)) = (pipe()?, pipe()?);
            (input, out, Theirs { streams: [their_input, their_out, their_error], terminal: false })
        };
        for ours in [&input, &out, &errors, &start] {
            fd::never_wait(ours.as_fd()).map_err(failed("fcntl"))?;
        }
        match process::fork_into(process::Namespaces::NONE, group.map(AsFd::as_fd)) {
            Ok(Forked::Child) => {
                let (code, why) = become_command(exec, view, theirs);
                let said = [&[code], why.as_bytes()].concat();
                let _ = fd::write_all(told.as_fd(), &said);
                process::exit_now(code.into())
            }
            Ok(Forked::Parent(pid, _)) => Ok(Command {
                pid,
                input: Some(input),
                sink: Sink::default(),
                out: Some(out),
                out_source: Source::default(),
                // Closed at once where the terminal is standard error too.
                error: Some(errors),
                error_source: Source::default(),
                terminal: exec.terminal.0,
                start: Some(start),
                refusal: Vec::new(),
            }),
            Err(errno) => Err(format!("cannot make a process: {errno:?}")),
        }
    }

    /// What to watch.
    pub fn watched(&self) -> impl Iterator<Item = Slot<'_>> {
        let input = self.input.iter().map(|fd| (INPUT, fd.as_fd(), false, self.sink.wanted()));
        let out = self.out.iter().map(|fd| (OUT, fd.as_fd(), self.out_source.wanted(), false));
        let error =
            self.error.iter().map(|fd| (ERROR, fd.as_fd(), self.error_source.wanted(), false));
        let start = self.start.iter().map(|fd| (START, fd.as_fd(), true, false));
        input.chain(out).chain(error).chain(start)
    }

    /// Bytes for its input.
    pub fn input(&mut self, bytes: &[u8]) {
        if self.input.is_some() {
            self.sink.add(bytes);
        }
    }

    /// Its input ends.
    pub fn end_input(&mut self) {
        self.sink.end();
    }

    /// The host took some of an output.
    pub fn taken(&mut self, output: Output, count: u32) {
        match output {
            Output::Out => self.out_source.taken(count),
            Output::Error => self.error_source.taken(count),
        }
    }

    /// The host has nobody who reads an output: its next write fails, as into any closed pipe.
    pub fn end_output(&mut self, output: Output) {
        match output {
            // A terminal hangs up.
            Output::Out => self.out = None,
            Output::Error => self.error = None,
        }
    }

    /// Sends it a signal; to its whole group like a terminal.
    pub fn signal(&self, number: i32, group: bool) {
        let _ = signal::kill(if group { -self.pid } else { self.pid }, number);
    }

    /// Its terminal's size has changed.
    pub fn resize(&self, rows: u16, columns: u16) {
        if let Some(master) = self.out.as_ref().filter(|_| self.terminal) {
            let _ = terminal::set_size(master.as_fd(), Size([rows, columns, 0, 0]));
        }
    }

    /// Does what one of its descriptors is ready for.
    pub fn turn(&mut self, at: usize) -> Option<ToHost> {
        match at {
            INPUT => {
                let wrote = self.sink.write(self.input.as_ref()?);
                // A terminal stays open: its end is a character, and output comes from it.
                if wrote.broken || wrote.finished && !self.terminal {
                    self.input = None;
                }
                (wrote.count > 0).then_some(ToHost::Taken(wrote.count))
            }
            OUT => self.read(Output::Out, false),
            ERROR => self.read(Output::Error, false),
            _ => self.starting(),
        }
    }

    fn read(&mut self, output: Output, all: bool) -> Option<ToHost> {
        let (slot, source) = match output {
            Output::Out => (&mut self.out, &mut self.out_source),
            Output::Error => (&mut self.error, &mut self.error_source),
        };
        match source.read(slot.as_ref()?, all) {
            Got::Bytes(bytes) => Some(ToHost::Output(output, bytes)),
            Got::Nothing => None,
            Got::End => {
                *slot = None;
                None
            }
        }
    }

    /// Whether it executes.
    fn starting(&mut self) -> Option<ToHost> {
        let mut buffer = [0; 512];
        match rustix::io::read(self.start.as_ref()?, &mut buffer[..]) {
            Ok(count @ 1..) => {
                self.refusal.extend_from_slice(&buffer[..count]);
                None
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => None,
            _ => {
                self.start = None;
                Some(match self.refusal.split_first() {
                    None => ToHost::Started,
                    Some((&code, why)) => {
                        ToHost::Failed(code, String::from_utf8_lossy(why).into_owned())
                    }
                })
            }
        }
    }

    /// What is left to be said of a command that has ended: all that it wrote.
    pub fn last(&mut self) -> Vec<ToHost> {
        let mut messages = Vec::new();
        while self.start.is_some() {
            match self.starting() {
                Some(message) => messages.push(message),
                None if self.refusal.is_empty() => break,
                None => {}
            }
        }
        for output in [Output::Out, Output::Error] {
            while let Some(message) = self.read(output, true) {
                messages.push(message);
            }
        }
        messages
    }
}

/// Turns a child into the command. Returns only when that fails: the exit code that stands for
/// it, and a sentence.
fn become_command(exec: &Exec, view: BorrowedFd<'_>, theirs: Theirs) -> (u8, String) {
    let program = OsStr::from_bytes(&exec.argv[0]);
    let name = program.to_string_lossy();
    if let Err(why) = confine(exec, view, theirs) {
        return (125, why);
    }
    let words: Vec<&OsStr> = exec.argv[1..].iter().map(|word| OsStr::from_bytes(word)).collect();
    let found = (!exec.program.is_empty()).then(|| OsStr::from_bytes(&exec.program));
    let mut command = std::process::Command::new(found.unwrap_or(program));
    command.arg0(program).args(words).env_clear();
    for entry in &exec.environment {
        let at = entry.iter().skip(1).position(|&byte| byte == b'=').map(|at| at + 1);
        if let Some(at) = at {
            command.env(OsStr::from_bytes(&entry[..at]), OsStr::from_bytes(&entry[at + 1..]));
        }
    }
    let error = command.exec();
    match error.kind() {
        io::ErrorKind::NotFound if name.contains('/') => {
            (127, format!("command not found: {name} does not exist in the guest"))
        }
        io::ErrorKind::NotFound => (
            127,
            format!("command not found: {name} is in no directory of PATH that the guest can see"),
        ),
        io::ErrorKind::PermissionDenied => {
            let why = "permission denied (it is not executable, or not granted)";
            (126, format!("cannot execute {name}: {why}"))
        }
        _ => (126, format!("cannot execute {name}: {error}")),
    }
}

/// Everything between the fork and the exec.
fn confine(exec: &Exec, view: BorrowedFd<'_>, theirs: Theirs) -> Result<(), String> {
    let failed = |what: &'static str| move |error: rustix::io::Errno| format!("{what}: {error}");
    rustix::process::setsid().map_err(failed("setsid"))?;
    if theirs.terminal {
        rustix::process::ioctl_tiocsctty(&theirs.streams[0]).map_err(failed("TIOCSCTTY"))?;
    }
    rustix::stdio::dup2_stdin(&theirs.streams[0]).map_err(failed("dup2"))?;
    rustix::stdio::dup2_stdout(&theirs.streams[1]).map_err(failed("dup2"))?;
    rustix::stdio::dup2_stderr(&theirs.streams[2]).map_err(failed("dup2"))?;
    let limit = Rlimit { current: Some(exec.files.0), maximum: Some(exec.files.1) };
    rustix::process::setrlimit(Resource::Nofile, limit).map_err(failed("setrlimit"))?;
    // As in every tier: what a program held is not left in a file.
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    rustix::process::setrlimit(Resource::Core, none).map_err(failed("setrlimit"))?;
    rustix::thread::move_into_link_name_space(view, Some(LinkNameSpaceType::Mount))
        .map_err(failed("setns"))?;
    let workdir = OsStr::from_bytes(&exec.workdir);
    rustix::process::chdir(workdir).map_err(|error| {
        format!("cannot start in {}: {error}; the guest cannot see it", workdir.to_string_lossy())
    })?;
    let _ = rustix::process::umask(rustix::fs::Mode::from_raw_mode(exec.umask));
    let (user, group) =
        (rustix::fs::Uid::from_raw(exec.user.0), rustix::fs::Gid::from_raw(exec.user.1));
    rustix::thread::set_thread_groups(&[]).map_err(failed("setgroups"))?;
    rustix::thread::set_thread_res_gid(group, group, group).map_err(failed("setresgid"))?;
    rustix::thread::set_thread_res_uid(user, user, user).map_err(failed("setresuid"))?;
    // Nothing inside has a use for a capability: what they could change is the guest's only, but
    // the more of the kernel and of the machine's devices is out of reach the better. None can come back by a program:
    // the bounding set has been empty since the guest booted.
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none).map_err(failed("capset"))?;
    rustix::thread::set_no_new_privs(true).map_err(failed("prctl"))?;
    signal::set_mask(signal::SignalSet::of(&[])).map_err(|errno| format!("sigmask: {errno:?}"))?;
    Ok(())
}
