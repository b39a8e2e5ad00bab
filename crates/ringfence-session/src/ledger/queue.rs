//! Events on their way to the journal: gathered for a moment, so that many cost one write, and
//! written by a thread that nobody waits for.

use super::event::{Event, Process};
use super::journal::{self, Room, Stage};
use super::now;
use crate::error::{Result, SessionError};
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long an event may wait for others: what a kill can lose.
const LATENCY: Duration = Duration::from_millis(50);
/// So much is written at once.
const BATCH: usize = 1 << 20;
/// Bytes that wait for the disk; events past them are counted, not kept.
const MOST_WAITING: usize = 64 << 20;
/// Bytes of a journal; events past them are counted, not kept: what is inside decides how many
/// events there are, and must not decide how full the disk is.
const MOST: u64 = 256 << 20;
/// How long the end waits for the disk.
const PATIENCE: Duration = Duration::from_secs(5);

/// A handle for recording; as many as are needed.
#[derive(Clone, Debug)]
pub struct Recorder(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    file: File,
    path: PathBuf,
    /// One writes at a time.
    room: Mutex<Room>,
    queue: Mutex<Queue>,
    /// Something came, or was written.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<u8>,
    /// Bytes taken in, bytes on the disk.
    taken: u64,
    written: u64,
    lost: u64,
    /// The thread runs.
    thread: bool,
    /// Nothing is taken in any more.
    closed: bool,
    /// Nothing waits for others any more.
    hurried: bool,
    stage: Stage,
    /// Why something could not be written: for a full disk, which may have room again, or for good.
    full: bool,
    failed: Option<SessionError>,
}

impl Recorder {
    /// Of a journal.
    pub(super) fn new(file: File, path: PathBuf, open: bool) -> Recorder {
        let queue = Mutex::new(Queue { closed: !open, ..Queue::default() });
        let room = Mutex::new(Room::default());
        Recorder(Arc::new(Shared { file, path, room, queue, changed: Condvar::new() }))
    }

    /// Records an event of a process, without waiting for the disk.
    pub fn record(&self, process: Option<&Process>, what: &Event) {
        let line = journal::event(now(), process, what);
        self.queued(self.0.lock(), &line);
    }

    fn queued(&self, mut queue: MutexGuard<'_, Queue>, line: &[u8]) {
        if !queue.take(line) {
            return;
        }
        if !queue.thread {
            queue.thread = true;
            let shared = Arc::clone(&self.0);
            let started =
                std::thread::Builder::new().name("ledger".into()).spawn(move || shared.work());
            if started.is_err() {
                // No thread is to be had: written here.
                queue.thread = false;
                self.0.write(queue);
                return;
            }
        }
        if queue.waiting.len() == line.len() || queue.waiting.len() >= BATCH {
            self.0.changed.notify_all();
        }
    }

    /// Records an event on a thread that has nothing else to do: a session in which nothing else
    /// happens needs no thread of the record's own.
    pub fn record_here(&self, process: Option<&Process>, what: &Event) {
        self.record_since(process, what, Instant::now());
    }

    /// The same, of what happened at a time that is over.
    pub fn record_since(&self, process: Option<&Process>, what: &Event, since: Instant) {
        let ago = i64::try_from(since.elapsed().as_micros()).unwrap_or_default();
        let line = journal::event(now() - ago, process, what);
        let queue = self.0.lock();
        if queue.thread {
            self.queued(queue, &line);
        } else {
            let mut queue = queue;
            if queue.take(&line) {
                self.0.write(queue);
            }
        }
    }

    /// What comes from now on is about the session's end, for which room was kept on the disk; what came before is
    /// written first, for which it was not.
    pub fn ending(&self) {
        let mut queue = self.0.lock();
        if queue.thread && !queue.waiting.is_empty() {
            queue.hurried = true;
            self.0.changed.notify_all();
            let deadline = Instant::now() + PATIENCE;
            let wanted = queue.taken;
            queue = self.0.until(queue, deadline, |queue| queue.written >= wanted);
        }
        queue.stage = Stage::Ending;
    }

