//! The agent: PID 1 of a guest.
//!
//! It boots as far as nothing of a session is needed, says hello, and waits to be begun. Who makes a template plays a
//! session or two with it first ([`crate::rehearsal`]), has it come back to where it was, and saves it there: its clones
//! go on from there.
//!
//! One thread, which never waits for anything but for what it watches: it serves the guest's own
//! files, so that whatever could ask for one of them (a mount, a look at a path) is done by a
//! child.

mod boot;
mod command;
mod ending;
mod jobs;
mod limits;
mod network;
mod waiting;

use crate::flow::{Connection, Said, reset};
use crate::stream::{Over, Stream};
use crate::watch::Watching;
use crate::wire::{Start, ToGuest, ToHost};
use command::Command;
use ending::Stopping;
use limits::Limits;
use network::Network;
use ringfence_sys::fd::Ready;
use ringfence_sys::process;
use ringfence_sys::signal::{self, SignalSet};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use waiting::Waiting;

/// Bytes that may wait for the host before no more requests are taken from the kernel.
const MOST_WAITING: usize = 4 << 20;
/// The largest FUSE request: a write, with its header.
const REQUEST: usize = crate::wire::MOST_DATA + 4096;
/// How soon it is looked whether a signal was taken.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
const SIGCHLD: i32 = 17;

/// Lives as PID 1 until the host says that it is over, or is gone.
///
/// # Errors
/// A sentence: what a guest needs is not there. The kernel ends with the process.
pub fn live() -> Result<(), String> {
    boot::boot()?;
    let signals = SignalSet::of(&[SIGCHLD]);
    signal::set_mask(signals).map_err(|errno| format!("sigprocmask: {errno:?}"))?;
    let signals = signal::descriptor(signals).map_err(|errno| format!("signalfd: {errno:?}"))?;
    let fuse = boot::root()?;
    let view = boot::rehearse(&fuse)?;
    let waiting = Waiting::make(&fuse, &view)?;
    let random = boot::random()?;
    while process::wait_any(false).is_ok_and(|ended| ended.is_some()) {}
    let port = boot::port()?;
    boot::greet(&port)?;
    let mut agent = Agent {
        stream: Stream::new(port),
        signals,
        fuse,
        view,
        waiting: Some(waiting),
        random,
        given: Vec::new(),
        group: None,
        limits: Limits::new(),
        helper: None,
        commands: BTreeMap::new(),
        network: Network::default(),
        connections: BTreeMap::new(),
        next_channel: 1 << 31,
        unanswered: 0,
        stopping: Stopping::No,
        buffer: vec![0; REQUEST],
    };
    loop {
        match agent.turn() {
            Ok(()) => {}
            // A clone does not notice that its host is another one: that has the stream before the clone goes on.
            Err(Over::Closed) => return Ok(()),
            Err(over) => return Err(format!("the host: {over:?}")),
        }
    }
}

struct Agent {
    stream: Stream,
    signals: OwnedFd,
    fuse: OwnedFd,
    /// What commands see: a mount namespace.
    view: OwnedFd,
    /// What the first command becomes.
    waiting: Option<Waiting>,
    random: OwnedFd,
    /// Signals that the host does not know to be taken yet.
    given: Vec<(u32, u8)>,
    /// The control group of all commands, where they have limits.
    group: Option<OwnedFd>,
    limits: Limits,
    /// Lets the kernel write what programs left in memory.
    helper: Option<(i32, OwnedFd)>,
    commands: BTreeMap<u32, Command>,
    network: Network,
    connections: BTreeMap<u32, Connection>,
    next_channel: u32,
    /// Requests for files that the host has not answered yet.
    unanswered: usize,
    stopping: Stopping,
    buffer: Vec<u8>,
}

/// What a descriptor that is watched belongs to.
#[derive(Clone, Copy)]
enum Whose {
    Stream,
    Signals,
    Fuse,
    Limits,
    Helper,
    Command(u32, usize),
    Listener(usize),
    Connection(u32),
}

impl Agent {
    /// Waits once and does what there is to do.
    fn turn(&mut self) -> Result<(), Over> {
        // Nothing tells that a signal was taken: it is looked for, while one is not.
        let until = (!self.given.is_empty()).then(|| Instant::now() + LOOK_AGAIN);
        for (whose, ready) in self.watched().wait(until)? {
            self.serve(whose, ready)?;
        }
        self.taken()?;
        if self.stopping == Stopping::Draining {
            self.drained()?;
        }
        self.stream.flush()
    }

