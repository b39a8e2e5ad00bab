//! The only code that changes the kernel's mind: carries a plan out.
//!
//! ```text
//! launcher (host side)          child (PID 1 in the namespace tier)        command
//!    │ clone3 ───────────────────► │ id maps, view, root, loopback             │
//!    │ supervise: signals,         │ Landlock ruleset, filter                  │
//!    │ timeout, stop and go on     │ clone(VFORK) ────────────────────────────► │ confine, execve
//!    │ ◄── exit code ───────────── │ reap, forward signals ◄─────────────────── │ exit
//!    │ guards put right            ┴                                            ┴
//! ```

mod child;
mod probe;
pub(crate) mod resolve;
mod view;

pub use probe::probe;

use crate::error::LaunchError;
use crate::guard::Guarding;
use crate::live::Keeper;
use crate::network::{Filter, Network};
use crate::plan::{EnvironmentStep, LimitStep, MountOp, Plan, Tier};
use crate::supervise::{self, Outcome};
use crate::trace::Trace;
use ringfence_policy::NetworkMode;
use ringfence_sys as sys;
use std::ffi::{CString, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use sys::process::{Forked, Namespaces};
use sys::signal::SignalSet;
use sys::{Errno, describe};

/// What to run.
#[derive(Clone, Debug)]
pub struct Order {
    /// The command and its arguments; never empty.
    pub argv: Vec<OsString>,
    /// The session's identifier, for `RINGFENCE_SESSION`.
    pub session: String,
    /// Somebody wants to know when the command executes.
    pub announce: bool,
    /// By what a filtered network is filtered.
    pub filter: Option<Filter>,
    /// Keeps the session's record, and lets others in.
    pub keeper: Option<Rc<dyn Keeper>>,
}

/// Random bits for a session's identifier.
pub fn random() -> u32 {
    sys::identity::random()
}

/// Takes over a descriptor that the caller of the program left open under a known number.
pub fn adopt_descriptor(number: i32) -> Option<OwnedFd> {
    sys::fd::adopt(number)
}

/// Dies of SIGINT, as the command did.
pub fn die_of_interrupt() {
    sys::signal::raise_default(2);
}

/// Everything the child needs beside the plan.
struct Prepared<'a> {
    plan: &'a Plan,
    order: &'a Order,
    environment: Vec<CString>,
    /// Directories in which the command is looked for.
    search: Vec<PathBuf>,
    /// The process tier's stand-in for home and /tmp.
    private: Option<PathBuf>,
    control: OwnedFd,
    mask: SignalSet,
    umask: u32,
    trace: &'a Trace,
    guarding: &'a Guarding,
    groups: crate::cgroup::Groups,
}

/// Runs a command under a plan and waits for its end.
///
/// # Errors
/// [`LaunchError`]; nothing is left behind then.
pub fn run(
    plan: &Plan,
    order: &Order,
    trace: &Trace,
    started: &dyn Fn(&Plan),
) -> Result<Outcome, LaunchError> {
    sys::fd::ensure_standard_streams().map_err(|errno| {
        LaunchError::call("open(/dev/null)", errno, "standard streams are closed and stay so")
    })?;
    let umask = sys::process::set_umask(0o022);
    let launched = run_under_our_umask(plan, order, trace, started, umask);
    sys::process::set_umask(umask);
    launched
}

/// [`run`], with the caller's file creation mask put aside for the command.
fn run_under_our_umask(
    plan: &Plan,
    order: &Order,
    trace: &Trace,
    started: &dyn Fn(&Plan),
    umask: u32,
) -> Result<Outcome, LaunchError> {
    let guarding = Guarding::record(plan)?;
    trace.mark("guards-recorded");
    for step in &plan.mounts {
        if let MountOp::NamedHome { from } = &step.op {
            crate::state::make_home(from)?;
        }
    }
    let groups = crate::cgroup::Groups::make(&plan.limits, &order.session)?;
    let private = match plan.tier {
        Tier::Process => Some(crate::state::private_path(&order.session)),
        Tier::Namespace => None,
    };
    let (ours, theirs) = sys::fd::socket_pair()
        .map_err(|errno| LaunchError::call("socketpair", errno, "raise the limit of open files"))?;
    let mask = sys::signal::set_mask(supervise::handled_signals())
        .map_err(|errno| LaunchError::call("sigprocmask", errno, "this should not happen"))?;
    if plan.tier == Tier::Process {
        // Orphans of a supervisor that was killed come to us, to be ended.
        let _ = sys::process::become_subreaper();
    }
    let environment = environment(plan, order, private.as_deref());
    let prepared = Prepared {
        plan,
        order,
        search: resolve::search_path(&environment),
        environment,
        private: private.clone(),
        control: theirs,
        mask,
        umask,
        trace,
        guarding: &guarding,
        groups,
    };
    trace.mark("prepared");
    let forked = sys::process::fork_into(namespaces(plan), prepared.groups.v2());
    let (pid, pidfd) = match forked {
        Ok(Forked::Child) => {
            drop(ours);
            child::main(prepared)
        }
        Ok(Forked::Parent(pid, pidfd)) => (pid, pidfd),
        Err(errno) => {
            let _ = sys::signal::set_mask(mask);
            return Err(clone_error(plan, errno));
        }
    };
    trace.mark("cloned");
    let Prepared { control, groups, .. } = prepared;
    drop(control);
    let supervised = supervise::Child { pid, pidfd, control: ours, tier: plan.tier };
    let network = Network::new(order.filter.clone());
    let duties = supervise::Duties {
        started: &|| started(plan),
        enforce: &|| guarding.enforce(Some(&order.session)),
        metadata: crate::metadata::of(plan, private.as_ref()),
        publish: crate::sockets::handler(plan, order.filter.as_ref()),
        keeper: order.keeper.as_deref(),
        plan,
    };
    let outcome = supervise::until_end(supervised, network, timeout(plan), trace, &duties);
    trace.mark("ended");
    let limits_hit = groups.limits_hit();
    drop(groups);
    if let Some(private) = &private {
        crate::state::remove_private(private);
    }
    let mut outcome = outcome?;
    outcome.limits_hit.extend(limits_hit);
    Ok(outcome)
}

