//! The ledger of a session: `session.db`, written by one thread beside everything else.
//!
//! Recording an event is one push into a queue; the file is made, filled and flushed by the
//! writer's thread. A full disk or a damaged file ends the record, never the command: the
//! reason comes with [`Ledger::end`].
//!
//! Whether a session lives is told by a lock on its `lock` file, which ends with the launcher
//! however that ends.

mod event;
mod read;
mod schema;
mod writer;

pub use event::{Ended, Event, FileChange, Process, Verdict};
pub(crate) use read::live;
pub use read::{Reader, Row, Session};

use crate::error::{Result, SessionError};
use crate::place;
use event::Entry;
use rustix::fs::{FlockOperation, flock};
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Events that wait for the disk; more than this are counted, not kept.
const MOST: usize = 1 << 20;

/// How long the end waits for the disk.
const PATIENCE: Duration = Duration::from_secs(5);

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
}

enum Message {
    Entry(Entry),
    Flush(Sender<()>),
    /// The end of the session, or of the record only.
    End(Option<Ended>),
}

/// A session being recorded.
pub struct Ledger {
    sender: Option<Sender<Message>>,
    thread: Option<JoinHandle<Result<()>>>,
    finished: Receiver<()>,
    waiting: Arc<AtomicUsize>,
    lost: Arc<AtomicUsize>,
    directory: PathBuf,
    _lock: File,
}

/// A handle for recording, one for each thread that does.
#[derive(Clone)]
pub struct Recorder {
    sender: Sender<Message>,
    waiting: Arc<AtomicUsize>,
    lost: Arc<AtomicUsize>,
}

impl Recorder {
    /// Records an event of a process, without waiting for anything.
    pub fn record(&self, process: Option<&Arc<Process>>, event: Event) {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= MOST {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let entry = Entry { at: now(), process: process.cloned(), event };
        if self.sender.send(Message::Entry(entry)).is_err() {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Ledger {
    /// Begins the record of a session under the user's state directory.
    ///
    /// # Errors
    /// The session's directory cannot be made, or is another session's. Troubles with the
    /// database come with [`Ledger::end`].
    pub fn start(start: Start) -> Result<Ledger> {
        Ledger::start_in(&place::sessions()?, start)
    }

    /// The same, under another directory of sessions.
    ///
    /// # Errors
    /// As [`Ledger::start`].
    pub fn start_in(sessions: &Path, start: Start) -> Result<Ledger> {
        check_id(&start.id)?;
        let directory = sessions.join(&start.id);
        place::private_directory(&directory)?;
        let path = directory.join("lock");
        let failed = |error| SessionError::call("open", &path, error);
        let mut options = File::options();
        options.write(true).create_new(true).mode(0o600);
        let lock = options.open(&path).map_err(failed)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|error| SessionError::call("flock", &path, error))?;
        let (sender, receiver) = channel();
        let (done, finished) = channel();
        let (waiting, lost) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
        let counters = (Arc::clone(&waiting), Arc::clone(&lost));
        let database = directory.join("session.db");
        let thread = std::thread::Builder::new()
            .name("ledger".to_owned())
            .spawn(move || {
                let _done: Sender<()> = done;
                work(&database, &start, &receiver, &counters.0, &counters.1)
            })
            .map_err(|error| SessionError::call("clone", &directory, error))?;
        let (sender, thread) = (Some(sender), Some(thread));
        Ok(Ledger { sender, thread, finished, waiting, lost, directory, _lock: lock })
    }

    /// The session's directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// A handle for recording. `None` after the end.
    pub fn recorder(&self) -> Option<Recorder> {
        let (waiting, lost) = (Arc::clone(&self.waiting), Arc::clone(&self.lost));
        self.sender.clone().map(|sender| Recorder { sender, waiting, lost })
    }

    /// Waits until all that was recorded so far is written, at most for a given time. False: it
    /// is not, or the record has ended.
    pub fn flush(&self, most: Duration) -> bool {
        let (done, written) = channel();
        let sent = self.sender.as_ref().is_some_and(|s| s.send(Message::Flush(done)).is_ok());
        sent && written.recv_timeout(most).is_ok()
    }

    /// Ends the record. Handles that are still in use are of no use from now on.
    ///
    /// # Errors
    /// Why the record is not whole: a full disk, a damaged file.
    pub fn end(mut self, ended: Ended) -> Result<()> {
        self.close(Some(ended))
    }

    fn close(&mut self, ended: Option<Ended>) -> Result<()> {
        let Some(sender) = self.sender.take() else { return Ok(()) };
        let _ = sender.send(Message::End(ended));
        // The thread drops its end when it has written all; a disk that does not answer cannot
        // hold the command's end up for ever.
        match (self.finished.recv_timeout(PATIENCE), self.thread.take()) {
            (Err(RecvTimeoutError::Disconnected), Some(thread)) => thread.join().unwrap_or(Ok(())),
            _ => Err(SessionError::usage(format!(
                "the record of this session was not written within {} s",
                PATIENCE.as_secs()
            ))),
        }
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        if self.sender.is_some() {
            let _ = self.close(None);
        }
    }
}

fn work(
    path: &Path,
    start: &Start,
    receiver: &Receiver<Message>,
    waiting: &AtomicUsize,
    lost: &AtomicUsize,
) -> Result<()> {
    writer::Writer::create(path, start)?.run(receiver, waiting, lost)
}

/// An identifier that is one harmless name.
pub(crate) fn check_id(id: &str) -> Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if (1..=64).contains(&id.len()) && id.chars().all(plain) {
        return Ok(());
    }
    Err(SessionError::usage(format!("{id:?} is no session's identifier")))
}

/// Microseconds since the epoch.
fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_micros()).unwrap_or(i64::MAX)
}
