//! Records of sessions: where they may lie, and the commands that read them.

use crate::mcp::{HELLO, call};
use ringfence_tests::{Person, Place, Running, Tier, binary, everybody, left_out};
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

/// A disk of 512 KiB for the state, which only root can have here.
fn small_disk(place: &Place) -> Option<String> {
    if place.person != Person::Root {
        return None;
    }
    let disk = place.directory("small").to_str().unwrap().to_owned();
    let mounted = place.shell(&format!("mount -t tmpfs -o size=512k,mode=777 small {disk}"));
    if mounted.code != 0 {
        left_out("a full disk", mounted.err.trim());
        return None;
    }
    Some(disk)
}

/// It fills while the programs of a session are recorded: the end is on record, and how much is not.
#[test]
fn a_disk_that_fills_does_not_take_the_end_of_a_record() {
    everybody(Tier::Namespace, |place| {
        let Some(disk) = small_disk(place) else { return };
        let ringfence = format!("env XDG_STATE_HOME={disk} {}", binary().display());
        let script = format!(
            "mkfifo to from; ({ringfence} run --record-programs --name full -- \
             sh -c 'echo up; read go; for i in $(seq 200); do /bin/true; done; exit 4' \
             <to >from; echo ended $?) & exec 3>to 4<from; read up <&4; \
             dd if=/dev/zero of={disk}/fill bs=4k 2>/dev/null; echo go >&3; wait; rm {disk}/fill; \
             {ringfence} logs full; {ringfence} show full; {ringfence} report full; \
             {ringfence} show full --json"
        );
        let told = place.shell(&script);
        place.shell(&format!("umount {disk}")).ends(0);
        told.prints("ended 4").prints("exited (4)").says("this session's record is not whole");
        let (_, json) = told
            .text()
            .rsplit_once("\n{\n")
            .map(|(a, b)| (a.to_owned(), format!("{{{b}")))
            .unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let lost = json["session"]["lost"].as_u64().unwrap();
        assert!(lost > 100 && json["session"]["code"] == 4, "{json}");
        told.prints(&format!("lost         {lost} events"))
            .prints(&format!("lost      {lost} events"))
            .prints(&format!("{lost} events could not be kept"));
    });
}
