//! What a run has come to.

use crate::ask::Asked;
use std::time::Instant;

/// How a run ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The exit code that stands for it.
    pub code: u8,
    /// When it had ended: what is put right and looked at afterwards takes its time.
    pub ended: Option<Instant>,
    /// The signal that ended the command, if one did.
    pub signal: Option<i32>,
    /// The time ran out.
    pub timed_out: bool,
    /// The launcher itself was interrupted from the terminal.
    pub interrupted: bool,
    /// What was put right afterwards, a sentence each.
    pub restored: Vec<String>,
    /// A sentence about what the command wrote into a private home.
    pub gone: Option<String>,
    /// Limits that were reached, a sentence each.
    pub limits_hit: Vec<String>,
    /// Calls that the user was to be asked about.
    pub asked: Vec<Asked>,
}
