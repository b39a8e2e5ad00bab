//! What a plan says of Unix sockets beyond the policy: where ports are published, the program may hold a socket of the
//! host's that it could pass on over them; and a layer's file of a socket is not the host's.

use ringfence_policy::decide::Request;
use ringfence_policy::{Decision, Policy, TierChoice, shown, through_links};
use ringfence_sandbox::plan::{MountOp, Plan};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Why a socket that is granted as a file is none to connect to.
pub(super) fn as_reached(decision: Decision, policy: &Policy) -> Decision {
    let Request::Socket(subject) = &decision.request else { return decision };
    let path = subject.real.as_deref().unwrap_or(&subject.path);
    if !decision.allowed || !publishes(policy) && policy.overlay.is_none() {
        return decision;
    }
    let Some(plan) = super::files::plan(policy) else { return decision };
    let apart = |op: &MountOp| {
        matches!(op, MountOp::Overlay { .. } | MountOp::NamedHome { apart: Some(_), .. })
    };
    let shown = path.display();
    if nearest(&plan, path).is_some_and(apart) {
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

/// What stands at a path, or around it.
fn nearest<'p>(plan: &'p Plan, path: &Path) -> Option<&'p MountOp> {
    let around = plan.mounts.iter().filter(|step| path.starts_with(&step.path));
    around.max_by_key(|step| step.path.as_os_str().len()).map(|step| &step.op)
}

/// Whether a path lies in the sandbox's own memory-backed directories, in which sockets meet nobody of outside.
fn is_own(plan: &Plan, path: &Path) -> bool {
    // These are apart from a root that is the host's.
    let hosts = plan.mounts.iter().any(|step| matches!(step.op, MountOp::HostRoot { .. }));
    let own = |op: &MountOp| matches!(op, MountOp::Private { .. } | MountOp::Root { .. });
    !hosts && nearest(plan, path).is_some_and(own)
}

/// Where a socket of the program's own may be, if anywhere.
fn own(plan: &Plan) -> Option<&'static str> {
    ["/tmp", "/dev/shm"].into_iter().find(|place| is_own(plan, Path::new(place)))
}
