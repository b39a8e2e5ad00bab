//! What happens outside around a run: state that is made, and the hooks of the user's profiles.
//!
//! Hooks stand only in profiles of the user's own or the system's ([`ringfence_policy::resolve`]
//! refuses others), are run by `sh -c` in the directory of the run with the caller's environment,
//! and print to standard error, so that the command's output stays its own.

use crate::error::Fault;
use crate::request;
use ringfence_policy::{Policy, Source};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// The hooks that are still to be run after the command.
#[derive(Debug)]
pub struct Hooks {
    after: Vec<Source>,
    workdir: PathBuf,
}

/// Makes what is to be there, then runs the hooks before the command.
///
/// # Errors
/// Something cannot be made; a hook fails: then the command is not run, and nothing after it.
pub fn begin(policy: &Policy) -> Result<Hooks, Fault> {
    request::prepare(policy)?;
    for hook in &policy.before {
        let failed = |why: String| Fault::usage(format!("{hook} {why}: the command is not run"));
        let status = call(hook, "before", &policy.workdir)
            .map_err(|error| failed(format!("cannot be started: {error}")))?;
        if !status.success() {
            return Err(failed(format!("failed ({status})")));
        }
    }
    Ok(Hooks { after: policy.after.clone(), workdir: policy.workdir.clone() })
}

impl Hooks {
    /// Runs the hooks after the command; the last one set up is undone first.
    pub fn end(&mut self) {
        for hook in std::mem::take(&mut self.after).iter().rev() {
            match call(hook, "after", &self.workdir) {
                Ok(status) if status.success() => {}
                Ok(status) => ringfence_sys::say!("ringfence: {hook} failed ({status})"),
                Err(error) => ringfence_sys::say!("ringfence: {hook} cannot be started: {error}"),
            }
        }
    }
}

impl Drop for Hooks {
    /// For runs that could not be started after all.
    fn drop(&mut self) {
        self.end();
    }
}

fn call(hook: &Source, when: &str, workdir: &Path) -> io::Result<ExitStatus> {
    let said = io::stderr().as_fd().try_clone_to_owned()?;
    Command::new("/bin/sh")
        .args(["-c", &hook.text])
        .current_dir(workdir)
        .env("RINGFENCE_HOOK", when)
        .stdin(Stdio::null())
        .stdout(said)
        .status()
}
