//! Which file a node is: the one at its name, if that is the one which the guest was given this node for.
//!
//! The host may put another file at a name at any time, as editors do when they save, and a directory too. What a program does
//! with what it has open, or in the directory that it is in, must never be done to that one. So what is found by name is
//! compared with what the node was given for, and it is the descriptor that was compared which is used. Where it is another
//! one, what is open here of the node stands for it; else the answer is `ESTALE`, at which the guest's kernel looks a path's
//! names up anew.

use super::directories::Directory;
use super::nodes::{DEEPEST, Identity, ROOT};
use super::{Files, Handle, Result};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// What is asked about a file.
const WANTED: StatxFlags =
    StatxFlags::BASIC_STATS.union(StatxFlags::MNT_ID).union(StatxFlags::BTIME);

impl Files {
    /// A descriptor of what a node is: one that only names it (`O_PATH`), or that of something open.
    pub(super) fn named(&self, node: u64) -> Result<OwnedFd> {
        self.identified(node).map(|(fd, _)| fd)
    }

    /// What a node is now.
    pub(super) fn state(&self, node: u64) -> Result<Statx> {
        self.identified(node).map(|(_, found)| found)
    }

    /// The two together.
    pub(super) fn identified(&self, node: u64) -> Result<(OwnedFd, Statx)> {
        self.by_name(node).or_else(|why| self.open_here(node, why))
    }

    /// What a node is, to be opened once more. Programs open a path to have the file that is there now, also where they have
    /// open what was there: that this is another one is answered first, at which the path's names are looked up. Who is meant by
    /// what is open (`/proc/self/fd/N`) comes again, and the node has no name then.
    pub(super) fn meant(&mut self, node: u64) -> Result<OwnedFd> {
        let found = match self.by_name(node) {
            Err(Errno::STALE) if self.open_here(node, Errno::STALE).is_ok() => {
                self.nodes.leave(node);
                Err(Errno::STALE)
            }
            found => found.or_else(|why| self.open_here(node, why)),
        };
        found.map(|(fd, _)| fd)
    }

    /// What has the node's name, if it is the node: by its path, or in a directory that is held.
    fn by_name(&self, node: u64) -> Result<(OwnedFd, Statx)> {
        let this = |(_, found): &(OwnedFd, Statx)| self.nodes.is(node, identity(found));
        let found = self.at_its_name(node).and_then(looked_at);
        if !found.as_ref().is_ok_and(this)
            && let Some(moved) = self.in_a_place(node).filter(this)
        {
            return Ok(moved);
        }
        match found {
            Ok(found) if this(&found) => Ok(found),
            // It, or a directory on the way, is something else by now.
            Ok(_) | Err(Errno::LOOP | Errno::NOTDIR) => Err(Errno::STALE),
            // It may be there by another one of its names.
            Err(Errno::NOENT) if self.nodes.has_others(node) => Err(Errno::STALE),
            Err(errno) => Err(errno),
        }
    }

    /// What has a node's name in the nearest directory above it that programs are in, or have open; that directory itself.
    fn in_a_place(&self, node: u64) -> Option<(OwnedFd, Statx)> {
        let open = self.handles.values().filter_map(|handle| match handle {
            Handle::Directory(Directory { open: Some(open), node, .. }) => Some((*node, &**open)),
            _ => None,
        });
        let open: HashMap<u64, &OwnedFd> = open.collect();
        let (mut names, mut at) = (Vec::new(), node);
        let place = loop {
            if let Some(place) = self.places.get(at).or_else(|| open.get(&at).copied()) {
                break place;
            }
            let (parent, name) = self.nodes.name(at).filter(|_| names.len() < DEEPEST)?;
            names.push(name);
            at = parent;
            if at == ROOT {
                return None;
            }
        };
        names.reverse();
        let found = match names.is_empty() {
            true => rustix::io::fcntl_dupfd_cloexec(place, 0),
            false => below(place, &names.join(&b'/')),
        };
        found.and_then(looked_at).ok()
    }

    /// What is open of a node; else `why`.
    fn open_here(&self, node: u64, why: Errno) -> Result<(OwnedFd, Statx)> {
        let (mut open, mut lost) = (None, false);
        for handle in self.handles.values() {
            match handle {
                Handle::File { file, node: one } if *one == node => open = Some(file),
                Handle::Lost { node: one } => lost |= *one == node,
                _ => {}
            }
        }
        let open = open.ok_or(if lost { Errno::STALE } else { why })?;
        looked_at(rustix::io::fcntl_dupfd_cloexec(open, 0)?)
    }

