//! Watching a run: which files, programs and sockets it names.
//!
//! The calls that name something are announced to us before the kernel carries them out, and go
//! on as they were made: nothing is decided here, the sandbox around the run does that. So what
//! is recorded is what the program asked for, whether or not it got it.

mod changes;
mod observed;
mod peaks;
mod process;

pub use observed::{Act, Observed, Use};
pub use peaks::Peaks;

use peaks::Living;
use process::Processes;
use ringfence_policy::calls::is_always;
use ringfence_sys as sys;
use std::os::fd::AsFd;
use std::process::{Command, ExitStatus};
use sys::notify::{self, Notification};
use sys::{Errno, Sysno, caller};

/// The calls that name a file, a program or a socket, and where: the argument that is the
/// directory (none: the current one), the one that is the path, and what is done.
const CALLS: [(&str, Option<usize>, usize, Act); 40] = [
    ("execve", None, 0, Act::Execute),
    ("execveat", Some(0), 1, Act::Execute),
    ("open", None, 0, Act::Read),
    ("openat", Some(0), 1, Act::Read),
    ("openat2", Some(0), 1, Act::Read),
    ("chdir", None, 0, Act::Read),
    ("creat", None, 0, Act::Write),
    ("truncate", None, 0, Act::Write),
    ("mkdir", None, 0, Act::Write),
    ("mkdirat", Some(0), 1, Act::Write),
    ("mknod", None, 0, Act::Write),
    ("mknodat", Some(0), 1, Act::Write),
    ("rmdir", None, 0, Act::Write),
    ("unlink", None, 0, Act::Write),
    ("unlinkat", Some(0), 1, Act::Write),
    ("symlink", None, 1, Act::Write),
    ("symlinkat", Some(1), 2, Act::Write),
    ("link", None, 1, Act::Write),
    ("linkat", Some(2), 3, Act::Write),
    ("rename", None, 1, Act::Write),
    ("renameat", Some(2), 3, Act::Write),
    ("renameat2", Some(2), 3, Act::Write),
    ("chmod", None, 0, Act::Write),
    ("fchmodat", Some(0), 1, Act::Write),
    ("fchmodat2", Some(0), 1, Act::Write),
    ("chown", None, 0, Act::Write),
    ("lchown", None, 0, Act::Write),
    ("fchownat", Some(0), 1, Act::Write),
    ("setxattr", None, 0, Act::Write),
    ("lsetxattr", None, 0, Act::Write),
    ("removexattr", None, 0, Act::Write),
    ("lremovexattr", None, 0, Act::Write),
    ("setxattrat", Some(0), 1, Act::Write),
    ("removexattrat", Some(0), 1, Act::Write),
    ("utime", None, 0, Act::Write),
    ("utimes", None, 0, Act::Write),
    ("futimesat", Some(0), 1, Act::Write),
    // Not of what is open: the filter lets that through.
    ("utimensat", Some(0), 1, Act::Write),
    ("connect", None, 1, Act::Connect),
    ("bind", None, 1, Act::Bind),
];

/// The calls that look whether something is there.
const LOOKS: [(&str, Option<usize>, usize, Act); 9] = [
    ("stat", None, 0, Act::Read),
    ("lstat", None, 0, Act::Read),
    ("newfstatat", Some(0), 1, Act::Read),
    ("statx", Some(0), 1, Act::Read),
    ("access", None, 0, Act::Read),
    ("faccessat", Some(0), 1, Act::Read),
    ("faccessat2", Some(0), 1, Act::Read),
    ("readlink", None, 0, Act::Read),
    ("readlinkat", Some(0), 1, Act::Read),
];

/// What is watched beside the files, programs and sockets that a run names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watch {
    /// What is only looked for (`stat` and its like).
    pub looks: bool,
    /// All system calls but those that are always allowed.
    pub calls: bool,
}

/// Runs a command to its end and watches what runs in the sandbox that it makes.
///
/// # Errors
/// The kernel has no notification; the command cannot be started.
pub fn run(command: Command, what: Watch) -> std::io::Result<(ExitStatus, Observed)> {
    let error = |errno: Errno| std::io::Error::from_raw_os_error(errno.into_raw());
    let looks = LOOKS.iter().filter(|_| what.looks);
    let known = CALLS.iter().chain(looks);
    let known = known.filter_map(|call| Some((call.0.parse::<Sysno>().ok()?, call)));
    let known: Vec<_> = known.collect();
    let mut calls: Vec<Sysno> = known.iter().map(|(call, _)| *call).collect();
    if what.calls {
        let named: Vec<Sysno> = calls.clone();
        let others = Sysno::iter().filter(|call| !is_always(call.name()) && !named.contains(call));
        calls.extend(others);
    }
    if !calls.contains(&Sysno::exit_group) {
        calls.push(Sysno::exit_group);
    }
    // Without a path it is about an open file, and frequent.
    let mut named = Vec::new();
    if !what.calls {
        calls.retain(|call| *call != Sysno::utimensat);
        named.push((Sysno::utimensat, 1));
    }
    let before = peaks::spent();
    let watched = sys::watch::start(command, &calls, &named).map_err(error)?;
    sys::watch::leave_interrupts_to_it();
    let listener = watched.listener.as_fd();
    let mut observed = Observed::default();
    let mut processes = Processes::default();
    let mut living = Living::default();
    while let Some(waits) = next(&watched).map_err(error)? {
        if what.calls && processes.is_inside(waits.thread, false) {
            let name =
                usize::try_from(waits.call).ok().and_then(Sysno::new).map(|call| call.name());
            if let Some(name) = name.filter(|name| !is_always(name)) {
                observed.call(processes.program(waits.thread), name);
            }
        }
        let call = known.iter().find(|(call, _)| *call as i32 == waits.call);
        if let Some((_, (name, directory, path, act))) = call {
            let named = Named { name, directory: *directory, path: *path, act: *act };
            record(listener, &waits, &named, &mut processes, &mut observed);
        }
        let ends = waits.call == Sysno::exit_group as i32;
        let starts = call.is_some_and(|(_, (_, _, _, act))| *act == Act::Execute);
        if (starts || ends) && processes.is_inside(waits.thread, false) {
            living.look(waits.thread, ends, &mut observed.peaks);
        }
        // Killed meanwhile: nobody waits for the answer.
        let _ = notify::go_on(listener, waits.id);
    }
    observed.settle();
    observed.follow();
    observed.processes = processes.count();
    let end = watched.ended()?;
    let after = peaks::spent();
    observed.peaks.processor = after.0.saturating_sub(before.0);
    observed.peaks.written = after.1.saturating_sub(before.1);
    Ok((end, observed))
}

