//! Supervised calls of the process tier: modes, owners, times and attributes of files.
//!
//! Landlock does not rule these calls, and without a read-only view they would reach every file
//! of the user. The launcher therefore does them in the caller's place: it opens what the caller
//! named, once; acts only when that lies in a writable tree and belongs to the user; and never
//! uses a right that the caller gave up (another owner, set-user-ID, attributes of the system but
//! for access lists, which say no more than an owner may).

use crate::plan::{Plan, Rights};
use ringfence_sys as sys;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use sys::caller::{read_memory, read_text};
use sys::fd::CWD;
use sys::notify::{self, Notification};
use sys::{Errno, Sysno};

const AT_SYMLINK_NOFOLLOW: u64 = 0x100;
const AT_EMPTY_PATH: u64 = 0x1000;
const SET_USER_ID: u32 = 0o4000;
const TYPE: u32 = 0o170_000;
const LINK: u32 = 0o120_000;
/// The kernel's limit of an attribute's value.
const LARGEST_VALUE: u64 = 64 * 1024;
const NOBODY: u32 = u32::MAX;
/// Who else may do what (acl(5)): as modes, the owner's to say, and never set-user-ID.
const ACCESS_LISTS: [&CStr; 2] = [c"system.posix_acl_access", c"system.posix_acl_default"];

/// What may be changed.
#[derive(Debug)]
pub(crate) struct Metadata {
    /// The writable trees.
    pub trees: Vec<PathBuf>,
    /// The user and the group.
    pub user: (u32, u32),
}

/// Which file a call is about.
enum Named {
    /// An open descriptor.
    Descriptor(i32),
    /// A path: directory, its address, and whether a link at its end is followed.
    Path(i32, u64, bool),
    /// The same, or the directory itself where the path is empty (`AT_EMPTY_PATH`), or is none.
    Either(i32, u64, bool),
}

/// What a call does to it.
enum Change {
    Mode(u32),
    Owner(u32, u32),
    Times(Option<[(i64, i64); 2]>),
    Attribute(CString, Vec<u8>, u32),
    NoAttribute(CString),
}

/// The two times of `utimes`, `futimesat` and `utime`, in their layouts.
#[derive(Clone, Copy)]
enum Layout {
    Nanoseconds,
    Microseconds,
    Seconds,
}

impl Metadata {
    /// Answers a call that waits.
    pub fn answer(&self, listener: BorrowedFd<'_>, call: &Notification) {
        // Gone meanwhile: nobody waits for the answer.
        let _ = notify::finish(listener, call.id, self.carry_out(listener, call));
    }

    fn carry_out(&self, listener: BorrowedFd<'_>, call: &Notification) -> sys::Result<()> {
        let number = Sysno::new(call.call as usize).ok_or(Errno::ENOSYS)?;
        let [a, b, c, d, e, _] = call.arguments;
        let here = |address| Named::Path(CWD, address, true);
        let at = |directory: u64, path, flags: u64| {
            let named = if flags & AT_EMPTY_PATH == 0 { Named::Path } else { Named::Either };
            named(directory as i32, path, flags & AT_SYMLINK_NOFOLLOW == 0)
        };
        let xattr = |name, value, size: u64, flags| {
            self.attribute(listener, call, name, value, size, flags)
        };
        let no_xattr = |name| read_text(listener, call, name).map(Change::NoAttribute);
        let times = |address, layout| times(listener, call, address, layout);
        let (named, change) = match number.name() {
            "chmod" => (here(a), Change::Mode(b as u32)),
            "fchmod" => (Named::Descriptor(a as i32), Change::Mode(b as u32)),
            "fchmodat" => (Named::Path(a as i32, b, true), Change::Mode(c as u32)),
            "fchmodat2" => (at(a, b, d), Change::Mode(c as u32)),
            "chown" => (here(a), Change::Owner(b as u32, c as u32)),
            "lchown" => (Named::Path(CWD, a, false), Change::Owner(b as u32, c as u32)),
            "fchown" => (Named::Descriptor(a as i32), Change::Owner(b as u32, c as u32)),
            "fchownat" => (at(a, b, e), Change::Owner(c as u32, d as u32)),
            "utime" => (here(a), times(b, Layout::Seconds)?),
            "utimes" => (here(a), times(b, Layout::Microseconds)?),
            "futimesat" if b == 0 => (Named::Descriptor(a as i32), times(c, Layout::Microseconds)?),
            "futimesat" => (Named::Path(a as i32, b, true), times(c, Layout::Microseconds)?),
            "utimensat" if b == 0 => (Named::Descriptor(a as i32), times(c, Layout::Nanoseconds)?),
            "utimensat" => (at(a, b, d), times(c, Layout::Nanoseconds)?),
            "setxattr" => (here(a), xattr(b, c, d, e)?),
            "lsetxattr" => (Named::Path(CWD, a, false), xattr(b, c, d, e)?),
            "fsetxattr" => (Named::Descriptor(a as i32), xattr(b, c, d, e)?),
            "removexattr" => (here(a), no_xattr(b)?),
            "lremovexattr" => (Named::Path(CWD, a, false), no_xattr(b)?),
            "fremovexattr" => (Named::Descriptor(a as i32), no_xattr(b)?),
            // Newer calls with structures of their own: libraries fall back.
            _ => return Err(Errno::ENOSYS),
        };
        let place = open(listener, call, &named)?;
        self.apply(&place, change)
    }

