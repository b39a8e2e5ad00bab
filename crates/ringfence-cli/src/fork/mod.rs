//! `ringfence fork SESSION N [WORD...]`: clones of a warm program that runs in a session; of one of the vm tier
//! `ringfence fork SESSION`: another session that goes on from where it is.

mod machine;

pub use machine::Source;

use crate::error::Fault;
use crate::help;
use crate::options::{Spec, flag, one, parse};
use ringfence_session::gateway::forks;
use ringfence_session::live;
use ringfence_session::snapshot::fault;
use std::ffi::OsString;
use std::io::Write;
use std::time::Duration;

/// Its options.
pub const FORK: [Spec; 5] = [
    one("name", "NAME", "Name the new session, of a virtual machine"),
    one(
        "timeout",
        "DURATION",
        "Wait so long for the session (default: 1s), and for a program in it that is a template (default: 30s)",
    ),
    one(
        "helper",
        "LANGUAGE",
        "Print what makes a program a template: python (a module), c (a header)",
    ),
    flag("json", None, "Print the exit codes of the clones, in order"),
    flag("help", Some('h'), "Print help"),
];

/// The module that makes a Python program a template.
const PYTHON: &str = include_str!("ringfence_template.py");
/// The header that makes a C program one.
const C: &str = include_str!("ringfence_template.h");

/// How long a template is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a session is waited for that may be about to start.
const COMING: Duration = Duration::from_secs(1);

/// `ringfence fork [OPTIONS] SESSION [N] [--] [WORD...]`
///
/// # Errors
/// There is no such session, or no template in it.
pub fn fork(arguments: Vec<OsString>) -> Result<u8, Fault> {
    let mut parsed = parse(&FORK, arguments, true)?;
    let mut words = std::mem::take(&mut parsed.rest).into_iter();
    if parsed.has("help") {
        return help::command("fork");
    }
    if let Some(language) = parsed.last("helper") {
        help::no_words("fork --helper", words.as_slice())?;
        return match language.to_str() {
            Some("python") => print(PYTHON),
            Some("c") => print(C),
            _ => Err(Fault::usage(format!(
                "--helper {}: there are python and c; for others docs/sessions.md has the protocol",
                language.display()
            ))),
        };
    }
    let usage =
        || Fault::usage("name a session and a number: ringfence fork SESSION N [--] [WORD...]");
    let session = words.next().ok_or_else(usage)?;
    let number = words.next();
    // `--` may stand before the words.
    let more = parse(&FORK, words, true)?;
    parsed.options.extend(more.options);
    let given = match parsed.last("timeout") {
        Some(text) => {
            let text = text.to_string_lossy();
            ringfence_policy::size::duration(&text)
                .map(Some)
                .map_err(|why| Fault::usage(format!("--timeout {text}: {why}")))?
        }
        None => None,
    };
    if let Some(why) = ringfence_sandbox::launch::refused_streams(true) {
        return Err(Fault::usage(why));
    }
    let patience = given.unwrap_or(PATIENCE);
    let session = session.to_string_lossy();
    let (found, socket) =
        live::find_within(&session, given.unwrap_or(COMING)).map_err(Fault::of)?;
    if !found.live {
        return Err(Fault::usage(format!("session {session} has ended")));
    }
    if found.tier == "vm" {
        return machine::fork(&found, &socket, &session, &parsed, (number, &more.rest));
    }
    if parsed.has("name") {
        return Err(Fault::usage("--name is for forks of virtual machines (--tier vm)"));
    }
    let number = number.ok_or_else(usage)?;
    let clones: u32 = number.to_str().and_then(|number| number.parse().ok()).ok_or_else(usage)?;
    fault::from_environment();
    let socket = socket.with_file_name(live::FORKS);
    let codes = forks::fork(&socket, clones, &more.rest, patience).map_err(Fault::of)?;
    if parsed.has("json") {
        let codes: Vec<String> = codes.iter().map(u8::to_string).collect();
        print(&format!("{{\"schema\": 1, \"codes\": [{}]}}\n", codes.join(", ")))?;
    }
    Ok(codes.into_iter().find(|code| *code != 0).unwrap_or(0))
}

fn print(text: &str) -> Result<u8, Fault> {
    std::io::stdout().write_all(text.as_bytes()).map(|()| 0).map_err(Fault::of)
}