/// The next call; nothing when no process is watched any more.
fn next(watched: &sys::watch::Watched) -> sys::Result<Option<Notification>> {
    let listener = watched.listener.as_fd();
    loop {
        match watched.wait() {
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(errno),
            Ok(false) => return Ok(None),
            Ok(true) => {}
        }
        match notify::receive(listener) {
            Err(Errno::ENOENT | Errno::EINTR) => {}
            other => return other.map(Some),
        }
    }
}

struct Named {
    name: &'static str,
    directory: Option<usize>,
    path: usize,
    act: Act,
}

fn record(
    listener: std::os::fd::BorrowedFd<'_>,
    call: &Notification,
    named: &Named,
    processes: &mut Processes,
    observed: &mut Observed,
) {
    let thread = call.thread;
    if !processes.is_inside(thread, named.act == Act::Execute) {
        return;
    }
    if let Some(program) = processes.executed(thread) {
        let by = processes.name(thread);
        observed.named(Act::Execute, &program, by, true);
    }
    if matches!(named.act, Act::Connect | Act::Bind) {
        let length = (call.arguments[2] as usize).min(128);
        let mut bytes = vec![0; length];
        let read = caller::read_memory(listener, call, call.arguments[1], &mut bytes);
        if let Ok(length) = read {
            let by = processes.name(thread);
            let bytes = &bytes[..length];
            observed.address(named.act, bytes, by);
            // A socket is a file that is made.
            let bound = observed::local(bytes).filter(|_| named.act == Act::Bind);
            if let Some(path) = bound.and_then(|path| process::path(thread, None, path)) {
                observed.named(Act::Write, &path, by, false);
            }
        }
        return;
    }
    let Ok(text) = caller::read_text(listener, call, call.arguments[named.path]) else {
        if named.act == Act::Execute {
            processes.executes_unknown(thread);
        }
        return;
    };
    let directory = named.directory.map(|at| call.arguments[at] as i32);
    let Some(path) = process::path(thread, directory, text.as_bytes()) else { return };
    let flags = match named.name {
        "open" => Some(call.arguments[1]),
        "openat" => Some(call.arguments[2]),
        "openat2" => {
            let mut flags = [0; 8];
            let read = caller::read_memory(listener, call, call.arguments[2], &mut flags);
            Some(if read == Ok(8) { u64::from_ne_bytes(flags) } else { 0 })
        }
        _ => None,
    };
    let by = processes.name(thread);
    if let Some(flags) = flags {
        let (read, written) = changes::opened(flags);
        let opened = !changes::only_names(flags);
        let acts = [(written, Act::Write), (read, Act::Read)];
        acts.iter().filter(|one| one.0).for_each(|one| observed.named(one.1, &path, by, opened));
        return;
    }
    let opened = named.act != Act::Write || named.name == "creat";
    observed.named(named.act, &path, by, opened);
    if named.name == "chdir" {
        observed.enters(&path);
    }
    if named.act == Act::Write {
        if named.name.starts_with("symlink")
            && let Ok(target) = caller::read_text(listener, call, call.arguments[0])
        {
            observed.links(&path, target.as_bytes());
        }
        // A directory that has something in it stays: many try whether it has.
        const REMOVE_DIRECTORY: u64 = 0x200;
        let removes = named.name == "rmdir"
            || named.name == "unlinkat" && call.arguments[2] & REMOVE_DIRECTORY != 0;
        if !removes || process::is_empty(thread, &path) {
            observed.changed(&path, changes::of(named.name), by);
        }
        if let Some((directory, old)) = changes::first_name(named.name)
            && let Ok(old) = caller::read_text(listener, call, call.arguments[old])
            && let Some(old) =
                process::path(thread, directory.map(|at| call.arguments[at] as i32), old.as_bytes())
        {
            // A link to what is mounted by itself would be one from another mount.
            observed.named(Act::Write, &old, by, false);
            observed.changed(&old, changes::Change { needed: true, replaced: true }, by);
            observed.moves(&old, &path, by);
        }
    }
    if named.act == Act::Execute {
        processes.executes(thread, &path);
    }
}
