//! Runs a command for an agent, and tells it in words what was refused.

use super::Hook;
use crate::error::Fault;
use crate::options::{POLICY, parse};
use crate::request;
use ringfence_policy::decide::Request;
use ringfence_policy::{HostFiles, Policy, Subject, decide};
use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

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

pub(super) fn shell(hook: &Hook, rest: &[OsString]) -> Result<u8, Fault> {
    let [command] = rest else {
        return Err(Fault::usage("hooks shell takes one command; agents call it by their hook"));
    };
    let program = std::env::current_exe().map_err(Fault::of)?;
    let mut run = Command::new(program);
    match &hook.session {
        Some(session) => run.args(["exec", session]),
        None => run.arg("run").args(&hook.options),
    };
    run.args(["--", "bash", "-c"]).arg(command).stderr(Stdio::piped());
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

/// Asks the same policy about the paths that the messages name.
fn explain(hook: &Hook, said: &[u8]) {
    if hook.session.is_some() {
        return;
    }
    let Ok(parsed) = parse(&POLICY, hook.options.clone(), true) else { return };
    let Ok(policy) = request::policy(&request::request(&parsed, None)) else { return };
    let text = String::from_utf8_lossy(said);
    let mut told = BTreeSet::new();
    for line in text.lines().filter(|line| REFUSED.iter().any(|word| line.contains(word))) {
        for word in line.split(|c: char| c.is_whitespace() || "'\"`‘’:;,()".contains(c)) {
            if told.len() < MOST
                && let Some(sentence) = refused(&policy, word)
                && told.insert(sentence.clone())
            {
                eprintln!("ringfence: {sentence}");
            }
        }
    }
}

/// Why a path is refused, if it is a path and is.
fn refused(policy: &Policy, word: &str) -> Option<String> {
    if !word.starts_with('/') || word.len() < 2 {
        return None;
    }
    let subject = || Subject::on_host(Path::new(word), &HostFiles);
    let decisions = [Request::Read(subject()), Request::Write(subject())];
    let denied = decisions.iter().map(|request| decide(policy, request)).find(|d| !d.allowed)?;
    let remedy = denied.remedy.map_or(String::new(), |remedy| {
        format!("; if it is needed, ask the user to allow it: {remedy}")
    });
    Some(format!("the sandbox's policy: {}{remedy}", denied.explanation))
}
