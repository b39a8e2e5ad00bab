//! A workspace in the middle of a protected name: what is protected from the project is protected from there too.

use ringfence_tests::{Finished, Place, Running, binary, everywhere};
use std::fs;

/// Directories, and what is protected in them.
const BEGUN: [(&str, &str); 9] = [
    ("tools", "bazel"),
    (".github", "mcp.json"),
    (".github", "hooks"),
    (".cargo", "config.toml"),
    (".yarn", "releases"),
    ("debian", "gbp.conf"),
    (".claude", "settings.json"),
    (".config", "lefthook.toml"),
    ("deep/.jj/repo", "config.toml"),
];

/// Those that are protected whole.
const WHOLE: [&str; 3] = [".vscode", ".git/hooks", ".claude/skills/x"];

fn run_in(place: &Place, directory: &str, options: &[&str], script: &str) -> Finished {
    let mut command = place.ringfence_run();
    command.current_dir(place.project(directory)).args(options).args(["--", "sh", "-c", script]);
    Running::start(command).finish()
}

fn why_in(place: &Place, directory: &str, name: &str) -> Finished {
    let mut command = place.command(binary());
    command.current_dir(place.project(directory)).args(["why", "--tier", place.tier_name()]);
    command.args(["--", "write"]).arg(place.project(directory).join(name));
    Running::start(command).finish()
}

#[test]
fn what_the_workspaces_own_name_begins_is_protected() {
    everywhere(|place| {
        for (directory, name) in BEGUN {
            place.directory(format!("home/project/{directory}"));
            why_in(place, directory, name).prints("denied").prints("protected");
            let act = format!("echo inside > {name}; echo inside > other");
            let outcome = run_in(place, directory, &[], &act);
            outcome.ends(0).says(name);
            let at = place.project(directory);
            assert!(!at.join(name).exists(), "{directory}: {}", outcome.err);
            // The control: what the project may write, it may from there.
            assert_eq!(fs::read_to_string(at.join("other")).unwrap(), "inside\n");
        }
    });
}

#[test]
fn what_is_there_already_stays_as_it_is() {
    everywhere(|place| {
        for (directory, name) in BEGUN {
            place.file(format!("home/project/{directory}/{name}"), "host's");
        }
        place.clock_moves_on();
        for (directory, name) in BEGUN {
            let outcome = run_in(place, directory, &[], &format!("echo inside > {name}; true"));
            let now = fs::read_to_string(place.project(directory).join(name)).unwrap();
            assert_eq!(now, "host's", "{directory}: {}", outcome.err);
        }
        let granted = run_in(place, "tools", &["--write", "bazel"], "echo inside > bazel");
        granted.ends(0);
        assert_eq!(fs::read_to_string(place.project("tools/bazel")).unwrap(), "inside\n");
    });
}

#[test]
fn what_is_protected_whole_is_no_workspace() {
    everywhere(|place| {
        for directory in WHOLE {
            place.directory(format!("home/project/{directory}"));
            let outcome = run_in(place, directory, &[], "echo inside > x");
            outcome.says("is not granted as the workspace").says("is protected");
            assert_ne!(outcome.code, 0, "{directory}");
            assert!(!place.project(directory).join("x").exists(), "{directory}");
            let why = why_in(place, directory, "x");
            assert!(!why.text().contains("is writable"), "{}", why.text());
            run_in(place, directory, &["--write", "."], "echo inside > x").ends(0);
            assert!(place.project(directory).join("x").exists(), "{directory}");
        }
        // The controls: worktrees, and a repository that is called as a file of somebody's is.
        for directory in [".claude/worktrees/x", ".cursor/worktrees/x", "rust-toolchain"] {
            place.directory(format!("home/project/{directory}"));
            run_in(place, directory, &[], "echo inside > x").ends(0);
            assert!(place.project(directory).join("x").exists(), "{directory}");
        }
    });
}
