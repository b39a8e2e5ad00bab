//! Makes what lies in the quarantine new, so that no program can change it there: it is read later, and perhaps taken
//! back to where programs outside obey it.
//!
//! What was moved there is the very file that the program made. It may have another name in the tree, by which a later
//! run would write it; and a run that goes on in the same tree may hold it, or a directory of it, open: what is open for
//! reading can be opened anew for writing by `/proc/self/fd` in a view of its own. So files are copied, but for large
//! ones of which nothing speaks for such a hold, and directories are made anew. A directory is emptied into its new
//! one before what it holds is looked at.

use super::Said;
use super::quarantine::{Copied, Quarantine, copy, fill, rename_aside, unlock};
use super::work::Directory;
use ringfence_policy::shown;
use ringfence_sys as sys;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{
    DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, fchown,
};
use std::path::Path;

/// Up to so many bytes a file is copied in any case: what programs obey is rarely longer.
const SMALL: u64 = 1 << 20;
/// Directories further down are removed: no program looks for its settings there.
const DEEPEST: usize = 256;
/// What a mode may carry over.
const MODE: u32 = 0o777;
/// What is made in place of something, until it has its name.
const NEW: &str = ".ringfence-new";

/// Whether a file has another name.
pub(super) fn is_linked(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|data| data.is_file() && data.nlink() > 1)
}

impl Quarantine {
    /// Does it with all that was taken in a run, when nobody of the run lives any more.
    pub fn renew(&mut self, said: &mut Said) {
        let Some(path) = self.directory.clone().filter(|_| self.taken > 0) else { return };
        let Ok(directory) = Directory::open(&path) else { return };
        unlock(&path, 0);
        let mut renewing = Renewing { room: &mut self.room, held: 0, said };
        for name in names(&directory) {
            let shown = path.join(&name);
            let Some(old) = directory.enter(&name) else {
                renewing.own(&directory, &name, &shown);
                continue;
            };
            let new = made(&directory, OsStr::new(NEW), &old);
            renewing.empty(&old, new.as_ref(), &shown, 0);
            if new.is_some()
                && let Ok(aside) = rename_aside(&directory.at(&name))
            {
                let _ = fs::rename(directory.at(NEW), directory.at(&name));
                // Who holds the old one may put something there yet.
                let _ = fs::remove_dir_all(directory.at(aside));
            }
        }
        if renewing.held > 0 {
            let (count, path) = (renewing.held, shown::path(&path));
            said.push(format!(
                "{count} of what was moved to {path} could not be copied: a run that goes on in the same tree may hold \
                 it open, and change it"
            ));
        }
    }
}

/// One pass over what was taken.
struct Renewing<'a> {
    room: &'a mut u64,
    /// Files that are what they were, and may be held open.
    held: usize,
    said: &'a mut Said,
}

impl Renewing<'_> {
    /// Brings what a directory holds to its new one, and looks at it there; where none could be made it stays.
    fn empty(&mut self, old: &Directory, new: Option<&Directory>, shown: &Path, depth: usize) {
        for name in names(old) {
            let path = shown.join(&name);
            if let Some(inner) = old.enter(&name).filter(|_| depth < DEEPEST) {
                let fresh = new.and_then(|new| made(new, &name, &inner));
                if let (Some(new), None) = (new, &fresh) {
                    let _ = fs::rename(old.at(&name), new.at(&name));
                }
                self.empty(&inner, fresh.as_ref(), &path, depth + 1);
                continue;
            }
            match new.map(|new| (new, fs::rename(old.at(&name), new.at(&name)))) {
                // Taken away by who holds the old one.
                Some((_, Err(_))) => {}
                Some((new, Ok(()))) => self.own(new, &name, &path),
                None => self.own(old, &name, &path),
            }
        }
    }

    /// Makes a file one that nobody holds and that has no other name; or removes it, which has one then.
    fn own(&mut self, directory: &Directory, name: &OsStr, shown: &Path) {
        let at = directory.at(name);
        let Ok(data) = at.symlink_metadata() else { return };
        let linked = data.nlink() > 1;
        let why = match data.file_type() {
            // What a link says is never changed.
            kind if kind.is_symlink() => return,
            kind if kind.is_dir() => "it is too deep".to_owned(),
            kind if kind.is_file() => {
                if !linked && data.len() > SMALL && !has_writers(&at) {
                    return;
                }
                match self.copied(directory, &at, &data) {
                    Ok(()) => return,
                    Err(_) if !linked => return self.held += 1,
                    Err(why) => format!("it has another name, and cannot be copied: {why}"),
                }
            }
            _ if linked => "it has another name, and is no plain file".to_owned(),
            _ => return,
        };
        super::quarantine::discard(&at);
        self.said.push(format!("{} was removed ({why})", shown::path(shown)));
    }

    fn copied(&mut self, directory: &Directory, at: &Path, data: &Metadata) -> io::Result<()> {
        let beside = directory.at(NEW);
        let made = copy(at, &beside)?;
        let done = fill(&made, self.room).and_then(|()| {
            let Copied { copy, .. } = &made;
            // Another user's stays his where that may be.
            let _ = fchown(copy, Some(data.uid()), Some(data.gid()));
            copy.set_permissions(Permissions::from_mode(data.mode() & MODE))?;
            copy.set_modified(data.modified()?)?;
            fs::rename(&beside, at)
        });
        done.inspect_err(|_| drop(fs::remove_file(&beside)))
    }
}

/// Whether somebody has a file open for writing, as far as can be told.
fn has_writers(at: &Path) -> bool {
    const NONBLOCK: i32 = 0o4_000;
    let careful = ringfence_start::flags::NO_FOLLOW as i32 | NONBLOCK;
    let file = File::options().read(true).custom_flags(careful).open(at);
    file.map_or(true, |file| sys::file::has_writers(file.as_fd()) == Some(true))
}

/// A new directory, like another one.
fn made(directory: &Directory, name: &OsStr, like: &Directory) -> Option<Directory> {
    DirBuilder::new().mode(0o700).create(directory.at(name)).ok()?;
    let (new, like) = (directory.enter(name)?, like.at(".").metadata().ok()?);
    let _ = chown(new.at("."), Some(like.uid()), Some(like.gid()));
    let _ = fs::set_permissions(new.at("."), Permissions::from_mode(like.mode() & MODE));
    Some(new)
}

fn names(directory: &Directory) -> Vec<OsString> {
    let entries = fs::read_dir(directory.at(".")).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name()).collect()
}
