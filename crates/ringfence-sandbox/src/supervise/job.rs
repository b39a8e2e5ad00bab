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
}

impl Job {
    /// The command has been handed the terminal, or is about to be.
    pub fn new() -> Job {
        Job { group: sys::process::group(), handed: true, stopped_by: 0, stops_anew: false }
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

    /// Whether the terminal is to be handed to the command, since the shell has had it listen to the launcher's group.
    fn hands_over(&mut self) -> bool {
        let given = sys::terminal::foreground(std::io::stdin().as_fd()) == Ok(self.group);
        self.handed |= given;
        given
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

    /// Has the command go on, with the terminal, where it has stopped because that listens to the launcher.
    pub(super) fn hands_over(&mut self) -> bool {
        let job = self.job.as_mut().filter(|job| matches!(job.stopped_by, SIGTTIN | SIGTTOU));
        let hands_over = job.is_some_and(Job::hands_over);
        if hands_over {
            let after = self.stops.go_on();
            self.go_on(after);
        }
        hands_over
    }
}