    fn watched(&self) -> Watching<'_, Whose> {
        let mut watching = Watching::new();
        watching.add(Whose::Stream, self.stream.as_fd(), true, self.stream.waiting() > 0);
        if self.stream.holds() {
            return watching;
        }
        watching.add(Whose::Signals, self.signals.as_fd(), true, false);
        let room = self.stream.waiting() < MOST_WAITING;
        watching.add(Whose::Fuse, self.fuse.as_fd(), room, false);
        if let Some(fd) = self.limits.watched() {
            watching.add(Whose::Limits, fd, true, false);
        }
        if let Some((_, pidfd)) = &self.helper {
            watching.add(Whose::Helper, pidfd.as_fd(), true, false);
        }
        let room = self.stream.waiting() < MOST_WAITING;
        for (&channel, command) in &self.commands {
            for (at, fd, read, write) in command.watched() {
                watching.add(Whose::Command(channel, at), fd, read && room, write);
            }
        }
        for (at, fd) in self.network.listeners(self.open()) {
            watching.add(Whose::Listener(at), fd, true, false);
        }
        for (&channel, connection) in &self.connections {
            let (read, write) = connection.wanted();
            watching.add(Whose::Connection(channel), connection.fd.as_fd(), read && room, write);
        }
        watching
    }

    fn serve(&mut self, whose: Whose, ready: Ready) -> Result<(), Over> {
        match whose {
            Whose::Stream => {
                self.stream.flush()?;
                if ready.read {
                    self.stream.receive()?;
                }
                while let Some((channel, message)) = self.stream.take::<ToGuest>()? {
                    self.hear(channel, message)?;
                }
            }
            Whose::Signals => self.children()?,
            Whose::Fuse => self.request()?,
            Whose::Limits => self.limits(true)?,
            Whose::Helper => self.helped(),
            Whose::Command(channel, at) => self.command(channel, at)?,
            Whose::Listener(at) => self.accept(at)?,
            Whose::Connection(channel) => self.connection(channel, ready.read)?,
        }
        Ok(())
    }

    /// Tells of signals that their commands have taken.
    fn taken(&mut self) -> Result<(), Over> {
        let given = std::mem::take(&mut self.given);
        for (channel, signal) in given {
            if self.commands.get(&channel).is_some_and(|command| command.has_before_it(signal)) {
                self.given.push((channel, signal));
            } else {
                self.stream.send(channel, &ToHost::Delivered)?;
            }
        }
        Ok(())
    }

    /// A request of the kernel's for a file.
    fn request(&mut self) -> Result<(), Over> {
        // A few at once: each wake-up of the host's costs more than a request.
        for _ in 0..8 {
            match rustix::io::read(&self.fuse, &mut self.buffer[..]) {
                Ok(count) => {
                    let request = &self.buffer[..count];
                    self.unanswered += usize::from(crate::files::wants_answer(request));
                    self.stream.send(0, &ToHost::Files(request.to_vec()))?;
                }
                Err(_) => break,
            }
        }
        Ok(())
    }

    fn hear(&mut self, channel: u32, message: ToGuest) -> Result<(), Over> {
        match message {
            ToGuest::Start(start) => return self.start(&start),
            ToGuest::Exec(exec) => return self.execute(channel, &exec),
            ToGuest::Files(reply) => {
                self.unanswered = self.unanswered.saturating_sub(1);
                // ENOENT: the program that asked was interrupted.
                let _ = rustix::io::write(&self.fuse, &reply);
            }
            ToGuest::Input(bytes) => {
                if let Some(command) = self.commands.get_mut(&channel) {
                    command.input(&bytes);
                    return self.command(channel, command::INPUT);
                }
            }
            ToGuest::InputEnd => {
                if let Some(command) = self.commands.get_mut(&channel) {
                    command.end_input();
                    return self.command(channel, command::INPUT);
                }
            }
            ToGuest::Signal(signal, group) => {
                if let Some(command) = self.commands.get(&channel) {
                    command.signal(signal.into(), group);
                }
                self.given.push((channel, signal));
            }
            ToGuest::Resize(rows, columns) => {
                if let Some(command) = self.commands.get(&channel) {
                    command.resize(rows, columns);
                }
            }
            ToGuest::Taken(output, count) => {
                if let Some(command) = self.commands.get_mut(&channel) {
                    command.taken(output, count);
                }
            }
            ToGuest::OutputEnd(output) => {
                if let Some(command) = self.commands.get_mut(&channel) {
                    command.end_output(output);
                }
            }
            ToGuest::Connected(errno) => self.connected(channel, errno),
            ToGuest::Data(bytes) => {
                if let Some(connection) = self.connections.get_mut(&channel) {
                    connection.add(&bytes);
                    return self.connection(channel, false);
                }
            }
            ToGuest::DataEnd => {
                if let Some(connection) = self.connections.get_mut(&channel) {
                    connection.end();
                    return self.connection(channel, false);
                }
            }
            ToGuest::DataTaken(count) => {
                if let Some(connection) = self.connections.get_mut(&channel) {
                    connection.taken(count);
                }
            }
            ToGuest::Close => {
                if let Some(connection) = self.connections.get_mut(&channel) {
                    connection.abort();
                    return self.connection(channel, false);
                }
            }
            ToGuest::Inward(port) => {
                let made = network::inward(port);
                let errno = made.as_ref().err().copied().unwrap_or_default();
                self.stream.send(channel, &ToHost::Connected(errno))?;
                if let Ok(fd) = made {
                    self.connections.insert(channel, Connection::new(fd));
                }
            }
            ToGuest::Answer(answer) => self.network.answer(channel, &answer),
            ToGuest::Stop => return self.stop(),
            ToGuest::Again(last) => return self.again(last),
            ToGuest::Still(number) => {
                self.stream.hold();
                return self.stream.say(0, &ToHost::Still(number));
            }
            ToGuest::On(clock) => {
                // One that cannot be set is late, and no reason to end.
                let _ = clock.map_or(Ok(()), boot::set_clock);
                return self.stream.release();
            }
            ToGuest::Fork(start) => return self.fork(&start),
        }
        Ok(())
    }

    /// Tells which limits were reached since they were looked at last.
    fn limits(&mut self, memory: bool) -> Result<(), Over> {
        for limit in self.limits.reached(memory, self.group.is_some()) {
            self.stream.send(0, &ToHost::Reached(limit))?;
        }
        Ok(())
    }

    /// Makes a session of a guest that only booted.
    fn start(&mut self, start: &Start) -> Result<(), Over> {
        let begun = boot::begin(start, &self.random).and_then(|group| {
            self.group = group;
            if start.network {
                self.network = Network::capture(&start.loopback)?;
            }
            Ok(())
        });
        self.stream.send(0, &ToHost::Ready(begun))
    }

    /// Becomes another session's guest: with what that one has besides.
    fn fork(&mut self, start: &Start) -> Result<(), Over> {
        let begun = boot::personal(start, &self.random);
        let pending = std::mem::take(&mut self.network.pending);
        let connections = std::mem::take(&mut self.connections).into_values();
        for fd in pending.into_values().chain(connections.map(|connection| connection.fd)) {
            reset(&fd);
        }
        self.stream.say(0, &ToHost::Ready(begun))?;
        self.stream.release()
    }

    fn execute(&mut self, channel: u32, exec: &crate::wire::Exec) -> Result<(), Over> {
        let waiting = self.waiting.take();
        match Command::start(exec, self.view.as_fd(), self.group.as_ref(), waiting) {
            Ok(command) => {
                self.commands.insert(channel, command);
                Ok(())
            }
            Err(why) => self.stream.send(channel, &ToHost::Failed(125, why)),
        }
    }

    /// One of a command's descriptors is ready.
    fn command(&mut self, channel: u32, at: usize) -> Result<(), Over> {
        let Some(command) = self.commands.get_mut(&channel) else { return Ok(()) };
        let Some(message) = command.turn(at) else { return Ok(()) };
        if matches!(message, ToHost::Failed(..)) {
            self.commands.remove(&channel);
        }
        self.stream.send(channel, &message)
    }

    /// How much is open that is closed again.
    fn open(&self) -> usize {
        self.connections.len() + self.network.pending.len() + self.commands.len()
    }

    fn accept(&mut self, at: usize) -> Result<(), Over> {
        while let Some(message) = self.network.accept(at, self.open()) {
            let channel = self.next_channel;
            self.next_channel = self.next_channel.wrapping_add(1) | 1 << 31;
            match message {
                network::Wanted::Connection { fd, address, port } => {
                    self.network.pending.insert(channel, fd);
                    self.stream.send(channel, &ToHost::Connect(address, port))?;
                }
                network::Wanted::Name { query, client } => {
                    self.network.asked(channel, client);
                    self.stream.send(channel, &ToHost::Query(query))?;
                }
            }
        }
        Ok(())
    }

    /// The host's answer to a connection.
    fn connected(&mut self, channel: u32, errno: u16) {
        let Some(fd) = self.network.pending.remove(&channel) else { return };
        if errno == 0 {
            self.connections.insert(channel, Connection::new(fd));
        } else {
            reset(&fd);
        }
    }

    fn connection(&mut self, channel: u32, read: bool) -> Result<(), Over> {
        let Some(connection) = self.connections.get_mut(&channel) else { return Ok(()) };
        let (said, over) = connection.turn(read);
        for said in said {
            let message = match said {
                Said::Data(bytes) => ToHost::Data(bytes),
                Said::End => ToHost::DataEnd,
                Said::Taken(count) => ToHost::DataTaken(count),
            };
            self.stream.send(channel, &message)?;
        }
        if let Some(broken) = over {
            self.connections.remove(&channel);
            if broken {
                self.stream.send(channel, &ToHost::Close)?;
            }
        }
        Ok(())
    }
}

/// A descriptor to watch, which stands for one of a command's: its place, reading, writing.
type Slot<'a> = (usize, BorrowedFd<'a>, bool, bool);
