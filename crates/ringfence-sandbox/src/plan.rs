//! [`Plan`]: what the kernel will be told to do on this host, in order, each step with the
//! policy rule it came from.
//!
//! A plan is pure data: [`crate::planner::plan`] makes it from a policy and the facts of the host, `ringfence plan`
//! prints it, golden tests pin it, and [`crate::launch`] carries it out without deciding anything again.

mod apart;
mod besides;
mod bus;
mod gateway;
mod guarded;
mod landlock;
mod lean;
mod paths;

pub use apart::Apart;
pub use besides::{Besides, Entry};
pub use bus::{Bus, BusGrant};
pub use gateway::{Gateway, GatewayTree};
pub use guarded::{Found, GuardStep, GuardedTree};
pub use landlock::{FileRule, Landlock, PortRule, Rights};
pub use paths::shown;

use ringfence_net::inspect::Content;
use ringfence_policy::{Layer, NetworkMode, Publish, Source};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// Version of the JSON form.
pub const SCHEMA: u32 = 1;

/// Stands for the process tier's private directory in values of variables.
pub const PRIVATE: &str = "<private>";

/// The mechanism that carries a plan out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Landlock, seccomp and limits.
    Process,
    /// All of that, and namespaces.
    Namespace,
}

impl Tier {
    /// The word users know it by.
    pub fn name(self) -> &'static str {
        match self {
            Tier::Process => "process",
            Tier::Namespace => "namespace",
        }
    }
}

/// What is done to one path of the sandbox's view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub enum MountOp {
    /// The new root: an empty memory-backed file system, read-only once all is in place.
    Root {
        /// Bytes that may be written to it and to the private directories on it.
        #[serde(skip_serializing_if = "Option::is_none")]
        size: Option<u64>,
    },
    /// The new root is the host's, read-only.
    HostRoot {
        /// Bytes that may be written to the private directories.
        #[serde(skip_serializing_if = "Option::is_none")]
        size: Option<u64>,
    },
    /// A writable directory of the sandbox's own; what is in it ends with the sandbox.
    Private {
        /// Permission bits.
        mode: u32,
    },
    /// A symbolic link, as the host has it.
    Symlink {
        /// What it points to.
        #[serde(serialize_with = "paths::write")]
        target: PathBuf,
    },
    /// The host's file or directory of the same path.
    Bind {
        /// A directory, with all that is mounted below it.
        directory: bool,
        /// Nothing in it can be changed.
        read_only: bool,
        /// Device nodes in it work.
        devices: bool,
    },
    /// A directory of the host that is covered by an empty one, which shows what further steps
    /// put there, and is read-only once all is in place.
    Cover,
    /// As `Cover`, by one overlay: the links and libraries below are names in a skeleton of it.
    Skeleton,
    /// A file of the host below a `Skeleton`, for reading.
    Library,
    /// A process file system that shows the sandbox's processes only.
    Proc,
    /// Terminals of the sandbox's own.
    Terminals,
    /// The terminal that the command inherits, so that `ttyname(3)` finds a name for it.
    Console {
        /// Its name on the host.
        #[serde(serialize_with = "paths::write")]
        from: PathBuf,
    },
    /// A persistent home, kept elsewhere on the host.
    NamedHome {
        /// Where it is kept.
        #[serde(serialize_with = "paths::write")]
        from: PathBuf,
        /// What is written goes to a layer; where that is, as for `Overlay`.
        #[serde(default, serialize_with = "paths::write", skip_serializing_if = "Option::is_none")]
        apart: Option<PathBuf>,
    },
    /// As `Bind`, but what is written goes to a layer of its own; the host's stays as it is.
    Overlay {
        /// A directory; else one file in one.
        directory: bool,
        /// Where `upper` and `work` of the layer are; see [`Plan::keep_apart`].
        #[serde(serialize_with = "paths::write", skip_serializing_if = "is_empty")]
        apart: PathBuf,
    },
    /// A public file of this session's, read-only; what is in it is known once the session has
    /// begun, and handed over by its launcher.
    Data {
        /// Which.
        content: Content,
    },
    /// A directory of the host, read-only, with files of ringfence's own besides.
    Besides(Besides),
    /// A Unix socket behind which the launcher keeps snapshots; see [`Gateway`].
    Gateway,
    /// A Unix socket behind which the launcher has the session bus; see [`Bus`].
    Bus,
    /// Bound onto itself, so that it cannot be renamed away with what it protects.
    Pin,
    /// The same for a symbolic link: it cannot be exchanged for something else.
    PinLink,
    /// Bound onto itself read-only.
    Protect,
    /// Covered by a directory in memory, empty and writable.
    Emptied,
    /// Covered by something empty that nobody can open.
    Mask {
        /// Covered by a directory.
        directory: bool,
    },
    /// The same over a symbolic link itself: its name leads nowhere.
    MaskLink,
}

/// One step of building the view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountStep {
    /// Where.
    #[serde(serialize_with = "paths::write")]
    pub path: PathBuf,
    /// What.
    #[serde(flatten)]
    pub op: MountOp,
    /// Why.
    pub rule: Source,
}

