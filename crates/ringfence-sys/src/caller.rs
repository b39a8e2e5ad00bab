//! The process behind a supervised call: its memory, and whether it still waits.
//!
//! What a pointer argument points to may change after it was read. A supervisor reads it once
//! and acts on what it read.

use crate::notify::{Notification, copy_of, waits};
use crate::taken::Taken;
use crate::{Errno, Result, sys};
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Whether a call waits on a listener now; nothing when no process has its filter any more.
pub fn waiting(listener: BorrowedFd<'_>) -> Option<bool> {
    let mut entry = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let (entry_at, time_at) = (&raw mut entry, &raw const time);
    // SAFETY: the pointers are to one entry and a timespec; no mask is given.
    let polled = unsafe { sys!(ppoll, entry_at, 1, time_at, std::ptr::null::<u8>(), 0) };
    match polled {
        Ok(_) if entry.revents & libc::POLLIN != 0 => Some(true),
        Ok(_) if entry.revents == 0 => Some(false),
        _ => None,
    }
}

/// The process that a call's thread belongs to.
pub fn process(call: &Notification) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", call.thread)).ok()?;
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    process.trim().parse().ok()
}

/// A copy of the caller's descriptor.
///
/// # Errors
/// `EBADF`; `EPERM` when the caller is out of reach; `ESRCH` or `ENOENT` when it waits no more, and
/// what was copied may be another process's.
pub fn descriptor(listener: BorrowedFd<'_>, call: &Notification, number: i32) -> Result<Taken> {
    // The thread's own (Linux 6.9): a process whose first thread has ended has no descriptors by that one.
    let pidfd = match crate::process::thread_pidfd(call.thread as i32) {
        Err(Errno::EINVAL) => crate::process::pidfd(process(call).ok_or(Errno::ESRCH)?)?,
        pidfd => pidfd?,
    };
    let copy = copy_of(pidfd.as_fd(), number)?;
    if waits(listener, call.id) { Ok(copy) } else { Err(Errno::ENOENT) }
}

/// Reads memory of the caller's; short at the end of what is mapped.
///
/// # Errors
/// `EFAULT`; `EPERM` when the caller is out of reach; `ENOENT` when it waits no more, and what
/// was read may be another process's.
pub fn read_memory(
    listener: BorrowedFd<'_>,
    call: &Notification,
    address: u64,
    into: &mut [u8],
) -> Result<usize> {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: into.len() };
    let (local_at, remote_at) = (&raw const local, &raw const remote);
    // SAFETY: `local` describes `into`; the remote address is the other process's business.
    let count = unsafe { sys!(process_vm_readv, call.thread, local_at, 1, remote_at, 1, 0) }?;
    if waits(listener, call.id) { Ok(count) } else { Err(Errno::ENOENT) }
}

/// Memory of a caller's, read by pages, of which the last one is kept: the texts of a list lie
/// beside each other.
struct Pages {
    thread: u32,
    at: u64,
    bytes: Vec<u8>,
}

impl Pages {
    /// What is at an address, to the end of its page.
    fn rest(&mut self, address: u64) -> Result<&[u8]> {
        const PAGE: u64 = crate::memory::PAGE as u64;
        let offset = address.wrapping_sub(self.at) as usize;
        if offset < self.bytes.len() {
            return Ok(&self.bytes[offset..]);
        }
        self.bytes.resize((PAGE - address % PAGE) as usize, 0);
        self.at = address;
        let length = self.bytes.len();
        let local = libc::iovec { iov_base: self.bytes.as_mut_ptr().cast(), iov_len: length };
        let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: length };
        let (local_at, remote_at) = (&raw const local, &raw const remote);
        // SAFETY: `local` describes `bytes`; the remote address is the other process's business.
        let count = unsafe { sys!(process_vm_readv, self.thread, local_at, 1, remote_at, 1, 0) };
        self.bytes.truncate(*count.as_ref().unwrap_or(&0));
        count?;
        if self.bytes.is_empty() { Err(Errno::EFAULT) } else { Ok(&self.bytes) }
    }
}

/// Reads a list of texts that ends with a null pointer, as `execve(2)` takes them: as many as
/// there are within `most` bytes.
///
/// # Errors
/// As [`read_memory`].
pub fn read_list(
    listener: BorrowedFd<'_>,
    call: &Notification,
    address: u64,
    most: usize,
) -> Result<Vec<Vec<u8>>> {
    let mut lists = Pages { thread: call.thread, at: 0, bytes: Vec::new() };
    let mut texts = Pages { thread: call.thread, at: 0, bytes: Vec::new() };
    let (mut all, mut taken, mut at) = (Vec::new(), 0, address);
    while taken < most && address != 0 {
        let Some(pointer) = lists.rest(at)?.first_chunk::<8>() else { return Err(Errno::EFAULT) };
        let mut text_at = u64::from_ne_bytes(*pointer);
        if text_at == 0 {
            break;
        }
        let mut text = Vec::new();
        loop {
            let rest = texts.rest(text_at)?;
            let end = rest.iter().position(|&byte| byte == 0);
            let part = &rest[..end.unwrap_or(rest.len()).min(most - taken)];
            text.extend_from_slice(part);
            taken += part.len();
            text_at += part.len() as u64;
            if end.is_some() || taken >= most {
                break;
            }
        }
        all.push(text);
        taken += 1;
        at += 8;
    }
    if waits(listener, call.id) { Ok(all) } else { Err(Errno::ENOENT) }
}

/// What is read at first of a text.
const SHORT: usize = 256;

/// Reads a text argument of the caller's.
///
/// # Errors
/// As [`read_memory`]; `ENAMETOOLONG`.
pub fn read_text(listener: BorrowedFd<'_>, call: &Notification, address: u64) -> Result<CString> {
    let mut bytes = Vec::new();
    let mut at = address;
    while bytes.len() <= libc::PATH_MAX as usize {
        // Not across a page: the next one may not be mapped. Most texts are short.
        let mut page = [0; 4096];
        let most = if bytes.is_empty() { SHORT } else { page.len() };
        let page = &mut page[..most.min(4096 - (at as usize % 4096))];
        let count = read_memory(listener, call, at, page)?;
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
