//! Forks of a session: a machine that goes on from where another one is.
//!
//! ```text
//! who wants a fork            launcher of the session                bridge, guest
//!   │ ── what it is to be ──────► │ the same policy and shape?
//!   │                             │ ── be still ────────────────────► │
//!   │                             │ ◄─ still, its table and trees ──── │
//!   │                             │ stops QEMU, has it save itself
//!   │ ◄── state, table, trees ─── │
//!   │ copies layers ── copying ─► │ waits on
//!   │            ── done ───────► │ QEMU goes on ── go on ──────────► │
//! ```
//!
//! All that is handed over is in files without a name: whoever is killed leaves nothing. Where who wants the fork is gone, the
//! session goes on; and where nothing is heard of him for long, as he is stopped. Then what he copied is none.

use super::assets::{self, Assets};
use super::machine::Machine;
use super::template;
use super::{Shape, still};
use ringfence_guest::line::Saved;
use ringfence_policy::Policy;
use ringfence_sys::{Errno, fd, socket, unix};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

const FORKED: u8 = b'f';
const REFUSED: u8 = b'r';
const COPYING: u8 = b'c';
const DONE: u8 = b'd';
/// How long a session is held still for a fork of which nothing is heard.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a bridge may take until its guest is still, and all that it has of it is written down.
const SAVING: Duration = Duration::from_secs(60);
/// How often a fork says that it goes on copying.
const BEAT: Duration = Duration::from_secs(1);
/// The longest wish, and the longest reason.
const LONGEST: usize = 16 * 1024;
/// What is read at once.
const PIECE: usize = 1 << 20;
/// What a machine's state takes besides its memory: devices, and a few bytes for each page.
const BESIDE: u64 = 64 << 20;
/// The longest policy.
const MOST_TEXT: usize = 64 << 20;

/// What somebody wants who wants a fork.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    /// The machine.
    pub shape: Shape,
    /// The session is suspended, and is to stay so.
    pub suspended: bool,
}

/// A policy, all of it but what only its user is told.
fn text(policy: &Policy) -> String {
    let policy = Policy { warnings: Vec::new(), ..policy.clone() };
    format!("{policy:?}")
}

fn size(file: BorrowedFd<'_>) -> Result<u64, String> {
    let file = file.try_clone_to_owned().map(File::from);
    let length = file.and_then(|file| file.metadata()).map(|data| data.len());
    length.map_err(|error| format!("fstat: {error}"))
}

/// What a machine goes on from.
#[derive(Debug)]
pub struct Forked {
    /// Until all is copied, the other session is held still.
    connection: Option<OwnedFd>,
    /// When it said last that it goes on.
    said: Instant,
    /// The machine's devices and memory.
    state: Option<File>,
    /// What its bridge knew, until this one's bridge has it.
    pub(super) saved: Option<Saved>,
}

impl Forked {
    /// Asks the launcher of a session for what a fork goes on from. From then on the session is held still, until this says
    /// that it is done or is gone.
    ///
    /// # Errors
    /// The launcher's reason.
    pub fn ask(socket: &Path, wish: &Wish, policy: &Policy) -> Result<Forked, String> {
        let failed = |errno: Errno| format!("its launcher does not answer: {errno:?}");
        let connection = unix::connect(socket).map_err(failed)?;
        let wish = serde_json::to_vec(wish).map_err(|error| error.to_string())?;
        let policy = fd::in_memory(text(policy).as_bytes()).map_err(failed)?;
        socket::send_with(connection.as_fd(), &wish, &[policy.as_fd()]).map_err(failed)?;
        let mut answer = vec![0; LONGEST];
        let (count, files) =
            socket::receive_with(connection.as_fd(), &mut answer, true).map_err(failed)?;
        match (&answer[..count], <[OwnedFd; 3]>::try_from(files)) {
            ([FORKED], Ok([state, table, trees])) => Ok(Forked {
                connection: Some(connection),
                said: Instant::now(),
                state: Some(state.into()),
                saved: Some(Saved { table, trees }),
            }),
            ([REFUSED, why @ ..], _) => Err(String::from_utf8_lossy(why).into_owned()),
            _ => Err("it has ended".to_owned()),
        }
    }

