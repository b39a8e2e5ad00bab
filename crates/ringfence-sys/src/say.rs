//! What a person is told on standard error.

use crate::Result;
use crate::fd::{Watched, poll, write_within};
use std::fmt::{Arguments, Write as _};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// How long who reads standard error is waited for, where a program made it return instead of waiting (`O_NONBLOCK`: that
/// is one flag for all who have it open). Where it waits by itself, it is for as long as it takes.
const PATIENCE: Duration = Duration::from_secs(5);

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
    // Nobody took the last one: this one is told if there is room.
    static GIVEN_UP: AtomicBool = AtomicBool::new(false);
    let patience = if GIVEN_UP.load(Relaxed) { Duration::ZERO } else { PATIENCE };
    GIVEN_UP.store(write(&text, patience).is_err(), Relaxed);
}

/// Tells a line if there is room for it soon, for who must not be held up: by a terminal that a program stopped, say.
pub fn soon(words: Arguments<'_>) {
    const SOON: i32 = 100;
    let error = std::io::stderr();
    let room = [Watched { fd: error.as_fd(), read: false, write: true }];
    if poll(&room, SOON).is_ok_and(|ready| ready[0].write) {
        let _ = write(&format!("{words}\n"), Duration::ZERO);
    }
}

fn write(text: &str, patience: Duration) -> Result<()> {
    write_within(std::io::stderr().as_fd(), text.as_bytes(), patience)
}
