//! The child of the launcher: builds the boundary around itself, starts the command in it, and
//! stays as its PID 1 (namespace tier) or its subreaper (process tier).

use super::{Prepared, failure, own_network, resolve, view};
use crate::live::Spawner;
use crate::plan::{Landlock, LimitStep, Rights, Tier, Verdict};
use crate::warden;
use ringfence_sys as sys;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use sys::landlock::{self, access};
use sys::limit::Resource;
use sys::process::{Command, Step};
use sys::signal::SignalSet;
use sys::{Errno, describe};

/// What the child reports on the control socket before it ends, when no command ran.
pub(crate) enum Report {
    /// The boundary could not be built.
    Setup,
    /// The command could not be executed.
    CannotExecute,
    /// The command was not found.
    NotFound,
}

impl Report {
    pub(crate) fn tag(&self) -> u8 {
        match self {
            Report::Setup => b'E',
            Report::CannotExecute => b'X',
            Report::NotFound => b'N',
        }
    }
}

/// The child's whole life.
pub(super) fn main(prepared: Prepared<'_>) -> ! {
    let (report, text) = match start(&prepared) {
        Ok((pid, template)) => {
            let warden = warden::Warden {
                command: pid,
                spawner: Spawner { template, search: prepared.search },
                announce: prepared.order.announce || prepared.order.keeper.is_some(),
                control: prepared.control,
                tier: prepared.plan.tier,
                guarding: prepared.guarding,
                private: prepared.private.clone(),
            };
            warden.watch()
        }
        Err(failed) => failed,
    };
    if let Some(private) = &prepared.private {
        crate::state::remove_private(private);
    }
    let mut message = vec![report.tag()];
    message.extend_from_slice(text.as_bytes());
    let _ = sys::fd::send(prepared.control.as_fd(), &message);
    sys::process::exit_now(125)
}

fn inspection<'a>(prepared: &'a Prepared<'_>) -> Option<&'a ringfence_net::Inspection> {
    prepared.order.filter.as_ref()?.inspection.as_deref()
}

fn start(prepared: &Prepared<'_>) -> Result<(i32, Command), (Report, String)> {
    let setup = |text: String| (Report::Setup, text);
    if let Some(inspection) = inspection(prepared) {
        inspection.forget();
    }
    let plan = prepared.plan;
    if plan.tier == Tier::Process {
        // Its directory must go when the launcher dies: the death is a signal that waits.
        let _ = sys::signal::set_mask(SignalSet::ALL);
    }
    set_death_signal(plan.tier).map_err(|errno| setup(failure("ask for its end", errno)))?;
    leave_if_orphaned(prepared);
    sys::process::set_name(c"ringfence-init");
    prepared.mark("child");
    prepared.groups.join_v1().map_err(setup)?;
    if plan.namespaces.contains(&"user") {
        map_identity(plan.user.0, plan.user.1)
            .map_err(|errno| setup(failure("map the identity of the user", errno)))?;
    }
    if plan.tier == Tier::Process {
        sys::process::become_subreaper().map_err(|errno| setup(failure("adopt orphans", errno)))?;
    }
    if let Some(private) = &prepared.private {
        let failed = |error| {
            format!("cannot make {}: {error} (TMPDIR names another place)", private.display())
        };
        crate::state::make_private(private, &plan.home_links).map_err(failed).map_err(setup)?;
    }
    prepared.mark("identity");
    let network_failed = |errno| setup(failure("make a network namespace", errno));
    let network = if own_network(plan) {
        Some(sys::netlink::NewNetwork::start().map_err(network_failed)?)
    } else {
        None
    };
    prepared.mark("network-started");
    if plan.tier == Tier::Namespace {
        view::build(&plan.mounts, inspection(prepared)).map_err(setup)?;
    }
    prepared.mark("view");
    if let Some(network) = network {
        network.enter().map_err(network_failed)?;
    }
    if let Some(capture) = &plan.capture {
        ringfence_net::capture::inside(prepared.control.as_fd(), capture).map_err(setup)?;
    }
    prepared.mark("network");
    sys::process::set_undumpable().map_err(|errno| setup(failure("hide its memory", errno)))?;
    let command = command(prepared)?;
    prepared.mark("rules");
    spawn(prepared, command)
}

