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
    word_of(word.as_bytes())
}

/// The same of a word that may be no text. What a terminal obeys, and bytes that are none, are written as bash, zsh and
/// others read them (`$'\t'`): by three octal digits, which nothing behind them can be taken for.
fn word_of(word: &[u8]) -> String {
    let word = match std::str::from_utf8(word) {
        Ok(word) if !word.contains(obeyed) => word,
        _ => return spelled_word(word),
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    quoted_word(word)
}

fn spelled_word(word: &[u8]) -> String {
    let mut out = "$'".to_owned();
    let by_number = |bytes: &[u8], out: &mut String| {
        for byte in bytes {
            // Writing to a String cannot fail.
            let _ = write!(out, "\\{byte:03o}");
        }
    };
    for chunk in word.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                '\'' | '\\' => out.extend(['\\', c]),
                c if obeyed(c) => by_number(c.encode_utf8(&mut [0; 4]).as_bytes(), &mut out),
                c => out.push(c),
            }
        }
        by_number(chunk.invalid(), &mut out);
    }
    out + "'"
}

/// The same, in quotes whatever it is.
pub fn quoted_word(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The same of a path.
pub fn path_word(path: &Path) -> String {
    word_of(path.as_os_str().as_bytes())
}

/// The option that allows a host and its ports, as a shell reads it back: zsh takes the brackets of IPv6 for a pattern.
pub fn allow_host(place: &str) -> String {
    format!("--allow-host {}", word(place))
}

/// An option with a path, as a shell reads it back; `missing`: it need not be there.
pub fn option(option: &str, path: &Path, missing: bool) -> String {
    let mark = if missing { "?" } else { "" };
    format!("{option} {}", word_of(&[mark.as_bytes(), quote(path).as_bytes()].concat()))
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
    fn words_are_read_back_by_a_shell() {
        use std::ffi::OsStr;
        let names: [&[u8]; 8] = [
            b"a",
            b"a b",
            b"it's",
            b"a\tb\n",
            b"\xff1",
            b"'\\\x1b7\xe2\x80\xae0",
            b"$x",
            b"\xc3\xa4",
        ];
        for name in names {
            let script = format!("printf %s {}", word_of(name));
            let read =
                std::process::Command::new("bash").args(["-c", &script]).output().expect("bash");
            assert_eq!(read.stdout, name, "{script}");
            let option = option("--read", Path::new(OsStr::from_bytes(name)), true);
            assert!(!option.contains(obeyed), "{option}");
        }
        assert_eq!(option("-r", Path::new(OsStr::from_bytes(b"a\t\xff")), true), r"-r $'?a\t\377'");
    }

    #[test]
    fn what_a_shell_takes_for_a_pattern_is_in_quotes() {
        assert_eq!(allow_host("a.org:22"), "--allow-host a.org:22");
        for pattern in ["[2001:db8::1]:443", "localhost:*", "a?", "{a,b}", "~", "#"] {
            assert_eq!(allow_host(pattern), format!("--allow-host '{pattern}'"));
        }
        assert_eq!(path_word(Path::new("/a b/[c]")), "'/a b/[c]'");
    }

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
