//! What a ledger holds: one type for each kind of row.

use super::text;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// One of a few words.
pub type Word = &'static str;

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It went through.
    Allow,
    /// It was refused.
    Deny,
}

impl Verdict {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Allow => "allow",
            Verdict::Deny => "deny",
        }
    }
}

/// The process a row belongs to, as the kernel told us (never as the process did).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Process {
    /// Its number, in the namespace of the host.
    pub pid: i32,
    /// Its parent's; 0 where that is not known.
    pub parent: i32,
    /// What it executes.
    #[serde(with = "text::path")]
    pub exe: PathBuf,
    /// blake3 of its arguments, each with its NUL.
    #[serde(with = "text::hash")]
    pub argv: [u8; 32],
}

impl Process {
    /// A process with the hash of its arguments.
    pub fn new(pid: i32, parent: i32, exe: PathBuf, argv: &[OsString]) -> Process {
        use std::os::unix::ffi::OsStrExt;
        let mut hasher = blake3::Hasher::new();
        for argument in argv {
            hasher.update(argument.as_bytes()).update(b"\0");
        }
        Process { pid, parent, exe, argv: *hasher.finalize().as_bytes() }
    }

    /// The calling one: what ringfence itself does for somebody.
    pub fn own() -> Process {
        let argv: Vec<OsString> = std::env::args_os().collect();
        let parent = rustix::process::getppid().map_or(0, |parent| parent.as_raw_nonzero().get());
        let exe = std::env::current_exe().unwrap_or_default();
        Process::new(std::process::id() as i32, parent, exe, &argv)
    }
}

/// What happened to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileChange {
    /// It is new.
    Created,
    /// Its bytes or attributes changed.
    Modified,
    /// It is gone.
    Deleted,
    /// It has another path; `from` is the old one.
    Renamed,
    /// A revert brought it back.
    Restored,
}

impl FileChange {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            FileChange::Created => "created",
            FileChange::Modified => "modified",
            FileChange::Deleted => "deleted",
            FileChange::Renamed => "renamed",
            FileChange::Restored => "restored",
        }
    }
}

/// How something ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ended {
    /// With an exit code.
    Code(u8),
    /// By a signal.
    Signal(i32),
}

impl Ended {
    pub(super) fn code(self) -> Option<u8> {
        if let Ended::Code(code) = self { Some(code) } else { None }
    }

    pub(super) fn signal(self) -> Option<i32> {
        if let Ended::Signal(signal) = self { Some(signal) } else { None }
    }
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A program was executed.
    Exec {
        /// Its arguments, the first its name.
        #[serde(with = "text::words")]
        argv: Vec<OsString>,
        /// Where.
        #[serde(with = "text::path")]
        cwd: PathBuf,
    },
    /// The process ended; completes its `Exec`.
    Exit {
        /// How; none where the kernel does not say.
        ended: Option<Ended>,
        /// After what time.
        #[serde(with = "text::micros")]
        duration: Duration,
    },
    /// A connection, at its end.
    Network {
        /// `tcp`, `udp` or `unix`.
        #[serde(deserialize_with = "text::protocol")]
        protocol: Word,
        /// The name, where one was known; none of many peers.
        host: Option<String>,
        /// The address that was dialled.
        address: Option<IpAddr>,
        /// The port; none of many peers.
        port: Option<u16>,
        /// The published port at which somebody outside came in; host, address and port are his.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        published: Option<u16>,
        /// How many peers this row counts, where it is not about one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        peers: Option<u64>,
        /// Bytes that went out.
        sent: u64,
        /// Bytes that came in.
        received: u64,
        /// From the first byte to the last.
        #[serde(with = "text::micros")]
        duration: Duration,
        /// What was decided.
        verdict: Verdict,
        /// Why it was refused, or failed although it was allowed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// A question to our resolver.
    Dns {
        /// The name.
        name: String,
        /// The type of record: `A`, `AAAA`…
        record: String,
        /// The answer's code (RFC 1035, 4.1.1).
        code: u8,
        /// The first address of the answer.
        answer: Option<IpAddr>,
        /// What was decided.
        verdict: Verdict,
        /// The time the resolver took.
        #[serde(with = "text::micros")]
        duration: Duration,
    },
    /// An inspected request.
    Http {
        /// Its method.
        method: String,
        /// Its host.
        host: String,
        /// Its path, with the query.
        path: String,
        /// The answer's status, if one came.
        status: Option<u16>,
        /// Bytes of the request's body.
        sent: u64,
        /// Bytes of the answer's body.
        received: u64,
        /// From the request to the end of the answer.
        #[serde(with = "text::micros")]
        duration: Duration,
        /// What was decided.
        verdict: Verdict,
        /// Why it was refused, or failed although it was allowed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// A file of a writable tree changed.
    File {
        /// How.
        change: FileChange,
        /// Which.
        #[serde(with = "text::path")]
        path: PathBuf,
        /// What it was called before.
        #[serde(with = "text::maybe_path")]
        from: Option<PathBuf>,
        /// Its bytes now.
        size: Option<u64>,
    },
    /// An allow or a deny.
    Decision {
        /// Which.
        verdict: Verdict,
        /// What was to be done: `read`, `write`, `connect`…
        act: String,
        /// To what.
        object: String,
        /// The rule that decided, with where it stands.
        rule: String,
        /// The layer that took it.
        layer: String,
    },
    /// A call of a tool.
    ToolCall {
        /// The server; empty for our own.
        server: String,
        /// The tool.
        tool: String,
        /// Its arguments, JSON.
        arguments: String,
        /// What went wrong, if something did.
        error: Option<String>,
        /// What was decided.
        verdict: Verdict,
        /// How long it took.
        #[serde(with = "text::micros")]
        duration: Duration,
    },
    /// Something was done with a snapshot.
    Snapshot {
        /// `create`, `revert`, `delete` or `compact`.
        #[serde(deserialize_with = "text::verb")]
        verb: Word,
        /// Its number.
        snapshot: i64,
        /// Its name.
        name: Option<String>,
        /// Paths that changed in the workspace.
        paths: u64,
    },
    /// A credential was put into a request.
    Substitution {
        /// Where to.
        host: String,
        /// Into which header.
        header: String,
        /// Where it came from (`env:NAME`). Never the value: there is no place for one.
        source: String,
    },
    /// A call of a language model's API.
    ModelCall {
        /// Who serves it.
        provider: String,
        /// The model.
        model: String,
        /// Tokens of the request.
        input: Option<u64>,
        /// Tokens of the answer.
        output: Option<u64>,
        /// Tools that the answer calls.
        tool_calls: u64,
        /// The answer's status.
        status: Option<u16>,
        /// From the request to the end of the answer.
        #[serde(with = "text::micros")]
        duration: Duration,
    },
}
