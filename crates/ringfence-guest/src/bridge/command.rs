//! The host's half of a command: its standard streams.
//!
//! Input is read when there is some and the guest takes it. Output is written by a thread for each
//! stream, since whoever reads it may take his time, and nothing else must wait for that.

use super::End;
use crate::flow::{Got, Source};
use crate::wire::{Output, PIECE, ToGuest, WINDOW};
use ringfence_sys::fd;
use ringfence_sys::terminal::{self, Mode, Size};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A writer is done with a piece, or with everything.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// Of which command.
    pub channel: u32,
    /// Which of its outputs.
    pub output: Output,
    /// How many bytes.
    pub count: usize,
    /// Nothing more goes there, and why: nobody reads it any more, or it cannot be written.
    pub broken: Option<Errno>,
    /// All is written that there will be.
    pub last: bool,
}

/// How writers wake the bridge.
#[derive(Clone)]
pub struct Waker {
    sender: Sender<Written>,
    pipe: Arc<OwnedFd>,
}

/// A waker, what becomes readable by it, and what it says.
///
/// # Errors
/// `EMFILE`, `ENFILE`.
pub fn waker() -> ringfence_sys::Result<(Waker, OwnedFd, Receiver<Written>)> {
    let (woken, pipe) = fd::pipe()?;
    fd::never_wait(woken.as_fd())?;
    fd::never_wait(pipe.as_fd())?;
    let (sender, receiver) = channel();
    Ok((Waker { sender, pipe: Arc::new(pipe) }, woken, receiver))
}

impl Waker {
    fn tell(&self, written: Written) {
        let _ = self.sender.send(written);
        let _ = rustix::io::write(&*self.pipe, &[0]);
    }
}

/// One output: where its bytes go.
struct Writer {
    queue: Arc<Queue>,
    /// Bytes that are not written yet.
    pending: usize,
}

/// What a writer has before it: bytes, in as few pieces as can be. A guest may send them one by one, and a piece for
/// each would be many times their size.
#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    more: Condvar,
}

#[derive(Default)]
struct Waiting {
    bytes: Vec<u8>,
    ended: bool,
}

impl Queue {
    /// A writer that panicked left nothing half done: it takes all or nothing.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, bytes: &[u8]) {
        self.lock().bytes.extend_from_slice(bytes);
        self.more.notify_one();
    }

    fn end(&self) {
        self.lock().ended = true;
        self.more.notify_one();
    }

    /// Waits for bytes. Nothing: there will be no more.
    fn take(&self) -> Option<Vec<u8>> {
        let waits = |waiting: &mut Waiting| waiting.bytes.is_empty() && !waiting.ended;
        let waiting = self.more.wait_while(self.lock(), waits);
        let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        let bytes = std::mem::take(&mut waiting.bytes);
        (!bytes.is_empty()).then_some(bytes)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.end();
    }
}

/// A command of the guest's.
pub struct Command {
    channel: u32,
    input: Option<OwnedFd>,
    source: Source,
    streams: Option<(OwnedFd, OwnedFd)>,
    out: Option<Writer>,
    error: Option<Writer>,
    /// The terminal that input and output are, and how it was.
    terminal: Option<(OwnedFd, Mode)>,
    error_terminal: bool,
    /// It executes: before that nobody takes its input.
    started: bool,
    /// Signals that came before.
    early: Vec<ToGuest>,
    /// How it ended, while what it wrote is not read to the end yet.
    end: Option<End>,
    /// Which output could not be written, and why: what was on its way there is lost.
    lost: Option<(Output, Errno)>,
    /// The last signal by which it was told to end.
    told_to_end: Option<u8>,
    waker: Waker,
}

/// What of a command goes on in a fork of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// It executes.
    pub started: bool,
    /// Its input has not ended.
    pub input: bool,
    /// How much input it takes.
    pub budget: u64,
    /// Of its outputs, what it was not told yet to be read.
    pub pending: [u64; 2],
    /// Whether input and output, and errors, are a terminal of its own.
    pub terminal: (bool, bool),
    /// It has ended.
    pub ended: bool,
}

impl Command {
    /// What of it goes on elsewhere.
    pub fn kept(&self) -> Kept {
        let pending =
            |writer: &Option<Writer>| writer.as_ref().map_or(0, |writer| writer.pending as u64);
        Kept {
            started: self.started,
            input: self.input.is_some(),
            budget: self.source.budget(),
            pending: [pending(&self.out), pending(&self.error)],
            terminal: (self.terminal.is_some(), self.error_terminal),
            ended: self.end.is_some(),
        }
    }