/// What the filter does with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Refused with `EPERM`.
    Refuse,
    /// Refused with `ENOSYS`, so that libraries fall back.
    NotImplemented,
    /// Refused with `EAFNOSUPPORT`.
    FamilyNotSupported,
    /// Refused with `EACCES`.
    AccessDenied,
    /// Done by the launcher in the caller's place, if the policy allows it.
    Supervise,
    /// The caller's process is killed with `SIGSYS`.
    Kill,
    /// The user is asked, on the terminal; refused with `EPERM` where that cannot be.
    Ask,
    /// Noted by the launcher, then carried out as it was made: for the record. The session's own
    /// call, known by [`MARKS`], is not.
    Observe,
}

/// The only calls that are allowed, where a profile lists them. Rules come first: what they
/// refuse stays refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AllowedCalls {
    /// Names, with those that are always allowed; some are no other architecture's.
    pub calls: Vec<String>,
    /// What becomes of all others.
    pub otherwise: Verdict,
}

/// A test of one argument; only its low 32 bits count, as the kernel itself reads these
/// arguments as `int` (CVE-2019-7303 came from comparing all 64).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Test {
    /// `arg == value`.
    Equals(u32),
    /// `arg != value`.
    Differs(u32),
    /// `arg & mask != 0`.
    AnyBit(u32),
    /// `arg & mask == value`.
    Masked(u32, u32),
    /// `arg & mask != value`.
    MaskDiffers(u32, u32),
}

/// One rule of the system call filter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallRule {
    /// The call's name.
    pub call: &'static str,
    /// What happens when all tests hold.
    pub verdict: Verdict,
    /// Argument index and test; none: always.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tests: Vec<(u8, Test)>,
    /// Why.
    pub reason: &'static str,
}

/// One change of the environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub enum EnvironmentStep {
    /// Set, whatever it was.
    Set {
        /// Name.
        name: String,
        /// Value.
        value: String,
        /// Why.
        rule: Source,
    },
    /// Not passed on.
    Hide {
        /// Name.
        name: String,
        /// Why.
        rule: Source,
    },
    /// Passed on, although it looks like a credential or the rest is not.
    Pass {
        /// Name.
        name: String,
        /// Why.
        rule: Source,
    },
    /// Everything else is not passed on either.
    Clean {
        /// Why.
        rule: Source,
    },
}

/// How a limit is enforced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "kebab-case")]
pub enum LimitStep {
    /// A control group of version 2.
    Cgroup {
        /// The directory under which the sandbox's group is made.
        #[serde(serialize_with = "paths::write")]
        parent: PathBuf,
        /// File and value, in order.
        settings: Vec<(String, String)>,
    },
    /// A control group of version 1.
    CgroupV1 {
        /// The controller's directory under which the sandbox's group is made.
        #[serde(serialize_with = "paths::write")]
        parent: PathBuf,
        /// File and value, in order.
        settings: Vec<(String, String)>,
    },
    /// `RLIMIT_NOFILE`.
    OpenFiles {
        /// For each process.
        count: u64,
    },
    /// `RLIMIT_NPROC`, counted within the user namespace.
    Processes {
        /// For the sandbox.
        count: u64,
    },
    /// The processors the sandbox may run on.
    Processors {
        /// How many.
        count: u32,
    },
    /// The size of the private directories.
    PrivateSize {
        /// Bytes.
        bytes: u64,
    },
    /// No core files: they would hold the program's memory, and on most hosts start a program
    /// of the host's.
    CoreFiles,
    /// The supervisor's clock.
    Timeout {
        /// Milliseconds.
        milliseconds: u64,
    },
}

fn is_empty(path: &Path) -> bool {
    path.as_os_str().is_empty()
}

/// A protection that is weaker than the policy asks, accepted by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Degraded {
    /// The layer.
    pub layer: Layer,
    /// What is missing, in one sentence.
    pub what: String,
}

impl Plan {
    /// Directories of the sandbox's own, but those below `/dev`, which a guest has of its own.
    pub fn private(&self) -> impl Iterator<Item = &Path> {
        let private = |step: &&MountStep| matches!(step.op, MountOp::Private { .. });
        let steps = self.mounts.iter().filter(private);
        steps.map(|step| step.path.as_path()).filter(|path| !path.starts_with("/dev"))
    }

    /// Where layers are seen.
    pub fn apart(&self) -> impl Iterator<Item = &Path> {
        let apart = |step: &&MountStep| match &step.op {
            MountOp::Overlay { .. } => true,
            MountOp::NamedHome { apart, .. } => apart.is_some(),
            _ => false,
        };
        self.mounts.iter().filter(apart).map(|step| step.path.as_path())
    }

    /// What the user should know before the run, a line each.
    pub fn announcement(&self) -> String {
        // A profile's words, and names, are whoever's who wrote them.
        let line = ringfence_policy::shown::line;
        let warnings =
            self.warnings.iter().map(|warning| format!("ringfence: {}\n", line(warning)));
        let degraded = self.degraded.iter().map(|degraded| {
            let layer = crate::text::layer(degraded.layer);
            format!("ringfence: running without {layer}: {}\n", degraded.what)
        });
        warnings.chain(degraded).collect()
    }
}