    /// What has a node's name, whichever file that is by now: to be compared before it is used.
    pub(super) fn at_its_name(&self, node: u64) -> Result<OwnedFd> {
        let path = self.nodes.path(node).ok_or(Errno::NOENT)?;
        below(&self.root, &path)
    }
}

/// A descriptor that only names what is at a path below a directory (`O_PATH`).
fn below(directory: &OwnedFd, path: &[u8]) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // Mounts are crossed: the view is made of them.
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(directory, OsStr::from_bytes(path), flags, Mode::empty(), how) {
        // With --strict there is no such call, and a path may be longer than one that a call takes (PATH_MAX), since
        // programs go from directory to directory. No name is one that leads up, so that step by step is the same.
        Err(Errno::NOSYS | Errno::NAMETOOLONG) => {
            let mut found = rustix::fs::openat(directory, ".", flags, Mode::empty())?;
            for name in path.split(|&byte| byte == b'/') {
                found = rustix::fs::openat(&found, OsStr::from_bytes(name), flags, Mode::empty())?;
            }
            Ok(found)
        }
        other => other,
    }
}

fn looked_at(fd: OwnedFd) -> Result<(OwnedFd, Statx)> {
    stat(&fd).map(|found| (fd, found))
}

pub(super) fn stat(fd: &OwnedFd) -> Result<Statx> {
    rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, WANTED)
}

pub(super) fn stat_at(directory: &impl AsFd, name: &[u8]) -> Result<Statx> {
    rustix::fs::statx(directory, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW, WANTED)
}