    /// The sandbox's own command, of a session that this one is a fork of.
    pub fn own_again(kept: &Kept, waker: Waker) -> Command {
        Command::own_with(kept.terminal.0, waker).went(kept)
    }

    /// Another one.
    pub fn again(channel: u32, streams: [OwnedFd; 3], kept: &Kept, waker: Waker) -> Command {
        Command::new(channel, streams, waker).went(kept)
    }

    fn went(mut self, kept: &Kept) -> Command {
        (self.started, self.source) = (kept.started, Source::with(kept.budget));
        if !kept.input {
            self.input = None;
        }
        self
    }

    /// Whether it executes, and has not ended.
    pub fn lives(&self) -> bool {
        self.started && self.end.is_none()
    }

    /// The sandbox's own command: this process's standard streams are its.
    pub fn own(waker: Waker) -> Command {
        Command::own_with(true, waker)
    }

    /// The same; with a terminal of its own where these streams are one, if it may have that.
    fn own_with(terminal: bool, waker: Waker) -> Command {
        let copy = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().ok();
        let input = copy(io::stdin().as_fd());
        let outputs = copy(io::stdout().as_fd()).zip(copy(io::stderr().as_fd()));
        Command::with(super::FIRST, input, outputs, terminal, waker)
    }

    /// A visitor's.
    pub fn new(channel: u32, streams: [OwnedFd; 3], waker: Waker) -> Command {
        let [input, out, error] = streams;
        Command::with(channel, Some(input), Some((out, error)), true, waker)
    }

    fn with(
        channel: u32,
        input: Option<OwnedFd>,
        streams: Option<(OwnedFd, OwnedFd)>,
        terminal: bool,
        waker: Waker,
    ) -> Command {
        let is = |fd: &OwnedFd| fd::is_terminal(fd.as_raw_fd());
        let both = terminal
            && input.as_ref().is_some_and(is)
            && streams.as_ref().is_some_and(|(out, _)| is(out));
        let terminal = input.as_ref().filter(|_| both).and_then(|input| {
            let mode = terminal::mode(input.as_fd()).ok()?;
            Some((input.try_clone().ok()?, mode))
        });
        let error_terminal = both && streams.as_ref().is_some_and(|(_, error)| is(error));
        let command = Command {
            channel,
            input,
            source: Source::default(),
            streams,
            out: None,
            error: None,
            terminal,
            error_terminal,
            started: false,
            early: Vec::new(),
            end: None,
            lost: None,
            told_to_end: None,
            waker,
        };
        command.resume();
        command
    }

    /// Whether it gets a terminal, also for standard error; its rows and columns.
    pub fn terminal(&self) -> ((bool, bool), (u16, u16)) {
        let size = self.terminal.as_ref().map(|(fd, _)| terminal::size(fd.as_fd()));
        let Size([rows, columns, ..]) = size.and_then(Result::ok).unwrap_or_default();
        ((self.terminal.is_some(), self.error_terminal), (rows, columns))
    }

    /// What the guest is to be told of a new size.
    pub fn resized(&self) -> Option<ToGuest> {
        self.terminal.as_ref()?;
        let (_, (rows, columns)) = self.terminal();
        Some(ToGuest::Resize(rows, columns))
    }

    /// Gives the terminal back as it was.
    pub fn restore(&self) {
        if let Some((fd, mode)) = &self.terminal {
            let _ = terminal::set_mode(fd.as_fd(), mode);
        }
    }

    /// Lets every byte of the terminal through: the guest has one of its own.
    pub fn resume(&self) {
        if let Some((fd, mode)) = &self.terminal {
            let _ = terminal::set_mode(fd.as_fd(), &mode.raw());
        }
    }

