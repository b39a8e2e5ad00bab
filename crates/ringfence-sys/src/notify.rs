//! Supervised system calls (seccomp_unotify(2)): told of, answered, and given descriptors.

use crate::fd::owned;
use crate::taken::Taken;
use crate::{Errno, Result, Sysno, sys};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// `SECCOMP_IOCTL_NOTIF_RECV`, `_SEND`, `_ID_VALID`, `_ADDFD`.
const RECEIVE: u32 = 0xC050_2100;
const SEND: u32 = 0xC018_2101;
const ID_VALID: u32 = 0x4008_2102;
const ADD_DESCRIPTOR: u32 = 0x4018_2103;
/// `SECCOMP_IOCTL_NOTIF_SET_FLAGS` and `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP` (Linux 6.6).
const SET_FLAGS: u32 = 0x4008_2104;
const SYNC_WAKE_UP: u64 = 1;
/// `SECCOMP_USER_NOTIF_FLAG_CONTINUE`.
const CONTINUE: u32 = 1;
/// `SECCOMP_ADDFD_FLAG_SETFD`, `SECCOMP_ADDFD_FLAG_SEND` (Linux 5.14).
const SET_NUMBER: u32 = 1;
const AS_RESULT: u32 = 2;

/// A call that waits for an answer; as `struct seccomp_notif`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notification {
    /// Stands for the call while it waits.
    pub id: u64,
    /// The calling thread, in the receiver's PID namespace.
    pub thread: u32,
    flags: u32,
    /// The number of the call.
    pub call: i32,
    architecture: u32,
    instruction: u64,
    /// Its arguments.
    pub arguments: [u64; 6],
}

