//! `ringfence suspend SESSION`, `ringfence resume SESSION`: a virtual machine held still, and let go.
//!
//! The machine's process is stopped. It takes no processor then; its memory stays, and may be swapped out. Its
//! session, name, files and connections stay what they are, as long as the host runs.

use crate::error::Fault;
use crate::help;
use crate::options::{PLAIN, parse};
use ringfence_sandbox::vm;
use ringfence_session::live;
use std::ffi::OsString;
use std::path::PathBuf;

/// `ringfence suspend SESSION`
///
/// # Errors
/// There is no such session, it does not run, or it is of another tier.
pub fn suspend(arguments: Vec<OsString>) -> Result<u8, Fault> {
    let Some((word, launcher, mark)) = session("suspend", arguments)? else { return Ok(0) };
    if mark.exists() {
        return Err(Fault::usage(format!("session {word} is suspended already")));
    }
    // Said first: who comes in between is told so, and waits for nothing.
    std::fs::write(&mark, "").map_err(|error| failed(&mark, &error))?;
    vm::hold(launcher).map_err(|why| {
        let _ = std::fs::remove_file(&mark);
        Fault::usage(format!("session {word} cannot be suspended: {why}"))
    })?;
    Ok(0)
}

/// `ringfence resume SESSION`
///
/// # Errors
/// There is no such session, or it is not suspended.
pub fn resume(arguments: Vec<OsString>) -> Result<u8, Fault> {
    let Some((word, launcher, mark)) = session("resume", arguments)? else { return Ok(0) };
    if !mark.exists() {
        return Err(Fault::usage(format!("session {word} is not suspended")));
    }
    vm::release(launcher)
        .map_err(|why| Fault::usage(format!("session {word} cannot be resumed: {why}")))?;
    std::fs::remove_file(&mark).map_err(|error| failed(&mark, &error))?;
    Ok(0)
}

fn failed(path: &std::path::Path, error: &std::io::Error) -> Fault {
    Fault::usage(format!("{}: {error}", path.display()))
}

/// The session that is named: its word, its launcher, and where it says that it is suspended. `None`: only help
/// was wanted.
fn session(
    command: &'static str,
    arguments: Vec<OsString>,
) -> Result<Option<(String, i32, PathBuf)>, Fault> {
    let parsed = parse(&PLAIN, arguments, true)?;
    if let Some(done) = help::asked(command, &parsed) {
        return done.map(|_| None);
    }
    let [word] = &parsed.rest[..] else {
        return Err(Fault::usage(format!("name one session: ringfence {command} SESSION")));
    };
    let word = word.to_string_lossy().into_owned();
    let (session, socket) = live::find(&word).map_err(Fault::of)?;
    if !session.live {
        return Err(Fault::usage(format!("session {word} does not run")));
    }
    if session.tier != "vm" {
        return Err(Fault::usage(format!(
            "session {word} is of the {} tier: only a virtual machine can be held still as a whole; \
             stop its command with ringfence kill --signal TSTP {word}",
            session.tier
        )));
    }
    Ok(Some((word, session.pid, socket.with_file_name(live::SUSPENDED))))
}
