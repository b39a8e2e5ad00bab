//! What a guest has of files, for another bridge that goes on with a clone of it: which number stands for which.
//!
//! The numbers are this side's own, never the guest's. What they stand for is found again by its name, below the same root,
//! in the view of that other bridge's sandbox: so whoever wrote a table gets nothing by it that its reader could not open.

use super::directories::Directory;
use super::found::{identity, stat};
use super::nodes::{Identity, Known, ROOT, counter};
use super::{Files, Handle, OWN, Result, on_device, serve, shared};
use crate::wire::fields::{Reader, Writer};
use rustix::fs::{Mode, OFlags};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fmt;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// What an open file is.
const FILE: u8 = 0;
const MACHINE_ID: u8 = 1;
const DIRECTORY: u8 = 2;
const EMPTY: u8 = 3;
const LOST: u8 = 4;

/// Why a table is not taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It is none.
    None,
    /// So many files are open by it, of how many there may be.
    TooMany(u64, usize),
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::None => f.write_str("its table is none"),
            Unfit::TooMany(count, most) => write!(
                f,
                "its guest has {count} files open, and a fork started here may have {most}, half of its \
                 limit: raise that (ulimit -n {})",
                count.saturating_mul(2)
            ),
        }
    }
}

/// Whether what a name stands for now is what it stood for. What has another device is on a file system that each
/// sandbox has for itself, with a copy of what was there.
fn same(was: Identity, is: Identity) -> bool {
    was == is || was.device != is.device
}

/// The device of a file, as its two numbers.
fn device(Identity { device, .. }: Identity) -> (u32, u32) {
    ((device >> 32) as u32, device as u32)
}

impl Files {
    /// Everything that the guest was given a number of.
    ///
    /// # Errors
    /// An open file cannot be looked at.
    pub fn save(&self) -> Result<Vec<u8>> {
        let mut w = Writer::default().byte(u8::from(self.written));
        w = w.long(self.next_device).long(self.devices.len() as u64);
        for (&(major, minor), &number) in &self.devices {
            w = w.word(major).word(minor).long(number);
        }
        w = self.nodes.save(w);
        w = w.long(self.next_handle).long(self.handles.len() as u64);
        for (&number, handle) in &self.handles {
            w = w.long(number);
            w = match handle {
                Handle::Lost { node } => w.byte(LOST).long(*node),
                Handle::File { node, .. } if self.is_own_identity(*node) => {
                    w.byte(MACHINE_ID).long(*node)
                }
                Handle::File { file, node } => {
                    let flags = rustix::fs::fcntl_getfl(file)?.bits();
                    identity(&stat(file)?).save(w.byte(FILE).long(*node).word(flags))
                }
                Handle::Directory(Directory { open: None, node, .. }) => w.byte(EMPTY).long(*node),
                Handle::Directory(Directory { open: Some(open), at, node }) => {
                    identity(&stat(open)?).save(w.byte(DIRECTORY).long(*node).long(*at))
                }
            };
        }
        Ok(w.0)
    }

    /// Takes over what another bridge's guest had. How many open files are not to be had any more: whoever uses them is told
    /// so (`ESTALE`). What is below the paths that are `apart` is a copy on the same file system, perhaps.
    ///
    /// # Errors
    /// It is no such table; there are more open files than this process may have.
    pub fn adopt(&mut self, table: &[u8], apart: &[PathBuf]) -> std::result::Result<usize, Unfit> {
        let mut r = Reader(table);
        self.adopt_nodes(&mut r, apart).ok_or(Unfit::None)?;
        let count = r.long().ok_or(Unfit::None)?;
        if count > self.most_open as u64 {
            return Err(Unfit::TooMany(count, self.most_open));
        }
        let lost = self.adopt_handles(&mut r, count, apart);
        lost.filter(|_| r.0.is_empty()).ok_or(Unfit::None)
    }

    fn adopt_nodes(&mut self, r: &mut Reader<'_>, apart: &[PathBuf]) -> Option<()> {
        (self.written, self.next_device) = (r.flag()?, r.long()?);
        for _ in 0..r.long()? {
            let (device, number) = ((r.word()?, r.word()?), r.long()?);
            self.devices.insert(device, number);
        }
        self.nodes.adopt(r)?;
        let mut left = HashSet::new();
        for Known { node, was, several, inode } in self.nodes.known_ones() {
            if node <= ROOT + OWN.len() as u64 {
                continue;
            }
            match self.at_its_name(node).and_then(|named| stat(&named)) {
                Ok(found) if same(was, identity(&found)) || self.is_apart(node, apart) => {
                    // Whatever it is here: the guest's kernel finds a socket that is bound by the number that it had.
                    let inode = inode.or_else(|| {
                        let device = self.devices.get(&device(was))?;
                        Some(on_device(was.inode, *device))
                    });
                    self.nodes.identify(node, identity(&found), inode);
                    if identity(&found) != was {
                        left.insert(device(was));
                    }
                    if let Some(mount) = shared(&found).filter(|_| several) {
                        self.nodes.share(node, mount);
                    }
                }
                _ => self.nodes.lose(node),
            }
        }
        // What is new must not have the number of what was there: devices' own numbers are given again, too.
        self.devices.retain(|device, _| !left.contains(device));
        self.next_handle = counter(r)?;
        Some(())
    }

