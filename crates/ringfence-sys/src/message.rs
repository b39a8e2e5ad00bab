//! Netlink messages (netlink(7)): built, sent, and answered.

use crate::fd::owned;
use crate::{Errno, Result, sys};
use std::os::fd::{AsRawFd, OwnedFd};

/// `NLM_F_REQUEST`.
pub(crate) const REQUEST: u16 = 1;
/// `NLM_F_ACK`: the kernel confirms this message.
pub(crate) const ACK: u16 = 4;
/// `NLM_F_EXCL`.
pub(crate) const EXCLUSIVE: u16 = 0x200;
/// `NLM_F_CREATE`.
pub(crate) const CREATE: u16 = 0x400;
/// `NLM_F_APPEND`.
pub(crate) const APPEND: u16 = 0x800;

/// Bit of an attribute's type that says that attributes lie within.
const NESTED: u16 = 0x8000;
/// `NLMSG_ERROR`, which is the confirmation as well.
const ERROR: u16 = 2;
/// Bytes of `struct nlmsghdr`.
const HEADER: usize = 16;

/// Messages one after another, as one datagram takes them.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    bytes: Vec<u8>,
    start: usize,
    sequence: u32,
    confirmed: usize,
}

impl Messages {
    pub fn new() -> Messages {
        Messages { bytes: Vec::with_capacity(4096), ..Messages::default() }
    }

    /// Adds one message: type, flags, the fixed part, then its attributes by `attributes`.
    pub fn add(&mut self, kind: u16, flags: u16, fixed: &[u8], attributes: impl FnOnce(&mut Self)) {
        self.start = self.bytes.len();
        self.sequence += 1;
        self.confirmed += usize::from(flags & ACK != 0);
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&(flags | REQUEST).to_ne_bytes());
        self.bytes.extend_from_slice(&self.sequence.to_ne_bytes());
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(fixed);
        self.pad();
        attributes(self);
        let length = (self.bytes.len() - self.start) as u32;
        self.bytes[self.start..self.start + 4].copy_from_slice(&length.to_ne_bytes());
    }

    /// Adds one attribute.
    pub fn attribute(&mut self, kind: u16, value: &[u8]) {
        let length = (value.len() + 4) as u16;
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.pad();
    }

    /// Adds one attribute that holds others.
    pub fn nest(&mut self, kind: u16, attributes: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.attribute(kind | NESTED, &[]);
        attributes(self);
        let length = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// The bytes of all.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Sends all and reads the kernel's answers; the first refusal is the result.
    pub fn send(&self, protocol: i32) -> Result<()> {
        self.answers(&self.sent(protocol)?)
    }

    /// Sends one question, and returns what follows the header of its answer, of such a kind.
    ///
    /// # Errors
    /// The kernel's.
    pub fn ask(&self, protocol: i32, kind: u16) -> Result<Vec<u8>> {
        let socket = self.sent(protocol)?;
        let mut buffer = [0; 8192];
        let count = take(&socket, &mut buffer)?;
        let answer = buffer.get(..count).unwrap_or_default();
        match answer.get(4..6) {
            Some(is) if is == kind.to_ne_bytes() => {
                Ok(answer.get(HEADER..).unwrap_or_default().to_vec())
            }
            _ => read_answers(answer).and(Err(Errno::EBADMSG)),
        }
    }

    fn sent(&self, protocol: i32) -> Result<OwnedFd> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: takes numbers only.
        let socket = owned(unsafe { sys!(socket, libc::AF_NETLINK, kind, protocol) }?);
        crate::fd::write_all(std::os::fd::AsFd::as_fd(&socket), &self.bytes)?;
        Ok(socket)
    }

    /// The kernel works a datagram through within `write`, so that its answers wait already.
    fn answers(&self, socket: &OwnedFd) -> Result<()> {
        let mut buffer = [0u8; 8192];
        let mut left = self.confirmed;
        while left > 0 {
            let count = take(socket, &mut buffer)?;
            left = left.saturating_sub(read_answers(&buffer[..count])?);
        }
        Ok(())
    }
}

/// Takes an answer, which waits already.
fn take(socket: &OwnedFd, buffer: &mut [u8]) -> Result<usize> {
    let null = std::ptr::null::<u8>();
    let (at, length) = (buffer.as_mut_ptr(), buffer.len());
    // SAFETY: the pointer and length describe `buffer`; no address is asked for.
    unsafe { sys!(recvfrom, socket.as_raw_fd(), at, length, libc::MSG_DONTWAIT, null, null) }
}

/// How many messages are confirmed.
fn read_answers(mut bytes: &[u8]) -> Result<usize> {
    let word = |at: usize, bytes: &[u8]| {
        bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map(u32::from_ne_bytes)
    };
    let mut confirmed = 0;
    while let (Some(length), Some(kind)) = (word(0, bytes), word(4, bytes)) {
        let length = length as usize;
        if length < HEADER || length > bytes.len() {
            return Err(Errno::EBADMSG);
        }
        if kind as u16 == ERROR {
            match word(HEADER, bytes).map(|code| code as i32) {
                Some(0) => confirmed += 1,
                Some(code) => return Err(Errno::new(-code)),
                None => return Err(Errno::EBADMSG),
            }
        }
        bytes = &bytes[length.next_multiple_of(4).min(bytes.len())..];
    }
    Ok(confirmed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_carries_its_length_and_its_attributes() {
        let mut messages = Messages::new();
        messages.add(7, ACK, &[1, 2, 3, 4], |message| {
            message.nest(9, |nested| nested.attribute(1, b"abcde"));
        });
        let bytes = &messages.bytes;
        assert_eq!(bytes.len(), 16 + 4 + 4 + 4 + 8);
        assert_eq!(bytes[..4], 36u32.to_ne_bytes());
        assert_eq!(bytes[20..24], [16u16.to_ne_bytes(), (9 | NESTED).to_ne_bytes()].concat());
        assert_eq!(bytes[24..28], [9u16.to_ne_bytes(), 1u16.to_ne_bytes()].concat());
    }

    #[test]
    fn a_refusal_and_a_broken_answer_are_errors() {
        let answer = |code: i32| {
            let head = [20u32.to_ne_bytes(), 2u32.to_ne_bytes(), [0; 4], [0; 4]].concat();
            [head, code.to_ne_bytes().to_vec()].concat()
        };
        assert_eq!(read_answers(&answer(0)), Ok(1));
        assert_eq!(read_answers(&answer(-1)), Err(Errno::EPERM));
        assert_eq!(read_answers(&answer(0)[..18]), Err(Errno::EBADMSG));
        assert_eq!(read_answers(&[]), Ok(0));
    }
}
