//! Processes: made, confined on their way to `execve`, waited for.

use crate::fd::owned;
use crate::seccomp::Program;
use crate::signal::SignalSet;
use crate::{Errno, Result, caps, fd, landlock, limit, sys};
use std::ffi::{CStr, CString, c_char, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// Which namespaces a new process gets (`CLONE_NEW*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Namespaces(u64);

impl Namespaces {
    /// None: an ordinary fork.
    pub const NONE: Namespaces = Namespaces(0);
    /// User namespace.
    pub const USER: Namespaces = Namespaces(libc::CLONE_NEWUSER as u64);
    /// Mount namespace.
    pub const MOUNT: Namespaces = Namespaces(libc::CLONE_NEWNS as u64);
    /// PID namespace: the new process is its PID 1.
    pub const PID: Namespaces = Namespaces(libc::CLONE_NEWPID as u64);
    /// Network namespace.
    pub const NETWORK: Namespaces = Namespaces(libc::CLONE_NEWNET as u64);
    /// System V IPC and POSIX message queues.
    pub const IPC: Namespaces = Namespaces(libc::CLONE_NEWIPC as u64);
    /// Host name.
    pub const UTS: Namespaces = Namespaces(libc::CLONE_NEWUTS as u64);
    /// View of the control group tree.
    pub const CGROUP: Namespaces = Namespaces(libc::CLONE_NEWCGROUP as u64);

    /// Both.
    #[must_use]
    pub fn and(self, other: Namespaces) -> Namespaces {
        Namespaces(self.0 | other.0)
    }

    /// Whether all of `other` are in it.
    pub fn contains(self, other: Namespaces) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The two sides of a fork.
#[derive(Debug)]
pub enum Forked {
    /// In the parent: the child's number and its pidfd.
    Parent(i32, OwnedFd),
    /// In the child.
    Child,
}

/// `CLONE_INTO_CGROUP` (Linux 5.7); libc's constant is too narrow for it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// `clone3(2)` as a fork into new namespaces.
///
/// The child is a copy of the caller, which must be single-threaded: then nothing, no lock
/// either, can be left half-done in the copy, and the child may run ordinary code.
///
/// # Errors
/// `EPERM` or `ENOSPC` where user namespaces are closed, `EAGAIN` at a limit, `ENOSYS` or
/// `EPERM` under a container's filter.
pub fn fork_into(namespaces: Namespaces, cgroup: Option<BorrowedFd<'_>>) -> Result<Forked> {
    let mut pidfd: i32 = -1;
    let mut flags = namespaces.0 | libc::CLONE_PIDFD as u64;
    if cgroup.is_some() {
        flags |= CLONE_INTO_CGROUP;
    }
    let args = libc::clone_args {
        flags,
        pidfd: &raw mut pidfd as u64,
        child_tid: 0,
        parent_tid: 0,
        exit_signal: libc::SIGCHLD as u64,
        stack: 0,
        stack_size: 0,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: cgroup.map_or(0, |fd| fd.as_raw_fd() as u64),
    };
    // SAFETY: no CLONE_VM, so the child has its own copy of all memory and goes on with the
    // same stack contents; `args` and `pidfd` outlive the call.
    let result = match unsafe { sys!(clone3, &raw const args, size_of::<libc::clone_args>()) } {
        // Inside a sandbox of ours (or of a container) only clone is left, which has no groups.
        Err(Errno::ENOSYS) if cgroup.is_none() => {
            let flags = flags | libc::SIGCHLD as u64;
            let null = std::ptr::null::<u8>();
            // SAFETY: as above; with CLONE_PIDFD the third argument is where the pidfd goes, on
            // all architectures.
            unsafe { sys!(clone, flags, null, &raw mut pidfd, null, null) }
        }
        result => result,
    };
    match result? {
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(pid as i32, owned(pidfd as usize))),
    }
}

/// Asks for a signal when the parent dies (`PR_SET_PDEATHSIG`). The caller must check
/// afterwards that the parent was still there.
///
/// # Errors
/// None that a caller could cause.
pub fn set_parent_death_signal(signal: i32) -> Result<()> {
    // SAFETY: takes numbers only.
    unsafe { sys!(prctl, libc::PR_SET_PDEATHSIG, signal, 0, 0, 0) }.map(drop)
}

/// Makes the caller adopt its orphaned descendants (`PR_SET_CHILD_SUBREAPER`).
///
/// # Errors
/// None that a caller could cause.
pub fn become_subreaper() -> Result<()> {
    // SAFETY: takes numbers only.
    unsafe { sys!(prctl, libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }.map(drop)
}

/// Forbids others of the same user to attach to the caller or to read its memory, and makes
/// its `/proc` entries root's (`PR_SET_DUMPABLE` 0).
///
/// # Errors
/// None that a caller could cause.
pub fn set_undumpable() -> Result<()> {
    // SAFETY: takes numbers only.
    unsafe { sys!(prctl, libc::PR_SET_DUMPABLE, 0, 0, 0, 0) }.map(drop)
}

/// Names the calling thread (15 bytes), as `ps` shows it.
pub fn set_name(name: &CStr) {
    // SAFETY: `name` is NUL-terminated; the kernel copies at most 16 bytes.
    let _ = unsafe { sys!(prctl, libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) };
}

/// Ends the process at once, without running destructors or handlers.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit does not return and touches no memory.
    unsafe { libc::_exit(code) }
}

/// Makes the calling thread's file creation mask and returns the former one.
pub fn set_umask(mask: u32) -> u32 {
    // SAFETY: takes a number, cannot fail.
    unsafe { sys!(umask, mask) }.unwrap_or(0o022) as u32
}

/// Names the host inside the caller's UTS namespace.
///
/// # Errors
/// `EPERM` outside a UTS namespace of one's own.
pub fn set_host_name(name: &[u8]) -> Result<()> {
    // SAFETY: the pointer and length describe `name`.
    unsafe { sys!(sethostname, name.as_ptr(), name.len()) }.map(drop)
}

/// How a process changed state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It ended with this code.
    Exited(i32),
    /// This signal ended it.
    Killed(i32),
    /// This signal stopped it.
    Stopped(i32),
    /// It goes on after a stop.
    Continued,
}

