//! The options of the commands on records of sessions, for help and completions.

use crate::error::Fault;
use crate::help;
use crate::options::{Spec, flag, one};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

const HELP: Spec = flag("help", Some('h'), "Print help");
const JSON: Spec = flag("json", None, "Print JSON");

/// Of `ps`.
pub const PS: [Spec; 3] = [flag("all", None, "Those that ended, too"), JSON, HELP];
/// Of `show`.
pub const SHOW: [Spec; 2] = [JSON, HELP];
/// Of `logs`.
pub const LOGS: [Spec; 5] = [
    flag("follow", None, "Go on printing what comes, until the session ends"),
    flag("denied", None, "Only what was refused"),
    one("kind", "KIND[,KIND]", "Only rows of these kinds (exec, network, dns, http, file, ...)"),
    JSON,
    HELP,
];
/// Of `report`.
pub const REPORT: [Spec; 2] =
    [one("output", "FILE", "Write the page to FILE instead of standard output"), HELP];
/// Of `kill`.
pub const KILL: [Spec; 2] =
    [one("signal", "SIGNAL", "Send the command SIGNAL, and wait for nothing"), HELP];
/// Of `rm`.
pub const RM: [Spec; 2] =
    [flag("force", None, "Also those whose writes wait to be committed: they are dropped"), HELP];
/// Of `gc`.
pub const GC: [Spec; 3] =
    [flag("all", None, "All that ended, not only those of over 30 days"), JSON, HELP];

/// Calls such a command, or tells what it takes.
///
/// # Errors
/// The command's.
pub fn call(
    name: &str,
    run: fn(Vec<OsString>) -> Result<u8, String>,
    arguments: Vec<OsString>,
) -> Result<u8, Fault> {
    let mut options = arguments.iter().take_while(|word| word.as_bytes() != b"--");
    if options.any(|word| matches!(word.as_bytes(), b"-h" | b"--help")) {
        return help::command(name);
    }
    run(arguments).map_err(Fault::usage)
}
