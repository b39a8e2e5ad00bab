//! A thin typed layer over the Linux calls that a sandbox is made of.
//!
//! Modules are named for kernel objects. Every function is one call or one short, fixed
//! sequence of calls, takes and returns owned or borrowed descriptors, and fails with the
//! kernel's own [`Errno`]; meaning is given to errors by the callers, who know the rule
//! behind each call. All `unsafe` of ringfence is in this crate and in `ringfence-start`, which
//! does its work before libc is up.

pub mod caller;
pub mod caps;
pub mod datagram;
pub mod diag;
pub mod directory;
pub mod epoll;
pub mod fd;
pub mod file;
pub mod guest;
pub mod identity;
pub mod image;
pub mod inotify;
pub mod kvm;
pub mod landlock;
pub mod limit;
pub mod listener;
pub mod lock;
pub mod memory;
mod message;
pub mod mount;
pub mod netlink;
pub mod nft;
pub mod notify;
pub mod pipe;
pub mod process;
pub mod processors;
#[cfg(target_arch = "x86_64")]
pub mod ptrace;
#[cfg(target_arch = "x86_64")]
pub mod restore;
pub mod route;
pub mod say;
pub mod seccomp;
pub mod signal;
pub mod socket;
pub mod standin;
pub mod stream;
pub mod taken;
pub mod terminal;
pub mod unix;
pub mod watch;
pub mod words;

pub use syscalls::{Errno, Sysno};

/// Result of one kernel call.
pub type Result<T> = std::result::Result<T, Errno>;

/// The operating system's text for an error, without the number.
pub fn describe(errno: Errno) -> String {
    let text = std::io::Error::from_raw_os_error(errno.into_raw()).to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

pub(crate) fn cvt(result: std::result::Result<usize, Errno>) -> Result<usize> {
    result
}

/// Makes one system call, with arguments cast to machine words.
macro_rules! sys {
    ($nr:ident $(, $arg:expr)* $(,)?) => {
        $crate::cvt(syscalls::syscall!(syscalls::Sysno::$nr $(, $arg)*))
    };
}
pub(crate) use sys;
