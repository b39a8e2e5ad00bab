//! Records of sessions: where they may lie, and the commands that read them.

use crate::mcp::{HELLO, call};
use ringfence_tests::{Running, Tier, binary, everybody};
use std::fs;

/// Homes are links where they were moved to a larger disk.
#[test]
fn a_record_behind_a_link_is_read() {
    everybody(Tier::Namespace, |place| {
        place.shell("mkdir ../real && ln -s real ../link");
        let state = place.root().join("home/link");
        let ringfence = |words: &[&str]| {
            let mut command = place.command(binary());
            command.args(words).env("XDG_STATE_HOME", &state);
            Running::start_with(command, Vec::new()).finish()
        };
        ringfence(&["run", "--name", "linked", "--", "sh", "-c", "exit 3"]).ends(3);
        ringfence(&["logs", "linked"]).ends(0).prints("exec");
        ringfence(&["show", "linked"]).ends(0).prints("exited (3)");
        assert!(fs::symlink_metadata(&state).unwrap().is_symlink());
    });
}

#[test]
fn every_command_tells_what_it_takes() {
    everybody(Tier::Namespace, |place| {
        let all = place.ringfence(["--help"]).text();
        let commands: Vec<&str> = all
            .lines()
            .skip_while(|line| !line.starts_with("Commands"))
            .skip(1)
            .take_while(|line| !line.is_empty())
            .filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next())
            .collect();
        assert!(commands.contains(&"ps") && commands.len() > 30, "{all}");
        for command in commands.into_iter().filter(|command| *command != "version") {
            let told = place.ringfence([command, "--help"]);
            assert!(told.ends(0).text().contains("Usage: ringfence"), "{command}: {}", told.text());
        }
        place.ringfence(["rm", ""]).ends(125).says("the name of a session is empty");
    });
}

/// A client's first calls come before the sandbox of the server is there.
#[test]
fn calls_that_are_refused_at_once_are_on_record() {
    everybody(Tier::Namespace, |place| {
        let calls = (2..6).map(|id| call(id, "bad", "{}"));
        let messages: String = std::iter::once(HELLO.to_owned()).chain(calls).collect();
        let mut command = place.command(binary());
        command.args(["mcp", "wrap", "--deny-tool", "bad", "--", "cat"]);
        Running::start_with(command, messages.into_bytes()).finish().ends(0);
        let log = place.ringfence(["logs", "latest", "--kind", "tool_call"]).text();
        assert_eq!(log.matches("DENIED bad").count(), 4, "{log}");
    });
}
