//! System calls made only to see whether they are refused.

use super::check;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Makes system call `number` with small arguments, and answers what the kernel did.
///
/// # Errors
/// The kernel's refusal.
pub fn call(number: i64, args: [u16; 4]) -> io::Result<i64> {
    let [a, b, c, d] = args.map(usize::from);
    // SAFETY: no argument can be the address of anything: all are below 65,536, under the lowest
    // address that the kernel lets a process map, so that a pointer among them is only ever EFAULT.
    check(unsafe { libc::syscall(number, a, b, c, d, 0usize, 0usize) })
}

/// Makes a socket of this family, type and protocol.
///
/// # Errors
/// The kernel's refusal.
pub fn socket(family: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: a plain call on integers that answers with a fresh descriptor.
    unsafe {
        let fd = check(libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol).into())?;
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
}

/// Pushes one byte into the input queue of the terminal `fd` (TIOCSTI).
///
/// # Errors
/// The kernel's refusal.
pub fn push_terminal_input(fd: RawFd, high_bits: u64) -> io::Result<()> {
    let byte = b'\n';
    let request = libc::TIOCSTI | high_bits;
    // SAFETY: `byte` is a valid byte for the length of the call.
    check(unsafe { libc::ioctl(fd, request, &raw const byte) }.into()).map(drop)
}

/// Opens a new pseudo-terminal and makes it the controlling one of a new session.
///
/// # Errors
/// What the failing call answered.
pub fn own_terminal() -> io::Result<(OwnedFd, OwnedFd)> {
    // SAFETY: `pty` has room for two descriptors, both fresh and ours; names and sizes may be null.
    unsafe {
        let mut pty = [-1; 2];
        let null = std::ptr::null_mut::<libc::c_void>();
        let (master, slave) = (&raw mut pty[0], &raw mut pty[1]);
        check(libc::openpty(master, slave, null.cast(), null.cast(), null.cast()).into())?;
        let (master, slave) = (OwnedFd::from_raw_fd(pty[0]), OwnedFd::from_raw_fd(pty[1]));
        libc::setsid();
        check(libc::ioctl(slave.as_raw_fd(), libc::TIOCSCTTY, 0).into())?;
        Ok((master, slave))
    }
}

/// Makes a device node (a `c 1 3`, `/dev/null`) at `path`.
///
/// # Errors
/// The kernel's refusal.
pub fn device_node(path: &std::ffi::CStr) -> io::Result<()> {
    let mode = libc::S_IFCHR | 0o600;
    // SAFETY: the path is NUL-terminated.
    check(unsafe { libc::mknod(path.as_ptr(), mode, libc::makedev(1, 3)) }.into()).map(drop)
}

/// `unshare` with flags that do not fit [`call`].
///
/// # Errors
/// The kernel's refusal.
pub fn unshare(flags: i32) -> io::Result<()> {
    super::mount::unshare(flags)
}

/// Opens a file by its handle, going round every path check (`open_by_handle_at`).
///
/// # Errors
/// The kernel's refusal: EPERM when refused outright, ESTALE when only the handle was wrong.
pub fn open_by_handle(mount: RawFd) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Handle {
        bytes: u32,
        kind: i32,
        data: [u8; 8],
    }
    let handle = Handle { bytes: 8, kind: 1, data: [2, 0, 0, 0, 0, 0, 0, 0] };
    // SAFETY: `handle` has the layout of a file_handle of 8 bytes.
    unsafe {
        let number = libc::SYS_open_by_handle_at;
        let fd = check(libc::syscall(number, mount, &raw const handle, libc::O_RDONLY))?;
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
}

/// Asks to trace process `pid` (PTRACE_SEIZE), and lets go again.
///
/// # Errors
/// The kernel's refusal.
pub fn trace(pid: i32) -> io::Result<()> {
    let none = 0usize;
    // SAFETY: neither request reads or writes memory of this process.
    unsafe {
        check(libc::ptrace(libc::PTRACE_SEIZE, pid, none, none))?;
        libc::ptrace(libc::PTRACE_DETACH, pid, none, none);
    }
    Ok(())
}

/// Asks whether process `pid` could be sent a signal, without sending one.
///
/// # Errors
/// The kernel's refusal.
pub fn may_signal(pid: i32) -> io::Result<()> {
    // SAFETY: signal 0 only checks.
    check(unsafe { libc::kill(pid, 0) }.into()).map(drop)
}

/// Asks for a new file system, which is mounted nowhere and goes away at once.
///
/// # Errors
/// The kernel's refusal.
pub fn new_file_system() -> io::Result<()> {
    // SAFETY: the name is NUL-terminated; the descriptor is fresh and ours.
    unsafe {
        let fd = check(libc::syscall(libc::SYS_fsopen, c"tmpfs".as_ptr(), 1))?;
        drop(OwnedFd::from_raw_fd(fd as RawFd));
    }
    Ok(())
}
