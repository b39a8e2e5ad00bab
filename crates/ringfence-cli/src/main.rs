//! `ringfence`: runs any command inside a boundary that its user can prove.
//!
//! This crate parses, calls and prints; nothing is decided here.

mod advice;
mod agents;
mod allow;
mod changes;
mod commands;
mod consent;
mod copy;
mod desktop;
mod doctor;
mod error;
mod exec;
mod explain;
mod fork;
mod generate;
mod heard;
mod held;
mod help;
mod hooks;
mod import;
mod integrate;
mod learn;
mod learnt_calls;
mod lesson;
mod libraries;
mod mcp;
mod missing;
mod monitor;
mod options;
mod overlay;
mod plan;
mod profile_new;
mod profiles;
mod proposed;
mod record;
mod records;
mod request;
mod run;
mod status;
mod suspend;
mod trust;
mod unpack;
mod vm;
mod watch;
mod why;

use error::Fault;
use ringfence_sandbox::launch;
use std::process::ExitCode;

fn main() -> ExitCode {
    launch::become_warden();
    ringfence_sys::signal::bear_limits_of_files();
    ringfence_sys::signal::hear_of_children();
    let mut arguments = std::env::args_os().skip(1);
    let name = arguments.next();
    if let Some(code) = name.as_ref().and_then(|name| vm::inner(name.to_str()?, &mut arguments)) {
        return ExitCode::from(code);
    }
    let result = match name.as_ref().map(|name| name.to_string_lossy()).as_deref() {
        Some("run") => run::run(arguments),
        Some("exec") => exec::exec(arguments),
        Some(ringfence_sandbox::vm::FORK) => run::forked(arguments),
        Some(name) => commands::call(name, arguments),
        None => help::overview().and(Ok(125)),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(Fault { message, code }) => {
            ringfence_sys::say!("ringfence: {}", ringfence_policy::shown::message(&message));
            ExitCode::from(code)
        }
    }
}
