//! System calls by name, for profiles that allow some and refuse all others.
//!
//! Names are Linux's, and stand for what they do on every architecture: a call and those that do
//! the same with other arguments are one **family**, named by its most general member, so that a
//! list that was learnt where a program calls `open` holds where it has to call `openat`.

mod names;

use crate::suggest::{self, nearest};
use std::collections::BTreeSet;

/// What becomes of calls that are not on the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Otherwise {
    /// They are refused with `EPERM`.
    #[default]
    Refuse,
    /// Who makes one is killed (`SIGSYS`).
    Kill,
    /// The user is asked.
    Ask,
}

/// The calls that a policy allows; all others are refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct CallList {
    /// Families, by name.
    pub allow: BTreeSet<String>,
    /// What becomes of all others.
    pub otherwise: Otherwise,
}

/// Always allowed. They act on what a process holds already (its memory, its open files, its
/// clock, itself and its children), and are so frequent that to watch them would make learning
/// useless; with `execve`, by which the command itself is started.
pub const ALWAYS: [&str; 84] = [
    "arch_prctl",
    "brk",
    "clock_getres",
    "clock_gettime",
    "clock_nanosleep",
    "close",
    "close_range",
    "dup",
    "dup2",
    "dup3",
    "epoll_create",
    "epoll_create1",
    "epoll_ctl",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait",
    "execve",
    "exit",
    "exit_group",
    "fadvise64",
    "fcntl",
    "fstat",
    "futex",
    "futex_wait",
    "futex_waitv",
    "futex_wake",
    "get_robust_list",
    "getcpu",
    "getegid",
    "geteuid",
    "getgid",
    "getgroups",
    "getpgid",
    "getpgrp",
    "getpid",
    "getppid",
    "getrandom",
    "getresgid",
    "getresuid",
    "getsid",
    "gettid",
    "gettimeofday",
    "getuid",
    "lseek",
    "madvise",
    "membarrier",
    "mincore",
    "mmap",
    "mprotect",
    "mremap",
    "msync",
    "munmap",
    "nanosleep",
    "pause",
    "poll",
    "ppoll",
    "pread64",
    "preadv",
    "preadv2",
    "pselect6",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "read",
    "readv",
    "restart_syscall",
    "riscv_flush_icache",
    "rseq",
    "rt_sigaction",
    "rt_sigpending",
    "rt_sigprocmask",
    "rt_sigreturn",
    "rt_sigsuspend",
    "rt_sigtimedwait",
    "sched_yield",
    "select",
    "set_robust_list",
    "set_tid_address",
    "sigaltstack",
    "time",
    "wait4",
    "waitid",
    "write",
    "writev",
];

/// Calls that do the same; the first is the name of the family.
const FAMILIES: [&[&str]; 36] = [
    &["openat", "open", "creat", "openat2"],
    &["newfstatat", "stat", "lstat", "statx"],
    &["faccessat", "access", "faccessat2"],
    &["readlinkat", "readlink"],
    &["mkdirat", "mkdir"],
    &["mknodat", "mknod"],
    &["unlinkat", "unlink", "rmdir"],
    &["symlinkat", "symlink"],
    &["linkat", "link"],
    &["renameat2", "rename", "renameat"],
    &["fchmodat", "chmod", "fchmod", "fchmodat2"],
    &["fchownat", "chown", "lchown", "fchown"],
    &["utimensat", "utime", "utimes", "futimesat"],
    &["truncate", "ftruncate"],
    &["statfs", "fstatfs"],
    &["fsync", "fdatasync", "sync_file_range", "syncfs", "sync"],
    &["getdents64", "getdents"],
    &["chdir", "fchdir"],
    &["pipe2", "pipe"],
    // `clone3` is answered with ENOSYS, so that `clone` is called, whose flags can be seen.
    &["clone", "fork", "vfork", "clone3"],
    &["eventfd2", "eventfd"],
    &["signalfd4", "signalfd"],
    &["inotify_init1", "inotify_init"],
    &["inotify_add_watch", "inotify_rm_watch"],
    &["accept4", "accept"],
    &["sendmsg", "sendto", "sendmmsg"],
    &["recvmsg", "recvfrom", "recvmmsg"],
    &["getsockname", "getpeername"],
    &["prlimit64", "getrlimit", "setrlimit", "ugetrlimit"],
    &["timer_create", "timer_settime", "timer_gettime", "timer_delete", "timer_getoverrun"],
    &["timerfd_create", "timerfd_settime", "timerfd_gettime"],
    &["setitimer", "getitimer", "alarm"],
    &["kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"],
    &["sendfile", "splice", "tee", "vmsplice", "copy_file_range"],
    &["semget", "semop", "semtimedop", "semctl"],
    &["shmget", "shmat", "shmctl", "shmdt"],
];

/// The name under which a call is learnt and listed: its family's.
pub fn family(call: &str) -> &str {
    let family = FAMILIES.iter().find(|family| family.contains(&call));
    family.map_or(call, |family| family[0])
}

/// The calls that a name on a list stands for.
pub fn members(name: &str) -> Vec<&str> {
    match FAMILIES.iter().find(|family| family.contains(&name)) {
        Some(family) => family.to_vec(),
        None => vec![name],
    }
}

/// Whether a call is allowed under every list.
pub fn is_always(call: &str) -> bool {
    ALWAYS.binary_search(&call).is_ok()
}

/// What a text that is to name a call is instead, if it names none of any architecture.
pub fn unknown(text: &str) -> Option<String> {
    if names::all().any(|name| name == text) {
        return None;
    }
    let known: Vec<&str> = names::all().collect();
    Some(format!("there is no system call {text:?}{}", suggest::tail(nearest(text, &known))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted_and_families_do_not_overlap() {
        assert!(ALWAYS.is_sorted());
        let all: Vec<&str> = FAMILIES.iter().flat_map(|family| family.iter().copied()).collect();
        let once: BTreeSet<&str> = all.iter().copied().collect();
        assert_eq!(all.len(), once.len());
        for name in all {
            assert!(!is_always(name), "{name} needs no family: it is always allowed");
        }
    }

    #[test]
    fn a_name_stands_for_what_does_the_same() {
        assert_eq!(family("open"), "openat");
        assert_eq!(family("openat"), "openat");
        assert_eq!(family("ptrace"), "ptrace");
        assert!(members("unlinkat").contains(&"rmdir"));
        assert_eq!(members("ptrace"), ["ptrace"]);
    }

    #[test]
    fn only_calls_that_there_are_somewhere_can_be_named() {
        let all: Vec<&str> = names::all().collect();
        assert!(all.is_sorted());
        let listed = FAMILIES.iter().copied().flatten().chain(&ALWAYS);
        for name in listed.copied().chain(syscalls::Sysno::iter().map(|call| call.name())) {
            assert_eq!(unknown(name), None);
        }
        let said = |name| unknown(name).unwrap_or_default();
        assert_eq!(said("mkdri"), "there is no system call \"mkdri\"; the nearest is `mkdir`");
        assert_eq!(
            said("open at\n"),
            "there is no system call \"open at\\n\"; the nearest is `open`"
        );
        assert_eq!(said(""), "there is no system call \"\"");
    }
}
