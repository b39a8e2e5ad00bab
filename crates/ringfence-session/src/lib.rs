//! What outlives a run: snapshots of the workspace, and the ledger of the session.
//!
//! Nothing here is on the critical path of a sandbox, and nothing starts a thread or opens a
//! file before it is asked to.

pub mod arriving;
pub mod cli;
pub mod error;
pub mod gateway;
mod judged;
pub mod ledger;
pub mod live;
pub mod outside;
pub mod overlay;
pub mod place;
pub mod renamed;
pub mod said;
pub mod snapshot;
mod wal;
pub mod whole;
pub mod wrote;

pub use error::{Result, SessionError};