    fn attribute(
        &self,
        listener: BorrowedFd<'_>,
        call: &Notification,
        name: u64,
        value: u64,
        size: u64,
        flags: u64,
    ) -> sys::Result<Change> {
        if size > LARGEST_VALUE {
            return Err(Errno::E2BIG);
        }
        let name = read_text(listener, call, name)?;
        let mut bytes = vec![0; size as usize];
        if read_memory(listener, call, value, &mut bytes)? != bytes.len() {
            return Err(Errno::EFAULT);
        }
        Ok(Change::Attribute(name, bytes, flags as u32))
    }

    /// Acts on what was opened, by its descriptor: nothing is looked up again.
    fn apply(&self, place: &OwnedFd, change: Change) -> sys::Result<()> {
        let through = format!("/proc/self/fd/{}", place.as_raw_fd());
        let real = std::fs::read_link(&through).map_err(|_| Errno::EPERM)?;
        let (owner, mode) = sys::file::owner_and_mode(place.as_fd())?;
        if !self.trees.iter().any(|tree| real.starts_with(tree)) || owner != self.user.0 {
            return Err(Errno::EPERM);
        }
        if mode & TYPE == LINK {
            return self.apply_to_link(place, &change);
        }
        let path = CString::new(through.as_bytes()).map_err(|_| Errno::EINVAL)?;
        match change {
            Change::Mode(mode) if mode & SET_USER_ID != 0 => Err(Errno::EPERM),
            Change::Mode(mode) => sys::file::set_mode(&path, mode),
            Change::Owner(user, group) => {
                self.own(user, group)?;
                sys::file::set_owner(&path, user, group)
            }
            Change::Times(times) => sys::file::set_times(&path, times),
            Change::Attribute(name, _, _) | Change::NoAttribute(name)
                if !(name.as_bytes().starts_with(b"user.") || ACCESS_LISTS.contains(&&*name)) =>
            {
                // As on a file system without them, which programs that copy put up with.
                Err(Errno::EOPNOTSUPP)
            }
            Change::Attribute(name, value, flags) => {
                sys::file::set_attribute(&path, &name, &value, flags)
            }
            Change::NoAttribute(name) => sys::file::remove_attribute(&path, &name),
        }
    }

    /// The same for a symbolic link itself: `/proc` would lead to what it names. It has a time and an owner, and programs
    /// that copy trees keep both.
    fn apply_to_link(&self, place: &OwnedFd, change: &Change) -> sys::Result<()> {
        match *change {
            Change::Owner(user, group) => {
                self.own(user, group)?;
                sys::file::set_owner_of(place.as_fd(), user, group)
            }
            Change::Times(times) => sys::file::set_times_of(place.as_fd(), times),
            Change::Mode(_) | Change::Attribute(..) | Change::NoAttribute(_) => {
                Err(Errno::EOPNOTSUPP)
            }
        }
    }

    /// Whether these are who the program is: nothing is given away.
    fn own(&self, user: u32, group: u32) -> sys::Result<()> {
        let own = |id, own| id == NOBODY || id == own;
        if own(user, self.user.0) && own(group, self.user.1) { Ok(()) } else { Err(Errno::EPERM) }
    }
}

/// Opens what the caller named, from where the caller stands.
fn open(listener: BorrowedFd<'_>, call: &Notification, named: &Named) -> sys::Result<OwnedFd> {
    let of_caller = |what: String| {
        let path =
            CString::new(format!("/proc/{}/{what}", call.thread)).map_err(|_| Errno::EINVAL)?;
        sys::fd::open_at(CWD, &path, sys::fd::PATH_ONLY, 0)
    };
    let itself = |number: i32| match number {
        0.. => of_caller(format!("fd/{number}")),
        CWD => of_caller("cwd".to_owned()),
        _ => Err(Errno::EBADF),
    };
    let (directory, path, follow) = match *named {
        // Without a path it is an empty one since Linux 6.11.
        Named::Descriptor(number) | Named::Either(number, 0, _) => return itself(number),
        Named::Path(directory, address, follow) | Named::Either(directory, address, follow) => {
            (directory, read_text(listener, call, address)?, follow)
        }
    };
    if path.is_empty() && matches!(named, Named::Either(..)) {
        return itself(directory);
    }
    open_text(listener, call, directory, &path, follow)
}