/// In the namespace tier nothing outlives the launcher before the command runs: just die with it.
fn set_death_signal(tier: Tier) -> sys::Result<()> {
    sys::process::set_parent_death_signal(match tier {
        Tier::Namespace => 9,
        Tier::Process => sys::signal::parent_death(),
    })
}

/// Ends here if the launcher died before, or while the death signal was being set: its end of
/// the socket is closed then.
fn leave_if_orphaned(prepared: &Prepared<'_>) {
    let alive = sys::fd::receive(prepared.control.as_fd(), &mut [0; 1], false);
    if alive != Err(Errno::EAGAIN) {
        if let Some(private) = &prepared.private {
            crate::state::remove_private(private);
        }
        sys::process::exit_now(125);
    }
}

/// Maps the user and the group to themselves, and nobody else: inside, files of others belong
/// to `nobody`. Written by the child itself, which spares a round trip with the launcher.
pub(super) fn map_identity(user: u32, group: u32) -> sys::Result<()> {
    let write = |path: &std::ffi::CStr, text: String| {
        let file = sys::fd::open_at(sys::fd::CWD, path, sys::fd::WRITE_ONLY, 0)?;
        sys::fd::write_all(file.as_fd(), text.as_bytes())
    };
    write(c"/proc/self/setgroups", "deny".to_owned())?;
    write(c"/proc/self/uid_map", format!("{user} {user} 1"))?;
    write(c"/proc/self/gid_map", format!("{group} {group} 1"))
}

fn command(prepared: &Prepared<'_>) -> Result<Command, (Report, String)> {
    let setup = |text: String| (Report::Setup, text);
    let plan = prepared.plan;
    let order = prepared.order;
    let c = |bytes: &[u8]| {
        CString::new(bytes).map_err(|_| setup("an argument holds a NUL byte".to_owned()))
    };
    let argv = order.argv.iter().map(|word| c(word.as_bytes())).collect::<Result<Vec<_>, _>>()?;
    let landlock = match &plan.landlock {
        Some(landlock) => Some(ruleset(landlock, prepared).map_err(setup)?),
        None => None,
    };
    let supervised = plan.seccomp.iter().any(|rule| rule.verdict == Verdict::Supervise);
    let filters = if plan.seccomp.is_empty() {
        Vec::new()
    } else {
        vec![crate::filter::compile(&plan.seccomp)]
    };
    prepared.mark("filter");
    let path = resolve::command(&order.argv[0], &prepared.search, &plan.workdir).map_err(
        |unresolved| {
            let report = if unresolved.found { Report::CannotExecute } else { Report::NotFound };
            (report, unresolved.message)
        },
    )?;
    let mut limits = Vec::new();
    for limit in &plan.limits {
        match limit {
            LimitStep::CoreFiles => limits.push((Resource::Core, 0)),
            LimitStep::OpenFiles { count } => limits.push((Resource::OpenFiles, *count)),
            LimitStep::Processes { count } => limits.push((Resource::Processes, *count)),
            LimitStep::Processors { count } => {
                sys::limit::restrict_processors(*count as usize)
                    .map_err(|errno| setup(failure("restrict the processors", errno)))?;
            }
            _ => {}
        }
    }
    Ok(Command {
        path,
        argv,
        environment: prepared.environment.clone(),
        workdir: c(plan.workdir.as_os_str().as_bytes())?,
        mask: prepared.mask,
        umask: prepared.umask,
        limits,
        landlock,
        filters,
        listener_to: supervised.then(|| prepared.control.as_raw_fd()),
        streams: None,
        session: sys::process::Session::Kept,
    })
}

/// The Landlock rights that a group stands for.
fn rights(rights: Rights, abi: u32) -> u64 {
    let known = access::known(abi);
    known
        & match rights {
            Rights::List => access::READ_DIR,
            Rights::Read => access::EXECUTE | access::READ_FILE | access::READ_DIR,
            Rights::Use => access::WRITE_FILE | access::TRUNCATE | access::IOCTL_DEV,
            Rights::Write => !0,
        }
}

