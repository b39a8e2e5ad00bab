//! `ringfence mcp`: sandboxes as tools of the Model Context Protocol.

use crate::error::Fault;
use crate::help;
use crate::options::{POLICY, parse};
use ringfence_mcp::{Config, Tools};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Options of `run` that make no sense here: the server names its session and reads its streams.
const NOT_HERE: [&str; 6] = ["name", "command", "json", "status-fd", "no-record", "dry-run"];

/// `ringfence mcp [OPTIONS]` and `ringfence mcp wrap [OPTIONS] -- SERVER [ARG...]`
///
/// # Errors
/// Bad input; the sandbox does not start.
pub fn mcp(arguments: Vec<OsString>) -> Result<u8, Fault> {
    match arguments.first().and_then(|word| word.to_str()) {
        Some("wrap") => wrap(arguments[1..].to_vec()),
        _ => serve(arguments),
    }
}

/// The session's own command.
const KEEPS: &str = "cat";

fn serve(mut options: Vec<OsString>) -> Result<u8, Fault> {
    ringfence_session::wrote::told_to(ringfence_sandbox::written);
    let parsed = parse(&POLICY, options.clone(), true)?;
    if parsed.has("help") {
        return help::command("mcp");
    }
    if !parsed.rest.is_empty() {
        return Err(Fault::usage(
            "ringfence mcp takes options of run and no command; to run another server in a \
             sandbox: ringfence mcp wrap -- SERVER",
        ));
    }
    check("mcp", &parsed)?;
    // A model chooses what is run; no name or argument of that is to choose a policy.
    if !parsed.has("for") {
        options.push(format!("--for={KEEPS}").into());
    }
    let cwd = std::env::current_dir().map_err(Fault::of)?;
    let workdir = parsed.last("workdir").map_or(cwd.clone(), |workdir| cwd.join(workdir));
    let held = std::fs::File::open(&workdir)
        .map_err(|error| Fault::usage(format!("{}: {error}", workdir.display())))?;
    ringfence_mcp::serve(Config { options, workdir, held: held.into() }).map_err(Fault::usage)?;
    Ok(0)
}

fn check(command: &str, parsed: &crate::options::Parsed) -> Result<(), Fault> {
    match NOT_HERE.iter().find(|option| parsed.has(option)) {
        Some(option) => Err(Fault::usage(format!("ringfence {command} takes no --{option}"))),
        None => Ok(()),
    }
}

fn wrap(arguments: Vec<OsString>) -> Result<u8, Fault> {
    let usage = || {
        Fault::usage(
            "name the server: ringfence mcp wrap [--tool NAME] [--deny-tool NAME] [OPTIONS] -- \
             SERVER [ARG...]",
        )
    };
    let mut tools = Tools::default();
    let mut options = Vec::new();
    let mut rest = arguments.into_iter();
    let mut dashes = false;
    while let Some(word) = rest.next() {
        if word == "--" {
            dashes = true;
            break;
        }
        let (name, value) = match word.as_bytes().iter().position(|&byte| byte == b'=') {
            Some(at) => {
                let bytes = word.as_bytes();
                (bytes[..at].to_vec(), Some(OsString::from_vec(bytes[at + 1..].to_vec())))
            }
            None => (word.as_bytes().to_vec(), None),
        };
        let list = match &name[..] {
            b"--tool" => &mut tools.allow,
            b"--deny-tool" => &mut tools.deny,
            _ => {
                options.push(word);
                continue;
            }
        };
        let shown = String::from_utf8_lossy(&name).into_owned();
        let value = value.or_else(|| rest.next());
        let value = value.as_deref().and_then(OsStr::to_str).filter(|value| !value.is_empty());
        list.push(value.ok_or_else(|| Fault::usage(format!("{shown} needs a name")))?.to_owned());
    }
    let parsed = parse(&POLICY, options.clone(), true)?;
    if parsed.has("help") {
        return help::command("mcp");
    }
    let argv: Vec<OsString> = rest.collect();
    if !dashes || argv.is_empty() || !parsed.rest.is_empty() {
        return Err(usage());
    }
    check("mcp wrap", &parsed)?;
    ringfence_mcp::wrap(&options, &argv, &tools).map_err(Fault::usage)
}
