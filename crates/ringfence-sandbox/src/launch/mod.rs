//! The only code that changes the kernel's mind: carries a plan out.
//!
//! ```text
//! plan ─► compile ─► image (system calls, in order) ─► cache
//!
//! launcher (host side)          child (PID 1 in the namespace tier)        command
//!    │ clone3 ───────────────────► │ the image's calls: id maps, view,         │
//!    │ supervise: signals,         │ root, loopback, Landlock ruleset          │
//!    │ timeout, stop and go on     │ clone(VM) ───────────────────────────────► │ confine, execve
//!    │ ◄── exit code ───────────── │ reap, forward signals ◄─────────────────── │ exit
//!    │ guards put right            ┴                                            ┴
//! ```

mod assemble;
mod brief;
mod cache;
mod capture;
mod child;
mod compile;
mod confine;
mod cover;
mod descriptors;
mod environment;
mod failure;
mod filing;
mod hot;
mod mounts;
mod overlay;
mod probe;
mod script;
mod settled;
mod shelf;
mod skeleton;
mod view;

pub use descriptors::{enough as enough_descriptors, take_all as take_all_descriptors};
pub use environment::has_variable;
pub(crate) use failure::read as read_failure;
pub use hot::{Resumed, become_warden, resume, resumed};

pub use probe::probe;

use crate::error::LaunchError;
use crate::guard::Guarding;
use crate::inputs::Inputs;
use crate::live::Keeper;
use crate::network::{Filter, Network};
use crate::plan::{LimitStep, MountOp, Plan, Tier};
use crate::supervise::{self, Outcome};
use crate::trace::Trace;
use crate::vm::Machine;
use crate::watches::Watches;
use compile::Extras;
use failure::Explaining;
use ringfence_policy::NetworkMode;
use ringfence_sys as sys;
use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::time::{Duration, Instant};
use sys::Errno;
use sys::process::{Forked, Namespaces};

/// What to run.
#[derive(Clone, Debug)]
pub struct Order {
    /// The command and its arguments; never empty.
    pub argv: Vec<OsString>,
    /// The session's number: eight hexadecimal digits are its identifier.
    pub session: u32,
    /// The place of the command among the program's arguments, when the command stands there as
    /// it is.
    pub place: Option<usize>,
    /// Somebody wants to know when the command executes.
    pub announce: bool,
    /// By what a filtered network is filtered.
    pub filter: Option<Filter>,
    /// Keeps the session's record, and lets others in.
    pub keeper: Option<Rc<dyn Keeper>>,
    /// The machine that the command stands in front of.
    pub machine: Option<Rc<RefCell<Machine>>>,
    /// The time ([`sys::file::time_mark`]) from which on a change is the run's: before the plan looked at what there is.
    pub since: i128,
}

impl Order {
    /// The session's identifier, for `RINGFENCE_SESSION`.
    pub fn session_name(&self) -> String {
        session_name(self.session)
    }

    /// A launcher that watches over a view has to know when it is whole.
    fn announced(&self, plan: &Plan) -> bool {
        self.announce || self.keeper.is_some() || plan.tier == Tier::Namespace
    }
}

/// The identifier of a session by its number.
pub fn session_name(number: u32) -> String {
    format!("{number:08x}")
}

/// Where the command stands among the program's arguments, when it is the last `words` of them.
pub fn place(words: usize) -> Option<usize> {
    ringfence_start::entry::caller()?.count.checked_sub(words)
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

/// Gives signals their effect on this process again, which a launcher takes from it: for what it
/// does with its user after the run.
pub fn take_signals_again() {
    let _ = sys::signal::set_mask(sys::signal::SignalSet::EMPTY);
}

/// Why nothing runs with these standard streams: one is a directory or, for a command whose network is `confined`, a socket
/// by which other places can be reached.
pub fn refused_streams(confined: bool) -> Option<String> {
    let directory = |fd: BorrowedFd<'_>| {
        let file = fd.try_clone_to_owned().map(std::fs::File::from);
        file.and_then(|file| file.metadata()).is_ok_and(|data| data.is_dir())
    };
    let network = |fd: BorrowedFd<'_>| ringfence_start::inherited::leads_out(fd.as_raw_fd());
    let lent_network = || lent(network).filter(|_| confined).map(no_network);
    lent(directory).map(no_directory).or_else(lent_network)
}

