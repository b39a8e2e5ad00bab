//! Descriptors that bytes of the stream come from and go to, without waiting, within a window.

use crate::waiting::Waiting;
use crate::wire::{PIECE, WINDOW};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// What came of a read.
#[derive(Debug, PartialEq, Eq)]
pub enum Got {
    /// Bytes.
    Bytes(Vec<u8>),
    /// There are none now.
    Nothing,
    /// There will be no more.
    End,
    /// There will be no more, and that is no end: a connection was reset. A terminal whose last program is gone says
    /// EIO: where no connection is read, this is an end too.
    Failed,
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
            Err(_) => {
                self.ended = true;
                Got::Failed
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

/// Has a connection end as a reset when it is closed.
pub fn reset(fd: impl AsFd) {
    let _ = rustix::net::sockopt::set_socket_linger(fd, Some(Duration::ZERO));
}

/// A connection: bytes both ways.
#[derive(Debug)]
pub struct Connection {
    /// Its socket.
    pub fd: OwnedFd,
    source: Source,
    sink: Sink,
    shut: bool,
    course: Course,
}

/// How a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    Open,
    /// Its socket takes no more. What came from there before, as a server's word that it takes no more, still goes on.
    Broken,
    /// The other end's was reset: so is this one, once what came before is written.
    Aborted,
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
        let (source, sink) = (Source::default(), Sink::default());
        Connection { fd, source, sink, shut: false, course: Course::Open }
    }

    /// Over a socket that was connected, and of whose reset the kernel has told already: it tells that once.
    pub fn that_was_reset(fd: OwnedFd) -> Connection {
        Connection { course: Course::Broken, ..Connection::new(fd) }
    }

    /// Whether it is to be watched for reading, for writing.
    pub fn wanted(&self) -> (bool, bool) {
        let read = self.course != Course::Aborted && self.source.wanted();
        (read, self.course != Course::Broken && self.sink.wanted())
    }

    /// Bytes of the other end's. False: it does not keep to the window.
    pub fn add(&mut self, bytes: &[u8]) -> bool {
        self.sink.add(bytes)
    }

    /// The other end has no more bytes.
    pub fn end(&mut self) {
        self.sink.end();
    }

    /// The other end's was reset.
    pub fn abort(&mut self) {
        self.course = Course::Aborted;
    }

    /// The other end took some.
    pub fn taken(&mut self, count: u32) {
        self.source.taken(count);
    }

