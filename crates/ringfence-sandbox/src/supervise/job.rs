//! The command as a job of its own ([`ringfence_start::job`]): whose the terminal is, and what the shell says to its job.
//!
//! The shell knows the launcher's group only. It has the terminal listen to that when the job is to go on in the
//! foreground, by a SIGCONT too, or without a word where the job was running already (`bg`, then `fg`).

use super::{SIGHUP, SIGINT, SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU, Watch};
use ringfence_sys as sys;
use std::os::fd::AsFd;
use sys::signal::{Arrived, Who};

/// A launcher whose command is a job of its own.
#[derive(Debug)]
pub(crate) struct Job {
    /// The launcher's own group.
    group: i32,
    /// The command's job was handed the terminal, which nobody has taken from it since.
    handed: bool,
    /// By which signal the command stopped last.
    stopped_by: i32,
    /// A Ctrl-Z came before the launcher went on, and is to be passed on when that has.
    stops_anew: bool,
    /// The launcher leads its session: there is no shell that would have a stopped job go on. No key stops a group that
    /// is orphaned so (setpgid(2)).
    alone: bool,
}

impl Job {
    /// The command has been handed the terminal, or is about to be.
    pub fn new() -> Job {
        let group = sys::process::group();
        let alone = sys::process::session() == group;
        Job { group, handed: true, stopped_by: 0, stops_anew: false, alone }
    }

    /// The command has stopped by this signal.
    pub fn stopped(&mut self, signal: u8) {
        self.stopped_by = i32::from(signal);
    }

    /// The launcher stops: the shell takes the terminal.
    pub fn stops(&mut self) {
        self.handed = false;
    }

    /// A Ctrl-Z came before the launcher went on.
    pub fn stops_anew(&mut self) {
        self.stops_anew = true;
    }

    /// Whether the terminal is to be handed to the command: the shell has had it listen to the launcher's group, or the
    /// command stopped for want of it, and there is nobody else to have it.
    fn hands_over(&mut self) -> bool {
        let wants = self.alone && matches!(self.stopped_by, SIGTTIN | SIGTTOU);
        let terminal = std::io::stdin();
        let hands_over = wants || sys::terminal::foreground(terminal.as_fd()) == Ok(self.group);
        self.handed |= hands_over;
        hands_over
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if self.handed {
            let _ = sys::terminal::set_foreground(std::io::stdin().as_fd(), self.group);
        }
    }
}

impl Watch<'_, '_> {
    /// Who goes on by a SIGCONT.
    pub(super) fn who_goes_on(&mut self) -> Who {
        let job = self.job.as_mut();
        job.map_or(Who::Command, |job| Who::Job { terminal: job.hands_over() })
    }

    /// Passes on what the terminal had for the command and gave to the launcher's group.
    pub(super) fn pass_key(&mut self, arrived: Arrived) {
        let keys = [SIGHUP, SIGINT, SIGQUIT, SIGTSTP];
        if !arrived.by_process && keys.contains(&arrived.signal) {
            self.pass(arrived.signal);
        }
    }

    /// Stops the job that goes on now, where the user had that before.
    pub(super) fn stop_anew(&mut self) {
        if self.job.as_mut().is_some_and(|job| std::mem::take(&mut job.stops_anew)) {
            self.pass(SIGTSTP);
        }
    }

    fn pass(&mut self, key: i32) {
        if let Some(job) = &mut self.job {
            job.handed |= key != SIGHUP;
            let _ = sys::signal::pass_key(self.child.pidfd.as_fd(), key);
        }
    }

    /// Has the command go on at once where it has stopped for want of the terminal, which it is to have, or by a key
    /// that nobody would undo.
    pub(super) fn goes_on_at_once(&mut self) -> bool {
        let at_once = self.job.as_mut().is_some_and(|job| match job.stopped_by {
            SIGTTIN | SIGTTOU => job.hands_over(),
            SIGTSTP => job.alone,
            _ => false,
        });
        if at_once {
            let after = self.stops.go_on();
            self.go_on(after);
        }
        at_once
    }
}
