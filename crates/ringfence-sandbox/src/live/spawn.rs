//! One more confined process: the session's own [`Command`], with other words.

use super::protocol::Request;
use crate::launch::resolve;
use ringfence_sys as sys;
use std::ffi::{CString, OsStr};
use std::mem::replace;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use sys::process::{Command, Session, Step};
use sys::{Errno, describe};

/// Starts commands like the session's first one: the same Landlock ruleset, filters, limits,
/// environment and place.
pub(crate) struct Spawner {
    /// The session's command as it was started; its ruleset and filters are entered again and again.
    pub template: Command,
    /// The directories of the session's `PATH`.
    pub search: Vec<PathBuf>,
}

/// Why nothing was started: the exit code that stands for it, and a sentence.
pub(crate) type Refusal = (u8, String);

/// What distinguishes one command of a session from another.
struct Words {
    path: CString,
    argv: Vec<CString>,
    environment: Vec<CString>,
    workdir: CString,
}

impl Words {
    /// Puts these words into a command; returns those it had.
    fn put(command: &mut Command, words: Words) -> Words {
        Words {
            path: replace(&mut command.path, words.path),
            argv: replace(&mut command.argv, words.argv),
            environment: replace(&mut command.environment, words.environment),
            workdir: replace(&mut command.workdir, words.workdir),
        }
    }
}

/// What was started.
pub(crate) struct Spawned {
    pub pid: i32,
    pub path: CString,
    pub workdir: CString,
}

impl Spawner {
    /// Starts the command with these standard streams, in a session of its own.
    pub fn spawn(
        &mut self,
        request: &Request,
        streams: &[BorrowedFd<'_>; 3],
    ) -> Result<Spawned, Refusal> {
        let environment = self.environment(request);
        let changed = request.environment.iter().any(|e| e.as_bytes().starts_with(b"PATH="));
        let search = changed.then(|| resolve::search_path(&environment));
        let workdir = self.workdir(request);
        let name = OsStr::from_bytes(request.argv[0].as_bytes()).to_owned();
        let at = Path::new(OsStr::from_bytes(workdir.as_bytes()));
        let path = resolve::command(&name, search.as_ref().unwrap_or(&self.search), at)
            .map_err(|unresolved| (if unresolved.found { 126 } else { 127 }, unresolved.message))?;
        let own = Words::put(
            &mut self.template,
            Words {
                path: path.clone(),
                argv: request.argv.clone(),
                environment,
                workdir: workdir.clone(),
            },
        );
        self.template.streams = Some(streams.each_ref().map(AsRawFd::as_raw_fd));
        self.template.session =
            if request.terminal.is_some() { Session::OwnTerminal } else { Session::Own };
        let mut result = sys::process::spawn(&self.template);
        if let Err((Step::Execute, Errno::ENOEXEC)) = result {
            // A text without `#!` is the shell's, as for execvp(3).
            self.template.argv.splice(..1, [c"/bin/sh".to_owned(), path.clone()]);
            self.template.path = c"/bin/sh".to_owned();
            result = sys::process::spawn(&self.template);
        }
        Words::put(&mut self.template, own);
        match result {
            Ok(pid) => Ok(Spawned { pid, path, workdir }),
            Err(failure) => Err(refusal(failure, &path, &workdir)),
        }
    }

    /// The session's, with what was added in place of what had the same name.
    fn environment(&self, request: &Request) -> Vec<CString> {
        fn name(entry: &CString) -> Option<&[u8]> {
            entry.as_bytes().split(|&byte| byte == b'=').next()
        }
        let added = &request.environment;
        let replaced = |entry: &&CString| added.iter().any(|other| name(other) == name(entry));
        let kept = self.template.environment.iter().filter(|entry| !replaced(entry));
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
        let own = &self.template.workdir;
        let path = Path::new(OsStr::from_bytes(own.as_bytes()))
            .join(OsStr::from_bytes(request.workdir.as_bytes()));
        if request.workdir.is_empty() {
            return own.clone();
        }
        CString::new(path.into_os_string().into_vec()).unwrap_or_else(|_| own.clone())
    }
}

fn refusal((step, errno): (Step, Errno), path: &CString, workdir: &CString) -> Refusal {
    let path = path.to_string_lossy();
    let why = describe(errno);
    match (step, errno) {
        (Step::Execute, Errno::ENOENT | Errno::ELOOP | Errno::ENOTDIR) => (
            126,
            format!(
                "cannot execute {path}: its interpreter does not exist in the sandbox ({errno:?})"
            ),
        ),
        (Step::Execute, _) => (126, format!("cannot execute {path}: {why}")),
        (Step::Workdir, _) => {
            let workdir = workdir.to_string_lossy();
            let advice = "the session cannot see it; --workdir names another";
            (125, format!("cannot start in {workdir}: {why} ({errno:?}); {advice}"))
        }
        (step, _) => (125, format!("cannot confine the command ({step:?}): {why} ({errno:?})")),
    }
}
