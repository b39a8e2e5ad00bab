//! Where further commands of the session come in: a socket that only processes of the sandbox on
//! the host's side reach, not the guest.

use super::End;
use crate::wire::{Exec, HEADER, Message, ToGuest};
use ringfence_sys::{fd, socket, unix};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Where it is: the guest has a `/dev` of its own.
pub const PLACE: &str = "/dev/shm/.ringfence-guest";
/// The longest command.
pub const LONGEST: usize = 192 * 1024;
/// The most visitors at once (docs/vm.md says so).
const MOST: usize = 256;

/// Somebody who wants a command run, or waits for one.
struct Visitor {
    socket: OwnedFd,
    channel: Option<u32>,
}

/// The socket and who came.
pub struct Door {
    listener: OwnedFd,
    visitors: Vec<Visitor>,
}

/// What was said at the door.
pub enum Said {
    /// Nothing that concerns the guest.
    Nothing,
    /// Run this, with these streams.
    Exec([OwnedFd; 3], Exec),
    /// A signal for a command, or for its group.
    Signal(u32, i32, bool),
    /// A visitor has left; his command goes too.
    Gone(Option<u32>),
}

impl Door {
    /// Opens the door. Where there can be none, a session takes no further commands.
    pub fn open() -> Option<Door> {
        let listener = unix::listen(Path::new(PLACE)).ok()?;
        fd::never_wait(listener.as_fd()).ok()?;
        Some(Door { listener, visitors: Vec::new() })
    }

    /// What to watch: the door is 0, visitors follow.
    pub fn watched(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        let visitors = self.visitors.iter().map(|visitor| visitor.socket.as_fd());
        std::iter::once(self.listener.as_fd()).chain(visitors).enumerate()
    }

    /// The same of those whose commands there are already.
    pub fn attended(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        self.watched().filter(|&(at, _)| self.attends(at))
    }

    /// Whether that is one whose command there is already.
    pub fn attends(&self, at: usize) -> bool {
        let visitor = at.checked_sub(1).and_then(|at| self.visitors.get(at));
        visitor.is_some_and(|visitor| visitor.channel.is_some())
    }

    /// Hears what is said.
    pub fn hear(&mut self, at: usize) -> Said {
        if at == 0 {
            if let Ok(socket) = unix::accept(self.listener.as_fd()) {
                if self.visitors.len() < MOST {
                    self.visitors.push(Visitor { socket, channel: None });
                } else {
                    let why = format!(
                        "the session has {MOST} commands of exec already, which is the most of a \
                         virtual machine; try again when one has ended"
                    );
                    let _ = fd::send(socket.as_fd(), &told(&End::Failed(125, why)));
                }
            }
            return Said::Nothing;
        }
        let Some(visitor) = self.visitors.get(at - 1) else { return Said::Nothing };
        let mut buffer = vec![0; if visitor.channel.is_some() { 16 } else { LONGEST }];
        let received = socket::receive_with(visitor.socket.as_fd(), &mut buffer, false);
        let (count, streams) = match received {
            Ok((count @ 1.., streams)) => (count, streams),
            Err(ringfence_sys::Errno::EAGAIN) => return Said::Nothing,
            _ => return Said::Gone(self.visitors.remove(at - 1).channel),
        };
        match (visitor.channel, &buffer[..count]) {
            (Some(channel), &[number, group]) => Said::Signal(channel, number.into(), group == 1),
            (None, frame) => {
                let exec = frame.get(HEADER..).and_then(|body| ToGuest::decode(2, body).ok());
                match (exec, <[OwnedFd; 3]>::try_from(streams)) {
                    (Some(ToGuest::Exec(exec)), Ok(streams)) => Said::Exec(streams, exec),
                    _ => Said::Gone(self.visitors.remove(at - 1).channel),
                }
            }
            _ => Said::Nothing,
        }
    }

    /// A visitor's command has this channel.
    pub fn enter(&mut self, at: usize, channel: u32) {
        if let Some(visitor) = self.visitors.get_mut(at - 1) {
            visitor.channel = Some(channel);
        }
    }

    fn tell(&self, channel: u32, message: &[u8]) {
        let own = |visitor: &&Visitor| visitor.channel == Some(channel);
        if let Some(visitor) = self.visitors.iter().find(own) {
            let _ = fd::send(visitor.socket.as_fd(), message);
        }
    }

    /// A command has ended.
    pub fn finished(&mut self, channel: u32, end: &End) {
        self.tell(channel, &told(end));
        self.visitors.retain(|visitor| visitor.channel != Some(channel));
    }

    /// A command has stopped.
    pub fn stopped(&mut self, channel: u32, signal: u8) {
        self.tell(channel, &[b's', signal]);
    }
}

/// An end, as a visitor is told it.
fn told(end: &End) -> Vec<u8> {
    match end {
        End::Code(code) => vec![b'x', *code],
        End::Signal(signal) => vec![b'k', *signal],
        End::Failed(code, why) => [&[b'F', *code], why.as_bytes()].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::client;
    use super::*;

    #[test]
    fn who_comes_when_there_is_no_room_is_told_so() {
        let directory = tempfile::TempDir::new().expect("a directory");
        let place = directory.path().join("door");
        let listener = unix::listen(&place).expect("a listener");
        let visitor = |(socket, other)| (Visitor { socket, channel: Some(7) }, other);
        let pair = || visitor(fd::socket_pair().expect("a pair"));
        let (visitors, _others): (_, Vec<_>) = (1..MOST).map(|_| pair()).unzip();
        let mut door = Door { listener, visitors };
        let last = unix::connect(&place).expect("room for one");
        assert!(matches!(door.hear(0), Said::Nothing));
        let refused = unix::connect(&place).expect("connected");
        // Whether it has said what it wants, or has not yet.
        let early = unix::connect(&place).expect("connected");
        fd::send(early.as_fd(), b"a command").expect("sent");
        for _ in 0..2 {
            assert!(matches!(door.hear(0), Said::Nothing));
        }
        assert_eq!(door.visitors.len(), MOST);
        for (at, socket) in [refused, early].iter().enumerate() {
            let sent = fd::send(socket.as_fd(), b"a command");
            assert!(sent.is_err(), "nobody is there: {at}");
            let Some(Ok(End::Failed(125, why))) = client::heard(socket.as_fd()) else {
                panic!("not told: {at}");
            };
            assert!(why.contains("256 commands"), "{why}");
        }
        drop(door);
        assert!(matches!(client::heard(last.as_fd()), Some(Err(_))), "the session has ended");
    }
}
