//! `repeat N COMMAND...`: runs a command N times, one after the other, each in a process of its own.

use super::number;
use crate::error::{Error, Result, error};
use crate::sys::process::{Child, Ended, Prepared, Stdio};
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Runs the tool.
pub fn run(args: &[OsString]) -> Result<i32> {
    let times: u32 = number(args, 0)?;
    let argv = &args[1..];
    let program = Path::new(argv.first().ok_or_else(|| error!("bench: repeat: no command"))?);
    let failed = |cause| Error::file("run", program, cause);
    let env: Vec<OsString> =
        std::env::vars_os().map(|(name, value)| [name, value].join(OsStr::new("="))).collect();
    let cwd = std::env::current_dir().map_err(failed)?;
    let words = argv.iter().map(OsString::as_os_str);
    let command =
        Prepared::new(program, words, env.iter().map(OsString::as_os_str), &cwd).map_err(failed)?;
    let stdio = Stdio { stdin: 0, stdout: 1, stderr: 2, extra: None };
    for _ in 0..times {
        let ended =
            Child::start(&command, &stdio).and_then(|child| child.wait(None)).map_err(failed)?;
        if ended != Some(Ended::Code(0)) {
            return Err(error!("bench: repeat: {} failed", program.display()));
        }
    }
    Ok(0)
}
