//! A command in the guest: started in the view as the user, with its streams.

use super::waiting::{self, Given, Theirs, Waiting};
use super::{Slot, jobs};
use crate::flow::{Got, Sink, Source};
use crate::wire::{Exec, Output, ToHost};
use ringfence_sys::process::{self, Forked};
use ringfence_sys::terminal::{self, Size};
use ringfence_sys::{fd, signal};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

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
        waiting: Option<Waiting>,
    ) -> Result<Command, String> {
        // One with a terminal begins with it.
        if let Some(waiting) = waiting.filter(|_| !exec.terminal.0)
            && let Some(Given { pid, input, out, error, start }) = waiting.become_command(exec)
        {
            return Ok(Command::of(pid, [input, out, error, start], false));
        }
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
                let stood = waiting::enter(view, theirs).map_err(|why| (125, why));
                waiting::refused(&told, stood.map_or_else(|why| why, |()| waiting::execute(exec)))
            }
            Ok(Forked::Parent(pid, _)) => {
                Ok(Command::of(pid, [input, out, errors, start], exec.terminal.0))
            }
            Err(errno) => Err(format!("cannot make a process: {errno:?}")),
        }
    }

    /// One whose process is there, and our ends of its input, outputs and of the pipe that tells whether it executes.
    fn of(pid: i32, [input, out, error, start]: [OwnedFd; 4], terminal: bool) -> Command {
        Command {
            pid,
            input: Some(input),
            sink: Sink::default(),
            out: Some(out),
            out_source: Source::default(),
            // Closed at once where the terminal is standard error too.
            error: Some(error),
            error_source: Source::default(),
            terminal,
            start: Some(start),
            refusal: Vec::new(),
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
        let number = if self.terminal { number } else { jobs::meant(number, &self.status()) };
        let _ = signal::kill(if group { -self.pid } else { self.pid }, number);
    }

    /// Whether a signal waits for it only because it was not its turn yet: what it blocks, or does not take while it is
    /// stopped, waits for itself.
    pub fn has_before_it(&self, number: u8) -> bool {
        let status = self.status();
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let bits = |name| line(name).and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
        let bits = |name| bits(name).unwrap_or_default();
        let stopped = line("State:").is_some_and(|state| state.trim().starts_with(['T', 't']));
        let waiting = (bits("SigPnd:") | bits("ShdPnd:")) & !bits("SigBlk:");
        !stopped && waiting >> (number - 1) & 1 == 1
    }

    /// What the kernel says of it (proc_pid_status(5)).
    fn status(&self) -> String {
        std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default()
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
            Got::End | Got::Failed => {
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