    fn adopt_handles(
        &mut self,
        r: &mut Reader<'_>,
        count: u64,
        apart: &[PathBuf],
    ) -> Option<usize> {
        let mut lost = 0;
        for _ in 0..count {
            let (number, kind, node) = (r.long()?, r.byte()?, r.long()?);
            let handle = match kind {
                FILE => {
                    let (flags, was) = (r.word()?, Identity::saved(r)?);
                    let opened = self.again(node, apart, was, |named| serve::reopen(named, flags));
                    opened.map(|file| Handle::File { file, node })
                }
                MACHINE_ID => {
                    let made = ringfence_sys::fd::in_memory(&self.machine_id).ok();
                    made.map(|file| Handle::File { file, node })
                }
                DIRECTORY => {
                    let (at, was) = (r.long()?, Identity::saved(r)?);
                    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                    let open = |named: &OwnedFd| {
                        rustix::fs::open(Files::through(named), flags, Mode::empty())
                    };
                    self.again(node, apart, was, open).map(|opened| {
                        // It stands at its beginning, and is moved when it is read on.
                        let _ = rustix::fs::seek(&opened, rustix::fs::SeekFrom::Start(at));
                        Handle::Directory(Directory { open: Some(Rc::new(opened)), at, node })
                    })
                }
                EMPTY => Some(Handle::Directory(Directory { open: None, at: 0, node })),
                LOST => None,
                _ => return None,
            };
            lost += usize::from(handle.is_none());
            if number >= self.next_handle {
                return None;
            }
            self.handles.insert(number, handle.unwrap_or(Handle::Lost { node }));
        }
        Some(lost)
    }

    /// Opens once more what was open, where it is there.
    fn again(
        &self,
        node: u64,
        apart: &[PathBuf],
        was: Identity,
        open: impl FnOnce(&OwnedFd) -> Result<OwnedFd>,
    ) -> Option<OwnedFd> {
        let named = self.at_its_name(node).ok()?;
        let found = stat(&named).ok()?;
        let same = same(was, identity(&found)) || self.is_apart(node, apart);
        same.then(|| open(&named).ok()).flatten()
    }

    /// Whether a node is below one of these paths.
    fn is_apart(&self, node: u64, apart: &[PathBuf]) -> bool {
        let path = if apart.is_empty() { None } else { self.nodes.path(node) };
        let path = path.map(|path| Path::new("/").join(OsStr::from_bytes(&path)));
        path.is_some_and(|path| apart.iter().any(|above| path.starts_with(above)))
    }

    /// Whether a node is the file that holds the guest's own identity.
    fn is_own_identity(&self, node: u64) -> bool {
        !self.machine_id.is_empty()
            && self.nodes.path(node).is_some_and(|path| path == super::MACHINE_ID)
    }

