//! One direction of a connection in which much is moved: by `splice(2)`, which moves pages and copies
//! nothing, in pieces.
//!
//! On a loopback both ends and this relay share the processors, so that what is spent on each byte decides.
//! Two things cost more than moving the pages: waking up for each segment that arrives, and long queues, in
//! which pages cool down before they are read and used again. So while bytes stream in, the kernel wakes us for
//! good pieces only, and what is on its way to a near reader is kept short.

use crate::beside::Beside;
use crate::crowd;
use crate::relay::{Broken, wait};
use ringfence_sys::socket;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::SemaphorePermit;

/// The pipe's size, where the system lets an ordinary user have it.
const PIPE: usize = 1024 * 1024;
/// So many bytes without a pause are a stream.
const STREAMS_AFTER: usize = 1024 * 1024;
/// What is worth waking up for then.
const PIECE: i32 = 384 * 1024;
/// A stream that brings no piece for so long is none: what there is moves at once again.
const PAUSE: Duration = Duration::from_millis(2);
/// What may be on its way to a reader on this machine.
const NEAR: i32 = 64 * 1024;

/// A pipe for [`carry`].
pub(crate) struct Pipe {
    read_end: OwnedFd,
    write_end: OwnedFd,
    _room: SemaphorePermit<'static>,
}

impl Pipe {
    /// A pipe, where there is room for one.
    pub fn new() -> Option<Pipe> {
        let room = crowd::pipe()?;
        let (read_end, write_end) = socket::splice_pipe(PIPE).ok()?;
        Some(Pipe { read_end, write_end, _room: room })
    }
}

/// Moves all that comes, until its end. The end is not passed on.
pub(crate) async fn carry(
    from: &TcpStream,
    to: &TcpStream,
    Pipe { read_end, write_end, .. }: &Pipe,
    count: &AtomicU64,
) -> Result<(), Broken> {
    let moved = |from: &dyn AsFd, to: &dyn AsFd, length| {
        socket::splice(from.as_fd(), to.as_fd(), length)
            .map_err(|errno| io::Error::from_raw_os_error(errno.into_raw()))
    };
    let near = near(to);
    if near {
        // Without it there are long queues, and the same bytes.
        let _ = socket::send_buffer(to.as_fd(), NEAR);
    }
    let mut source = Source { from, to_near: near, streamed: 0, pieces: false, beside: None };
    loop {
        let taken = source.take(|from| moved(from, write_end, PIPE)).await;
        let mut left = taken.map_err(Broken::From)?;
        if left == 0 {
            return Ok(());
        }
        count.fetch_add(left as u64, Relaxed);
        if let Some(beside) = &source.beside {
            beside.follow(to.as_fd());
        }
        while left > 0 {
            to.writable().await.map_err(Broken::To)?;
            match to.try_io(Interest::WRITABLE, || moved(read_end, to, left)) {
                Ok(given) => left -= given,
                Err(error) if wait(&error) => {}
                Err(error) => return Err(Broken::To(error)),
            }
        }
    }
}

/// Whether the other end is on this machine: a sandbox's programs are, at whatever address.
fn near(to: &TcpStream) -> bool {
    match (to.local_addr(), to.peer_addr()) {
        (Ok(ours), Ok(theirs)) => ours.ip() == theirs.ip() || theirs.ip().is_loopback(),
        _ => false,
    }
}

/// Where a direction's bytes come from.
struct Source<'a> {
    from: &'a TcpStream,
    /// Their reader is on this machine.
    to_near: bool,
    /// Bytes that came without a pause.
    streamed: usize,
    /// The kernel wakes us for a piece.
    pieces: bool,
    /// They are moved where their reader is.
    beside: Option<Beside>,
}

impl Source<'_> {
    /// Waits until something can be taken, and takes it; 0 at the end.
    async fn take(&mut self, take: impl Fn(&TcpStream) -> io::Result<usize>) -> io::Result<usize> {
        loop {
            let taken = if self.streams() {
                match tokio::time::timeout(PAUSE, self.from.readable()).await {
                    Ok(ready) => ready.and_then(|()| self.attempt(&take)),
                    Err(_) => {
                        self.pause();
                        take(self.from)
                    }
                }
            } else {
                self.from.readable().await.and_then(|()| self.attempt(&take))
            };
            match taken {
                Err(error) if wait(&error) => {}
                other => {
                    self.streamed = self.streamed.saturating_add(*other.as_ref().unwrap_or(&0));
                    return other;
                }
            }
        }
    }

    fn attempt(&self, take: impl Fn(&TcpStream) -> io::Result<usize>) -> io::Result<usize> {
        self.from.try_io(Interest::READABLE, || take(self.from))
    }

    /// Whether it is a stream by now.
    fn streams(&mut self) -> bool {
        if !self.pieces && self.streamed >= STREAMS_AFTER {
            self.pieces = socket::receive_low_water(self.from.as_fd(), PIECE).is_ok();
            self.beside = (self.pieces && self.to_near).then(Beside::new).flatten();
        }
        self.pieces
    }

    /// It is none any more.
    fn pause(&mut self) {
        self.streamed = 0;
        self.pieces = false;
        self.beside = None;
        let _ = socket::receive_low_water(self.from.as_fd(), 1);
    }
}
