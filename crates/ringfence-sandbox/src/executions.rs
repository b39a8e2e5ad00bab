//! Takes note of the programs that are executed inside: the kernel tells of each `execve` before
//! it carries it out (seccomp notification), and of each end by a pidfd.
//!
//! This decides nothing: every call goes on as it was made. What is noted is what was asked for;
//! a program with several threads can change its words between the question and the kernel's
//! answer. A file that does not exist is not noted: shells and C libraries try one directory
//! after the other.

use crate::live::{End, Executed};
use ringfence_sys as sys;
use std::collections::HashMap;
use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use sys::fd::CWD;
use sys::notify::{self, Notification};
use sys::process::Change;
use sys::{Errno, Sysno};

/// Bytes of a program's words that are read; the rest is cut off.
const MOST_WORDS: usize = 64 * 1024;
const AT_EMPTY_PATH: u64 = 0x1000;
const REGULAR: u32 = 0o100_000;
const TYPE: u32 = 0o170_000;
const EXECUTABLE: u32 = 0o111;

/// A process that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone {
    /// Its number.
    pub pid: i32,
    /// How, where the kernel says so (Linux 6.15).
    pub end: Option<End>,
    /// How long it ran since it last executed a program.
    pub duration: Duration,
}

/// A process that runs what it executed.
#[derive(Debug)]
struct Alive {
    pidfd: OwnedFd,
    since: Instant,
    /// It has ended, and nobody has asked how.
    ended: Option<Duration>,
}

/// The processes inside that executed a program.
#[derive(Debug, Default)]
pub(crate) struct Executions {
    /// Made with the first one.
    ends: Option<sys::epoll::Set>,
    alive: HashMap<i32, Alive>,
}

/// Where supervised calls of one command, and of all that descends from it, arrive.
#[derive(Debug)]
pub(crate) struct Listener {
    pub descriptor: OwnedFd,
    /// The warden has said that the command executes.
    told: bool,
    /// What was executed before that was heard: the kernel may be faster than the warden.
    early: Vec<Executed>,
}

impl Listener {
    /// One that came just now.
    pub fn new(descriptor: OwnedFd) -> Listener {
        notify::wake_in_place(descriptor.as_fd());
        Listener { descriptor, told: false, early: Vec::new() }
    }

    /// What can be told of it: the command's own start comes first.
    pub fn in_order(&mut self, program: Executed) -> Option<Executed> {
        if self.told {
            return Some(program);
        }
        self.early.push(program);
        None
    }

    /// The command's start was told: so can be what came before it.
    pub fn started(&mut self) -> Vec<Executed> {
        self.told = true;
        std::mem::take(&mut self.early)
    }

    /// Something waits for the command's start.
    pub fn waits(&self) -> bool {
        !self.early.is_empty()
    }
}

/// Whether a supervised call is one of those that are only noted.
pub(crate) fn noted(call: &Notification) -> bool {
    let known = Sysno::new(call.call as usize);
    matches!(known, Some(Sysno::execve | Sysno::execveat))
}

impl Executions {
    /// Readable when a process has ended.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.ends.as_ref().map(sys::epoll::Set::descriptor)
    }

    /// Takes note of a call, and lets it go on.
    pub fn answer(&mut self, listener: BorrowedFd<'_>, call: &Notification) -> Option<Executed> {
        let seen = look(listener, call);
        let process = seen.is_some().then(|| process_of(call.thread)).flatten();
        // It may be over in no time: what is asked later has no answer.
        let parent = process.as_ref().map_or(0, |(pid, pidfd)| parent(*pid, pidfd.as_ref()));
        // Whoever was looked at is the caller only if that still waits.
        let waits = notify::waits(listener, call.id);
        let since = Instant::now();
        // It runs on while the rest is done, which may be long, where others want the processor too.
        let _ = notify::go_on(listener, call.id);
        let (mut program, (pid, pidfd)) = (seen?, process?);
        if !waits {
            return None;
        }
        program.pid = pid;
        program.parent = parent;
        program.since = Some(since);
        self.follow(pid, pidfd, since);
        Some(program)
    }

    /// Notices the end of a process. Without a descriptor to be had its end stays unknown.
    fn follow(&mut self, pid: i32, pidfd: Option<OwnedFd>, since: Instant) {
        if let Some(alive) = self.alive.get_mut(&pid).filter(|alive| alive.ended.is_none()) {
            alive.since = since;
            return;
        }
        let Some(pidfd) = pidfd else { return };
        if self.ends.is_none() {
            self.ends = sys::epoll::Set::new().ok();
        }
        let Some(ends) = &self.ends else { return };
        if ends.add(pidfd.as_fd(), pid as u64).is_ok() {
            self.alive.insert(pid, Alive { pidfd, since, ended: None });
        }
    }

    /// Takes the ends that the descriptor told of.
    pub fn ended(&mut self) -> Vec<Gone> {
        let mut all = Vec::new();
        let Some(ends) = &self.ends else { return all };
        for said in ends.take() {
            let pid = said.key as i32;
            let Some(alive) = self.alive.get_mut(&pid) else { continue };
            let duration = *alive.ended.get_or_insert_with(|| alive.since.elapsed());
            match sys::process::info(alive.pidfd.as_fd()) {
                // Nobody has asked yet, or somebody does so right now (`ESRCH`: it is neither there
                // nor is its end on file): the kernel tells when somebody has.
                Ok(sys::process::Info { ended: None, .. }) | Err(Errno::ESRCH) if !said.hung_up => {
                    let _ = ends.until_hung_up(alive.pidfd.as_fd(), said.key);
                }
                info => {
                    self.alive.remove(&pid);
                    let end = info.ok().and_then(|info| info.ended).and_then(end);
                    all.push(Gone { pid, end, duration });
                }
            }
        }
        all
    }

    /// All that is left, when nothing inside lives any more.
    pub fn rest(&mut self) -> Vec<Gone> {
        let gone = |(pid, alive): (i32, Alive)| {
            let info = sys::process::info(alive.pidfd.as_fd()).ok();
            let duration = alive.ended.unwrap_or_else(|| alive.since.elapsed());
            Gone { pid, end: info.and_then(|info| info.ended).and_then(end), duration }
        };
        let mut all: Vec<Gone> = self.alive.drain().map(gone).collect();
        all.sort_by_key(|gone| gone.pid);
        all
    }
}

