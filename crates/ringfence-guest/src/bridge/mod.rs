//! The bridge: stands in the sandbox for the command that runs in the guest.
//!
//! It has the command's standard streams, environment, directory and user, takes its signals, and
//! ends as it ends. The guest's files are what it sees itself; the guest's connections are its
//! own. See the crate's first lines.

mod client;
mod command;
mod door;
mod network;
mod settings;
pub(crate) mod still;
mod told;
pub(crate) mod trees;

pub use client::run as exec;
pub use settings::Settings;

use crate::files::{Files, wants_answer};
use crate::line::{self, Begun, Line, Saved};
use crate::stream::{Over, Stream};
use crate::watch::Watching;
use crate::wire::{Broken, Change, ToGuest, ToHost, VERSION};
use command::{Command, Written};
use door::Door;
use network::Network;
use ringfence_sys::fd::Ready;
use ringfence_sys::signal::{self, Outset, SignalSet};
use settings::Before;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use still::{Saving, Stillness};

/// Bytes that may wait for the guest before nothing more is taken from it: one that asks and never
/// listens holds up itself only.
const MOST_WAITING: usize = 8 << 20;
/// How long a guest may take to write back what it holds.
const PATIENCE: Duration = Duration::from_secs(60);
/// After so long without anything to do a bridge makes itself small.
const IDLE: Duration = Duration::from_millis(100);
/// The channel of the sandbox's own command.
const FIRST: u32 = 1;
/// The first of those that the guest chooses.
pub(crate) const GUESTS: u32 = 1 << 31;

const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGQUIT: i32 = 3;
const SIGTERM: i32 = 15;
const SIGCONT: i32 = 18;
const SIGWINCH: i32 = 28;

/// Signals that concern the command: those that end or stop a program, or that it may wait for.
const PASSED: [i32; 14] =
    [SIGHUP, SIGINT, SIGQUIT, 10, 12, 14, SIGTERM, SIGCONT, 20, 21, 22, 23, SIGWINCH, 30];

/// How the command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// With this code.
    Code(u8),
    /// By this signal.
    Signal(u8),
    /// It could not be started, or the guest is gone: the exit code, and a sentence; none where it is said already.
    Failed(u8, String),
}

/// Lets a guest run the command, and waits for its end.
pub fn run(settings: &Settings) -> End {
    match Bridge::new(settings) {
        Ok(mut bridge) => bridge.live(),
        Err(why) => End::Failed(125, why),
    }
}

/// The stream that the launcher gives, and what was saved for a fork.
fn stream(line: &Line) -> Result<(Stream, Option<Saved>), String> {
    let (stream, saved) = line.stream()?;
    ringfence_sys::fd::never_wait(stream.as_fd()).map_err(|errno| format!("fcntl: {errno:?}"))?;
    Ok((Stream::new(stream), saved))
}

/// Nanoseconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

struct Bridge<'a> {
    settings: &'a Settings,
    stream: Stream,
    /// Where there is another stream, until the guest has begun.
    line: Option<Line>,
    /// The same line from then on.
    begun: Option<Begun>,
    files: Files,
    signals: OwnedFd,
    /// Becomes readable when a writer is done with something.
    woken: OwnedFd,
    written: Receiver<Written>,
    commands: BTreeMap<u32, Command>,
    next_command: u32,
    waker: command::Waker,
    network: Network,
    door: Option<Door>,
    before: Before,
    /// Commands that were told to end, and since when the guest has not said that it told them.
    unanswered: BTreeMap<u32, told::Unanswered>,
    /// How the command ended, while the guest writes back what it holds, and until when it may.
    stopping: Option<(End, Instant)>,
    end: Option<End>,
    /// What this is a fork of.
    saved: Option<Saved>,
    /// What its commands are to be told once it has begun.
    owed: Vec<(u32, ToGuest)>,
    stillness: Stillness,
    /// What is written down for a fork just now.
    saving: Option<Saving>,
    /// The last number that the guest was to be still for.
    asked: u32,
    /// It has had something to do since it has made itself small.
    grown: bool,
}

#[derive(Clone, Copy)]
enum Whose {
    Stream,
    Launcher,
    Saved,
    Signals,
    Written,
    Input(u32),
    Door(usize),
    Network(network::Whose),
}

