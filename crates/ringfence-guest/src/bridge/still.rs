//! A guest that is held still, for a fork of its session; and the bridge of such a fork.
//!
//! ```text
//! bridge                               agent
//!   │ ───── still, a number ────────────► │ takes nothing more of its programs' or its kernel's,
//!   │ ◄──── requests, output, the number ─│ and says nothing any more that is not asked for
//!   │ ───── answers, still, the next ───► │
//!   │ ◄──── the next number ───────────── │ all was heard: nothing is under way either way
//! ```
//!
//! From then on this side says nothing either, and the machine can be saved. Its fork's bridge has other streams, another
//! view of files and no connections; which number stands for what it is told by a table.

use super::command::{Command, Kept};
use super::{Bridge, End, FIRST, Settings, network, trees};
use crate::files::Files;
use crate::line::{Saved, Wanted};
use crate::stream::Over;
use crate::wire::fields::{Reader, Writer};
use crate::wire::{Output, Start, ToGuest};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How long a guest may take to be still.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most that is written down of private directories, where they may not hold more.
const MOST: u64 = 1 << 30;
/// The largest table, besides what the guest's own memory bounds: names, which are a third of that at most.
const TABLE: u64 = 16 << 20;

/// How still the guest is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stillness {
    /// Not at all.
    #[default]
    No,
    /// It was asked for the first time, and until when it may answer.
    Asked(Instant),
    /// It was asked for the second time: nothing is said any more.
    Quiet(Instant),
    /// It is still.
    Still,
}

/// What is written down on a thread of its own: this one hears meanwhile who wants the session to end.
pub(super) struct Saving {
    table: OwnedFd,
    trees: OwnedFd,
    /// Is at its end when that is done.
    done: OwnedFd,
    ended: Receiver<Result<(), String>>,
}

impl Saving {
    fn begin(table: OwnedFd, settings: &Settings, most: u64) -> Result<Saving, String> {
        let private = settings.private.clone();
        // The directory by which this bridge called its launcher is empty by now, and none of a fork's.
        let called = settings.socket.parent().map(PathBuf::from).unwrap_or_default();
        let trees =
            ringfence_sys::fd::sealable().map_err(|errno| format!("memfd_create: {errno:?}"))?;
        let copy = trees.try_clone().map_err(|error| format!("dup: {error}"))?;
        let (done, end) = ringfence_sys::fd::pipe().map_err(|errno| format!("pipe: {errno:?}"))?;
        let (sender, ended) = channel();
        std::thread::spawn(move || {
            let saved = trees::save(&private, &called, File::from(copy), most);
            let _ = sender.send(saved.map_err(|why| format!("its private directories: {why}")));
            drop(end);
        });
        Ok(Saving { table, trees, done, ended })
    }

    fn end(self) -> Result<Saved, String> {
        let ended = self.ended.recv().unwrap_or_else(|_| Err("its thread has ended".to_owned()));
        ended.map(|()| Saved { table: self.table, trees: self.trees })
    }
}

impl AsFd for Saving {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.done.as_fd()
    }
}

impl Stillness {
    /// When an answer is due.
    pub fn until(self) -> Option<Instant> {
        match self {
            Stillness::Asked(until) | Stillness::Quiet(until) => Some(until),
            Stillness::No | Stillness::Still => None,
        }
    }

    /// Whether nothing may be said to the guest, nor heard of anybody who wants something of it.
    pub fn holds(self) -> bool {
        matches!(self, Stillness::Quiet(_) | Stillness::Still)
    }
}

