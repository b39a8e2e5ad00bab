//! Runs a command for an agent, and tells it in words what was refused.

use super::Hook;
use crate::error::Fault;
use crate::options::{POLICY, parse};
use crate::{request, why};
use ringfence_policy::decide::Request;
use ringfence_policy::{Decision, Host, HostFiles, Policy, Subject, decide};
use ringfence_sandbox::itself;
use ringfence_session::live;
use std::collections::{BTreeSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// As much of the end of standard error is searched for refusals.
const KEPT: usize = 64 << 10;

/// As many are explained.
const MOST: usize = 3;

/// What programs say when the kernel refuses them, or shows them nothing, in small letters.
const REFUSED: [&str; 7] = [
    "permission denied",
    "read-only file system",
    "operation not permitted",
    "no such file or directory",
    "device or resource busy",
    "eacces",
    "erofs",
];

/// Words of theirs when it was for writing.
const WRITING: [&str; 18] = [
    "read-only",
    "erofs",
    "busy",
    "write",
    "writing",
    "written",
    "create",
    "creating",
    "touch",
    "remove",
    "move",
    "overwrite",
    "changing",
    "mkdir",
    "unlink",
    "rename",
    "lock",
    "tee",
];

/// And when it was for a connection to a socket.
const CONNECTING: [&str; 4] = ["connect", "connecting", "dial", "socket"];

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
    let directory = asked.clone().or_else(|| std::env::current_dir().ok());
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
        let ran = Ran { directory: directory.unwrap_or_default(), command };
        explain(hook, &ran, &said);
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

/// A command that failed.
struct Ran<'a> {
    /// Where it was started, which what it names is relative to.
    directory: PathBuf,
    command: &'a OsStr,
}

impl Ran<'_> {
    /// Whether it has a shell write a path (`> x`), as the command spells that.
    fn writes(&self, path: &Path) -> bool {
        let command = self.command.to_string_lossy();
        command.split('>').skip(1).any(|after| {
            let after = after.trim_start_matches(['|', '&', ' ', '"', '\'']);
            let end = |c: char| c.is_whitespace() || "\"';|&()<".contains(c);
            let named = after.split(end).next().unwrap_or_default();
            let named = named.trim_start_matches("~/").trim_start_matches("$HOME/");
            let named = named.trim_start_matches("./");
            !named.is_empty() && path.ends_with(named)
        })
    }
}

/// What a message is about.
struct Message {
    writing: bool,
    connecting: bool,
    /// The word before what it says of it, which is a name however it looks.
    about: Option<String>,
}

impl Message {
    fn of(line: &str) -> Message {
        let small = line.to_lowercase();
        // Letters that become longer when they are small would have it end elsewhere.
        let at = REFUSED.iter().filter_map(|word| small.find(word)).min();
        let before = at.and_then(|at| line.get(..at)).unwrap_or_default();
        let before = before.trim_end_matches([':', ' ', '\'', '"', '`', '’']);
        let about = before.rsplit(apart(ENDS)).next().map(ToOwned::to_owned);
        // A name says nothing of what was done with it.
        let is_about =
            |word: &&str| about.as_deref().is_some_and(|about| about.to_lowercase() == **word);
        let words: Vec<&str> = small.split(apart(ENDS)).filter(|word| !is_about(word)).collect();
        let says = |known: &[&str]| words.iter().any(|word| known.contains(word));
        let (writing, connecting) = (says(&WRITING), says(&CONNECTING));
        Message { writing, connecting, about }
    }
}

/// What stands around names in a message, and in one about hosts: of an address (`https://x.org/y`) the host is a word.
const ENDS: &str = "'\"`‘’:;,()";
const ENDS_OF_HOSTS: &str = "'\"`‘’:;,()[]=/";

fn apart(ends: &str) -> impl Fn(char) -> bool {
    move |c| c.is_whitespace() || ends.contains(c)
}

/// Asks the same policy about the paths that the messages name.
fn explain(hook: &Hook, ran: &Ran<'_>, said: &[u8]) {
    let Some(policy) = policy(hook) else { return };
    let text = String::from_utf8_lossy(said);
    let mut told = BTreeSet::new();
    for line in text.lines() {
        let small = line.to_lowercase();
        let paths = REFUSED.iter().any(|word| small.contains(word));
        let hosts = UNRESOLVED.iter().any(|word| line.contains(word));
        if !paths && !hosts {
            continue;
        }
        let message = Message::of(line);
        for word in line.split(apart(if hosts { ENDS_OF_HOSTS } else { ENDS })) {
            let why = match hosts {
                true => unreachable(&policy, word),
                false => refused(&policy, ran, &message, word),
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

/// Why a path is refused, if it is a path and is.
fn refused(policy: &Policy, ran: &Ran<'_>, message: &Message, word: &str) -> Option<String> {
    let is_about = message.about.as_deref() == Some(word);
    // Other words are the message's own.
    if word.len() < 2 || !(is_about || word.trim_end_matches('.').contains(['/', '.'])) {
        return None;
    }
    let word = ran.directory.join(word);
    let subject = || Subject::on_host(Path::new(&word), &HostFiles);
    let (read, write) = (Request::Read(subject()), Request::Write(subject()));
    let requests = if message.connecting || is_socket(&word) {
        vec![Request::Socket(subject())]
    } else if message.writing || ran.writes(&word) {
        vec![write]
    } else {
        vec![read, write]
    };
    // No more than what is inside can find out, which may name any path.
    let answered = |request| why::as_seen(why::carried_out(policy, &request), policy);
    let decisions = requests.into_iter().map(answered);
    // What may be made in a private directory is not there all the same, where nobody has made what it lies in.
    let lacks = |decision: &Decision| {
        matches!(decision.request, Request::Write(_)) && decision.layer == "private"
    };
    let mut decision =
        decisions.into_iter().find(|decision| !decision.allowed || lacks(decision))?;
    if word.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::PermissionDenied) {
        // Whatever is granted.
        decision.remedy = None;
        decision.explanation += "; it is closed to the user outside, too";
    }
    if decision.allowed {
        decision.explanation = decision.effect.take()?;
        decision.allowed = decision.remedy.is_none();
    }
    told(&decision)
}

/// Whether a name is one of a socket, by what it is called: what is there is not looked at.
fn is_socket(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "sock" || end == "socket")
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
