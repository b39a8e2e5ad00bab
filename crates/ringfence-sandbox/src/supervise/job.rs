//! The command as a job of its own ([`ringfence_start::job`]): whose the terminal is, and what the shell says to its job.
//!
//! The shell knows the launcher's group only. It has the terminal listen to that when the job is to go on in the
//! foreground, by a SIGCONT too, or without a word where the job was running already (`bg`, then `fg`).

use super::guards::AGAIN;
use super::{SIGHUP, SIGINT, SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU, SIGWINCH, Watch};
use ringfence_sys as sys;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use sys::signal::{Arrived, Who};

/// So often it is looked at whether the shell has given the terminal to a job in the background.
const LOOK: Duration = Duration::from_millis(200);

/// A launcher whose command is a job of its own.
#[derive(Debug)]
pub(crate) struct Job {
    /// The launcher's own group.
    group: i32,
    /// By which signal the command stopped last.
    stopped_by: i32,
    /// A Ctrl-Z came before the launcher went on, and is to be passed on when that has.
    stops_anew: bool,
    /// The launcher leads its session: there is no shell that would have a stopped job go on. No key stops a group that
    /// is orphaned so (setpgid(2)).
    alone: bool,
    /// It went on without the terminal: when that is looked at next.
    look: Option<Instant>,
}

impl Job {
    /// The command has the terminal, or is about to.
    pub fn new() -> Job {
        let group = sys::process::group();
        let alone = sys::process::session() == group;
        Job { group, stopped_by: 0, stops_anew: false, alone, look: None }
    }

    /// The command has stopped by this signal.
    pub fn stopped(&mut self, signal: u8) {
        self.stopped_by = i32::from(signal);
    }

    /// A Ctrl-Z came before the launcher went on.
    pub fn stops_anew(&mut self) {
        self.stops_anew = true;
    }

    /// The shell has had the terminal listen to the launcher's group.
    fn is_given(&self) -> bool {
        sys::terminal::foreground(std::io::stdin().as_fd()) == Ok(self.group)
    }

    /// Whether the terminal is to be handed to the command: the launcher was given it, or the command stopped for want
    /// of it, and there is nobody else to have it.
    fn hands_over(&self) -> bool {
        self.is_given() || self.alone && matches!(self.stopped_by, SIGTTIN | SIGTTOU)
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        sys::terminal::take_back(std::io::stdin().as_fd());
    }
}

impl Watch<'_, '_> {
    /// Who goes on by a SIGCONT.
    pub(super) fn who_goes_on(&mut self) -> Who {
        let Some(job) = &mut self.job else { return Who::Command };
        let terminal = job.hands_over();
        job.look = (!terminal).then(|| Instant::now() + LOOK);
        Who::Job { terminal }
    }

    /// When there is something to look at.
    pub(super) fn job_next(&self) -> Option<Instant> {
        self.job.as_ref()?.look
    }

    /// Hands the terminal over that the shell has given to a job in the background.
    pub(super) fn job_due(&mut self) {
        let now = Instant::now();
        let Some(job) = self.job.as_mut().filter(|job| job.look.is_some_and(|look| now >= look))
        else {
            return;
        };
        let given = job.is_given();
        job.look = (!given).then(|| now + LOOK);
        if given {
            self.send_to_job(0, true);
        }
    }

    /// Passes on what the terminal had for the command and gave to the launcher's group.
    pub(super) fn pass_key(&mut self, arrived: Arrived) {
        let keys = [SIGHUP, SIGINT, SIGQUIT, SIGTSTP, SIGWINCH];
        if self.job.is_some() && !arrived.by_process && keys.contains(&arrived.signal) {
            // Who hangs up has the terminal no more.
            self.send_to_job(arrived.signal, arrived.signal != SIGHUP);
        }
    }

    /// Stops the job that goes on now, where the user had that before.
    pub(super) fn stop_anew(&mut self) {
        if self.job.as_mut().is_some_and(|job| std::mem::take(&mut job.stops_anew)) {
            self.send_to_job(SIGTSTP, true);
        }
    }

    /// Sends a signal to the command; a job of its own gets it as a whole.
    pub(super) fn send_to_command(&self, signal: i32) {
        match self.job {
            Some(_) => self.send_to_job(signal, false),
            None => self.send(signal),
        }
    }

    fn send_to_job(&self, signal: i32, terminal: bool) {
        let _ = sys::signal::send_to_job(self.child.pidfd.as_fd(), signal, terminal);
    }

    /// Has the command go on at once where it has stopped for want of the terminal, which it is to have, or by a key
    /// that nobody would undo. It could stop over and over: without a shell, that is let happen so often only.
    pub(super) fn goes_on_at_once(&mut self) -> bool {
        let at_once = self.job.as_ref().is_some_and(|job| match job.stopped_by {
            SIGTTIN | SIGTTOU => job.hands_over(),
            SIGTSTP => job.alone,
            _ => false,
        });
        if at_once {
            let after = self.stops.go_on();
            self.go_on(after);
            self.stops_again = Some(Instant::now() + AGAIN);
        }
        at_once
    }
}
