//! The kernel calls that a launch of the namespace tier is made of, one thin function each, for the
//! floor program.

use super::check;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

const OPEN_TREE_CLONE: libc::c_uint = 1;
const OPEN_TREE_CLOEXEC: libc::c_uint = libc::O_CLOEXEC as libc::c_uint;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 4;
/// Read-only, for [`bind`].
pub const READ_ONLY: u64 = 1;
/// No set-user-ID programs, for [`bind`].
pub const NO_SUID: u64 = 2;

fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    let fd = check(result)?;
    // SAFETY: every caller passes a call that answers with a fresh descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// `clone3` with every namespace there is: like `fork`, the child gets `None`.
///
/// # Errors
/// What `clone3` answered.
pub fn clone_into_namespaces() -> io::Result<Option<i32>> {
    let flags = CLONE_NEWUSER
        | CLONE_NEWNS
        | CLONE_NEWPID
        | CLONE_NEWNET
        | CLONE_NEWIPC
        | CLONE_NEWUTS
        | CLONE_NEWCGROUP;
    // SAFETY: all-zero is a valid clone_args (no stack of its own: a copy of this one, as in fork).
    // The caller is the single-threaded floor program, whose copied memory is consistent.
    let pid = unsafe {
        let mut args: libc::clone_args = std::mem::zeroed();
        args.flags = flags as u64;
        args.exit_signal = libc::SIGCHLD as u64;
        check(libc::syscall(libc::SYS_clone3, &raw const args, size_of_val(&args)))?
    };
    Ok((pid != 0).then_some(pid as i32))
}

/// Makes every mount of this namespace private.
///
/// # Errors
/// What `mount` answered.
pub fn make_private() -> io::Result<()> {
    let flags = libc::MS_REC | libc::MS_PRIVATE;
    let (root, null) = (c"/".as_ptr(), std::ptr::null());
    // SAFETY: the target is NUL-terminated; the rest may be null for a change of propagation.
    check(unsafe { libc::mount(null, root, null, flags, null.cast()) }.into()).map(drop)
}

/// Mounts a new file system of `kind` at `at`.
///
/// # Errors
/// What the failing call answered.
pub fn new_file_system(kind: &CStr, at: &CStr) -> io::Result<()> {
    // SAFETY: all strings are NUL-terminated, null where the command wants none; 1 is *_CLOEXEC.
    unsafe {
        let context = owned(libc::syscall(libc::SYS_fsopen, kind.as_ptr(), 1))?;
        let (fd, null) = (context.as_raw_fd(), std::ptr::null::<u8>());
        check(libc::syscall(libc::SYS_fsconfig, fd, FSCONFIG_CMD_CREATE, null, null, 0))?;
        let mount = owned(libc::syscall(libc::SYS_fsmount, fd, 1, NO_SUID))?;
        attach(&mount, at)
    }
}

/// Mounts the tree at `source` again at `at`, recursively, with `attributes`.
///
/// # Errors
/// What the failing call answered.
pub fn bind(source: &CStr, at: &CStr, attributes: u64) -> io::Result<()> {
    #[repr(C)]
    struct Attr {
        set: u64,
        clear: u64,
        propagation: u64,
        userns: u64,
    }
    let flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | libc::AT_RECURSIVE as libc::c_uint;
    // SAFETY: strings are NUL-terminated; `attr` is a mount_attr of the size given.
    unsafe {
        let path = source.as_ptr();
        let tree = owned(libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path, flags))?;
        if attributes != 0 {
            let attr = Attr { set: attributes, clear: 0, propagation: 0, userns: 0 };
            let flags = libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
            let (fd, empty, size) = (tree.as_raw_fd(), c"".as_ptr(), size_of::<Attr>());
            let attr = &raw const attr;
            check(libc::syscall(libc::SYS_mount_setattr, fd, empty, flags, attr, size))?;
        }
        attach(&tree, at)
    }
}

fn attach(mount: &OwnedFd, at: &CStr) -> io::Result<()> {
    let (fd, to) = (mount.as_raw_fd(), libc::AT_FDCWD);
    let (empty, path) = (c"".as_ptr(), at.as_ptr());
    // SAFETY: both strings are NUL-terminated.
    check(unsafe {
        libc::syscall(libc::SYS_move_mount, fd, empty, to, path, MOVE_MOUNT_F_EMPTY_PATH)
    })
    .map(drop)
}

