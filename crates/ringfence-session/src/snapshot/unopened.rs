//! Links and pipes: they have owners as files have, pipes access lists as well, and are not opened for that. (Whoever waits
//! for the other end of a pipe would go on.)

use super::beneath::{self, shown};
use super::content::{self, Attributes};
use super::entry::{Entry, Kind};
use super::revert::Apply;
use crate::error::Result;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid, XattrFlags};
use rustix::io::Errno;

/// The only attribute that a pipe has. (The user's own are for files and directories, xattr(7).)
const LIST: &str = "system.posix_acl_access";

/// A place, without opening what is there. By it the name may lead anywhere later.
pub(super) fn find(directory: impl AsFd, name: &[u8]) -> std::result::Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::empty())
}

/// A name for what was found. What is done by it is done to the thing itself, unless that is a link.
fn through(found: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", found.as_raw_fd())
}

/// The access list of a pipe, if it has one.
pub(super) fn attributes(directory: impl AsFd, name: &[u8]) -> Attributes {
    let Ok(pipe) = find(directory, name) else { return Vec::new() };
    // Something else may be there by now.
    if !beneath::stat(&pipe, b"").is_ok_and(|found| found.file_type == FileType::Fifo) {
        return Vec::new();
    }
    let mut value = vec![0; 65536];
    let got = rustix::fs::getxattr(through(&pipe), LIST, &mut value[..]);
    value.truncate(got.unwrap_or(0));
    if value.is_empty() { Vec::new() } else { vec![(LIST.as_bytes().to_vec(), value)] }
}

impl Apply<'_> {
    /// Gives a link or a pipe that was made its owner, and a pipe its list and mode.
    pub(super) fn dress_unopened(
        &mut self,
        made: &OwnedFd,
        entry: &Entry,
        path: &[u8],
    ) -> Result<()> {
        let found = beneath::stat(made, b"").map_err(self.failed("statx", path))?;
        let wanted = if entry.kind == Kind::Fifo { FileType::Fifo } else { FileType::Symlink };
        // The name was another one's when it was looked at: no matter of ours.
        if found.file_type != wanted {
            return Ok(());
        }
        if (found.stamp.uid, found.stamp.gid) != (entry.uid, entry.gid) {
            let (uid, gid) = (Uid::from_raw(entry.uid), Gid::from_raw(entry.gid));
            // One that was just made has one name, and is ours: nobody gets another one by this.
            let ours =
                found.stamp.links == 1 && found.stamp.uid == rustix::process::geteuid().as_raw();
            let give = || rustix::fs::chownat(made, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH);
            if !ours || give().is_err() {
                let path = shown(path);
                self.kept.push(format!("{}: its owner cannot be given back", path.display()));
            }
        }
        if wanted == FileType::Symlink {
            return Ok(());
        }
        let list = match &entry.xattrs {
            Some(hash) => {
                let bad = || self.database.corrupt("attributes are unreadable");
                content::read_attributes(&self.database.get(hash)?.0).ok_or_else(bad)?
            }
            None => Vec::new(),
        };
        let mut mode = entry.mode;
        match list.iter().find(|(name, _)| name == LIST.as_bytes()) {
            Some((name, value)) => {
                match rustix::fs::setxattr(through(made), LIST, value, XattrFlags::empty()) {
                    Ok(()) => {}
                    Err(error @ (Errno::NOSPC | Errno::DQUOT)) => {
                        return Err(self.failed("setxattr", path)(error));
                    }
                    Err(_) => {
                        mode = content::without_list(mode, name);
                        self.kept.push(format!("{}: {LIST} cannot be set", shown(path).display()));
                    }
                }
            }
            // Where it is made a list may be that all new ones get.
            None => drop(rustix::fs::removexattr(through(made), LIST)),
        }
        // The mask of new files took bits away.
        let mode = Mode::from_raw_mode(mode);
        rustix::fs::chmod(through(made), mode).map_err(self.failed("chmod", path))
    }
}
