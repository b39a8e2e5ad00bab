//! Snapshots for who is inside: the confined command asks over a socket, the launcher makes, lists,
//! compares and reverts them, and the command never sees the store.
//!
//! ```text
//! command ──connect──► /run/ringfence/gateway.sock ──► launcher: one thread, from the first knock on
//!     {"do":"create","name":"base"}\n                      store of the writable tree
//!     ◄── {"ok":true,"snapshot":{…}}\n
//! ```
//!
//! What comes over the socket is hostile. So:
//!
//! - Only the session's own snapshots can be named, and only its writable trees. A snapshot that
//!   another session or a person made is not there, by its number too.
//! - What is denied, protected or read-only inside is left out of every answer and of every revert
//!   ([`Tree::except`]), whatever a snapshot holds of it.
//! - No path is resolved from outside: names beneath the tree, no links followed, no mount crossed.
//! - The thread gives its capabilities up: it can do to files what the command itself could.
//! - A line ends after 64 KiB, an answer after 1 MiB, connections, snapshots and the store's growth
//!   are numbered.

mod act;
pub mod client;
pub mod forks;
mod lent;
mod look;
mod peer;
mod serve;

pub use act::Actor;
pub use peer::Peer;
pub use serve::Service;

use crate::ledger::Event;
use std::path::PathBuf;

/// The variable that says inside where the socket is.
pub const VARIABLE: &str = "RINGFENCE_GATEWAY";

/// The longest request, in bytes with its newline.
pub const LONGEST_REQUEST: usize = 64 << 10;
/// The most bytes of differences in an answer.
pub const LONGEST_DIFFERENCES: usize = 1 << 20;
/// The most paths in an answer.
pub const MOST_PATHS: usize = 10_000;
/// The most snapshots that a session may keep of a tree.
pub const MOST_SNAPSHOTS: usize = 100;
/// By so many bytes a session may let the store of a tree grow.
pub const MOST_GROWTH: u64 = 4 << 30;
/// Connections at once.
pub const MOST_CONNECTIONS: usize = 32;

/// What a session may ask for.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Its identifier.
    pub session: String,
    /// Its writable trees; the first one is meant where none is named.
    pub trees: Vec<Tree>,
}

/// A writable tree.
#[derive(Clone, Debug)]
pub struct Tree {
    /// Where it is.
    pub path: PathBuf,
    /// What of it is not shown and not reverted; see [`crate::snapshot::Select::except`].
    pub except: Vec<PathBuf>,
}

/// Hears what was done, on the service's thread: who asked, and the row for the record.
pub type Told = Box<dyn Fn(&Peer, &Event) + Send>;

/// Of this thread alone: who is root outside could otherwise be asked for what a command without
/// capabilities cannot do.
pub fn give_up_capabilities() {
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    let none = CapabilitySet::empty();
    // Giving up is never refused.
    let _ = set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: none, inheritable: none },
    );
}
