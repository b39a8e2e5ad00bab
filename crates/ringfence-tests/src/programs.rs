//! Programs that tests make, and execute at once.
//!
//! Nobody executes a file that is open for writing ("Text file busy"). What a test opens is open as well in each child that
//! another test forks meanwhile, until that executes something. So the one who writes is a child itself, which has no
//! others, and is over by then.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a program, in its place if it is there, that all may execute.
///
/// # Panics
/// It cannot be written.
pub fn write_program(path: impl AsRef<Path>, text: impl AsRef<[u8]>) {
    let path = path.as_ref();
    let mut command = Command::new("tee");
    command.arg("--").arg(path).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut writer = command.spawn().expect("tee(1)");
    let mut into = writer.stdin.take().expect("a pipe");
    into.write_all(text.as_ref()).expect("read by tee(1)");
    drop(into);
    assert!(writer.wait().expect("a child").success(), "{} is written", path.display());
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a file of our own");
}

/// Copies a program, with its mode.
///
/// # Panics
/// It cannot be copied.
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let mut command = Command::new("cp");
    command.args(["--preserve=mode", "--"]).arg(from.as_ref()).arg(to.as_ref());
    assert!(command.status().expect("cp(1)").success(), "{} is copied", from.as_ref().display());
}
