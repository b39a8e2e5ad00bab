//! Descriptors that bytes of the stream come from and go to, without waiting, within a window.

use crate::waiting::Waiting;
use crate::wire::{PIECE, WINDOW};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// What came of a read.
#[derive(Debug, PartialEq, Eq)]
pub enum Got {
    /// Bytes.
    Bytes(Vec<u8>),
    /// There are none now.
    Nothing,
    /// There will be no more.
    End,
}

/// Reads from a descriptor that does not wait.
#[derive(Debug)]
pub struct Source {
    /// How much the other end still takes.
    budget: usize,
    ended: bool,
}

impl Default for Source {
    fn default() -> Source {
        Source { budget: WINDOW, ended: false }
    }
}

impl Source {
    /// One of which the other end has taken less than was sent.
    pub fn with(budget: u64) -> Source {
        let budget = usize::try_from(budget).unwrap_or(WINDOW).min(WINDOW);
        Source { budget, ended: false }
    }

    /// How much the other end still takes.
    pub fn budget(&self) -> u64 {
        self.budget as u64
    }

    /// Whether it is to be watched for reading.
    pub fn wanted(&self) -> bool {
        !self.ended && self.budget > 0
    }

    /// Whether its end was met.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// The other end took some.
    pub fn taken(&mut self, count: u32) {
        self.budget = self.budget.saturating_add(count as usize).min(WINDOW);
    }

    /// Reads once. With `all`, the window does not count: what is there is the last there will be.
    pub fn read(&mut self, fd: &OwnedFd, all: bool) -> Got {
        let most = if all { PIECE } else { PIECE.min(self.budget) };
        if self.ended || most == 0 {
            return Got::Nothing;
        }
        let mut bytes = vec![0; most];
        match rustix::io::read(fd, &mut bytes[..]) {
            Ok(0) => {
                self.ended = true;
                Got::End
            }
            Ok(count) => {
                bytes.truncate(count);
                self.budget = self.budget.saturating_sub(count);
                Got::Bytes(bytes)
            }
            Err(Errno::INTR | Errno::AGAIN) => Got::Nothing,
            // A terminal whose last program is gone says EIO; a connection may be reset.
            Err(_) => {
                self.ended = true;
                Got::End
            }
        }
    }
}

/// Writes to a descriptor that does not wait.
#[derive(Debug, Default)]
pub struct Sink {
    pending: Waiting,
    ending: bool,
}

/// What came of writing.
#[derive(Debug, PartialEq, Eq)]
pub struct Wrote {
    /// So many bytes went.
    pub count: u32,
    /// Nothing is left, and nothing more will come: it is to be closed.
    pub finished: bool,
    /// Nobody takes bytes any more.
    pub broken: bool,
}

impl Sink {
    /// Adds bytes. False: more than the window, which no honest end sends.
    pub fn add(&mut self, bytes: &[u8]) -> bool {
        if self.pending.len() + bytes.len() > WINDOW || self.ending {
            return false;
        }
        self.pending.add(bytes);
        true
    }

    /// No more will be added.
    pub fn end(&mut self) {
        self.ending = true;
    }

    /// Whether it is to be watched for writing.
    pub fn wanted(&self) -> bool {
        self.pending.len() > 0
    }

    /// Writes what goes.
    pub fn write(&mut self, fd: &OwnedFd) -> Wrote {
        let mut wrote = Wrote { count: 0, finished: false, broken: false };
        while self.wanted() {
            match rustix::io::write(fd, self.pending.rest()) {
                Ok(count) => {
                    self.pending.went(count);
                    wrote.count += count as u32;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return wrote,
                Err(_) => {
                    wrote.broken = true;
                    return wrote;
                }
            }
        }
        wrote.finished = self.ending;
        wrote
    }
}

/// A connection: bytes both ways.
#[derive(Debug)]
pub struct Connection {
    /// Its socket.
    pub fd: OwnedFd,
    source: Source,
    sink: Sink,
    shut: bool,
}

/// What a connection has to say to the other end.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    /// Bytes.
    Data(Vec<u8>),
    /// No more bytes.
    End,
    /// So many bytes were taken.
    Taken(u32),
}

impl Connection {
    /// Over a connected socket that does not wait.
    pub fn new(fd: OwnedFd) -> Connection {
        Connection { fd, source: Source::default(), sink: Sink::default(), shut: false }
    }

    /// Whether it is to be watched for reading, for writing.
    pub fn wanted(&self) -> (bool, bool) {
        (self.source.wanted(), self.sink.wanted())
    }

    /// Bytes of the other end's. False: it does not keep to the window.
    pub fn add(&mut self, bytes: &[u8]) -> bool {
        self.sink.add(bytes)
    }

    /// The other end has no more bytes.
    pub fn end(&mut self) {
        self.sink.end();
    }

    /// The other end took some.
    pub fn taken(&mut self, count: u32) {
        self.source.taken(count);
    }

    /// Reads and writes what goes. `None` with it: the connection is over, or broken (true).
    pub fn turn(&mut self, read: bool) -> (Vec<Said>, Option<bool>) {
        let mut said = Vec::new();
        let wrote = self.sink.write(&self.fd);
        if wrote.count > 0 {
            said.push(Said::Taken(wrote.count));
        }
        if wrote.broken {
            return (said, Some(true));
        }
        if wrote.finished && !self.shut {
            let _ = rustix::net::shutdown(&self.fd, rustix::net::Shutdown::Write);
            self.shut = true;
        }
        if read {
            match self.source.read(&self.fd, false) {
                Got::Bytes(bytes) => said.push(Said::Data(bytes)),
                Got::End => said.push(Said::End),
                Got::Nothing => {}
            }
        }
        let over = self.shut && self.source.ended();
        (said, over.then_some(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sink_that_is_never_empty_holds_no_more_than_waits() {
        let (read, write) = ringfence_sys::fd::pipe().expect("a pipe");
        ringfence_sys::fd::never_wait(std::os::fd::AsFd::as_fd(&write)).expect("no waiting");
        let (mut sink, mut sent, mut went, mut heard) =
            (Sink::default(), Vec::new(), 0, Vec::new());
        // The reader takes less at a time than there is: something is always left.
        for round in 0..1024_usize {
            let piece = vec![round as u8; PIECE / 4];
            if sink.pending.len() + piece.len() <= WINDOW {
                assert!(sink.add(&piece));
                sent.extend(piece);
            }
            went += sink.write(&write).count as usize;
            assert!(sink.pending.held() <= 2 * WINDOW + PIECE, "{}", sink.pending.held());
            let mut some = vec![0; PIECE / 8];
            if let Ok(count) = rustix::io::read(&read, &mut some[..]) {
                heard.extend_from_slice(&some[..count]);
            }
        }
        assert!(sink.wanted() && went > 8 * WINDOW, "{went}");
        assert_eq!(sink.pending.len(), sent.len() - went);
        assert!(sent.starts_with(&heard) && heard.len() > 4 * WINDOW);
    }
}
