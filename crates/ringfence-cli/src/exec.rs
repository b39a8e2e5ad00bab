//! `ringfence exec SESSION [--] CMD...`: one more command inside a session that runs.
//!
//! The way from here to the command is short on purpose: no policy, no profile, no database is
//! read. The session's warden has all that the command needs. The plain case has mostly been carried
//! out when this code is reached, or is never seen here (`ringfence_start::ask`).

use crate::error::Fault;
use crate::help;
use crate::options::{Parsed, Spec, parse};
use ringfence_sandbox::launch;
use ringfence_sandbox::live::client;
use ringfence_sandbox::live::protocol::Request;
use ringfence_session::live;
use std::ffi::{CString, OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// Its options.
pub const EXEC: [Spec; 4] = [
    Spec {
        long: "env",
        short: Some('e'),
        value: Some("NAME[=VALUE]"),
        value_optional: false,
        repeatable: true,
        help: "Add an environment variable; without a value, the one it has here",
    },
    Spec {
        long: "workdir",
        short: None,
        value: Some("DIR"),
        value_optional: false,
        repeatable: false,
        help: "Start in DIR (default: where the session's command started)",
    },
    Spec {
        long: "timeout",
        short: None,
        value: Some("DURATION"),
        value_optional: false,
        repeatable: false,
        help: "End the command after DURATION (30s, 5m); exit code 124",
    },
    Spec {
        long: "help",
        short: Some('h'),
        value: None,
        value_optional: false,
        repeatable: false,
        help: "Print help",
    },
];

/// `ringfence exec [OPTIONS] SESSION [OPTIONS] [--] CMD [ARG...]`
///
/// # Errors
/// There is no such session, it runs no more, or the command cannot be executed.
pub fn exec(arguments: impl IntoIterator<Item = OsString>) -> Result<u8, Fault> {
    let mut options = parse(&EXEC, arguments, true)?;
    let mut words = std::mem::take(&mut options.rest).into_iter();
    if options.has("help") {
        return help::command("exec");
    }
    let session = words.next().ok_or_else(usage)?;
    // Options may stand on either side of the session.
    let more = parse(&EXEC, words, true)?;
    if more.has("help") {
        return help::command("exec");
    }
    options.options.extend(more.options);
    if more.rest.is_empty() {
        return Err(usage());
    }
    let timeout = options.last("timeout").map(duration).transpose()?;
    let connection = match client::asked() {
        Some(connection) => connection,
        None => {
            let request = request(&options, &more.rest)?;
            let connection = connect(&session.to_string_lossy())?;
            client::ask(&connection, &request).map_err(fault)?;
            connection
        }
    };
    let finished = client::wait(&connection, timeout).map_err(fault)?;
    if finished.timed_out {
        ringfence_sys::say!(
            "ringfence: timed out after {:?} (--timeout)",
            timeout.unwrap_or_default()
        );
    }
    if finished.interrupted {
        // A shell loop around us must see that Ctrl-C ended the command, not an exit code.
        launch::die_of_interrupt();
    }
    Ok(finished.code)
}

fn fault((code, message): client::Failure) -> Fault {
    Fault { message, code }
}

fn usage() -> Fault {
    Fault::usage("name a session and a command: ringfence exec SESSION -- CMD [ARG...]")
}

fn duration(text: &OsStr) -> Result<Duration, Fault> {
    let text = text.to_string_lossy();
    ringfence_policy::size::duration(&text)
        .map_err(|why| Fault::usage(format!("--timeout {text}: {why}")))
}

fn request(options: &Parsed, command: &[OsString]) -> Result<Request, Fault> {
    let c =
        |text: &[u8]| CString::new(text).map_err(|_| Fault::usage("an argument holds a NUL byte"));
    let terminal = client::terminal();
    let mut environment = Vec::new();
    // The terminal is this one, whatever the session's command was started from.
    if let Some(kind) = std::env::var_os("TERM").filter(|_| terminal.is_some()) {
        environment.push(c(&[b"TERM=", kind.as_bytes()].concat())?);
    }
    for (_, given) in options.options.iter().filter(|(name, _)| *name == "env") {
        let bytes = given.as_bytes();
        if bytes.first().is_none_or(|&first| first == b'=') {
            return Err(Fault::usage(format!("-e {}: there is no name", given.display())));
        }
        if bytes.contains(&b'=') {
            environment.push(c(bytes)?);
        } else if let Some(value) = std::env::var_os(given) {
            environment.push(c(&[bytes, b"=", value.as_bytes()].concat())?);
        }
    }
    let workdir = options.last("workdir").unwrap_or_default();
    Ok(Request {
        terminal,
        workdir: c(workdir.as_bytes())?,
        argv: command.iter().map(|word| c(word.as_bytes())).collect::<Result<_, _>>()?,
        environment,
    })
}

/// Finds the session by what costs least first.
fn connect(word: &str) -> Result<OwnedFd, Fault> {
    for socket in live::sockets(word) {
        if socket.with_file_name(live::SUSPENDED).exists() {
            return Err(Fault::usage(format!(
                "session {word} is suspended: ringfence resume {word}"
            )));
        }
        if let Ok(connection) = client::connect(&socket) {
            return Ok(connection);
        }
    }
    let (session, socket) = live::find(word).map_err(Fault::of)?;
    if !session.live {
        return Err(Fault::usage(format!(
            "session {word} has ended: ringfence show {}",
            session.id
        )));
    }
    client::connect(&socket).map_err(|errno| {
        Fault::usage(format!(
            "session {word} takes no commands: connect({}): {errno:?}; it is starting or ending, \
             or it was started where sockets are refused",
            socket.display()
        ))
    })
}
