//! How much there may be of something that others decide: so much at once, and more with time.

use std::time::Instant;

/// What is left of it.
#[derive(Debug)]
pub(crate) struct Budget {
    most: f64,
    each_second: f64,
    left: f64,
    since: Instant,
}

impl Budget {
    /// So much at once, and so much more with each second, up to that.
    pub fn new(most: f64, each_second: f64) -> Budget {
        Budget { most, each_second, left: most, since: Instant::now() }
    }

    /// Takes one, unless there is none left; `kept` are for others.
    pub fn take(&mut self, now: Instant, kept: f64) -> bool {
        let gained = now.saturating_duration_since(self.since).as_secs_f64() * self.each_second;
        self.since = now;
        self.left = (self.left + gained).min(self.most);
        let enough = self.left >= kept + 1.0;
        self.left -= if enough { 1.0 } else { 0.0 };
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_burst_uses_it_up_and_time_brings_it_back() {
        let mut budget = Budget::new(100.0, 100.0);
        let start = budget.since;
        let taken =
            |budget: &mut Budget, now, kept| (0..1000).filter(|_| budget.take(now, kept)).count();
        assert_eq!(taken(&mut budget, start, 50.0), 50);
        assert_eq!(taken(&mut budget, start, 0.0), 50);
        let later = start + Duration::from_millis(100);
        assert_eq!(taken(&mut budget, later, 50.0), 0);
        assert_eq!(taken(&mut budget, later, 0.0), 10);
        let much_later = start + Duration::from_secs(3600);
        assert_eq!(taken(&mut budget, much_later, 0.0), 100);
        let mut slow = Budget::new(2048.0, 1.0);
        let start = slow.since;
        assert_eq!(taken(&mut slow, start, 0.0) + taken(&mut slow, start, 0.0), 2000);
        assert_eq!(taken(&mut slow, start + Duration::from_secs(3), 0.0), 51);
    }
}
