//! What the command line tells its user when it cannot go on.

use std::fmt::Display;

/// One sentence and the exit code that goes with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The sentence.
    pub message: String,
    /// 125 for ringfence's own failures, 126 and 127 for the command's.
    pub code: u8,
}

impl Fault {
    /// Bad input.
    pub fn usage(message: impl Into<String>) -> Fault {
        Fault { message: message.into(), code: 125 }
    }

    /// Any failure of ringfence itself.
    pub fn of(error: impl Display) -> Fault {
        Fault { message: error.to_string(), code: 125 }
    }
}
