//! Connections of the sandbox, passed on to the filter: bytes and descriptors, both ways.
//!
//! Whoever is inside may do anything with his end. Of what he sends nothing is understood here but
//! where messages end; what is held of it is bounded: [`CHUNK`] bytes each way of [`MOST`] connections,
//! and no descriptor at all, since nothing is received before it can be sent on.

use super::framing::Framing;
use super::{NAME, PROXY};
use ringfence_sys::fd::{self, Ready, Watched};
use ringfence_sys::{Errno, stream, unix};
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// The most connections at the same time; others wait to be accepted.
const MOST: usize = 128;
/// Bytes that are moved at once.
const CHUNK: usize = 16 << 10;
/// So many messages of a connection are moved before it is the next one's turn.
const MESSAGES: usize = 16;
/// How long the filter may take to be ready, in milliseconds.
const PATIENCE: i32 = 10_000;
/// After so many milliseconds it is looked again whether there are descriptors.
const AGAIN: i32 = 100;

/// What is passed on, and to where.
pub(super) struct Relay {
    /// Where programs connect.
    pub listener: OwnedFd,
    /// Readable when the sandbox has ended.
    pub stopped: UnixStream,
    /// The filter says on it that it listens, and ends when it is closed.
    pub alive: UnixStream,
    /// The file system on which the filter listens; it lives as long as somebody holds it.
    pub room: OwnedFd,
}

/// A program's connection and the filter's.
struct Visit {
    program: OwnedFd,
    filter: OwnedFd,
    asked: Flow,
    answered: Flow,
}

/// One way of a connection.
#[derive(Default)]
struct Flow {
    state: State,
    framing: Framing,
    /// What was received and not sent yet.
    rest: Vec<u8>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    /// Waits for something to come.
    #[default]
    Reading,
    /// Waits for room.
    Writing,
    /// No more comes.
    Ended,
}

impl Relay {
    /// Passes connections on until the sandbox or the filter has ended.
    pub fn run(mut self) {
        if let Err(how) = self.serve() {
            ringfence_sys::say!(
                "ringfence: {PROXY} {how}; the command has no session bus any more"
            );
        }
    }

    /// # Errors
    /// How the filter failed.
    fn serve(&mut self) -> Result<(), &'static str> {
        let ready = fd::poll_readable(&[self.stopped.as_fd(), self.alive.as_fd()], PATIENCE);
        match ready.as_deref() {
            Ok([false, true]) if self.alive.read_exact(&mut [0]).is_ok() => {}
            Ok([false, true]) => return Err("ended before it served the bus"),
            Ok([false, false]) => return Err("did not serve the bus in time"),
            _ => return Ok(()),
        }
        let (mut visits, mut buffer) = (Vec::new(), vec![0; CHUNK]);
        let mut starved = false;
        loop {
            let read = |fd| Watched { fd, read: true, write: false };
            let accepts = visits.len() < MOST && !starved;
            let listener = Watched { read: accepts, ..read(self.listener.as_fd()) };
            let mut watched = vec![read(self.stopped.as_fd()), read(self.alive.as_fd()), listener];
            let own = watched.len();
            watched.extend(visits.iter().flat_map(Visit::watched));
            let wait = if starved { AGAIN } else { -1 };
            let ready = fd::poll(&watched, wait).map_err(|_| "cannot be waited for")?;
            if ready[0].read {
                return Ok(());
            }
            if ready[1].read {
                return Err("ended");
            }
            // From behind, as some are removed.
            for at in (0..visits.len()).rev() {
                let (program, filter) = (ready[own + 2 * at], ready[own + 2 * at + 1]);
                if visits[at].go_on(program, filter, &mut buffer).is_err() {
                    visits.swap_remove(at);
                }
            }
            starved = false;
            if ready[2].read {
                match unix::accept(self.listener.as_fd()) {
                    // One that the filter does not take is closed.
                    Ok(program) => visits.extend(self.visit(program)),
                    Err(Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM | Errno::ENOBUFS) => {
                        starved = true;
                    }
                    // He thought better of it.
                    Err(_) => {}
                }
            }
        }
    }

    fn visit(&self, program: OwnedFd) -> Option<Visit> {
        let place = format!("/proc/self/fd/{}/{NAME}", self.room.as_raw_fd());
        let filter = OwnedFd::from(UnixStream::connect(place).ok()?);
        fd::never_wait(filter.as_fd()).ok()?;
        fd::never_wait(program.as_fd()).ok()?;
        Some(Visit { program, filter, asked: Flow::default(), answered: Flow::default() })
    }
}

