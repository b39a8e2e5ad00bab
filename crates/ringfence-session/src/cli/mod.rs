//! The commands on snapshots and sessions. Each takes its arguments and gives the exit code, or
//! one sentence for the user.

mod arguments;
mod diff;
mod snapshot;
mod text;

pub use snapshot::snapshot;
