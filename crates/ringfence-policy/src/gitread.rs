//! How much of git's configuration is read, and what a file says. Programs inside write configurations for whoever reads
//! them at the next start, after a run or at a commit: the bounds are here, the same for all, and what is beyond one is
//! not known. It could be anything, and is judged as that.

use crate::files::{FileView, nothing};
use std::cell::Cell;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Bytes of one file.
pub const MOST: u64 = 4 << 20;

/// Bytes of all that is read at one start, after one run, or for one commit. One file may have as many names as a
/// program likes.
pub const MOST_IN_ALL: u64 = 64 << 20;

/// Bytes of what git keeps for itself ([`crate::gitstate`]), the indexes most of all, of all that is judged at once.
pub const MOST_STATE: u64 = 1 << 30;

/// Settings of one file. A branch takes two or three.
pub const MOST_SETTINGS: usize = 100_000;

/// Bytes between the brackets of a section. It stands in the key of each setting behind it.
pub const LONGEST_SECTION: usize = 4096;

/// Files of configuration that are followed, of one repository.
pub const MOST_INCLUDED: usize = 256;

/// Files that the configuration of one repository may name.
pub const MOST_NAMED: usize = 10_000;

/// Files that all of it may name that is read at once: there may be many repositories, in a clone too.
pub const MOST_NAMED_IN_ALL: usize = 50_000;

/// Lines of `core.worktree` in one file, each of which is followed. Git writes one.
pub const MOST_WORKTREES: usize = 8;

/// Bytes of a path that the kernel takes, with the zero at its end (`PATH_MAX`): git can use no longer one.
pub const LONGEST_PATH: usize = libc::PATH_MAX as usize;

/// Components of a submodule's worktree below what it is in.
pub const DEEPEST_WORKTREE: usize = 128;

/// What a file of configuration says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// Nothing: it is not there, is no regular file, or cannot be read by git either.
    Nothing,
    /// This.
    Bytes(Vec<u8>),
    /// What it says cannot be known, and it could be anything.
    Unknown(Unknown),
}

impl Said {
    /// What it says, as far as that is known.
    pub fn bytes(self) -> Option<Vec<u8>> {
        match self {
            Said::Bytes(bytes) => Some(bytes),
            Said::Nothing | Said::Unknown(_) => None,
        }
    }
}

/// Why it cannot be known what a configuration says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// It has more than [`MOST`] bytes.
    Large,
    /// With it more than [`MOST_IN_ALL`] bytes would be read.
    Much,
    /// It has more than [`MOST_SETTINGS`].
    Settings,
    /// A section has a name longer than [`LONGEST_SECTION`].
    Section,
    /// It has a zero byte, where a name or a value ends for git, and no line.
    Zero,
    /// It is closed to the user, who may be its owner and can open it again.
    Closed,
    /// It cannot be read for another reason.
    Broken,
    /// It includes more than [`MOST_INCLUDED`] files.
    Crowded,
    /// It names more than [`MOST_NAMED`] files.
    Names,
    /// With it more than [`MOST_NAMED_IN_ALL`] files would be named.
    AllNames,
}

impl Unknown {
    /// What is the matter with the file, as the end of a sentence, and what to do about it.
    pub fn text(self) -> (String, &'static str) {
        let smaller = "move what is yours into smaller files";
        let (why, remedy) = match self {
            Unknown::Large => (format!("has more than {} MiB", MOST >> 20), smaller),
            Unknown::Much => (
                format!("is of more than {} MiB of git's configuration", MOST_IN_ALL >> 20),
                "remove what you do not need",
            ),
            Unknown::Settings => (format!("has more than {MOST_SETTINGS} settings"), smaller),
            Unknown::Section => (
                format!("has a section whose name is longer than {LONGEST_SECTION} bytes"),
                "look at it",
            ),
            Unknown::Zero => ("has a zero byte".to_owned(), "look at it"),
            Unknown::Closed => ("is closed to yourself".to_owned(), "chmod u+r it"),
            Unknown::Broken => ("cannot be read".to_owned(), "look at it"),
            Unknown::Crowded => {
                (format!("is of more than {MOST_INCLUDED} that git reads"), "include fewer")
            }
            Unknown::Names => (format!("names more than {MOST_NAMED} files"), "look at it"),
            Unknown::AllNames => (
                format!("is of configurations that name more than {MOST_NAMED_IN_ALL} files"),
                "look at it",
            ),
        };
        (why, remedy)
    }
}

/// A file of configuration of which it is not known what it says.
pub type NotKnown = (PathBuf, Unknown);

/// What may yet be read: at a start, after a run, or for a commit.
#[derive(Debug)]
pub struct Pass {
    left: Cell<u64>,
    names: Cell<usize>,
}

