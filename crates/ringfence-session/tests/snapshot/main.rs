//! Snapshots against real directories.
#![allow(missing_docs, clippy::unwrap_used)]

mod attack;
mod closed;
mod forty;
mod full;
mod judged;
mod killed;
#[path = "../lists/mod.rs"]
mod lists;
mod property;
mod raced;
#[path = "../racing/mod.rs"]
mod racing;
mod scenario;
mod state;
mod store;
mod unopened;