impl<'a> Bridge<'a> {
    fn new(settings: &'a Settings) -> Result<Bridge<'a>, String> {
        let signals = SignalSet::of(&PASSED);
        let failed = |what: &'static str| move |errno| format!("{what}: {errno:?}");
        let mask = signal::set_mask(signals).map_err(failed("sigprocmask"))?;
        let theirs = Outset::of_this_process(mask);
        let signals = signal::descriptor(signals).map_err(failed("signalfd"))?;
        let line = Line::call(&settings.socket, line::told()?)?;
        let (stream, saved) = stream(&line)?;
        let before = Before { umask: ringfence_sys::process::set_umask(0), signals: theirs };
        settings::inherited_files();
        let files = Files::new(Path::new("/"), settings.memory)
            .map_err(|error| format!("open(/): {error}"))?;
        let (waker, woken, written) = command::waker().map_err(failed("pipe"))?;
        let network = Network::new(settings)?;
        Ok(Bridge {
            settings,
            stream,
            line: Some(line),
            begun: None,
            files,
            signals,
            woken,
            written,
            commands: BTreeMap::new(),
            next_command: FIRST,
            waker,
            network,
            door: Door::open(),
            before,
            unanswered: BTreeMap::new(),
            stopping: None,
            end: None,
            saved,
            owed: Vec::new(),
            stillness: Stillness::No,
            saving: None,
            asked: 0,
            grown: true,
        })
    }

    fn live(&mut self) -> End {
        let mut turned = match self.saved.take() {
            Some(saved) => self.adopt(saved),
            None => {
                let command = Command::own(self.waker.clone());
                self.next_command = FIRST + 1;
                self.commands.insert(FIRST, command);
                // It does not speak first: a clone has said hello in its template.
                self.begin()
            }
        };
        loop {
            match turned {
                Ok(()) => {}
                Err(Over::Closed) if self.end.is_some() => {}
                // Nothing of the command has run yet: the guest has no file of it before it has begun.
                Err(Over::Closed | Over::Failed(_)) if self.line.is_some() => {
                    turned = match self.again() {
                        Ok(()) => self.begin(),
                        Err(why) => {
                            self.commands.clear();
                            return End::Failed(125, why);
                        }
                    };
                    continue;
                }
                Err(over) => {
                    if let Some((end, _)) = self.stopping.take() {
                        return self.unwritten(end);
                    }
                    if let Some(end) = self.read_to_the_end() {
                        return end;
                    }
                    let why = match over {
                        Over::Closed => "it ended".to_owned(),
                        Over::Failed(errno) => errno.to_string(),
                        Over::Broken(broken) => {
                            format!("it does not keep to the protocol: {broken}")
                        }
                    };
                    self.commands.clear();
                    let why = format!("the virtual machine is gone before its command: {why}");
                    return End::Failed(125, why);
                }
            }
            if let Some((end, until)) = &self.stopping
                && *until <= Instant::now()
            {
                let end = end.clone();
                return self.unwritten(end);
            }
            if let Some(end) = self.end.take() {
                // Streams are written to their end, and terminals are as they were.
                self.commands.clear();
                return self.written_back(end);
            }
            if let Some(end) = self.deaf() {
                return end;
            }
            turned = self.turn();
        }
    }

    /// Takes the stream to another machine.
    fn again(&mut self) -> Result<(), String> {
        let line = self.line.as_ref().ok_or("the guest has begun")?;
        line.gone();
        (self.stream, self.saved) = stream(line)?;
        Ok(())
    }

    /// The guest did not write back what it holds: a warning, since its command has ended as it has.
    fn unwritten(&mut self, end: End) -> End {
        self.commands.clear();
        ringfence_sys::say!(
            "ringfence: the virtual machine did not write everything back before its end; what \
             programs changed by mmap(2) without msync(2) may be lost"
        );
        end
    }

    fn turn(&mut self) -> Result<(), Over> {
        let stopping = self.stopping.as_ref().map(|(_, until)| *until);
        let grown = self.grown;
        let idle = grown.then(|| Instant::now() + IDLE);
        let until = stopping.into_iter().chain(self.answers_due()).chain(self.stillness.until());
        let until = until.chain(idle).min();
        let watched = self.watched();
        let ready = if grown { watched.wait(until) } else { watched.rest(until) }?;
        self.grown = !ready.is_empty();
        for (whose, ready) in ready {
            self.serve(whose, ready)?;
        }
        self.late_to_be_still()?;
        // What came together with more than can be answered at once is heard once those answers are on their way.
        while self.end.is_none() && self.heard()? {
            self.stream.flush()?;
            if self.stream.waiting() >= MOST_WAITING {
                break;
            }
        }
        self.stream.flush()
    }

    /// Hears the guest while there is room for answers: a few bytes may ask for a megabyte. Whether it stopped for lack of
    /// that.
    fn heard(&mut self) -> Result<bool, Over> {
        while self.stream.waiting() < MOST_WAITING {
            if self.end.is_some() || self.stillness == Stillness::Still {
                return Ok(false);
            }
            let Some((channel, message)) = self.stream.take::<ToHost>()? else { return Ok(false) };
            self.hear(channel, message)?;
        }
        Ok(true)
    }

    fn watched(&self) -> Watching<'_, Whose> {
        let mut watching = Watching::new();
        let waiting = self.stream.waiting();
        let room = waiting < MOST_WAITING;
        if let Some(line) = &self.begun {
            watching.add(Whose::Launcher, line.as_fd(), true, false);
        }
        let heard = room && self.stillness != Stillness::Still;
        watching.add(Whose::Stream, self.stream.as_fd(), heard, waiting > 0);
        if let Some(saving) = &self.saving {
            watching.add(Whose::Saved, saving.as_fd(), true, false);
        }
        watching.add(Whose::Signals, self.signals.as_fd(), true, false);
        if self.stillness.holds() {
            let attended = self.door.iter().flat_map(Door::attended);
            attended.for_each(|(at, fd)| watching.add(Whose::Door(at), fd, true, false));
            return watching;
        }
        watching.add(Whose::Written, self.woken.as_fd(), true, false);
        for (&channel, command) in &self.commands {
            if let Some(input) = command.input() {
                watching.add(Whose::Input(channel), input, room, false);
            }
        }
        if self.line.is_some() {
            // Whoever else wants something of the guest waits until it has begun.
            return watching;
        }
        for (at, fd) in self.door.iter().flat_map(Door::watched) {
            watching.add(Whose::Door(at), fd, true, false);
        }
        for (who, fd, read, write) in self.network.watched() {
            watching.add(Whose::Network(who), fd, read && room, write);
        }
        watching
    }

