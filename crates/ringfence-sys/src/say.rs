//! What a person is told on standard error.

use std::fmt::{Arguments, Write as _};
use std::io::Write as _;

/// Tells a line on standard error, in one write. That nobody reads it is no reason to end, as it is for `eprintln!`:
/// `ringfence run … 2>&1 | head -1` still has its command's exit code, and its hooks.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => {
        $crate::say::line(format_args!($($words)*))
    };
}

/// As [`say!`](crate::say!).
pub fn line(words: Arguments<'_>) {
    text(format_args!("{words}\n"));
}

/// The same without the end of a line: a question, or what has lines of its own.
pub fn text(words: Arguments<'_>) {
    let mut text = String::new();
    // Only a value's own text could fail, and then it is cut short.
    let _ = text.write_fmt(words);
    let _ = std::io::stderr().write_all(text.as_bytes());
}