/// Which file it is. File systems on devices (those have a major number) give the number of a removed file to a new one, so
/// there the time of birth belongs to it. An overlay tells another one when it has copied the file up.
pub(super) fn identity(found: &Statx) -> Identity {
    let told = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
    let time = &found.stx_btime;
    let born = (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec.into());
    Identity {
        device: u64::from(found.stx_dev_major) << 32 | u64::from(found.stx_dev_minor),
        inode: found.stx_ino,
        born: if told && found.stx_dev_major != 0 { born } else { 0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::ROOT;
    use crate::files::abi::{Fields, Opcode};
    use crate::wire::fields::Writer;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::path::Path;
    use tempfile::TempDir;

    fn ask(files: &mut Files, opcode: Opcode, node: u64, body: &[u8]) -> Result<Vec<u8>> {
        files.serve(opcode, node, Fields(body)).map(|body| body.0)
    }

    fn number(answer: Result<Vec<u8>>) -> Result<u64> {
        answer.map(|bytes| u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")))
    }

    fn look_up(files: &mut Files, parent: u64, name: &[u8]) -> Result<u64> {
        number(ask(files, Opcode::Lookup, parent, &[name, b"\0"].concat()))
    }

    /// Sets a file's mode (1), or its length (8).
    fn change(files: &mut Files, node: u64, what: u32) -> Result<()> {
        let w = Writer::default().word(what).word(0).long(0).long(2).long(0).long(0).long(0);
        let w = w.long(0).word(0).word(0).word(0).word(0o600).word(0).word(0).word(0).word(0);
        ask(files, Opcode::SetAttr, node, &w.0).map(|_| ())
    }

    /// A tree, and what is to be put in place of something in it.
    fn tree() -> (TempDir, Files) {
        let root = TempDir::new().expect("a directory");
        for (name, text) in [("file", "the first"), ("other", "another one")] {
            fs::write(root.path().join(name), text).expect("written");
            let mode = fs::Permissions::from_mode(0o644);
            fs::set_permissions(root.path().join(name), mode).expect("set");
        }
        let files = Files::new(root.path(), 1 << 30).expect("a tree");
        (root, files)
    }

    fn untouched(file: &Path) -> bool {
        let found = fs::metadata(file).expect("there");
        found.mode() & 0o777 == 0o644 && fs::read(file).expect("read") == b"another one"
    }

    #[test]
    fn what_is_done_to_an_open_file_is_not_done_to_the_one_that_has_its_name() {
        let (root, mut files) = tree();
        let node = look_up(&mut files, ROOT, b"file").expect("found");
        ask(&mut files, Opcode::Open, node, &[0; 8]).expect("opened");
        fs::hard_link(root.path().join("file"), root.path().join("kept")).expect("linked");
        let own = fs::metadata(root.path().join("file")).expect("there").ino();
        let own = |files: &mut Files| files.state(node).map(|found| found.stx_ino == own);
        fs::rename(root.path().join("other"), root.path().join("file")).expect("renamed");
        assert_eq!(own(&mut files), Ok(true));
        for what in [1, 8] {
            assert_eq!(change(&mut files, node, what), Ok(()));
        }
        // Who opens a path gets the new one at this answer, who opens what is open once more asks again.
        let flags = [2, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(ask(&mut files, Opcode::Open, node, &flags), Err(Errno::STALE));
        let again = number(ask(&mut files, Opcode::Open, node, &flags));
        let written = Writer::default().long(again.expect("opened")).long(0).word(3).word(0);
        let written = [&written.long(0).long(0).0[..], b"own"].concat();
        ask(&mut files, Opcode::Write, node, &written).expect("written");
        assert_eq!(fs::read(root.path().join("kept")).expect("read"), b"own");
        let link = [&node.to_le_bytes()[..], b"linked\0"].concat();
        ask(&mut files, Opcode::Link, ROOT, &link).expect("linked");
        assert_eq!(fs::read(root.path().join("linked")).expect("read"), b"own");
        assert!(untouched(&root.path().join("file")));
    }

    #[test]
    fn nothing_is_done_to_the_file_that_has_the_name_of_one_which_is_not_open() {
        let (root, mut files) = tree();
        let node = look_up(&mut files, ROOT, b"file").expect("found");
        fs::rename(root.path().join("other"), root.path().join("file")).expect("renamed");
        assert!(files.state(node).is_err_and(|errno| errno == Errno::STALE));
        for what in [1, 8] {
            assert_eq!(change(&mut files, node, what), Err(Errno::STALE));
        }
        let attribute = [&[1, 0, 0, 0, 0, 0, 0, 0], &b"user.a\0b"[..]].concat();
        let asked: [(Opcode, &[u8]); 6] = [
            (Opcode::Open, &[1, 2, 0, 0, 0, 0, 0, 0]),
            (Opcode::Access, &[0; 8]),
            (Opcode::SetAttribute, &attribute),
            (Opcode::GetAttribute, &attribute),
            (Opcode::ListAttributes, &[0; 8]),
            (Opcode::RemoveAttribute, b"user.a\0"),
        ];
        for (opcode, body) in asked {
            assert_eq!(ask(&mut files, opcode, node, body), Err(Errno::STALE), "{opcode:?}");
        }
        let link = [&node.to_le_bytes()[..], b"linked\0"].concat();
        assert_eq!(ask(&mut files, Opcode::Link, ROOT, &link), Err(Errno::STALE));
        assert!(untouched(&root.path().join("file")));
        // By its name it is to be had.
        let new = look_up(&mut files, ROOT, b"file").expect("found");
        assert_ne!(new, node);
        assert_eq!(change(&mut files, new, 1), Ok(()));
        assert!(!untouched(&root.path().join("file")));
    }

    #[test]
    fn nothing_is_done_in_a_directory_that_has_the_name_of_another_one() {
        let (root, mut files) = tree();
        let place = root.path().join("directory");
        fs::create_dir(&place).expect("made");
        fs::write(place.join("other"), "the first").expect("written");
        let node = look_up(&mut files, ROOT, b"directory").expect("found");
        let inner = look_up(&mut files, node, b"other").expect("found");
        fs::rename(&place, root.path().join("moved")).expect("renamed");
        fs::create_dir(&place).expect("made");
        fs::rename(root.path().join("other"), place.join("other")).expect("renamed");
        let rename = |to: u64| [&to.to_le_bytes()[..], b"other\0new\0"].concat();
        let create = [&[1, 2, 0, 0, 0o200, 1, 0, 0], &[0; 8], &b"other\0"[..]].concat();
        let asked: [(Opcode, &[u8]); 9] = [
            (Opcode::Lookup, b"other\0"),
            (Opcode::Unlink, b"other\0"),
            (Opcode::RemoveDirectory, b"other\0"),
            (Opcode::MakeDirectory, &[&[0; 8], &b"new\0"[..]].concat()),
            (Opcode::MakeNode, &[&[0; 16], &b"new\0"[..]].concat()),
            (Opcode::Symlink, b"new\0to\0"),
            (Opcode::Create, &create),
            (Opcode::Rename, &rename(ROOT)),
            (Opcode::OpenDirectory, &[0; 8]),
        ];
        for (opcode, body) in asked {
            assert_eq!(ask(&mut files, opcode, node, body), Err(Errno::STALE), "{opcode:?}");
        }
        let into = [&node.to_le_bytes()[..], b"file\0other\0"].concat();
        assert_eq!(ask(&mut files, Opcode::Rename, ROOT, &into), Err(Errno::STALE));
        // Nor with what was found in it, nor through a link in its place.
        assert_eq!(change(&mut files, inner, 8), Err(Errno::STALE));
        let names = fs::read_dir(&place).expect("read").count();
        assert!(untouched(&place.join("other")) && names == 1);
        fs::rename(&place, root.path().join("away")).expect("renamed");
        std::os::unix::fs::symlink("away", &place).expect("linked");
        assert_eq!(change(&mut files, inner, 8), Err(Errno::STALE));
        assert_eq!(look_up(&mut files, node, b"other"), Err(Errno::STALE));
        assert!(untouched(&root.path().join("away/other")));
    }

    #[test]
    fn programs_stay_in_a_directory_that_is_moved() {
        let (root, mut files) = tree();
        let (above, moved) = (root.path().join("above"), root.path().join("moved"));
        fs::create_dir_all(above.join("place")).expect("made");
        let parent = look_up(&mut files, ROOT, b"above").expect("found");
        let node = look_up(&mut files, parent, b"place").expect("found");
        ask(&mut files, Opcode::Access, node, &[0; 8]).expect("allowed");
        // Nothing is at its name, and then another directory with such a file.
        fs::rename(&above, &moved).expect("renamed");
        for other in [false, true] {
            if other {
                fs::create_dir_all(above.join("place")).expect("made");
                fs::rename(root.path().join("other"), above.join("place/file")).expect("renamed");
            }
            let create = [&[1, 2, 0, 0, 0o200, 1, 0, 0], &[0; 8], &b"file\0"[..]].concat();
            let file = number(ask(&mut files, Opcode::Create, node, &create)).expect("made");
            files.handles.clear();
            assert_eq!(look_up(&mut files, node, b"file"), Ok(file));
            assert_eq!(change(&mut files, file, 8), Ok(()));
            assert_eq!(fs::read(moved.join("place/file")).expect("read"), [0; 2]);
            ask(&mut files, Opcode::OpenDirectory, node, &[0; 8]).expect("opened");
            ask(&mut files, Opcode::Unlink, node, b"file\0").expect("removed");
            assert!(!moved.join("place/file").exists());
            assert_eq!(change(&mut files, file, 8), Err(Errno::NOENT));
        }
        assert!(untouched(&above.join("place/file")));
        // Until the guest forgets it.
        files.handles.clear();
        files.forget_node(node, 100);
        assert!(files.places.get(node).is_none());
    }

    #[test]
    fn a_number_that_is_used_again_is_another_file() {
        let (root, _) = tree();
        let mut first =
            stat_at(&rustix::fs::CWD, root.path().as_os_str().as_bytes()).expect("there");
        let mut second = first;
        second.stx_btime.tv_nsec ^= 1;
        // On a device, where it is known when files were made.
        (first.stx_dev_major, second.stx_dev_major) = (8, 8);
        first.stx_mask |= StatxFlags::BTIME.bits();
        second.stx_mask = first.stx_mask;
        assert_ne!(identity(&first), identity(&second));
        first.stx_mask ^= StatxFlags::BTIME.bits();
        second.stx_mask = first.stx_mask;
        assert_eq!(identity(&first), identity(&second));
        // Not by file systems of no device: an overlay's files are born again when they are copied up.
        first.stx_mask |= StatxFlags::BTIME.bits();
        second.stx_mask = first.stx_mask;
        (first.stx_dev_major, second.stx_dev_major) = (0, 0);
        assert_eq!(identity(&first), identity(&second));
    }
}