/// `struct seccomp_notif_resp`.
#[repr(C)]
struct Answer {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

/// `struct seccomp_notif_addfd`.
#[repr(C)]
struct AddDescriptor {
    id: u64,
    flags: u32,
    source: u32,
    target: u32,
    target_flags: u32,
}

/// Reads a caller's memory, as the caller could (process_vm_readv(2)).
///
/// # Errors
/// `EFAULT` where it could not, `ESRCH` when it is gone.
pub fn read_memory(thread: u32, at: u64, bytes: &mut [u8]) -> Result<()> {
    let (address, length) = (bytes.as_mut_ptr(), bytes.len());
    let local = libc::iovec { iov_base: address.cast(), iov_len: length };
    // SAFETY: `local` describes `bytes`, which is writable.
    unsafe { memory(Sysno::process_vm_readv, thread, &local, at) }
}

/// Writes a caller's memory, where the caller could (process_vm_writev(2)): what it may only read stays
/// as it is.
///
/// # Errors
/// As [`read_memory`].
pub fn write_memory(thread: u32, at: u64, bytes: &[u8]) -> Result<()> {
    let (address, length) = (bytes.as_ptr().cast_mut(), bytes.len());
    let local = libc::iovec { iov_base: address.cast(), iov_len: length };
    // SAFETY: `local` describes `bytes`, which the call reads.
    unsafe { memory(Sysno::process_vm_writev, thread, &local, at) }
}

/// # Safety
/// `local` describes memory that the call may read or write, as it does.
unsafe fn memory(call: Sysno, thread: u32, local: &libc::iovec, at: u64) -> Result<()> {
    if local.iov_len == 0 {
        return Ok(());
    }
    let far = libc::iovec { iov_base: at as *mut libc::c_void, iov_len: local.iov_len };
    let (near, far) = (std::ptr::from_ref(local), &raw const far);
    // SAFETY: by the caller's word; the far address is of the other process.
    let moved = unsafe { syscalls::raw_syscall!(call, thread, near, 1, far, 1, 0) } as isize;
    match moved {
        ..0 => Err(Errno::new(-moved as i32)),
        moved if moved as usize == local.iov_len => Ok(()),
        _ => Err(Errno::EFAULT),
    }
}

/// Who listens is woken on the processor of who calls, which waits meanwhile anyway: another one
/// need not be woken. Older kernels do not know it.
pub fn wake_in_place(listener: BorrowedFd<'_>) {
    // SAFETY: takes numbers only.
    let _ = unsafe { sys!(ioctl, listener.as_raw_fd(), SET_FLAGS, SYNC_WAKE_UP) };
}

/// Takes one waiting call.
///
/// # Errors
/// `ENOENT` when its thread was killed meanwhile.
pub fn receive(listener: BorrowedFd<'_>) -> Result<Notification> {
    let mut notification = Notification::default();
    // SAFETY: the operation fills the zeroed structure, whose layout and size it expects.
    unsafe { sys!(ioctl, listener.as_raw_fd(), RECEIVE, &raw mut notification) }?;
    Ok(notification)
}

/// Whether the call still waits: if so, what was read of its process meanwhile was its own, not
/// that of another with a reused number.
pub fn waits(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the operation reads the eight bytes of `id`.
    unsafe { sys!(ioctl, listener.as_raw_fd(), ID_VALID, &raw const id) }.is_ok()
}

fn answer(listener: BorrowedFd<'_>, answer: &Answer) -> Result<()> {
    // SAFETY: the operation reads the structure, whose layout and size it expects.
    unsafe { sys!(ioctl, listener.as_raw_fd(), SEND, std::ptr::from_ref(answer)) }.map(drop)
}

/// Lets the kernel carry the call out as it was made. What it does then can differ from what was
/// looked at: other threads may have changed the memory and the descriptors that it names.
///
/// # Errors
/// `ENOENT` when it waits no more.
pub fn go_on(listener: BorrowedFd<'_>, id: u64) -> Result<()> {
    answer(listener, &Answer { id, value: 0, error: 0, flags: CONTINUE })
}

/// Lets the kernel carry the call out if it may ([`go_on`]), and refuses it with `EPERM` else.
///
/// # Errors
/// `ENOENT` when it waits no more.
pub fn go_on_if(may: bool, listener: BorrowedFd<'_>, id: u64) -> Result<()> {
    match may {
        true => go_on(listener, id),
        false => finish(listener, id, Err(Errno::EPERM)),
    }
}

/// Ends the call with success, or with an error.
///
/// # Errors
/// `ENOENT` when it waits no more.
pub fn finish(listener: BorrowedFd<'_>, id: u64, result: Result<()>) -> Result<()> {
    finish_with(listener, id, result.map(|()| 0))
}

/// Ends the call with what it returns, or with an error.
///
/// # Errors
/// `ENOENT` when it waits no more.
pub fn finish_with(listener: BorrowedFd<'_>, id: u64, result: Result<i32>) -> Result<()> {
    let error = result.err().map_or(0, |errno| -errno.into_raw());
    let value = i64::from(result.unwrap_or_default());
    answer(listener, &Answer { id, value, error, flags: 0 })
}

/// Puts a copy of a descriptor into the caller's process under a number, in place of what is
/// there (Linux 5.9).
///
/// # Errors
/// `ENOENT` when the call waits no more, `EBADF` for a number beyond its limit.
pub fn place(
    listener: BorrowedFd<'_>,
    id: u64,
    source: BorrowedFd<'_>,
    target: RawFd,
    close_on_exec: bool,
) -> Result<()> {
    let request = AddDescriptor {
        id,
        flags: SET_NUMBER,
        source: source.as_raw_fd() as u32,
        target: target as u32,
        target_flags: if close_on_exec { libc::O_CLOEXEC as u32 } else { 0 },
    };
    // SAFETY: the operation reads the structure, whose layout and size it expects.
    unsafe { sys!(ioctl, listener.as_raw_fd(), ADD_DESCRIPTOR, &raw const request) }.map(drop)
}

/// Ends a call that opens something with a copy of a descriptor, close-on-exec (Linux 5.14).
///
/// # Errors
/// `ENOENT` when the call waits no more, `EINVAL` on an older kernel, `EMFILE`.
pub fn give(listener: BorrowedFd<'_>, id: u64, source: BorrowedFd<'_>) -> Result<()> {
    let request = AddDescriptor {
        id,
        flags: AS_RESULT,
        source: source.as_raw_fd() as u32,
        target: 0,
        target_flags: libc::O_CLOEXEC as u32,
    };
    // SAFETY: the operation reads the structure, whose layout and size it expects.
    unsafe { sys!(ioctl, listener.as_raw_fd(), ADD_DESCRIPTOR, &raw const request) }.map(drop)
}

/// A copy of another process's descriptor (`pidfd_getfd(2)`, Linux 5.6).
///
/// # Errors
/// `EBADF`, `ESRCH`; `EPERM` where ptrace(2) of it is not allowed; `EAGAIN` where nothing could close it.
pub fn copy_of(pidfd: BorrowedFd<'_>, descriptor: RawFd) -> Result<Taken> {
    if descriptor < 0 {
        return Err(Errno::EBADF);
    }
    Taken::can_be()?;
    // SAFETY: takes numbers only.
    unsafe { sys!(pidfd_getfd, pidfd.as_raw_fd(), descriptor, 0) }.map(owned).map(Taken::from)
}
