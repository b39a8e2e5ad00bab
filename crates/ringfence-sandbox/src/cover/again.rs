//! The warden's part: the mount on a name is made again, in the sandbox's own view.

use super::What;
use ringfence_sys as sys;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use sys::Errno;
use sys::fd::CWD;
use sys::mount::{self, attribute};

/// Makes it, where its name is there and has none.
///
/// Nothing is followed, as the one who is inside may change the way at this moment. Where a component became a
/// symbolic link, that is hidden if its name was to be; what it leads to has a path of its own.
///
/// # Errors
/// The kernel's; `EBUSY` where what is there is exchanged all the time.
pub(crate) fn make(what: What, path: &Path) -> sys::Result<()> {
    match cover(what, path) {
        Err(Errno::ELOOP) if what == What::Hides => {
            let link = |path: &&Path| path.symlink_metadata().is_ok_and(|data| data.is_symlink());
            let way: Vec<&Path> = path.ancestors().skip(1).collect();
            way.into_iter().rev().find(link).map_or(Ok(()), |link| cover(what, link))
        }
        Err(Errno::ELOOP) => Ok(()),
        made => made,
    }
}

/// Takes it away, for who is to move what is there: the program has ended.
pub(crate) fn unmake(path: &Path) {
    if let Ok(path) = CString::new(path.as_os_str().as_bytes()) {
        let _ = mount::take_off(&path);
    }
}

fn cover(what: What, path: &Path) -> sys::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::EINVAL);
    };
    let Some(parent) = open(CWD, parent)? else { return Ok(()) };
    // Again, if what is there was exchanged while it was covered.
    for _ in 0..TRIES {
        let Some(there) = open(parent.as_raw_fd(), Path::new(name))? else { return Ok(()) };
        if mount::number(there.as_fd())? != mount::number(parent.as_fd())? {
            return Ok(());
        }
        let own = attribute::NO_SUID | attribute::NO_DEVICES;
        let cover = match what {
            What::Hides => mount::nothing(mount::is_directory(there.as_fd())?)?,
            What::Protects => mount::copy(there.as_fd(), own | attribute::READ_ONLY)?,
            What::Holds => mount::copy(there.as_fd(), own)?,
        };
        match mount::attach(cover.as_fd(), there.as_fd()) {
            // What was opened has no name any more.
            Err(Errno::ENOENT | Errno::ENOTDIR) => {}
            Err(errno) => return Err(errno),
            Ok(()) => {}
        }
    }
    Err(Errno::EBUSY)
}

/// So often what is there may be another one by then.
const TRIES: usize = 64;

/// What is at a path, a link itself; none where nothing is.
fn open(directory: i32, path: &Path) -> sys::Result<Option<OwnedFd>> {
    const PATH_NO_FOLLOW: i32 = 0o10_000_000 | 0o400_000;
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)?;
    match sys::fd::open_without_links(directory, &path, PATH_NO_FOLLOW) {
        Ok(place) => Ok(Some(place)),
        Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(None),
        Err(errno) => Err(errno),
    }
}
