//! What the gateway decided, for the monitor and the ledger.

use ringfence_policy::{Decision, Host};
use std::ffi::OsString;
use std::io::Read;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

/// How a program asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It connected, and was redirected.
    Connect,
    /// It asked for a name, for records of this type ([`crate::dns::record_name`]).
    Dns(u16),
    /// It spoke to the HTTP proxy.
    HttpProxy,
    /// It spoke to the SOCKS5 proxy.
    Socks,
    /// Somebody outside sent datagrams to this published port; host and port are the peer's.
    Published(u16),
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Allowed; a connection is being made.
    Allowed,
    /// Refused, by a rule or for what was seen on the wire; the sentence says why.
    Denied(String),
    /// Allowed, and then impossible: unresolvable, unreachable, refused by the other side.
    Failed(String),
    /// What the program has said on an allowed connection waits to be whole, and nothing follows it; a sentence.
    Held(String),
    /// An allowed connection was ended for what was seen on the wire, after it had carried something.
    Cut {
        /// A sentence.
        why: String,
        /// Bytes from the program.
        sent: u64,
        /// Bytes to the program.
        received: u64,
        /// How long it lasted.
        duration: Duration,
    },
    /// An allowed connection has ended.
    Closed {
        /// Bytes from the program.
        sent: u64,
        /// Bytes to the program.
        received: u64,
        /// How long it lasted.
        duration: Duration,
    },
    /// Peers of a published port that were not told of by themselves, since there were so many; all together.
    Counted {
        /// How many, each time that one came after a silence.
        flows: u64,
        /// Bytes from the program.
        sent: u64,
        /// Bytes to the program.
        received: u64,
    },
    /// A request of an inspected connection has been answered, by its server or by a refusal.
    Request(Box<Exchange>),
}

/// One request and its answer. Queries and header values are not kept: they hold credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exchange {
    /// The method.
    pub method: String,
    /// The path, in the spelling that was sent, without its query.
    pub path: String,
    /// The answer's status; none when it never came.
    pub status: Option<u16>,
    /// Why it was refused.
    pub refused: Option<String>,
    /// Why there is no answer of the server's, although it was allowed.
    pub failed: Option<String>,
    /// Why the answer is not whole; the status is the server's own.
    pub broken: Option<String>,
    /// Bytes of the request's body.
    pub sent: u64,
    /// Bytes of the answer's body.
    pub received: u64,
    /// From the request's head to the answer's end.
    pub duration: Duration,
    /// The credentials that went to the server with it.
    pub injected: Vec<Injection>,
    /// What was read off a language model's answer.
    pub model: Option<ModelCall>,
}

impl Exchange {
    /// Why it did not go well.
    pub fn why(&self) -> Option<&str> {
        let all = [&self.refused, &self.failed, &self.broken];
        all.into_iter().find_map(|why| why.as_deref())
    }
}

/// A credential that was put into a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Injection {
    /// The header's name.
    pub header: String,
    /// Where it came from, as the rule names it: `env:NAME`, `file:PATH`, `fd:N`; of a command `cmd` alone, since
    /// what it says may be a secret.
    pub source: String,
}

/// A call of a language model, as its answer tells of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelCall {
    /// Whose interface it is: `anthropic`, `openai`, …
    pub provider: String,
    /// The model's name.
    pub model: String,
    /// Tokens of the question.
    pub input: u64,
    /// Tokens of the answer.
    pub output: u64,
    /// Calls of tools in the answer.
    pub tool_calls: u32,
}

/// A process inside, as the host sees it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// Its number on the host.
    pub pid: i32,
    /// The program that it runs, by its name in the sandbox's view; none when it ended before it
    /// could be looked at.
    pub exe: Option<PathBuf>,
    /// Its arguments, cut off after 4 KiB.
    pub argv: Vec<OsString>,
    /// Its parent's number, as it was then; none where that was out of sight.
    pub parent: Option<i32>,
}

impl Process {
    /// What a process is now.
    pub fn of(pid: i32) -> Process {
        const MOST: u64 = 4096;
        let exe = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
        let mut words = Vec::new();
        if let Ok(file) = std::fs::File::open(format!("/proc/{pid}/cmdline")) {
            let _ = file.take(MOST).read_to_end(&mut words);
        }
        let words = words.strip_suffix(b"\0").unwrap_or(&words);
        let word = |word: &[u8]| std::ffi::OsStr::from_bytes(word).to_owned();
        let argv = words.split(|&byte| byte == 0).map(word).collect();
        Process { pid, exe, argv, parent: ringfence_sys::process::parent_of(pid) }
    }
}

/// One decision about the network, or the end of what it allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetDecision {
    /// The same for all events of one connection, unique in a session.
    pub id: u64,
    /// How it was asked.
    pub way: Way,
    /// The host that was meant.
    pub host: Host,
    /// The port, 0 for a question about a name.
    pub port: u16,
    /// The address that was dialled.
    pub address: Option<IpAddr>,
    /// Who asked, where that could be found.
    pub process: Option<Process>,
    /// What became of it.
    pub event: Event,
    /// The policy's answer, with its rule and its remedy.
    pub decision: Option<Decision>,
}

/// Takes decisions as they are made; called on the gateway's thread, so it must not block.
pub type Sink = Box<dyn Fn(NetDecision) + Send + Sync>;