    pub(super) fn flush(&self, most: Duration) -> bool {
        let queue = self.0.lock();
        let wanted = queue.taken;
        let deadline = Instant::now() + most;
        let queue = self.0.until(queue, deadline, |queue| queue.written >= wanted);
        queue.written >= wanted && !queue.full && queue.failed.is_none() && !queue.closed
    }

    /// Writes what waits, and then the last line, which has how many events are lost.
    pub(super) fn end(&self, last: impl FnOnce(u64) -> Vec<u8>) -> Result<()> {
        let mut queue = self.0.lock();
        queue.closed = true;
        if !queue.thread && !queue.waiting.is_empty() {
            self.0.write(queue);
            queue = self.0.lock();
        }
        let wanted = queue.taken;
        self.0.changed.notify_all();
        let deadline = Instant::now() + PATIENCE;
        let mut queue = self.0.until(queue, deadline, |queue| queue.written >= wanted);
        if queue.written < wanted {
            return Err(SessionError::usage(format!(
                "the record of this session was not written within {} s",
                PATIENCE.as_secs()
            )));
        }
        let (lost, full, failed) = (queue.lost, queue.full, queue.failed.take());
        drop(queue);
        let line = last(lost);
        let ended = self.0.room().append(&self.0.file, &self.0.path, &line, Stage::Last);
        match failed {
            Some(error) => Err(error),
            None if full => Err(SessionError::usage(format!(
                "no space was left for {}, and {lost} of its events are lost",
                self.0.path.display()
            ))),
            None => ended.map_err(|(_, why)| match why {
                SessionError::Full(path) => SessionError::usage(format!(
                    "no space was left for the last line of {}, and the session is shown as killed",
                    path.display()
                )),
                why => why,
            }),
        }
    }
}

impl Queue {
    /// Takes a line in; false where the record has ended or has no room.
    fn take(&mut self, line: &[u8]) -> bool {
        if self.closed {
            return false;
        }
        let many = self.waiting.len() + line.len() > MOST_WAITING;
        if many || self.failed.is_some() || self.taken + line.len() as u64 > MOST {
            self.lost += 1;
            return false;
        }
        self.waiting.extend_from_slice(line);
        self.taken += line.len() as u64;
        true
    }
}

impl Shared {
    /// A panic elsewhere leaves lines whole.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something is so, at most until a deadline.
    fn until<'a>(
        &'a self,
        mut queue: MutexGuard<'a, Queue>,
        deadline: Instant,
        is: impl Fn(&Queue) -> bool,
    ) -> MutexGuard<'a, Queue> {
        while !is(&queue) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.changed.wait_timeout(queue, left);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        queue
    }

    fn room(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what waits.
    fn write(&self, mut queue: MutexGuard<'_, Queue>) {
        let lines = std::mem::take(&mut queue.waiting);
        let stage = queue.stage;
        drop(queue);
        let result = self.room().append(&self.file, &self.path, &lines, stage);
        let mut queue = self.lock();
        queue.written += lines.len() as u64;
        if let Err((done, error)) = result {
            // The rest of a line that was cut off has its end.
            queue.lost += lines[done..].iter().filter(|&&byte| byte == b'\n').count() as u64;
            match error {
                SessionError::Full(_) => queue.full = true,
                error => drop(queue.failed.get_or_insert(error)),
            }
        }
        if queue.waiting.is_empty() {
            // The room is used again.
            queue.waiting = lines;
            queue.waiting.clear();
            queue.waiting.shrink_to(2 * BATCH);
        }
        drop(queue);
        self.changed.notify_all();
    }

    /// The thread: waits for the first line, a moment for others, and writes them.
    fn work(&self) {
        loop {
            let far = Instant::now() + Duration::from_secs(3600);
            let queue = self.until(self.lock(), far, |q| !q.waiting.is_empty() || q.closed);
            if queue.waiting.is_empty() {
                if queue.closed {
                    return;
                }
                continue;
            }
            let soon = Instant::now() + LATENCY;
            let queue =
                self.until(queue, soon, |q| q.closed || q.hurried || q.waiting.len() >= BATCH);
            self.write(queue);
        }
    }
}
