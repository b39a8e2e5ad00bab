//! Which profile a command gets by its name.

use crate::common::host;
use ringfence_policy::{Access, Key, Policy};
use std::path::Path;

fn granted(policy: &Policy, access: Access, path: &str) -> bool {
    policy.paths.iter().any(|rule| rule.access == access && rule.path == Path::new(path))
}

#[test]
fn a_known_agent_brings_its_preset() {
    let mut host = host().with(|files| files.directory("/home/u/.claude"));
    host.request.command = Some("/usr/local/bin/claude".into());
    let policy = host.policy();
    assert_eq!(policy.profiles, ["profile default", "feature git", "profile claude"]);
    assert!(granted(&policy, Access::Write, "/home/u/.claude"));
    assert!(granted(&policy, Access::Protect, "/home/u/.claude/settings.json"));
    assert!(policy.environment.hides("ANTHROPIC_API_KEY").is_none());
    assert!(policy.environment.hides("GITHUB_TOKEN").is_some());
    host.request.command = Some("ls".into());
    assert_eq!(host.policy().profiles, ["profile default"]);
}

/// A run could have left it there: with the preset it would have the agent's login.
#[test]
fn what_path_finds_where_runs_write_brings_no_preset() {
    let search = |path: &str, command: &str| {
        let mut host = host()
            .with(|files| {
                files
                    .directory("/home/u/.claude")
                    .file("/home/u/project/bin/claude", "")
                    .file("/home/u/project/claude", "")
                    .file("/srv/tools/claude", "")
                    .file("/usr/local/bin/claude", "")
                    .symlink("/home/u/.local/bin/claude", "/home/u/project/bin/claude")
            })
            .env("PATH", path);
        host.request.command = Some(command.into());
        host
    };
    let with = |path: &str| search(path, "claude").policy();
    let gets = |policy: &Policy| policy.profiles.iter().any(|name| name == "profile claude");
    for path in [
        "/home/u/project/bin:/usr/local/bin",
        "/home/u/.local/bin:/usr/local/bin",
        ".:/usr/local/bin",
        "/home/u/.local/../project/bin:/usr/local/bin",
    ] {
        let policy = with(path);
        assert!(!gets(&policy), "{path}");
        assert!(policy.warnings.iter().any(|warning| warning.contains("by PATH")), "{path}");
    }
    for path in ["/usr/local/bin:/home/u/project/bin", "/home/u/none:/srv/tools", "/home/u/none"] {
        assert!(gets(&with(path)), "{path}: the control");
    }
    let tools = search("/srv/tools", "claude").option(Key::Write, "/srv/tools");
    assert!(!gets(&tools.policy()), "a tree that an option makes writable");
    assert!(!gets(&search("", "/home/u/.local/bin/claude").policy()), "a link into the project");
}
