//! Calls to somebody else's server that are never answered: each has its row.

use crate::mcp::{HELLO, call, talk};
use ringfence_tests::{Place, Running, Tier, binary, everybody};
use rustix::process::Signal;
use serde_json::Value;

/// The rows of calls, and the session.
fn record(place: &Place) -> (Vec<Value>, Value) {
    let json = |words: &[&str]| -> Value {
        serde_json::from_str(&place.ringfence(words).quiet()).unwrap()
    };
    let mut logs = json(&["logs", "latest", "--kind", "tool_call", "--json"]);
    let rows = serde_json::from_value(logs["events"].take()).unwrap();
    (rows, json(&["show", "latest", "--json"])["session"].take())
}

/// Reads so many messages, answers the call with the number 2, and does the rest of the script.
fn server(messages: usize, rest: &str) -> String {
    let answer = r#"{"jsonrpc":"2.0","id":2,"result":{"content":[]}}"#;
    format!("for i in $(seq {messages}); do read line; done; echo '{answer}'; {rest}")
}

/// A guard whose server is up, and has answered the call with the number 2.
fn guarded(place: &Place, script: &str, messages: &[String]) -> Running {
    let mut command = place.command(binary());
    command.args(["mcp", "wrap", "--", "sh", "-c", script]);
    let mut running = Running::start_with(command, messages.concat().into_bytes());
    running.said("up\n").printed("\"id\":2,");
    running
}

#[test]
fn a_call_whose_server_ends_is_on_record() {
    everybody(Tier::Namespace, |place| {
        let long = format!("{{\"text\":\"{}\"}}", "x".repeat(5000));
        let cancelled = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":4}}\n";
        let messages = [
            HELLO.to_owned(),
            call(2, "answered", "{}"),
            call(3, "first", &long),
            call(4, "second", &long),
            cancelled.to_owned(),
        ];
        let script = server(6, "exit 3");
        talk(place, &["mcp", "wrap", "--", "sh", "-c", &script], messages.concat()).ends(3);
        let (rows, session) = record(place);
        let told: Vec<_> = rows.iter().map(|row| (row["tool"].as_str(), &row["error"])).collect();
        let (ended, cancelled): (Value, Value) =
            ("the server ended before it answered".into(), "the client cancelled it".into());
        let wanted = [
            (Some("answered"), &Value::Null),
            (Some("first"), &ended),
            (Some("second"), &cancelled),
        ];
        assert_eq!(told, wanted);
        // However long they are, and though they came after the session's own end.
        assert_eq!((&session["status"], &session["code"]), (&"exited".into(), &3.into()));
    });
}

#[test]
fn a_call_whose_client_leaves_is_on_record() {
    everybody(Tier::Namespace, |place| {
        let messages = [HELLO.to_owned(), call(2, "answered", "{}"), call(3, "open", "{}")];
        let script = server(4, "echo up >&2; exec sleep 1000");
        let running = guarded(place, &script, &messages);
        // As clients end their servers.
        running.signal(Signal::TERM);
        running.finish().ends(143);
        let (rows, session) = record(place);
        let told: Vec<_> = rows.iter().map(|row| (&row["tool"], row["error"].as_str())).collect();
        let told_to_end = Some("the guard was told to end before the server answered");
        assert_eq!(told, [(&"answered".into(), None), (&"open".into(), told_to_end)]);
        assert_eq!(session["signal"], 15);
        assert_eq!(place.left_behind(), [""; 0]);
    });
}

/// Clients kill what does not end when it is told to; a server takes no end for one.
#[test]
fn a_server_does_not_outlive_a_guard_that_was_killed() {
    everybody(Tier::Namespace, |place| {
        let messages = [HELLO.to_owned(), call(2, "answered", "{}")];
        let script = server(3, "trap '' HUP INT TERM; echo up >&2; exec sleep 1000");
        let running = guarded(place, &script, &messages);
        running.signal(Signal::KILL);
        // The server has the same stderr: this waits for its end.
        running.finish().ends(137);
    });
}

