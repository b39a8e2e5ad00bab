//! One end of the stream: never waits, keeps what cannot be sent yet.

use crate::waiting::Waiting;
use crate::wire::{Broken, Framer, Message};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// How much is read at once.
const READ: usize = 256 * 1024;

/// Why there is no more stream.
#[derive(Debug)]
pub enum Over {
    /// The other end is gone.
    Closed,
    /// It failed.
    Failed(Errno),
    /// The other end does not keep to the protocol.
    Broken(Broken),
}

/// An end of the stream. The descriptor must not wait (`O_NONBLOCK`).
#[derive(Debug)]
pub struct Stream {
    fd: OwnedFd,
    framer: Framer,
    out: Waiting,
    /// What is said once the other end wants to hear it again.
    held: Option<Vec<u8>>,
    buffer: Vec<u8>,
}

impl Stream {
    /// An end.
    pub fn new(fd: OwnedFd) -> Stream {
        let (framer, out) = (Framer::default(), Waiting::default());
        Stream { fd, framer, out, held: None, buffer: vec![0; READ] }
    }

    /// Its descriptor.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Bytes that wait to be sent.
    pub fn waiting(&self) -> usize {
        self.out.len()
    }

    /// Sends a message, as much of it as goes now.
    ///
    /// # Errors
    /// [`Over`].
    pub fn send(&mut self, channel: u32, message: &impl Message) -> Result<(), Over> {
        match &mut self.held {
            Some(held) => {
                held.extend(message.encode(channel));
                Ok(())
            }
            None => self.say(channel, message),
        }
    }

    /// The same, also while others are held back.
    ///
    /// # Errors
    /// [`Over`].
    pub fn say(&mut self, channel: u32, message: &impl Message) -> Result<(), Over> {
        self.out.add(&message.encode(channel));
        self.flush()
    }

    /// Holds back what is sent from now on.
    pub fn hold(&mut self) {
        self.held.get_or_insert_default();
    }

    /// Whether messages are held back.
    pub fn holds(&self) -> bool {
        self.held.is_some()
    }

    /// Sends what was held back.
    ///
    /// # Errors
    /// [`Over`].
    pub fn release(&mut self) -> Result<(), Over> {
        self.out.add(&self.held.take().unwrap_or_default());
        self.flush()
    }

    /// Sends what waits, as far as it goes.
    ///
    /// # Errors
    /// [`Over`].
    pub fn flush(&mut self) -> Result<(), Over> {
        while self.waiting() > 0 {
            match rustix::io::write(&self.fd, self.out.rest()) {
                Ok(count) => self.out.went(count),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(Errno::PIPE) => return Err(Over::Closed),
                Err(errno) => return Err(Over::Failed(errno)),
            }
        }
        Ok(())
    }

    /// Takes what came.
    ///
    /// # Errors
    /// [`Over`].
    pub fn receive(&mut self) -> Result<(), Over> {
        match rustix::io::read(&self.fd, &mut self.buffer[..]) {
            Ok(0) => Err(Over::Closed),
            Ok(count) => {
                self.framer.add(&self.buffer[..count]);
                Ok(())
            }
            Err(Errno::INTR | Errno::AGAIN) => Ok(()),
            Err(errno) => Err(Over::Failed(errno)),
        }
    }

    /// The next message that came whole.
    ///
    /// # Errors
    /// [`Over::Broken`].
    pub fn take<M: Message>(&mut self) -> Result<Option<(u32, M)>, Over> {
        self.framer.take().map_err(Over::Broken)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
