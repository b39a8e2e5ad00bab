//! The line between a bridge and its launcher: by it the bridge gets its stream to a machine, and
//! another one when nobody answers on the first.
//!
//! ```text
//! bridge                        launcher
//!   │ ───── connects ────────────► │ a process that it has started
//!   │ ◄──── the word, a stream ─── │ a clone has its other end
//!   │ ───── begun, or gone ──────► │ gone: another clone, once
//!   │ ◄──── a stream, or why not ─ │
//!   │ ───── a limit, reached ────► │ once the guest has begun
//!   │ ◄──── be still ───────────── │ somebody wants a fork of the session
//!   │ ───── still, files ────────► │ or why not: saves the machine meanwhile
//!   │ ◄──── go on ──────────────── │
//! ```
//!
//! The bridge of a fork gets those files together with its stream.
//!
//! The socket lies where programs of the same user may write, in another sandbox too: they can put one of their own in
//! its place, and call. So the bridge is told a word beforehand, which no answer is without, and whoever calls must be
//! the launcher's child's child.

use crate::wire::Limit;
use ringfence_sys::{Errno, fd, socket, unix};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

const STREAM: u8 = b's';
const REFUSED: u8 = b'r';
const BEGUN: u8 = b'b';
const GONE: u8 = b'g';
const MEMORY: u8 = b'm';
const PROCESSES: u8 = b'p';
const STILL: u8 = b'q';
const RESTLESS: u8 = b'n';
const HOLD: u8 = b'h';
const ON: u8 = b'o';
/// The longest reason.
const LONGEST: usize = 4096;
/// How often a bridge may tell of limits.
pub const MOST: u32 = 1000;

/// What a launcher and its bridge know, and nobody else.
pub type Word = [u8; 16];
/// A bridge is told it in its environment, which other sandboxes cannot read: a command line they can, in the process tier.
pub const VARIABLE: &str = "RINGFENCE_VM_WORD";

/// A word as the variable's value.
pub fn value(word: Word) -> String {
    format!("{:032x}", u128::from_be_bytes(word))
}

/// The word that this process was told.
///
/// # Errors
/// A sentence.
pub fn told() -> Result<Word, String> {
    let value = std::env::var(VARIABLE).ok();
    let word = value.and_then(|value| u128::from_str_radix(&value, 16).ok()).map(u128::to_be_bytes);
    word.ok_or_else(|| format!("{VARIABLE} is not set"))
}

/// What one bridge saves for another one's fork: files in memory.
#[derive(Debug)]
pub struct Saved {
    /// What its commands and its guest's files were.
    pub table: OwnedFd,
    /// What was in the sandbox's own directories.
    pub trees: OwnedFd,
}

impl Saved {
    fn of(mut files: impl Iterator<Item = OwnedFd>) -> Option<Saved> {
        Some(Saved { table: files.next()?, trees: files.next()? })
    }
}

/// What a launcher wants of a bridge whose guest has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Nothing.
    Nothing,
    /// Its guest is to be still.
    Still,
    /// It is to go on; and to be told the time, where it stood still.
    On(bool),
    /// Nothing more: the launcher is gone.
    Gone,
}

/// The bridge's end.
#[derive(Debug)]
pub struct Line(OwnedFd, Word);

impl Line {
    /// Calls the launcher.
    ///
    /// # Errors
    /// A sentence.
    pub fn call(place: &Path, word: Word) -> Result<Line, String> {
        let connected = unix::connect(place);
        connected
            .map(|line| Line(line, word))
            .map_err(|errno| format!("the launcher does not answer: {errno:?}"))
    }

