//! A command's process, up to the command: and one that waits for the session's own, made before the guest is saved.
//! What any command needs is behind it then (the fork, a session of its own, streams, the view), and no clone has to
//! have it translated anew.

use super::{boot, jobs};
use crate::wire::{Exec, Framer, Message, ToGuest};
use ringfence_sys::fd;
use ringfence_sys::process::{self, Forked};
use ringfence_sys::signal::{self, Outset, SignalSet};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, LinkNameSpaceType};
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;

/// The streams as the command gets them.
pub struct Theirs {
    /// Input, output, errors.
    pub streams: [OwnedFd; 3],
    /// They are its terminal.
    pub terminal: bool,
}

/// A process that waits for a command.
pub struct Waiting {
    given: Given,
    /// Where it is told.
    order: OwnedFd,
}

/// A command's process, and our ends of what it has.
pub struct Given {
    /// Its number.
    pub pid: i32,
    /// To its standard input.
    pub input: OwnedFd,
    /// From its standard output.
    pub out: OwnedFd,
    /// From its standard error.
    pub error: OwnedFd,
    /// Tells whether it executes.
    pub start: OwnedFd,
}

impl Waiting {
    /// Makes it, in the control group that limits commands where something does.
    ///
    /// # Errors
    /// A sentence.
    pub fn make(fuse: &OwnedFd, view: &OwnedFd) -> Result<Waiting, String> {
        let pipe = || fd::pipe().map_err(|errno| format!("pipe: {errno:?}"));
        let ((their_input, input), (out, their_out), (error, their_error)) =
            (pipe()?, pipe()?, pipe()?);
        let ((start, told), (ordered, order), (said, says)) = (pipe()?, pipe()?, pipe()?);
        for ours in [&input, &out, &error, &start] {
            fd::never_wait(ours.as_fd()).map_err(|errno| format!("fcntl: {errno:?}"))?;
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let group = rustix::fs::open(boot::GROUP, flags, Mode::empty()).ok();
        match process::fork_into(process::Namespaces::NONE, group.as_ref().map(AsFd::as_fd)) {
            Ok(Forked::Child) => {
                drop((input, out, error, start, order, said));
                let streams = [their_input, their_out, their_error];
                let stood = enter(view.as_fd(), Theirs { streams, terminal: false });
                let word = stood.err().map_or_else(|| vec![0], String::into_bytes);
                let _ = fd::write_all(says.as_fd(), &word);
                drop(says);
                match heard(&ordered) {
                    Some(exec) => {
                        drop(ordered);
                        refused(&told, execute(&exec))
                    }
                    // The session's command has a terminal.
                    None => process::exit_now(0),
                }
            }
            Ok(Forked::Parent(pid, _)) => {
                drop((their_input, their_out, their_error, told, ordered, says));
                boot::answered(fuse, &said, "a process")?;
                Ok(Waiting { given: Given { pid, input, out, error, start }, order })
            }
            Err(errno) => Err(format!("cannot make a process: {errno:?}")),
        }
    }

    /// Lets it become a command; `None` where it is gone.
    pub fn become_command(self, exec: &Exec) -> Option<Given> {
        let order = ToGuest::Exec(exec.clone()).encode(0);
        // It reads all of it whatever else there is to do.
        fd::write_all(self.order.as_fd(), &order).ok().map(|()| self.given)
    }
}

/// Waits for the command.
fn heard(ordered: &OwnedFd) -> Option<Exec> {
    let (mut framer, mut buffer) = (Framer::default(), vec![0; 16 * 1024]);
    loop {
        match rustix::io::read(ordered, &mut buffer[..]) {
            Ok(0) => return None,
            Ok(count) => framer.add(&buffer[..count]),
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return None,
        }
        match framer.take() {
            Ok(None) => {}
            Ok(Some((_, ToGuest::Exec(exec)))) => return Some(exec),
            _ => return None,
        }
    }
}

/// Says why there is no command, and ends.
pub fn refused(told: &OwnedFd, (code, why): (u8, String)) -> ! {
    let said = [&[code], why.as_bytes()].concat();
    let _ = fd::write_all(told.as_fd(), &said);
    process::exit_now(code.into())
}

/// Turns a child that stands in the view into the command. Returns only when that fails: the exit code that stands for
/// it, and a sentence.
pub fn execute(exec: &Exec) -> (u8, String) {
    let program = OsStr::from_bytes(&exec.argv[0]);
    let name = program.to_string_lossy();
    let kernel = if exec.user.0 == 0 { boot::protect_kernel() } else { Ok(()) };
    if let Err(why) = kernel.and_then(|()| confine(exec)) {
        return (125, why);
    }
    // Last: what the caller ignores or blocks is the command's alone.
    let [ignored, blocked] = [exec.signals.0, exec.signals.1].map(SignalSet::of_bits);
    let outset = Outset { ignored, blocked };
    if let Err(errno) = outset.take() {
        return (125, format!("its signals: {errno:?}"));
    }
    straight(exec);
    let words: Vec<&OsStr> = exec.argv[1..].iter().map(|word| OsStr::from_bytes(word)).collect();
    let found = (!exec.program.is_empty()).then(|| OsStr::from_bytes(&exec.program));
    let mut command = std::process::Command::new(found.unwrap_or(program));
    command.arg0(program).args(words).env_clear();
    for entry in &exec.environment {
        let at = entry.iter().skip(1).position(|&byte| byte == b'=').map(|at| at + 1);
        if let Some(at) = at {
            command.env(OsStr::from_bytes(&entry[..at]), OsStr::from_bytes(&entry[at + 1..]));
        }
    }
    let error = outset.to(&mut command).exec();
    match error.kind() {
        io::ErrorKind::NotFound if name.contains('/') => {
            (127, format!("command not found: {name} does not exist in the guest"))
        }
        io::ErrorKind::NotFound => (
            127,
            format!("command not found: {name} is in no directory of PATH that the guest can see"),
        ),
        io::ErrorKind::PermissionDenied => {
            let why = "permission denied (it is not executable, or not granted)";
            (126, format!("cannot execute {name}: {why}"))
        }
        _ => (126, format!("cannot execute {name}: {error}")),
    }
}

/// Executes a program whose place is known. Where that fails, it is tried once more by the library's way, which has words
/// for the reason, and a shell for scripts that name no interpreter.
fn straight(exec: &Exec) {
    let place = if exec.program.is_empty() { &exec.argv[0] } else { &exec.program };
    if !place.contains(&b'/') {
        return;
    }
    let texts = |list: &[Vec<u8>]| -> Option<Vec<CString>> {
        list.iter().map(|text| CString::new(text.as_slice()).ok()).collect()
    };
    let parts = (CString::new(place.as_slice()).ok(), texts(&exec.argv), texts(&exec.environment));
    if let (Some(program), Some(words), Some(environment)) = parts {
        let _ = process::execute(&program, &words, &environment);
    }
}

/// What any command's process does first: a session of its own, its streams, the view.
pub fn enter(view: BorrowedFd<'_>, theirs: Theirs) -> Result<(), String> {
    let failed = |what: &'static str| move |error: rustix::io::Errno| format!("{what}: {error}");
    rustix::process::setsid().map_err(failed("setsid"))?;
    if theirs.terminal {
        rustix::process::ioctl_tiocsctty(&theirs.streams[0]).map_err(failed("TIOCSCTTY"))?;
        jobs::accompany();
    }
    rustix::stdio::dup2_stdin(&theirs.streams[0]).map_err(failed("dup2"))?;
    rustix::stdio::dup2_stdout(&theirs.streams[1]).map_err(failed("dup2"))?;
    rustix::stdio::dup2_stderr(&theirs.streams[2]).map_err(failed("dup2"))?;
    // As in every tier: what a program held is not left in a file.
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    rustix::process::setrlimit(Resource::Core, none).map_err(failed("setrlimit"))?;
    rustix::thread::move_into_link_name_space(view, Some(LinkNameSpaceType::Mount))
        .map_err(failed("setns"))?;
    signal::end_by_broken_pipes();
    signal::set_mask(SignalSet::of(&[])).map_err(|errno| format!("sigmask: {errno:?}"))?;
    Ok(())
}

/// What is this command's own, and what it loses.
fn confine(exec: &Exec) -> Result<(), String> {
    let failed = |what: &'static str| move |error: rustix::io::Errno| format!("{what}: {error}");
    let limit = Rlimit { current: Some(exec.files.0), maximum: Some(exec.files.1) };
    rustix::process::setrlimit(Resource::Nofile, limit).map_err(failed("setrlimit"))?;
    let workdir = OsStr::from_bytes(&exec.workdir);
    rustix::process::chdir(workdir).map_err(|error| {
        format!("cannot start in {}: {error}; the guest cannot see it", workdir.to_string_lossy())
    })?;
    let _ = rustix::process::umask(Mode::from_raw_mode(exec.umask));
    let (user, group) =
        (rustix::fs::Uid::from_raw(exec.user.0), rustix::fs::Gid::from_raw(exec.user.1));
    // Its streams can be opened by their names, as outside (`/dev/stdout`): pipes and terminals are whose they are made by.
    for stream in [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()] {
        rustix::fs::fchown(stream, Some(user), Some(group)).map_err(failed("fchown"))?;
    }
    rustix::thread::set_thread_groups(&[]).map_err(failed("setgroups"))?;
    rustix::thread::set_thread_res_gid(group, group, group).map_err(failed("setresgid"))?;
    rustix::thread::set_thread_res_uid(user, user, user).map_err(failed("setresuid"))?;
    // Nothing inside has a use for a capability: what they could change is the guest's only, but
    // the more of the kernel and of the machine's devices is out of reach the better. None can come back by a program:
    // the bounding set has been empty since the guest booted.
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none).map_err(failed("capset"))?;
    rustix::thread::set_no_new_privs(true).map_err(failed("prctl"))
}