fn end(change: Change) -> Option<End> {
    match change {
        Change::Exited(code) => Some(End::Code(code as u8)),
        Change::Killed(signal) => Some(End::Signal(signal as u8)),
        Change::Stopped(_) | Change::Continued => None,
    }
}

/// What a call asks for; nothing where there is no such program.
fn look(listener: BorrowedFd<'_>, call: &Notification) -> Option<Executed> {
    let at = Sysno::new(call.call as usize) == Some(Sysno::execveat);
    let [a, b, c, _, e, _] = call.arguments;
    let (directory, path, words) = if at { (a as i32, b, c) } else { (CWD, a, b) };
    let name = sys::caller::read_text(listener, call, path).ok();
    let of_caller = |what: &str| std::fs::read_link(format!("/proc/{}/{what}", call.thread)).ok();
    let workdir = of_caller("cwd").unwrap_or_default();
    let path = match name.as_ref().map(|name| name.as_bytes()) {
        // Another user's memory, or a system that lets nobody look: what it is stays unknown.
        None => PathBuf::new(),
        Some(b"") if at && e & AT_EMPTY_PATH != 0 => of_caller(&format!("fd/{directory}"))?,
        Some(b"") => return None,
        Some(name) => {
            let base = match directory {
                CWD => workdir.clone(),
                _ if name.starts_with(b"/") => PathBuf::new(),
                number => of_caller(&format!("fd/{number}"))?,
            };
            real(call.thread, &base.join(OsStr::from_bytes(name)))?
        }
    };
    let words = sys::caller::read_list(listener, call, words, MOST_WORDS).unwrap_or_default();
    let argv = words.into_iter().map(OsString::from_vec).collect();
    Some(Executed { path, workdir, argv, ..Executed::default() })
}

/// The file that a path leads to in a process's view, if it can be executed.
fn real(thread: u32, path: &Path) -> Option<PathBuf> {
    let root = CString::new(format!("/proc/{thread}/root")).ok()?;
    let root = sys::fd::open_at(CWD, &root, sys::fd::PATH_ONLY, 0).ok()?;
    let name = CString::new(path.as_os_str().as_bytes()).ok()?;
    match sys::file::open_in_root(root.as_fd(), &name) {
        Ok(file) => {
            let (_, mode) = sys::file::owner_and_mode(file.as_fd()).ok()?;
            let through = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
            (mode & TYPE == REGULAR && mode & EXECUTABLE != 0)
                .then(|| std::fs::read_link(through).unwrap_or_else(|_| path.to_owned()))
        }
        Err(Errno::ENOENT | Errno::ENOTDIR) if !path.starts_with("/proc") => None,
        // What only the process itself can follow (/proc/self/exe).
        Err(_) => Some(path.to_owned()),
    }
}

/// The process that a thread belongs to, with a pidfd where one is to be had.
fn process_of(thread: u32) -> Option<(i32, Option<OwnedFd>)> {
    match sys::process::pidfd(thread as i32) {
        Ok(pidfd) => Some((thread as i32, Some(pidfd))),
        Err(Errno::EMFILE | Errno::ENFILE) => Some((thread as i32, None)),
        // No first thread: after the call the process has but one, with the process's number.
        Err(_) => {
            let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
            let pid = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
            let pid = pid.trim().parse().ok()?;
            Some((pid, sys::process::pidfd(pid).ok()))
        }
    }
}

fn parent(pid: i32, pidfd: Option<&OwnedFd>) -> i32 {
    let info = pidfd.and_then(|pidfd| sys::process::info(pidfd.as_fd()).ok());
    info.map_or_else(|| sys::process::parent_of(pid).unwrap_or_default(), |info| info.parent)
}
