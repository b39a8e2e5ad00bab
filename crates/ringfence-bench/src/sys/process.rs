//! Starting a program as cheaply as the kernel allows, and waiting for it.
//!
//! `std::process::Command` forks (copying page tables) as soon as it is asked for anything unusual,
//! such as a parent-death signal. A bench that must leave nothing behind needs that signal, and must
//! not add a fork's cost to what it measures: so this starts by `clone(CLONE_VM|CLONE_VFORK)`.

use super::check;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// A command made ready: nothing is allocated or looked up when it is started.
pub struct Prepared {
    program: CString,
    argv: Vec<CString>,
    env: Vec<CString>,
    cwd: CString,
}

impl Prepared {
    /// Prepares `program` (a path) with `argv` (its own name first), `env` (`NAME=VALUE`) and `cwd`.
    ///
    /// # Errors
    /// When a string holds a NUL byte.
    pub fn new<'a>(
        program: &Path,
        argv: impl IntoIterator<Item = &'a OsStr>,
        env: impl IntoIterator<Item = &'a OsStr>,
        cwd: &Path,
    ) -> io::Result<Prepared> {
        let c = |text: &OsStr| CString::new(text.as_bytes()).map_err(io::Error::other);
        Ok(Prepared {
            program: c(program.as_os_str())?,
            argv: argv.into_iter().map(c).collect::<io::Result<_>>()?,
            env: env.into_iter().map(c).collect::<io::Result<_>>()?,
            cwd: c(cwd.as_os_str())?,
        })
    }

    /// The program and its arguments, as a person would read them.
    #[must_use]
    pub fn display(&self) -> String {
        let words: Vec<_> = self.argv.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }
}

/// What the child's descriptors 0, 1 and 2 are, and one more that it keeps under a number of its own.
#[derive(Clone, Copy)]
pub struct Stdio {
    /// Standard input.
    pub stdin: RawFd,
    /// Standard output.
    pub stdout: RawFd,
    /// Standard error.
    pub stderr: RawFd,
    /// A further descriptor: which of ours, and what the child calls it (above 2).
    pub extra: Option<(RawFd, RawFd)>,
}

/// A started child.
pub struct Child {
    pid: libc::pid_t,
    pidfd: OwnedFd,
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

impl std::fmt::Display for Ended {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ended::Code(code) => write!(out, "exit code {code}"),
            Ended::Signal(signal) => write!(out, "signal {signal}"),
        }
    }
}

/// All that the new child reads; it lives on the parent's stack, which CLONE_VFORK keeps still.
struct Start<'a> {
    program: *const libc::c_char,
    argv: *const *const libc::c_char,
    env: *const *const libc::c_char,
    cwd: *const libc::c_char,
    stdio: &'a Stdio,
    parent: libc::pid_t,
    error: i32,
}

const STACK: usize = 64 * 1024;

impl Child {
    /// Starts `command` in a process group of its own, to be killed when this thread dies.
    ///
    /// # Errors
    /// What `clone`, `chdir` or `execve` answered.
    pub fn start(command: &Prepared, stdio: &Stdio) -> io::Result<Child> {
        let pointers = |list: &[CString]| -> Vec<*const libc::c_char> {
            list.iter().map(|item| item.as_ptr()).chain([std::ptr::null()]).collect()
        };
        let (argv, env) = (pointers(&command.argv), pointers(&command.env));
        let mut start = Start {
            program: command.program.as_ptr(),
            argv: argv.as_ptr(),
            env: env.as_ptr(),
            cwd: command.cwd.as_ptr(),
            stdio,
            // SAFETY: takes nothing, cannot fail.
            parent: unsafe { libc::getpid() },
            error: 0,
        };
        let mut stack = vec![0u128; STACK / 16];
        let mut pidfd: libc::c_int = -1;
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
        // SAFETY: the stack is ours, aligned, and outlives the child's use of it, because CLONE_VFORK
        // suspends this thread until the child has exec'd or exited; `start` likewise.
        let pid = unsafe {
            let top = stack.as_mut_ptr().add(stack.len()).cast();
            let argument = std::ptr::from_mut(&mut start).cast();
            libc::clone(in_child, top, flags, argument, std::ptr::from_mut(&mut pidfd))
        };
        check(pid.into())?;
        // SAFETY: CLONE_PIDFD stored a fresh descriptor that nothing else owns.
        let child = Child { pid, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } };
        // SAFETY: a plain read; volatile because the child wrote it behind the compiler's back.
        match unsafe { std::ptr::read_volatile(&raw const start.error) } {
            0 => Ok(child),
            error => {
                child.wait(None)?;
                Err(io::Error::from_raw_os_error(error))
            }
        }
    }

    /// The child's process number.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Waits for the child's end, at most `limit`; on time-out it is killed with its group, and the
    /// answer is `None`.
    ///
    /// # Errors
    /// What `poll` or `wait4` answered.
    pub fn wait(&self, limit: Option<Duration>) -> io::Result<Option<Ended>> {
        let mut timed_out = false;
        if let Some(limit) = limit {
            let mut poll =
                libc::pollfd { fd: self.pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            let millis = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
            // SAFETY: one valid pollfd.
            if check(unsafe { libc::poll(&raw mut poll, 1, millis) }.into())? == 0 {
                timed_out = true;
                self.kill();
            }
        }
        let mut status = 0;
        // SAFETY: `status` is ours; the rusage pointer may be null.
        check(unsafe { libc::wait4(self.pid, &raw mut status, 0, std::ptr::null_mut()) }.into())?;
        Ok((!timed_out).then(|| Ended::from_status(status)))
    }

    /// Kills the child and its process group.
    pub fn kill(&self) {
        // SAFETY: plain calls; the child is not reaped yet, so its number is still its own.
        unsafe {
            libc::kill(-self.pid, libc::SIGKILL);
            libc::kill(self.pid, libc::SIGKILL);
        }
    }

    /// Sends the child, and only the child, a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: a plain call; the child is not reaped yet, so its number is still its own.
        unsafe { libc::kill(self.pid, signal) };
    }
}

