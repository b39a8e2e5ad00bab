//! A guard in front of somebody else's server, which runs in a sandbox.
//!
//! Messages are lines of JSON (MCP, transports, stdio). Each is parsed and written anew, so that
//! the server reads what was judged: a key that stands twice, for one, stands once afterwards. Answers
//! are passed on to requests that wait for one, and as what was asked for: a list of tools is not to be
//! had as the answer to something else. A call that is never answered has its row all the same: when its server has
//! ended, or when the guard is told to end.

use crate::judged::{self, Judged};
use crate::line::{self, Outline, Unreadable};
use crate::message::{alike, error, known_by, odd, plain, spelt};
use ringfence_sandbox::itself;
use ringfence_session::ledger::{self, Event, Process, Verdict};
use ringfence_session::live;
use ringfence_sys::{process, signal};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// The longest line, with its end: of one that is longer no more is kept than whose it is.
const LONGEST: usize = 64 << 20;

/// Which tools of the server are to be had.
#[derive(Clone, Debug, Default)]
pub struct Tools {
    /// Only these; none: all.
    pub allow: Vec<String>,
    /// Not these.
    pub deny: Vec<String>,
}

impl Tools {
    /// The rule that denies a tool, as an option.
    fn denied(&self, name: &str) -> Option<String> {
        if odd(name) {
            return Some("no tool's name has control characters".to_owned());
        }
        // A server may take another spelling for it.
        if let Some(denied) = self.deny.iter().find(|denied| alike(denied.trim(), name.trim())) {
            return Some(format!("--deny-tool {denied}"));
        }
        let listed = self.allow.is_empty() || self.allow.iter().any(|allowed| allowed == name);
        (!listed).then(|| "only the tools named by --tool are allowed".to_owned())
    }
}

/// Rows that are kept until there is a session to write them to.
const MOST_EARLY: usize = 1024;

struct Guard<'a> {
    tools: &'a Tools,
    server: String,
    session: String,
    /// The session's launcher: another session may have had its name.
    launcher: u32,
    directory: OnceLock<PathBuf>,
    /// What came before the session was there.
    early: Mutex<Vec<Event>>,
    /// Requests that the server has not answered, by their identifiers.
    open: Mutex<HashMap<String, Asked>>,
}

/// What a request asks for.
enum Asked {
    Tools,
    /// Whether the client cancelled it, and whether there is a row of it already.
    Call {
        tool: String,
        arguments: String,
        began: Instant,
        cancelled: bool,
        recorded: bool,
    },
    Other,
}

/// What asks the guard to end: HUP, INT, TERM. They are the server's, and the rows of what it has not answered are
/// written first, since a client that ends a server asks it no further.
const ENDING: [i32; 3] = [1, 2, 15];

