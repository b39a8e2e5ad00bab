//! The ledger of a session: a journal, written by the launcher beside everything else, and
//! `session.db`, made from it by whoever reads.
//!
//! Recording an event is one push into a queue; a thread, started with the first event that does
//! not come from the launcher itself, writes what has gathered. What finds no room on a full disk is
//! counted, and a lost directory ends the record, never the command: the reason comes with [`Ledger::end`].
//!
//! Whether a session lives is told by a lock on its journal, which ends with the launcher
//! however that ends.

mod event;
mod ingest;
mod journal;
mod queue;
mod read;
mod schema;
mod text;

pub use event::{Ended, Event, FileChange, Process, Verdict, Word};
pub(crate) use journal::{NAME as JOURNAL, begun, held_by, live};
pub use queue::Recorder;
pub(crate) use read::session;
pub use read::{Reader, Row, Session};

use crate::error::{Result, SessionError};
use crate::place;
use journal::{Head, Line, Tail};
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What others knock at while the session lives.
pub(crate) const SOCKETS: [&str; 3] = [crate::live::SOCKET, crate::live::RULES, crate::live::FORKS];

/// Removes them: nobody answers any more.
pub(crate) fn remove_sockets(directory: &Path) {
    for name in SOCKETS {
        let _ = std::fs::remove_file(directory.join(name));
    }
}

/// What a session is, at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// Its identifier: letters, digits, `-` and `_`.
    pub id: String,
    /// Its name.
    pub name: Option<String>,
    /// The command.
    pub argv: Vec<OsString>,
    /// Where it runs.
    pub cwd: PathBuf,
    /// The tier: `process`, `namespace`, `vm`.
    pub tier: &'static str,
    /// What it does is recorded; else the session is only known while it lives.
    pub record: bool,
}

/// A session being recorded.
#[derive(Debug)]
pub struct Ledger {
    recorder: Recorder,
    directory: PathBuf,
    name: Option<PathBuf>,
    record: bool,
}

impl Ledger {
    /// Begins the record of a session under the user's state directory. `doors` makes what others knock at in the
    /// session's directory, before it can be found.
    ///
    /// # Errors
    /// The session's directory cannot be made, or is another session's. Troubles with later
    /// writes come with [`Ledger::end`].
    pub fn start(start: Start, doors: impl FnOnce(&Path)) -> Result<Ledger> {
        Ledger::begin(&place::sessions()?, start, doors)
    }

    /// The same, under another directory of sessions.
    ///
    /// # Errors
    /// As [`Ledger::start`].
    pub fn start_in(sessions: &Path, start: Start) -> Result<Ledger> {
        Ledger::begin(sessions, start, |_| {})
    }

    fn begin(sessions: &Path, start: Start, doors: impl FnOnce(&Path)) -> Result<Ledger> {
        check_id(&start.id)?;
        let directory = sessions.join(&start.id);
        place::private_directory(&directory).map_err(unrecorded)?;
        // Another session's is there already, and stays.
        let (file, path) = journal::create(&directory).map_err(unrecorded)?;
        doors(&directory);
        Ledger::opened(sessions, start, &directory, (file, path)).inspect_err(|_| {
            let _ = std::fs::remove_dir_all(&directory);
        })
    }

    fn opened(
        sessions: &Path,
        start: Start,
        directory: &Path,
        (file, path): (File, PathBuf),
    ) -> Result<Ledger> {
        let text = |text: &OsString| text::of(text).into_owned();
        let head = Line::Start(Head {
            version: journal::VERSION,
            id: start.id,
            name: start.name.clone(),
            argv: start.argv.iter().map(text).collect(),
            cwd: text::of(start.cwd.as_os_str()).into_owned(),
            tier: start.tier.to_owned(),
            pid: std::process::id() as i32,
            at: now(),
            record: start.record,
        });
        let head = head.encode();
        journal::append(&file, &path, &head).map_err(unrecorded)?;
        let name = start.name.map(|name| place::name(sessions, &name, directory)).transpose()?;
        let recorder = Recorder::new(file, path, start.record);
        Ok(Ledger { recorder, directory: directory.to_owned(), name, record: start.record })
    }

    /// The session's directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// A handle for recording.
    pub fn recorder(&self) -> Recorder {
        self.recorder.clone()
    }

    /// Waits until all that was recorded so far is written, at most for a given time. False: it
    /// is not, or the record has ended.
    pub fn flush(&self, most: Duration) -> bool {
        self.recorder.flush(most)
    }

    /// Ends the record. Handles that are still in use are of no use from now on.
    ///
    /// # Errors
    /// Why the record is not whole: a full disk, a lost directory.
    pub fn end(self, ended: Ended) -> Result<()> {
        if !self.record {
            self.remove();
            return Ok(());
        }
        remove_sockets(&self.directory);
        self.recorder.end(|lost| Line::End(Tail { at: now(), ended, lost }).encode())
    }

    /// Removes what there is of the session: nothing ran, or nothing is to be kept.
    pub fn remove(&self) {
        if let Some(name) = &self.name {
            place::forget_name(name, &self.directory);
        }
        if crate::overlay::kept(&self.directory) {
            // What was written waits there, whether there is a record or not.
            let _ = std::fs::remove_file(self.directory.join(JOURNAL));
            return remove_sockets(&self.directory);
        }
        // Links are removed, not followed.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Records an event of a session from another process than its launcher.
///
/// # Errors
/// There is no such session; the disk is full.
pub fn append(directory: &Path, process: Option<&Process>, what: &Event) -> Result<()> {
    let (file, path) = journal::open_to_append(directory)?;
    let line = journal::event(now(), process, what);
    // What is kept free for the session's end is not for this.
    journal::Room::default()
        .append(&file, &path, &line, journal::Stage::Going)
        .map_err(|(_, why)| why)?;
    // It may have ended meanwhile, and how is looked for at the end of the journal.
    match journal::end_behind(&file, &path, line.len() as u64)? {
        Some(tail) => journal::append(&file, &path, &Line::End(tail).encode()),
        None => Ok(()),
    }
}

/// Completes the journal of a session whose launcher was killed.
pub(crate) fn append_end(directory: &Path, signal: i32) -> Result<()> {
    let (file, path) = journal::open_to_append(directory)?;
    let (at, ended) = (now(), Ended::Signal(signal));
    journal::append(&file, &path, &Line::End(Tail { at, ended, lost: 0 }).encode())
}

/// An identifier that is one harmless name.
pub(crate) fn check_id(id: &str) -> Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if (1..=64).contains(&id.len()) && id.chars().all(plain) && id != place::NAMES {
        return Ok(());
    }
    Err(SessionError::usage(format!("{id:?} is no session's identifier")))
}

/// Microseconds since the epoch.
fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_micros()).unwrap_or(i64::MAX)
}

/// What a full disk comes to at the beginning of a record.
fn unrecorded(why: SessionError) -> SessionError {
    match why {
        SessionError::Full(path) => SessionError::usage(format!(
            "no space is left for {}, so that nothing of this session can be on record: free some \
             (`ringfence gc --all` removes records of earlier ones)",
            path.display()
        )),
        why => why,
    }
}