    /// What to watch for input.
    pub fn input(&self) -> Option<BorrowedFd<'_>> {
        self.input.as_ref().filter(|_| self.started && self.source.wanted()).map(AsFd::as_fd)
    }

    /// It executes; what it is to be told from before.
    pub fn start(&mut self) -> Vec<ToGuest> {
        self.started = true;
        std::mem::take(&mut self.early)
    }

    /// Whether it can be told something now; else it is told once it executes.
    pub fn tell(&mut self, message: ToGuest) -> Option<ToGuest> {
        if self.started {
            return Some(message);
        }
        if self.early.len() < 64 {
            self.early.push(message);
        }
        None
    }

    /// Reads input, of which there is some.
    pub fn read(&mut self) -> Option<ToGuest> {
        match self.source.read(self.input.as_ref()?, false) {
            Got::Bytes(bytes) => Some(ToGuest::Input(bytes)),
            Got::Nothing => None,
            Got::End | Got::Failed => {
                self.input = None;
                Some(ToGuest::InputEnd)
            }
        }
    }

    /// The guest took some input.
    pub fn taken(&mut self, count: u32) {
        self.source.taken(count);
    }

    /// Output of the guest's. False: more than was agreed.
    pub fn write(&mut self, output: Output, bytes: &[u8]) -> bool {
        let slot = match output {
            Output::Out => &mut self.out,
            Output::Error => &mut self.error,
        };
        if slot.is_none()
            && let Some((out, error)) = &self.streams
        {
            let fd = if output == Output::Out { out } else { error };
            match fd.try_clone().and_then(|fd| start(self.channel, output, fd, &self.waker)) {
                Ok(writer) => *slot = Some(writer),
                Err(why) => {
                    let why = Errno::from_io_error(&why).unwrap_or(Errno::AGAIN);
                    self.lost.get_or_insert((output, why));
                    let (channel, count) = (self.channel, bytes.len());
                    let broken = Some(why);
                    self.waker.tell(Written { channel, output, count, broken, last: false });
                }
            }
        }
        let Some(writer) = slot else { return true };
        writer.pending += bytes.len();
        // At its end a command's last words may be more than the window: a pipe's content.
        if writer.pending > 2 * WINDOW + (1 << 20) {
            return false;
        }
        writer.queue.add(bytes);
        true
    }

    /// A writer is done with some; what the guest is to be told.
    pub fn written(&mut self, written: &Written) -> Option<ToGuest> {
        // Who goes away while something is written wanted no more of it.
        let unread = |errno| matches!(errno, Errno::PIPE | Errno::CONNRESET);
        if let Some(why) = written.broken.filter(|&errno| !unread(errno)) {
            self.lost.get_or_insert((written.output, why));
        }
        let slot = match written.output {
            Output::Out => &mut self.out,
            Output::Error => &mut self.error,
        };
        if written.last {
            *slot = None;
            return None;
        }
        if let Some(writer) = slot {
            writer.pending = writer.pending.saturating_sub(written.count);
        }
        if written.broken.is_some() {
            return Some(ToGuest::OutputEnd(written.output));
        }
        Some(ToGuest::Taken(written.output, written.count as u32))
    }

    /// It has ended: nothing more is taken of its streams, and its end is told when all it wrote is written. Whoever
    /// reads that takes his time, and nobody else waits for him.
    pub fn close(&mut self, end: End) {
        (self.input, self.streams, self.end) = (None, None, Some(end));
        for writer in [&self.out, &self.error].into_iter().flatten() {
            writer.queue.end();
        }
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// It is told to end, by this signal.
    pub fn told_to_end(&mut self, number: u8) {
        self.told_to_end = Some(number);
    }

    /// The signal by which it was told to end, if it ended by that.
    pub fn ended_as_told(&self) -> Option<u8> {
        self.told_to_end.filter(|&number| self.end == Some(End::Signal(number)))
    }

    /// How it ended, whether or not what it wrote is read.
    pub fn end(&mut self) -> Option<End> {
        self.end.take()
    }

    /// How it ended, once all it wrote is written; what could not be makes a failure of it.
    pub fn over(&self) -> Option<End> {
        let end = self.end.clone().filter(|_| self.out.is_none() && self.error.is_none())?;
        let Some((output, why)) = self.lost else { return Some(end) };
        let output = if output == Output::Out { "output" } else { "errors" };
        Some(end.failing(format!("the command's {output} could not be written to the end: {why}")))
    }
}

impl Drop for Command {
    fn drop(&mut self) {
        self.restore();
    }
}

fn start(channel: u32, output: Output, stream: OwnedFd, waker: &Waker) -> io::Result<Writer> {
    let queue = Arc::new(Queue::default());
    let (waker, source) = (waker.clone(), Arc::clone(&queue));
    std::thread::Builder::new().spawn(move || {
        let tell = |count, broken, last| {
            waker.tell(Written { channel, output, count, broken, last });
        };
        let mut broken = None;
        while let Some(bytes) = source.take() {
            for piece in bytes.chunks(PIECE) {
                broken = broken.or_else(|| write_all(&stream, piece).err());
                tell(piece.len(), broken, false);
            }
        }
        tell(0, broken, true);
    })?;
    Ok(Writer { queue, pending: 0 })
}

fn write_all(stream: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    use rustix::event::{PollFd, PollFlags, poll};
    while !bytes.is_empty() {
        match rustix::io::write(stream, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            // Somebody else made it one that does not wait.
            Err(Errno::AGAIN) => {
                let _ = poll(&mut [PollFd::new(stream, PollFlags::OUT)], None);
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