/// Runs a server in a sandbox (`ringfence run OPTIONS -- ARGV`) and stands between it and the
/// client. Returns its exit code.
///
/// # Errors
/// It cannot be started.
pub fn wrap(options: &[OsString], argv: &[OsString], tools: &Tools) -> Result<u8, String> {
    let session = format!("mcp-{}", std::process::id());
    let mut command = itself::command();
    command.arg("run").args(options).args(["--name", &session, "--"]).args(argv);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    // A client that has waited long enough kills the guard: a server that takes no end for one goes with it.
    let child = process::spawn_bound(&mut command);
    let mut child = child.map_err(|error| format!("cannot run ringfence: {error}"))?;
    // Before there is anything to record, and after the server began, which would have them blocked as well.
    let ending = signal::SignalSet::of(&ENDING);
    signal::set_mask(ending).map_err(|error| format!("cannot block signals: {error}"))?;
    let server = argv.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let guard = Guard {
        tools,
        server,
        session,
        launcher: child.id(),
        directory: OnceLock::new(),
        early: Mutex::default(),
        open: Mutex::default(),
    };
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let launcher = process::pidfd(child.id() as i32)
        .map_err(|error| format!("cannot open the server's process: {error}"))?;
    let no_thread = |error| format!("cannot start a thread: {error}");
    std::thread::scope(|scope| {
        let guard = &guard;
        std::thread::Builder::new()
            .spawn_scoped(scope, move || {
                while let Ok(arrived) = signal::wait(ending, None) {
                    guard.unanswered("the guard was told to end before the server answered");
                    // A terminal's Ctrl-C reaches the server's launcher by itself.
                    if arrived.by_process {
                        let _ = signal::send(launcher.as_fd(), arrived.signal);
                    }
                }
            })
            .map(drop)
            .map_err(no_thread)?;
        if let Some(mut stdin) = stdin {
            // The client's side may outlive the server's: it ends with the process.
            std::thread::Builder::new()
                .spawn_scoped(scope, move || {
                    for_each_line(io::stdin().lock(), LONGEST, |line| {
                        guard.clients(line).is_none_or(|line| send(&mut stdin, &line))
                    });
                })
                .map(drop)
                .map_err(no_thread)?;
        }
        let mut heard = true;
        if let Some(stdout) = stdout {
            for_each_line(BufReader::new(stdout), LONGEST, |line| {
                heard = guard.servers(line).is_none_or(|line| send(&mut io::stdout(), &line));
                heard
            });
        }
        let why = if heard { "the server ended before it answered" } else { "the client had gone" };
        // Who says nothing any more answers nothing; before the session's end, where there is time.
        guard.unanswered(why);
        let status = child.wait().map_err(|error| format!("cannot wait: {error}"))?;
        guard.unanswered(why);
        // The other thread waits for a client that has nobody to talk to any more.
        std::process::exit(status.code().unwrap_or(125))
    })
}

/// What came until the end of a line.
enum Came<'a> {
    Line(&'a [u8]),
    /// More than is kept of one.
    TooLong(Outline),
}

/// Calls `act` with each line, until there is none, or `act` says so.
fn for_each_line(mut input: impl BufRead, longest: usize, mut act: impl FnMut(Came<'_>) -> bool) {
    let mut more = true;
    while more {
        let mut line = Vec::new();
        let mut outline: Option<Outline> = None;
        loop {
            let came = match input.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                came => came.unwrap_or_default(),
            };
            more = !came.is_empty();
            let end = came.iter().position(|&byte| byte == b'\n');
            let length = end.map_or(came.len(), |at| at + 1);
            if outline.is_none() && line.len() + length > longest {
                let mut known = Outline::default();
                std::mem::take(&mut line).into_iter().for_each(|byte| known.byte(byte));
                outline = Some(known);
            }
            match &mut outline {
                Some(outline) => came[..length].iter().for_each(|&byte| outline.byte(byte)),
                None => line.extend_from_slice(&came[..length]),
            }
            input.consume(length);
            if end.is_some() || !more {
                break;
            }
        }
        let goes_on = match outline {
            Some(outline) => act(Came::TooLong(outline)),
            None => line.trim_ascii().is_empty() || act(Came::Line(&line)),
        };
        more &= goes_on;
    }
}

fn send(to: &mut impl Write, message: &Value) -> bool {
    let mut line = message.to_string().into_bytes();
    line.push(b'\n');
    to.write_all(&line).and_then(|()| to.flush()).is_ok()
}

