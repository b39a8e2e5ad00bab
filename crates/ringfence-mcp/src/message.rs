//! Messages, brought into the form that was judged, whoever reads them.
//!
//! Readers differ in what they take a message for: those of Go and .NET take `Name` for `name`, and the last of two;
//! some take parameters by position. So nothing is passed on that one reader could take for another thing than we
//! did: members that the protocol does not have, and spellings of those that are judged, are left out.

use serde_json::Value;

/// The members of a message (JSON-RPC 2.0).
const MEMBERS: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

/// Leaves out what no message has.
pub(crate) fn plain(message: &mut Value) {
    if let Some(members) = message.as_object_mut() {
        members.retain(|name, _| MEMBERS.contains(&name.as_str()));
    }
}

/// Leaves out other spellings of these names.
pub(crate) fn spelt(value: &mut Value, names: &[&str]) {
    if let Some(members) = value.as_object_mut() {
        members.retain(|member, _| names.iter().all(|name| member == name || !alike(member, name)));
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
    use serde_json::json;

    #[test]
    fn spellings_are_left_out() {
        let mut message = json!({
            "jsonrpc": "2.0", "id": 1, "Id": 2, "method": "ping", "METHOD": "tools/call",
            "params": {}, "param\u{17f}": {"name": "bad"}, "further": 1,
        });
        plain(&mut message);
        assert_eq!(message, json!({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {}}));
        let mut params =
            json!({"name": "good", "Name": "bad", "namE": "bad", "_meta": {}, "names": 1});
        spelt(&mut params, &["name"]);
        assert_eq!(params, json!({"name": "good", "_meta": {}, "names": 1}));
        let mut list = json!(["bad"]);
        spelt(&mut list, &["name"]);
        assert_eq!(list, json!(["bad"]));
    }

    #[test]
    fn texts_are_alike_whatever_their_case() {
        for (one, other) in [("tools", "TOOLS"), ("tool\u{17f}", "tools"), ("\u{212a}ey", "key")] {
            assert!(alike(one, other) && alike(other, one), "{one} {other}");
        }
        assert!(!alike("tool", "tools") && !alike("", "a"));
    }
}