/// Makes the current directory the root, and drops the old root.
///
/// # Errors
/// What the failing call answered.
pub fn pivot_here() -> io::Result<()> {
    let here = c".".as_ptr();
    // SAFETY: the strings are NUL-terminated.
    unsafe {
        check(libc::syscall(libc::SYS_pivot_root, here, here))?;
        check(libc::umount2(here, libc::MNT_DETACH).into())?;
        check(libc::chdir(c"/".as_ptr()).into()).map(drop)
    }
}

/// Brings the loopback interface of this network namespace up.
///
/// # Errors
/// What the failing call answered.
pub fn loopback_up() -> io::Result<()> {
    // SAFETY: all-zero is a valid ifreq; `lo` and its NUL fit the name; flags is the active member.
    unsafe {
        let family = libc::AF_INET;
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
        let socket = owned(libc::socket(family, kind, 0).into())?;
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        check(libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request).into())
            .map(drop)
    }
}

/// Gives up every capability, and new privileges for good.
///
/// # Errors
/// What the failing call answered.
pub fn drop_privileges() -> io::Result<()> {
    let header: [u32; 2] = [0x2008_0522, 0]; // _LINUX_CAPABILITY_VERSION_3, this process
    let nothing = [0u32; 6];
    // SAFETY: header and data have the layout of version 3.
    unsafe {
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).into())?;
        check(libc::syscall(libc::SYS_capset, header.as_ptr(), nothing.as_ptr())).map(drop)
    }
}

/// Confines this process by Landlock to reading below `read` and anything below `write`.
///
/// # Errors
/// What the failing call answered.
pub fn landlock(read: &[&CStr], write: &[&CStr]) -> io::Result<()> {
    const ALL: u64 = (1 << 13) - 1; // the file rights of ABI 1
    const READING: u64 = 1 | 4 | 8; // execute, read file, read directory
    // SAFETY: each structure has the layout of the kernel's, and each size is its own.
    unsafe {
        let ruleset: [u64; 1] = [ALL];
        let create = libc::SYS_landlock_create_ruleset;
        let fd = owned(libc::syscall(create, ruleset.as_ptr(), 8usize, 0))?;
        let rules = read.iter().map(|p| (p, READING)).chain(write.iter().map(|p| (p, ALL)));
        for (path, rights) in rules {
            let at = owned(libc::open(path.as_ptr(), libc::O_PATH | libc::O_CLOEXEC).into())?;
            let mut rule = [0u8; 12]; // struct landlock_path_beneath_attr is packed
            rule[..8].copy_from_slice(&rights.to_ne_bytes());
            rule[8..].copy_from_slice(&at.as_raw_fd().to_ne_bytes());
            let add = libc::SYS_landlock_add_rule;
            check(libc::syscall(add, fd.as_raw_fd(), 1, rule.as_ptr(), 0))?;
        }
        check(libc::syscall(libc::SYS_landlock_restrict_self, fd.as_raw_fd(), 0)).map(drop)
    }
}

/// Installs a filter of some `length` instructions that allows everything but number 0xffff: the
/// size is what costs, in the copy and in the check for each system call number.
///
/// # Errors
/// What `seccomp` answered.
pub fn seccomp(length: usize) -> io::Result<()> {
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = vec![step(0x20, 0, 0, 0)]; // load the number
    for number in 0..length.saturating_sub(3) {
        filter.push(step(0x15, 0, 0, 0xf000 + number as u32)); // compare, go on either way
    }
    filter.push(step(0x15, 0, 1, 0xffff));
    filter.push(step(0x06, 0, 0, 0x0005_0001)); // refuse with EPERM
    filter.push(step(0x06, 0, 0, 0x7fff_0000)); // allow
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(io::Error::other)?,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the program points at `filter`, which lives until the call is over.
    check(unsafe { libc::syscall(libc::SYS_seccomp, 1, 0, &raw const program) }).map(drop)
}

/// Takes this process into new namespaces, by `CLONE_NEW…` flags.
///
/// # Errors
/// What `unshare` answered.
pub fn unshare(flags: i32) -> io::Result<()> {
    // SAFETY: a plain call on an integer.
    check(unsafe { libc::unshare(flags) }.into()).map(drop)
}

use libc::{CLONE_NEWCGROUP, CLONE_NEWIPC, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUTS};
pub use libc::{CLONE_NEWNET, CLONE_NEWUSER};
