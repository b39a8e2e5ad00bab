//! Supervised calls (seccomp_unotify(2)): a caller waits while its supervisor looks at the call
//! and does it in its place, answers it, or lets it go on.
//!
//! What a pointer argument points to may change after it was read. A supervisor therefore reads
//! it once, acts on what it read by itself, and lets nothing go on whose permission depends on
//! such memory.

use crate::{Errno, Result, sys};
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// `struct seccomp_notif`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct RawNotification {
    id: u64,
    pid: u32,
    flags: u32,
    number: i32,
    architecture: u32,
    instruction_pointer: u64,
    arguments: [u64; 6],
}

/// `struct seccomp_notif_resp`.
#[repr(C)]
struct RawResponse {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

/// `struct seccomp_notif_addfd`.
#[repr(C)]
struct RawAddFd {
    id: u64,
    flags: u32,
    source: u32,
    target: u32,
    target_flags: u32,
}

/// `SECCOMP_IOCTL_NOTIF_*`: direction, size, '!', number.
const RECEIVE: u32 = 0xC050_2100;
const SEND: u32 = 0xC018_2101;
const ID_VALID: u32 = 0x4008_2102;
const ADD_FD: u32 = 0x4018_2103;

const FLAG_CONTINUE: u32 = 1;
const ADD_FD_SET: u32 = 1;

/// A call that waits for its supervisor.
#[derive(Clone, Copy, Debug)]
pub struct Notification {
    /// Stands for this call only.
    pub id: u64,
    /// The caller's thread, as seen from the supervisor's PID namespace.
    pub pid: i32,
    /// The call's number.
    pub number: i32,
    /// Its arguments.
    pub arguments: [u64; 6],
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response {
    /// It was done: this is its result.
    Value(i64),
    /// It fails.
    Fail(Errno),
    /// The kernel carries it out as the caller made it, under whatever its memory says by then.
    GoOn,
}

/// The supervisor's end.
#[derive(Debug)]
pub struct Listener(OwnedFd);

impl Listener {
    /// Of the descriptor that installing the filter returned.
    pub fn new(descriptor: OwnedFd) -> Listener {
        Listener(descriptor)
    }

    /// The descriptor, for polling: readable when a call waits, hung up when no process has the
    /// filter any more.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Takes the next call; waits for one.
    ///
    /// # Errors
    /// `ENOENT` when the caller was killed meanwhile.
    pub fn receive(&self) -> Result<Notification> {
        let mut raw = RawNotification::default();
        // SAFETY: `raw` is zeroed, as the operation demands, and of its size.
        unsafe { sys!(ioctl, self.0.as_raw_fd(), RECEIVE, &raw mut raw) }?;
        Ok(Notification {
            id: raw.id,
            pid: raw.pid as i32,
            number: raw.number,
            arguments: raw.arguments,
        })
    }

    /// Whether the call still waits: then `/proc/PID` is its caller's, and no reused number's.
    pub fn valid(&self, notification: &Notification) -> bool {
        let id = notification.id;
        // SAFETY: the operation reads the eight bytes of `id`.
        unsafe { sys!(ioctl, self.0.as_raw_fd(), ID_VALID, &raw const id) }.is_ok()
    }

    /// Answers.
    ///
    /// # Errors
    /// `ENOENT` when the caller was killed meanwhile.
    pub fn respond(&self, notification: &Notification, response: Response) -> Result<()> {
        let (value, error, flags) = match response {
            Response::Value(value) => (value, 0, 0),
            Response::Fail(errno) => (0, -errno.into_raw(), 0),
            Response::GoOn => (0, 0, FLAG_CONTINUE),
        };
        let raw = RawResponse { id: notification.id, value, error, flags };
        // SAFETY: the operation reads `raw`, which has its size.
        unsafe { sys!(ioctl, self.0.as_raw_fd(), SEND, &raw const raw) }.map(drop)
    }

    /// Puts a copy of a descriptor at a number of the caller's.
    ///
    /// # Errors
    /// `EBADF`, `EMFILE`; `ENOENT` when the caller was killed meanwhile.
    pub fn add_fd(
        &self,
        notification: &Notification,
        source: BorrowedFd<'_>,
        target: i32,
        close_on_exec: bool,
    ) -> Result<()> {
        let raw = RawAddFd {
            id: notification.id,
            flags: ADD_FD_SET,
            source: source.as_raw_fd() as u32,
            target: target as u32,
            target_flags: if close_on_exec { libc::O_CLOEXEC as u32 } else { 0 },
        };
        // SAFETY: the operation reads `raw`, which has its size.
        unsafe { sys!(ioctl, self.0.as_raw_fd(), ADD_FD, &raw const raw) }.map(drop)
    }

    /// Reads memory of the caller's; short at the end of what is mapped.
    ///
    /// # Errors
    /// `EFAULT`; `ESRCH` and `EPERM` when the caller is gone or out of reach.
    pub fn read_memory(
        &self,
        notification: &Notification,
        address: u64,
        into: &mut [u8],
    ) -> Result<usize> {
        let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
        let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: into.len() };
        // SAFETY: `local` describes `into`; the remote address is the other process's business.
        let count = unsafe {
            sys!(process_vm_readv, notification.pid, &raw const local, 1, &raw const remote, 1, 0)
        }?;
        // What was read may be of a process that got the number later.
        if self.valid(notification) { Ok(count) } else { Err(Errno::ENOENT) }
    }

    /// Reads a path argument of the caller's.
    ///
    /// # Errors
    /// `EFAULT`, `ENAMETOOLONG`.
    pub fn read_path(&self, notification: &Notification, address: u64) -> Result<CString> {
        let mut bytes = Vec::new();
        let mut at = address;
        while bytes.len() <= libc::PATH_MAX as usize {
            // Not across a page: the next one may not be mapped.
            let mut page = vec![0u8; 4096 - (at as usize % 4096)];
            let count = self.read_memory(notification, at, &mut page)?;
            if let Some(end) = page[..count].iter().position(|&byte| byte == 0) {
                bytes.extend_from_slice(&page[..end]);
                return CString::new(bytes).map_err(|_| Errno::EFAULT);
            }
            if count == 0 {
                return Err(Errno::EFAULT);
            }
            bytes.extend_from_slice(&page[..count]);
            at += count as u64;
        }
        Err(Errno::ENAMETOOLONG)
    }
}