    /// Waits for a stream.
    ///
    /// # Errors
    /// The launcher's reason why there is none.
    pub fn stream(&self) -> Result<(OwnedFd, Option<Saved>), String> {
        let mut message = [0; LONGEST];
        let (count, streams) = socket::receive_with(self.0.as_fd(), &mut message, true)
            .map_err(|errno| format!("the launcher gives no stream: {errno:?}"))?;
        let Some(said) = message[..count].strip_prefix(&self.1) else {
            let why = if count == 0 {
                "the launcher has ended"
            } else {
                "somebody else answers for the launcher"
            };
            return Err(why.to_owned());
        };
        let mut streams = streams.into_iter();
        match (said, streams.next(), Saved::of(streams)) {
            ([STREAM], Some(stream), saved) => Ok((stream, saved)),
            ([REFUSED, why @ ..], ..) => Err(String::from_utf8_lossy(why).into_owned()),
            _ => Err("the launcher has ended".to_owned()),
        }
    }

    /// The guest has begun: no other stream will be asked for.
    pub fn begun(self) -> Begun {
        let _ = fd::send(self.0.as_fd(), &[BEGUN]);
        Begun { line: self.0, left: MOST }
    }

    /// The stream has ended before the guest has begun: asks for another one.
    pub fn gone(&self) {
        let _ = fd::send(self.0.as_fd(), &[GONE]);
    }
}

/// The bridge's end, once the guest has begun.
#[derive(Debug)]
pub struct Begun {
    line: OwnedFd,
    left: u32,
}

impl Begun {
    /// The guest has reached a limit of its own. It is told of many, not of as many as it likes.
    pub fn reached(&mut self, limit: Limit) {
        let Some(left) = self.left.checked_sub(1) else { return };
        self.left = left;
        let _ = match limit {
            Limit::Memory(count) => {
                let [a, b, c, d] = count.to_le_bytes();
                fd::send(self.line.as_fd(), &[MEMORY, a, b, c, d])
            }
            Limit::Processes => fd::send(self.line.as_fd(), &[PROCESSES]),
        };
    }

    /// Hears what the launcher wants.
    pub fn hear(&self) -> Wanted {
        let mut words = [0; 8];
        match fd::receive(self.line.as_fd(), &mut words, false).map(|count| &words[..count]) {
            Ok([HOLD]) => Wanted::Still,
            Ok([ON, late]) => Wanted::On(*late == 1),
            Ok([]) => Wanted::Gone,
            _ => Wanted::Nothing,
        }
    }

    /// The guest is still, and this is what there is here of it; or why it is not.
    pub fn still(&self, saved: Result<&Saved, &str>) {
        let line = self.line.as_fd();
        // A launcher that does not take it is gone.
        let _ = match saved {
            Ok(saved) => {
                socket::send_with(line, &[STILL], &[saved.table.as_fd(), saved.trees.as_fd()])
            }
            Err(why) => {
                let mut message = [&[RESTLESS], why.as_bytes()].concat();
                message.truncate(LONGEST);
                fd::send(line, &message).map(drop)
            }
        };
    }
}

impl AsFd for Begun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }
}

/// The launcher's end.
#[derive(Debug)]
pub struct Attendance {
    /// What is watched: listens for the bridge, then is connected with it.
    socket: OwnedFd,
    connected: bool,
    /// Goes with each answer.
    word: Word,
    /// Says whether a process is the launcher's.
    ours: fn(i32) -> bool,
    /// The guest has begun: how much more may be said.
    left: Option<u32>,
    /// The bridge was asked to be still.
    asked: bool,
}

/// What the bridge has to say.
#[derive(Debug)]
pub enum Said {
    /// Nothing.
    Nothing,
    /// It is there, or its stream has ended: it waits for one.
    Waits,
    /// The guest has begun.
    Begun,
    /// It has reached a limit of its own.
    Reached(Limit),
    /// Its guest is still, as it was asked for; or is not, and why.
    Still(Result<Saved, String>),
    /// The bridge is gone: nothing more will be said.
    Over,
}

impl Attendance {
    /// Waits for a bridge under a path.
    ///
    /// # Errors
    /// As [`unix::listen`].
    pub fn at(place: &Path, word: Word, ours: fn(i32) -> bool) -> Result<Attendance, Errno> {
        let listens =
            |socket| Attendance { socket, connected: false, word, ours, left: None, asked: false };
        unix::listen(place).map(listens)
    }