    fn serve(&mut self, whose: Whose, ready: Ready) -> Result<(), Over> {
        match whose {
            Whose::Launcher => self.launcher()?,
            Whose::Saved => self.saved()?,
            // It was asked to be still meanwhile, by what was ready together with this.
            Whose::Written | Whose::Input(_) | Whose::Network(_) if self.stillness.holds() => {}
            Whose::Stream => {
                self.stream.flush()?;
                if ready.read {
                    self.stream.receive()?;
                }
                self.heard()?;
            }
            Whose::Signals => {
                while let Ok(arrived) = signal::take(self.signals.as_fd()) {
                    self.signal(&arrived)?;
                }
            }
            Whose::Written => self.taken()?,
            Whose::Input(channel) => {
                if let Some(command) = self.commands.get_mut(&channel)
                    && let Some(message) = command.read()
                {
                    self.stream.send(channel, &message)?;
                }
            }
            Whose::Door(at) => self.visit(at)?,
            Whose::Network(who) => {
                for (channel, message) in self.network.turn(who, ready) {
                    self.stream.send(channel, &message)?;
                }
            }
        }
        Ok(())
    }

    fn hear(&mut self, channel: u32, message: ToHost) -> Result<(), Over> {
        match message {
            ToHost::Hello(VERSION) => {}
            ToHost::Hello(other) => {
                let why = format!(
                    "the guest's agent speaks version {other} and this ringfence {VERSION}; \
                     make the template again: ringfence vm setup"
                );
                self.end = Some(End::Failed(125, why));
            }
            ToHost::Ready(Ok(())) => {
                if let Some(line) = self.line.take() {
                    self.begun = Some(line.begun());
                }
                self.pay()?;
            }
            // What its kernel forgets of the template, perhaps.
            ToHost::Files(request) if self.line.is_some() && !wants_answer(&request) => {}
            ToHost::Ready(Err(why)) => {
                self.end = Some(End::Failed(125, format!("the guest cannot begin: {why}")));
            }
            _ if self.line.is_some() => return Err(Over::Broken(Broken::Early)),
            ToHost::Files(request) => {
                if let Some(reply) = self.files.answer(&request) {
                    self.stream.send(0, &ToGuest::Files(reply))?;
                }
            }
            ToHost::Started => {
                let early = self.commands.get_mut(&channel).map(Command::start);
                for message in early.unwrap_or_default() {
                    self.stream.send(channel, &message)?;
                }
            }
            ToHost::Failed(code, why) => self.finished(channel, End::Failed(code, why)),
            ToHost::Output(output, bytes) => {
                let honest =
                    self.commands.get_mut(&channel).is_none_or(|one| one.write(output, &bytes));
                if !honest {
                    return Err(Over::Broken(Broken::TooLong));
                }
            }
            ToHost::Taken(count) => {
                if let Some(command) = self.commands.get_mut(&channel) {
                    command.taken(count);
                }
            }
            ToHost::Change(Change::Exited(code)) => self.finished(channel, End::Code(code)),
            ToHost::Change(Change::Killed(signal)) => self.finished(channel, End::Signal(signal)),
            ToHost::Change(Change::Stopped(signal)) => self.stopped(channel, signal)?,
            // One that has ended meanwhile waits for its reader alone.
            ToHost::Delivered => {
                if !self.commands.get(&channel).is_some_and(Command::has_ended) {
                    self.unanswered.remove(&channel);
                }
            }
            ToHost::Still(number) => self.stilled(number)?,
            ToHost::Reached(limit) => self.begun.iter_mut().for_each(|line| line.reached(limit)),
            ToHost::Stopped => {
                if let Some((end, _)) = self.stopping.take() {
                    self.end = Some(end);
                }
            }
            network => {
                for (channel, message) in self.network.hear(channel, network) {
                    self.stream.send(channel, &message)?;
                }
            }
        }
        Ok(())
    }

