//! Layers made by hand, as the kernel makes them, and what a commit does with them.
#![allow(missing_docs, clippy::unwrap_used)]

mod closed;
mod commit;
mod conflict;
mod forked;
mod killed;
#[path = "../lists/mod.rs"]
mod lists;
mod partly;
mod raced;
#[path = "../racing/mod.rs"]
mod racing;
mod world;
