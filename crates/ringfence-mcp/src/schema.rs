//! What the tools answer, as JSON Schema: clients check each answer against it. New members may come.

use rmcp::model::JsonObject;
use serde_json::{Value, json};

/// A member: its name, its schema, and whether it is always there.
type Member = (&'static str, Value, bool);

/// The schema of a tool's answer. A call that failed answers `error`, a sentence, and official clients check that too.
pub(crate) fn answer(tool: &str) -> JsonObject {
    let (all, required) = split(members(tool));
    let mut properties = all;
    properties.insert("error".to_owned(), about("string", "Why the call failed"));
    let schema = json!({
        "type": "object", "properties": properties,
        "anyOf": [{"required": required}, {"required": ["error"]}],
    });
    match schema {
        Value::Object(schema) => schema,
        _ => JsonObject::new(),
    }
}

fn members(tool: &str) -> Vec<Member> {
    let text = || json!({"type": "string"});
    match tool {
        "exec" | "run" => vec![
            (
                "exit_code",
                about("integer", "124: timed out; 125: not run; 128 + n: signal n"),
                true,
            ),
            ("stdout", text(), true),
            ("stderr", text(), true),
            ("bytes_left_out", about("integer", "Of both streams"), true),
        ],
        "read_file" => vec![
            ("path", text(), true),
            ("text", text(), true),
            ("bytes", about("integer", "Of the file; add them to `offset` to go on"), true),
            ("utf8", about("boolean", "false: what is no text is replaced"), true),
        ],
        "write_file" => vec![
            ("path", text(), true),
            ("bytes", number(), true),
            ("protected", about("string", "What becomes of it at the end of the session"), false),
        ],
        "list_directory" => {
            let kind = json!({"enum": ["file", "directory", "symlink", "other"]});
            let entry = object(vec![
                ("name", text(), true),
                ("kind", kind, true),
                ("size", number(), true),
            ]);
            let cut = "Of a listing that is too long: there are further names";
            vec![
                ("path", text(), true),
                ("entries", list(entry), true),
                ("bytes_left_out", about("integer", cut), false),
            ]
        }
        "snapshot_create" => vec![
            ("snapshot", snapshot(), true),
            ("unreadable", list(text()), true),
            ("foreign", list(text()), true),
            ("unsettled", list(text()), true),
        ],
        "snapshot_list" => vec![("snapshots", list(snapshot()), true)],
        "snapshot_show" => vec![
            ("snapshot", snapshot(), true),
            ("entries", list(entry()), false),
            ("left_out", number(), false),
            ("entry", entry(), false),
            ("text", text(), false),
            ("hex", text(), false),
        ],
        "snapshot_changes" | "snapshot_diff" => vec![
            ("from", snapshot(), true),
            ("changes", list(change(tool == "snapshot_diff")), true),
            ("left_out", number(), true),
        ],
        "snapshot_history" => {
            let nothing = json!({"anyOf": [entry(), {"type": "null"}]});
            let version = object(vec![
                ("snapshot", snapshot(), true),
                ("what", text(), true),
                ("entry", nothing, true),
            ]);
            vec![("path", text(), true), ("versions", list(version), true)]
        }
        "snapshot_revert" => vec![
            ("reverted", list(change(false)), true),
            ("left_out", number(), true),
            ("undo", maybe("string"), true),
            ("kept", list(text()), true),
        ],
        "snapshot_delete" => vec![("deleted", number(), true)],
        "why" => decision(),
        "request_access" => vec![
            ("allowed", json!({"type": "boolean"}), true),
            ("decision", object(decision()), true),
            ("say_to_the_user", text(), true),
        ],
        "session" => vec![
            ("schema", version(), true),
            ("session", session(), true),
            ("events", about("object", "How many of each kind, and how many denied"), true),
        ],
        "session_log" => {
            let event = object(vec![
                ("event", number(), true),
                ("kind", text(), true),
                ("at_us", json!({"type": "integer"}), true),
            ]);
            vec![
                ("schema", version(), true),
                ("session", session(), true),
                ("events", list(event), true),
                ("older_events_left_out", number(), true),
            ]
        }
        _ => Vec::new(),
    }
}

fn about(kind: &str, what: &str) -> Value {
    json!({"type": kind, "description": what})
}

fn version() -> Value {
    about(
        "integer",
        "Of what ringfence says as JSON: members keep their meaning as long as it stays",
    )
}

fn number() -> Value {
    json!({"type": "integer", "minimum": 0})
}

fn maybe(kind: &str) -> Value {
    json!({"type": [kind, "null"]})
}

fn list(of: Value) -> Value {
    json!({"type": "array", "items": of})
}

fn object(members: Vec<Member>) -> Value {
    let (properties, required) = split(members);
    json!({"type": "object", "properties": properties, "required": required})
}

fn split(members: Vec<Member>) -> (JsonObject, Vec<&'static str>) {
    let required = members.iter().filter(|(.., always)| *always).map(|(name, ..)| *name).collect();
    (members.into_iter().map(|(name, schema, _)| (name.to_owned(), schema)).collect(), required)
}

fn snapshot() -> Value {
    let text = || json!({"type": "string"});
    object(vec![
        ("id", number(), true),
        ("name", maybe("string"), true),
        ("origin", json!({"enum": ["manual", "start", "before-revert"]}), true),
        ("created_ms", number(), true),
        ("ignored", text(), true),
    ])
}

fn entry() -> Value {
    let text = || json!({"type": "string"});
    object(vec![
        ("path", text(), true),
        ("kind", text(), true),
        ("mode", text(), true),
        ("size", number(), true),
    ])
}

fn change(as_diff: bool) -> Value {
    let what = json!({"enum": ["added", "deleted", "modified", "attributes", "kind"]});
    let mut members = vec![
        ("path", json!({"type": "string"}), true),
        ("what", what, true),
        ("kind", maybe("string"), true),
    ];
    members.extend(as_diff.then(|| ("diff", json!({"type": "string"}), true)));
    object(members)
}

fn decision() -> Vec<Member> {
    let text = || json!({"type": "string"});
    vec![
        ("schema", version(), true),
        ("allowed", json!({"type": "boolean"}), true),
        ("request", json!({"type": "object"}), true),
        ("rule", maybe("object"), true),
        ("layer", text(), true),
        ("explanation", text(), true),
        ("remedy", about("string", "What the user types to allow it"), false),
        ("effect", about("string", "What becomes of a new one"), false),
    ]
}

fn session() -> Value {
    let text = || json!({"type": "string"});
    object(vec![("id", text(), true), ("status", text(), true), ("tier", text(), true)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::ALL;

    #[test]
    fn each_tool_says_what_it_answers() {
        for tool in ALL {
            let schema = Value::from(answer(tool.name));
            let always = schema["anyOf"][0]["required"].as_array().expect("a list");
            assert!(!always.is_empty(), "{}", tool.name);
            assert!(always.iter().all(|name| {
                schema["properties"].get(name.as_str().unwrap_or_default()).is_some()
            }));
            assert_eq!(schema["type"], "object");
        }
    }
}
