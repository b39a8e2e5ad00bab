//! What grants of peers open: the profile says it before each run, as profiles that come with ringfence do.

use crate::key::Key;

/// Sockets behind which a service starts containers, and with them programs of the host's root.
const OF_CONTAINERS: [&str; 8] = [
    "docker.sock",
    "podman.sock",
    "containerd.sock",
    "crio.sock",
    "buildkitd.sock",
    "lxd.socket",
    "incus.socket",
    "docker-cli-api.sock",
];

/// Of a rule that grants a path.
pub(super) fn of_path(key: Key, rule: &str) -> Option<String> {
    if !matches!(key, Key::Read | Key::Write | Key::Sockets) {
        return None;
    }
    let last = rule.rsplit('/').next().unwrap_or_default();
    if OF_CONTAINERS.contains(&last) {
        return Some(format!(
            "whoever talks to {rule} is root on this machine, or as good as that: there is no boundary any more against one that means harm"
        ));
    }
    if key == Key::Sockets {
        return Some(format!("who listens at {rule} acts for it, outside the sandbox"));
    }
    let tree = rule.trim_end_matches(['/', '*']);
    let whole = match tree {
        "" => rule.starts_with('/').then_some("all files of the host"),
        "~" | "/home" | "/root" => Some("all of the home, what is secret there too,"),
        _ => None,
    }?;
    let does = if key == Key::Write { "changed" } else { "read" };
    Some(format!("{whole} can be {does} ({rule})"))
}

/// Of a rule that allows hosts.
pub(super) fn of_host(rule: &str) -> Option<String> {
    let host = rule.split_once(':').map_or(rule, |(host, _)| host);
    (host == "*").then(|| "what it reads can be sent to every host".to_owned())
}