/// What the kernel will be told to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The mechanism.
    pub tier: Tier,
    /// Profiles and features it came from.
    pub profiles: Vec<String>,
    /// User and group inside (and outside: they are mapped to themselves).
    pub user: (u32, u32),
    /// Namespaces made, by name.
    pub namespaces: Vec<Cow<'static, str>>,
    /// The view, in order.
    pub mounts: Vec<MountStep>,
    /// The process tier's private directory, which stands in for home and `/tmp`, is made in this
    /// one of the user's.
    #[serde(default, serialize_with = "paths::write", skip_serializing_if = "Option::is_none")]
    pub private: Option<PathBuf>,
    /// The home, where a private one that is gone with the run is in its place.
    #[serde(default, serialize_with = "paths::write", skip_serializing_if = "Option::is_none")]
    pub home: Option<PathBuf>,
    /// What the process tier's shows of home: names, and where they lead.
    #[serde(default, serialize_with = "paths::write", skip_serializing_if = "Vec::is_empty")]
    pub home_links: Vec<(PathBuf, PathBuf)>,
    /// Public files of the session in the process tier's private directory, by name.
    #[serde(default, serialize_with = "paths::write", skip_serializing_if = "Vec::is_empty")]
    pub private_files: Vec<(PathBuf, Content)>,
    /// The Landlock domain; unset when accepted as missing.
    pub landlock: Option<Landlock>,
    /// The system call filter, in order; the first rule that holds decides.
    #[serde(skip_deserializing)]
    pub seccomp: Vec<CallRule>,
    /// The calls without a rule that are allowed; unset: all of them.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub allowed_calls: Option<AllowedCalls>,
    /// The environment.
    pub environment: Vec<EnvironmentStep>,
    /// Limits.
    pub limits: Vec<LimitStep>,
    /// Paths put right at the end.
    pub guards: Vec<GuardStep>,
    /// Names looked for at the end.
    pub guarded_trees: Vec<GuardedTree>,
    /// The calls that would make those names are refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
    /// The command opens its standard input by name, and gets it as it is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub opens_input: bool,
    /// Writes are kept apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlay: Option<Apart>,
    /// The command may ask for snapshots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Gateway>,
    /// There is a session bus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus: Option<Bus>,
    /// The network.
    pub network: NetworkMode,
    /// What of a filtered network comes to the gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capture: Option<ringfence_net::Capture>,
    /// Ports that the host may connect in to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub publish: Vec<Publish>,
    /// Unix sockets of the host that are shown by name.
    #[serde(default, serialize_with = "paths::write", skip_serializing_if = "Vec::is_empty")]
    pub sockets: Vec<PathBuf>,
    /// The machine around it (vm tier): the rest of the plan is the sandbox of its bridge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<crate::vm::Shape>,
    /// Where the command starts.
    #[serde(serialize_with = "paths::write")]
    pub workdir: PathBuf,
    /// Accepted weaknesses.
    pub degraded: Vec<Degraded>,
    /// What the user should know before the run.
    pub warnings: Vec<String>,
}

impl Plan {
    /// The trees whose writes are kept apart, in the order of their layers; whether each is a
    /// directory.
    pub fn overlaid(&self) -> impl Iterator<Item = (&Path, bool)> {
        self.mounts.iter().filter_map(|step| match &step.op {
            MountOp::Overlay { directory, .. } => Some((step.path.as_path(), *directory)),
            MountOp::NamedHome { from, apart: Some(_) } => Some((from.as_path(), true)),
            _ => None,
        })
    }

    /// The word users know the tier by.
    pub fn tier_name(&self) -> &'static str {
        if self.machine.is_some() { "vm" } else { self.tier.name() }
    }

    /// Says where the layers are: `DIRECTORY/0`, `DIRECTORY/1`, … A plan does not know the
    /// session it is used for.
    pub fn keep_apart(&mut self, at: &Path) {
        let layers = self.mounts.iter_mut().filter_map(|step| match &mut step.op {
            MountOp::Overlay { apart, .. } | MountOp::NamedHome { apart: Some(apart), .. } => {
                Some(apart)
            }
            _ => None,
        });
        for (number, apart) in layers.enumerate() {
            *apart = at.join(number.to_string());
        }
    }

    /// Has the programs that are executed inside noted, for the record.
    pub fn observe(&mut self) {
        let reason = "what is executed is recorded";
        let mut add = |call, tests| {
            self.seccomp.push(CallRule { call, verdict: Verdict::Observe, tests, reason });
        };
        for (mark, index) in MARKS.into_iter().zip([3, 4]) {
            add("execve", vec![(index, Test::Differs(mark))]);
        }
        add("execveat", Vec::new());
    }
}

/// Stand for the two numbers, made at random for each session, that its own `execve` carries
/// where that call takes no arguments.
pub(crate) const MARKS: [u32; 2] = [0x7266_6d31, 0x7266_6d32];
