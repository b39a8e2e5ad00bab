//! Requests that are too long, and too many at once: each has its answer.

use crate::mcp::{HELLO, call, talk};
use ringfence_tests::{Running, Tier, binary, everybody};

#[test]
fn a_request_that_is_too_long_is_answered() {
    everybody(Tier::Namespace, |place| {
        let long =
            |length: usize| format!(r#"{{"command":["true"],"stdin":"{}"}}"#, "x".repeat(length));
        // As JavaScript writes it, with the identifier at the end.
        let last = format!(
            r#"{{"method":"tools/call","params":{{"name":"exec","arguments":{}}},"jsonrpc":"2.0","id":"a"}}"#,
            long(20 << 20)
        );
        let messages = [
            HELLO.to_owned(),
            call(2, "exec", &long(17 << 20)),
            last + "\n",
            format!(
                "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\",\"params\":{}}}\n",
                long(17 << 20)
            ),
            format!("[{}]\n", long(17 << 20)),
            // The control, before and behind.
            call(3, "exec", r#"{"command":["true"]}"#),
            call(4, "exec", &long(15 << 20)),
        ];
        let run = talk(place, &["mcp"], messages.concat());
        let answers: Vec<serde_json::Value> =
            run.ends(0).text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let of = |id: serde_json::Value| {
            let mine: Vec<_> = answers.iter().filter(|answer| answer["id"] == id).collect();
            assert_eq!(mine.len(), 1, "{id}: {answers:?}");
            mine[0].clone()
        };
        for id in [2.into(), "a".into()] {
            let error = of(id)["error"]["message"].to_string();
            assert!(error.contains("longer than 16777216 bytes"), "{error}");
        }
        assert!(of(serde_json::Value::Null)["error"].is_object());
        for id in [3, 4] {
            assert_eq!(of(id.into())["result"]["structuredContent"]["exit_code"], 0);
        }
        // The notification has none.
        assert_eq!(answers.len(), 6, "{answers:?}");
    });
}

#[test]
fn more_calls_than_there_is_room_for_wait() {
    everybody(Tier::Namespace, |place| {
        let calls = (2..152).map(|id| call(id, "exec", r#"{"command":["true"]}"#));
        let messages: String = std::iter::once(HELLO.to_owned()).chain(calls).collect();
        let mut command = place.command("sh");
        command.args(["-c", "ulimit -n 100; exec \"$1\" mcp", "sh"]).arg(binary());
        let run = Running::start_with(command, messages.into_bytes()).finish();
        let text = run.ends(0).text();
        let well = text.lines().filter(|line| line.contains("\"exit_code\":0"));
        assert_eq!(well.count(), 150, "{text}");
    });
}
