//! Which peers of a published port are told of, each by itself. Peers are whoever sends something, under whatever
//! address, and must not decide how much is on record: past a measure they are counted.

use crate::budget::Budget;
use std::time::Instant;

/// So many peers are told of at once, twice as many as are served at the same time, and so many more with each second.
const MOST: f64 = 2048.0;
const EACH_SECOND: f64 = 1.0;

/// Those that may still be told of, and what became of the others.
#[derive(Debug)]
pub(super) struct Told {
    budget: Budget,
    more: More,
}

/// Peers that are not told of by themselves: how many flows, and their bytes from the program and to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct More {
    pub flows: u64,
    pub sent: u64,
    pub received: u64,
}

impl Default for Told {
    fn default() -> Told {
        Told { budget: Budget::new(MOST, EACH_SECOND), more: More::default() }
    }
}

impl Told {
    /// Whether there is room for one more.
    pub fn take(&mut self, now: Instant) -> bool {
        self.budget.take(now, 0.0)
    }

    /// One that is not told of has ended.
    pub fn count(&mut self, sent: u64, received: u64) {
        self.more.flows += 1;
        self.more.sent += sent;
        self.more.received += received;
    }

    /// All those, once.
    pub fn more(&mut self) -> Option<More> {
        let more = std::mem::take(&mut self.more);
        (more.flows > 0).then_some(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_flood_is_counted_and_time_brings_room() {
        let mut told = Told::default();
        let now = Instant::now();
        assert_eq!((0..5000).filter(|_| told.take(now)).count(), 2048);
        let later = now + Duration::from_secs(3);
        assert_eq!((0..5000).filter(|_| told.take(later)).count(), 3);
        assert_eq!(told.more(), None);
        told.count(1, 2);
        told.count(3, 4);
        assert_eq!(told.more(), Some(More { flows: 2, sent: 4, received: 6 }));
        assert_eq!(told.more(), None);
    }
}
