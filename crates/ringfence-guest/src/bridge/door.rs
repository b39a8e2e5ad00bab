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
/// The most visitors at once.
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
            if let Ok(socket) = unix::accept(self.listener.as_fd())
                && self.visitors.len() < MOST
            {
                self.visitors.push(Visitor { socket, channel: None });
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
        let message = match end {
            End::Code(code) => vec![b'x', *code],
            End::Signal(signal) => vec![b'k', *signal],
            End::Failed(code, why) => [&[b'F', *code], why.as_bytes()].concat(),
        };
        self.tell(channel, &message);
        self.visitors.retain(|visitor| visitor.channel != Some(channel));
    }

    /// A command has stopped.
    pub fn stopped(&mut self, channel: u32, signal: u8) {
        self.tell(channel, &[b's', signal]);
    }
}