    /// Says that what is on the disk is being copied, or that all of it is: then the session goes on that this is a fork of.
    ///
    /// # Errors
    /// It has gone on or ended already: what was copied may be of two times.
    pub fn copied(&mut self, all: bool) -> Result<(), String> {
        let Some(connection) = &self.connection else { return Ok(()) };
        if !all && self.said.elapsed() < BEAT {
            return Ok(());
        }
        let word = if all { DONE } else { COPYING };
        let said = socket::send_with(connection.as_fd(), &[word], &[]);
        self.said = Instant::now();
        if all || said.is_err() {
            self.connection = None;
        }
        said.map(drop).map_err(|_| {
            "the session that is forked ended, or went on as nothing was heard of its fork, before \
             its layers were copied"
                .to_owned()
        })
    }

    /// The machine's state, from its beginning.
    pub(super) fn state(&self) -> Result<&File, String> {
        let state = self.state.as_ref().ok_or("the machine has its state")?;
        let mut from = state;
        from.rewind().map_err(|error| format!("the machine's state: {error}"))?;
        Ok(state)
    }
}

/// Reads what machines of a shape begin with, in its order: QEMU saves all of a memory, page after page, which takes ten times
/// as long where the kernel has to look for each. Done before a session is held still; and so is what boots one, where
/// none is saved any more.
///
/// # Errors
/// A sentence: none can be saved.
pub fn read_ahead(assets: &Assets, shape: &Shape, home: &Path) -> Result<(), String> {
    let template = template::find_or_make(assets, shape, &assets::cache(home))?;
    let (mut memory, mut buffer) = (template.memory()?, vec![0; PIECE]);
    while memory.read(&mut buffer).is_ok_and(|count| count > 0) {}
    Ok(())
}

/// How far a fork of this session is.
#[derive(Debug, Default, PartialEq, Eq)]
enum Phase {
    /// Nobody wants one, or has said what he wants.
    #[default]
    None,
    /// The bridge was asked to be still.
    Asked,
    /// All is saved, and who asked copies what is on the disk.
    Saved,
}

/// Who wants a fork.
#[derive(Debug, Default)]
pub(super) struct Asked {
    listener: Option<OwnedFd>,
    /// This session's policy, as it was resolved.
    policy: Option<Policy>,
    caller: Option<OwnedFd>,
    phase: Phase,
    /// Until when the bridge is waited for, or who copies.
    pub(super) until: Option<Instant>,
    /// QEMU is to be held again.
    suspended: bool,
}

impl Asked {
    /// What to watch.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self.phase {
            // One at a time; the others wait.
            Phase::None => self.caller.as_ref().or(self.listener.as_ref()).map(AsFd::as_fd),
            _ => self.caller.as_ref().map(AsFd::as_fd),
        }
    }

    fn refuse(&mut self, why: &str) {
        if let Some(caller) = self.caller.take() {
            let mut message = [&[REFUSED], why.as_bytes()].concat();
            message.truncate(LONGEST);
            let _ = socket::send_with(caller.as_fd(), &message, &[]);
        }
    }
}

impl Machine {
    /// A fork of this session must have this policy.
    pub fn has_policy(&mut self, policy: Policy) {
        self.asked.policy = Some(policy);
    }

    /// Lets forks be asked for by a socket.
    pub fn listen(&mut self, listener: OwnedFd) {
        self.asked.listener = Some(listener);
    }

    /// What is on the disk is being copied, or all of it is: the session that this is a fork of goes on.
    ///
    /// # Errors
    /// As [`Forked::copied`].
    pub fn copied(&mut self, all: bool) -> Result<(), String> {
        self.fork.as_mut().map_or(Ok(()), |fork| fork.copied(all))
    }

    /// Waits until a fork's machine has its state.
    pub(super) fn take_over(&mut self) -> Result<(), String> {
        let Some(fork) = &mut self.fork else { return Ok(()) };
        fork.state = None;
        let taken = self.process.control.took_over();
        taken.map_err(|why| self.process.explain(format!("the fork cannot go on: {why}")))
    }

