//! How commands and sessions end: what the kernel says of children, and the way from the last one to the guest's end, or
//! to its beginning where a session was only played.

use super::limits::Limits;
use super::waiting::Waiting;
use super::{Agent, boot};
use crate::agent::command::Command;
use crate::stream::Over;
use crate::wire::{Change, ToHost, VERSION};
use ringfence_sys::process::{self, Forked};
use ringfence_sys::signal;
use std::os::fd::AsFd;

const SIGKILL: i32 = 9;

/// How far a guest is on its way to the end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopping {
    /// It goes on.
    No,
    /// All its programs were killed, and some still end.
    Killed,
    /// A helper lets the kernel write what programs left in memory.
    Syncing,
    /// The last requests are under way to the host.
    Draining,
    /// The host was told.
    Told,
}

impl Agent {
    /// Kills all that runs.
    pub(super) fn stop(&mut self) -> Result<(), Over> {
        self.stopping = Stopping::Killed;
        // All but us.
        let _ = signal::kill(-1, SIGKILL);
        self.children()
    }

    /// Children ended or stopped.
    pub(super) fn children(&mut self) -> Result<(), Over> {
        while signal::take(self.signals.as_fd()).is_ok() {}
        loop {
            match process::wait_any(false) {
                Ok(Some((pid, change))) => self.changed(pid, change)?,
                Ok(None) => return Ok(()),
                Err(_) => break,
            }
        }
        // Nobody is left who could change anything.
        if self.stopping == Stopping::Killed {
            self.stopping = Stopping::Syncing;
            match process::fork_into(process::Namespaces::NONE, None) {
                Ok(Forked::Child) => {
                    rustix::fs::sync();
                    process::exit_now(0)
                }
                Ok(Forked::Parent(pid, pidfd)) => self.helper = Some((pid, pidfd)),
                // What is queued already goes out all the same.
                Err(_) => self.stopping = Stopping::Draining,
            }
        }
        Ok(())
    }

    fn changed(&mut self, pid: i32, change: process::Change) -> Result<(), Over> {
        if self.helper.as_ref().is_some_and(|(own, _)| *own == pid) {
            return Ok(());
        }
        let own = |(_, command): &(&u32, &mut Command)| command.pid == pid;
        let Some((&channel, command)) = self.commands.iter_mut().find(own) else { return Ok(()) };
        let change = match change {
            process::Change::Exited(code) => Change::Exited(code as u8),
            process::Change::Killed(signal) => Change::Killed(signal as u8),
            process::Change::Stopped(signal) => Change::Stopped(signal as u8),
            process::Change::Continued => return Ok(()),
        };
        if let Change::Stopped(_) = change {
            return self.stream.send(channel, &ToHost::Change(change));
        }
        let last = command.last();
        // Before the end, which may be the session's; and the kernel's message of what it killed may come later.
        self.limits(matches!(change, Change::Killed(9) | Change::Exited(137)))?;
        let refused = last.iter().any(|message| matches!(message, ToHost::Failed(..)));
        for message in last {
            self.stream.send(channel, &message)?;
        }
        self.commands.remove(&channel);
        if !refused {
            self.stream.send(channel, &ToHost::Change(change))?;
        }
        Ok(())
    }

    /// Tells the host when nothing is left. A sync of a FUSE file system returns when its last writes
    /// are queued, not when they are answered; the kernel queues what it held back in the moment
    /// in which it takes an answer. So it is over when all is answered and nothing more is to be read.
    pub(super) fn drained(&mut self) -> Result<(), Over> {
        self.request()?;
        if self.unanswered == 0 {
            self.stopping = Stopping::Told;
            return self.stream.send(0, &ToHost::Stopped);
        }
        Ok(())
    }

    /// The helper has ended: nothing more becomes a request that is none yet.
    pub(super) fn helped(&mut self) {
        self.helper = None;
        if self.stopping == Stopping::Syncing {
            self.stopping = Stopping::Draining;
        }
    }

    /// Becomes what it was before a session that was only played: nothing runs any more, and what comes first waits for
    /// a command.
    pub(super) fn again(&mut self, last: bool) -> Result<(), Over> {
        self.commands.clear();
        self.given.clear();
        self.limits = Limits::new();
        self.stopping = Stopping::No;
        match Waiting::make(&self.fuse, &self.view) {
            Ok(waiting) => self.waiting = Some(waiting),
            Err(why) => return self.stream.send(0, &ToHost::Ready(Err(why))),
        }
        if last {
            boot::settle();
        }
        self.stream.send(0, &ToHost::Hello(VERSION))
    }
}
