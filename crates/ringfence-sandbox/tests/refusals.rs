//! Fail closed: what the policy needs and the host lacks is refused, and accepted only by name.
#![allow(missing_docs, clippy::unwrap_used)]

mod host;

use host::{Host, host, no};
use ringfence_policy::{Key, Layer};
use ringfence_sandbox::plan::{LimitStep, MountOp, Tier};
use std::path::Path;

/// Refused, with the remedy that accepts it; accepted by that name and by no other.
#[track_caller]
fn refused_unless_named(host: &Host, layer: Layer, name: &str) {
    let refusal = host.refusal();
    assert!(refusal.contains(&format!("--allow-degraded {name}")), "{refusal}");
    for other in
        ["namespaces", "landlock", "seccomp", "memory-limit", "pids-limit", "cpus-limit", "deny"]
    {
        let with = host.clone().option(Key::AllowDegraded, other);
        assert!(other == name || with.try_plan().is_err(), "{other} stood in for {name}");
    }
    let plan = host.clone().option(Key::AllowDegraded, name).plan();
    let said: Vec<_> = plan.degraded.iter().map(|degraded| degraded.layer).collect();
    assert_eq!(said, [layer], "the plan says what is missing, once");
}

#[test]
fn nothing_is_degraded_on_an_ordinary_host() {
    for plan in [host().plan(), host().root().plan()] {
        assert!(plan.degraded.is_empty() && plan.tier == Tier::Namespace);
    }
    // A layer that is there is used, whatever may be missing.
    let plan =
        host().option(Key::AllowDegraded, "landlock").option(Key::AllowDegraded, "seccomp").plan();
    assert!(plan.landlock.is_some() && !plan.seccomp.is_empty() && plan.degraded.is_empty());
}

#[test]
fn no_landlock() {
    refused_unless_named(&host().abi(0), Layer::Landlock, "landlock");
    // The process tier is nothing without it: not even by name.
    let host = host().abi(0).process().option(Key::AllowDegraded, "landlock");
    assert!(host.refusal().contains("Landlock"), "{}", host.refusal());
}

#[test]
fn no_seccomp() {
    let without = host().facts(|facts| facts.seccomp = no("the kernel has no seccomp filters"));
    refused_unless_named(&without, Layer::Seccomp, "seccomp");
}

#[test]
fn no_namespaces() {
    let refusal = host().no_namespaces().option(Key::Tier, "namespace").refusal();
    assert!(
        refusal.contains("user namespaces are closed") && refusal.contains("ringfence doctor"),
        "{refusal}"
    );
    // Auto takes the next tier where that meets the policy, and says so.
    let plan = host().no_namespaces().plan();
    assert_eq!(plan.tier, Tier::Process);
    assert!(
        plan.warnings.iter().any(|warning| warning.contains("process tier")),
        "{:?}",
        plan.warnings
    );
    // Where it does not, both reasons are named.
    let refusal = host().no_namespaces().option(Key::Deny, "./.env").refusal();
    assert!(
        refusal.contains("user namespaces are closed") && refusal.contains(".env"),
        "{refusal}"
    );
    let refusal = host().no_namespaces().abi(0).refusal();
    assert!(refusal.contains("Landlock"), "{refusal}");
}

#[test]
fn old_landlocks_are_refused_only_where_they_are_relied_on() {
    for version in 1..=7 {
        assert!(
            host().abi(version).try_plan().is_ok(),
            "mounts hold what version {version} does not"
        );
    }
    for version in 1..=5 {
        assert!(host().abi(version).process().try_plan().is_err(), "version {version}");
    }
    assert!(host().abi(6).process().try_plan().is_ok());
    // Sharing the host's network shares its abstract sockets, which only version 6 holds.
    let shared = |version| host().option(Key::Mode, "host").abi(version);
    refused_unless_named(&shared(5), Layer::LandlockScope, "landlock-scope");
    assert!(shared(6).try_plan().is_ok());
}

#[test]
fn limits_without_control_groups() {
    refused_unless_named(&host().option(Key::Memory, "1G"), Layer::MemoryLimit, "memory-limit");
    refused_unless_named(&host().root().option(Key::Pids, "9"), Layer::PidsLimit, "pids-limit");
    refused_unless_named(&host().option(Key::Cpus, "1.5"), Layer::CpusLimit, "cpus-limit");
    // The closest sound mechanisms need no acceptance.
    let plan = host().option(Key::Pids, "9").option(Key::Cpus, "2").plan();
    assert!(plan.limits.contains(&LimitStep::Processes { count: 9 }));
    assert!(plan.limits.contains(&LimitStep::Processors { count: 2 }));
    assert!(plan.degraded.is_empty());
    let all = host()
        .cgroups_v2()
        .option(Key::Memory, "1G")
        .option(Key::Pids, "9")
        .option(Key::Cpus, "1.5")
        .plan();
    assert!(all.degraded.is_empty());
}