impl Visit {
    /// What to wait for: at the program's end, and at the filter's.
    fn watched(&self) -> [Watched<'_>; 2] {
        let end = |fd, from: &Flow, to: &Flow| {
            let (read, write) = (from.state == State::Reading, to.state == State::Writing);
            Watched { fd, read, write }
        };
        [
            end(self.program.as_fd(), &self.asked, &self.answered),
            end(self.filter.as_fd(), &self.answered, &self.asked),
        ]
    }

    /// Moves what can be moved.
    ///
    /// # Errors
    /// It is over. The filter closes connections as a whole: when no more comes from it, it takes
    /// no more either.
    fn go_on(&mut self, program: Ready, filter: Ready, buffer: &mut [u8]) -> Result<(), Errno> {
        let (inside, outside) = (self.program.as_fd(), self.filter.as_fd());
        if self.asked.is_due(program, filter) {
            self.asked.go_on(inside, outside, buffer)?;
        }
        if self.answered.is_due(filter, program) {
            self.answered.go_on(outside, inside, buffer)?;
        }
        if self.answered.state == State::Ended { Err(Errno::EPIPE) } else { Ok(()) }
    }
}

impl Flow {
    fn is_due(&self, from: Ready, to: Ready) -> bool {
        match self.state {
            State::Reading => from.read,
            State::Writing => to.write,
            State::Ended => false,
        }
    }