    /// Hears what is said, without waiting.
    pub fn hear(&mut self) -> Said {
        if !self.connected {
            let Ok(line) = unix::accept(self.socket.as_fd()) else { return Said::Nothing };
            let caller = socket::peer_credentials(line.as_fd()).map(|(process, ..)| process);
            if !caller.is_ok_and(self.ours) {
                return Said::Nothing;
            }
            // There is one bridge: who else comes finds nobody who listens.
            (self.socket, self.connected) = (line, true);
            return Said::Waits;
        }
        let mut words = [0; LONGEST];
        match socket::receive_with(self.socket.as_fd(), &mut words, false) {
            Err(Errno::EAGAIN) => Said::Nothing,
            Ok((count, files)) => self.understand(&words[..count], files),
            _ => Said::Over,
        }
    }

    fn understand(&mut self, words: &[u8], files: Vec<OwnedFd>) -> Said {
        match (words, &mut self.left) {
            ([GONE], None) => Said::Waits,
            ([BEGUN], None) => {
                self.left = Some(MOST);
                Said::Begun
            }
            ([STILL | RESTLESS, why @ ..], Some(_)) if std::mem::take(&mut self.asked) => {
                let why = || String::from_utf8_lossy(why).into_owned();
                let still = Some(files.into_iter()).filter(|_| words[0] == STILL);
                Said::Still(still.and_then(Saved::of).ok_or_else(why))
            }
            (words, Some(left @ 1..)) => {
                *left -= 1;
                match *words {
                    [MEMORY, a, b, c, d] => {
                        Said::Reached(Limit::Memory(u32::from_le_bytes([a, b, c, d])))
                    }
                    [PROCESSES] => Said::Reached(Limit::Processes),
                    _ => Said::Over,
                }
            }
            _ => Said::Over,
        }
    }

    /// Asks the bridge to be still. False: its guest has not begun.
    pub fn ask(&mut self) -> bool {
        self.asked = self.left.is_some() && fd::send(self.socket.as_fd(), &[HOLD]).is_ok();
        self.asked
    }

    /// Lets the bridge go on, whose guest is to be told the time where it stood still.
    pub fn go_on(&self, late: bool) {
        let _ = fd::send(self.socket.as_fd(), &[ON, u8::from(late)]);
    }