fn lent(is: impl Fn(BorrowedFd<'_>) -> bool) -> Option<&'static str> {
    let (input, output, error) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let streams = [("input", input.as_fd()), ("output", output.as_fd()), ("error", error.as_fd())];
    streams.into_iter().find(|(_, fd)| is(*fd)).map(|(name, _)| name)
}

fn no_network(stream: &str) -> String {
    format!(
        "standard {stream} is a socket of the host's: the command could connect it, or send by it, to whatever the host \
         reaches, and no rule would hold it; put a pipe between (cat | ringfence … | cat), or start it with --network host"
    )
}

fn no_directory(stream: &str) -> String {
    format!(
        "standard {stream} is a directory: by it the command could list all that is in it, and change modes and \
         times there, whatever is granted; redirect it elsewhere (to /dev/null), and grant the directory by -r or -w"
    )
}

/// Runs a command under a plan and waits for its end. What the plan was derived from is kept
/// with it, for the next start.
///
/// # Errors
/// [`LaunchError`]; nothing is left behind then.
pub fn run(
    plan: &Plan,
    order: &Order,
    inputs: &Inputs,
    trace: &Trace,
    started: &dyn Fn(&Plan),
) -> Result<Outcome, LaunchError> {
    sys::fd::ensure_standard_streams().map_err(|errno| {
        LaunchError::call("open(/dev/null)", errno, "standard streams are closed and stay so")
    })?;
    // A machine is passed bytes.
    let confined = order.machine.is_none() && plan.network != NetworkMode::Host;
    if let Some(why) = refused_streams(confined) {
        return Err(LaunchError::Setup(why));
    }
    let umask = sys::process::set_umask(0o022);
    let launched = run_under_our_umask(plan, order, inputs, trace, started, umask);
    if matches!(launched, Err(LaunchError::NoSkeleton(_))) {
        inputs.disown();
    }
    sys::process::set_umask(umask);
    launched
}

/// [`run`], with the caller's file creation mask put aside for the command.
fn run_under_our_umask(
    plan: &Plan,
    order: &Order,
    inputs: &Inputs,
    trace: &Trace,
    started: &dyn Fn(&Plan),
    umask: u32,
) -> Result<Outcome, LaunchError> {
    let guarding = Guarding::record(plan, order.since)?;
    guarding.hold();
    descriptors::enough()?;
    trace.mark("guards-recorded");
    let filing = filing::filing(plan, order, inputs, &guarding);
    for step in &plan.mounts {
        if let MountOp::NamedHome { from, .. } = &step.op {
            crate::state::make_home(from)?;
        }
    }
    crate::state::make_apart(plan);
    let skeletons = skeleton::prepare(plan, inputs)?;
    let groups = crate::cgroup::Groups::make(&plan.limits, &order.session_name())?;
    let private = crate::state::private_path(plan, &order.session_name());
    let (ours, theirs) = sys::fd::socket_pair().map_err(|errno| {
        LaunchError::call(
            "socketpair",
            errno,
            "raise the limit of open files (--open-files, ulimit -n)",
        )
    })?;
    let caller = caller_environment();
    let environment =
        environment::environment(plan, &caller, crate::state::private_template(plan).as_deref());
    let Some(words) = child::words(plan, order, &environment, &caller) else {
        return Err(LaunchError::Setup("an argument holds a NUL byte".to_owned()));
    };
    let mut extras = Extras {
        environment,
        announced: order.announced(plan),
        kept: filing.is_some(),
        groups: groups.v1_wanted(),
        captured: false,
        skeletons,
    };
    let mut steps = compile::steps(plan, &extras);
    let compiled = steps.compiled();
    let broken =
        || LaunchError::Setup("the compiled plan is broken: a mistake of ringfence's".into());
    let image = compiled.image().ok_or_else(broken)?;
    image.patch(order.session, std::process::id());
    trace.mark("compiled");
    sys::signal::hear_of_children();
    let mask = sys::signal::set_mask(supervise::handled_signals())
        .map_err(|errno| LaunchError::call("sigprocmask", errno, "this should not happen"))?;
    if plan.tier == Tier::Process {
        // Orphans of a supervisor that was killed come to us, to be ended.
        let _ = sys::process::become_subreaper();
    }
    trace.mark("prepared");
    // A machine has the terminal itself.
    let job = image.header().flags & ringfence_start::image::JOB != 0
        && order.machine.is_none()
        && ringfence_start::job::is_led(std::process::id() as i32);
    if order.machine.is_some() {
        // What is free now the warden would keep, who has no allocator.
        sys::memory::give_back();
    }
    let began = Instant::now();
    let fork = || sys::process::fork_into(namespaces(plan), groups.v2());
    let forked = ringfence_start::withdrawn::again(fork);
    let (pid, pidfd) = match forked {
        Ok(Forked::Child) => {
            drop(ours);
            if plan.tier != Tier::Process {
                guarding.let_go();
            }
            let child = child::Child {
                plan,
                inspection: order.filter.as_ref().and_then(|filter| filter.inspection.as_deref()),
                image,
                words,
                control: theirs,
                inherited: sys::image::Inherited {
                    umask,
                    mask,
                    job,
                    files: descriptors::callers(),
                },
                trace,
                guarding: &guarding,
                groups: &groups,
                private,
            };
            child.live()
        }
        Ok(Forked::Parent(pid, pidfd)) => (pid, pidfd),
        Err(errno) => {
            let _ = sys::signal::set_mask(mask);
            return Err(clone_error(plan, errno));
        }
    };
    trace.mark("cloned");
    drop(theirs);
    guarding.tell();
    let network = Network::new(order.filter.clone());
    extras.captured = true;
    let usual = network.usual();
    // For later starts the steps are put together once more, with all that they were derived from: before all is built it
    // would take a processor from those who do that, and when the command executes already it may end first, and wait for
    // it. And what a captured network takes of this kernel is known here alone: there they are other ones.
    let steps = Cell::new((filing.is_some() && plan.capture.is_none()).then_some(steps));
    let going = || {
        let steps = steps.take();
        let filing = filing.as_ref().filter(|_| plan.capture.is_none() || usual.get());
        if let Some((filing, record)) = filing.and_then(|filing| Some((filing, filing.record()?))) {
            let steps = steps.unwrap_or_else(|| compile::steps(plan, &extras));
            filing.store(&record, &steps.filed(plan, &record.filed()));
            trace.mark("stored");
        }
    };
    let (tier, job, heard) = (plan.tier, job.then(supervise::Job::new), Vec::new());
    let supervised = supervise::Child { pid, pidfd, control: ours, tier, job, began, heard };
    let explaining =
        Explaining { build: &compiled.build, confine: &compiled.confine, command: &order.argv[0] };
    let duties = supervise::Duties {
        started: &|| started(plan),
        going: &going,
        vigil: &|| guarding.vigil(&order.session_name()),
        covers: &|| crate::cover::covers(&plan.mounts),
        awaited: &|| guarding.awaited(),
        removed: &|path, was| guarding.removed(path, was),
        enforce: &|| guarding.enforce(Some(&order.session_name())),
        will: guarding.will(),
        metadata: crate::metadata::of(plan, private.as_ref()),
        watches: Watches { plan, private: private.as_ref() },
        publish: crate::sockets::handler(plan, order.filter.as_ref()),
        explain: &|tag, step, errno| explaining.explain(tag, step, errno),
        keeper: order.keeper.as_deref(),
        machine: order.machine.as_deref(),
        plan,
    };
    let outcome = supervise::until_end(supervised, network, timeout(plan), trace, &duties);
    trace.mark("ended");
    let limits_hit = groups.limits_hit();
    drop(groups);
    if let Some(private) = &private {
        crate::state::remove_private(private);
    }
    if outcome.is_err()
        && let Some(filing) = &filing
    {
        filing.forget();
    }
    let mut outcome = outcome?;
    outcome.limits_hit.extend(limits_hit);
    guarding.judge(&mut outcome);
    Ok(outcome)
}

/// The caller's variables, names and values, in their order.
fn caller_environment() -> Vec<(Vec<u8>, Vec<u8>)> {
    match ringfence_start::entry::caller() {
        // All of them, those that are none by the rules too: an image counts them.
        Some(caller) => caller
            .entries()
            .map(|entry| {
                let end = entry.iter().position(|&byte| byte == b'=').unwrap_or(entry.len());
                (entry[..end].to_vec(), entry.get(end + 1..).unwrap_or_default().to_vec())
            })
            .collect(),
        None => std::env::vars_os()
            .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
            .collect(),
    }
}

fn clone_error(plan: &Plan, errno: Errno) -> LaunchError {
    match (plan.tier, errno) {
        (
            Tier::Namespace,
            Errno::EPERM | Errno::ENOSPC | Errno::ENOSYS | Errno::EINVAL | Errno::EUSERS,
        ) => LaunchError::NoNamespaces(probe::reason(errno)),
        (_, Errno::EMFILE) => LaunchError::call(
            "clone3",
            errno,
            "raise the limit of open files (--open-files, ulimit -n)",
        ),
        _ => LaunchError::call(
            "clone3",
            errno,
            "the user's or the system's limit of processes is reached",
        ),
    }
}

fn namespaces(plan: &Plan) -> Namespaces {
    let of = |name: &str| match name {
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
    plan.namespaces.iter().map(|name| of(name)).fold(Namespaces::NONE, Namespaces::and)
}

/// The plan's timeout.
pub fn timeout(plan: &Plan) -> Option<Duration> {
    plan.limits.iter().find_map(|limit| match limit {
        LimitStep::Timeout { milliseconds } => Some(Duration::from_millis(*milliseconds)),
        _ => None,
    })
}
