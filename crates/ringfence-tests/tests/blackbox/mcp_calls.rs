//! Commands that a client of the MCP server runs: how each ends, and what its answer holds.

use crate::mcp::{HELLO, call, talk};
use ringfence_tests::{Person, Running, Tier, binary, everybody};

/// A server that an agent starts in the background holds the streams of the call that started it.
#[test]
fn a_call_is_answered_when_its_command_has_ended() {
    everybody(Tier::Namespace, |place| {
        let background = |id, tool| {
            let script = "sleep 1000 & echo started; echo told >&2";
            call(
                id,
                tool,
                &format!(r#"{{"command":["sh","-c","{script}"],"stdin":"read by nobody"}}"#),
            )
        };
        let large = "x".repeat(1 << 20);
        let unread =
            format!(r#"{{"command":["sh","-c","sleep 1000 & echo second"],"stdin":"{large}"}}"#);
        let messages = [
            HELLO.to_owned(),
            background(2, "exec"),
            background(3, "run"),
            call(4, "exec", &unread),
        ];
        let run = talk(place, &["mcp"], messages.concat());
        run.ends(0).prints("\"stdout\":\"second\\n\"");
        assert_eq!(run.text().matches("\"stdout\":\"started\\n\"").count(), 2, "{}", run.text());
        assert!(run.text().contains("\"stderr\":\"told\\n\""), "{}", run.text());
        assert_eq!(place.left_behind(), [""; 0]);
    });
}

/// Ends of every kind, and more of everything than a pipe holds.
#[test]
fn a_call_tells_how_its_command_ended() {
    everybody(Tier::Namespace, |place| {
        let shell = |script: &str| format!(r#"{{"command":["sh","-c","{script}"]}}"#);
        let input = "y".repeat(300_000);
        let endless = r#"{"command":["sh","-c","trap '' TERM; echo on; while :; do sleep 1; done"],"timeout_seconds":1}"#;
        let messages = [
            HELLO.to_owned(),
            call(2, "exec", &format!(r#"{{"command":["wc","-c"],"stdin":"{input}"}}"#)),
            call(3, "exec", &shell("head -c 3000000 /dev/zero; head -c 100 /dev/zero >&2")),
            call(4, "exec", &shell("kill -KILL $$")),
            call(5, "exec", r#"{"command":["no-such-program"]}"#),
            call(6, "exec", endless),
            call(7, "exec", &shell("p=$$; (kill -STOP $p; kill -CONT $p) & wait; echo went on")),
            call(8, "exec", r#"{"command":["pwd"],"workdir":"/tmp"}"#),
            call(10, "exec", r#"{"command":["true"],"timeout_seconds":0}"#),
            call(9, "exec", "{\"command\":[\"echo\",\"a\\u0000b\"]}"),
        ];
        let run = talk(place, &["mcp"], messages.concat());
        let said = run.ends(0).text();
        let answer = |id: u32| {
            let mark = format!("\"id\":{id},");
            said.lines().find(|line| line.contains(&mark)).unwrap_or_default().to_owned()
        };
        for (id, parts) in [
            (2, &["\"stdout\":\"300000\\n\"", "\"exit_code\":0"][..]),
            (3, &["\"bytes_left_out\":1951424", "\"exit_code\":0"]),
            (4, &["\"exit_code\":137"]),
            (5, &["\"exit_code\":127", "no-such-program"]),
            (6, &["\"exit_code\":124", "ringfence: timed out after 1s"]),
            (7, &["went on", "\"exit_code\":0"]),
            (8, &["\"stdout\":\"/tmp\\n\""]),
            (9, &["an argument holds a NUL byte"]),
            (10, &["timeout_seconds must be from 1"]),
        ] {
            for part in parts {
                assert!(answer(id).contains(part), "{id} {part}: {}", answer(id));
            }
        }
        assert_eq!(place.left_behind(), [""; 0]);
    });
}

/// A server's session is called after its process, and numbers come again: one that ended long ago is not its own.
#[test]
fn an_earlier_session_of_the_same_name_is_not_taken_for_the_servers() {
    everybody(Tier::Namespace, |place| {
        if place.person == Person::Root {
            // Nothing keeps it from recording.
            return;
        }
        let sessions = place.at("home/.local/state/ringfence/sessions");
        let mut command = place.command("sh");
        let script = "\"$0\" run --name mcp-$$ -- true && chmod 500 \"$1\" && exec \"$0\" mcp";
        command.args(["-c", script]).arg(binary()).arg(&sessions);
        let messages =
            [HELLO.to_owned(), call(2, "exec", r#"{"command":["sh","-c","echo in $((40+2))"]}"#)];
        let run = Running::start_with(command, messages.concat().into_bytes()).finish();
        place.shell(&format!("chmod 700 {}", sessions.display())).ends(0);
        run.ends(0).prints("in 42").says("each command runs in a sandbox of its own");
        let logs = place.ringfence(["logs", "latest", "--kind", "tool_call"]);
        assert_eq!(logs.ends(0).text(), "", "rows of ours in the other's record");
    });
}