fn ruleset(plan: &Landlock, prepared: &Prepared<'_>) -> Result<landlock::Ruleset, String> {
    let scopes =
        if plan.scoped { landlock::SCOPE_ABSTRACT_SOCKETS | landlock::SCOPE_SIGNALS } else { 0 };
    let network = if plan.ports.is_some() { landlock::BIND_TCP | landlock::CONNECT_TCP } else { 0 };
    let handled = landlock::Handled { files: access::known(plan.abi), network, scopes };
    let ruleset = landlock::Ruleset::new(handled)
        .map_err(|errno| failure("make a Landlock ruleset", errno))?;
    let private = prepared.private.iter().map(|path| (path.as_path(), Rights::Write));
    let rules = plan.files.iter().map(|rule| (rule.path.as_path(), rule.rights)).chain(private);
    for (path, group) in rules {
        let name = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
        let at = |errno| failure(&format!("grant {} by Landlock", path.display()), errno);
        let open = |name| sys::fd::open_without_links(sys::fd::CWD, name, sys::fd::PATH_ONLY);
        let handle: OwnedFd = match open(&name) {
            Ok(handle) => handle,
            // A path of the planner's own (/dev/shm, a home that does not exist): nothing to grant.
            Err(Errno::ENOENT | Errno::ELOOP) => continue,
            Err(errno) => return Err(at(errno)),
        };
        let sockets = if plan.ports.is_some() { access::MAKE_SOCK } else { 0 };
        let wanted = rights(group, plan.abi) & !sockets;
        match ruleset.allow(handle.as_fd(), wanted) {
            // Directory rights on a file: the kernel's word is EINVAL.
            Err(Errno::EINVAL) => {
                ruleset.allow(handle.as_fd(), wanted & access::FILE).map_err(at)?
            }
            other => other.map_err(at)?,
        }
    }
    for rule in plan.ports.iter().flatten() {
        let right = if rule.bind { landlock::BIND_TCP } else { landlock::CONNECT_TCP };
        ruleset
            .allow_port(rule.port, right)
            .map_err(|errno| failure(&format!("grant port {} by Landlock", rule.port), errno))?;
    }
    Ok(ruleset)
}

fn spawn(
    prepared: &Prepared<'_>,
    mut command: Command,
) -> Result<(i32, Command), (Report, String)> {
    // The warden ends the sandbox in order when the launcher dies.
    let _ = sys::signal::set_mask(SignalSet::ALL);
    let _ = sys::process::set_parent_death_signal(sys::signal::parent_death());
    leave_if_orphaned(prepared);
    let path = command.path.clone();
    let mut result = sys::process::spawn(&command);
    if let Err((Step::Execute, Errno::ENOEXEC)) = result {
        // A text without `#!` is the shell's, as for execvp(3).
        command.argv.splice(..1, [c"/bin/sh".to_owned(), path.clone()]);
        command.path = c"/bin/sh".to_owned();
        result = sys::process::spawn(&command);
    }
    let path = path.to_string_lossy();
    match result {
        Ok(pid) => {
            prepared.mark("executed");
            Ok((pid, command))
        }
        Err((Step::Execute, errno @ (Errno::ENOENT | Errno::ELOOP | Errno::ENOTDIR))) => Err((
            Report::CannotExecute,
            format!(
                "cannot execute {path}: its interpreter does not exist in the sandbox ({errno:?})"
            ),
        )),
        Err((Step::Execute, errno)) => {
            Err((Report::CannotExecute, format!("cannot execute {path}: {}", describe(errno))))
        }
        Err((Step::Workdir, errno)) => {
            let workdir = prepared.plan.workdir.display();
            let why = describe(errno);
            let advice = "it is not granted (-r or -w), or it is gone; --workdir names another";
            Err((Report::Setup, format!("cannot start in {workdir}: {why} ({errno:?}); {advice}")))
        }
        Err((step, errno)) => {
            Err((Report::Setup, failure(&format!("confine the command ({step:?})"), errno)))
        }
    }
}
