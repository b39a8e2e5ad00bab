//! Unix sockets of a program that holds a socket of the host which is not locked.
//!
//! Over a Unix socket descriptors can be passed (unix(7), `SCM_RIGHTS`). A program in another sandbox
//! would not be bound by what confines this one, so that the two must not meet: only sockets that lie
//! in the sandbox's own memory-backed directories, abstract ones (which are of its network
//! namespace), and those of the host that the policy grants.

use crate::calls::{Caller, To};
use ringfence_sys::Errno;
use ringfence_sys::listener::behalf;
use ringfence_sys::taken::Taken;
use std::ffi::CString;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

const AF_UNIX: u16 = 1;

/// What an address names.
enum Named<'a> {
    /// Nothing, or a name without a file.
    NoFile,
    /// A file.
    Path(&'a [u8]),
}

fn named(raw: &[u8]) -> Result<Named<'_>, Errno> {
    let family = raw.get(..2).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    match family {
        Some(AF_UNIX) => {}
        // AF_UNSPEC dissolves an association; whatever else it is, the kernel refuses it.
        _ => return Ok(Named::NoFile),
    }
    let name = &raw[2..];
    match name.first() {
        None | Some(0) => Ok(Named::NoFile),
        Some(_) => {
            let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
            Ok(Named::Path(&name[..end]))
        }
    }
}

/// Binds the copy of a Unix socket, if where it would lie is the sandbox's own.
///
/// Its name is then a path of the launcher's own view, which getsockname(2) shows.
pub(crate) fn bind(caller: &Caller<'_>, copy: &Taken, raw: &[u8]) -> Result<(), Errno> {
    let Named::Path(path) = named(raw)? else { return behalf::bind(copy.as_fd(), raw) };
    let cut = path.iter().rposition(|&byte| byte == b'/');
    let (parent, name) = match cut {
        Some(0) => (&b"/"[..], &path[1..]),
        Some(cut) => (&path[..cut], &path[cut + 1..]),
        None => (&b"."[..], path),
    };
    if name.is_empty() || name == b"." || name == b".." {
        return Err(Errno::EADDRINUSE);
    }
    let parent = open(caller, parent)?;
    if !private(caller, &parent)? {
        return Err(Errno::EACCES);
    }
    let through = format!("/proc/self/fd/{}/", parent.as_raw_fd());
    behalf::bind(copy.as_fd(), &behalf::unix(&[through.as_bytes(), name].concat())?)
}

/// The address to connect to, if it is one that may be.
pub(crate) fn address(caller: &Caller<'_>, raw: &[u8], granted: &[OwnedFd]) -> Result<To, Errno> {
    let Named::Path(path) = named(raw)? else {
        return Ok(To::from(raw.to_vec()));
    };
    let place = open(caller, path)?;
    if !private(caller, &place)? && !is_granted(&place, granted) {
        return Err(Errno::EACCES);
    }
    let raw = behalf::unix(format!("/proc/self/fd/{}", place.as_raw_fd()).as_bytes())?;
    Ok(To { raw, place: Some(place) })
}

/// Opens what the caller names, from where it stands. What that leads to is judged afterwards, so
/// that it does not matter if a link leads elsewhere than in the caller's view.
fn open(caller: &Caller<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let name = CString::new(path).map_err(|_| Errno::EINVAL)?;
    if path.starts_with(b"/") {
        return behalf::place_below(caller.place("root")?.as_fd(), &name);
    }
    ringfence_sys::file::open_place(caller.place("cwd")?.as_fd(), &name, true)
}

/// Whether a place is on the memory-backed file system that is the sandbox's root.
fn private(caller: &Caller<'_>, place: &OwnedFd) -> Result<bool, Errno> {
    let failed = |error: std::io::Error| Errno::new(error.raw_os_error().unwrap_or(1));
    let device = |path: String| fs::metadata(path).map(|data| data.dev()).map_err(failed);
    let root = caller.place("root")?;
    let inside = device(format!("/proc/self/fd/{}", root.as_raw_fd()))?;
    let place = device(format!("/proc/self/fd/{}", place.as_raw_fd()))?;
    Ok(inside == place && inside != device("/".to_owned())?)
}

fn is_granted(place: &OwnedFd, granted: &[OwnedFd]) -> bool {
    let which = |place: &OwnedFd| {
        let data = fs::metadata(format!("/proc/self/fd/{}", place.as_raw_fd())).ok()?;
        Some((data.dev(), data.ino()))
    };
    let place = which(place);
    place.is_some() && granted.iter().any(|granted| which(granted) == place)
}
