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
use ringfence_sys as sys;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
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

impl Watch<'_, '_> {
    pub(super) fn take_messages(&mut self) {
        let mut buffer = [0u8; 4096];
        while let Ok(sys::socket::Message { length, descriptors: passed, pid }) =
            sys::socket::receive_about(self.child.control.as_fd(), &mut buffer, false)
        {
            if length == 0 {
                self.silent = true;
                break;
            }
            let ago = Duration::ZERO;
            self.heard(Heard { message: buffer[..length].to_vec(), passed, pid, ago });
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
