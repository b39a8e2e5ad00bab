//! Texts, cut to what an answer or a record has room for.

use rmcp::model::JsonObject;
use serde_json::Value;

/// The most bytes of a stream, as JSON writes them. Control characters take six there, and twelve in an answer, where
/// all is written once as itself and once as text: clients give up on long ones (the official TypeScript client
/// ends the connection at 10 MiB).
const MOST: usize = 5 << 18;

/// The most bytes of an answer's own JSON, for the same reason.
pub(crate) const LONGEST: usize = 3 << 20;

/// The text of as many bytes as there is room for, and how many these are. What is no UTF-8 is replaced.
pub(crate) fn fitting(bytes: &[u8]) -> (String, usize) {
    let (mut text, mut taken, mut room) = (String::new(), 0, MOST);
    for chunk in bytes.utf8_chunks() {
        for one in chunk.valid().chars() {
            let Some(left) = room.checked_sub(written(one)) else { return (text, taken) };
            room = left;
            text.push(one);
            taken += one.len_utf8();
        }
        if !chunk.invalid().is_empty() {
            let one = char::REPLACEMENT_CHARACTER;
            let Some(left) = room.checked_sub(written(one)) else { return (text, taken) };
            room = left;
            text.push(one);
            taken += chunk.invalid().len();
        }
    }
    (text, taken)
}

/// Without the beginning of a character at their end, where something is left then: the rest of it is what comes next.
pub(crate) fn without_begun(bytes: &[u8]) -> &[u8] {
    let last = bytes.utf8_chunks().last().map_or(&[][..], |last| last.invalid());
    let goes_on = std::str::from_utf8(last).is_err_and(|error| error.error_len().is_none());
    if goes_on && last.len() < bytes.len() { &bytes[..bytes.len() - last.len()] } else { bytes }
}

/// How many bytes a character takes in JSON.
fn written(one: char) -> usize {
    match one {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        _ => one.len_utf8(),
    }
}

/// The arguments of a call, for the record: long texts are cut.
pub(crate) fn shortened(arguments: &JsonObject) -> String {
    let short = |value: &Value| match value.as_str() {
        Some(text) if text.len() > 1024 => {
            let cut: String = text.chars().take(1024).collect();
            Value::from(format!("{cut}… ({} bytes)", text.len()))
        }
        _ => value.clone(),
    };
    let all: JsonObject =
        arguments.iter().map(|(name, value)| (name.clone(), short(value))).collect();
    Value::from(all).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_is_not_cut_in_two() {
        for (bytes, left) in [
            (&b""[..], 0),
            (b"ab", 2),
            (b"ab\xc3", 2),
            (b"a\xff\xe2\x82", 2),
            ("aé".as_bytes(), 3),
            // What never becomes a character stays, and so does what is all there is.
            (b"a\xff", 2),
            (b"a\xe2\x82\xff", 4),
            (b"\xe2\x82", 2),
        ] {
            assert_eq!(without_begun(bytes).len(), left, "{bytes:?}");
        }
    }

    #[test]
    fn what_is_cut_can_be_gone_on_with_and_is_as_long_as_json_makes_it() {
        let plain = "x".repeat(1 << 20);
        assert_eq!(fitting(plain.as_bytes()), (plain, 1 << 20));
        let mixed = ["\0\n\"\\é\u{1f}\u{7f}".as_bytes(), &[0xff, 0xc3, b'a', 0xe2, 0x82]].concat();
        assert_eq!(fitting(&mixed).0, String::from_utf8_lossy(&mixed));
        for (bytes, one) in
            [(vec![0; 1 << 20], 6), (vec![b'"'; 1 << 20], 2), (mixed.repeat(1 << 17), 0)]
        {
            let (text, taken) = fitting(&bytes);
            assert_eq!(text, String::from_utf8_lossy(&bytes[..taken]));
            let length = Value::from(text).to_string().len() - 2;
            assert!((MOST - 5..=MOST).contains(&length), "{length}");
            assert!(one == 0 || taken == MOST / one, "{taken}");
        }
    }
}