/// Takes one change of any child (`wait4(2)`), or with `wait` unset `None` when there is none yet.
///
/// # Errors
/// `ECHILD` when there are no children.
pub fn wait_any(wait: bool) -> Result<Option<(i32, Change)>> {
    let mut status = 0i32;
    let flags = libc::WUNTRACED | libc::WCONTINUED | if wait { 0 } else { libc::WNOHANG };
    let null = std::ptr::null::<u8>();
    loop {
        // SAFETY: `status` is room for the answer; no usage is asked for.
        match unsafe { sys!(wait4, -1i32, &raw mut status, flags, null) } {
            Ok(0) => return Ok(None),
            Ok(pid) => {
                let change = if libc::WIFEXITED(status) {
                    Change::Exited(libc::WEXITSTATUS(status))
                } else if libc::WIFSIGNALED(status) {
                    Change::Killed(libc::WTERMSIG(status))
                } else if libc::WIFSTOPPED(status) {
                    Change::Stopped(libc::WSTOPSIG(status))
                } else {
                    Change::Continued
                };
                return Ok(Some((pid as i32, change)));
            }
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// All that a confined command needs, made before the process that becomes it, so that
/// between `clone` and `execve` nothing is allocated or decided.
#[derive(Debug)]
pub struct Command {
    /// The file to execute, as found in the sandbox's own view.
    pub path: CString,
    /// Arguments, the name first.
    pub argv: Vec<CString>,
    /// `NAME=value` strings.
    pub environment: Vec<CString>,
    /// The directory to start in.
    pub workdir: CString,
    /// The signal mask to start with.
    pub mask: SignalSet,
    /// The file creation mask to start with.
    pub umask: u32,
    /// Limits, in order.
    pub limits: Vec<(limit::Resource, u64)>,
    /// The Landlock domain to enter.
    pub landlock: Option<landlock::Ruleset>,
    /// Filters to install, in order.
    pub filters: Vec<Program>,
    /// A socket on which the supervisor gets the last filter's listener, if it wants it.
    pub listener_to: Option<RawFd>,
    /// What becomes its standard streams, all above 2; without, the caller's.
    pub streams: Option<[RawFd; 3]>,
    /// Which session it runs in.
    pub session: Session,
}

/// The session (setsid(2)) of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Session {
    /// The caller's.
    #[default]
    Kept,
    /// One of its own, so that it is signalled and stopped apart.
    Own,
    /// One of its own, whose terminal is its standard input.
    OwnTerminal,
}

/// The message that a listener comes with.
pub const LISTENER: u8 = b'F';

/// The step that failed between `clone` and `execve`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Making the process.
    Clone,
    /// Taking over its standard streams.
    Streams,
    /// Beginning a session, with its terminal.
    Session,
    /// Entering the working directory.
    Workdir,
    /// A resource limit.
    Limit,
    /// `PR_SET_NO_NEW_PRIVS`.
    NoNewPrivileges,
    /// `landlock_restrict_self`.
    Landlock,
    /// Giving up capabilities.
    Capabilities,
    /// Closing inherited descriptors.
    Descriptors,
    /// Installing a seccomp filter.
    Filter,
    /// `execve`.
    Execute,
}

/// What the child tells its parent through the memory they share.
struct Shared<'a> {
    command: &'a Command,
    argv: *const *const c_char,
    environment: *const *const c_char,
    failed: Option<(Step, Errno)>,
}

