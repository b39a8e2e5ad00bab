//! `exec` for a program that wants what the command prints: the command's streams are pipes, and one loop
//! writes its input, reads both outputs and waits for the end.

use super::client::{Failure, Limit, failed, lend, next_reply};
use super::protocol::{Reply, Request};
use super::uptake::{self, Uptake};
use ringfence_sys as sys;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use sys::Errno;
use sys::fd::Watched;
use sys::pipe::REST;

/// What a command did and printed; or, when its session ended under it, what it had printed by then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// The exit code that stands for its end; 124 when the time ran out.
    pub code: u8,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// Bytes of both that were read, and not kept.
    pub left_out: u64,
    /// The time ran out.
    pub timed_out: bool,
    /// Why it is not known how the command ended; the code is ours then.
    pub lost: Option<String>,
}

/// One of its outputs.
struct Output {
    /// `None`: nobody can print on it any more.
    pipe: Option<OwnedFd>,
    kept: Vec<u8>,
    left_out: u64,
}

impl Output {
    fn new(pipe: OwnedFd) -> Result<Output, Failure> {
        sys::fd::never_wait(pipe.as_fd()).map_err(|errno| failed("fcntl", errno))?;
        Ok(Output { pipe: Some(pipe), kept: Vec::new(), left_out: 0 })
    }

    /// Reads once; how much, and nothing where nothing is there.
    fn read(&mut self, buffer: &mut [u8], most: usize) -> Result<usize, Failure> {
        let Some(pipe) = &self.pipe else { return Ok(0) };
        let count = match sys::fd::read(pipe.as_fd(), buffer) {
            Err(Errno::EAGAIN) => return Ok(0),
            result => result.map_err(|errno| failed("read", errno))?,
        };
        if count == 0 {
            self.pipe = None;
        }
        let room = count.min(most.saturating_sub(self.kept.len()));
        self.kept.extend_from_slice(&buffer[..room]);
        self.left_out += (count - room) as u64;
        Ok(count)
    }
}

/// Runs a command in the session behind a connection, to its end: what it left in the background may hold its
/// streams open, and is not waited for. Of each output `most` bytes are kept. When `cancelled` can be read, or its other
/// end is closed, nobody waits any more: whoever drops the connection then ends the command.
///
/// # Errors
/// [`Failure`]: the session cannot be asked, or there are no pipes.
pub fn run(
    connection: &OwnedFd,
    request: &Request,
    mut input: &[u8],
    most: usize,
    timeout: Duration,
    cancelled: BorrowedFd<'_>,
) -> Result<Captured, Failure> {
    let pipe = || sys::fd::pipe().map_err(|errno| failed("pipe2", errno));
    let ((stdin, feed), (out, stdout), (err, stderr)) = (pipe()?, pipe()?, pipe()?);
    lend(connection.as_fd(), request, [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()])?;
    drop((stdin, stdout, stderr));
    sys::fd::never_wait(feed.as_fd()).map_err(|errno| failed("fcntl", errno))?;
    let mut feed = Some(feed).filter(|_| !input.is_empty());
    let mut outputs = [Output::new(out)?, Output::new(err)?];
    let mut buffer = vec![0; 1 << 16];
    let (mut time, mut uptake) = (Limit::of(Some(timeout)), Uptake::begin());
    let (code, lost) = loop {
        let watched = [
            Watched { fd: connection.as_fd(), read: true, write: false },
            watch(outputs[0].pipe.as_ref(), connection, true),
            watch(outputs[1].pipe.as_ref(), connection, true),
            watch(feed.as_ref(), connection, false),
            Watched { fd: cancelled, read: true, write: false },
        ];
        let ready = sys::fd::poll(&watched, time.wait()).map_err(|errno| failed("ppoll", errno))?;
        match if ready[0].read { end(connection) } else { Ok(None) } {
            Ok(Some(code)) => break (code, None),
            Ok(None) => {}
            Err((code, why)) => break (code, Some(why)),
        }
        if ready[4].read {
            break (125, Some("the call was cancelled".to_owned()));
        }
        if time.is_up() && !uptake.taken(connection.as_fd()) {
            time.passed = true;
            break (124, Some(uptake::sentence(connection.as_fd())));
        }
        time.look(connection.as_fd());
        for (output, ready) in outputs.iter_mut().zip(&ready[1..3]) {
            if ready.read {
                output.read(&mut buffer, most)?;
            }
        }
        if let Some(pipe) = feed.as_ref().filter(|_| ready[3].write) {
            match sys::fd::write(pipe.as_fd(), input) {
                Ok(count) => input = &input[count..],
                Err(Errno::EAGAIN) => {}
                // A command that does not read is no error.
                Err(_) => input = &[],
            }
            feed = feed.filter(|_| !input.is_empty());
        }
    };
    for output in &mut outputs {
        let mut rest = REST;
        while rest > 0 {
            match output.read(&mut buffer, most)? {
                0 => break,
                count => rest -= count.min(rest),
            }
        }
    }
    let [out, err] = outputs;
    Ok(Captured {
        code: if time.passed && lost.is_none() { 124 } else { code },
        stdout: out.kept,
        stderr: err.kept,
        left_out: out.left_out + err.left_out,
        timed_out: time.passed,
        lost,
    })
}

/// Waits for a pipe to be read from or written to; one that is closed waits for nothing.
fn watch<'a>(pipe: Option<&'a OwnedFd>, instead: &'a OwnedFd, read: bool) -> Watched<'a> {
    let open = pipe.is_some();
    Watched { fd: pipe.unwrap_or(instead).as_fd(), read: open && read, write: open && !read }
}

/// What the warden says; the exit code, if it is the end.
fn end(connection: &OwnedFd) -> Result<Option<u8>, Failure> {
    while let Some((reply, _)) = next_reply(connection.as_fd())? {
        match reply {
            Some(Reply::Failed(code, text)) => return Err((code, text)),
            Some(Reply::Exited(code)) => return Ok(Some(code)),
            Some(Reply::Killed(signal)) => return Ok(Some(signal.saturating_add(128))),
            // One that stops may go on, or its time runs out.
            Some(Reply::Started | Reply::Stopped(_) | Reply::Continued) | None => {}
        }
    }
    Ok(None)
}
