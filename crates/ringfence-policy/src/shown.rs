//! How names from inside a sandbox are shown: whoever makes a file chooses its name, and a terminal
//! obeys what it is sent.

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

/// A message of several parts, lines and indents of its own included; what else a terminal obeys is
/// escaped.
pub fn message(text: &str) -> std::borrow::Cow<'_, str> {
    let odd = |c: char| obeyed(c) && !matches!(c, '\n' | '\t');
    if !text.contains(odd) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if odd(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out.into()
}

/// Marks of direction can make one name look like another.
fn obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
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
    }
}
