//! The tools: what each takes, does, and answers.

use crate::files;
use crate::server::State;
use crate::text::{LONGEST, fitting};
use crate::within::Ran;
use rmcp::model::{JsonObject, ToolAnnotations};
use serde_json::{Value, json};
use std::ffi::{OsStr, OsString};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// The longest time that a command may be given: a week, in seconds.
const LONGEST_WAIT: u64 = 604_800;

/// A structured result, or one sentence.
pub(crate) type Answer = Result<Value, String>;

/// A tool.
pub(crate) struct Tool {
    pub name: &'static str,
    pub about: &'static str,
    /// Name, type and meaning of each argument; those before `required` must be given.
    arguments: &'static [(&'static str, Kind, &'static str)],
    required: usize,
    /// It changes nothing.
    read_only: bool,
    act: fn(&State, &Given<'_>) -> Answer,
}

#[derive(Clone, Copy)]
enum Kind {
    Text,
    Words,
    Number,
}

const COMMAND: (&str, Kind, &str) =
    ("command", Kind::Words, "Program and arguments; for a shell: [\"sh\", \"-c\", \"…\"]");
const STDIN: (&str, Kind, &str) = ("stdin", Kind::Text, "What the command reads");
const TIMEOUT: (&str, Kind, &str) =
    ("timeout_seconds", Kind::Number, "The command is ended after this (default 300); code 124");
const SNAPSHOT: (&str, Kind, &str) = ("snapshot", Kind::Text, "Name or number; `latest`");
const PATHS: (&str, Kind, &str) =
    ("paths", Kind::Words, "Only these, relative to the directory; without: all");
const VERB: (&str, Kind, &str) =
    ("verb", Kind::Text, "read, write, exec, connect, http, socket or env");
const OPERANDS: (&str, Kind, &str) =
    ("operands", Kind::Words, "A path, HOST:PORT, a name; for http: METHOD and URL");

/// All of them.
pub(crate) const ALL: [Tool; 17] = [
    Tool {
        name: "exec",
        about: "Run a command in the session's sandbox, which keeps its processes and private \
                files from call to call",
        arguments: &[COMMAND, STDIN, TIMEOUT, ("workdir", Kind::Text, "Where it starts")],
        required: 1,
        read_only: false,
        act: exec,
    },
    Tool {
        name: "run",
        about: "Run a command in a fresh sandbox of its own, under the same policy",
        arguments: &[COMMAND, STDIN, TIMEOUT],
        required: 1,
        read_only: false,
        act: run,
    },
    Tool {
        name: "read_file",
        about: "Read a file, as the sandbox sees it",
        arguments: &[
            ("path", Kind::Text, "Which"),
            ("offset", Kind::Number, "First byte (default 0)"),
            ("length", Kind::Number, "Most bytes (default and most: 1 MiB)"),
        ],
        required: 1,
        read_only: true,
        act: files::read_file,
    },
    Tool {
        name: "write_file",
        about: "Write a file, where the sandbox may; makes directories on the way",
        arguments: &[("path", Kind::Text, "Which"), ("text", Kind::Text, "All it holds")],
        required: 2,
        read_only: false,
        act: files::write_file,
    },
    Tool {
        name: "list_directory",
        about: "What is in a directory, as the sandbox sees it",
        arguments: &[("path", Kind::Text, "Which")],
        required: 1,
        read_only: true,
        act: files::list_directory,
    },
    Tool {
        name: "snapshot_create",
        about: "Keep the directory as it is now, to come back to",
        arguments: &[("name", Kind::Text, "A name for it")],
        required: 0,
        read_only: false,
        act: |state, given| snapshots(state, json!({"do": "create", "name": given.maybe("name")?})),
    },
    Tool {
        name: "snapshot_list",
        about: "The session's snapshots, oldest first",
        arguments: &[],
        required: 0,
        read_only: true,
        act: |state, _| snapshots(state, json!({"do": "list"})),
    },
    Tool {
        name: "snapshot_show",
        about: "What a snapshot holds, or what is in a file of it",
        arguments: &[SNAPSHOT, ("path", Kind::Text, "A file or directory; without: all")],
        required: 1,
        read_only: true,
        act: |state, given| {
            let (snapshot, path) = (given.text("snapshot")?, given.maybe("path")?);
            snapshots(state, json!({"do": "show", "snapshot": snapshot, "path": path}))
        },
    },
    Tool {
        name: "snapshot_changes",
        about: "What differs between a snapshot and the directory as it is",
        arguments: &[SNAPSHOT, PATHS],
        required: 1,
        read_only: true,
        act: |state, given| snapshots(state, given.about("changes")?),
    },
    Tool {
        name: "snapshot_diff",
        about: "The same, line by line",
        arguments: &[SNAPSHOT, PATHS],
        required: 1,
        read_only: true,
        act: |state, given| snapshots(state, given.about("diff")?),
    },
    Tool {
        name: "snapshot_history",
        about: "What happened to a path from one snapshot of the session to the next",
        arguments: &[("path", Kind::Text, "Which")],
        required: 1,
        read_only: true,
        act: |state, given| snapshots(state, json!({"do": "history", "path": given.text("path")?})),
    },
    Tool {
        name: "snapshot_revert",
        about: "Make the directory, or paths in it, what they were; the state before is kept as a \
                snapshot too",
        arguments: &[SNAPSHOT, PATHS],
        required: 1,
        read_only: false,
        act: |state, given| snapshots(state, given.about("revert")?),
    },
    Tool {
        name: "snapshot_delete",
        about: "Forget a snapshot",
        arguments: &[SNAPSHOT],
        required: 1,
        read_only: false,
        act: |state, given| {
            snapshots(state, json!({"do": "delete", "snapshot": given.text("snapshot")?}))
        },
    },
    Tool {
        name: "why",
        about: "Whether the policy allows something, and which rule decides",
        arguments: &[VERB, OPERANDS],
        required: 2,
        read_only: true,
        act: |state, given| decision(state, given),
    },
    Tool {
        name: "request_access",
        about: "Ask for something that is denied: says what the user has to type to allow it. \
                Grants nothing",
        arguments: &[VERB, OPERANDS, ("reason", Kind::Text, "What it is needed for")],
        required: 2,
        read_only: true,
        act: request_access,
    },
    Tool {
        name: "session",
        about: "What is known of this session",
        arguments: &[],
        required: 0,
        read_only: true,
        act: |state, _| told(state, "show", &["--json"]),
    },
    Tool {
        name: "session_log",
        about: "What happened in this session: processes, connections, decisions, calls",
        arguments: &[("denied", Kind::Text, "`yes`: only what was refused")],
        required: 0,
        read_only: true,
        act: session_log,
    },
];

impl Tool {
    /// The JSON Schema of its arguments.
    pub fn schema(&self) -> JsonObject {
        let of = |kind: Kind| match kind {
            Kind::Text => json!({"type": "string"}),
            Kind::Words => json!({"type": "array", "items": {"type": "string"}}),
            Kind::Number => json!({"type": "integer", "minimum": 0}),
        };
        let mut properties = JsonObject::new();
        for (name, kind, about) in self.arguments {
            let mut value = of(*kind);
            value["description"] = (*about).into();
            properties.insert((*name).to_owned(), value);
        }
        let required = self.arguments.iter().take(self.required).map(|(name, ..)| *name);
        let mut schema = JsonObject::new();
        schema.insert("type".to_owned(), "object".into());
        schema.insert("properties".to_owned(), properties.into());
        schema.insert("required".to_owned(), required.collect::<Vec<_>>().into());
        schema.insert("additionalProperties".to_owned(), false.into());
        schema
    }

