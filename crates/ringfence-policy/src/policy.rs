//! [`Policy`]: what may be done, resolved for one user and one directory.
//!
//! A policy is pure data. Its paths are absolute and lexically normal, its variables
//! are expanded, its hosts are canonical. The plan, `why`, the network filter and the
//! ledger all read this one value, through [`crate::decide()`], so that they cannot disagree.

use crate::calls::CallList;
use crate::host::HostRule;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

/// Where a rule stands, for people: `profile default, filesystem.read` or `option --write`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Source {
    /// `profile NAME`, `feature NAME`, `file PATH`, `option --NAME`, or `built in`.
    pub origin: String,
    /// The key in that profile (`filesystem.read`), empty for an option.
    pub key: String,
    /// The rule as it was written.
    pub text: String,
}

/// What a path rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Seen, read and executed.
    Read,
    /// All of `Read`, and written.
    Write,
    /// Neither seen nor touched, whatever else grants it.
    Deny,
    /// Readable where granted, never written, inside a writable tree too.
    Protect,
}

/// What kind of thing a protected path guards, when more is known than its name.
///
/// It says how a *new* one is judged at the end of a run: the plain kind never survives,
/// the git kinds survive when nothing in them can be executed.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Guarded {
    /// A created one is removed.
    #[default]
    Plain,
    /// A git hooks directory: only `*.sample` files may appear.
    GitHooks,
    /// A git configuration file: no key that runs a program may appear.
    GitConfig,
    /// An existing git configuration that may change: keys that run a program stay what they are
    /// ([`Policy::git_settings`]).
    GitSettings,
    /// The file that leads a worktree's git directory to its repository (`commondir`): a new one
    /// must lead to the repository that it is in.
    GitCommon,
    /// What git writes all the time and believes ([`crate::gitstate`]): one that has git do what it does not do by
    /// itself is removed, whether it was there or not.
    GitState,
    /// An existing one is protected, a new one is the program's own business
    /// (`pyvenv.cfg` of a virtual environment made inside).
    ExistingOnly,
    /// What git's configuration has git run: a new file or link is removed, a directory of that name is no program.
    Program,
    /// Settings in JSON: keys that run or trust something keep their value, others may change
    /// ([`crate::settings`]).
    Settings,
    /// A directory of an agent's skills: the agent's own (`.system`), which it makes anew at each
    /// start, goes without a word; others do not survive.
    Skills,
    /// A directory of what a program keeps for its own session, and others of its kind would run: it has an
    /// empty one in memory in its place. The process tier puts back what was there.
    Private,
}

/// One rule about a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PathRule {
    /// What it does.
    pub access: Access,
    /// The anchor: an absolute, normalised path. With `pattern` unset, the rule covers
    /// it and everything below it.
    pub path: PathBuf,
    /// A glob over the part below `path`, where the rule does not cover the whole tree
    /// (`*` and `?` within a component, `**` across components).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// `path` is a symbolic link on the way to something: it alone is meant.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub link: bool,
    /// A missing path is no error (`PATH?` or `?PATH`).
    pub optional: bool,
    /// For `Protect`: how a created one is judged.
    pub guarded: Guarded,
    /// Why the rule exists, where the built-in list says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Where it stands.
    pub source: Source,
}

/// Something that is made before a run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Made {
    /// An absolute path, its links followed as far as it exists.
    pub path: PathBuf,
    /// It is a file with this text, else a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// A name that is protected at any depth of a writable tree (`.git/hooks`, `.vscode`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProtectedName {
    /// Path relative to any directory of a writable tree; `*` matches within a component.
    pub name: Cow<'static, str>,
    /// How a created one is judged.
    pub guarded: Guarded,
    /// Who executes or trusts it on the host.
    pub reason: Cow<'static, str>,
    /// Also protected below the first level of the tree.
    pub nested: bool,
}

/// What `$HOME` is inside.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Home {
    /// Fresh and empty but for granted paths; gone at the end.
    #[default]
    Private,
    /// A persistent private home of this name.
    Named(String),
    /// The host's own, as far as granted.
    Host,
}

/// How much network there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NetworkMode {
    /// Loopback of its own, nothing else.
    #[default]
    None,
    /// Only what the rules allow.
    Filtered,
    /// The host's network, unfiltered.
    Host,
}

/// What a port is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Connections.
    #[default]
    Tcp,
    /// Datagrams.
    Udp,
}

