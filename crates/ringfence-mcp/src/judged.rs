//! What a client's line is: a message for the protocol, nothing, or what is answered to it at once (JSON-RPC 2.0, §4
//! and §5.1).
//!
//! The official SDK drops what is no JSON without a word, answers notifications that it cannot read, and takes a
//! request with wrong parameters for one of a method that it does not know.

use crate::line::{self, Outline};
use crate::message::error;
use rmcp::model::{
    CallToolRequestParams, ClientJsonRpcMessage, ClientRequest, ErrorCode, InitializeRequestParams,
    RequestId,
};
use serde::Deserialize;
use serde_json::{Map, Value};

/// What is to be done with a line.
#[derive(Debug)]
pub(crate) enum Judged {
    /// The protocol's.
    Message(Box<ClientJsonRpcMessage>),
    /// A notification that is wrong, or an answer to nothing that was asked: nobody hears of it.
    Nothing,
    /// The answer to what is wrong.
    Wrong(Value),
    /// Messages that are sent at once.
    Batch(Vec<Value>),
}

/// The methods that are answered; of others the parameters do not matter.
const METHODS: [&str; 9] = [
    "completion/complete",
    "initialize",
    "ping",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "server/discover",
    "tools/call",
    "tools/list",
];

/// Judges a line. Whether `batches` are a part of the protocol depends on its revision.
pub(crate) fn line(line: &[u8], batches: bool) -> Judged {
    match line::read(line) {
        // Whatever was found out about its identifier, it is not known to be one.
        Err(unreadable) => {
            let text = format!("the message cannot be read: {}", unreadable.why);
            wrong(&Value::Null, ErrorCode::PARSE_ERROR, &text)
        }
        Ok(Value::Array(messages)) if batches && !messages.is_empty() => Judged::Batch(messages),
        Ok(message) => self::message(&message),
    }
}

/// Judges a message.
pub(crate) fn message(message: &Value) -> Judged {
    let Some(members) = message.as_object() else {
        // Batches left the protocol with its revision of 2025-06-18.
        return wrong(&Value::Null, ErrorCode::INVALID_REQUEST, "a message is one JSON object");
    };
    let read = ClientJsonRpcMessage::deserialize(message).ok().map(Box::new);
    let answers = members.contains_key("result") || members.contains_key("error");
    let (id, method) = match (members.get("id"), members.get("method")) {
        (_, None) if answers => return read.map_or(Judged::Nothing, Judged::Message),
        (None, Some(Value::String(_))) => return read.map_or(Judged::Nothing, Judged::Message),
        (id, method) => (id, method.and_then(Value::as_str)),
    };
    let known = id.is_some_and(|id| RequestId::deserialize(id).is_ok());
    let id = id.filter(|_| known).unwrap_or(&Value::Null);
    let refused = |text: &str| wrong(id, ErrorCode::INVALID_REQUEST, text);
    let Some(method) = method else {
        return refused("a request has a method, which is a text");
    };
    if !known {
        return refused("an id is a text, or a whole number of 64 bits");
    }
    if members.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return refused("a request has \"jsonrpc\": \"2.0\"");
    }
    if answers {
        return refused("a request has neither a result nor an error");
    }
    let other = |request: &ClientRequest| matches!(request, ClientRequest::CustomRequest(_));
    match read {
        Some(read) if !matches!(&*read, ClientJsonRpcMessage::Request(read) if other(&read.request)) => {
            Judged::Message(read)
        }
        _ if METHODS.contains(&method) => {
            wrong(id, ErrorCode::INVALID_PARAMS, &why(method, members))
        }
        Some(read) => Judged::Message(read),
        None => wrong(id, ErrorCode::METHOD_NOT_FOUND, method),
    }
}

/// What is wrong with a method's parameters.
fn why(method: &str, members: &Map<String, Value>) -> String {
    let Some(params) = members.get("params") else {
        return format!("{method} has parameters (\"params\")");
    };
    let error = match method {
        "tools/call" => CallToolRequestParams::deserialize(params).err(),
        "initialize" => InitializeRequestParams::deserialize(params).err(),
        _ => None,
    };
    match error {
        Some(error) => format!("the parameters are none of {method}: {error}"),
        None => format!("the parameters are none of {method}"),
    }
}

fn wrong(id: &Value, code: ErrorCode, text: &str) -> Judged {
    Judged::Wrong(error(id, i64::from(code.0), text))
}

