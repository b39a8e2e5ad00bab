//! Streams of bytes with descriptors among them (unix(7)), for who passes both on.
//!
//! The kernel hands out bytes that came before descriptors together with these. Who passes streams
//! on must not receive more at once than belongs together, or he ties descriptors to bytes that they
//! did not come with.

use crate::socket::{message, receive_with};
use crate::{Result, sys};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Receives bytes and the descriptors that came with them, close-on-exec; never waits. No bytes are
/// the stream's end.
///
/// # Errors
/// `EAGAIN` when nothing has come; `EMSGSIZE` when the descriptors do not all fit into this process.
pub fn receive(fd: BorrowedFd<'_>, room: &mut [u8]) -> Result<(usize, Vec<OwnedFd>)> {
    receive_with(fd, room, false)
}

/// Sends bytes, as many as there is room for, and descriptors with the first of them; never waits.
///
/// # Errors
/// `EAGAIN` when there is no room, `EPIPE`; `ETOOMANYREFS` when too many descriptors are on their
/// way already.
pub fn send(fd: BorrowedFd<'_>, bytes: &[u8], pass: &[BorrowedFd<'_>]) -> Result<usize> {
    message(fd, bytes, pass, libc::MSG_DONTWAIT)
}

/// Tells the other side that no more is sent.
///
/// # Errors
/// `ENOTCONN`.
pub fn end(fd: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: takes numbers only.
    unsafe { sys!(shutdown, fd.as_raw_fd(), libc::SHUT_WR) }.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Errno;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    fn pass(to: &UnixStream, bytes: &[u8], count: usize) {
        let null = std::fs::File::open("/dev/null").expect("it is there");
        let pass = vec![null.as_fd(); count];
        assert_eq!(send(to.as_fd(), bytes, &pass), Ok(bytes.len()));
    }

    #[test]
    fn who_receives_what_belongs_together_gets_its_descriptors() {
        let (from, to) = UnixStream::pair().expect("a pair");
        let mut room = [0; 64];
        let mut received = |most: usize| {
            let (count, passed) = receive(to.as_fd(), &mut room[..most]).expect("received");
            (count, passed.len())
        };
        pass(&from, b"aaaa", 0);
        pass(&from, b"bb", 253);
        pass(&from, b"cc", 0);
        assert_eq!([received(4), received(2), received(2)], [(4, 0), (2, 253), (2, 0)]);
        // The reason for the care.
        pass(&from, b"aaaa", 0);
        pass(&from, b"bb", 1);
        assert_eq!(received(64), (6, 1));
    }

    #[test]
    fn nothing_waits_and_ends_are_told() {
        let (from, to) = UnixStream::pair().expect("a pair");
        let mut room = [0; 64];
        let empty = receive(to.as_fd(), &mut room).map(|(count, _)| count);
        assert_eq!(empty, Err(Errno::EAGAIN));
        let full = loop {
            if let Err(errno) = send(from.as_fd(), &[0; 4096], &[]) {
                break errno;
            }
        };
        assert_eq!(full, Errno::EAGAIN);
        end(to.as_fd()).expect("told");
        assert_eq!(receive(from.as_fd(), &mut room).map(|(count, _)| count), Ok(0));
        drop(to);
        assert_eq!(send(from.as_fd(), b"x", &[]), Err(Errno::EPIPE));
    }
}