    pub fn annotations(&self) -> ToolAnnotations {
        ToolAnnotations::new().read_only(self.read_only)
    }

    /// Does it; when `cancelled` can be read, or its other end is closed, nobody waits for a command any more.
    pub fn call(&self, state: &State, arguments: &JsonObject, cancelled: BorrowedFd<'_>) -> Answer {
        let known = |name: &String| self.arguments.iter().any(|(known, ..)| known == name);
        if let Some(name) = arguments.keys().find(|name| !known(name)) {
            let known: Vec<&str> = self.arguments.iter().map(|(known, ..)| *known).collect();
            let known = match known[..] {
                [] => "it takes none".to_owned(),
                _ => format!("there are {}", known.join(", ")),
            };
            return Err(format!("{} has no argument {name}; {known}", self.name));
        }
        let answer = (self.act)(state, &Given { arguments, cancelled })?;
        match answer.to_string().len() {
            length if length > LONGEST => {
                Err(format!("the answer is too long ({length} bytes): ask for less of it"))
            }
            _ => Ok(answer),
        }
    }
}

/// The arguments of a call.
pub(crate) struct Given<'a> {
    arguments: &'a JsonObject,
    pub cancelled: BorrowedFd<'a>,
}

impl Given<'_> {
    /// Some clients write what is left out as null.
    fn value(&self, name: &str) -> Option<&Value> {
        self.arguments.get(name).filter(|value| !value.is_null())
    }

    fn maybe(&self, name: &str) -> Result<Option<String>, String> {
        let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
        let text = self
            .value(name)
            .map(|value| text(value).ok_or_else(|| format!("the argument {name} is no string")));
        text.transpose()
    }

    pub fn text(&self, name: &str) -> Result<String, String> {
        self.maybe(name)?.ok_or_else(|| format!("the argument {name} is missing"))
    }

    pub fn words(&self, name: &str) -> Result<Vec<OsString>, String> {
        let Some(value) = self.value(name) else { return Ok(Vec::new()) };
        let bad = || format!("the argument {name} is no list of strings");
        let words = value.as_array().ok_or_else(bad)?;
        words.iter().map(|word| word.as_str().map(OsString::from).ok_or_else(bad)).collect()
    }

    /// A request of the gateway about a snapshot and paths.
    fn about(&self, verb: &str) -> Result<Value, String> {
        let paths: Vec<String> =
            self.words("paths")?.iter().map(|path| path.to_string_lossy().into_owned()).collect();
        Ok(json!({"do": verb, "snapshot": self.text("snapshot")?, "paths": paths}))
    }

    pub fn number(&self, name: &str) -> Result<Option<u64>, String> {
        let Some(value) = self.value(name) else { return Ok(None) };
        // 2.0 is an integer to JSON Schema; beyond 2^53 not each one is a float.
        let whole = |float: &f64| float.fract() == 0.0 && (0.0..9e15).contains(float);
        let number =
            value.as_u64().or_else(|| value.as_f64().filter(whole).map(|float| float as u64));
        number.map(Some).ok_or_else(|| format!("the argument {name} is no number from 0 on"))
    }

    fn command(&self) -> Result<(Vec<OsString>, Vec<u8>, Duration), String> {
        let argv = self.words("command")?;
        if argv.is_empty() {
            return Err("the argument command is empty".to_owned());
        }
        let seconds = self.number("timeout_seconds")?.unwrap_or(300);
        if !(1..=LONGEST_WAIT).contains(&seconds) {
            return Err(format!("timeout_seconds must be from 1 to {LONGEST_WAIT}"));
        }
        let stdin = self.maybe("stdin")?.unwrap_or_default().into_bytes();
        Ok((argv, stdin, Duration::from_secs(seconds)))
    }
}