    /// What to watch.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Gives the bridge a stream, with what was saved for it where it is a fork's; or the reason why there is none.
    pub fn answer(&self, stream: Result<(BorrowedFd<'_>, Option<&Saved>), &str>) {
        let line = self.socket.as_fd();
        // A bridge that does not take it is gone, which is heard next.
        let _ = match stream {
            Ok((stream, saved)) => {
                let saved = saved.map(|saved| [saved.table.as_fd(), saved.trees.as_fd()]);
                let all: Vec<_> = [stream].into_iter().chain(saved.into_iter().flatten()).collect();
                socket::send_with(line, &[&self.word[..], &[STREAM]].concat(), &all)
            }
            Err(why) => {
                let mut message = [&self.word[..], &[REFUSED], why.as_bytes()].concat();
                message.truncate(LONGEST);
                fd::send(line, &message).map(drop)
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bridge_gets_a_stream_and_another_one_and_then_the_reason() {
        let name = format!("ringfence-line-{}", std::process::id());
        let place = std::env::temp_dir().join(name);
        let mut launcher = Attendance::at(&place, [7; 16], |_| false).expect("listening");
        assert!(matches!(launcher.hear(), Said::Nothing));
        // Who is none of the launcher's is not answered, and keeps nobody from it.
        let other = Line::call(&place, [7; 16]).expect("connected");
        assert!(matches!(launcher.hear(), Said::Nothing));
        assert_eq!(other.stream().err().as_deref(), Some("the launcher has ended"));
        launcher.ours = |process| process == std::process::id().cast_signed();
        let bridge = Line::call(&place, [7; 16]).expect("connected");
        assert!(matches!(launcher.hear(), Said::Waits));
        // A process that another test starts has a copy of what listened, until it executes.
        let refused = loop {
            match Line::call(&place, [7; 16]).err() {
                Some(why) if !why.ends_with("EAGAIN") => break why,
                _ => std::thread::yield_now(),
            }
        };
        assert_eq!(refused, "the launcher does not answer: ECONNREFUSED");
        std::fs::remove_file(&place).expect("a socket of ours");
        for word in [b"1", b"2"] {
            let (ours, theirs) = fd::socket_pair().expect("a pair");
            launcher.answer(Ok((theirs.as_fd(), None)));
            drop(theirs);
            fd::send(bridge.stream().expect("a stream").0.as_fd(), word).expect("sent");
            let mut heard = [0; 2];
            assert_eq!(fd::receive(ours.as_fd(), &mut heard, true), Ok(1));
            assert_eq!(heard[0], word[0]);
            assert!(matches!(launcher.hear(), Said::Nothing));
            bridge.gone();
            assert!(matches!(launcher.hear(), Said::Waits));
        }
        let (ours, theirs) = fd::socket_pair().expect("a pair");
        launcher.word = [8; 16];
        launcher.answer(Ok((theirs.as_fd(), None)));
        drop((ours, theirs));
        assert_eq!(
            bridge.stream().err().as_deref(),
            Some("somebody else answers for the launcher")
        );
        launcher.word = [7; 16];
        launcher.answer(Err("no more"));
        assert_eq!(bridge.stream().err().as_deref(), Some("no more"));
        let mut bridge = bridge.begun();
        assert!(matches!(launcher.hear(), Said::Begun));
        bridge.reached(Limit::Memory(258));
        bridge.reached(Limit::Processes);
        assert!(matches!(launcher.hear(), Said::Reached(Limit::Memory(258))));
        assert!(matches!(launcher.hear(), Said::Reached(Limit::Processes)));
        assert!(matches!(launcher.hear(), Said::Nothing));
        // It is still when that is asked for, and only then.
        assert!(launcher.ask());
        assert_eq!(bridge.hear(), Wanted::Still);
        let file = |bytes| fd::in_memory(bytes).expect("a file");
        let saved = Saved { table: file(b"table"), trees: file(b"trees") };
        bridge.still(Ok(&saved));
        let Said::Still(Ok(told)) = launcher.hear() else { panic!("no files") };
        assert_eq!(fd::content(told.trees.as_fd(), 9).as_deref(), Ok(&b"trees"[..]));
        launcher.go_on(true);
        assert_eq!((bridge.hear(), bridge.hear()), (Wanted::On(true), Wanted::Nothing));
        assert!(launcher.ask());
        bridge.still(Err("busy"));
        let Said::Still(Err(why)) = launcher.hear() else { panic!("no reason") };
        assert_eq!(why, "busy");
        // It asks for nothing more, and a guest that goes on and on is not heard.
        fd::send(bridge.line.as_fd(), &[GONE]).expect("sent");
        assert!(matches!(launcher.hear(), Said::Over));
        launcher.left = Some(2);
        for _ in 0..3 {
            bridge.reached(Limit::Processes);
        }
        let heard = [launcher.hear(), launcher.hear(), launcher.hear()];
        let limit = Limit::Processes;
        let [Said::Reached(first), Said::Reached(second), Said::Over] = heard else {
            panic!("{heard:?}");
        };
        assert_eq!([first, second], [limit; 2]);
        drop(bridge);
        // A process that another test starts has a copy of the bridge's end until it executes.
        fd::poll_readable(&[launcher.descriptor()], -1).expect("readable in the end");
        assert!(matches!(launcher.hear(), Said::Over));
        assert!(matches!(launcher.hear(), Said::Over), "it is gone");
    }
}