    /// Hears who wants a fork.
    pub(super) fn hear_caller(&mut self) {
        if self.asked.caller.is_none() && self.asked.phase == Phase::None {
            let accepted = self.asked.listener.as_ref().map(|socket| unix::accept(socket.as_fd()));
            self.asked.caller = accepted.and_then(Result::ok);
        }
        let Some(caller) = &self.asked.caller else { return };
        let mut words = vec![0; LONGEST];
        let heard = match socket::receive_with(caller.as_fd(), &mut words, false) {
            Err(Errno::EAGAIN) => return,
            Ok((count, files)) => (&words[..count], files),
            Err(_) => (&[][..], Vec::new()),
        };
        match self.asked.phase {
            Phase::None if heard.0.is_empty() => self.asked.caller = None,
            Phase::None => {
                if let Err(why) = self.begin_fork(heard.0, &heard.1) {
                    self.asked.refuse(&why);
                }
            }
            // Gone: what the bridge says next lets it go on.
            Phase::Asked => self.asked.caller = None,
            Phase::Saved if heard.0 == [COPYING] => {
                self.asked.until = Some(Instant::now() + PATIENCE);
            }
            // Done, or gone.
            Phase::Saved => self.go_on(),
        }
    }

    /// Nothing is heard of who copies, or of the bridge, which may have been taken over.
    pub(super) fn silent_caller(&mut self) {
        if self.asked.until.is_some_and(|until| until <= Instant::now()) {
            if self.asked.phase == Phase::Asked {
                self.asked.refuse(&format!("its bridge does not answer within {SAVING:?}"));
            }
            self.go_on();
        }
    }

    fn begin_fork(&mut self, wish: &[u8], policy: &[OwnedFd]) -> Result<(), String> {
        let wish: Wish = serde_json::from_slice(wish).map_err(|error| error.to_string())?;
        let wanted = policy.first().and_then(|text| fd::content(text.as_fd(), MOST_TEXT).ok());
        let own = self.asked.policy.as_ref().map(text);
        if wanted.is_none() || wanted != own.map(String::into_bytes) {
            return Err("its policy would be another one now: profiles, the host's files or the \
                        environment changed since it began"
                .to_owned());
        }
        if wish.shape != self.recipe.shape {
            return Err("its machine would be another one now".to_owned());
        }
        let own = std::process::id().cast_signed();
        if wish.suspended {
            still::release(own)?;
        }
        if !self.attendance.as_mut().is_some_and(|bridge| bridge.ask()) {
            if wish.suspended {
                still::hold(own)?;
            }
            return Err("its guest has not begun yet".to_owned());
        }
        (self.asked.phase, self.asked.suspended) = (Phase::Asked, wish.suspended);
        self.asked.until = Some(Instant::now() + SAVING);
        Ok(())
    }

    /// The guest is still, or is not.
    pub(super) fn stilled(&mut self, saved: Result<Saved, String>) {
        if self.asked.phase != Phase::Asked {
            return;
        }
        let handed = saved.and_then(|saved| {
            let state = fd::sealable().map_err(|errno| format!("memfd_create: {errno:?}"))?;
            let Some(caller) = &self.asked.caller else {
                return Err("it is not wanted".to_owned());
            };
            self.process.control.copy(state.as_fd())?;
            let files = [state.as_fd(), saved.table.as_fd(), saved.trees.as_fd()];
            // Who wrote them may have been taken over: nobody reads what never ends, or becomes another thing meanwhile.
            for file in files {
                fd::seal(file)
                    .map_err(|errno| format!("what was saved is not at rest: {errno:?}"))?;
            }
            let memory = self.recipe.shape.memory;
            if size(state.as_fd())? > memory + memory / 64 + BESIDE {
                return Err("QEMU saved more than its guest has".to_owned());
            }
            socket::send_with(caller.as_fd(), &[FORKED], &files)
                .map_err(|errno| format!("sendmsg: {errno:?}"))
        });
        match handed {
            Ok(()) => {
                self.asked.phase = Phase::Saved;
                self.asked.until = Some(Instant::now() + PATIENCE);
            }
            Err(why) => {
                self.asked.refuse(&why);
                self.go_on();
            }
        }
    }

    fn go_on(&mut self) {
        // One that was not stopped does not mind.
        let _ = self.process.control.go_on();
        let suspended = std::mem::take(&mut self.asked.suspended);
        if let Some(bridge) = &self.attendance {
            bridge.go_on(!suspended);
        }
        if suspended {
            let _ = still::hold(std::process::id().cast_signed());
        }
        (self.asked.caller, self.asked.phase, self.asked.until) = (None, Phase::None, None);
    }
}