impl Guard<'_> {
    fn record(
        &self,
        tool: &str,
        arguments: &str,
        verdict: Verdict,
        why: Option<String>,
        began: Instant,
    ) {
        self.write(vec![self.row(tool, arguments, verdict, why, began)]);
    }

    fn row(
        &self,
        tool: &str,
        arguments: &str,
        verdict: Verdict,
        why: Option<String>,
        began: Instant,
    ) -> Event {
        Event::ToolCall {
            server: self.server.clone(),
            tool: tool.to_owned(),
            arguments: arguments.chars().take(4096).collect(),
            error: why,
            verdict,
            duration: began.elapsed(),
        }
    }

    /// The client waits for a call no more. Its server may answer all the same, or never.
    fn cancelled(&self, message: &Value) {
        let id = message.pointer("/params/requestId").and_then(known_by);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Asked::Call { cancelled, .. }) = id.and_then(|id| open.get_mut(&id)) {
            *cancelled = true;
        }
    }

    /// Records the calls that have no answer. One that comes all the same is passed on: a server may end by and by, or
    /// take a signal for something else.
    fn unanswered(&self, why: &str) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left: Vec<(Instant, Event)> = Vec::new();
        for asked in open.values_mut() {
            if let Asked::Call { tool, arguments, began, cancelled, recorded } = asked
                && !*recorded
            {
                *recorded = true;
                let why = if *cancelled { "the client cancelled it" } else { why };
                let why = Some(why.to_owned());
                left.push((*began, self.row(tool, arguments, Verdict::Allow, why, *began)));
            }
        }
        drop(open);
        // The order in which they were asked.
        left.sort_by_key(|(began, _)| *began);
        self.write(left.into_iter().map(|(_, row)| row).collect());
    }

    /// Writes rows, with those that came before there was anything to write to.
    fn write(&self, more: Vec<Event>) {
        let mut early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
        early.extend(more);
        if self.directory.get().is_none()
            && let Ok((found, socket)) = live::find(&self.session)
            && u32::try_from(found.pid) == Ok(self.launcher)
        {
            let _ = self.directory.set(socket.parent().map(PathBuf::from).unwrap_or_default());
        }
        if let Some(directory) = self.directory.get() {
            for event in early.drain(..) {
                let _ = ledger::append(directory, Some(&Process::own()), &event);
            }
        } else {
            // Whoever asks without end before a server is there has no more rows than these.
            early.truncate(MOST_EARLY);
        }
    }

    /// What the server gets of a client's message; else the client has its answer already.
    fn clients(&self, line: Came<'_>) -> Option<Value> {
        let refuse = |answer: Value| {
            send(&mut io::stdout(), &answer);
            None
        };
        let line = match line {
            Came::Line(line) => line,
            Came::TooLong(outline) => match judged::too_long(outline, LONGEST) {
                Judged::Wrong(answer) => return refuse(answer),
                _ => return None,
            },
        };
        let mut message = match line::read(line) {
            Ok(message) => message,
            Err(Unreadable { id, why, .. }) => {
                let id = id.filter(|id| known_by(id).is_some()).unwrap_or(Value::Null);
                return refuse(error(&id, -32700, &format!("the message cannot be read: {why}")));
            }
        };
        if !message.is_object() {
            // Batches left the protocol with its version of 2025-06-18.
            return refuse(error(&Value::Null, -32600, "a message is one JSON object"));
        }
        plain(&mut message);
        let id = message.get("id").cloned().unwrap_or(Value::Null);
        let method = match message.get("method") {
            // The answer to a request of the server's.
            None => return Some(message),
            Some(Value::String(method)) if !odd(method) => method.clone(),
            Some(_) => {
                return refuse(error(&id, -32600, "a method is a text without control characters"));
            }
        };
        // Without an identifier it is a notification, which has no answer.
        let request = message.get("id").is_some();
        let key = known_by(&id);
        if request && key.is_none() {
            let text = "an id is a text without control characters, or a whole number";
            return refuse(error(&Value::Null, -32600, text));
        }
        let refuse = |answer: Value| if request { refuse(answer) } else { None };
        let asked = match method.trim() {
            method if alike(method, "tools/list") => Asked::Tools,
            method if alike(method, "tools/call") => {
                if let Some(params) = message.get_mut("params") {
                    spelt(params, &["name", "arguments"]);
                }
                let Some(tool) = message["params"]["name"].as_str().map(ToOwned::to_owned) else {
                    return refuse(error(&id, -32602, "the parameters name no tool"));
                };
                let arguments = message["params"]["arguments"].to_string();
                if let Some(rule) = self.tools.denied(&tool) {
                    let rule_text = Some(rule.clone());
                    self.record(&tool, &arguments, Verdict::Deny, rule_text, Instant::now());
                    let text = format!(
                        "ringfence refused the tool {tool:?}: {rule}. The user decides this where \
                         the server is started (`ringfence mcp wrap`); ask for it, with the reason."
                    );
                    let content = json!([{"type": "text", "text": text}]);
                    let result = json!({"content": content, "isError": true});
                    return refuse(json!({"jsonrpc": "2.0", "id": id, "result": result}));
                }
                let began = Instant::now();
                Asked::Call { tool, arguments, began, cancelled: false, recorded: false }
            }
            "notifications/cancelled" => {
                self.cancelled(&message);
                Asked::Other
            }
            _ => Asked::Other,
        };
        if let Some(key) = key {
            let Ok(mut open) = self.open.lock() else { return None };
            match open.entry(key) {
                Entry::Vacant(entry) => drop(entry.insert(asked)),
                Entry::Occupied(_) => {
                    drop(open);
                    return refuse(error(&id, -32600, "another request with this id waits"));
                }
            }
        }
        Some(message)
    }

    /// What the client gets of a server's message.
    fn servers(&self, line: Came<'_>) -> Option<Value> {
        let left_out = |what: &str| {
            ringfence_sys::say!("ringfence: the server wrote {what}; it was left out");
            None
        };
        let read = match line {
            Came::Line(line) => line::read(line),
            Came::TooLong(outline) => {
                let why = format!("it is longer than {LONGEST} bytes");
                Err(Unreadable::of(outline, why))
            }
        };
        let mut message = match read {
            Ok(message) if message.is_object() => message,
            // Who waits for it waits no more.
            Err(Unreadable { id: Some(id), method: false, why }) => {
                error(&id, -32603, &format!("the server's answer cannot be read: {why}"))
            }
            Err(Unreadable { why, .. }) => return left_out(&format!("what is no message ({why})")),
            Ok(_) => return left_out("what is no message"),
        };
        plain(&mut message);
        let answer = ["result", "error"].iter().any(|name| message.get(name).is_some());
        if message.get("method").is_some() {
            return if answer { left_out("a request that is an answer") } else { Some(message) };
        }
        let id = message.get("id").cloned().unwrap_or(Value::Null);
        if id.is_null() && message.get("error").is_some() && message.get("result").is_none() {
            // It could not make out which request this is about.
            return Some(message);
        }
        let asked = {
            let Ok(mut open) = self.open.lock() else { return None };
            known_by(&id).filter(|_| answer).and_then(|key| open.remove(&key))
        };
        match asked {
            None => return left_out("an answer to nothing that was asked"),
            Some(Asked::Call { recorded: true, .. }) => {}
            Some(Asked::Call { tool, arguments, began, .. }) => {
                let failed = message.get("error").is_some() || message["result"]["isError"] == true;
                let why = failed.then(|| {
                    let said = &message["error"]["message"];
                    said.as_str().unwrap_or("the tool failed").to_owned()
                });
                self.record(&tool, &arguments, Verdict::Allow, why, began);
            }
            Some(Asked::Tools) => {
                if let Some(result) = message.get_mut("result") {
                    spelt(result, &["tools"]);
                }
                let tools = message.pointer_mut("/result/tools").and_then(Value::as_array_mut);
                if let Some(tools) = tools {
                    tools.iter_mut().for_each(|tool| spelt(tool, &["name"]));
                    tools.retain(|tool| {
                        tool["name"].as_str().is_some_and(|name| self.tools.denied(name).is_none())
                    });
                }
            }
            Some(Asked::Other) => {}
        }
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_lines_that_are_too_long_it_is_known_whose_they_are() {
        let long = "x".repeat(100);
        let lines = format!(
            "{{\"id\":1}}\n\n{{\"id\":2,\"result\":\"{long}\"}}\n{{\"result\":\"{long}\",\"id\":3}}\n\
             {{\"id\":4}}\n{{\"id\":5,\"result\":\"{long}"
        );
        let mut told = Vec::new();
        let mut act = |came: Came<'_>| {
            told.push(match came {
                Came::Line(line) => String::from_utf8_lossy(line).trim().to_owned(),
                Came::TooLong(outline) => {
                    format!("{:?}", Unreadable::of(outline, String::new()).id)
                }
            });
            true
        };
        // Whatever comes at once.
        for at_once in [1, 7, 4096] {
            for_each_line(BufReader::with_capacity(at_once, lines.as_bytes()), 100, &mut act);
        }
        let one =
            ["{\"id\":1}", "Some(Number(2))", "Some(Number(3))", "{\"id\":4}", "Some(Number(5))"];
        assert_eq!(told, [one, one, one].concat());
    }
}