fn clone_error(plan: &Plan, errno: Errno) -> LaunchError {
    match (plan.tier, errno) {
        (
            Tier::Namespace,
            Errno::EPERM | Errno::ENOSPC | Errno::ENOSYS | Errno::EINVAL | Errno::EUSERS,
        ) => LaunchError::NoNamespaces(probe::reason(errno)),
        _ => LaunchError::call(
            "clone3",
            errno,
            "the user's or the system's limit of processes is reached",
        ),
    }
}

fn namespaces(plan: &Plan) -> Namespaces {
    let of = |name: &&str| match *name {
        "user" => Namespaces::USER,
        "mount" => Namespaces::MOUNT,
        "pid" => Namespaces::PID,
        // Made by the child while it builds the view.
        "network" => Namespaces::NONE,
        "ipc" => Namespaces::IPC,
        "uts" => Namespaces::UTS,
        "cgroup" => Namespaces::CGROUP,
        _ => Namespaces::NONE,
    };
    plan.namespaces.iter().map(of).fold(Namespaces::NONE, Namespaces::and)
}

/// The plan's timeout.
pub fn timeout(plan: &Plan) -> Option<Duration> {
    plan.limits.iter().find_map(|limit| match limit {
        LimitStep::Timeout { milliseconds } => Some(Duration::from_millis(*milliseconds)),
        _ => None,
    })
}

/// The command's environment: the caller's, changed as the plan says.
fn environment(plan: &Plan, order: &Order, private: Option<&std::path::Path>) -> Vec<CString> {
    let mut hidden: Vec<&str> = Vec::new();
    let mut passed: Vec<&str> = Vec::new();
    let mut set: Vec<(&str, &str)> = vec![("RINGFENCE_SESSION", &order.session)];
    let mut clean = false;
    for step in &plan.environment {
        match step {
            EnvironmentStep::Set { name, value, .. } => set.push((name, value)),
            EnvironmentStep::Hide { name, .. } => hidden.push(name),
            EnvironmentStep::Pass { name, .. } => passed.push(name),
            EnvironmentStep::Clean { .. } => clean = true,
        }
    }
    let kept = |name: &str| -> bool {
        const ALWAYS: [&str; 6] = ["PATH", "HOME", "TERM", "LANG", "USER", "LOGNAME"];
        (!clean || ALWAYS.contains(&name) || passed.contains(&name)) && !hidden.contains(&name)
            && !set.iter().any(|(other, _)| *other == name)
            // Ours alone: not the business of what runs inside.
            && !matches!(name, "RINGFENCE_TRACE_LAUNCH" | "RINGFENCE_FAULT" | "PWD" | "OLDPWD")
    };
    let mut list: Vec<Vec<u8>> = Vec::with_capacity(64);
    for (name, value) in std::env::vars_os() {
        // The plan speaks of names as text; one that is no text is known by its lossy form.
        if kept(&name.to_string_lossy()) {
            let replaced = match (private, name.to_str()) {
                (Some(private), Some("HOME")) => private.join("home").into_os_string(),
                (Some(private), Some("TMPDIR")) => private.join("tmp").into_os_string(),
                _ => value,
            };
            list.push([name.as_bytes(), b"=", replaced.as_bytes()].concat());
        }
    }
    if let Some(private) = private
        && !list.iter().any(|entry| entry.starts_with(b"TMPDIR="))
    {
        list.push([b"TMPDIR=", private.join("tmp").as_os_str().as_bytes()].concat());
    }
    list.push([b"PWD=", plan.workdir.as_os_str().as_bytes()].concat());
    list.extend(set.iter().map(|(name, value)| format!("{name}={value}").into_bytes()));
    list.into_iter().filter_map(|entry| CString::new(entry).ok()).collect()
}

/// Whether the network namespace needs its loopback.
fn own_network(plan: &Plan) -> bool {
    plan.tier == Tier::Namespace && plan.network != NetworkMode::Host
}

/// Text for a failed call in the child.
fn failure(what: &str, errno: Errno) -> String {
    format!("cannot {what}: {} ({errno:?})", describe(errno))
}

impl Prepared<'_> {
    fn mark(&self, name: &str) {
        self.trace.mark_child(name, self.control.as_fd());
    }
}