impl Bridge<'_> {
    /// The launcher wants something.
    pub(super) fn launcher(&mut self) -> Result<(), Over> {
        let Some(begun) = &self.begun else { return Ok(()) };
        match begun.hear() {
            Wanted::Nothing => Ok(()),
            Wanted::Still if !self.commands.get(&FIRST).is_some_and(Command::lives) => {
                begun.still(Err("its command has not begun yet, or has ended"));
                Ok(())
            }
            Wanted::Still => {
                self.stillness = Stillness::Asked(Instant::now() + PATIENCE);
                self.ask()
            }
            Wanted::On(late) => self.go_on(late),
            Wanted::Gone => {
                self.begun = None;
                Ok(())
            }
        }
    }

    fn ask(&mut self) -> Result<(), Over> {
        self.asked = self.asked.wrapping_add(1);
        self.stream.send(0, &ToGuest::Still(self.asked))
    }

    fn go_on(&mut self, late: bool) -> Result<(), Over> {
        // What is still being written down nobody waits for any more.
        (self.stillness, self.saving) = (Stillness::No, None);
        self.stream.send(0, &ToGuest::On(late.then(super::now)))?;
        self.pay()
    }

    /// The guest did all that was said before a number.
    pub(super) fn stilled(&mut self, number: u32) -> Result<(), Over> {
        if number != self.asked {
            return Ok(());
        }
        match self.stillness {
            Stillness::Asked(until) => {
                self.stillness = Stillness::Quiet(until);
                return self.ask();
            }
            Stillness::Quiet(_) => {}
            Stillness::No | Stillness::Still => return Ok(()),
        }
        self.stillness = Stillness::Still;
        match self.save() {
            Ok(saving) => {
                self.saving = Some(saving);
                Ok(())
            }
            Err(why) => self.restless(&why),
        }
    }

    /// All is written down, or cannot be.
    pub(super) fn saved(&mut self) -> Result<(), Over> {
        match self.saving.take().map(Saving::end) {
            Some(Ok(saved)) => {
                self.begun.iter().for_each(|line| line.still(Ok(&saved)));
                Ok(())
            }
            Some(Err(why)) => self.restless(&why),
            None => Ok(()),
        }
    }

    /// It does not become still.
    fn restless(&mut self, why: &str) -> Result<(), Over> {
        self.begun.iter().for_each(|line| line.still(Err(why)));
        self.go_on(false)
    }

    /// Whether it did not become still in time.
    pub(super) fn late_to_be_still(&mut self) -> Result<(), Over> {
        if self.stillness.until().is_some_and(|until| until <= Instant::now()) {
            let seconds = PATIENCE.as_secs();
            return self.restless(&format!("the guest does not answer within {seconds} s"));
        }
        Ok(())
    }

    fn save(&self) -> Result<Saving, String> {
        let files = self.files.save().map_err(|errno| format!("its open files: {errno}"))?;
        let mut w = Writer::default().word(self.next_command).word(self.commands.len() as u32);
        for (&channel, command) in &self.commands {
            let Kept { started, input, budget, pending, terminal, ended } = command.kept();
            w = w.word(channel);
            for flag in [started, input, terminal.0, terminal.1, ended] {
                w = w.byte(u8::from(flag));
            }
            w = w.long(budget).long(pending[0]).long(pending[1]);
        }
        w.0.extend(files);
        let table = ringfence_sys::fd::sealable();
        let table = table.map_err(|errno| format!("memfd_create: {errno:?}"))?;
        let mut written = File::from(table);
        written.write_all(&w.0).map_err(|error| format!("memory: {error}"))?;
        let table = written.into();
        Saving::begin(table, self.settings, self.most_private())
    }

    /// How much of private directories a fork gets: as much as they may hold.
    fn most_private(&self) -> u64 {
        self.settings.disk.map_or(MOST, |bytes| bytes.max(MOST))
    }

    /// Goes on with another session's guest in place of beginning with a new one.
    pub(super) fn adopt(&mut self, saved: Saved) -> Result<(), Over> {
        if let Err(why) = self.take_over(saved) {
            self.end = Some(End::Failed(125, format!("the fork cannot begin: {why}")));
            return Ok(());
        }
        let Some(start) = self.start() else { return Ok(()) };
        if let Some(forget) = self.files.forget_identity() {
            self.stream.send(0, &ToGuest::Files(forget))?;
        }
        self.stream.send(0, &ToGuest::Fork(start))
    }

    fn take_over(&mut self, saved: Saved) -> Result<(), String> {
        let most = self.most_private();
        trees::make(&self.settings.private, File::from(saved.trees), most)?;
        let largest = self.settings.memory.saturating_add(TABLE);
        let table = ringfence_sys::fd::content(saved.table.as_fd(), largest as usize)
            .map_err(|errno| format!("its table: {errno:?}"))?;
        let mut r = Reader(&table);
        let (next, commands) = commands(&mut r).ok_or("its table is none")?;
        self.next_command = next.clamp(FIRST + 1, network::INWARD);
        for (channel, kept) in commands.into_iter().filter(|(_, kept)| !kept.ended) {
            // What it wrote, and was not told to be read, the other session has.
            for (output, count) in [Output::Out, Output::Error].into_iter().zip(kept.pending) {
                if count > 0 {
                    let count = count.min(u32::MAX.into()) as u32;
                    self.owed.push((channel, ToGuest::Taken(output, count)));
                }
            }
            let command = if channel == FIRST {
                Command::own_again(&kept, self.waker.clone())
            } else {
                // Whoever waits for it does so in the other session.
                let null = || -> Result<OwnedFd, String> {
                    let null = File::options().read(true).write(true).open("/dev/null");
                    null.map(OwnedFd::from).map_err(|error| format!("open(/dev/null): {error}"))
                };
                Command::again(channel, [null()?, null()?, null()?], &kept, self.waker.clone())
            };
            self.owed.extend(command.resized().map(|message| (channel, message)));
            self.commands.insert(channel, command);
        }
        if !self.commands.contains_key(&FIRST) {
            return Err("its command has ended".to_owned());
        }
        match self.files.adopt(r.0, &self.settings.apart).map_err(|why| why.to_string())? {
            0 => {}
            lost => ringfence_sys::say!(
                "ringfence: open files of the guest that could not be opened again, since they are \
                 removed, replaced or closed to you by now: {lost}; what uses them is told so (ESTALE)"
            ),
        }
        Ok(())
    }

    /// The fork has begun, or a session goes on: what its commands wait for.
    pub(super) fn pay(&mut self) -> Result<(), Over> {
        for (channel, message) in std::mem::take(&mut self.owed) {
            self.stream.send(channel, &message)?;
        }
        Ok(())
    }

    /// What a guest is told that begins. `None`: there is no randomness.
    pub(super) fn start(&mut self) -> Option<Start> {
        let Some((entropy, identity)) = random() else {
            self.end = Some(End::Failed(125, "cannot read /dev/urandom".to_owned()));
            return None;
        };
        self.files.personal(&identity);
        Some(Start {
            clock: super::now(),
            entropy,
            name: rustix::system::uname().nodename().to_bytes().to_vec(),
            network: self.settings.network,
            loopback: self.settings.loopback.clone(),
            processes: self.settings.processes,
            disk: self.settings.disk,
        })
    }
}

