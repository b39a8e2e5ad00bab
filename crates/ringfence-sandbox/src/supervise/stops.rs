//! Stops of the command and of the launcher: which of them counts when words cross on the way.
//!
//! The launcher stops as its command did, so that the shell sees a job that stopped. A SIGCONT
//! that it gets is passed on by way of the warden, which answers it. Until that answer, what is
//! told of stops is older than the SIGCONT. And who continues a whole group by one signal has
//! continued the command already: that may have stopped anew, by the next Ctrl-Z, before a slow
//! launcher's SIGCONT reaches it. Therefore stops are numbered, and a SIGCONT says which it is about.

use ringfence_sys::signal::After;
use std::time::{Duration, Instant};

/// The command stops this soon after a Ctrl-Z, if it is because of it.
const SOON: Duration = Duration::from_secs(2);

/// What is known of stops.
#[derive(Debug, Default)]
pub(super) struct Stops {
    /// The number of the last one that was told.
    last: u8,
    /// One was told and not acted on.
    told: bool,
    /// When a SIGTSTP came to the launcher: the user wants a stop.
    wanted: Option<Instant>,
    /// The launcher stopped too, and was not told yet to go on.
    followed: bool,
    /// A SIGCONT was passed on and not answered.
    asked: bool,
    /// Another one came meanwhile.
    again: bool,
    /// It goes on by itself since the launcher stopped: somebody continued it without us.
    went_on: bool,
}

impl Stops {
    /// The warden says that the command stopped.
    pub fn stopped(&mut self, number: u8) {
        self.last = number;
        self.told = true;
        self.went_on = false;
    }

    /// A SIGTSTP came to the launcher, which no command can send it.
    pub fn wanted(&mut self) {
        self.wanted = Some(Instant::now());
    }

    /// Whether the stop that is followed now is the user's, and not the command's own.
    pub fn by_user(&mut self) -> bool {
        self.wanted.take().is_some_and(|since| since.elapsed() < SOON)
    }

    /// The warden says that the command goes on.
    pub fn continued(&mut self) {
        self.told = false;
        self.went_on = true;
    }

    /// The launcher stops now: from here on it is asked [whether the command went on](Stops::went_on).
    pub fn begins(&mut self) {
        self.went_on = false;
    }

    /// Whether the command goes on while the launcher is stopped, so that this one is to go on as well.
    pub fn went_on(&self) -> bool {
        self.went_on
    }

    /// The launcher could not stop: it is still to follow.
    pub fn not_followed(&mut self) {
        self.told = std::mem::take(&mut self.followed);
    }

    /// A SIGCONT arrived, and what the warden had said was taken: how it is to be passed on.
    pub fn go_on(&mut self) -> Option<After> {
        if self.asked {
            self.again = true;
            return None;
        }
        let followed = std::mem::take(&mut self.followed);
        if followed && self.told {
            // Stopped anew, after it had been continued together with us.
            return None;
        }
        self.asked = true;
        Some(if followed { After::Stop(self.last) } else { After::Any })
    }

    /// The warden has passed a SIGCONT on, or has not, since the command had stopped once more:
    /// what to pass on next.
    pub fn answered(&mut self, passed_on: bool) -> Option<After> {
        if !std::mem::take(&mut self.asked) {
            return None;
        }
        if passed_on {
            self.told = false;
        }
        if std::mem::take(&mut self.again) {
            self.asked = true;
            return Some(After::Any);
        }
        None
    }

    /// Whether there is a stop that the launcher follows now.
    pub fn due(&mut self) -> bool {
        if self.asked {
            return false;
        }
        let follows = std::mem::take(&mut self.told);
        self.followed |= follows;
        follows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_is_followed_once_and_continued() {
        let mut stops = Stops::default();
        assert!(!stops.due());
        stops.stopped(1);
        assert!(stops.due() && !stops.due());
        assert_eq!(stops.go_on(), Some(After::Stop(1)));
        assert_eq!(stops.answered(true), None);
        stops.continued();
        stops.stopped(2);
        assert!(stops.due());
        assert_eq!(stops.go_on(), Some(After::Stop(2)));
    }

    #[test]
    fn a_stop_told_before_the_answer_is_history() {
        let mut stops = Stops::default();
        // SIGTSTP and SIGCONT in one breath: the stop is told when the SIGCONT is on its way.
        assert_eq!(stops.go_on(), Some(After::Any));
        stops.stopped(1);
        assert!(!stops.due());
        assert_eq!(stops.answered(true), None);
        assert!(!stops.due());
        stops.stopped(2);
        assert!(stops.due());
    }

    #[test]
    fn a_new_stop_is_not_undone_by_a_late_sigcont() {
        // Told already when the launcher wakes.
        let mut stops = Stops::default();
        stops.stopped(1);
        assert!(stops.due());
        stops.stopped(2);
        assert_eq!(stops.go_on(), None);
        assert!(stops.due());
        // Told while the SIGCONT is on its way: the warden does not pass it on.
        assert_eq!(stops.go_on(), Some(After::Stop(2)));
        stops.continued();
        stops.stopped(3);
        assert!(!stops.due());
        assert_eq!(stops.answered(false), None);
        assert!(stops.due());
        assert_eq!(stops.go_on(), Some(After::Stop(3)));
    }

    #[test]
    fn no_sigcont_is_lost() {
        let mut stops = Stops::default();
        assert_eq!(stops.go_on(), Some(After::Any));
        assert_eq!(stops.go_on(), None);
        assert_eq!(stops.answered(true), Some(After::Any));
        assert_eq!(stops.answered(true), None);
        // An answer that nobody asked for means nothing.
        stops.stopped(1);
        assert_eq!(stops.answered(true), None);
        assert!(stops.due());
    }

    #[test]
    fn who_goes_on_without_us_takes_us_along() {
        let mut stops = Stops::default();
        stops.stopped(1);
        assert!(stops.due());
        stops.begins();
        assert!(!stops.went_on());
        stops.continued();
        assert!(stops.went_on());
        stops.stopped(2);
        assert!(!stops.went_on());
        stops.continued();
        assert!(stops.went_on());
        assert_eq!(stops.go_on(), Some(After::Stop(2)));
    }

    #[test]
    fn a_stop_that_could_not_be_followed_is_followed_later() {
        let mut stops = Stops::default();
        stops.stopped(1);
        assert!(stops.due());
        stops.not_followed();
        assert!(stops.due());
        assert_eq!(stops.go_on(), Some(After::Stop(1)));
    }

    #[test]
    fn a_stop_is_the_users_once_for_each_wish() {
        let mut stops = Stops::default();
        assert!(!stops.by_user());
        stops.wanted();
        assert!(stops.by_user() && !stops.by_user());
    }
}
