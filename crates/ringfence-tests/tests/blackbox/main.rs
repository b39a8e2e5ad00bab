//! The real binary against the real kernel: one test program, one module for each subject.
#![allow(missing_docs, clippy::unwrap_used)]

mod environment;
mod exit_codes;
mod faults;
mod files;
mod hostile;
mod information;
mod kernel_calls;
mod lifetime;
mod limits;
mod metadata;
mod network;
mod programs;
mod protected;
mod streams;
mod terminal;
mod truth;