impl Ended {
    fn from_status(status: i32) -> Ended {
        if libc::WIFSIGNALED(status) {
            Ended::Signal(libc::WTERMSIG(status))
        } else {
            Ended::Code(libc::WEXITSTATUS(status))
        }
    }
}

/// What runs between `clone` and `execve`: system calls only, no allocation, no lock.
extern "C" fn in_child(argument: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the parent passed a `Start` and is suspended; every call below is async-signal-safe.
    unsafe {
        let start = &mut *argument.cast::<Start<'_>>();
        let steps = || -> Option<()> {
            let ok = |result: libc::c_int| (result >= 0).then_some(());
            ok(libc::setpgid(0, 0))?;
            ok(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
            if libc::getppid() != start.parent {
                libc::_exit(127); // the parent died before the line above
            }
            libc::signal(libc::SIGPIPE, libc::SIG_DFL); // Rust programs ignore it; others don't expect that
            ok(libc::chdir(start.cwd))?;
            let stdio = start.stdio;
            ok(libc::dup2(stdio.stdin, 0))?;
            ok(libc::dup2(stdio.stdout, 1))?;
            ok(libc::dup2(stdio.stderr, 2))?;
            if let Some((ours, theirs)) = stdio.extra {
                ok(libc::dup2(ours, theirs))?;
            }
            libc::execve(start.program, start.argv, start.env);
            None
        };
        steps();
        std::ptr::write_volatile(&raw mut start.error, *libc::__errno_location());
        libc::_exit(127)
    }
}

/// Forks this process, which must have one thread only. The parent gets the child's number, the
/// child `None`.
///
/// # Errors
/// When there are more threads (their locks would stay locked in the child), or what `fork` answered.
pub fn fork() -> io::Result<Option<i32>> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("a process with several threads cannot be forked"));
    }
    // SAFETY: there is one thread, so that the child's memory is consistent.
    match check(unsafe { libc::fork() }.into())? {
        0 => Ok(None),
        pid => Ok(i32::try_from(pid).ok()),
    }
}

/// Ends this process at once, running nothing of what `exit` would.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: never returns.
    unsafe { libc::_exit(code) }
}

/// Starts a session of its own: no controlling terminal, not in its parent's process group.
pub fn new_session() {
    // SAFETY: takes nothing; fails only for a group leader, which has what this asks for.
    unsafe { libc::setsid() };
}

/// Has the kernel send `signal` to this process when its parent dies.
pub fn die_with_parent(signal: i32) {
    // SAFETY: a plain prctl on integers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) };
}

/// Makes this process the one that its orphaned descendants fall to.
pub fn adopt_orphans() {
    // SAFETY: a plain prctl on integers.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
}

/// The parent's process number.
#[must_use]
pub fn parent() -> i32 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::getppid() }
}

/// This process's effective user.
#[must_use]
pub fn user() -> u32 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::geteuid() }
}

/// Keeps this process, and what it starts, on processor `cpu`; `None` gives all of `all` back.
///
/// # Errors
/// What `sched_setaffinity` answered.
pub fn pin(cpus: &[usize]) -> io::Result<()> {
    // SAFETY: an all-zero cpu_set_t is a valid empty set; CPU_SET bounds-checks its index.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for &cpu in cpus {
            libc::CPU_SET(cpu, &mut set);
        }
        check(libc::sched_setaffinity(0, size_of_val(&set), &raw const set).into())?;
    }
    Ok(())
}

/// The processors that this process may run on.
#[must_use]
pub fn allowed_cpus() -> Vec<usize> {
    // SAFETY: an all-zero cpu_set_t is a valid empty set, which the kernel then fills.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) < 0 {
            return vec![0];
        }
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect()
    }
}

/// A file that exists in memory only, and dies with the last process that holds it.
///
/// # Errors
/// What `memfd_create` answered.
pub fn memory_file() -> io::Result<std::fs::File> {
    // SAFETY: the name is NUL-terminated; the descriptor is fresh and ours.
    unsafe {
        let fd = check(libc::memfd_create(c"bench".as_ptr(), libc::MFD_CLOEXEC).into())?;
        Ok(std::fs::File::from_raw_fd(fd as RawFd))
    }
}

/// Tells the kernel to drop the cached pages of `file` (clean ones that nothing has mapped).
pub fn drop_cached_pages(file: &std::fs::File) {
    // SAFETY: a plain call on a valid descriptor.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

/// The kernel's stated resolution of the monotonic clock, in nanoseconds.
#[must_use]
pub fn clock_resolution_ns() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is ours.
    unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Removes the limit on locked or open descriptors as far as the hard limit allows.
pub fn raise_open_files() {
    // SAFETY: `limit` is ours and filled by the first call.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// Waits until `fd` has something to read, or its writer is gone; `false` when `limit` passes first.
///
/// # Errors
/// What `poll` answered.
pub fn wait_readable(fd: &impl AsRawFd, limit: Duration) -> io::Result<bool> {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let millis = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: one valid pollfd.
    Ok(check(unsafe { libc::poll(&raw mut poll, 1, millis) }.into())? > 0)
}

/// Has the kernel end this process after so many seconds: the bound of a clean-up that hangs.
pub fn end_after(seconds: u32) {
    // SAFETY: a plain call on an integer.
    unsafe { libc::alarm(seconds) };
}