#[test]
fn a_controller_that_is_not_delegated_is_missing() {
    let host = host().cgroups_v2().option(Key::Memory, "1G");
    let without = host.facts(|facts| {
        if let Some((_, controllers)) = &mut facts.cgroups.v2 {
            controllers.retain(|name| name != "memory");
        }
    });
    refused_unless_named(&without, Layer::MemoryLimit, "memory-limit");
}

#[test]
fn deny_in_a_writable_tree_without_mounts() {
    refused_unless_named(&host().process().option(Key::Deny, "./.env"), Layer::Deny, "deny");
    // Of what does not exist yet there is nothing to hide; it is put right at the end.
    let plan = host().process().option(Key::Deny, "./later").plan();
    assert!(plan.guards.iter().any(|guard| guard.path == Path::new("/home/u/project/later")));
}

#[test]
fn patterns_that_would_need_a_walk_are_refused() {
    for key in [Key::Protect, Key::Deny] {
        let refusal = host().option(key, "./**/secret").refusal();
        assert!(refusal.contains("**") && refusal.contains("secret"), "{refusal}");
    }
}

/// A tmpfs before Linux 6.6.
#[test]
fn layers_that_cannot_be_whole_are_refused() {
    let host = || host().option(Key::Overlay, "keep");
    host().plan();
    let refusal = host().facts(|facts| facts.layers = no("it keeps no attributes")).refusal();
    for said in ["--overlay has no place", "it keeps no attributes", "XDG_STATE_HOME"] {
        assert!(refusal.contains(said), "{refusal}");
    }
}

#[test]
fn what_is_not_built_is_refused_by_name() {
    for (key, value, name) in
        [(Key::Tier, "vm", "vm"), (Key::Overlay, "keep", "overlay"), (Key::Libs, "exact", "libs")]
    {
        let host = host().option(key, value);
        if let Err(refused) = host.try_plan() {
            assert!(refused.to_string().contains(name), "{refused}");
        }
    }
}

#[test]
fn a_denied_path_is_masked_and_its_parents_are_held() {
    let host = host().file("/home/u/project/keys/a").option(Key::Deny, "./keys/a");
    let plan = host.plan();
    let op = |path: &str| {
        plan.mounts
            .iter()
            .filter(|step| step.path == Path::new(path))
            .map(|step| &step.op)
            .collect::<Vec<_>>()
    };
    assert!(matches!(op("/home/u/project/keys/a")[..], [MountOp::Mask { directory: false }]));
    assert_eq!(
        op("/home/u/project/keys"),
        [&MountOp::Pin],
        "else a rename would carry the mask away"
    );
}

#[test]
fn deny_beats_every_grant_of_the_same_path() {
    for key in [Key::Read, Key::Write] {
        let plan =
            host().option(key, "/srv/data/secret").option(Key::Deny, "/srv/data/secret").plan();
        let binds = plan.mounts.iter().filter(|step| matches!(step.op, MountOp::Bind { .. }));
        assert!(!binds.clone().any(|step| step.path.starts_with("/srv/data/secret")));
        let files = &plan.landlock.as_ref().unwrap().files;
        assert!(!files.iter().any(|rule| rule.path.starts_with("/srv/data/secret")));
    }
}

#[test]
fn parents_are_mounted_before_children() {
    for host in
        [host(), host().root(), host().option(Key::Read, "/"), host().option(Key::Write, "/srv")]
    {
        let plan = host.plan();
        for (number, step) in plan.mounts.iter().enumerate() {
            let hides = plan.mounts[number + 1..]
                .iter()
                .find(|later| step.path.starts_with(&later.path) && step.path != later.path);
            assert!(hides.is_none(), "{hides:?} would hide {step:?}");
        }
    }
}

#[test]
fn nothing_is_writable_that_no_rule_grants() {
    let plan = host().plan();
    let writable: Vec<&Path> = plan
        .mounts
        .iter()
        .filter(|step| matches!(step.op, MountOp::Bind { read_only: false, .. }))
        .map(|step| step.path.as_path())
        .filter(|path| !path.starts_with("/dev"))
        .collect();
    assert_eq!(writable, [Path::new("/home/u/project")]);
}
