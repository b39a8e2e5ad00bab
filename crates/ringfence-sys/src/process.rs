//! Processes: made, confined on their way to `execve`, waited for.

use crate::fd::owned;
use crate::{Errno, Result, sys};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

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

    /// The flags for `clone3(2)`.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Whether all of `other` are in it.
    pub fn contains(self, other: Namespaces) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The caller's group of processes, as shells make one for each job.
pub fn group() -> i32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::getpgrp() }
}

/// The caller's session.
pub fn session() -> i32 {
    // SAFETY: takes a number, and of the caller's own cannot fail.
    unsafe { libc::getsid(0) }
}

/// The numbers of a process in each PID namespace that it is in, the caller's first (`NSpid` in
/// proc_pid_status(5)); none when it is gone.
pub fn numbers(pid: u32) -> Vec<u32> {
    status(pid, "NSpid:")
}

/// How many filters of system calls hold a process (proc_pid_status(5), `Seccomp_filters`, Linux 5.9); none where that
/// is not known.
pub fn filters(pid: u32) -> Option<u32> {
    status(pid, "Seccomp_filters:").first().copied()
}

/// The numbers in a line of a process's status.
fn status(pid: u32, key: &str) -> Vec<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    line.unwrap_or_default().split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// A process's parent; nothing where that is out of sight, or the process is gone.
pub fn parent_of(pid: i32) -> Option<i32> {
    // proc_pid_stat(5): after the name in parentheses, which may hold anything.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after) = stat.rsplit_once(')')?;
    after.split_whitespace().nth(1)?.parse().ok().filter(|&parent| parent > 0)
}

/// A process's group.
///
/// # Errors
/// `ESRCH` when there is no such process.
pub fn group_of(pid: i32) -> Result<i32> {
    // SAFETY: takes a number only.
    unsafe { sys!(getpgid, pid) }.map(|group| group as i32)
}

/// A process's session.
///
/// # Errors
/// `ESRCH` when there is no such process.
pub fn session_of(pid: i32) -> Result<i32> {
    // SAFETY: takes a number only.
    unsafe { sys!(getsid, pid) }.map(|session| session as i32)
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

/// `execve(2)`: returns only when it fails, with the reason.
pub fn execute(program: &CStr, words: &[CString], environment: &[CString]) -> Errno {
    let list = |texts: &[CString]| -> Vec<*const libc::c_char> {
        texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (words, environment) = (list(words), list(environment));
    // SAFETY: NUL-terminated strings, in lists that end with a null pointer; all outlive the call.
    let failed = unsafe { sys!(execve, program.as_ptr(), words.as_ptr(), environment.as_ptr()) };
    failed.err().unwrap_or(Errno::EIO)
}

/// Makes the caller adopt its orphaned descendants (`PR_SET_CHILD_SUBREAPER`).
///
/// # Errors
/// None that a caller could cause.
pub fn become_subreaper() -> Result<()> {
    // SAFETY: takes numbers only.
    unsafe { sys!(prctl, libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }.map(drop)
}

/// Ends the process at once, without running destructors or handlers.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit does not return and touches no memory.
    unsafe { libc::_exit(code) }
}

/// Lets go of every descriptor, and ends when that process has: for a child that has only to be there meanwhile.
pub fn linger(pid: i32) -> ! {
    // SAFETY: takes numbers only. Whatever owns a descriptor here is never used again: this does not return.
    let bare = unsafe { sys!(close_range, 0, u32::MAX, 0) };
    if let Ok(process) = bare.and_then(|_| pidfd(pid)) {
        let _ = crate::fd::poll_readable(&[process.as_fd()], -1);
    }
    exit_now(0)
}

/// Makes the calling thread's file creation mask and returns the former one.
pub fn set_umask(mask: u32) -> u32 {
    // SAFETY: takes a number, cannot fail.
    unsafe { sys!(umask, mask) }.unwrap_or(0o022) as u32
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

/// The message that a listener comes with.
pub const LISTENER: u8 = ringfence_start::brief::passed::CALLS;

/// A pidfd for a process.
///
/// # Errors
/// `ESRCH`.
pub fn pidfd(pid: i32) -> Result<OwnedFd> {
    // SAFETY: takes numbers only.
    unsafe { sys!(pidfd_open, pid, 0) }.map(owned)
}

/// A pidfd for one thread, which need not be a process's first (Linux 6.9).
///
/// # Errors
/// `ESRCH`; `EINVAL` from a kernel that has none.
pub fn thread_pidfd(thread: i32) -> Result<OwnedFd> {
    // SAFETY: takes numbers only.
    unsafe { sys!(pidfd_open, thread, libc::O_EXCL) }.map(owned)
}

/// Starts a program that is killed when the calling thread ends, however it ends
/// (`PR_SET_PDEATHSIG`).
///
/// # Errors
/// As of [`std::process::Command::spawn`].
pub fn spawn_bound(command: &mut std::process::Command) -> std::io::Result<std::process::Child> {
    use std::os::unix::process::CommandExt;
    let parent = std::process::id();
    let bind = move || {
        let number = |errno: Errno| std::io::Error::from_raw_os_error(errno.into_raw());
        // SAFETY: takes numbers only.
        unsafe { sys!(prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) }.map_err(number)?;
        // SAFETY: takes nothing.
        let now = unsafe { sys!(getppid) }.map_err(number)?;
        // It ended before it was bound to.
        if now as u32 == parent { Ok(()) } else { Err(number(Errno::ESRCH)) }
    };
    // SAFETY: between fork and exec only system calls are made, and no memory is allocated.
    unsafe { command.pre_exec(bind) }.spawn()
}

/// What the kernel says of a process behind a pidfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Its parent, 0 where that is out of sight.
    pub parent: i32,
    /// How it ended, once its parent has taken note of that.
    pub ended: Option<Change>,
}

/// What is known of a process (`PIDFD_GET_INFO`, Linux 6.13; how it ended, Linux 6.15).
///
/// # Errors
/// `ENOTTY`, `EINVAL` on older kernels; `ESRCH` when it is gone and its end is not known.
pub fn info(pidfd: BorrowedFd<'_>) -> Result<Info> {
    /// Of the structure's first version, 64 bytes.
    const GET_INFO: u32 = 0xC040_FF0B;
    const PID: u64 = 1;
    const EXIT: u64 = 1 << 3;
    // struct pidfd_info: mask, cgroupid; pid, tgid, ppid, eight ids, exit_code.
    let mut info = [0u32; 16];
    info[0] = (PID | EXIT) as u32;
    // SAFETY: the operation reads and fills 64 bytes.
    unsafe { sys!(ioctl, pidfd.as_raw_fd(), GET_INFO, info.as_mut_ptr()) }?;
    let status = info[15] as i32;
    let ended = (info[0] & EXIT as u32 != 0).then(|| {
        if libc::WIFSIGNALED(status) {
            Change::Killed(libc::WTERMSIG(status))
        } else {
            Change::Exited(libc::WEXITSTATUS(status))
        }
    });
    Ok(Info { parent: info[6] as i32, ended })
}
