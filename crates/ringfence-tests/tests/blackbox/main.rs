//! The real binary against the real kernel: one test program, one module for each subject.
#![allow(missing_docs, clippy::unwrap_used)]

mod dbus;
mod environment;
mod exec;
mod exit_codes;
mod faults;
mod files;
mod filtered;
mod hostile;
mod information;
mod inspection;
mod kernel_calls;
mod learn;
mod libraries;
mod lifetime;
mod limits;
mod metadata;
mod network;
mod programs;
mod protected;
mod publish;
mod sessions;
mod streams;
mod terminal;
mod truth;