/// Starts the command, confined; returns its PID once it executes.
///
/// # Errors
/// The step that failed, and why; no process is left then.
pub fn spawn(command: &Command) -> std::result::Result<i32, (Step, Errno)> {
    let pointers = |list: &[CString]| {
        list.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>()
    };
    let argv = pointers(&command.argv);
    let environment = pointers(&command.environment);
    let mut shared =
        Shared { command, argv: argv.as_ptr(), environment: environment.as_ptr(), failed: None };
    // Enough for the few frames below; execve needs none of it.
    let mut stack = vec![0u8; 64 * 1024];
    let top = stack.as_mut_ptr_range().end;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: with CLONE_VFORK the caller sleeps until the child has executed or exited, so
    // that the child may use the caller's memory, thread-local errno included, and a stack
    // that the caller owns; `confine_and_execute` gets the pointer to `shared` and never
    // returns to a frame of the caller's.
    let pid = unsafe {
        let top = top.sub(top as usize % 16).cast::<c_void>();
        libc::clone(confine_and_execute, top, flags, (&raw mut shared).cast())
    };
    if pid < 0 {
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EAGAIN);
        return Err((Step::Clone, Errno::new(errno)));
    }
    match shared.failed {
        None => Ok(pid),
        Some(failure) => {
            let mut status = 0;
            // SAFETY: `status` is room for the answer. The child has exited: collect it.
            let _ = unsafe { sys!(wait4, pid, &raw mut status, 0, std::ptr::null::<u8>()) };
            Err(failure)
        }
    }
}

