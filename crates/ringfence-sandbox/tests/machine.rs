//! The vm tier's plan: the namespace tier's own, with a machine beside it, or a refusal.
#![allow(missing_docs, clippy::unwrap_used)]

mod host;

use host::{Host, host};
use ringfence_policy::Key;
use ringfence_sandbox::facts::MachineFacts;
use ringfence_sandbox::plan::Tier;
use ringfence_sandbox::vm::Monitor;
use ringfence_sandbox::vm::accel::Accelerator;

fn guest() -> Host {
    let machine = MachineFacts {
        kernel: "6.1.0".to_owned(),
        accelerator: Accelerator::Tcg,
        monitor: Monitor::Qemu,
        nested: false,
    };
    host().facts(|facts| facts.machine = Some(Ok(machine))).option(Key::Tier, "vm")
}

#[test]
fn a_machine_changes_nothing_of_what_the_bridge_may_do() {
    let mut with = guest().plan();
    let without = host().option(Key::Tier, "namespace").plan();
    assert_eq!(with.tier_name(), "vm");
    let shape = with.machine.take().unwrap();
    assert_eq!((shape.memory, shape.kernel.as_str()), (1 << 30, "6.1.0"));
    assert_eq!((with.tier, with.tier_name()), (Tier::Namespace, "namespace"));
    // One derivation of the rules: mounts, Landlock, calls, environment, guards are the same.
    assert_eq!(with, without);
}

#[test]
fn a_plan_says_who_makes_the_devices_where_it_is_asked_for() {
    let (usual, mut krun) = (guest().plan().machine.unwrap(), guest());
    assert!(!serde_json::to_string(&usual).unwrap().contains("monitor"));
    assert!(!ringfence_sandbox::text::machine(&usual).contains("QEMU"));
    krun = krun.facts(|facts| {
        if let Some(Ok(machine)) = &mut facts.machine {
            machine.monitor = Monitor::Krun;
        }
    });
    let shape = krun.plan().machine.unwrap();
    assert_eq!(shape.monitor, Monitor::Krun);
    let said = ringfence_sandbox::text::machine(&shape);
    assert!(said.ends_with("devices by libkrun (RINGFENCE_VM_MONITOR)"), "{said}");
}

#[test]
fn limits_that_are_the_guests_are_not_the_bridges() {
    let limited = guest().option(Key::Memory, "300M").option(Key::Pids, "9");
    let limited = limited.option(Key::Cpus, "0.5").option(Key::Disk, "1M");
    let limited = limited.option(Key::OpenFiles, "48");
    // Processors are QEMU's, whose sandbox needs a control group for half of one.
    let refusal = limited.refusal();
    assert!(refusal.contains("--allow-degraded cpus-limit"), "{refusal}");
    let accepted = limited.clone().option(Key::AllowDegraded, "cpus-limit").plan();
    assert_eq!((accepted.machine.unwrap().cpus, accepted.degraded.len()), (None, 1));
    let plan = limited.cgroups_v2().plan();
    let shape = plan.machine.unwrap();
    assert_eq!((shape.memory % (1 << 20), shape.memory >> 20), (0, 300));
    assert_eq!((shape.processes, shape.cpus), (Some(9), Some(500)));
    assert_eq!((shape.disk, shape.files), (Some(1 << 20), Some(48)));
    // The bridge has none of them, whatever groups can be made.
    assert_eq!(plan.limits, guest().option(Key::Disk, "1M").plan().limits);
}

#[test]
fn what_a_guest_has_no_part_in_is_refused() {
    let refused = |host: Host, why: &str| {
        let refusal = host.refusal();
        assert!(refusal.contains(why), "{refusal}");
    };
    refused(guest().option(Key::Mode, "host"), "--network host");
    refused(guest().option(Key::Sockets, "/run/docker.sock"), "another kernel");
    refused(guest().option(Key::Memory, "100M"), "128 MiB");
    for mode in ["learned", "ask"] {
        refused(guest().option(Key::CallMode, mode), "a list of system calls");
    }
    guest().option(Key::CallMode, "default").plan();
    refused(guest().no_namespaces(), "needs namespaces");
    let lacking = Err("the vm tier has no guest kernel yet: ringfence vm setup".to_owned());
    let lacking = guest().facts(|facts| facts.machine = Some(lacking));
    refused(lacking, "ringfence vm setup");
}
