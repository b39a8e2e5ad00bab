//! Runs a command for an agent, and tells it in words what was refused.

use super::Hook;
use crate::error::Fault;
use crate::options::{POLICY, parse};
use crate::request;
use crate::why::as_seen;
use ringfence_policy::decide::Request;
use ringfence_policy::{Decision, Host, HostFiles, Policy, Subject, decide};
use ringfence_sandbox::itself;
use ringfence_session::live;
use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// As much of the end of standard error is searched for refusals.
const KEPT: usize = 64 << 10;

/// As many are explained.
const MOST: usize = 3;

/// What programs say when the kernel refuses them, or shows them nothing.
const REFUSED: [&str; 6] = [
    "Permission denied",
    "Read-only file system",
    "Operation not permitted",
    "No such file or directory",
    "EACCES",
    "EROFS",
];

/// What programs say when a name does not resolve, which is how a network that is closed shows itself.
const UNRESOLVED: [&str; 6] = [
    "Could not resolve host",
    "Name or service not known",
    "Temporary failure in name resolution",
    "failed to lookup address",
    "ENOTFOUND",
    "EAI_AGAIN",
];

pub(super) fn shell(hook: &Hook, rest: &[OsString]) -> Result<u8, Fault> {
    let [command] = rest else {
        return Err(Fault::usage("hooks shell takes one command; agents call it by their hook"));
    };
    let asked = start(hook)?;
    let mut run = itself::command();
    match &hook.session {
        Some(session) => run.args(["exec", session]),
        None => run.arg("run").args(&hook.options),
    };
    // A session has a directory of its own, which is not where the agent is.
    let asked = match &hook.session {
        Some(_) => std::env::current_dir().ok(),
        None => asked,
    };
    run.args(["--", "bash", "-c"]);
    if let Some(asked) = asked {
        run.arg("cd -- \"$1\" && exec bash -c \"$2\"").arg("bash").arg(asked);
    }
    run.arg(command).stderr(Stdio::piped());
    let mut child = run.spawn().map_err(Fault::of)?;
    let said = child.stderr.take().map(pass_on).unwrap_or_default();
    let status = child.wait().map_err(Fault::of)?;
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    let code = status.code().unwrap_or_else(|| 128 + signal.unwrap_or(0));
    if code != 0 {
        explain(hook, &said);
    }
    Ok(u8::try_from(code).unwrap_or(125))
}

/// Goes to where the agent's user works, which makes that the directory of the run, and what the options say is
/// relative to. Another one, which the model asked for, is where the command goes inside, if it is there.
fn start(hook: &Hook) -> Result<Option<PathBuf>, Fault> {
    let asked = std::env::current_dir().ok();
    let around = |within: &&String| asked.as_ref().is_some_and(|asked| asked.starts_with(within));
    let nearest = hook.within.iter().filter(around).max_by_key(|within| within.len());
    let Some(within) = nearest.or(hook.within.first()) else { return Ok(None) };
    std::env::set_current_dir(within)
        .map_err(|error| Fault::usage(format!("the agent's directory {within}: {error}")))?;
    Ok(asked.filter(|asked| asked != Path::new(within)))
}

/// Copies standard error, and keeps its end.
fn pass_on(mut from: impl Read) -> Vec<u8> {
    let mut kept = VecDeque::new();
    let mut buffer = [0; 8192];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let _ = std::io::stderr().write_all(&buffer[..count]);
        kept.extend(&buffer[..count]);
        let over = kept.len().saturating_sub(KEPT);
        kept.drain(..over);
    }
    kept.into()
}

/// The policy that the command ran under.
fn policy(hook: &Hook) -> Option<Policy> {
    let Some(session) = &hook.session else {
        let parsed = parse(&POLICY, hook.options.clone(), true).ok()?;
        return request::policy(&request::request(&parsed, None)).ok();
    };
    // What it was started with is in its launcher's own words, which say where they are relative to.
    let (words, directory) = live::launcher(session)?;
    let (verb, words) = words.get(1..)?.split_first()?;
    let parsed = parse(&POLICY, words.to_vec(), true).ok().filter(|_| verb == "run")?;
    std::env::set_current_dir(directory).ok()?;
    let command = parsed.rest.first().map(OsString::as_os_str);
    request::policy(&request::request(&parsed, command)).ok()
}

/// Asks the same policy about the paths that the messages name.
fn explain(hook: &Hook, said: &[u8]) {
    let Some(policy) = policy(hook) else { return };
    let text = String::from_utf8_lossy(said);
    let mut told = BTreeSet::new();
    for line in text.lines() {
        let says = |words: &[&str]| words.iter().any(|word| line.contains(word));
        let (paths, hosts) = (says(&REFUSED), says(&UNRESOLVED));
        if !paths && !hosts {
            continue;
        }
        // Of an address (`https://x.org/y`) the host is a word.
        let ends = if hosts { "'\"`‘’:;,()[]=/" } else { "'\"`‘’:;,()" };
        for word in line.split(|c: char| c.is_whitespace() || ends.contains(c)) {
            let why = match hosts {
                true => unreachable(&policy, word),
                false => refused(&policy, word),
            };
            if told.len() < MOST
                && let Some(sentence) = why
                && told.insert(sentence.clone())
            {
                ringfence_sys::say!("ringfence: {sentence}");
            }
        }
    }
}

/// Why a host is out of reach, if it is a host and is. Names without a dot are the words of the message, those
/// with capitals its program's (`urllib3.connection.HTTPSConnection`).
fn unreachable(policy: &Policy, word: &str) -> Option<String> {
    let word = word.trim_end_matches('.');
    let is_host = word.contains('.') && !word.contains(char::is_uppercase);
    let host = is_host.then(|| Host::parse(word).ok()).flatten()?;
    told(&decide(policy, &Request::Connect { host, port: 443 }))
}

/// Why a path is refused, if it is a path and is: no more than what is inside can find out, which may name any path.
fn refused(policy: &Policy, word: &str) -> Option<String> {
    if !word.starts_with('/') || word.len() < 2 {
        return None;
    }
    let subject = || Subject::on_host(Path::new(word), &HostFiles);
    let decisions = [Request::Read(subject()), Request::Write(subject())];
    let mut decided = decisions.iter().map(|request| as_seen(decide(policy, request), policy));
    decided.find_map(|decision| told(&decision))
}

/// A denial as a sentence; nothing for what is allowed.
fn told(decision: &Decision) -> Option<String> {
    if decision.allowed {
        return None;
    }
    let remedy = decision.remedy.as_ref().map_or(String::new(), |remedy| {
        format!("; if it is needed, ask the user to allow it: {remedy}")
    });
    Some(format!("the sandbox's policy: {}{remedy}", decision.explanation))
}
