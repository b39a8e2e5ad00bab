//! The environment: credentials hidden, what is named set.

use super::built_in;
use crate::dbus;
use crate::facts::Facts;
use crate::plan::{Bus, EnvironmentStep, Tier};
use ringfence_policy::own::LEARNING;
use ringfence_policy::{Hidden, NetworkMode, Policy, Source};

/// Variables that name host directories which the sandbox does not have.
const POINTING_OUTSIDE: [&str; 5] = ["XDG_RUNTIME_DIR", "TMPDIR", "TEMP", "TMP", "TMPPREFIX"];

fn is_proxy(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let proxies = ["http_proxy", "https_proxy", "all_proxy", "ftp_proxy", "no_proxy"];
    proxies.contains(&name.as_str())
}

pub(super) fn steps(
    policy: &Policy,
    facts: &Facts,
    tier: Tier,
    bus: Option<&Bus>,
) -> Vec<EnvironmentStep> {
    let environment = &policy.environment;
    let ours = |name: &str| bus.is_some() && name == dbus::VARIABLE;
    let mut steps = Vec::new();
    if environment.clean {
        steps.push(EnvironmentStep::Clean { rule: built_in("--clean-env") });
    }
    for name in &facts.environment {
        if environment.set.contains_key(name) || ours(name) {
            continue;
        }
        match environment.hides(name) {
            Some(Hidden::Clean) => {}
            Some(Hidden::Pattern(_, rule)) => {
                steps.push(EnvironmentStep::Hide { name: name.clone(), rule: rule.clone() });
            }
            // Another sandbox's, around this one.
            None if name == super::gateway::VARIABLE => {
                let rule = built_in("is the gateway of another sandbox");
                steps.push(EnvironmentStep::Hide { name: name.clone(), rule });
            }
            // What a run is told by the `learn` that watches it.
            None if name == LEARNING || name == dbus::TRACE => {
                let rule = built_in("is ringfence's own");
                steps.push(EnvironmentStep::Hide { name: name.clone(), rule });
            }
            None if environment.clean || environment.pass.contains_key(name) => {
                let rule = environment.passed(name).cloned();
                let rule = rule.unwrap_or_else(|| built_in("kept by --clean-env"));
                steps.push(EnvironmentStep::Pass { name: name.clone(), rule });
            }
            None if tier == Tier::Namespace && POINTING_OUTSIDE.contains(&name.as_str()) => {
                let rule = built_in("names a directory of the host");
                steps.push(EnvironmentStep::Hide { name: name.clone(), rule });
            }
            None if policy.network.mode == NetworkMode::Filtered && is_proxy(name) => {
                // Connections are captured as they are, and the gateway asks that proxy itself.
                let rule = built_in("names a proxy of the host");
                steps.push(EnvironmentStep::Hide { name: name.clone(), rule });
            }
            None => {}
        }
    }
    let mut set = |name: &str, value: &str, rule: Source| {
        steps.push(EnvironmentStep::Set { name: name.to_owned(), value: value.to_owned(), rule });
    };
    set("RINGFENCE", "1", built_in("tells programs where they are"));
    if policy.network.mode == NetworkMode::None {
        set("RINGFENCE_NETWORK", "none", built_in("tells programs where they are"));
    }
    if let Some(socket) = super::gateway::socket(policy).filter(|_| tier == Tier::Namespace) {
        set(
            super::gateway::VARIABLE,
            &socket.to_string_lossy(),
            built_in("where snapshots are made"),
        );
    }
    if let Some(bus) = bus {
        set(dbus::VARIABLE, &format!("unix:path={}", bus.socket.display()), bus.rule.clone());
    }
    for (name, (value, rule)) in environment.set.iter().filter(|(name, _)| !ours(name)) {
        set(name, value, rule.clone());
    }
    super::trust::environment(policy, &facts.environment, tier, &mut steps);
    steps
}
