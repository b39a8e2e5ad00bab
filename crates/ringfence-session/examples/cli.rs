//! The commands of this crate alone, for trying them out without the launcher.
#![allow(clippy::disallowed_macros, reason = "whoever runs it reads what it says")]

use ringfence_session::cli;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let command = args.next().unwrap_or_default();
    let rest = args.collect();
    let result = match command.to_str() {
        Some("snapshot") => cli::snapshot(rest),
        Some("ps") => cli::ps(rest),
        Some("show") => cli::show(rest),
        Some("logs") => cli::logs(rest),
        Some("report") => cli::report(rest, &|_| false),
        Some("rm") => cli::rm(rest),
        Some("gc") => cli::gc(rest),
        _ => Err("one of snapshot, ps, show, logs, report, rm, gc".to_owned()),
    };
    result.map_or_else(
        |message| {
            eprintln!("ringfence: {message}");
            ExitCode::from(125)
        },
        ExitCode::from,
    )
}