    /// Moves what is left, and what has come.
    fn go_on(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        buffer: &mut [u8],
    ) -> Result<(), Errno> {
        if !self.rest.is_empty() {
            let sent = sent(to, &self.rest, &[])?;
            self.rest.drain(..sent);
            if !self.rest.is_empty() {
                return Ok(());
            }
        }
        for _ in 0..MESSAGES {
            if !has_room(to)? {
                self.state = State::Writing;
                return Ok(());
            }
            self.state = State::Reading;
            let (count, passed, ended) = self.receive(from, buffer)?;
            if count > 0 {
                let pass: Vec<BorrowedFd<'_>> = passed.iter().map(AsFd::as_fd).collect();
                let sent = sent(to, &buffer[..count], &pass)?;
                if sent == 0 && !pass.is_empty() {
                    // There was room a moment ago, and nobody else sends.
                    return Err(Errno::EAGAIN);
                }
                if sent < count {
                    self.rest = buffer[sent..count].to_vec();
                    self.state = State::Writing;
                    return Ok(());
                }
            }
            if ended {
                self.state = State::Ended;
                return stream::end(to);
            }
            if count == 0 {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Receives a message or a part of one, with what descriptors came with it; and whether it was
    /// the last one.
    fn receive(
        &mut self,
        from: BorrowedFd<'_>,
        buffer: &mut [u8],
    ) -> Result<(usize, Vec<OwnedFd>, bool), Errno> {
        let mut count = 0;
        while count < buffer.len() {
            let most = self.framing.most().min(buffer.len() - count);
            match stream::receive(from, &mut buffer[count..count + most]) {
                Ok((0, _)) => return Ok((count, Vec::new(), true)),
                Ok((more, passed)) => {
                    self.framing.follow(&buffer[count..count + more]);
                    count += more;
                    if self.framing.between() || !passed.is_empty() {
                        return Ok((count, passed, false));
                    }
                }
                Err(Errno::EAGAIN) => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok((count, Vec::new(), false))
    }
}

/// How many bytes there was room for.
fn sent(to: BorrowedFd<'_>, bytes: &[u8], pass: &[BorrowedFd<'_>]) -> Result<usize, Errno> {
    match stream::send(to, bytes, pass) {
        Err(Errno::EAGAIN) => Ok(0),
        sent => sent,
    }
}

fn has_room(to: BorrowedFd<'_>) -> Result<bool, Errno> {
    let ready = fd::poll(&[Watched { fd: to, read: false, write: true }], 0)?;
    Ok(ready.first().is_some_and(|ready| ready.write))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        let (near, far) = UnixStream::pair().expect("a pair");
        (near.into(), far.into())
    }

    /// A message without fields and with this body.
    fn message(body: &[u8]) -> Vec<u8> {
        let mut bytes = b"l\x01\0\x01".to_vec();
        bytes.extend([body.len() as u32, 1, 0].iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend(body);
        bytes
    }

    /// Reads just so much, and how many descriptors came with it.
    fn read(fd: &OwnedFd, most: usize) -> (Vec<u8>, usize) {
        let (mut room, mut got, mut passed) = (vec![0; most], 0, 0);
        while got < most {
            let (count, more) = stream::receive(fd.as_fd(), &mut room[got..]).expect("it came");
            (got, passed) = (got + count, passed + more.len());
            if count == 0 {
                break;
            }
        }
        room.truncate(got);
        (room, passed)
    }

    #[test]
    fn who_reads_message_by_message_finds_descriptors_with_their_own() {
        let ((from, near), (to, far)) = (pair(), pair());
        let null = std::fs::File::open("/dev/null").expect("it is there");
        let (plain, with) = (message(b"plain"), message(b"with"));
        for (bytes, count) in [(&plain, 0), (&with, 2), (&plain, 0), (&with, 253)] {
            let pass = vec![null.as_fd(); count];
            assert_eq!(stream::send(from.as_fd(), bytes, &pass), Ok(bytes.len()));
        }
        // All of it waits by now.
        let mut flow = Flow::default();
        flow.go_on(near.as_fd(), to.as_fd(), &mut vec![0; CHUNK]).expect("moved");
        for (bytes, count) in [(&plain, 0), (&with, 2), (&plain, 0), (&with, 253)] {
            assert_eq!(read(&far, bytes.len()), (bytes.clone(), count));
        }
    }

    #[test]
    fn what_nobody_takes_is_held_within_bounds_and_without_descriptors() {
        let ((from, near), (to, far)) = (pair(), pair());
        let null = std::fs::File::open("/dev/null").expect("it is there");
        let (mut flow, mut buffer) = (Flow::default(), vec![0; CHUNK]);
        fd::never_wait(near.as_fd()).expect("a socket");
        let body = vec![b'x'; 3 * CHUNK];
        let (large, with) = (message(&body), message(b"with"));
        let mut sent: Vec<u8> = Vec::new();
        // Until the whole way is full.
        'full: loop {
            for (bytes, pass) in [(&large, &[][..]), (&with, &[null.as_fd()])] {
                let mut at = 0;
                while at < bytes.len() {
                    let pass = if at == 0 { pass } else { &[] };
                    let more = stream::send(from.as_fd(), &bytes[at..], pass);
                    flow.go_on(near.as_fd(), to.as_fd(), &mut buffer).expect("moved or not");
                    assert!(flow.rest.len() <= CHUNK);
                    match more {
                        Ok(more) => at += more,
                        Err(errno) => {
                            assert_eq!(errno, Errno::EAGAIN);
                            sent.extend(&bytes[..at]);
                            break 'full;
                        }
                    }
                }
                sent.extend(bytes);
            }
        }
        assert!(flow.state == State::Writing);
        // Taken at last, it is what was sent.
        drop(from);
        let mut came: Vec<u8> = Vec::new();
        while flow.state != State::Ended {
            flow.go_on(near.as_fd(), to.as_fd(), &mut buffer).expect("moved");
            while let Ok((count @ 1.., _)) = stream::receive(far.as_fd(), &mut buffer) {
                came.extend(&buffer[..count]);
            }
        }
        assert!(came == sent, "{} of {} bytes came", came.len(), sent.len());
    }

    #[test]
    fn ends_and_breaks_are_passed_on() {
        let ((from, near), (to, far)) = (pair(), pair());
        stream::send(from.as_fd(), b"half a line", &[]).expect("sent");
        stream::end(from.as_fd()).expect("told");
        let (mut flow, mut buffer) = (Flow::default(), vec![0; CHUNK]);
        flow.go_on(near.as_fd(), to.as_fd(), &mut buffer).expect("moved");
        assert!(flow.state == State::Ended);
        assert_eq!(read(&far, 64).0, b"half a line");
        let mut back = Flow::default();
        drop(from);
        stream::send(far.as_fd(), b"an answer", &[]).expect("sent");
        assert_eq!(back.go_on(to.as_fd(), near.as_fd(), &mut buffer), Err(Errno::EPIPE));
    }
}