/// Opens a path from where the caller stands: at one of its directories, or where it is.
pub(crate) fn open_text(
    listener: BorrowedFd<'_>,
    call: &Notification,
    directory: i32,
    path: &CString,
    follow: bool,
) -> sys::Result<OwnedFd> {
    let of_caller = |what: String| {
        let path =
            CString::new(format!("/proc/{}/{what}", call.thread)).map_err(|_| Errno::EINVAL)?;
        sys::fd::open_at(CWD, &path, sys::fd::PATH_ONLY, 0)
    };
    if path.is_empty() {
        return Err(Errno::ENOENT);
    }
    if let Some((place, rest)) = own_place(path.as_bytes(), call.thread) {
        let base = of_caller(place)?;
        if !notify::waits(listener, call.id) {
            return Err(Errno::ENOENT);
        }
        let rest = CString::new(rest).map_err(|_| Errno::EINVAL)?;
        return if rest.is_empty() {
            Ok(base)
        } else {
            sys::file::open_place(base.as_fd(), &rest, follow)
        };
    }
    let base = match directory {
        CWD => of_caller("cwd".to_owned())?,
        _ if path.as_bytes().starts_with(b"/") => of_caller("root".to_owned())?,
        number => of_caller(format!("fd/{number}"))?,
    };
    // The number may have been given to another process meanwhile.
    if !notify::waits(listener, call.id) {
        return Err(Errno::ENOENT);
    }
    sys::file::open_place(base.as_fd(), path, follow)
}

/// A path by which a process names what it holds itself, as C libraries do
/// (`/proc/self/fd/7`, `/dev/fd/7`, `/proc/self/cwd/x`): the place below `/proc/PID`, and what
/// follows it. To the launcher these paths would mean its own.
fn own_place(path: &[u8], thread: u32) -> Option<(String, Vec<u8>)> {
    let path = std::str::from_utf8(path).ok()?;
    let own = format!("/proc/{thread}/");
    let rest = match path.strip_prefix("/dev/fd/") {
        Some(rest) => format!("fd/{rest}"),
        None => ["/proc/self/", "/proc/thread-self/", own.as_str()]
            .iter()
            .find_map(|prefix| path.strip_prefix(prefix))?
            .to_owned(),
    };
    let mut parts = rest.splitn(3, '/');
    let (first, second) = (parts.next()?, parts.next());
    match (first, second) {
        ("fd", Some(number)) => {
            let number: u32 = number.parse().ok()?;
            Some((format!("fd/{number}"), parts.next().unwrap_or_default().into()))
        }
        ("cwd" | "root", _) => {
            let rest = rest[first.len()..].trim_start_matches('/');
            Some((first.to_owned(), rest.into()))
        }
        _ => None,
    }
}

fn times(
    listener: BorrowedFd<'_>,
    call: &Notification,
    address: u64,
    layout: Layout,
) -> sys::Result<Change> {
    if address == 0 {
        return Ok(Change::Times(None));
    }
    let mut bytes = [0u8; 32];
    let length = if let Layout::Seconds = layout { 16 } else { 32 };
    if read_memory(listener, call, address, &mut bytes[..length])? != length {
        return Err(Errno::EFAULT);
    }
    let word = |index: usize| {
        let mut word = [0u8; 8];
        word.copy_from_slice(&bytes[index * 8..index * 8 + 8]);
        i64::from_ne_bytes(word)
    };
    let microseconds = |value: i64| match value {
        0..1_000_000 => Ok(value * 1000),
        _ => Err(Errno::EINVAL),
    };
    Ok(Change::Times(Some(match layout {
        Layout::Nanoseconds => [(word(0), word(1)), (word(2), word(3))],
        Layout::Microseconds => {
            [(word(0), microseconds(word(1))?), (word(2), microseconds(word(3))?)]
        }
        Layout::Seconds => [(word(0), 0), (word(1), 0)],
    })))
}

/// The trees that a plan lets be written, and the session's own directory.
pub(crate) fn of(plan: &Plan, private: Option<&PathBuf>) -> Metadata {
    let trees = trees(plan, private, &[Rights::Write]).map(PathBuf::from);
    Metadata { trees: trees.collect(), user: plan.user }
}

/// The trees to which a plan gives one of these rights, and the session's own directory.
pub(crate) fn trees<'a>(
    plan: &'a Plan,
    private: Option<&'a PathBuf>,
    rights: &'a [Rights],
) -> impl Iterator<Item = &'a Path> {
    let rules = plan.landlock.iter().flat_map(|landlock| &landlock.files);
    let given = rules.filter(|rule| rights.contains(&rule.rights)).map(|rule| &rule.path);
    given.chain(private).map(PathBuf::as_path).filter(|path| path.is_absolute())
}
