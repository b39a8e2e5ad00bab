//! Standard input and output of the server, without a thread between: what comes is read as soon as the kernel
//! tells, and an answer is written by who has it. (`tokio::io::stdin` reads in a thread of its own, and
//! every hand-over from thread to thread costs more than a small call.)
//!
//! Only pipes are taken so, and opened once more: the mode of not blocking belongs to the open file, and others,
//! our own error output among them, may share it. A socket cannot be opened again; it, a file or a terminal is
//! read and written the usual way.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags};
use std::os::fd::AsRawFd;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::unix::pipe::{Receiver, Sender};

/// Where requests come from.
pub(crate) type Input = Box<dyn AsyncRead + Send + Unpin>;
/// Where answers go.
pub(crate) type Output = Box<dyn AsyncWrite + Send + Unpin>;

/// Both; to be called where a runtime is.
pub(crate) fn both() -> (Input, Output) {
    let (stdin, stdout) = (std::io::stdin(), std::io::stdout());
    let input = again(stdin.as_fd(), OFlags::RDONLY);
    let output = again(stdout.as_fd(), OFlags::WRONLY);
    let input: Input = match input.and_then(|pipe| Receiver::from_owned_fd(pipe).ok()) {
        Some(pipe) => Box::new(pipe),
        None => Box::new(tokio::io::stdin()),
    };
    let output: Output = match output.and_then(|pipe| Sender::from_owned_fd(pipe).ok()) {
        Some(pipe) => Box::new(pipe),
        None => Box::new(tokio::io::stdout()),
    };
    (input, output)
}

/// The same pipe as a file of our own. `None`: it is no pipe, or another user's.
fn again(stream: BorrowedFd<'_>, access: OFlags) -> Option<OwnedFd> {
    let mode = rustix::fs::fstat(stream).ok()?.st_mode;
    if FileType::from_raw_mode(mode) != FileType::Fifo {
        return None;
    }
    let path = format!("/proc/self/fd/{}", stream.as_raw_fd());
    let flags = access | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[test]
    fn a_pipe_carries_all_and_its_other_files_block_as_before() {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let sent: Vec<u8> = (0..600_000u32).map(|number| number as u8).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let got = runtime.expect("a runtime").block_on(async {
            let own = again(writer.as_fd(), OFlags::WRONLY).expect("opened again");
            let mut into = Sender::from_owned_fd(own).expect("a pipe");
            let own = again(reader.as_fd(), OFlags::RDONLY).expect("opened again");
            let mut from = Receiver::from_owned_fd(own).expect("a pipe");
            let mut got = Vec::new();
            let write = async {
                into.write_all(&sent).await.expect("written");
                // Its end is told when no writer is left.
                drop((into, writer));
            };
            let (read, ()) = tokio::join!(from.read_to_end(&mut got), write);
            read.expect("read");
            got
        });
        assert!(got == sent);
        let flags = rustix::fs::fcntl_getfl(&reader).expect("flags");
        assert!(!flags.contains(OFlags::NONBLOCK));
    }

    #[test]
    fn what_is_no_pipe_is_not_taken() {
        let null = std::fs::File::open("/dev/null").expect("/dev/null");
        assert!(again(null.as_fd(), OFlags::RDONLY).is_none());
        let (one, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
        assert!(again(one.as_fd(), OFlags::RDONLY).is_none());
    }
}
