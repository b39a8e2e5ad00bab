//! A line of somebody's as a message.
//!
//! What JavaScript and Python write is not always what JSON allows (RFC 8259): half of a pair of surrogates, from a
//! text that was cut in an emoji, a byte that is no UTF-8. They read it as U+FFFD, and so do we. What cannot be read at
//! all still has an identifier, so that who waits for it is told.

use serde_json::Value;
use std::borrow::Cow;

/// What is known of a line that cannot be read.
#[derive(Debug, PartialEq)]
pub(crate) struct Unreadable {
    /// The message's identifier, if it has one.
    pub id: Option<Value>,
    /// It has a method: it is a request or a notification, and no answer.
    pub method: bool,
    /// Why it cannot be read.
    pub why: String,
}

impl Unreadable {
    pub(crate) fn of(outline: Outline, why: String) -> Unreadable {
        let (id, method) = outline.told();
        let id = id.and_then(|id| serde_json::from_slice(&id).ok());
        Unreadable { id, method, why }
    }
}

/// Reads a line.
///
/// # Errors
/// What can be made out of one that is none.
pub(crate) fn read(line: &[u8]) -> Result<Value, Unreadable> {
    if let Ok(message) = serde_json::from_slice(line) {
        return Ok(message);
    }
    let text = String::from_utf8_lossy(line);
    let text = whole(&text);
    serde_json::from_str(&text).map_err(|error| {
        let mut outline = Outline::default();
        text.bytes().for_each(|byte| outline.byte(byte));
        Unreadable::of(outline, error.to_string())
    })
}

/// The text with U+FFFD for each half of a pair of surrogates that stands alone.
fn whole(text: &str) -> Cow<'_, str> {
    let mut mended = String::new();
    let (mut kept, mut at) = (0, 0);
    let bytes = text.as_bytes();
    while let Some(found) = bytes[at..].iter().position(|&byte| byte == b'\\') {
        let begins = at + found;
        at = usize::min(begins + 2, bytes.len());
        let Some(unit) = escaped(bytes, begins).filter(|unit| (0xd800..0xe000).contains(unit))
        else {
            continue;
        };
        at = begins + 6;
        let pair = escaped(bytes, at).is_some_and(|next| (0xdc00..0xe000).contains(&next));
        if unit < 0xdc00 && pair {
            at += 6;
            continue;
        }
        mended.push_str(&text[kept..begins]);
        mended.push('\u{fffd}');
        kept = at;
    }
    if kept == 0 {
        return Cow::Borrowed(text);
    }
    mended.push_str(&text[kept..]);
    Cow::Owned(mended)
}

/// The UTF-16 unit that is escaped (`\u` and four hexadecimal digits) at a place.
fn escaped(bytes: &[u8], at: usize) -> Option<u16> {
    let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
    digits.iter().all(u8::is_ascii_hexdigit).then_some(())?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// What an object says of itself, read as it comes, whether or not all of it can be read: of its own members, whatever
/// is in them.
#[derive(Default)]
pub(crate) struct Outline {
    depth: usize,
    /// Within a text; whether the next byte is escaped.
    text: Option<bool>,
    /// Behind the colon of a member of the object itself.
    value: bool,
    /// The name of such a member, or its value where that is an identifier.
    kept: Vec<u8>,
    is_id: bool,
    id: Option<Vec<u8>>,
    method: bool,
}

/// Longer names and identifiers are cut, and are none then.
const LONGEST: usize = 1024;

impl Outline {
    /// The last identifier, as it stands there, and whether there is a method.
    pub(crate) fn told(self) -> (Option<Vec<u8>>, bool) {
        (self.id, self.method)
    }

    /// The next byte.
    pub(crate) fn byte(&mut self, byte: u8) {
        let own = self.depth == 1;
        if let Some(escaped) = self.text {
            self.text = (escaped || byte != b'"').then_some(!escaped && byte == b'\\');
            return self.keep(byte);
        }
        match byte {
            b'"' => {
                self.text = Some(false);
                if own && !self.value {
                    self.kept.clear();
                }
            }
            b'{' | b'[' => self.depth += 1,
            b':' if own && !self.value => {
                self.value = true;
                self.method |= self.kept == b"\"method\"";
                self.is_id = self.kept == b"\"id\"";
                self.kept.clear();
                return;
            }
            b',' | b'}' | b']' => {
                if own && std::mem::take(&mut self.value) {
                    let kept = std::mem::take(&mut self.kept);
                    if std::mem::take(&mut self.is_id) {
                        self.id = Some(kept);
                    }
                    if byte != b',' {
                        self.depth = 0;
                    }
                    return;
                }
                if byte != b',' {
                    self.depth = self.depth.saturating_sub(1);
                }
            }
            _ => {}
        }
        self.keep(byte);
    }

    fn keep(&mut self, byte: u8) {
        let text = self.text.is_some() || byte == b'"';
        let name = self.depth == 1 && !self.value && text;
        if (name || self.is_id) && self.kept.len() < LONGEST {
            self.kept.push(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn halves_of_pairs_are_read_as_others_read_them() {
        let told = |text: &str| read(text.as_bytes()).expect("a message");
        assert_eq!(told(r#"{"a":"cut \ud83d"}"#), json!({"a": "cut \u{fffd}"}));
        assert_eq!(told(r#"{"a":"\ude00\ud83d\ud83d\ude00"}"#), json!({"a": "\u{fffd}\u{fffd}😀"}));
        // What looks like one behind a backslash of its own is a text.
        assert_eq!(told(r#"{"a":"\\ud83d \ud83dx"}"#), json!({"a": "\\ud83d \u{fffd}x"}));
        let bad = [b"{\"a\":\"".as_slice(), &[0xff], b"\"}"].concat();
        assert_eq!(read(&bad), Ok(json!({"a": "\u{fffd}"})));
        for whole in [r#"{"a":"\ud83d\ude00"}"#, "[]", r#"{"a":"\n\\"}"#] {
            assert_eq!(read(whole.as_bytes()).ok(), serde_json::from_str(whole).ok(), "{whole}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_known_by_its_own_identifier() {
        let of = |text: &str| {
            let told = read(text.as_bytes()).expect_err("no message");
            (told.id, told.method)
        };
        assert_eq!(of(r#"{"id":7,"result":{"n":1e400}}"#), (Some(json!(7)), false));
        assert_eq!(
            of(r#"{"result":{"id":1,"n":1e400},"id" : "a\"b"}"#),
            (Some(json!("a\"b")), false)
        );
        assert_eq!(
            of(r#"{"id":7,"method":"x","params":{"id":8,"n":1e400}}"#),
            (Some(json!(7)), true)
        );
        let deep = format!(r#"{{"result":{}{},"id":3}}"#, "[".repeat(200), "]".repeat(200));
        assert_eq!(of(&deep), (Some(json!(3)), false));
        for none in [
            r#"{"result":1e400}"#,
            "",
            "{",
            "\"id",
            r#"{"id""#,
            r#"[{"id":7,1e400}]"#,
            r#"{"id":7"#,
        ] {
            assert_eq!(of(none).0, None, "{none}");
        }
    }

    #[test]
    fn numbers_are_what_they_were() {
        for text in
            ["3997276498248914.0", "0.025678275830824982", "1.7976931348623157e308", "5e-324"]
        {
            let read: Value = read(text.as_bytes()).expect("a number");
            assert_eq!(read.as_f64(), text.parse().ok(), "{text}");
        }
    }
}
