//! Directories, read as the guest reads them: what is in one is not held here, however much that is.
//!
//! A place in a directory is the host file system's own number for it (`d_off`, getdents(2)), which the guest's programs
//! hold as the place where they go on.

use super::abi::{Body, Fields};
use super::found::{stat, stat_at};
use super::{Files, Handle, Result, own, wanted};
use rustix::fs::{FileType, Mode, OFlags, RawDir, SeekFrom};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// What of a directory's entries fits at most into one reply.
const MOST_LISTED: usize = 128 * 1024;
/// Bytes before a name in a reply (`struct fuse_dirent`), and before those (`struct fuse_entry_out`).
const BEFORE_NAME: usize = 24;
const BEFORE_ENTRY: usize = 128;
/// What names are filled up to, in a reply and in what getdents(2) gives.
const ALIGNMENT: usize = 8;
/// What getdents(2) gives of a name of one byte. In a reply a longer one takes no more for each byte of that.
const SHORTEST: usize = 24;
/// Room for one name of 255 bytes, aligned.
const LONGEST: usize = 280 + ALIGNMENT;

/// An open directory of the guest's.
pub(super) struct Directory {
    /// `None`: it looks empty from the guest.
    pub open: Option<Rc<OwnedFd>>,
    /// Where that stands.
    pub at: u64,
    /// Of which node.
    pub node: u64,
}

impl Files {
    /// `FUSE_OPENDIR`
    pub(super) fn open_directory(&mut self, node: u64) -> Result<Body> {
        let (named, found) = self.identified(node)?;
        let open = if self.opaque(node, &found)? {
            None
        } else {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let opened = rustix::fs::open(Files::through(&named), flags, Mode::empty())?;
            Some(Rc::new(opened))
        };
        let handle = self.keep(Handle::Directory(Directory { open, at: 0, node }))?;
        let mut body = Body::default();
        // FOPEN_CACHE_DIR is not asked for: others change directories too.
        body.long(handle).word(0).word(0);
        Ok(body)
    }

    /// `FUSE_READDIR`; `FUSE_READDIRPLUS`, which gives each entry a node.
    pub(super) fn list(&mut self, node: u64, f: &mut Fields<'_>, plus: bool) -> Result<Body> {
        let (handle, offset) = (wanted(f.long())?, wanted(f.long())?);
        let size = (wanted(f.word())? as usize).min(MOST_LISTED);
        let directory = match self.handles.get_mut(&handle) {
            Some(Handle::Directory(directory)) => directory,
            Some(Handle::Lost { .. }) => return Err(Errno::STALE),
            _ => return Err(Errno::BADF),
        };
        let mut body = Body::default();
        let Some(open) = directory.open.clone() else { return Ok(body) };
        if directory.at != offset {
            rustix::fs::seek(&open, SeekFrom::Start(offset))?;
            directory.at = offset;
        }
        let found = stat(&open)?;
        let before = BEFORE_NAME + if plus { BEFORE_ENTRY } else { 0 };
        // How much can be read that fits into the reply whatever names there are: nothing is read that is not passed on.
        let room = |body: &Body| (size - body.0.len()) / (before + ALIGNMENT) * SHORTEST;
        if room(&body) < LONGEST {
            return Err(Errno::INVAL);
        }
        let mut buffer = Vec::with_capacity(room(&body));
        while room(&body) >= LONGEST {
            let length = body.0.len();
            let mut entries = RawDir::new(&*open, &mut buffer.spare_capacity_mut()[..room(&body)]);
            while let Some(entry) = entries.next() {
                let entry = match entry {
                    // What the guest was given a node of must reach it.
                    Err(_) if !body.0.is_empty() => break,
                    entry => entry?,
                };
                let (name, at) = (entry.file_name().to_bytes(), entry.next_entry_cookie());
                let known = if plus { self.with_node(&mut body, node, &open, name) } else { None };
                // The number that a look at the file gives.
                let inode = match known {
                    Some(inode) => inode,
                    None if name == b"." => self.inode(node, &found),
                    None => match own::node(node, name).filter(|_| self.whole) {
                        Some(own) => own,
                        None => self.on_its_device(entry.ino(), &found),
                    },
                };
                body.long(inode.max(1)).long(at);
                body.word(name.len() as u32).word(kind(entry.file_type()));
                body.0.extend(name);
                body.zeroes(body.0.len().next_multiple_of(ALIGNMENT) - body.0.len());
                if let Some(Handle::Directory(directory)) = self.handles.get_mut(&handle) {
                    directory.at = at;
                }
                if entries.is_buffer_empty() {
                    break;
                }
            }
            if body.0.len() == length {
                break;
            }
        }
        Ok(body)
    }

    /// `struct fuse_entry_out` of an entry; without a node where there can be none: the guest asks when it wants to know.
    /// The inode's number, where there is one.
    fn with_node(
        &mut self,
        body: &mut Body,
        node: u64,
        directory: &OwnedFd,
        name: &[u8],
    ) -> Option<u64> {
        let unseen = matches!(name, b"." | b"..") || self.whole && own::node(node, name).is_some();
        let found = if unseen { Err(Errno::NOENT) } else { stat_at(directory, name) };
        match found.and_then(|found| Ok((self.entry(body, node, name, &found)?, found))) {
            Ok((node, found)) => Some(self.inode(node, &found)),
            Err(_) => {
                body.zeroes(BEFORE_ENTRY);
                None
            }
        }
    }
}

/// `DT_*` (readdir(3)).
fn kind(kind: FileType) -> u32 {
    match kind {
        FileType::Fifo => 1,
        FileType::CharacterDevice => 2,
        FileType::Directory => 4,
        FileType::BlockDevice => 6,
        FileType::RegularFile => 8,
        FileType::Symlink => 10,
        FileType::Socket => 12,
        FileType::Unknown => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::ROOT;

    fn long(bytes: &[u8]) -> u64 {
        u64::from_le_bytes(bytes[..8].try_into().expect("eight"))
    }

    #[test]
    fn the_number_of_an_entry_is_its_files() {
        let root = tempfile::TempDir::new().expect("a directory");
        std::fs::create_dir(root.path().join("directory")).expect("made");
        std::fs::write(root.path().join("file"), "").expect("written");
        let mut files = Files::new(root.path(), 1 << 30).expect("a tree");
        // As of a device that is not the first one that the guest sees.
        files.next_device = 3;
        for plus in [false, true] {
            let handle = long(&files.open_directory(ROOT).expect("opened").0);
            let mut asked = Body::default();
            asked.long(handle).long(0).word(4096);
            let bytes = files.list(ROOT, &mut Fields(&asked.0), plus).expect("listed").0;
            let (before, mut at, mut seen) = (if plus { BEFORE_ENTRY } else { 0 }, 0, 0);
            while at < bytes.len() {
                let entry = &bytes[at + before..];
                let length = usize::from(entry[16]);
                let name = &entry[BEFORE_NAME..BEFORE_NAME + length];
                at += before + (BEFORE_NAME + length).next_multiple_of(ALIGNMENT);
                let node = match name {
                    b".." => continue,
                    b"." => ROOT,
                    name => long(&files.look_up(ROOT, name).expect("there").0),
                };
                let state = files.state(node).expect("its state");
                assert_eq!(long(entry), files.inode(node, &state), "{plus} {name:?}");
                seen += 1;
            }
            assert_eq!(seen, 3);
        }
    }
}