    /// Reads and writes what goes. `None` with it: it goes on. Else it is over and to be closed; the other end is to be
    /// told where it was reset (true).
    pub fn turn(&mut self, read: bool) -> (Vec<Said>, Option<bool>) {
        let mut said = Vec::new();
        if self.course != Course::Broken {
            let wrote = self.sink.write(&self.fd);
            if self.course == Course::Aborted {
                let over = wrote.broken || !self.sink.wanted();
                if over {
                    reset(&self.fd);
                }
                return (said, over.then_some(false));
            }
            if wrote.count > 0 {
                said.push(Said::Taken(wrote.count));
            }
            if wrote.broken {
                self.course = Course::Broken;
            }
            if wrote.finished && !self.shut {
                let _ = rustix::net::shutdown(&self.fd, rustix::net::Shutdown::Write);
                self.shut = true;
            }
        }
        let broken = self.course == Course::Broken;
        let mut failed = false;
        if read || broken {
            match self.source.read(&self.fd, false) {
                Got::Bytes(bytes) => said.push(Said::Data(bytes)),
                // A write has told the reset, which the kernel tells once.
                Got::End if broken => failed = true,
                Got::End => said.push(Said::End),
                Got::Failed => failed = true,
                // The rest waits until the other end takes more.
                Got::Nothing => failed = broken && (self.source.ended || self.source.budget > 0),
            }
        }
        if failed {
            reset(&self.fd);
            return (said, Some(true));
        }
        let over = self.shut && self.source.ended();
        (said, over.then_some(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    #[test]
    fn a_sink_that_is_never_empty_holds_no_more_than_waits() {
        let (read, write) = ringfence_sys::fd::pipe().expect("a pipe");
        ringfence_sys::fd::never_wait(AsFd::as_fd(&write)).expect("no waiting");
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
    /// A socket of a program's, and ours that it is connected to.
    fn pair() -> (TcpStream, Connection) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let theirs = TcpStream::connect(listener.local_addr().expect("a port")).expect("a socket");
        let (ours, _) = listener.accept().expect("a connection");
        ours.set_nonblocking(true).expect("no waiting");
        (theirs, Connection::new(ours.into()))
    }

    /// Ours, of which the program says this and is reset.
    fn reset_after(said: &[u8]) -> Connection {
        let (mut theirs, connection) = pair();
        theirs.write_all(said).expect("written");
        reset(&theirs);
        connection
    }

    /// All that it says until it is over.
    fn to_its_end(connection: &mut Connection) -> (Vec<u8>, Vec<Said>, bool) {
        let (mut bytes, mut rest) = (Vec::new(), Vec::new());
        loop {
            let (said, over) = connection.turn(true);
            for one in said {
                match one {
                    Said::Data(data) => {
                        connection.taken(data.len() as u32);
                        bytes.extend(data);
                    }
                    Said::Taken(_) => {}
                    other => rest.push(other),
                }
            }
            if let Some(told) = over {
                return (bytes, rest, told);
            }
        }
    }

    #[test]
    fn a_reset_is_no_end_and_comes_after_what_was_said_before() {
        let mut connection = reset_after(b"half");
        assert_eq!(to_its_end(&mut connection), (b"half".to_vec(), Vec::new(), true));
        // An end is one.
        let (mut theirs, mut connection) = pair();
        theirs.write_all(b"whole").expect("written");
        drop(theirs);
        connection.end();
        assert_eq!(to_its_end(&mut connection), (b"whole".to_vec(), vec![Said::End], false));
    }

    #[test]
    fn what_came_before_a_reset_of_the_other_end_is_written_and_then_this_one_is_reset() {
        let (mut theirs, mut connection) = pair();
        // More than the socket takes at once: it goes on when it is read.
        let (mut sent, mut over) = (0, None);
        while over.is_none() && sent < 64 * WINDOW && !connection.sink.wanted() {
            assert!(connection.add(&[7; PIECE]));
            sent += PIECE;
            over = connection.turn(false).1;
        }
        connection.abort();
        assert_eq!(
            (over, connection.turn(false).1, connection.wanted()),
            (None, None, (false, true))
        );
        let (mut heard, mut piece) = (0, vec![0; PIECE]);
        let error = loop {
            over = over.or_else(|| connection.turn(false).1);
            if over.is_some() {
                connection = pair().1;
            }
            match theirs.read(&mut piece) {
                Ok(0) => panic!("an end after {heard} of {sent}"),
                Ok(count) => heard += count,
                Err(error) => break error,
            }
        };
        assert_eq!((over, error.kind()), (Some(false), std::io::ErrorKind::ConnectionReset));
        assert!(heard > 0 && heard <= sent, "{heard} of {sent}");
    }

    #[test]
    fn what_was_said_before_a_write_failed_still_comes() {
        let mut connection = reset_after(b"413");
        assert!(connection.add(b"more"));
        assert_eq!(to_its_end(&mut connection), (b"413".to_vec(), Vec::new(), true));
        // Or a connection was found to be reset as soon as it was made.
        let connection = reset_after(b"413");
        assert!(rustix::net::sockopt::socket_error(&connection.fd).expect("asked").is_err());
        let mut connection = Connection::that_was_reset(connection.fd);
        assert_eq!(to_its_end(&mut connection), (b"413".to_vec(), Vec::new(), true));
    }
}
