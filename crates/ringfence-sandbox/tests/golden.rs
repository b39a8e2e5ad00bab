//! Plans of made-up hosts, held against files in `golden/`.
//!
//! `RINGFENCE_UPDATE_GOLDEN=1 cargo test -p ringfence-sandbox --test golden` writes them anew;
//! what changed is then read in the diff. `ordinary-user.json` is the whole plan; the others
//! hold only what differs from it.
#![allow(missing_docs, clippy::unwrap_used)]

mod host;

use host::{Host, host, no};
use ringfence_policy::Key;
use serde_json::{Map, Value, json};
use std::path::Path;

/// What became of a request: the plan, or the refusal.
fn outcome(host: &Host) -> Map<String, Value> {
    let value = match host.try_plan() {
        Ok(plan) => serde_json::to_value(plan).unwrap(),
        Err(refused) => json!({ "refused": refused.to_string() }),
    };
    let Value::Object(mut parts) = value else { panic!("a plan is an object") };
    if let Some(trees) = parts.get_mut("guarded_trees") {
        *trees = guarded_names(trees);
    }
    parts
}

/// The names guarded in each tree, one by one: so that a difference shows just those that differ.
fn guarded_names(trees: &Value) -> Value {
    let mut names = Vec::new();
    for tree in trees.as_array().unwrap() {
        for list in ["absent", "nested"] {
            for name in tree[list].as_array().unwrap() {
                let (name, kind) = (name[0].as_str().unwrap(), name[1].as_str().unwrap());
                names.push(format!("{} {list} {name} {kind}", tree["tree"].as_str().unwrap()));
            }
        }
    }
    names.into()
}

/// What differs from the ordinary user's plan.
fn difference(host: &Host) -> Value {
    let usual = outcome(&self::host());
    let mut parts = outcome(host);
    let refused = parts.contains_key("refused");
    let gone: Vec<String> =
        usual.keys().filter(|key| !refused && !parts.contains_key(*key)).cloned().collect();
    parts.retain(|key, value| usual.get(key) != Some(value));
    for (key, value) in &mut parts {
        if let (Some(Value::Array(usual)), Value::Array(now)) = (usual.get(key), &*value) {
            let added: Vec<_> = now.iter().filter(|step| !usual.contains(step)).cloned().collect();
            let removed: Vec<_> =
                usual.iter().filter(|step| !now.contains(step)).cloned().collect();
            let moved = added.is_empty() && removed.is_empty();
            *value =
                if moved { value.clone() } else { json!({ "added": added, "removed": removed }) };
        }
    }
    parts.extend(gone.into_iter().map(|key| (key, Value::Null)));
    Value::Object(parts)
}

/// JSON with one step a line.
fn lines(value: &Value, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    let (open, close, items): (_, _, Vec<(String, &Value)>) = match value {
        Value::Object(parts) if depth < 3 && !parts.is_empty() => {
            ("{", "}", parts.iter().map(|(key, value)| (format!("{key:?}: "), value)).collect())
        }
        Value::Array(steps) if depth < 4 && !steps.is_empty() => {
            ("[", "]", steps.iter().map(|step| (String::new(), step)).collect())
        }
        other => return out.push_str(&other.to_string()),
    };
    let step = matches!(value, Value::Array(_));
    out.push_str(open);
    for (number, (key, item)) in items.iter().enumerate() {
        let comma = if number == 0 { "" } else { "," };
        out.push_str(&format!("{comma}\n{indent}  {key}"));
        if step { out.push_str(&item.to_string()) } else { lines(item, depth + 1, out) }
    }
    out.push_str(&format!("\n{indent}{close}"));
}

