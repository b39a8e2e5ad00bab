//! What a plan says of Unix sockets beyond the policy: those that act for whoever asks are hidden in granted trees; where
//! ports are published, the program may hold a socket of the host's that it could pass on over them; and a layer's file
//! of a socket is not the host's.

use ringfence_policy::decide::Request;
use ringfence_policy::{Decision, Policy, TierChoice, shown, through_links};
use ringfence_sandbox::plan::{MountOp, MountStep, Plan};
use ringfence_sandbox::planner;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Why a socket that is granted as a file is none to connect to.
pub(super) fn as_reached(decision: Decision, policy: &Policy) -> Decision {
    let Request::Socket(subject) = &decision.request else { return decision };
    let path = subject.real.as_deref().unwrap_or(&subject.path);
    let Some(plan) = super::files::plan(policy).filter(|_| decision.allowed) else {
        return decision;
    };
    let apart = |op: &MountOp| {
        matches!(op, MountOp::Overlay { .. } | MountOp::NamedHome { apart: Some(_), .. })
    };
    let shown = path.display();
    if let Some(hidden) = hidden(&plan, path) {
        let explanation = hides(path, hidden);
        let remedy = Some(shown::option("--allow-socket", path, false));
        let rule = Some(hidden.rule.clone());
        return Decision { allowed: false, explanation, rule, remedy, effect: None, ..decision };
    }
    if nearest(&plan, path).is_some_and(|step| apart(&step.op)) {
        // By whatever rule it is there: the file of the layer is another one than its service's.
        let explanation = format!(
            "{shown} is in a tree whose writes are kept apart (--overlay), where nobody answers at a socket of the host's"
        );
        let remedy = "leave --overlay out; or have the service's socket outside of that tree, with --allow-socket";
        return refused(decision, explanation, remedy.to_owned());
    }
    let named = policy.network.sockets.iter().any(|rule| rule.path == path);
    if named || !publishes(policy) || !holds(policy, &plan) {
        return decision;
    }
    let explanation = format!(
        "{shown} can neither be connected to nor bound: with published TCP ports no socket can in a directory shared with \
         the host"
    );
    let allow = shown::option("--allow-socket", path, false);
    let own =
        own(&plan).map_or(String::new(), |own| format!("; one of the program's own: in {own}"));
    let remedy = format!("for a socket of the host's that is there before the run: {allow}{own}");
    refused(decision, explanation, remedy)
}

fn refused(decision: Decision, explanation: String, remedy: String) -> Decision {
    let remedy = Some(remedy);
    Decision { allowed: false, explanation, rule: None, remedy, effect: None, ..decision }
}

/// A place that may be written may be none for sockets.
pub(super) fn as_written(mut decision: Decision, policy: &Policy) -> Decision {
    let Request::Write(subject) = &decision.request else { return decision };
    let path = subject.real.as_deref().unwrap_or(&subject.path);
    // Where a file lies, none is bound.
    let other = path.metadata().is_ok_and(|data| !data.is_dir() && !data.file_type().is_socket());
    if !decision.allowed || other || !publishes(policy) {
        return decision;
    }
    let Some(plan) = super::files::plan(policy).filter(|plan| holds(policy, plan)) else {
        return decision;
    };
    if is_own(&plan, &through_links(policy, &subject.path)) {
        return decision;
    }
    let own = own(&plan).map_or(String::new(), |own| format!(" ({own} is for them)"));
    // No effect: what becomes of a file there is another matter.
    let but = format!(", but no Unix socket can be bound there with published TCP ports{own}");
    decision.explanation.push_str(&but);
    decision
}

fn publishes(policy: &Policy) -> bool {
    !policy.network.publish.is_empty()
}

/// Whether the program's Unix sockets are kept to the sandbox's own directories. Those of a virtual machine's guest are
/// its own kernel's.
fn holds(policy: &Policy, plan: &Plan) -> bool {
    let held = plan.landlock.as_ref().is_some_and(|landlock| landlock.no_sockets);
    held && policy.tier != TierChoice::Vm
}

/// What is in a directory of sockets is hidden with them.
pub(super) fn as_hidden(decision: Decision, policy: &Policy, path: &Path) -> Decision {
    // Looking at a plan takes its time, and elsewhere there are no such directories with files in them.
    if !decision.allowed || !path.starts_with("/run") || policy.tier == TierChoice::Process {
        return decision;
    }
    let Some(plan) = super::files::plan(policy) else { return decision };
    let Some(hidden) = hidden(&plan, path) else { return decision };
    let write = matches!(decision.request, Request::Write(_));
    let option = if write { "--write" } else { "--read" };
    let remedy = Some(shown::option(option, path, path.symlink_metadata().is_err()));
    let (explanation, rule) = (hides(path, hidden), Some(hidden.rule.clone()));
    Decision { allowed: false, explanation, rule, remedy, effect: None, ..decision }
}

/// What hides a path that lies in a granted tree, of itself.
fn hidden<'p>(plan: &'p Plan, path: &Path) -> Option<&'p MountStep> {
    let nearest = nearest(plan, path)?;
    (nearest.rule == planner::hidden_sockets()).then_some(nearest)
}

fn hides(path: &Path, hidden: &MountStep) -> String {
    let (path, at) = (path.display(), hidden.path.display());
    let holder = match path.to_string() == at.to_string() {
        true => String::new(),
        false => format!("{at}, where it is, holds "),
    };
    format!("{path} is hidden in what is granted: {holder}{}", hidden.rule.text)
}

/// What shows a path: what is mounted at it, or around it. What only keeps a directory from being renamed shows nothing else.
pub(super) fn nearest<'p>(plan: &'p Plan, path: &Path) -> Option<&'p MountStep> {
    let around = plan.mounts.iter().filter(|step| path.starts_with(&step.path));
    let around = around.filter(|step| step.op != MountOp::Pin);
    around.max_by_key(|step| step.path.as_os_str().len())
}

/// Whether a path lies in the sandbox's own memory-backed directories, in which sockets meet nobody of outside.
fn is_own(plan: &Plan, path: &Path) -> bool {
    // These are apart from a root that is the host's.
    let hosts = plan.mounts.iter().any(|step| matches!(step.op, MountOp::HostRoot { .. }));
    let own = |op: &MountOp| matches!(op, MountOp::Private { .. } | MountOp::Root { .. });
    !hosts && nearest(plan, path).is_some_and(|step| own(&step.op))
}

/// Where a socket of the program's own may be, if anywhere.
fn own(plan: &Plan) -> Option<&'static str> {
    ["/tmp", "/dev/shm"].into_iter().find(|place| is_own(plan, Path::new(place)))
}