impl Default for Pass {
    fn default() -> Pass {
        Pass { left: Cell::new(MOST_IN_ALL), names: Cell::new(MOST_NAMED_IN_ALL) }
    }
}

impl Pass {
    /// The bytes that one more file may have.
    pub fn room(&self) -> u64 {
        self.left.get().min(MOST)
    }

    /// So many bytes are to be read.
    ///
    /// # Errors
    /// There are more than one file may have, or than are left. Then nothing more is read, so that what is known does not
    /// depend on which of the files is small.
    pub fn take(&self, bytes: u64) -> Result<(), Unknown> {
        if bytes > MOST {
            return Err(Unknown::Large);
        }
        let left = self.left.get().checked_sub(bytes);
        self.left.set(left.unwrap_or(0));
        left.map(drop).ok_or(Unknown::Much)
    }

    /// One more file is named.
    ///
    /// # Errors
    /// No more may be.
    pub fn name(&self) -> Result<(), Unknown> {
        let left = self.names.get().checked_sub(1).ok_or(Unknown::AllNames)?;
        self.names.set(left);
        Ok(())
    }

    /// What a file says that is read so, if it may be read.
    pub fn read(&self, read: impl FnOnce() -> Said) -> Said {
        if self.left.get() == 0 {
            return Said::Unknown(Unknown::Much);
        }
        match read() {
            Said::Bytes(bytes) => match self.take(bytes.len() as u64) {
                Ok(()) => Said::Bytes(bytes),
                Err(why) => Said::Unknown(why),
            },
            Said::Unknown(Unknown::Large) => {
                // So much of it was read.
                let _ = self.take(MOST);
                Said::Unknown(Unknown::Large)
            }
            said => said,
        }
    }
}

/// Reads a configuration.
pub fn read(files: &dyn FileView, path: &Path) -> Said {
    match files.beginning(path, MOST + 1) {
        Ok(bytes) if bytes.len() as u64 > MOST => Said::Unknown(Unknown::Large),
        Ok(bytes) => Said::Bytes(bytes),
        // A device, as /dev/null, has nothing to say.
        Err(error) if nothing(&error) || error.kind() == ErrorKind::InvalidData => Said::Nothing,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Said::Unknown(Unknown::Closed),
        Err(_) => Said::Unknown(Unknown::Broken),
    }
}

/// The same of a file of this machine, for a user: what is closed to him and somebody else's, git cannot read for him
/// either, and he cannot open it.
pub fn read_for(user: u32, files: &dyn FileView, path: &Path) -> Said {
    let said = read(files, path);
    let owner = |path: &Path| Some(files.owner_and_mode(path)?.0);
    let closed = said == Said::Unknown(Unknown::Closed);
    match closed && path.ancestors().find_map(owner).is_some_and(|owner| owner != user) {
        true => Said::Nothing,
        false => said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_read_as_it_is() {
        let room = std::env::temp_dir().join(format!("ringfence-git-{}", std::process::id()));
        std::fs::create_dir_all(&room).expect("made");
        let path = room.join("config");
        let read = |path: &Path| read_for(1, &crate::HostFiles, path);
        assert_eq!(read(&path), Said::Nothing);
        std::fs::write(&path, b"J\xfc").expect("written");
        assert_eq!(read(&path), Said::Bytes(b"J\xfc".to_vec()));
        assert_eq!(read(&path.join("below")), Said::Nothing);
        assert_eq!(read(&room), Said::Nothing);
        assert_eq!(read(Path::new("/dev/null")), Said::Nothing);
        let large = std::fs::File::create(&path).expect("made");
        large.set_len(MOST).expect("sparse");
        assert!(read(&path).bytes().is_some());
        large.set_len(MOST + 1).expect("sparse");
        assert_eq!(read(&path), Said::Unknown(Unknown::Large));
        std::fs::remove_dir_all(&room).expect("removed");
    }

    /// One file under many names.
    #[test]
    fn no_more_is_read_in_a_pass_than_the_bound() {
        let (pass, read) = (Pass::default(), Cell::new(0));
        let file = || {
            read.set(read.get() + 1);
            Said::Bytes(vec![b'#'; MOST as usize])
        };
        let all = (0..1000).filter(|_| pass.read(file).bytes().is_some()).count() as u64;
        assert_eq!((all, read.get()), (MOST_IN_ALL / MOST, MOST_IN_ALL / MOST));
        assert_eq!(pass.read(|| Said::Bytes(vec![0])), Said::Unknown(Unknown::Much));
        assert_eq!((pass.room(), Pass::default().room()), (0, MOST));
        assert_eq!(Pass::default().take(MOST + 1), Err(Unknown::Large));
    }
}
