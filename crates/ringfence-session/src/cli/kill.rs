//! `ringfence kill`: ends sessions that run.

use super::arguments::{Known, parse};
use super::{sessions, text};
use crate::ledger::{self, Session};
use ringfence_sys::signal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a command may take to end itself.
const GRACE: Duration = Duration::from_secs(10);
/// How long a launcher may take for what is left to do when all inside has ended.
const AFTERWARDS: Duration = Duration::from_secs(20);
/// How long the kernel may take to end a killed launcher.
const PATIENCE: Duration = Duration::from_secs(30);

/// Signals that a launcher passes on; KILL ends all inside.
const SIGNALS: [(&str, Signal); 12] = [
    ("HUP", Signal::HUP),
    ("INT", Signal::INT),
    ("QUIT", Signal::QUIT),
    ("KILL", Signal::KILL),
    ("USR1", Signal::USR1),
    ("USR2", Signal::USR2),
    ("PIPE", Signal::PIPE),
    ("ALRM", Signal::ALARM),
    ("TERM", Signal::TERM),
    ("CONT", Signal::CONT),
    ("TSTP", Signal::TSTP),
    ("WINCH", Signal::WINCH),
];

/// Runs `ringfence kill [--signal SIGNAL] SESSION...`.
///
/// Without a signal the command is asked to end (SIGTERM), and ended after ten seconds. With one
/// it is sent that, and nothing is waited for.
///
/// # Errors
/// One sentence for the user; the exit code is then 125.
pub fn kill(args: Vec<OsString>) -> Result<u8, String> {
    let given = parse(&Known { switches: &[], valued: &["signal"] }, args)?;
    if given.words.is_empty() {
        return Err("end which session? ringfence kill SESSION...".to_owned());
    }
    let wanted = given.text("signal")?.map(named).transpose()?;

    let grace = match wanted {
        None => Some(GRACE),
        Some(Signal::KILL) => Some(Duration::ZERO),
        Some(_) => None,
    };
    sessions::check(&given)?;
    for at in 0..given.words.len() {
        let word = given.word(at)?.unwrap_or_default();
        let directory = sessions::find(word).map_err(|error| error.to_string())?;
        let session = ledger::session(&directory).map_err(|error| error.to_string())?;
        let launcher = launcher(&directory, &session)
            .map_err(|why| format!("session {} {why}", text::safe(word.as_bytes())))?;
        let send = |signal| pidfd_send_signal(&launcher, signal);
        let failed = |error| format!("kill({}): {error}", session.pid);
        match grace {
            None => send(wanted.unwrap_or(Signal::TERM)).map_err(failed)?,
            Some(grace) => {
                // A stopped one is woken, to hear of it.
                // A stopped one is woken, to hear of it.
                let asked = || send(Signal::TERM).and_then(|()| send(Signal::CONT)).is_ok();
                if !grace.is_zero() && asked() && ends(&launcher, grace) {
                    continue;
                }
                // The launcher ends the sandbox, and does what is left to do then: nobody else does.
                let told = signal::send(launcher.as_fd(), signal::END).is_ok();
                if told && send(Signal::CONT).is_ok() && ends(&launcher, AFTERWARDS) {
                    continue;
                }
                let _ = send(Signal::KILL);
                if !ends(&launcher, PATIENCE) {
                    let pid = session.pid;
                    return Err(format!("process {pid} does not end; the kernel holds it"));
                }
                // It could not say so itself any more.
                let _ = ledger::append_end(&directory, Signal::KILL.as_raw());
            }
        }
    }
    Ok(0)
}

/// The launcher of a session that runs.
fn launcher(directory: &Path, session: &Session) -> Result<OwnedFd, String> {
    let number = Pid::from_raw(session.pid);
    let launcher = number.and_then(|number| pidfd_open(number, PidfdFlags::empty()).ok());
    if !ledger::live(directory) {
        return Err("does not run".to_owned());
    }
    // Somebody holds the lock: that process, if the number is one of ours at all.
    launcher.filter(|_| ledger::held_by(directory, session.pid)).ok_or_else(|| {
        format!(
            "runs elsewhere: its process {} is none that can be seen here, so that the number would be \
             another's; end it in the container that it was started in",
            session.pid
        )
    })
}

/// Waits for a process to end; false when the time ran out.
fn ends(process: &OwnedFd, most: Duration) -> bool {
    let deadline = Instant::now() + most;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let time = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut fds = [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&time)) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(_) => {}
        }
    }
}

fn named(text: &str) -> Result<Signal, String> {
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let number = name.parse().ok();
    let found = SIGNALS
        .iter()
        .find(|(known, signal)| *known == name || number == Some(signal.as_raw()))
        .map(|(_, signal)| *signal);
    found.ok_or_else(|| {
        let known: Vec<&str> = SIGNALS.iter().map(|(name, _)| *name).collect();
        format!("--signal {text}: a session can be sent {}", known.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names_and_numbers() {
        for text in ["TERM", "sigterm", "15"] {
            assert_eq!(named(text), Ok(Signal::TERM), "{text}");
        }
        for text in ["", "SEGV", "STOP", "0", "-9"] {
            assert!(named(text).is_err(), "{text}");
        }
    }
}
