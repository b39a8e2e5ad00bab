//! The gateway's thread: connections, lines, answers. One request at a time.

use super::act::Actor;
use super::forks::Forks;
use super::{LONGEST_REQUEST, MOST_CONNECTIONS, Peer, Scope, Told};
use crate::error::{Result, SessionError};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde_json::json;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread::JoinHandle;

/// The running service. Dropping it ends it, after the request that is being carried out.
#[derive(Debug)]
pub struct Service {
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Serves whoever connects, on a thread of its own; and, at `forks`, those outside who ask for
    /// clones of a template.
    ///
    /// # Errors
    /// There is no descriptor or no thread left.
    pub fn start(
        listener: OwnedFd,
        forks: Option<OwnedFd>,
        scope: Scope,
        told: Told,
    ) -> Result<Service> {
        let failed = |call| move |error| SessionError::call(call, Path::new("the gateway"), error);
        let (ours, theirs) = UnixStream::pair().map_err(failed("socketpair"))?;
        let listener = UnixListener::from(listener);
        listener.set_nonblocking(true).map_err(failed("fcntl"))?;
        let actor = Actor::new(scope, told);
        let serve = move || {
            super::give_up_capabilities();
            let forks = Forks::new(forks);
            Serving { listener, stop: theirs, actor, forks, visits: Vec::new() }.run();
        };
        let thread = std::thread::Builder::new().name("gateway".to_owned()).spawn(serve);
        Ok(Service { stop: Some(ours), thread: Some(thread.map_err(failed("clone"))?) })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // The other end is told by its closing.
        drop(self.stop.take());
        // A thread that panicked has ended too.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

struct Serving {
    listener: UnixListener,
    stop: UnixStream,
    actor: Actor,
    forks: Forks,
    visits: Vec<Visit>,
}

/// Somebody who is connected.
struct Visit {
    stream: UnixStream,
    by: Peer,
    /// Bytes that are no whole line yet.
    line: Vec<u8>,
    /// An answer that is not taken yet: until it is, no further line is read.
    answer: Vec<u8>,
    /// The answer is the last one.
    last: bool,
    /// It is the session's template, which is told to fork.
    template: bool,
}

impl Serving {
    fn run(mut self) {
        loop {
            let full = self.visits.len() >= MOST_CONNECTIONS;
            let mut watched = vec![
                PollFd::new(&self.stop, PollFlags::IN),
                PollFd::new(&self.listener, if full { PollFlags::empty() } else { PollFlags::IN }),
            ];
            for visit in &self.visits {
                let wanted = if visit.answer.is_empty() { PollFlags::IN } else { PollFlags::OUT };
                watched.push(PollFd::new(&visit.stream, wanted));
            }
            let forks = watched.len();
            for fd in self.forks.watched() {
                watched.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
            }
            match poll(&mut watched, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(_) => return,
            }
            let ready: Vec<bool> = watched.iter().map(|fd| !fd.revents().is_empty()).collect();
            drop(watched);
            if ready[0] {
                return;
            }
            self.forks.serve(&ready[forks..]);
            // From behind, so that leaving ones do not move those still to be looked at.
            for at in (0..self.visits.len()).rev().filter(|at| ready[2 + at]) {
                let taken = self.visits.iter().any(|visit| visit.template);
                if !self.visits[at].go_on(&mut self.actor, &mut self.forks, taken)
                    && self.visits.swap_remove(at).template
                {
                    self.forks.lost();
                }
            }
            if let Some(visit) = self.visits.iter_mut().find(|visit| visit.template)
                && visit.answer.is_empty()
            {
                visit.answer = self.forks.give(visit.stream.as_fd());
            }
            if ready[1] && !full {
                self.welcome();
            }
        }
    }

    fn welcome(&mut self) {
        let Ok((stream, _)) = self.listener.accept() else { return };
        let peer = rustix::net::sockopt::socket_peercred(&stream);
        let pid = peer.map_or(0, |peer| peer.pid.as_raw_nonzero().get());
        if stream.set_nonblocking(true).is_ok() {
            let (by, line, answer) = (Peer::new(pid), Vec::new(), Vec::new());
            self.visits.push(Visit { stream, by, line, answer, last: false, template: false });
        }
    }
}

impl Visit {
    /// Takes what came, or gives what waits; false: it is over.
    fn go_on(&mut self, actor: &mut Actor, forks: &mut Forks, taken: bool) -> bool {
        if !self.answer.is_empty() {
            // Lines that came meanwhile are answered now: nothing else tells of them.
            return self.give() && self.lines(actor, forks, taken);
        }
        let mut buffer = [0; 8192];
        match self.stream.read(&mut buffer) {
            Ok(0) => return false,
            Ok(length) => self.line.extend_from_slice(&buffer[..length]),
            Err(error) => {
                return matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted);
            }
        }
        self.lines(actor, forks, taken)
    }

    /// Answers the whole lines that came, as long as the answers are taken.
    fn lines(&mut self, actor: &mut Actor, forks: &mut Forks, taken: bool) -> bool {
        while self.answer.is_empty() {
            if let Some(goes_on) = self.word(forks, taken) {
                if !goes_on {
                    return false;
                }
                continue;
            }
            self.take_line(actor);
            if self.answer.is_empty() {
                return true;
            }
            if !self.give() {
                return false;
            }
        }
        true
    }

    /// Takes a line that is a template's; whether it may go on, or nothing where the line is another.
    fn word(&mut self, forks: &mut Forks, taken: bool) -> Option<bool> {
        let end = self.line.iter().position(|&byte| byte == b'\n')?;
        if !self.template && self.line[..end] == *b"ready" {
            self.line.drain(..=end);
            self.template = !taken;
            return Some(self.template);
        }
        if !self.template {
            return None;
        }
        let line: Vec<u8> = self.line.drain(..=end).collect();
        let line = String::from_utf8_lossy(&line);
        Some(line.starts_with("ended ") && forks.ended(&line))
    }

    /// Makes the answer to one line, if there is a whole one.
    fn take_line(&mut self, actor: &mut Actor) {
        let answer = match self.line.iter().position(|&byte| byte == b'\n') {
            Some(end) if end < LONGEST_REQUEST => {
                let line: Vec<u8> = self.line.drain(..=end).collect();
                actor.answer(&line, &self.by)
            }
            None if self.line.len() < LONGEST_REQUEST => return,
            _ => {
                self.last = true;
                json!({"ok": false, "error": format!("a request is at most {LONGEST_REQUEST} bytes")})
            }
        };
        self.answer = answer.to_string().into_bytes();
        self.answer.push(b'\n');
    }

    fn give(&mut self) -> bool {
        while !self.answer.is_empty() {
            match self.stream.write(&self.answer) {
                Ok(0) => return false,
                Ok(length) => drop(self.answer.drain(..length)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
        !self.last
    }
}
