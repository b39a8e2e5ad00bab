//! What the black-box tests share: the real binary, the people who call it, a place of their
//! own on the host, and ways to wait that end.
//!
//! A test reads as a sentence about [`everywhere`]: it is run for each [`Person`] that the
//! caller may become, in each [`Tier`], each time in a fresh [`Place`].
//!
//! Nothing here sleeps, and little polls: ends are noticed by pidfds and by the end of file on pipes
//! that every process of a sandbox holds. Each wait has a bound, past which the test fails; what a test
//! itself waits for without one is killed in the end (`watched`).
#![allow(clippy::disallowed_macros, reason = "whoever runs it reads what it says")]

mod binary;
mod finished;
mod held;
mod person;
mod place;
mod ports;
mod programs;
mod running;
mod stuck;
mod terminal;
mod watched;

use std::io::Write as _;
use std::time::Instant;

pub use binary::binary;
pub use finished::Finished;
pub use held::{held, lets_go};
pub use person::{Person, people};
pub use place::{Place, Tier};
pub use ports::free_port;
pub use programs::{copy_program, write_program};
pub use running::{PATIENCE, Running};
pub use terminal::Terminal;

/// Runs a test for each person in each tier.
pub fn everywhere(test: impl Fn(&Place)) {
    for person in people() {
        for tier in Tier::here() {
            let _watched = watched::watched();
            test(&Place::new(person, tier));
        }
    }
}

/// Runs a test for each person in one tier.
pub fn everybody(tier: Tier, test: impl Fn(&Place)) {
    if !Tier::here().contains(&tier) {
        return;
    }
    for person in people() {
        let _watched = watched::watched();
        test(&Place::new(person, tier));
    }
}

/// Waits until something holds that nothing tells: it is looked at again and again.
///
/// # Panics
/// It does not come to hold.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < PATIENCE, "not within {} s: {what}", PATIENCE.as_secs());
        std::thread::yield_now();
    }
}

/// Says that a part of a test was left out, and why: it must be something that this machine lacks,
/// never something that fails. It goes to standard error, and as a line to the file that
/// `RINGFENCE_LEFT_OUT` names, which `scripts/test` shows in the end: what a test that passes
/// says, cargo keeps to itself.
pub fn left_out(what: &str, why: &str) {
    let why = why.lines().next().unwrap_or_default();
    eprintln!("left out: {what}: {why}");
    let Some(list) = std::env::var_os("RINGFENCE_LEFT_OUT") else { return };
    let list = std::fs::OpenOptions::new().append(true).open(list);
    // One write, so that the lines of several tests do not mix.
    let line = format!("{what}: {why}\n");
    if let Err(error) = list.and_then(|mut list| list.write_all(line.as_bytes())) {
        panic!("the list of what is left out: {error}");
    }
}
