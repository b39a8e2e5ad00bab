//! Reads what the warden tells the launcher of the commands that it starts.

use super::Executed;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// A number in a message.
pub(crate) fn number(message: &[u8], at: usize) -> u32 {
    let bytes = message.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u32::from_ne_bytes)
}

/// A command of `exec`: its file, its directory, its arguments, each with its NUL but for what was
/// cut off.
pub(crate) fn executed(message: &[u8], pid: i32, parent: i32) -> Executed {
    let words = message.get(9..).unwrap_or_default();
    let words = words.strip_suffix(b"\0").unwrap_or(words);
    let mut words = words.split(|&byte| byte == 0).map(|word| OsStr::from_bytes(word).to_owned());
    let mut path = || words.next().map(PathBuf::from).unwrap_or_default();
    let (path, workdir) = (path(), path());
    let argv: Vec<OsString> = words.collect();
    Executed { number: number(message, 1), pid, parent, path, workdir, argv, since: None }
}

/// The exit code of a command in the message about its end.
pub(crate) fn exit_code(message: &[u8]) -> u8 {
    match message {
        [_, b'k', signal] => signal.saturating_add(128),
        [_, _, code] => *code,
        _ => 0,
    }
}