    /// Makes the guest this session's, and gives it the command.
    fn begin(&mut self) -> Result<(), Over> {
        let Some(start) = self.start() else { return Ok(()) };
        let terminal = self.commands.get(&FIRST).map(Command::terminal).unwrap_or_default();
        let mut exec = settings::exec(terminal, self.settings.argv.clone(), self.before);
        exec.files = self.settings.files(exec.files);
        if let Err(why) = settings::carried(&exec) {
            self.end = Some(End::Failed(125, why));
            return Ok(());
        }
        self.stream.send(0, &ToGuest::Start(start))?;
        self.stream.send(FIRST, &ToGuest::Exec(exec))
    }

    /// A command has ended. Its end is told once all it wrote is written.
    fn finished(&mut self, channel: u32, end: End) {
        let Some(command) = self.commands.get_mut(&channel) else { return };
        self.unanswered.remove(&channel);
        if !command.has_ended() {
            command.close(end);
        }
        self.over(channel);
        self.unread(channel);
    }

    /// Tells a command's end, if nothing that it wrote is left to be written.
    fn over(&mut self, channel: u32) {
        let Some(end) = self.commands.get(&channel).and_then(Command::over) else { return };
        self.commands.remove(&channel);
        self.told(channel, end);
    }

    /// Tells whoever waits for a command how it ended.
    fn told(&mut self, channel: u32, end: End) {
        if channel == FIRST {
            self.stop(end);
        } else if let Some(door) = &mut self.door {
            door.finished(channel, &end);
        }
    }

    /// The sandbox's own command has ended, and with it all else in the guest. What programs wrote is
    /// on the host already; what they left in mappings of files the guest has to write back.
    fn stop(&mut self, end: End) {
        let told = self.files.written() && self.stream.send(0, &ToGuest::Stop).is_ok();
        if told {
            self.stopping = Some((end, Instant::now() + PATIENCE));
        } else {
            self.end = Some(end);
        }
    }
}
