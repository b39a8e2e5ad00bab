//! Until a session has taken up what `exec` asked for: a session whose launcher is stopped does not, and whoever asked
//! is not to wait for ever.

use ringfence_sys as sys;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// After so long it is said that nobody answers; the early client (`ringfence_start::ask`) has waited for a moment before.
const PATIENCE: Duration = Duration::from_millis(800);

/// Whether a request has been taken up.
pub(super) struct Uptake {
    taken: bool,
    /// When it is to be said that nobody answers.
    says: Option<Instant>,
}

impl Uptake {
    /// Of one that has just gone.
    pub fn begin() -> Uptake {
        Uptake { taken: false, says: Instant::now().checked_add(PATIENCE) }
    }

    /// Whether the session has read the request, and so begun the command. To be asked before anything else is sent, which
    /// may not be read yet either.
    pub fn taken(&mut self, connection: BorrowedFd<'_>) -> bool {
        self.taken = self.taken || !sys::unix::is_unread(connection);
        self.taken
    }

    /// How long to wait, in milliseconds (-1: for ever), of a time that something else leaves.
    pub fn wait(&self, most: i32) -> i32 {
        let left = self.says.map(|says| says.saturating_duration_since(Instant::now()));
        let left = left.map(|left| i32::try_from(left.as_millis()).unwrap_or(i32::MAX - 1) + 1);
        match left {
            Some(left) if most < 0 || left < most => left,
            _ => most,
        }
    }

    /// Says that nobody answers, when that is due.
    pub fn look(&mut self, connection: BorrowedFd<'_>) {
        if self.says.is_some_and(|says| Instant::now() >= says) {
            if self.taken(connection) {
                self.says = None;
            }
            self.say(connection);
        }
    }

    /// Says it, if it has not been said.
    pub fn say(&mut self, connection: BorrowedFd<'_>) {
        if self.says.take().is_some() {
            sys::say!("ringfence: {}", sentence(connection));
        }
    }
}

/// That nobody answers, and what to do.
pub(super) fn sentence(connection: BorrowedFd<'_>) -> String {
    // Who listens is the launcher; one in another PID namespace has no number here.
    let pid = sys::socket::peer_credentials(connection).map_or(0, |(pid, ..)| pid);
    let number = if pid > 0 { format!("{pid}") } else { "PID".to_owned() };
    format!(
        "the session's launcher does not answer, and the command has not begun; it may be stopped: fg where it was \
         started, or kill -CONT {number}"
    )
}
