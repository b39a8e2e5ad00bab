//! The policy, from outside: one program, which is compiled and linked once.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;
mod decide;
mod deciding;
mod elsewhere;
mod gitconfig;
mod gitruns;
mod gitstate;
mod homes;
mod host;
mod import;
mod path;
mod presets;
mod profile;
mod random_bytes;
mod reach;
mod registry;
mod resolve;
mod shipped;
mod workdir;
