//! The vm tier's plan: the namespace tier's, for the bridge, and the machine behind it.

use super::{PlanError, Planning, limits, plan_tier};
use crate::facts::{Facts, PathFacts};
use crate::plan::{Degraded, Plan, Tier};
use crate::vm::{LEAST_MEMORY, MEMORY, Shape};
use ringfence_policy::{Access, Limits, NetworkMode, PathRule, Policy, Publish, Transport};
use std::path::Path;

pub(super) fn plan(
    policy: &Policy,
    facts: &Facts,
    paths: &dyn PathFacts,
) -> Result<Plan, PlanError> {
    refuse(policy)?;
    let machine = match &facts.machine {
        Some(Ok(machine)) => machine,
        Some(Err(why)) => return Err(PlanError::Machine { why: why.clone() }),
        None => return Err(PlanError::NotBuilt { what: "the vm tier".to_owned() }),
    };
    let memory = policy.limits.memory.unwrap_or(MEMORY) & !((1 << 20) - 1);
    if memory < LEAST_MEMORY {
        let least = LEAST_MEMORY >> 20;
        let why = format!("a guest needs {least} MiB of memory: --memory {least}MiB or more");
        return Err(PlanError::Machine { why });
    }
    let degraded = processors(policy, facts, paths)?;
    let shape = Shape {
        accelerator: machine.accelerator,
        monitor: machine.monitor,
        memory,
        kernel: machine.kernel.clone(),
        processes: policy.limits.pids,
        files: policy.limits.open_files,
        nested: machine.nested,
        disk: policy.limits.disk,
        cpus: policy.limits.cpus.filter(|_| degraded.is_empty()),
    };
    // These are the machine's; the sandbox around the bridge has no use for them.
    let mut inner = policy.clone();
    (inner.limits.memory, inner.limits.pids, inner.limits.cpus) = (None, None, None);
    // It holds the open files of all the guest's processes.
    inner.limits.open_files = None;
    let mut plan = plan_tier(Tier::Namespace, &inner, facts, paths)?;
    plan.machine = Some(shape);
    plan.degraded.extend(degraded);
    Ok(plan)
}

/// Whether QEMU's sandbox can be given the processors that are asked for; else what is missing, where that is
/// accepted.
fn processors(
    policy: &Policy,
    facts: &Facts,
    paths: &dyn PathFacts,
) -> Result<Vec<Degraded>, PlanError> {
    let mut policy = policy.clone();
    policy.limits = Limits { cpus: policy.limits.cpus, ..Limits::default() };
    let mut planning = Planning { policy: &policy, facts, paths, degraded: Vec::new() };
    limits::steps(&mut planning, Tier::Namespace)?;
    Ok(planning.degraded)
}

/// What a guest has no part in, each with the reason.
fn refuse(policy: &Policy) -> Result<(), PlanError> {
    let machine = |why: &str| Err(PlanError::Machine { why: why.to_owned() });
    if policy.network.mode == NetworkMode::Host {
        return machine(
            "--network host does not go with the vm tier: the guest has no network card, and what it \
             connects to goes through the filter; name the hosts with -n",
        );
    }
    if policy.calls.is_some() {
        return machine(
            "a list of system calls does not go with the vm tier: the guest's calls are its own \
             kernel's; use --tier namespace, or --syscalls default",
        );
    }
    let datagrams = |publish: &&Publish| publish.transport == Transport::Udp;
    if let Some(publish) = policy.network.publish.iter().find(datagrams) {
        return Err(PlanError::unenforceable(
            &publish.source,
            "datagrams are not carried into a guest; use --tier namespace",
        ));
    }
    let own = |rule: &&PathRule| rule.source.origin == "built in";
    if let Some(socket) = policy.network.sockets.iter().find(|rule| !own(rule)) {
        return Err(PlanError::unenforceable(
            &socket.source,
            "a Unix socket of the host cannot be connected to from another kernel; use --tier \
             namespace, or reach the service over TCP with -n localhost:PORT",
        ));
    }
    if let Some(rule) = policy.dbus.first() {
        let why = "the session bus is a Unix socket of the host, which another kernel cannot \
                   connect to; use --tier namespace";
        return Err(PlanError::unenforceable(&rule.source, why));
    }
    let device = |rule: &&PathRule| {
        matches!(rule.access, Access::Read | Access::Write)
            && [Path::new("/dev"), Path::new("/proc"), Path::new("/sys")]
                .iter()
                .any(|own| rule.path.starts_with(own))
            && !rule.optional
    };
    if let Some(rule) = policy.paths.iter().find(device) {
        let why = "a guest has devices, processes and a kernel of its own, and none of the host's; \
                   use --tier namespace";
        return Err(PlanError::unenforceable(&rule.source, why));
    }
    Ok(())
}
