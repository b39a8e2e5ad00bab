//! The commands on snapshots and sessions. Each takes its arguments and gives the exit code, or
//! one sentence for the user.

mod arguments;
pub(crate) mod diff;
mod inside;
mod kill;
mod logs;
mod overlay;
mod report;
mod sessions;
mod snapshot;
pub(crate) mod text;
pub(crate) mod unified;
mod verbs;

pub use kill::kill;
pub use logs::logs;
pub use overlay::{differences, overlay, summary, tell};
pub use report::report;
pub use sessions::{find, gc, ps, rm, sessions, show};
pub use snapshot::snapshot;