/// Randomness for a guest, and its identity as `/etc/machine-id` has it.
fn random() -> Option<(Vec<u8>, Vec<u8>)> {
    let (mut entropy, mut identity) = (vec![0; 64], [0; 16]);
    let mut file = File::open("/dev/urandom").ok()?;
    file.read_exact(&mut entropy).and_then(|()| file.read_exact(&mut identity)).ok()?;
    let identity: String = identity.iter().map(|byte| format!("{byte:02x}")).collect();
    Some((entropy, format!("{identity}\n").into_bytes()))
}

/// Takes apart what one bridge saved of its commands and files, as a fork's does; whether that is what it is.
pub(crate) fn adopted(files: &mut Files, table: &[u8]) -> bool {
    let mut r = Reader(table);
    commands(&mut r).is_some() && files.adopt(r.0, &[]).is_ok()
}

/// What a table begins with: the next command's channel, and those that there are.
fn commands(r: &mut Reader<'_>) -> Option<(u32, Vec<(u32, Kept)>)> {
    let (next, count) = (r.word()?, r.word()?);
    let mut commands = Vec::new();
    for _ in 0..count {
        commands.push(kept(r)?);
    }
    Some((next, commands))
}

fn kept(r: &mut Reader<'_>) -> Option<(u32, Kept)> {
    let channel = r.word()?;
    let (started, input) = (r.flag()?, r.flag()?);
    let (terminal, ended) = ((r.flag()?, r.flag()?), r.flag()?);
    let (budget, pending) = (r.long()?, [r.long()?, r.long()?]);
    Some((channel, Kept { started, input, budget, pending, terminal, ended }))
}
