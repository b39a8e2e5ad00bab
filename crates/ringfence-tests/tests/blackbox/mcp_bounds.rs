//! Requests that are too long, too many at once, or wrong: each has its answer, and what is no request has none.

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

/// JSON-RPC 2.0, §4.1, §5 and §5.1.
#[test]
fn what_is_wrong_has_the_answer_that_the_standard_says() {
    everybody(Tier::Namespace, |place| {
        let line = |rest: &str| format!("{{\"jsonrpc\":\"2.0\",{rest}}}\n");
        // The protocol's: before a session begins, too.
        let early = line(r#""method":"notifications/none""#);
        let batch =
            |id: u32| format!("[{}]\n", line(&format!(r#""id":{id},"method":"ping""#)).trim());
        let messages = [
            early.clone(),
            line(r#""id":9,"method":"initialize","params":{}"#),
            HELLO.to_owned(),
            line(r#""method":"tools/call","params":{"name":5}"#),
            line(r#""method":"tools/list","params":[1]"#),
            line(r#""method":"none","params":5"#),
            early,
            line(r#""id":2,"method":"tools/call","params":{"name":["exec"]}"#),
            line(r#""id":3,"method":"tools/call","params":["exec"]"#),
            line(r#""id":4,"method":"none""#),
            "no JSON\n".to_owned(),
            "{\"jsonrpc\":\"2.0\",\"id\":5,\n".to_owned(),
            "5\n".to_owned(),
            line(r#""id":null,"method":"ping""#),
            batch(6),
            line(r#""id":7,"method":"ping""#),
        ];
        let run = talk(place, &["mcp"], messages.concat());
        let answers: Vec<serde_json::Value> =
            run.ends(0).text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let of = |id: serde_json::Value| {
            let mine = answers.iter().filter(|answer| answer.get("id") == Some(&id));
            let mut codes: Vec<_> = mine.map(|answer| answer["error"]["code"].as_i64()).collect();
            codes.sort_unstable();
            codes
        };
        for (id, code) in [(9, -32602), (2, -32602), (3, -32602), (4, -32601)] {
            assert_eq!(of(id.into()), [Some(code)], "{id}: {answers:?}");
        }
        let wrong = [-32700, -32700, -32600, -32600, -32600].map(Some);
        assert_eq!(of(serde_json::Value::Null), wrong, "{answers:?}");
        // The controls, and nothing for what is no request.
        assert_eq!((of(1.into()), of(7.into())), (vec![None], vec![None]), "{answers:?}");
        assert_eq!(answers.len(), 11, "{answers:?}");
        // One revision has batches.
        let hello = HELLO.replace("2025-06-18", "2025-03-26");
        let run = talk(place, &["mcp"], [hello, batch(6)].concat());
        run.ends(0).prints(r#"{"jsonrpc":"2.0","id":6,"result":{}}"#);
    });
}