/// A port the host may connect in to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Publish {
    /// What it is a port of.
    #[serde(default)]
    pub transport: Transport,
    /// Address on the host.
    pub address: std::net::IpAddr,
    /// Port on the host.
    pub host_port: u16,
    /// Port inside.
    pub port: u16,
    /// Where it stands.
    pub source: Source,
}

/// What may be done with a name of the session bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BusAccess {
    /// See that it is there.
    See,
    /// Call it, and hear from it.
    Talk,
    /// Own it.
    Own,
    /// Make certain calls.
    Call,
}

/// A rule of `[dbus]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BusRule {
    /// What it grants.
    pub access: BusAccess,
    /// A well-known name, `NAME.*` for those below too.
    pub name: String,
    /// For [`BusAccess::Call`]: `INTERFACE.METHOD@/PATH`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Where it stands.
    pub source: Source,
}

/// A host rule with its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NetworkRule {
    /// Name or addresses, and ports.
    pub host: HostRule,
    /// Where it stands.
    pub source: Source,
}

/// `--http 'METHOD[,METHOD] HOST/PATH'`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HttpRule {
    /// Upper-case methods; empty means any.
    pub methods: Vec<String>,
    /// The host it concerns.
    pub host: HostRule,
    /// Normalised path; a final `*` makes it a prefix.
    pub path: String,
    /// Where it stands.
    pub source: Source,
}

/// `--inject 'HOST HEADER=SOURCE'`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InjectRule {
    /// Requests to this host get the header.
    pub host: HostRule,
    /// Header name, lower case.
    pub header: String,
    /// `env:NAME`, `file:PATH`, `fd:N`, `cmd:…`, possibly within a template; never the secret itself.
    pub secret: String,
    /// The file that `file:PATH` means; nothing inside can read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Where it stands.
    pub source: Source,
}

/// The network part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Network {
    /// How much there is.
    pub mode: NetworkMode,
    /// Who chose that; without anybody the rules decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chosen: Option<Source>,
    /// Granted destinations.
    pub allow: Vec<NetworkRule>,
    /// Refused destinations; they beat `allow`.
    pub deny: Vec<NetworkRule>,
    /// Ports the host may connect in to.
    pub publish: Vec<Publish>,
    /// Request rules (need inspection).
    pub http: Vec<HttpRule>,
    /// Credentials that the proxy adds (need inspection).
    pub inject: Vec<InjectRule>,
    /// Host paths of Unix sockets that may be connected to.
    pub sockets: Vec<PathRule>,
}

impl Network {
    /// Whether ports of that kind are published.
    pub fn publishes(&self, transport: Transport) -> bool {
        self.publish.iter().any(|publish| publish.transport == transport)
    }
}

/// What becomes of the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Environment {
    /// Start from nothing instead of from the caller's.
    pub clean: bool,
    /// Names passed although they look like credentials, with their source.
    pub pass: BTreeMap<String, Source>,
    /// Names set to a value, with their source.
    pub set: BTreeMap<String, (String, Source)>,
    /// Glob patterns of names that are hidden unless passed.
    pub hide: Vec<(String, Source)>,
}

/// What is granted for being named by the command's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arguments {
    /// It may be read where it is no directory: what names one is a word of another kind.
    Files,
    /// It may be read.
    Read,
    /// It may be written.
    Write,
    /// All of its directory may be written: programs keep files beside it, a database its journal.
    Beside,
}

/// Limits; unset means the host's own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Bytes of memory for the whole sandbox.
    pub memory: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// Processors, in thousandths (1500 = one and a half).
    pub cpus: Option<u32>,
    /// Open files for each process.
    pub open_files: Option<u64>,
    /// Bytes that may be written to the private (memory-backed) directories.
    pub disk: Option<u64>,
    /// Wall time after which everything is ended.
    pub timeout: Option<Duration>,
}

/// Which mechanism carries the policy out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TierChoice {
    /// The strongest that meets the policy.
    #[default]
    Auto,
    /// Landlock and seccomp only.
    Process,
    /// Namespaces as well.
    Namespace,
    /// A microVM.
    Vm,
}