extern "C" fn confine_and_execute(argument: *mut c_void) -> i32 {
    // SAFETY: `spawn` passes a pointer to its `Shared`, and sleeps meanwhile.
    let shared = unsafe { &mut *argument.cast::<Shared<'_>>() };
    shared.failed = Some(confine(shared.command).err().unwrap_or_else(|| {
        let path = shared.command.path.as_ptr();
        // SAFETY: both lists are null-terminated arrays of NUL-terminated strings.
        let result = unsafe { sys!(execve, path, shared.argv, shared.environment) };
        (Step::Execute, result.err().unwrap_or(Errno::EINVAL))
    }));
    exit_now(0)
}

/// The steps from an ordinary process to a confined one. The order matters: what needs a
/// right comes before the step that gives the right up, and the filter, which forbids most,
/// comes last.
fn confine(command: &Command) -> std::result::Result<(), (Step, Errno)> {
    let at = |step: Step| move |errno: Errno| (step, errno);
    for (number, &stream) in command.streams.iter().flatten().enumerate() {
        // SAFETY: takes numbers only; what 0 to 2 were is the caller's copy alone, since the
        // table of descriptors is not shared (no CLONE_FILES).
        unsafe { sys!(dup3, stream, number, 0) }.map_err(at(Step::Streams))?;
    }
    if command.session != Session::Kept {
        // SAFETY: takes nothing.
        unsafe { sys!(setsid) }.map_err(at(Step::Session))?;
    }
    if command.session == Session::OwnTerminal {
        // SAFETY: takes numbers only.
        unsafe { sys!(ioctl, 0, libc::TIOCSCTTY, 0) }.map_err(at(Step::Session))?;
    }
    let workdir = command.workdir.as_ptr();
    // SAFETY: a NUL-terminated string.
    unsafe { sys!(chdir, workdir) }.map_err(at(Step::Workdir))?;
    set_umask(command.umask);
    for &(resource, value) in &command.limits {
        limit::set(resource, value).map_err(at(Step::Limit))?;
    }
    // SAFETY: takes numbers only.
    unsafe { sys!(prctl, libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }
        .map_err(at(Step::NoNewPrivileges))?;
    fd::close_from_on_exec(3).map_err(at(Step::Descriptors))?;
    // Rust's runtime ignores SIGPIPE; programs expect its default action.
    // SAFETY: SIG_DFL installs no handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    if let Some(ruleset) = &command.landlock {
        ruleset.restrict_self().map_err(at(Step::Landlock))?;
    }
    caps::drop_all().map_err(at(Step::Capabilities))?;
    let _ = crate::signal::set_mask(command.mask);
    let Some((last, others)) = command.filters.split_last() else { return Ok(()) };
    for filter in others {
        filter.install().map_err(at(Step::Filter))?;
    }
    match command.listener_to {
        None => last.install().map_err(at(Step::Filter)),
        Some(socket) => install_supervised(last, socket).map_err(at(Step::Filter)),
    }
}

/// Installs a filter and hands its listener to the supervisor.
fn install_supervised(filter: &Program, socket: RawFd) -> Result<()> {
    let listener = match filter.install_with_listener() {
        Ok(listener) => listener,
        // A sandbox in a sandbox: the outer one listens already. The calls fail with ENOSYS then.
        Err(Errno::EBUSY) => return filter.install(),
        Err(errno) => return Err(errno),
    };
    // SAFETY: the socket is the warden's, which sleeps until this process has executed.
    let socket = unsafe { BorrowedFd::borrow_raw(socket) };
    crate::socket::send_with(socket, &[LISTENER], &[listener.as_fd()])
}

/// Whether the caller may execute this path, as the kernel sees it now (`faccessat(2)`).
///
/// # Errors
/// `ENOENT`, `EACCES`, …
pub fn may_execute(path: &CStr) -> Result<()> {
    // SAFETY: a NUL-terminated string.
    unsafe { sys!(faccessat, fd::CWD, path.as_ptr(), libc::X_OK) }.map(drop)
}

/// A pidfd for a process.
///
/// # Errors
/// `ESRCH`.
pub fn pidfd(pid: i32) -> Result<OwnedFd> {
    // SAFETY: takes numbers only.
    unsafe { sys!(pidfd_open, pid, 0) }.map(owned)
}
