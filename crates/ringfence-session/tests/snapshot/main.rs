//! Snapshots against real directories.
#![allow(missing_docs, clippy::unwrap_used)]

mod attack;
mod forty;
mod killed;
mod property;
mod scenario;
mod state;
mod store;
