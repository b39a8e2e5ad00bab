//! One more confined process: as the session's own command, with other words.

use super::protocol::Request;
use ringfence_sys as sys;
use std::ffi::{CString, OsStr};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use sys::image::{Carrier, Failed, Refused, Session, Words};
use sys::{Errno, describe};

/// Starts commands like the session's first one: the same Landlock ruleset, filters, limits,
/// environment and place.
#[derive(Debug)]
pub(crate) struct Spawner {
    /// The session's command as it was started.
    pub words: Words,
    /// What confines further commands like it.
    pub carrier: Carrier,
}

/// Why nothing was started: the exit code that stands for it, and a sentence.
pub(crate) type Refusal = (u8, String);

/// What was started.
pub(crate) struct Spawned {
    pub pid: i32,
    pub path: CString,
    pub workdir: CString,
}

impl Spawner {
    /// Begins to start the command with these standard streams, among those that are kept open for it, in a session of its
    /// own.
    pub fn begin(
        &mut self,
        request: &Request,
        streams: [RawFd; 3],
        kept: Vec<OwnedFd>,
    ) -> Result<(), Refusal> {
        let words = Words {
            arguments: crate::vm::further(&self.words.arguments, &request.argv),
            environment: self.environment(request),
            workdir: self.workdir(request),
        };
        // One that nothing is typed into controls nobody.
        let controls = request.terminal.is_some_and(|terminal| terminal.streams[0]);
        let session = if controls { Session::OwnTerminal } else { Session::Own };
        let begun = self.carrier.begin(words.clone(), streams, kept, session);
        begun.map_err(|refused| self.refusal(refused, &words))
    }

    /// What came of it, where it is over or its process was `collected`.
    pub fn result(&mut self, collected: bool) -> Option<Result<Spawned, Refusal>> {
        let (words, result) = self.carrier.result(collected)?;
        Some(match result {
            Ok((pid, path)) => Ok(Spawned { pid, path, workdir: words.workdir }),
            Err(refused) => Err(self.refusal(refused, &words)),
        })
    }

    /// The session's, with what was added in place of what had the same name.
    fn environment(&self, request: &Request) -> Vec<CString> {
        fn name(entry: &CString) -> Option<&[u8]> {
            entry.as_bytes().split(|&byte| byte == b'=').next()
        }
        let added = &request.environment;
        let replaced = |entry: &&CString| added.iter().any(|other| name(other) == name(entry));
        let kept = self.words.environment.iter().filter(|entry| !replaced(entry));
        let mut all: Vec<CString> = kept.chain(added).cloned().collect();
        if !request.workdir.is_empty() {
            all.retain(|entry| !entry.as_bytes().starts_with(b"PWD="));
            let workdir = self.workdir(request);
            all.extend(CString::new([b"PWD=", workdir.as_bytes()].concat()));
        }
        all
    }

    /// Relative ones start where the session's command did.
    fn workdir(&self, request: &Request) -> CString {
        let own = &self.words.workdir;
        let path = Path::new(OsStr::from_bytes(own.as_bytes()))
            .join(OsStr::from_bytes(request.workdir.as_bytes()));
        if request.workdir.is_empty() {
            return own.clone();
        }
        CString::new(path.into_os_string().into_vec()).unwrap_or_else(|_| own.clone())
    }

    fn refusal(&self, refused: Refused, words: &Words) -> Refusal {
        let name = words.arguments.first().map(|name| name.to_string_lossy()).unwrap_or_default();
        match refused {
            Refused::NotFound if name.contains('/') => {
                (127, format!("command not found: {name} does not exist in the sandbox"))
            }
            Refused::NotFound => (
                127,
                format!(
                    "command not found: {name} is in no directory of PATH that the sandbox can see"
                ),
            ),
            Refused::NotExecutable => (
                126,
                format!(
                    "cannot execute {name}: permission denied (it is not executable, or not granted)"
                ),
            ),
            Refused::Execute(errno @ (Errno::ENOENT | Errno::ELOOP | Errno::ENOTDIR)) => (
                126,
                format!(
                    "cannot execute {name}: its interpreter does not exist in the sandbox ({errno:?})"
                ),
            ),
            Refused::Execute(errno) => (126, format!("cannot execute {name}: {}", describe(errno))),
            Refused::Confine(Failed { op, errno }) if self.carrier.enters(op) => {
                let (workdir, why) = (words.workdir.to_string_lossy(), describe(errno));
                let advice = "the session cannot see it; --workdir names another";
                (125, format!("cannot start in {workdir}: {why} ({errno:?}); {advice}"))
            }
            Refused::Clone(errno) => {
                (125, format!("cannot make a process: {} ({errno:?})", describe(errno)))
            }
            Refused::Confine(Failed { op, errno }) => (
                125,
                format!("cannot confine the command (step {op}): {} ({errno:?})", describe(errno)),
            ),
        }
    }
}
