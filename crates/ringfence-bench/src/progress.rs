//! What a terminal shows while the bench runs: where it is, and how long it still takes.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;

/// The steps that the whole bar is divided into.
const STEPS: f64 = 1000.0;

/// A bar on standard error, if that is a terminal; else nothing at all.
///
/// It is drawn between runs only, never by a thread of its own, so that it doesn't take a processor
/// from what is being measured.
pub struct Progress {
    bar: ProgressBar,
    total: f64,
    done: f64,
    current: f64,
    part: f64,
    parts: f64,
}

impl Progress {
    /// A bar for groups of the given weights, in seconds.
    #[must_use]
    pub fn new(weights: &[f64]) -> Progress {
        let shown = std::io::stderr().is_terminal();
        let target = if shown {
            ProgressDrawTarget::stderr_with_hz(5)
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(STEPS as u64), target);
        if let Ok(style) =
            ProgressStyle::with_template("{prefix:>10} {bar:30} {eta:>4} left  {wide_msg}")
        {
            bar.set_style(style);
        }
        let total = weights.iter().sum::<f64>().max(1.0);
        Progress { bar, total, done: 0.0, current: 0.0, part: 0.0, parts: 1.0 }
    }

    /// A group of this weight, made of so many workloads, begins.
    pub fn group(&mut self, name: &str, weight: f64) {
        self.done += self.current;
        (self.current, self.part, self.parts) = (weight, 0.0, 1.0);
        self.bar.set_prefix(name.to_owned());
        self.within(0.0);
    }

    /// The group is made of so many workloads.
    pub fn workloads(&mut self, count: usize) {
        self.parts = count.max(1) as f64;
    }

    /// The next workload begins.
    pub fn next(&mut self) {
        self.part = (self.part + 1.0).min(self.parts);
        self.within(0.0);
    }

    /// The present workload has come this far, from 0 to 1.
    pub fn within(&mut self, share: f64) {
        let of_group = ((self.part + share) / self.parts).min(1.0);
        let place = (self.done + self.current * of_group) / self.total;
        self.bar.set_position((place * STEPS) as u64);
    }

    /// What is running now.
    pub fn show(&mut self, text: &str) {
        self.bar.set_message(text.to_owned());
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
