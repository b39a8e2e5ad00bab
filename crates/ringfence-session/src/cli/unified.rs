//! Differences of bytes in the unified form, line by line.

use similar::TextDiff;
use std::fmt::Write as _;

/// What differs between two contents. The lines keep their bytes, whatever they are encoded in: patch(1) reads them, and
/// a change between two bytes that are no text is one.
pub(super) fn difference((from, old): (&str, &[u8]), (to, new): (&str, &[u8])) -> Vec<u8> {
    let time = std::time::Duration::from_secs(2);
    let difference = TextDiff::configure().timeout(time).diff_lines(old, new);
    let unified = difference.unified_diff();
    let mut out = Vec::new();
    // Hunk by hunk: the whole would be made text on the way.
    for hunk in unified.iter_hunks() {
        if out.is_empty() {
            out.extend_from_slice(format!("--- {from}\n+++ {to}\n").as_bytes());
        }
        // Writing to a vector cannot fail.
        let _ = hunk.to_writer(&mut out);
    }
    out
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