#[track_caller]
fn golden(name: &str, value: &Value) {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.json"));
    let mut text = String::new();
    lines(value, 0, &mut text);
    text.push('\n');
    if std::env::var_os("RINGFENCE_UPDATE_GOLDEN").is_some() {
        return std::fs::write(&path, text).unwrap();
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = wanted.lines().zip(text.lines()).find(|(wanted, now)| wanted != now);
    let (before, now) = differs.unwrap_or(("another number of lines", ""));
    assert!(
        wanted == text,
        "{} differs; first in\n  was: {before}\n  now: {now}\nRINGFENCE_UPDATE_GOLDEN=1 writes it anew",
        path.display()
    );
}

#[test]
fn the_ordinary_users_plan() {
    golden("ordinary-user", &Value::Object(outcome(&host())));
}

#[test]
fn roots_plan() {
    golden("root", &difference(&host().root()));
}

#[test]
fn the_process_tiers_plan() {
    golden("process-tier", &difference(&host().process()));
}

#[test]
fn without_user_namespaces() {
    golden("no-user-namespaces", &difference(&host().no_namespaces()));
}

#[test]
fn each_version_of_landlock() {
    let mut versions = Map::new();
    for version in 0..=7 {
        let both = json!({
            "namespace": difference(&host().abi(version)),
            "process": match host().abi(version).process().try_plan() {
                Ok(plan) => json!({ "landlock": { "abi": plan.landlock.as_ref().map(|domain| domain.abi),
                    "scoped": plan.landlock.as_ref().map(|domain| domain.scoped) } }),
                Err(refused) => json!({ "refused": refused.to_string() }),
            },
        });
        versions.insert(format!("version {version}"), both);
    }
    golden("landlock-versions", &Value::Object(versions));
}

#[test]
fn without_seccomp() {
    let without = || host().facts(|facts| facts.seccomp = no("the kernel has no seccomp filters"));
    let both = json!({
        "refused": difference(&without()),
        "accepted": difference(&without().option(Key::AllowDegraded, "seccomp")),
        "no notification, process": difference(
            &host().facts(|facts| facts.seccomp_notify = no("too old")).process()
        ),
        "no notification": difference(&host().facts(|facts| facts.seccomp_notify = no("too old"))),
    });
    golden("no-seccomp", &both);
}

#[test]
fn denials_inside_grants() {
    let denied = || {
        let host = host().option(Key::Deny, "./.env").option(Key::Deny, "./later");
        host.option(Key::Read, "/srv/data").option(Key::Deny, "/srv/data/secret")
    };
    let all = json!({
        "namespace": difference(&denied()),
        "process": difference(&denied().process()),
        "process, accepted": difference(&denied().process().option(Key::AllowDegraded, "deny")),
    });
    golden("deny-inside-grant", &all);
}

#[test]
fn protected_paths() {
    let protected = || {
        let host = host().file("/home/u/project/ci/build").link("/home/u/project/.vscode", "src");
        host.option(Key::Protect, "./ci/build")
            .option(Key::Protect, "./absent")
            .option(Key::Protect, "./s*c")
    };
    let all = json!({
        "namespace": difference(&protected()),
        "process": difference(&protected().process()),
        "named exactly": difference(&protected().option(Key::Write, "./.vscode")),
    });
    golden("protect", &all);
}

#[test]
fn limits() {
    let limited = |host: Host| {
        let host = host.option(Key::Memory, "1G").option(Key::Pids, "64").option(Key::Cpus, "1.5");
        host.option(Key::OpenFiles, "256").option(Key::Disk, "2G").option(Key::Timeout, "90s")
    };
    let accept = |host: Host| {
        ["memory-limit", "pids-limit", "cpus-limit", "disk-limit"]
            .into_iter()
            .fold(host, |host, layer| host.option(Key::AllowDegraded, layer))
    };
    let all = json!({
        "groups of version 2": difference(&limited(host().cgroups_v2())),
        "groups of version 1, root": difference(&limited(host().root().cgroups_v1())),
        "no groups": difference(&limited(host())),
        "no groups, accepted": difference(&accept(limited(host()))),
        "no groups, root, accepted": difference(&accept(limited(host().root()))),
        "process, accepted": difference(&accept(limited(host().process()))),
    });
    golden("limits", &all);
}

#[test]
fn network_and_sockets() {
    let all = json!({
        "host": difference(&host().option(Key::Mode, "host")),
        "host, process": difference(&host().option(Key::Mode, "host").process()),
        "host, Landlock 5": difference(&host().option(Key::Mode, "host").abi(5)),
        "filtered": difference(&host().option(Key::AllowHost, "example.org")),
        "filtered, process": difference(&host().option(Key::AllowHost, "example.org").process()),
        "published": difference(&host().option(Key::Publish, "3000")),
        "published, root": difference(&host().root().option(Key::Publish, "3000")),
        "published, Landlock 3": difference(&host().root().abi(3).option(Key::Publish, "3000")),
        "published to all, Landlock 3":
            difference(&host().root().abi(3).option(Key::Publish, "0.0.0.0:3000:3000")),
        "published, process": difference(&host().option(Key::Publish, "3000").process()),
        "a socket": difference(&host().option(Key::Sockets, "/run/docker.sock")),
        "a socket, process": difference(&host().option(Key::Sockets, "/run/docker.sock").process()),
        "a tree with sockets": difference(&host().option(Key::Read, "/run")),
    });
    golden("network", &all);
}

#[test]
fn homes_and_roots() {
    let all = json!({
        "the host's": difference(&host().option(Key::Home, "host")),
        "named": difference(&host().option(Key::Home, "agent")),
        "everything readable": difference(&host().option(Key::Read, "/")),
        "everything readable, root": difference(&host().root().option(Key::Read, "/")),
        "a clean environment": difference(&host().option(Key::Clean, "true")),
        "on a terminal": difference(&host().facts(|facts| facts.terminal = Some("/dev/pts/7".into()))),
    });
    golden("homes", &all);
}