/// A protection that a host may lack; named by `--allow-degraded`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    /// User, mount, PID, network, IPC, UTS and cgroup namespaces.
    Namespaces,
    /// Landlock file rules (kernel 5.13).
    Landlock,
    /// Landlock control of truncation (ABI 3, kernel 6.2).
    LandlockTruncate,
    /// Landlock TCP ports (ABI 4, kernel 6.7).
    LandlockNetwork,
    /// Landlock device ioctls (ABI 5, kernel 6.10).
    LandlockIoctl,
    /// Landlock scopes for abstract sockets and signals (ABI 6, kernel 6.12).
    LandlockScope,
    /// The system call filter.
    Seccomp,
    /// Supervised calls (seccomp user notification).
    SeccompNotify,
    /// A limit on memory.
    MemoryLimit,
    /// A limit on processes.
    PidsLimit,
    /// A limit on processors.
    CpusLimit,
    /// A limit on written bytes.
    DiskLimit,
    /// Kernel-enforced protection inside writable trees (else restored at the end).
    Protect,
    /// `deny` inside a granted tree.
    Deny,
    /// A private `/tmp`, `/proc` and `/dev`.
    PrivateDirectories,
    /// Modes, owners, times and attributes of files outside the writable trees.
    Metadata,
}

/// What to do with the overlay at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overlay {
    /// Ask the user.
    Ask,
    /// Write the changes to the real tree.
    Commit,
    /// Drop them.
    Discard,
    /// Keep them for a later `overlay commit`.
    Keep,
}

/// Whether the state of the directory is kept before the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Snapshot {
    /// Where it takes no more than a moment; else it is said why not.
    Auto,
    /// However long it takes; where it cannot be kept nothing runs.
    Always,
    /// Not.
    Never,
}

/// What may be done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Policy {
    /// Names of the profiles and features it was made from, in order.
    pub profiles: Vec<String>,
    /// Path rules, in the order they were given.
    pub paths: Vec<PathRule>,
    /// Symbolic links of the host met on the way from a rule as it was written to the path it
    /// means, and their targets as written: the view inside needs those that no grant shows.
    pub links: BTreeMap<PathBuf, PathBuf>,
    /// Names protected at any depth of each writable tree.
    pub protected_names: Vec<ProtectedName>,
    /// Git's configuration for all of the user's repositories: the system's, the user's own, and what these include.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub git_files: Vec<PathBuf>,
    /// Variables of the caller's that have git run something, and what they say ([`crate::git_variables`]).
    #[serde(skip)]
    pub git_variables: Vec<(&'static str, String)>,
    /// Paths that the built-in list would guard, had not a write rule named exactly them: there
    /// the rule holds.
    pub unprotected: BTreeSet<PathBuf>,
    /// Paths that rules grant for writing, and that do not exist.
    #[serde(skip)]
    pub may_appear: Vec<PathBuf>,
    /// What is made before the run, for the user alone, where it does not exist: state of the
    /// program's that would be lost otherwise, and directories that must be there to be held.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub made: Vec<Made>,
    /// Files and directories that the command's arguments name are granted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Arguments>,
    /// Shell commands that run outside before the command, with the profile that has them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<Source>,
    /// The same after it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<Source>,
    /// What home is.
    pub home: Home,
    /// The caller's home directory on the host.
    pub home_dir: PathBuf,
    /// The home of the caller's account, where `HOME` says another one: it is held as that is.
    #[serde(skip)]
    pub account_home: Option<PathBuf>,
    /// The homes of others who log in, where the caller is root: none is a workspace by itself.
    #[serde(skip)]
    pub homes_of_others: Vec<PathBuf>,
    /// The directory the command starts in.
    pub workdir: PathBuf,
    /// The network part.
    pub network: Network,
    /// Names of the session bus; none: there is no bus inside.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dbus: Vec<BusRule>,
    /// The environment part.
    pub environment: Environment,
    /// The limits.
    pub limits: Limits,
    /// The mechanism wished for.
    pub tier: TierChoice,
    /// Layers that may be missing.
    pub allow_degraded: BTreeSet<Layer>,
    /// Writes kept apart.
    pub overlay: Option<Overlay>,
    /// The call that would make a protected name is refused.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
    /// What runs inside may trace what runs inside.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub trace: bool,
    /// Git's configuration in repositories may change where that makes git run nothing else.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub git_settings: bool,
    /// The command opens its standard input by its name in `/proc` to read and write, and gets it as it is: a machine's
    /// memory. No key sets this.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub opens_input: bool,
    /// The command may make, compare and revert snapshots of its writable trees.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub gateway: bool,
    /// Whether the state before the run is kept; unset: not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Snapshot>,
    /// Only the libraries the program needs are visible.
    pub exact_libraries: bool,
    /// The only system calls that are allowed; unset: all but those refused to every command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<CallList>,
    /// Things the user should know before the run (a home directory as workspace, …).
    pub warnings: Vec<String>,
}
