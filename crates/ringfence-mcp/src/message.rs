//! Messages, brought into the form that was judged, whoever reads them.
//!
//! Readers differ in what they take a message for: those of Go and .NET take `Name` for `name`, and the last of two;
//! some take parameters by position. So nothing is passed on that one reader could take for another thing than we
//! did: members that the protocol does not have, and spellings of those that are judged, are left out.

use serde_json::{Value, json};

/// The members of a message (JSON-RPC 2.0).
const MEMBERS: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

/// An answer that is an error.
pub(crate) fn error(id: &Value, code: i64, text: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text}})
}

/// Leaves out what no message has.
pub(crate) fn plain(message: &mut Value) {
    if let Some(members) = message.as_object_mut() {
        members.retain(|name, _| MEMBERS.contains(&name.as_str()));
    }
}

/// Leaves out other spellings of these names; what a NUL ends, for one, is all that some readers see.
pub(crate) fn spelt(value: &mut Value, names: &[&str]) {
    if let Some(members) = value.as_object_mut() {
        members.retain(|member, _| {
            let seen = member.split(char::is_control).next().unwrap_or_default();
            names.iter().all(|name| member == name || !alike(seen, name))
        });
    }
}

/// Whether a text may be another one to a reader that ends it at a NUL, or shows it somewhere.
pub(crate) fn odd(text: &str) -> bool {
    text.contains(char::is_control)
}

/// What an identifier is known by: a text or a whole number, 1.0 as 1. Nothing for what is none.
pub(crate) fn known_by(id: &Value) -> Option<String> {
    /// Whole numbers up to here are told apart by every reader.
    const MOST: f64 = 9_007_199_254_740_991.0;
    match id {
        Value::String(text) if !odd(text) => Some(id.to_string()),
        Value::Number(number) if number.is_f64() => {
            let number = number.as_f64().filter(|number| number.abs() <= MOST)?;
            (number.fract() == 0.0).then(|| (number as i64).to_string())
        }
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Whether two texts are the same to a reader that does not look at case.
pub(crate) fn alike(one: &str, other: &str) -> bool {
    // `ſ` is an `s` in upper case, the sign of Kelvin a `k` in lower case.
    let folded = |c: char| c.to_uppercase().flat_map(char::to_lowercase);
    one.chars().flat_map(folded).eq(other.chars().flat_map(folded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_are_left_out() {
        let mut message = json!({
            "jsonrpc": "2.0", "id": 1, "Id": 2, "method": "ping", "METHOD": "tools/call",
            "params": {}, "param\u{17f}": {"name": "bad"}, "further": 1,
        });
        plain(&mut message);
        assert_eq!(message, json!({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {}}));
        let mut params =
            json!({"name": "good", "Name": "bad", "namE\0x": "bad", "_meta": {}, "names": 1});
        spelt(&mut params, &["name"]);
        assert_eq!(params, json!({"name": "good", "_meta": {}, "names": 1}));
        let mut list = json!(["bad"]);
        spelt(&mut list, &["name"]);
        assert_eq!(list, json!(["bad"]));
    }

    #[test]
    fn identifiers_are_texts_and_whole_numbers() {
        let known = |id: Value| known_by(&id);
        for id in [json!(1), json!(1.0)] {
            assert_eq!(known_by(&id).as_deref(), Some("1"));
        }
        assert_eq!(known(json!("1")).as_deref(), Some("\"1\""));
        for none in [json!(null), json!(1.5), json!(1e300), json!("1\0"), json!([1]), json!(true)] {
            assert_eq!(known_by(&none), None, "{none}");
        }
    }

    #[test]
    fn texts_are_alike_whatever_their_case() {
        for (one, other) in [("tools", "TOOLS"), ("tool\u{17f}", "tools"), ("\u{212a}ey", "key")] {
            assert!(alike(one, other) && alike(other, one), "{one} {other}");
        }
        assert!(!alike("tool", "tools") && !alike("", "a"));
    }
}
