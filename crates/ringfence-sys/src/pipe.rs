//! Pipes to and from a process that was started. What it started itself may hold its ends of them open for as long
//! as it likes, so that the end of the process is the end of both.

use crate::fd::{self, Watched};
use crate::{Errno, Result};
use std::io;
use std::os::fd::BorrowedFd;

/// As much may lie in a pipe when its writer has ended: the most that a pipe holds without privileges.
pub const REST: usize = 1 << 20;

/// Reads what a process prints, and gives it away piece by piece, until nobody can print any more or the process has
/// ended (`ended` is its pidfd) and what it left is read.
///
/// # Errors
/// The kernel's; what `take` says.
pub fn read(
    pipe: BorrowedFd<'_>,
    ended: BorrowedFd<'_>,
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let error = |errno: Errno| io::Error::from_raw_os_error(errno.into_raw());
    let (mut buffer, mut rest, mut over) = (vec![0; 1 << 16], REST, false);
    while rest > 0 {
        let ready = fd::poll_readable(&[pipe, ended], if over { 0 } else { -1 });
        let ready = ready.map_err(error)?;
        // What it printed was there before its end: the pipe is looked at once more.
        let was_over = over;
        over |= ready[1];
        if ready[0] {
            let count = fd::read(pipe, &mut buffer).map_err(error)?;
            if count == 0 {
                return Ok(());
            }
            take(&buffer[..count])?;
            rest -= if over { count.min(rest) } else { 0 };
        } else if was_over {
            return Ok(());
        }
    }
    Ok(())
}

/// Writes bytes to a process's input; false: it has ended (`ended` is its pidfd), or nobody reads them any more. The pipe
/// is one that does not wait ([`fd::never_wait`]).
///
/// # Errors
/// The kernel's.
pub fn write(pipe: BorrowedFd<'_>, ended: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<bool> {
    while !bytes.is_empty() {
        let room = Watched { fd: pipe, read: false, write: true };
        let end = Watched { fd: ended, read: true, write: false };
        if fd::poll(&[room, end], -1)?[1].read {
            return Ok(false);
        }
        match fd::write(pipe, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::EAGAIN) => {}
            Err(Errno::EPIPE) => return Ok(false),
            Err(errno) => return Err(errno),
        }
    }
    Ok(true)
}
