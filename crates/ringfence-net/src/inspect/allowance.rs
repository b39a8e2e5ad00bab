//! How much an inspected connection may have under way. A program that takes nothing of what it asks for, or a server
//! that takes nothing of what it is sent, leaves all of it in the launcher's memory, which no limit of the sandbox's
//! holds: so all connections of a session share one measure. The first have plenty; of a crowd each has little, and
//! still goes on; and past a crowd they wait for their turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most connections at once.
const CROWD: usize = 1024;

/// What all connections have together, but for the least that each has.
const ALL: usize = 64 << 20;
/// What one connection has at most, and at least.
const MOST: usize = 8 << 20;
const LEAST: usize = 256 << 10;
/// What one stream may have under way at most and at least. What a program leaves unread in a stream is held in the
/// window of the whole connection, which stands still when it is full of that: so a stream has a sixteenth.
const STREAM: usize = 256 << 10;
const LITTLE: usize = 32 << 10;
/// What is kept for one stream to send at least, and how many streams there are at most.
const SENT: usize = 16 << 10;
const STREAMS: usize = 100;
/// What each of four buffers holds at most of an HTTP/1 connection: read and to be written, on either side. A head
/// must fit in one.
const BUFFER: usize = 400 << 10;
const HEAD: usize = 64 << 10;

/// What is given out.
#[derive(Debug)]
pub(super) struct Measure {
    given: AtomicUsize,
    crowd: Arc<Semaphore>,
}

impl Default for Measure {
    fn default() -> Measure {
        Measure { given: AtomicUsize::default(), crowd: Arc::new(Semaphore::new(CROWD)) }
    }
}

/// A connection's part, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Allowance {
    measure: Arc<Measure>,
    bytes: usize,
}

/// What follows for one connection. Received and sent, it comes to twice its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// What all streams and what one stream may have under way, on either side.
    pub window: u32,
    pub stream: u32,
    /// What is kept of one stream to be sent.
    pub send: usize,
    /// Streams at once.
    pub streams: u32,
    /// What the heads of its requests and answers take.
    pub heads: usize,
    /// What the trailers of one stream take.
    pub trailers: usize,
    /// What a buffer of an HTTP/1 connection holds.
    pub buffer: usize,
}

impl Measure {
    /// Waits for a connection's turn, which is over when the answer is dropped.
    pub async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        // Never closed.
        self.crowd.clone().acquire_owned().await.ok()
    }

    /// A part of what is left.
    pub fn take(self: &Arc<Self>) -> Allowance {
        let mut bytes = LEAST;
        let _ = self.given.fetch_update(Relaxed, Relaxed, |given| {
            bytes = (ALL.saturating_sub(given) / 8).clamp(LEAST, MOST);
            Some(given + bytes)
        });
        Allowance { measure: self.clone(), bytes }
    }
}

impl Allowance {
    pub const fn room(&self) -> Room {
        Room::of(self.bytes)
    }
}

impl Drop for Allowance {
    fn drop(&mut self) {
        self.measure.given.fetch_sub(self.bytes, Relaxed);
    }
}

impl Room {
    /// That of a connection without a part: to a server that is not there.
    pub const LEAST: Room = Room::of(LEAST);

    const fn of(bytes: usize) -> Room {
        let window = bytes / 2;
        let stream = if window / 16 < STREAM { window / 16 } else { STREAM };
        let stream = if stream > LITTLE { stream } else { LITTLE };
        let send = if bytes / STREAMS > SENT { bytes / STREAMS } else { SENT };
        let streams = bytes / send;
        let buffer = if bytes / 4 < BUFFER { bytes / 4 } else { BUFFER };
        let buffer = if buffer > HEAD { buffer } else { HEAD };
        let (heads, trailers) = (bytes / 2, bytes / 2 / streams);
        let (window, stream, streams) = (window as u32, stream as u32, streams as u32);
        Room { window, stream, send, streams, heads, trailers, buffer }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_have_plenty_and_a_crowd_is_held_to_the_measure() {
        let measure = Arc::new(Measure::default());
        let first = measure.take();
        let send = MOST / STREAMS;
        let (window, stream, heads) = (4 << 20, 256 << 10, 4 << 20);
        let trailers = heads / 100;
        let room = Room { window, stream, send, streams: 100, heads, trailers, buffer: BUFFER };
        assert_eq!(first.room(), room);
        let crowd: Vec<Allowance> = (0..1000).map(|_| measure.take()).collect();
        let given = measure.given.load(Relaxed);
        assert!(given <= ALL + 1001 * LEAST, "{given}");
        let last = crowd[999].room();
        assert_eq!((last, last.streams, last.send, last.buffer), (Room::LEAST, 16, SENT, HEAD));
        assert_eq!((last.window, last.stream, last.heads), (128 << 10, 32 << 10, 128 << 10));
        assert_eq!(last.trailers, 8 << 10);
        drop((first, crowd));
        assert_eq!(measure.given.load(Relaxed), 0);
        assert_eq!(measure.take().room(), room);
    }
}
