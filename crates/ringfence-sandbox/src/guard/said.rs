//! What is told of protected names: what is inside decides how many sentences there would be.

use ringfence_policy::shown;
use ringfence_sys::fd::{Watched, poll};
use std::io::Write;
use std::os::fd::AsFd;

/// What was made at a name that was removed outside may be anybody's.
pub(super) const AGAIN: &str =
    "was made again, inside or outside, at a protected name that was removed outside";

/// What a sentence says of a name whose protected thing was `done` in the run.
pub(super) fn inside(done: &str) -> String {
    format!("was {done} inside and is protected")
}

/// Tells what its reader has to know before the end: it may be the user's own that was taken. Who does not take it
/// soon, such as a terminal that the command stopped, gets it at the end: nobody holds up who keeps watch.
pub(super) fn now(sentence: &str) {
    const SOON: i32 = 100;
    let stderr = std::io::stderr();
    let room = [Watched { fd: stderr.as_fd(), read: false, write: true }];
    if !poll(&room, SOON).is_ok_and(|ready| ready[0].write) {
        return;
    }
    let _ = writeln!(&stderr, "ringfence: {}", shown::message(sentence));
}

/// Sentences told at most of one kind.
const TOLD: usize = 256;

/// Sentences, so many at most, and how many more there were.
#[derive(Default)]
pub(super) struct Said {
    told: Vec<String>,
    more: usize,
}

impl Said {
    /// One more.
    pub fn push(&mut self, sentence: String) {
        match self.told.len() < TOLD {
            true => self.told.push(sentence),
            false => self.more += 1,
        }
    }

    /// All of them, those that were too many as one.
    pub fn all(mut self) -> Vec<String> {
        if self.more > 0 {
            self.told.push(format!(
                "{} more protected names were put right, too many to be told one by one",
                self.more
            ));
        }
        self.told
    }
}
