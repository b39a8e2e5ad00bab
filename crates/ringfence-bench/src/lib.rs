//! `ringfence bench`: what a sandbox costs, measured on the real binary from outside, beside the
//! alternatives.
//!
//! The way of the data: [`options`] say which [`groups`] run; each makes trials in [`lanes`] (without a
//! sandbox, ringfence's tiers, peers) and takes samples of them by [`interleave`]; the samples, raw, are
//! the [`model`] that is written as JSON; [`report`], [`compare`], [`history`] and [`check`] read only
//! that. [`guard`] sees to it that nothing is left behind. Statistics are in [`stats`].
#![allow(clippy::disallowed_macros, reason = "whoever runs it reads what it says")]

pub mod background;
pub mod bench;
pub mod check;
pub mod cold;
pub mod compare;
pub mod error;
pub mod groups;
pub mod guard;
pub mod help;
pub mod history;
pub mod host;
pub mod interleave;
pub mod lanes;
pub mod library;
pub mod mcp;
pub mod measure;
pub mod model;
pub mod options;
pub mod peers;
pub mod progress;
pub mod report;
pub mod stats;
pub mod sys;
pub mod time;
pub mod tool;
pub mod work;

use error::Result;
use options::Request;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// Runs `ringfence bench`: `args` are what stands after `bench`, `ringfence` is the binary to measure
/// (the caller's own, as a rule). The caller's program must pass `bench …` on to this function, because
/// parts of it run inside sandboxes as `PROGRAM bench __tool …`.
#[must_use]
pub fn main(args: Vec<OsString>, ringfence: PathBuf) -> u8 {
    match run(args, ringfence) {
        Ok(code) => u8::try_from(code).unwrap_or(125),
        Err(error) => {
            eprintln!("ringfence: {error}");
            125
        }
    }
}

/// The same for a program of its own, where `bench` may stand first or not.
#[must_use]
pub fn main_standalone(mut args: Vec<OsString>, ringfence: PathBuf) -> ExitCode {
    if args.first().is_some_and(|first| first == "bench") {
        args.remove(0);
    }
    ExitCode::from(main(args, ringfence))
}

fn run(args: Vec<OsString>, ringfence: PathBuf) -> Result<i32> {
    // The hidden names come first: what they start is measured, and must not wait for a parser.
    match args.first().and_then(|first| first.to_str()) {
        Some("__floor") => return tool::floor::run(&args[1..]),
        Some("__tool") => return tool::run(&args[1..]),
        _ => {}
    }
    let words = args.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    match options::parse(args)? {
        Request::Help(text) => print(&text).map(|()| 0),
        Request::Measure(options) => measure::run(options, words, ringfence),
        Request::Compare { before, after, json, all } => compare::run(&before, &after, json, all),
        Request::History { dir, out } => history::run(&dir, out.as_deref()),
        Request::Check { result, baseline, limit, gates } => {
            check::run(&result, baseline.as_deref(), limit, &gates)
        }
        Request::Report { result, out } => report::again(&result, &out),
    }
}

/// Prints to standard output; that nobody reads on is no failure.
fn print(text: &str) -> Result<()> {
    use std::io::Write;
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(cause) if cause.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error::error!("cannot write to standard output: {cause}"))
        }
        _ => Ok(()),
    }
}
