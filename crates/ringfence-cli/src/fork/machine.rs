//! Forks of a session of the vm tier: the caller becomes the launcher of another session, which is started as that one was,
//! but for its machine, which goes on from where that one is.

use crate::error::Fault;
use crate::options::Parsed;
use ringfence_policy::Policy;
use ringfence_sandbox::plan::Plan;
use ringfence_sandbox::vm::{self, Forked, Monitor, Shape, Wish};
use ringfence_session::ledger::Session;
use ringfence_session::{live, overlay, place};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `ringfence fork [--name NAME] SESSION`
///
/// # Errors
/// What keeps it from being forked. It returns only then.
pub fn fork(
    found: &Session,
    socket: &Path,
    word: &str,
    parsed: &Parsed,
    (number, words): (Option<OsString>, &[OsString]),
) -> Result<u8, Fault> {
    if number.is_some_and(|number| number != "1") || !words.is_empty() {
        return Err(Fault::usage(format!(
            "session {word} is a virtual machine, of which one fork is made at a time, without \
             words: ringfence fork {word}"
        )));
    }
    if parsed.has("json") {
        return Err(Fault::usage(
            "--json is for clones of a program; ringfence ps --json has sessions",
        ));
    }
    let cannot = |why: &str| Fault::usage(format!("session {word} cannot be forked: {why}"));
    let place = PathBuf::from(format!("/proc/{}", found.pid));
    let (started, _) = live::launcher(&found.id).ok_or_else(|| cannot("it does not run here"))?;
    let program = |path: &Path| path.metadata().map(|data| (data.dev(), data.ino())).ok();
    let own = program(Path::new("/proc/self/exe"));
    if own.is_none() || program(&place.join("exe")) != own {
        return Err(cannot("it was started by another ringfence than this one"));
    }
    let Some(started) = original(&started) else {
        return Err(cannot("it was not started by ringfence run or shell"));
    };
    let environment = std::fs::read(place.join("environ"))
        .map_err(|error| cannot(&format!("its environment cannot be read: {error}")))?;
    let variables = environment.split(|&byte| byte == 0).filter_map(|entry| {
        let at = entry.iter().skip(1).position(|&byte| byte == b'=')? + 1;
        Some((OsStr::from_bytes(&entry[..at]), OsStr::from_bytes(&entry[at + 1..])))
    });
    let mut fork = Command::new("/proc/self/exe");
    let error = ringfence_sys::signal::as_the_caller(&mut fork)
        .arg(vm::FORK)
        .args([socket.with_file_name(live::FORKS).as_os_str(), found.id.as_ref()])
        .arg(parsed.last("name").unwrap_or_default())
        .args(started)
        .env_clear()
        .envs(variables)
        .current_dir(place.join("cwd"))
        .exec();
    Err(cannot(&format!("execve: {error}")))
}

/// What a launcher was started with that is one of `run` or `shell`, from that word on: also one that is a fork itself.
fn original(words: &[OsString]) -> Option<&[OsString]> {
    let rest = words.get(1..)?;
    let rest = if rest.first()? == vm::FORK { rest.get(4..)? } else { rest };
    matches!(rest.first()?.to_str()?, "run" | "shell").then_some(rest)
}

/// The session that is forked.
#[derive(Debug)]
pub struct Source {
    door: PathBuf,
    session: String,
    name: OsString,
}

impl Source {
    /// As [`fork`] names it.
    ///
    /// # Errors
    /// It does not.
    pub fn of(words: &mut impl Iterator<Item = OsString>) -> Result<Source, Fault> {
        let mut next = || words.next().ok_or_else(|| Fault::usage("name a session"));
        let (door, session, name) = (next()?.into(), next()?, next()?);
        Ok(Source { door, session: session.to_string_lossy().into_owned(), name })
    }

    /// Its identifier.
    pub fn session(&self) -> &str {
        &self.session
    }

    /// The sentence that says so.
    pub fn refused(&self, why: &str) -> Fault {
        Fault::usage(format!("session {} cannot be forked: {why}", self.session))
    }

    /// Leaves out of what the session was started with what is its alone.
    ///
    /// # Errors
    /// Something of it cannot be had once more.
    pub fn rename(&self, parsed: &mut Parsed) -> Result<(), Fault> {
        parsed.options.retain(|(option, _)| !matches!(*option, "name" | "status-fd"));
        if !self.name.is_empty() {
            parsed.options.push(("name", self.name.clone()));
        }
        let from_descriptor = |(option, value): &(&str, OsString)| {
            *option == "inject" && value.to_string_lossy().contains("fd:")
        };
        if parsed.options.iter().any(from_descriptor) {
            return Err(self.refused("a secret of it was read from a descriptor (--inject fd:N)"));
        }
        Ok(())
    }

    /// Whether machines of such a shape can be forked.
    ///
    /// # Errors
    /// They cannot, and why.
    pub fn can(&self, shape: &Shape) -> Result<(), Fault> {
        match shape.monitor {
            Monitor::Qemu => Ok(()),
            Monitor::Krun => Err(self.refused(
                "its machine is libkrun's, which saves none; start it without RINGFENCE_VM_MONITOR",
            )),
        }
    }

    /// Asks its launcher for what the fork goes on from, where the fork will have the same policy.
    ///
    /// # Errors
    /// What of it two sessions cannot have; the launcher's reason.
    pub fn ask(&self, policy: &Policy, plan: &Plan, shape: &Shape) -> Result<Forked, Fault> {
        if let Some(publish) = plan.publish.first() {
            return Err(self.refused(&format!(
                "its port {} is published, which one session can do at a time",
                publish.port
            )));
        }
        if plan.overlay.is_some() {
            // Refused while nobody waits, where that is known by now.
            let session = place::sessions().map_err(Fault::of)?.join(&self.session);
            overlay::can_be_copied(&session).map_err(|why| self.refused(&why.to_string()))?;
        }
        let suspended = self.door.with_file_name(live::SUSPENDED).exists();
        let wish = Wish { shape: shape.clone(), suspended };
        Forked::ask(&self.door, &wish, policy).map_err(|why| self.refused(&why))
    }
}