    /// What tells a guest's kernel to forget what it holds of the file with its identity, where it knows it
    /// (`FUSE_NOTIFY_INVAL_INODE`).
    pub fn forget_identity(&self) -> Option<Vec<u8>> {
        const INVALID: u32 = 2;
        let node = self.nodes.at(super::MACHINE_ID)?;
        let body = Writer::default().long(node).long(0).long(0).0;
        let length = 16 + body.len() as u32;
        Some([Writer::default().word(length).word(INVALID).long(0).0, body].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::abi::Opcode;
    use rustix::io::Errno;
    use std::fs;

    fn place(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("a directory");
        path
    }

    fn ask(files: &mut Files, opcode: Opcode, node: u64, body: &[u8]) -> Result<Vec<u8>> {
        files.serve(opcode, node, super::super::Fields(body)).map(|body| body.0)
    }

    fn long(bytes: &[u8]) -> u64 {
        u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"))
    }

    fn opened(files: &mut Files, name: &str) -> (u64, u64) {
        let name = [name.as_bytes(), b"\0"].concat();
        let node = long(&ask(files, Opcode::Lookup, ROOT, &name).expect("found"));
        (node, long(&ask(files, Opcode::Open, node, &[0; 8]).expect("opened")))
    }

    fn read(files: &mut Files, (node, handle): (u64, u64)) -> Result<Vec<u8>> {
        let body = Writer::default().long(handle).long(1).word(100).word(0).0;
        ask(files, Opcode::Read, node, &body)
    }

    fn other(root: &Path) -> Files {
        Files::new(root, 1 << 30).expect("served")
    }

    #[test]
    fn numbers_stand_for_the_same_files_in_another_bridge() {
        let root = place("ringfence-saved");
        for name in ["kept", "removed", "replaced"] {
            fs::write(root.join(name), name).expect("written");
        }
        let mut files = other(&root);
        let [kept, removed, replaced] =
            ["kept", "removed", "replaced"].map(|name| opened(&mut files, name));
        fs::remove_file(root.join("removed")).expect("removed");
        fs::write(root.join("new"), "another").expect("written");
        fs::rename(root.join("new"), root.join("replaced")).expect("renamed");
        let table = files.save().expect("saved");
        let mut clone = other(&root);
        assert_eq!(clone.adopt(&table, &[]), Ok(2));
        assert_eq!(read(&mut clone, kept).as_deref(), Ok(&b"ept"[..]));
        assert_eq!(read(&mut clone, removed), Err(Errno::STALE));
        assert_eq!(read(&mut clone, replaced), Err(Errno::STALE));
        // What the first one has open is still there for it.
        assert_eq!(read(&mut files, removed).as_deref(), Ok(&b"emoved"[..]));
        // New numbers are none that are in use.
        let (node, handle) = opened(&mut clone, "replaced");
        assert!(node > replaced.0 && handle > replaced.1, "{node} {handle}");
        assert_eq!(clone.save().map(|again| again.len() > 100), Ok(true));
        fs::remove_dir_all(&root).expect("removed");
    }

    #[test]
    fn a_copy_on_another_file_system_is_taken_for_what_it_is_a_copy_of() {
        let file = |device, inode, born| Identity { device, inode, born };
        assert!(same(file(1, 2, 3), file(1, 2, 3)) && same(file(1, 2, 3), file(3, 4, 5)));
        assert!(!same(file(1, 2, 3), file(1, 3, 3)), "another file has the name");
        assert!(!same(file(1, 2, 3), file(1, 2, 4)), "another file has the name and the number");
    }

    /// The number by which a guest's kernel knows a node.
    fn inode(files: &mut Files, node: u64) -> u64 {
        let body = Writer::default().word(0).word(0).long(0).0;
        long(&ask(files, Opcode::GetAttr, node, &body).expect("its state")[16..])
    }

    #[test]
    fn a_copy_has_the_number_that_it_was_known_by_and_nothing_else_gets_that() {
        let root = place("ringfence-saved-numbers");
        for generation in ["first", "second", "third"] {
            fs::create_dir(root.join(generation)).expect("a directory");
        }
        fs::write(root.join("first/file"), "file").expect("written");
        let mut files = other(&root.join("first"));
        let (node, _) = opened(&mut files, "file");
        let number = inode(&mut files, node);
        let apart = [PathBuf::from("/")];
        for (before, generation) in [("first", "second"), ("second", "third")] {
            let (before, here) = (root.join(before), root.join(generation));
            fs::copy(before.join("file"), here.join("file")).expect("copied");
            // Its file has the number there that the other one had.
            fs::hard_link(before.join("file"), here.join("other")).expect("linked");
            let table = files.save().expect("saved");
            files = other(&here);
            assert_eq!(files.adopt(&table, &apart), Ok(0), "{generation}");
            let (new, _) = opened(&mut files, "other");
            let (told, new) = (inode(&mut files, node), inode(&mut files, new));
            assert!(told == number && new != number, "{generation}: {told} {new} {number}");
        }
        fs::remove_dir_all(&root).expect("removed");
    }

    #[test]
    fn no_table_leads_out_of_the_root() {
        let root = place("ringfence-saved-out");
        fs::create_dir(root.join("in")).expect("a directory");
        fs::write(root.join("secret"), "secret").expect("written");
        fs::write(root.join("in/file"), "file").expect("written");
        let mut files = other(&root.join("in"));
        let file = opened(&mut files, "file");
        let table = files.save().expect("saved");
        let at = table.windows(4).position(|bytes| bytes == b"file").expect("its name");
        for name in [b"../x", b"a/bc", b"..\0\0"] {
            let mut bad = table.clone();
            bad[at..at + 4].copy_from_slice(name);
            let mut clone = other(&root.join("in"));
            assert!(!matches!(clone.adopt(&bad, &[]), Ok(lost) if lost != 1), "{name:?}");
            assert!(read(&mut clone, file).is_err(), "{name:?}");
        }
        // Cut short anywhere it is none, and nothing worse.
        for end in 0..table.len() {
            assert_eq!(
                other(&root.join("in")).adopt(&table[..end], &[]),
                Err(Unfit::None),
                "{end}"
            );
        }
        fs::remove_dir_all(&root).expect("removed");
    }
}