fn snapshots(state: &State, request: Value) -> Answer {
    state.snapshots.ask(&state.sandbox, request)
}

fn outcome(ran: &Ran) -> Value {
    let ((stdout, out), (stderr, err)) = (fitting(&ran.stdout), fitting(&ran.stderr));
    let cut = (ran.stdout.len() - out + ran.stderr.len() - err) as u64;
    json!({
        "exit_code": ran.code, "stdout": stdout, "stderr": stderr, "bytes_left_out": ran.left_out + cut,
    })
}

fn exec(state: &State, given: &Given<'_>) -> Answer {
    let (argv, stdin, timeout) = given.command()?;
    let workdir = given.maybe("workdir")?;
    let ran = state.sandbox.exec(workdir.as_deref(), timeout, &argv, stdin, given.cancelled);
    ran.map(|ran| outcome(&ran))
}

fn run(state: &State, given: &Given<'_>) -> Answer {
    let (argv, stdin, timeout) = given.command()?;
    let timeout = format!("--timeout={}s", timeout.as_secs()).into();
    state.sandbox.fresh(&[timeout], &argv, stdin, given.cancelled).map(|ran| outcome(&ran))
}

fn decision(state: &State, given: &Given<'_>) -> Answer {
    let (verb, operands) = (OsString::from(given.text("verb")?), given.words("operands")?);
    let words: Vec<&OsStr> =
        std::iter::once(&verb).chain(&operands).map(OsString::as_os_str).collect();
    let ran = state.sandbox.why(&words)?;
    json_of(&ran)
}

pub(crate) fn json_of(ran: &Ran) -> Answer {
    match serde_json::from_slice::<Value>(&ran.stdout) {
        Ok(value) if value.is_object() => Ok(value),
        _ => Err(String::from_utf8_lossy(&ran.stderr).trim().to_owned()),
    }
}

fn request_access(state: &State, given: &Given<'_>) -> Answer {
    let found = decision(state, given)?;
    let allowed = found["allowed"].as_bool().unwrap_or(false);
    let reason = given.maybe("reason")?.unwrap_or_default();
    let say = if allowed {
        "It is allowed already.".to_owned()
    } else {
        let explanation = found["explanation"].as_str().unwrap_or("it is denied");
        let remedy = found["remedy"].as_str().unwrap_or("nothing allows this");
        format!("Denied: {explanation}. Ask the user to allow it ({reason}): {remedy}")
    };
    Ok(json!({"allowed": allowed, "decision": found, "say_to_the_user": say}))
}

/// What another command prints as JSON.
fn told(state: &State, verb: &str, options: &[&str]) -> Answer {
    let ran = state.sandbox.told(verb, options)?;
    if ran.code != 0 {
        return Err(String::from_utf8_lossy(&ran.stderr).trim().to_owned());
    }
    if ran.left_out > 0 {
        return Err(format!("what is on record is too long for a tool: ringfence {verb} tells it"));
    }
    json_of(&ran)
}

/// The newest events that there is room for.
fn session_log(state: &State, given: &Given<'_>) -> Answer {
    let options: &[&str] = match given.maybe("denied")?.as_deref() {
        Some("yes") => &["--json", "--denied"],
        None | Some("no") => &["--json"],
        Some(_) => return Err("the argument denied is neither `yes` nor `no`".to_owned()),
    };
    let mut log = told(state, "logs", options)?;
    let Some(events) = log.get_mut("events").and_then(Value::as_array_mut) else { return Ok(log) };
    let mut room = LONGEST / 2;
    let fits = |event: &&Value| {
        let left = room.checked_sub(event.to_string().len() + 1);
        room = left.unwrap_or(0);
        left.is_some()
    };
    let kept = events.iter().rev().take_while(fits).count();
    let older = events.len() - kept;
    events.drain(..older);
    log["older_events_left_out"] = older.into();
    Ok(log)
}
