//! How names from inside a sandbox are shown: whoever makes a file chooses its name, and a terminal
//! obeys what it is sent.

use crate::path::quote;
use std::borrow::Cow;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A path on one line, with nothing in it that a terminal would obey.
pub fn path(path: &Path) -> String {
    bytes(path.as_os_str().as_bytes())
}

/// Text of any origin: control characters, marks of direction and bytes that are no text are escaped.
pub fn bytes(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if obeyed(c) || c == '\\' {
                out.extend(c.escape_default());
            } else {
                out.push(c);
            }
        }
        for byte in chunk.invalid() {
            // Writing to a String cannot fail.
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

/// A word as a shell reads it back: names in advice are whoever's who made them.
pub fn word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    quoted_word(word)
}

/// The same, in quotes whatever it is.
pub fn quoted_word(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// An option with a path, as a shell reads it back; `missing`: it need not be there.
pub fn option(option: &str, path: &Path, missing: bool) -> String {
    let mark = if missing { "?" } else { "" };
    format!("{option} {}", word(&format!("{mark}{}", quote(path).to_string_lossy())))
}

/// A message of several parts, lines and indents of its own included; what else a terminal obeys is
/// escaped.
pub fn message(text: &str) -> Cow<'_, str> {
    escaped(
        text,
        |c| obeyed(c) && !matches!(c, '\n' | '\t'),
        |c, out| out.extend(c.escape_default()),
    )
}

/// What files hold, line by line, with nothing in it that a terminal would obey.
pub fn contents(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.push_str(&message(chunk.valid()));
        for byte in chunk.invalid() {
            // Writing to a String cannot fail.
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

/// One line of ours with names in it; unlike [`bytes`] it leaves a backslash as it is written.
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, obeyed, |c, out| out.extend(c.escape_default()))
}

/// A document in JSON that means the same: what a terminal obeys stands in strings alone there, and has a
/// spelling of its own.
pub fn json(text: &str) -> Cow<'_, str> {
    let between = |c| matches!(c, '\n' | '\t' | '\r');
    let spelled = |c: char, out: &mut String| {
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a String cannot fail.
            let _ = write!(out, "\\u{unit:04x}");
        }
    };
    escaped(text, |c| obeyed(c) && !between(c), spelled)
}

fn escaped(
    text: &str,
    odd: impl Fn(char) -> bool,
    escape: impl Fn(char, &mut String),
) -> Cow<'_, str> {
    if !text.contains(&odd) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if odd(c) {
            escape(c, &mut out);
        } else {
            out.push(c);
        }
    }
    out.into()
}

/// What a terminal obeys. Marks of direction can make one name look like another; ends of lines and paragraphs begin
/// a line for some readers, and tags are text that models read and nobody sees.
pub fn obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        || matches!(c, '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_that_a_terminal_obeys() {
        assert_eq!(
            bytes(b"a\x1b]0;x\x07\nb\\ \xff\xc3\xa4"),
            "a\\u{1b}]0;x\\u{7}\\nb\\\\ \\xff\u{e4}"
        );
        assert_eq!(bytes("a\u{202e}b".as_bytes()), "a\\u{202e}b");
        assert_eq!(
            message("first\n  second \u{9b}31m\x1b[0m"),
            "first\n  second \\u{9b}31m\\u{1b}[0m"
        );
        assert_eq!(message("plain"), "plain");
        assert_eq!(
            contents(b"+a\\b\r\n+\tx\x1b[2K\x9b1m\xe2\x80\xae\n"),
            "+a\\b\\r\n+\tx\\u{1b}[2K\\x9b1m\\u{202e}\n"
        );
        assert_eq!(line("a\\b\n\u{61c}"), "a\\b\\n\\u{61c}");
        assert_eq!(
            json("{\n \"\u{9b}\u{7f}\u{202e}\": 1\n}"),
            "{\n \"\\u009b\\u007f\\u202e\": 1\n}"
        );
        assert_eq!(bytes("a\u{2028}b\u{e0021}".as_bytes()), "a\\u{2028}b\\u{e0021}");
        assert_eq!(json("\"\u{2029}\u{e0021}\""), "\"\\u2029\\udb40\\udc21\"");
    }
}
