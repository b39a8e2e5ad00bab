//! Differences of bytes in the unified form, line by line.

use ringfence_policy::shown;
use similar::TextDiff;
use std::fmt::Write as _;

/// What differs between two contents, each with its name. The lines keep their bytes, whatever they are encoded in: patch(1) reads them, and
/// a change between two bytes that are no text is one.
pub(super) fn difference((from, old): (&[u8], &[u8]), (to, new): (&[u8], &[u8])) -> Vec<u8> {
    let time = std::time::Duration::from_secs(2);
    let difference = TextDiff::configure().timeout(time).diff_lines(old, new);
    let unified = difference.unified_diff();
    let mut out = Vec::new();
    // Hunk by hunk: the whole would be made text on the way.
    for hunk in unified.iter_hunks() {
        if out.is_empty() {
            out.extend_from_slice(format!("--- {}\n+++ {}\n", name(from), name(to)).as_bytes());
        }
        // Writing to a vector cannot fail.
        let _ = hunk.to_writer(&mut out);
    }
    out
}

/// A name as patch(1) and git read it back, whole: what is behind a space would be taken for a time, and `.envrc x` for
/// `.envrc`, were there no tab behind the name; one that ends with a space, or holds what has another meaning there or to
/// a terminal, stands in quotes.
fn name(name: &[u8]) -> String {
    let shown = shown::bytes(name);
    if shown.as_bytes() == name && !shown.contains('"') && !shown.ends_with(' ') {
        let tab = if shown.contains(' ') { "\t" } else { "" };
        return shown + tab;
    }
    let mut out = "\"".to_owned();
    for &byte in name {
        match byte {
            b'"' | b'\\' => out.extend(['\\', byte.into()]),
            b' '..=b'~' => out.push(byte.into()),
            // By three digits, which nothing behind them can be taken for. Writing to a String cannot fail.
            _ => drop(write!(out, "\\{byte:03o}")),
        }
    }
    out + "\""
}

/// The same for JSON, which holds text: other bytes are written as `\xff`.
pub(crate) fn as_text(difference: &[u8]) -> String {
    let mut out = String::with_capacity(difference.len());
    for chunk in difference.utf8_chunks() {
        out.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a String cannot fail.
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What GNU patch 2.7 and git 2.39 make just these files of.
    #[test]
    fn names_are_read_back_whole() {
        let names: [(&[u8], &str); 11] = [
            (b"b/plain", "b/plain"),
            (b"b/\xc3\xa4", "b/\u{e4}"),
            (b"b/.envrc x", "b/.envrc x\t"),
            (b"b/.git/hooks x/y", "b/.git/hooks x/y\t"),
            (b"b/.envrc ", "\"b/.envrc \""),
            (b"b/.envrc\tx", "\"b/.envrc\\011x\""),
            (b"b/a\n+++ b/.envrc", "\"b/a\\012+++ b/.envrc\""),
            (b"b/\"a\"", "\"b/\\\"a\\\"\""),
            (b"b/a\\tb", "\"b/a\\\\tb\""),
            (b"b/\xffa1", "\"b/\\377a1\""),
            ("b/\u{202e}a b".as_bytes(), "\"b/\\342\\200\\256a b\""),
        ];
        for (of, wanted) in names {
            assert_eq!(name(of), wanted);
        }
        let shown = difference((b"/dev/null", b""), (b"b/a b", b"x\n"));
        assert_eq!(shown, b"--- /dev/null\n+++ b/a b\t\n@@ -0,0 +1 @@\n+x\n");
    }
}
