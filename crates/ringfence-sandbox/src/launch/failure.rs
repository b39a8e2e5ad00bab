//! What the child's few bytes about a failed step mean, in words.

use super::{probe, script::Note};
use crate::error::LaunchError;
use ringfence_start::child::said;
use ringfence_sys::{Errno, describe};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What the note of an overlay's steps says.
pub(super) const KEEP_APART: &str = "keep writes apart to";

/// What the note of a network namespace's step says.
pub(super) const MAKE_NETWORK: &str = "make a network namespace";

/// What the note of the process tier's private directory says.
pub(super) const MAKE_PRIVATE: &str =
    "make a private directory (TMPDIR names another place for it) in";

/// What the note of the step says that opens what is shown.
pub(super) const OPEN: &str = "open";
/// Writing the maps of a user namespace.
pub(super) const MAP_IDENTITY: &str = "map the identity of the user";
/// Making one of the kernel's own file systems, `/proc` among them.
pub(super) const MAKE_FILE_SYSTEM: &str = "make the file system for";

/// What is known about the steps of an image.
pub(super) struct Explaining<'a> {
    pub build: &'a [Note],
    pub confine: &'a [Note],
    pub command: &'a OsStr,
}

/// Where and why the child failed: its tag, the step, the error. `None` for other messages.
pub(crate) fn read(message: &[u8]) -> Option<(u8, u32, Errno)> {
    let (&tag, rest) = message.split_first()?;
    let known = [
        said::BUILD,
        said::CONFINE,
        said::NOT_FOUND,
        said::NOT_EXECUTABLE,
        said::EXECUTE,
        said::CLONE,
    ];
    let (step, errno) = rest.split_at_checked(4)?;
    let step = u32::from_le_bytes(step.try_into().ok()?);
    let errno = i32::from_le_bytes(errno.try_into().ok()?);
    known.contains(&tag).then(|| (tag, step, Errno::new(errno)))
}

impl Explaining<'_> {
    /// The sentence for a failed step.
    pub fn explain(&self, tag: u8, step: u32, errno: Errno) -> LaunchError {
        let name = self.command.display();
        let why = describe(errno);
        let none = Note::default();
        match tag {
            said::BUILD => build(self.build.get(step as usize).unwrap_or(&none), errno),
            said::CONFINE => {
                let note = self.confine.get(step as usize).unwrap_or(&none);
                match &note.path {
                    Some(workdir) if note.what == "start in" => LaunchError::Setup(format!(
                        "cannot start in {}: {why} ({errno:?}); it is not granted (-r or -w), or \
                         it is gone; --workdir names another",
                        workdir.display()
                    )),
                    _ => build(note, errno),
                }
            }
            said::CLONE => LaunchError::Setup(format!(
                "cannot make a process for the command: {why} ({errno:?})"
            )),
            said::NOT_FOUND if self.command.as_bytes().contains(&b'/') => {
                LaunchError::NotFound(format!(
                    "command not found: {name} does not exist in the sandbox (ringfence why -- \
                     exec {name} says whether it is granted)"
                ))
            }
            said::NOT_FOUND => LaunchError::NotFound(format!(
                "command not found: {name} is in no directory of PATH that the sandbox can see"
            )),
            said::NOT_EXECUTABLE => LaunchError::CannotExecute(format!(
                "cannot execute {name}: permission denied (it is not executable, or not granted)"
            )),
            _ if matches!(errno, Errno::ENOENT | Errno::ELOOP | Errno::ENOTDIR) => {
                LaunchError::CannotExecute(format!(
                    "cannot execute {name}: its interpreter does not exist in the sandbox \
                     ({errno:?})"
                ))
            }
            _ => LaunchError::CannotExecute(format!("cannot execute {name}: {why}")),
        }
    }
}

fn build(note: &Note, errno: Errno) -> LaunchError {
    if let (KEEP_APART, Some(path)) = (note.what, &note.path) {
        return LaunchError::Setup(super::overlay::failure(path, errno));
    }
    match (note.what, &note.path, errno) {
        (
            MAP_IDENTITY,
            _,
            Errno::EPERM | Errno::EACCES | Errno::EROFS | Errno::ENOENT | Errno::ENOTDIR,
        ) => return LaunchError::NoNamespaces(probe::no_identity()),
        (MAKE_FILE_SYSTEM, Some(path), Errno::EPERM) if path == Path::new("/proc") => {
            return LaunchError::NoNamespaces(probe::no_proc());
        }
        _ => {}
    }
    let hint = match errno {
        Errno::ELOOP => {
            "; a component is a symbolic link there, since the policy was resolved, or made by an earlier run in a home that is kept"
        }
        Errno::ENOENT => "; it vanished after the policy was resolved",
        // The view is built without a right over what belongs to users outside the namespace.
        Errno::EACCES if note.what == OPEN && ringfence_sys::identity::user() == 0 => {
            "; root passes no permissions inside, and a directory on the way is closed to others \
             than its owner: run ringfence as the owner (sudo -u NAME), or let others through \
             (chmod o+x)"
        }
        Errno::EPERM => "; the kernel or a container around us forbids it (see ringfence doctor)",
        Errno::ENOSPC if note.what == MAKE_NETWORK => {
            "; user.max_net_namespaces is reached (sysctl)"
        }
        Errno::ENOSPC => "; fs.mount-max or the disk is exhausted",
        Errno::EMFILE => "; raise the limit of open files (--open-files, ulimit -n)",
        _ => "",
    };
    if let (super::skeleton::SHOW, Some(path)) = (note.what, &note.path) {
        let why = describe(errno);
        let sentence = format!("cannot {} {}: {why} ({errno:?})", note.what, path.display());
        return LaunchError::NoSkeleton(sentence);
    }
    let path = note.path.as_ref().map(|path: &PathBuf| format!(" {}", path.display()));
    let sentence = format!(
        "cannot {}{}: {} ({errno:?}){hint}",
        note.what,
        path.unwrap_or_default(),
        describe(errno)
    );
    if note.what == MAKE_PRIVATE {
        LaunchError::NoPlace(sentence)
    } else if errno == Errno::ENOENT && note.path.is_some() {
        LaunchError::Vanished(sentence)
    } else {
        LaunchError::Setup(sentence)
    }
}
