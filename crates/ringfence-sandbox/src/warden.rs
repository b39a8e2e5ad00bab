//! The process that stays with the command inside: PID 1 of the namespace tier, the subreaper
//! of the process tier. It reaps, passes signals on, reports stops to the launcher, and ends
//! everything when the launcher is gone.

use crate::descendants;
use crate::guard::Guarding;
use crate::plan::Tier;
use ringfence_sys as sys;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;
use sys::image::{Carrier, Wanted, Words};
use sys::process::Change;
use sys::signal::SignalSet;

const SIGCHLD: i32 = 17;
const SIGKILL: i32 = 9;

/// What it watches over.
pub(crate) struct Warden<'a> {
    /// The command's PID, as seen here.
    pub command: i32,
    /// The way to the launcher.
    pub control: OwnedFd,
    /// How far its sandbox reaches.
    pub tier: Tier,
    /// What is put right when the launcher cannot do it any more.
    pub guarding: &'a Guarding,
    /// The process tier's directory, likewise.
    pub private: Option<PathBuf>,
    /// The command as it was started.
    pub words: Words,
    /// What confines further commands like it.
    pub carrier: Carrier,
}

impl Warden<'_> {
    /// Goes on where a simple warden (`ringfence-start`) stopped.
    pub fn go_on(self, wanted: Wanted) -> ! {
        match wanted {
            Wanted::Orphaned => self.orphaned(),
            Wanted::Finish(code) => self.end(code),
            Wanted::Service => self.watch(),
        }
    }

    /// Waits for the command's end, then ends everything else and exits with its code.
    pub fn watch(self) -> ! {
        loop {
            self.reap();
            let Ok(arrived) = sys::signal::wait(SignalSet::ALL, None) else { continue };
            match arrived.signal {
                SIGCHLD => {}
                signal if signal == sys::signal::parent_death() => self.orphaned(),
                // A terminal's signals reach the command by themselves.
                signal if arrived.by_process => {
                    let _ = sys::signal::kill(self.command, signal);
                }
                _ => {}
            }
        }
    }

    fn reap(&self) {
        while let Ok(Some((pid, change))) = sys::process::wait_any(false) {
            if pid != self.command {
                continue;
            }
            match change {
                Change::Exited(code) => self.end(code),
                Change::Killed(signal) => {
                    // Told apart from an exit with the same number: the launcher dies of a
                    // terminal's SIGINT as the command did.
                    self.tell(b'K', signal);
                    self.end(128 + signal)
                }
                Change::Stopped(signal) => self.tell(b'S', signal),
                Change::Continued => self.tell(b'C', 0),
            }
        }
    }

    fn tell(&self, what: u8, signal: i32) {
        let _ = sys::fd::send(self.control.as_fd(), &[what, signal as u8]);
    }

    /// The command has ended: ends the rest, and sees to it that protected paths are put right
    /// before anything else can happen, by the launcher or, if that dies, here.
    fn end(&self, code: i32) -> ! {
        self.end_everything();
        let _ = sys::fd::send(self.control.as_fd(), b"W");
        // Only a reply means that it was done: the socket of a launcher that died with our
        // message unread says ECONNRESET before it says that it is closed.
        if !matches!(sys::fd::receive(self.control.as_fd(), &mut [0; 16], true), Ok(1..)) {
            self.orphaned();
        }
        sys::process::exit_now(code)
    }

    /// The launcher died: end everything, put right what it would have put right, and go.
    fn orphaned(&self) -> ! {
        self.end_everything();
        self.guarding.enforce(None);
        if let Some(private) = &self.private {
            crate::state::remove_private(private);
        }
        sys::process::exit_now(128 + SIGKILL)
    }

    fn end_everything(&self) {
        match self.tier {
            Tier::Process => self.end_descendants(),
            Tier::Namespace => {
                let _ = sys::signal::kill(-1, SIGKILL);
                while sys::process::wait_any(true).is_ok() {}
            }
        }
    }

    /// Kills every descendant: those that were orphaned, in sessions of their own too, are our
    /// children by now, or become so when their parents die.
    fn end_descendants(&self) {
        while descendants::kill_all(std::process::id() as i32) {
            let patience = Some(Duration::from_millis(100));
            let _ = sys::signal::wait(SignalSet::of(&[SIGCHLD]), patience);
            while let Ok(Some(_)) = sys::process::wait_any(false) {}
        }
    }
}