/// A server may end by and by, or take a signal for something else (HUP, to read its settings again).
#[test]
fn an_answer_that_comes_after_a_signal_is_passed_on() {
    everybody(Tier::Namespace, |place| {
        let ping = "{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"ping\"}\n";
        let messages =
            [HELLO.to_owned(), call(2, "answered", "{}"), call(3, "open", "{}"), ping.into()];
        for (name, signal) in [("TERM", Signal::TERM), ("HUP", Signal::HUP)] {
            let late =
                |id| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"late\":1}}}}");
            let end = format!(
                "late() {{ echo \"$first\"; echo \"$second\"; exit 0; }}; trap late {name}; \
                 first='{}'; second='{}'; sleep 1000 & echo up >&2; wait",
                late(3),
                late(4)
            );
            let script = server(5, &end);
            let running = guarded(place, &script, &messages);
            running.signal(signal);
            let done = running.finish();
            done.ends(0);
            for id in [2, 3, 4] {
                done.prints(&format!("\"id\":{id},"));
            }
            assert!(!done.err.contains("left out"), "{}", done.err);
            // Each call has one row.
            let (rows, _) = record(place);
            let told: Vec<_> =
                rows.iter().map(|row| (&row["tool"], row["error"].as_str())).collect();
            let told_to_end = Some("the guard was told to end before the server answered");
            assert_eq!(told, [(&"answered".into(), None), (&"open".into(), told_to_end)]);
        }
    });
}

/// JavaScript and Python write what JSON does not allow, and read it; what nobody can read is waited for by nobody.
#[test]
fn answers_that_are_no_json_are_answers() {
    everybody(Tier::Namespace, |place| {
        let messages = [
            HELLO.to_owned(),
            call(2, "cut", "{\"text\":\"half \\ud83d\",\"n\":0.025678275830824982}"),
            call(3, "large", "{}"),
        ];
        let script = r#"read a; read b; read c; read d; printf '%s\n' "$c" >&2
            printf '%s\n' '{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"cut \ud83d"}]}}'
            printf '%s\n' '{"jsonrpc":"2.0","id":3,"result":{"n":1e400}}'"#;
        let run = talk(place, &["mcp", "wrap", "--", "sh", "-c", script], messages.concat());
        run.ends(0)
            .prints("\"text\":\"cut \u{fffd}\"")
            .prints("the server's answer cannot be read: number out of range")
            .says("half \u{fffd}")
            .says("0.025678275830824982");
        let (rows, _) = record(place);
        let errors: Vec<_> =
            rows.iter().map(|row| (&row["tool"], row["error"].is_null())).collect();
        assert_eq!(errors, [(&"cut".into(), true), (&"large".into(), false)]);
    });
}

#[test]
fn an_answer_that_is_too_long_ends_its_call_and_not_the_conversation() {
    everybody(Tier::Namespace, |place| {
        let messages = [HELLO.to_owned(), call(2, "long", "{}"), call(3, "next", "{}")];
        let script = r#"read a; read b; read c; read d
            printf '{"jsonrpc":"2.0","result":{"content":[{"type":"text","text":"'
            head -c 70000000 /dev/zero | tr '\0' x
            printf '"}]},"id":2}\n'
            head -c 70000000 /dev/zero | tr '\0' x; echo
            printf '%s\n' '{"jsonrpc":"2.0","id":3,"result":{"content":[]}}'; exit 3"#;
        let run = talk(place, &["mcp", "wrap", "--", "sh", "-c", script], messages.concat());
        run.ends(3).says("what is no message (it is longer than 67108864 bytes); it was left out");
        let answers: Vec<Value> =
            run.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(answers.len(), 2, "{answers:?}");
        let why = "the server's answer cannot be read: it is longer than 67108864 bytes";
        assert_eq!((&answers[0]["id"], &answers[0]["error"]["message"]), (&2.into(), &why.into()));
        assert!(answers[1]["result"].is_object(), "{answers:?}");
        let (rows, _) = record(place);
        let told: Vec<_> = rows.iter().map(|row| (&row["tool"], row["error"].as_str())).collect();
        assert_eq!(told, [(&"long".into(), Some(why)), (&"next".into(), None)]);
    });
}
