//! What the child says on the control socket, and what the launcher does about it.

use super::{SIGINT, SIGKILL, Watch};
use crate::cover;
use crate::dbus::Bus;
use crate::error::LaunchError;
use crate::executions::Listener;
use crate::gone;
use crate::live::told::{executed, exit_code};
use crate::live::{self, Executed};
use ringfence_start::brief::passed;
use ringfence_start::child::said;
use ringfence_sys::{self as sys, Errno};
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A message.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub message: Vec<u8>,
    /// Descriptors that came with it.
    pub passed: Vec<OwnedFd>,
    /// The process that it is about.
    pub pid: Option<i32>,
    /// How long ago it came.
    pub ago: Duration,
}

/// A launcher without libc takes these by the same word.
const _: () = assert!(ringfence_net::listeners::TAG == passed::NETWORK);

/// All messages that are there, and whether none will come any more.
fn receive_all(control: BorrowedFd<'_>) -> (Vec<Heard>, bool) {
    let mut buffer = [0u8; 4096];
    let mut messages = Vec::new();
    // The socket of one that died with a word of ours unread says so once, before what it sent.
    let mut reset = false;
    loop {
        match sys::socket::receive_about(control, &mut buffer, false) {
            Ok(sys::socket::Message { length: 0, .. }) => return (messages, true),
            Ok(sys::socket::Message { length, descriptors: passed, pid }) => {
                let (message, ago) = (buffer[..length].to_vec(), Duration::ZERO);
                messages.push(Heard { message, passed, pid, ago });
            }
            Err(Errno::ECONNRESET) if !reset => reset = true,
            Err(_) => return (messages, false),
        }
    }
}

impl Watch<'_, '_> {
    pub(super) fn take_messages(&mut self) {
        let (messages, silent) = receive_all(self.child.control.as_fd());
        self.silent |= silent;
        for heard in messages {
            self.heard(heard);
        }
    }

    /// Does what a message says.
    pub(super) fn heard(&mut self, heard: Heard) {
        let Some(heard) = self.holds(heard) else { return };
        let Heard { message, passed, pid, ago } = heard;
        // Sent by the warden as about itself: the kernel would not say more.
        let pid = pid.filter(|&pid| pid != self.child.pid);
        match message[..] {
            [b'S', signal, number] => {
                self.stops.stopped(number);
                self.job.iter_mut().for_each(|job| job.stopped(signal));
            }
            [b'C', _] => self.stops.continued(),
            [b'A', passed_on] => {
                let next = self.stops.answered(passed_on == 1);
                self.go_on(next);
            }
            [sys::process::LISTENER, ..] => {
                self.listeners.extend(passed.into_iter().map(Listener::new));
            }
            [live::GATEWAY, ..] => self.gateway = passed.into_iter().next(),
            [live::BUS, ..] => self.bus = Bus::of(passed),
            [ringfence_net::listeners::TAG, ..] => self.network.listen(&message, passed),
            [..] => self.message(&message, pid, ago),
        }
    }

    fn message(&mut self, message: &[u8], pid: Option<i32>, ago: Duration) {
        if let Some((tag, step, errno)) = crate::launch::read_failure(message) {
            // A sentence that came before says more.
            let explain = self.duties.explain;
            self.failure.get_or_insert_with(|| explain(tag, step, errno));
            return;
        }
        let text = || String::from_utf8_lossy(&message[1..]).into_owned();
        match message[0] {
            b'E' => self.failure = Some(LaunchError::Setup(text())),
            b'K' => {
                self.outcome.signal = message.get(1).map(|&signal| i32::from(signal));
                // Of a job of its own no key is told to us, nor of a guest's, whose terminal takes them.
                let machine = self.duties.machine;
                let unheard = self.job.is_some()
                    || machine.is_some_and(|machine| machine.borrow().has_terminal());
                self.outcome.interrupted |= unheard && self.outcome.signal == Some(SIGINT);
            }
            b'R' => {
                self.executes = true;
                let path = message.get(5..).unwrap_or_default();
                let path = PathBuf::from(OsStr::from_bytes(path));
                let (pid, parent) = (self.on_host(pid, message, 1), self.child.pid);
                // A machine's command has the guest's.
                let alone = self.duties.machine.is_none();
                self.home = alone.then(|| gone::of_command(self.duties.plan, pid)).flatten();
                let since = Instant::now().checked_sub(ago);
                self.executed(Executed { pid, parent, path, since, ..Executed::default() });
                self.tell_early();
                // Not before: until then any message means to the child that we are gone.
                if let Some((will, file)) = &self.duties.will {
                    let _ = sys::socket::send_with(self.child.control.as_fd(), will, &[*file]);
                }
                (self.duties.started)();
                self.begin_covers();
            }
            said::GO => (self.duties.going)(),
            live::STARTED => {
                let pid = self.on_host(pid, message, 5);
                self.executed(executed(message, pid, self.child.pid));
                self.tell_early();
            }
            live::ENDED => self.finished(message),
            cover::DONE => self.covered(message),
            b'W' => {
                self.outcome.ended.get_or_insert_with(Instant::now);
                self.put_right();
                self.put_right = true;
                let _ = sys::fd::send(self.child.control.as_fd(), b"w");
                self.record(exit_code(message));
            }
            b'D' => {
                let _ = sys::signal::kill(std::process::id() as i32, SIGKILL);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_warden_said_before_it_died_is_heard_where_it_left_a_word_unread() {
        let (ours, theirs) = sys::fd::socket_pair().expect("a socket pair");
        sys::socket::send_with(theirs.as_fd(), b"K\x0b", &[]).expect("sent");
        sys::socket::send_with(theirs.as_fd(), b"x", &[]).expect("sent");
        let said = |(messages, silent): (Vec<Heard>, bool)| {
            (messages.into_iter().map(|heard| heard.message).collect::<Vec<_>>(), silent)
        };
        sys::socket::send_with(ours.as_fd(), b"w", &[]).expect("sent");
        drop(theirs);
        let told = said(receive_all(ours.as_fd()));
        assert_eq!(told, (vec![b"K\x0b".to_vec(), b"x".to_vec()], true));
    }
}