/// What is answered to a line of which no more than this was kept. A notification has no answer, nor has the answer of
/// a client's.
pub(crate) fn too_long(outline: Outline, most: usize) -> Judged {
    let (id, method) = outline.told();
    let id = id.and_then(|id| serde_json::from_slice::<Value>(&id).ok());
    let id = id.filter(|id| RequestId::deserialize(id).is_ok());
    if id.is_some() != method {
        return Judged::Nothing;
    }
    let text = format!("the request is longer than {most} bytes, and was not read");
    wrong(&id.unwrap_or(Value::Null), ErrorCode::INVALID_REQUEST, &text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The error's code, and whose it is.
    fn answered(text: &str) -> Option<(i64, Value)> {
        match line(text.as_bytes(), false) {
            Judged::Wrong(answer) => {
                assert_eq!(answer["jsonrpc"], "2.0", "{text}");
                assert!(answer["error"]["message"].is_string(), "{text}");
                assert!(answer.get("id").is_some(), "{text}: an identifier, even if it is null");
                Some((answer["error"]["code"].as_i64().expect("a code"), answer["id"].clone()))
            }
            Judged::Message(_) | Judged::Nothing => None,
            Judged::Batch(_) => panic!("a batch: {text}"),
        }
    }

    #[test]
    fn a_notification_has_no_answer_however_wrong_it_is() {
        for rest in [
            r#""method":"tools/call""#,
            r#""method":"tools/call","params":{"name":5}"#,
            r#""method":"tools/list","params":[1]"#,
            r#""method":"initialize","params":7"#,
            r#""method":"notifications/progress","params":"x""#,
            r#""method":"notifications/cancelled","params":[]"#,
            r#""method":"notifications/none""#,
            r#""method":"none","result":1"#,
            r#""method":"none","params":null"#,
        ] {
            assert_eq!(answered(&format!("{{\"jsonrpc\":\"2.0\",{rest}}}")), None, "{rest}");
            assert_eq!(answered(&format!("{{{rest}}}")), None, "{rest}");
        }
        // Nor have answers.
        for rest in [r#""result":{},"id":7"#, r#""error":{},"id":null"#, r#""result":5"#] {
            assert_eq!(answered(&format!("{{\"jsonrpc\":\"2.0\",{rest}}}")), None, "{rest}");
        }
    }

    #[test]
    fn wrong_parameters_are_told_from_methods_that_are_not_there() {
        let of = |rest: &str| answered(&format!("{{\"jsonrpc\":\"2.0\",\"id\":7,{rest}}}"));
        for rest in [
            r#""method":"tools/call""#,
            r#""method":"tools/call","params":{}"#,
            r#""method":"tools/call","params":["exec",{}]"#,
            r#""method":"tools/call","params":{"name":["exec"]}"#,
            r#""method":"tools/call","params":{"name":"exec","arguments":[]}"#,
            r#""method":"tools/call","params":{"name":"exec","_meta":1}"#,
            r#""method":"tools/list","params":"x""#,
            r#""method":"ping","params":[1]"#,
            r#""method":"initialize","params":{}"#,
        ] {
            assert_eq!(of(rest), Some((-32602, json!(7))), "{rest}");
        }
        assert_eq!(of(r#""method":"none","params":[1]"#), Some((-32601, json!(7))));
        // The controls: what is right, and what is the server's own to answer.
        for rest in [
            r#""method":"tools/call","params":{"name":"exec","arguments":{}}"#,
            r#""method":"tools/list""#,
            r#""method":"ping","params":{}"#,
            r#""method":"none""#,
        ] {
            let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":7,{rest}}}");
            assert!(matches!(super::line(line.as_bytes(), false), Judged::Message(_)), "{rest}");
        }
    }

    #[test]
    fn what_is_no_json_and_what_is_no_request_have_their_codes() {
        for text in [
            "x",
            "{",
            r#"{"jsonrpc":"2.0","id":7,"method":"ping""#,
            r#"{"jsonrpc":"2.0","method":"foobar, "params":"bar","baz]"#,
            r#"{"id":7,"method":"ping","params":{"n":1e400}}"#,
        ] {
            assert_eq!(answered(text), Some((-32700, Value::Null)), "{text}");
        }
        for text in [
            "1",
            "null",
            "\"ping\"",
            "[]",
            r#"[{"jsonrpc":"2.0","id":7,"method":"ping"}]"#,
            "{}",
            r#"{"jsonrpc":"2.0","method":1,"params":"bar"}"#,
            r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":7.5,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":18446744073709551615,"method":"ping"}"#,
        ] {
            assert_eq!(answered(text), Some((-32600, Value::Null)), "{text}");
        }
        // Who it is for is told where it is known.
        for text in [
            r#"{"id":"a","method":"ping"}"#,
            r#"{"jsonrpc":"1.0","id":"a","method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":"a","method":5}"#,
            r#"{"jsonrpc":"2.0","id":"a"}"#,
            r#"{"jsonrpc":"2.0","id":"a","method":"ping","result":{}}"#,
        ] {
            assert_eq!(answered(text), Some((-32600, json!("a"))), "{text}");
        }
        // What JavaScript makes of half an emoji is a request all the same.
        assert_eq!(answered(r#"{"jsonrpc":"2.0","id":"\ud83d","method":"ping"}"#), None);
    }
}
