//! A hostile guest's requests for files: nothing outside the tree is reached, nothing panics.
#![allow(missing_docs, clippy::unwrap_used)]

use proptest::prelude::*;
use ringfence_guest::files::Files;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::Path;
use tempfile::TempDir;

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const READLINK: u32 = 5;
const SYMLINK: u32 = 6;
const MKNOD: u32 = 8;
const MKDIR: u32 = 9;
const UNLINK: u32 = 10;
const RENAME: u32 = 12;
const LINK: u32 = 13;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const RELEASE: u32 = 18;
const SETXATTR: u32 = 21;
const REMOVEXATTR: u32 = 24;
const OPENDIR: u32 = 27;
const READDIR: u32 = 28;
const CREATE: u32 = 35;
const READDIRPLUS: u32 = 44;
const ENOENT: i32 = 2;
const EPERM: i32 = 1;
const EBADF: i32 = 9;
const ENOTDIR: i32 = 20;
const EINVAL: i32 = 22;
const ENOSYS: i32 = 38;
const EOPNOTSUPP: i32 = 95;
const ESTALE: i32 = 116;

/// A request as the kernel makes it.
fn request(opcode: u32, node: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = (40 + body.len() as u32).to_le_bytes().to_vec();
    bytes.extend(opcode.to_le_bytes());
    bytes.extend(7_u64.to_le_bytes());
    bytes.extend(node.to_le_bytes());
    bytes.extend([0; 16]);
    bytes.extend(body);
    bytes
}

struct Guest {
    files: Files,
    root: TempDir,
}

impl Guest {
    fn new() -> Guest {
        let root = TempDir::new().unwrap();
        fs::create_dir(root.path().join("tree")).unwrap();
        fs::write(root.path().join("secret"), "outside").unwrap();
        fs::write(root.path().join("tree/file"), "inside").unwrap();
        Guest { files: Files::new(&root.path().join("tree"), 1 << 30).unwrap(), root }
    }

    fn tree(&self, name: &str) -> std::path::PathBuf {
        self.root.path().join("tree").join(name)
    }

    /// A request's answer: its error, its body.
    fn ask(&mut self, opcode: u32, node: u64, body: &[u8]) -> Result<Vec<u8>, i32> {
        let reply = self.files.answer(&request(opcode, node, body)).unwrap();
        assert_eq!(u32::from_le_bytes(reply[..4].try_into().unwrap()) as usize, reply.len());
        assert_eq!(reply[8..16], 7_u64.to_le_bytes());
        match i32::from_le_bytes(reply[4..8].try_into().unwrap()) {
            0 => Ok(reply[16..].to_vec()),
            error => Err(-error),
        }
    }

    fn node(&mut self, name: &str) -> Result<u64, i32> {
        let body = self.ask(LOOKUP, 1, &[name.as_bytes(), b"\0"].concat())?;
        Ok(u64::from_le_bytes(body[..8].try_into().unwrap()))
    }

    fn open(&mut self, node: u64, flags: u32) -> Result<u64, i32> {
        let body = self.ask(OPEN, node, &[flags.to_le_bytes(), [0; 4]].concat())?;
        Ok(u64::from_le_bytes(body[..8].try_into().unwrap()))
    }

    fn read(&mut self, handle: u64) -> Result<Vec<u8>, i32> {
        let mut body = handle.to_le_bytes().to_vec();
        body.extend([0; 8]);
        body.extend(100_u32.to_le_bytes());
        body.extend([0; 20]);
        self.ask(READ, 1, &body)
    }

    fn open_directory(&mut self, node: u64) -> Result<u64, i32> {
        let body = self.ask(OPENDIR, node, &[0; 8])?;
        Ok(u64::from_le_bytes(body[..8].try_into().unwrap()))
    }

    /// One reply of a directory's entries: their names, and the place behind each.
    fn list(&mut self, opcode: u32, handle: u64, from: u64, size: u32) -> Listed {
        let mut body = [handle.to_le_bytes(), from.to_le_bytes()].concat();
        body.extend(size.to_le_bytes());
        body.extend([0; 20]);
        let bytes = self.ask(opcode, 1, &body)?;
        assert!(bytes.len() <= size as usize, "{}", bytes.len());
        let before = if opcode == READDIRPLUS { 128 } else { 0 };
        let (mut at, mut entries) = (0, Vec::new());
        while at < bytes.len() {
            let entry = &bytes[at + before..];
            let place = u64::from_le_bytes(entry[8..16].try_into().unwrap());
            let length = u32::from_le_bytes(entry[16..20].try_into().unwrap()) as usize;
            entries.push((String::from_utf8(entry[24..24 + length].to_vec()).unwrap(), place));
            at += before + (24 + length).next_multiple_of(8);
        }
        assert_eq!(at, bytes.len());
        Ok(entries)
    }
}

/// Names, and the places behind them.
type Listed = Result<Vec<(String, u64)>, i32>;

#[test]
fn a_mapping_that_is_not_written_back_is_remembered() {
    let mut guest = Guest::new();
    let node = guest.node("file").unwrap();
    let (good, bad) = (guest.open(node, 2).unwrap(), guest.open(node, 0).unwrap());
    let mut write = |handle: u64, how: u32| {
        let mut body = [handle.to_le_bytes(), [0; 8]].concat();
        body.extend([2_u32.to_le_bytes(), how.to_le_bytes()].concat());
        body.extend([0; 16]);
        body.extend(b"in");
        let answer = guest.ask(WRITE, node, &body);
        (answer.map(|_| ()), guest.files.lost().map(|(path, why)| (path.to_owned(), why)))
    };
    assert_eq!(write(good, 1), (Ok(()), None));
    // A program is told of its own write.
    assert_eq!(write(bad, 0), (Err(EBADF), None));
    let lost = Some(("/file".into(), rustix::io::Errno::BADF));
    assert_eq!(write(bad, 1), (Err(EBADF), lost.clone()));
    assert_eq!(write(good, 1), (Ok(()), lost));
}

#[test]
fn a_directory_is_read_to_its_end_from_wherever_it_is_asked_for() {
    let mut guest = Guest::new();
    let mut names: Vec<String> = (0..3000).map(|number| format!("{number}")).collect();
    names.extend((0..300).map(|number| format!("{number:0255}")));
    for name in &names {
        fs::write(guest.tree(name), "").unwrap();
    }
    names.extend([".", "..", "file"].map(str::to_owned));
    names.sort();
    for (opcode, size) in [(READDIR, 4096), (READDIRPLUS, 4096), (READDIRPLUS, u32::MAX)] {
        let handle = guest.open_directory(1).unwrap();
        // To the end; and from the middle of each reply, as a program that took half of it.
        let (mut from, mut all) = (0, Vec::new());
        loop {
            let listed = guest.list(opcode, handle, from, size).unwrap();
            let Some(half) = listed.get(listed.len() / 2) else { break };
            from = half.1;
            all.extend(listed.into_iter().map(|(name, _)| name));
            all.sort();
            all.dedup();
        }
        assert!(all == names, "{} of {}", all.len(), names.len());
        // And from the beginning, with what came since.
        fs::write(guest.tree("new"), "").unwrap();
        let (mut from, mut all) = (0, Vec::new());
        while let [.., (_, last)] = &guest.list(opcode, handle, from, size).unwrap().clone()[..] {
            let listed = guest.list(opcode, handle, from, size).unwrap();
            all.extend(listed.into_iter().map(|(name, _)| name));
            from = *last;
        }
        assert!(all.contains(&"new".to_owned()) && all.len() == names.len() + 1, "{}", all.len());
        fs::remove_file(guest.tree("new")).unwrap();
    }
    // tmpfs gives the newest first, of whose long names few have room.
    for name in names.iter().filter(|name| name.len() == 255) {
        fs::remove_file(guest.tree(name)).unwrap();
    }
    // Places that there are not, and less room than one name takes.
    let handle = guest.open_directory(1).unwrap();
    assert_eq!(guest.list(READDIR, handle, u64::MAX, 4096), Err(EINVAL));
    assert_eq!(guest.list(READDIRPLUS, handle, 0, 1000), Err(EINVAL));
    assert!(guest.list(READDIRPLUS, handle, 0, 4096).unwrap().len() > 10);
    let file = guest.node("file").unwrap();
    assert_eq!(guest.open_directory(file), Err(ENOTDIR));
}

#[test]
fn a_file_is_found_read_and_written() {
    let mut guest = Guest::new();
    let node = guest.node("file").unwrap();
    let handle = guest.open(node, 2).unwrap();
    assert_eq!(guest.read(handle).unwrap(), b"inside");
    let mut body = handle.to_le_bytes().to_vec();
    body.extend([0; 8]);
    body.extend(3_u32.to_le_bytes());
    body.extend([0; 20]);
    body.extend(b"OUT");
    guest.ask(WRITE, node, &body).unwrap();
    assert_eq!(fs::read_to_string(guest.tree("file")).unwrap(), "OUTide");
}

#[test]
fn names_that_lead_elsewhere_are_none() {
    let mut guest = Guest::new();
    for name in ["..", ".", "", "../secret", "/etc/passwd", "a/b"] {
        assert_eq!(guest.node(name), Err(EINVAL), "{name}");
    }
    assert_eq!(guest.node("secret"), Err(ENOENT));
    // A name without its NUL.
    assert_eq!(guest.ask(LOOKUP, 1, b"file"), Err(EINVAL));
    let rename = [&1_u64.to_le_bytes()[..], b"file\0../stolen\0"].concat();
    assert_eq!(guest.ask(RENAME, 1, &rename), Err(EINVAL));
    assert!(guest.tree("file").exists() && !guest.root.path().join("stolen").exists());
}

#[test]
fn links_are_never_followed() {
    let mut guest = Guest::new();
    guest.ask(SYMLINK, 1, b"link\0../secret\0").unwrap();
    let link = guest.node("link").unwrap();
    assert_eq!(guest.ask(READLINK, link, &[]).unwrap(), b"../secret");
    assert_eq!(guest.open(link, 0), Err(EOPNOTSUPP));
    // Nor a directory that has become one since it was looked up.
    fs::create_dir(guest.tree("dir")).unwrap();
    fs::write(guest.tree("dir/secret"), "own").unwrap();
    let directory = guest.node("dir").unwrap();
    fs::remove_dir_all(guest.tree("dir")).unwrap();
    symlink("..", guest.tree("dir")).unwrap();
    assert!(guest.ask(LOOKUP, directory, b"secret\0").is_err());
    // Nor to create something behind it.
    let mut create = 0o1_u32.to_le_bytes().to_vec();
    create.extend(0o644_u32.to_le_bytes());
    create.extend([0; 8]);
    create.extend(b"link\0");
    assert_eq!(guest.ask(CREATE, 1, &create), Err(EOPNOTSUPP));
    assert_eq!(fs::read_to_string(guest.root.path().join("secret")).unwrap(), "outside");
}

#[test]
fn devices_are_not_made_and_special_files_not_opened() {
    let mut guest = Guest::new();
    let make = |mode: u32| {
        let mut body = mode.to_le_bytes().to_vec();
        body.extend(0x103_u32.to_le_bytes());
        body.extend([0; 8]);
        body.extend(b"odd\0");
        body
    };
    assert_eq!(guest.ask(MKNOD, 1, &make(0o020_666)), Err(EPERM));
    assert_eq!(guest.ask(MKNOD, 1, &make(0o060_666)), Err(EPERM));
    assert!(!guest.tree("odd").exists());
    guest.ask(MKNOD, 1, &make(0o010_644)).unwrap();
    assert!(fs::metadata(guest.tree("odd")).unwrap().file_type().is_fifo());
    let fifo = guest.node("odd").unwrap();
    // It would wait for somebody at the other end, for ever.
    assert_eq!(guest.open(fifo, 0), Err(EOPNOTSUPP));
}

#[test]
fn a_file_without_a_name_is_still_the_one_that_is_open() {
    let mut guest = Guest::new();
    let node = guest.node("file").unwrap();
    let handle = guest.open(node, 0).unwrap();
    guest.ask(UNLINK, 1, b"file\0").unwrap();
    assert_eq!(guest.read(handle).unwrap(), b"inside");
    assert!(guest.ask(GETATTR, node, &[0; 16]).is_ok());
    // It can be opened once more (`/proc/self/fd/N`), shortened, and nothing else is meant by that.
    fs::write(guest.tree("other"), "other").unwrap();
    let again = guest.open(node, 2).unwrap();
    let mut shorter = 8_u32.to_le_bytes().to_vec();
    shorter.extend([0; 12]);
    shorter.extend(2_u64.to_le_bytes());
    shorter.extend([0; 64]);
    guest.ask(SETATTR, node, &shorter).unwrap();
    assert_eq!(guest.read(again).unwrap(), b"in");
    for handle in [handle, again] {
        guest.ask(RELEASE, node, &[handle.to_le_bytes(), [0; 8], [0; 8]].concat()).unwrap();
    }
    assert_eq!(guest.open(node, 0), Err(ENOENT));
    assert_eq!(guest.ask(SETATTR, node, &shorter), Err(ENOENT));
    assert_eq!(fs::read(guest.tree("other")).unwrap(), b"other");
    // A new file of that name is another one.
    fs::write(guest.tree("file"), "new").unwrap();
    assert_ne!(guest.node("file").unwrap(), node);
}

/// The guest's kernel holds a file's content and attributes by node.
#[test]
fn the_names_of_one_file_are_one_node() {
    const LINKS: usize = 40 + 64;
    let mut guest = Guest::new();
    let first = guest.node("file").unwrap();
    let linked = guest.ask(LINK, 1, &[&first.to_le_bytes()[..], b"second\0"].concat()).unwrap();
    assert_eq!(u64::from_le_bytes(linked[..8].try_into().unwrap()), first);
    assert_eq!(linked[LINKS..LINKS + 4], 2_u32.to_le_bytes());
    // One that the host makes is found.
    fs::hard_link(guest.tree("file"), guest.tree("third")).unwrap();
    assert_eq!(guest.node("third"), Ok(first));
    // Whichever is removed or moved, inside or by the host, the others lead to it.
    let content = |guest: &mut Guest, node| {
        let handle = guest.open(node, 0).unwrap();
        let bytes = guest.read(handle).unwrap();
        guest.ask(RELEASE, node, &[handle.to_le_bytes(), [0; 8], [0; 8]].concat()).unwrap();
        bytes
    };
    guest.ask(UNLINK, 1, b"third\0").unwrap();
    assert_eq!(content(&mut guest, first), b"inside");
    let moved = [&1_u64.to_le_bytes()[..], b"file\0moved\0"].concat();
    guest.ask(RENAME, 1, &moved).unwrap();
    assert_eq!(guest.node("file"), Err(ENOENT));
    assert_eq!((guest.node("second"), guest.node("moved")), (Ok(first), Ok(first)));
    fs::remove_file(guest.tree("moved")).unwrap();
    assert_eq!(guest.node("second"), Ok(first));
    assert_eq!(content(&mut guest, first), b"inside");
    // Another file by one of the names is another one, and so are two that only look alike.
    fs::write(guest.tree("moved"), "new").unwrap();
    let moved = guest.node("moved").unwrap();
    assert_ne!(moved, first);
    assert_eq!(content(&mut guest, moved), b"new");
    assert_eq!(content(&mut guest, first), b"inside");
    // The last name is the end of it, and all that was known of it goes when the guest forgets it.
    guest.ask(UNLINK, 1, b"second\0").unwrap();
    assert_eq!(guest.open(first, 0), Err(ENOENT));
    assert!(guest.files.answer(&request(FORGET, first, &u64::MAX.to_le_bytes())).is_none());
    assert_eq!(guest.open(first, 0), Err(ESTALE));
}

/// A file's number may be given to another one by the time at which a name of that is looked up.
#[test]
fn a_node_whose_name_is_gone_is_no_other_files() {
    let mut guest = Guest::new();
    fs::hard_link(guest.tree("file"), guest.root.path().join("kept")).unwrap();
    let first = guest.node("file").unwrap();
    // The same number, by another name than the one that the node has.
    fs::rename(guest.tree("file"), guest.tree("other")).unwrap();
    fs::write(guest.tree("file"), "new").unwrap();
    let other = guest.node("other").unwrap();
    assert_ne!(other, first);
    let handle = guest.open(other, 0).unwrap();
    assert_eq!(guest.read(handle).unwrap(), b"inside");
}

/// A path of more than `PATH_MAX` bytes, which programs reach directory by directory.
#[test]
fn what_is_deeper_than_a_path_can_be_long_is_served() {
    let mut guest = Guest::new();
    let name = [&[b'd'; 250][..], b"\0"].concat();
    let mut node = 1;
    for _ in 0..40 {
        let body = guest.ask(MKDIR, node, &[&0o755_u64.to_le_bytes()[..], &name].concat()).unwrap();
        node = u64::from_le_bytes(body[..8].try_into().unwrap());
    }
    let create = [&[2, 0, 0, 0, 0o200, 1, 0, 0][..], &[0; 8], b"file\0"].concat();
    let body = guest.ask(CREATE, node, &create).unwrap();
    let file = u64::from_le_bytes(body[..8].try_into().unwrap());
    let handle = guest.open(file, 1).unwrap();
    let mut write = [handle.to_le_bytes(), [0; 8]].concat();
    write.extend(4_u32.to_le_bytes());
    write.extend([0; 20]);
    write.extend(b"deep");
    guest.ask(WRITE, file, &write).unwrap();
    let handle = guest.open(file, 0).unwrap();
    assert_eq!(guest.read(handle).unwrap(), b"deep");
    let handle = guest.open_directory(node).unwrap();
    assert_eq!(guest.list(READDIR, handle, 0, 4096).unwrap().len(), 3);
    // Nor are links followed there.
    guest.ask(SYMLINK, node, b"link\0/etc\0").unwrap();
    let body = guest.ask(LOOKUP, node, b"link\0").unwrap();
    let link = u64::from_le_bytes(body[..8].try_into().unwrap());
    assert_eq!(guest.ask(LOOKUP, link, b"passwd\0"), Err(ENOTDIR));
    assert_eq!(guest.open(link, 0), Err(EOPNOTSUPP));
}

#[test]
fn nodes_handles_and_calls_that_were_never_given_are_refused() {
    let mut guest = Guest::new();
    assert_eq!(guest.ask(GETATTR, 99, &[0; 16]), Err(ESTALE));
    assert!(guest.read(99).is_err());
    assert_eq!(guest.ask(4000, 1, &[]), Err(ENOSYS));
    assert!(guest.files.answer(&[1, 2, 3]).is_none());
    assert!(guest.files.answer(&[0; 40]).is_none());
}

#[test]
fn the_whole_view_has_no_process_and_device_files() {
    let root = TempDir::new().unwrap();
    let mut guest = Guest { files: Files::new(Path::new("/"), 1 << 30).unwrap(), root };
    for name in ["proc", "dev"] {
        let node = guest.node(name).unwrap();
        for inner in ["self", "1", "null", "mem"] {
            let inner = [inner.as_bytes(), b"\0"].concat();
            assert_eq!(guest.ask(LOOKUP, node, &inner), Err(ENOENT), "{name}");
        }
    }
}

#[test]
fn what_is_in_the_place_of_a_guests_own_directories_is_not_its_to_change() {
    let root = TempDir::new().unwrap();
    let file = root.path().join("file");
    fs::write(&file, "").unwrap();
    let mut guest = Guest { files: Files::new(Path::new("/"), 1 << 30).unwrap(), root };
    // A call that sets nothing.
    let nothing = [0; 88];
    let mut names = file.to_str().unwrap().split('/').skip(1);
    let first = guest.node(names.next().unwrap()).unwrap();
    let own = names.fold(first, |parent, name| {
        let body = guest.ask(LOOKUP, parent, &[name.as_bytes(), b"\0"].concat()).unwrap();
        u64::from_le_bytes(body[..8].try_into().unwrap())
    });
    guest.ask(SETATTR, own, &nothing).unwrap();
    let attribute = [&[0; 8], &b"user.a\0"[..]].concat();
    for name in ["proc", "dev", "sys"] {
        let node = guest.node(name).unwrap();
        assert_eq!(guest.ask(SETATTR, node, &nothing), Err(EPERM), "{name}");
        assert_eq!(guest.ask(SETXATTR, node, &attribute), Err(EPERM), "{name}");
        assert_eq!(guest.ask(REMOVEXATTR, node, &attribute[8..]), Err(EPERM), "{name}");
    }
}

proptest! {
    #[test]
    fn any_request_has_an_answer_and_the_outside_stays_as_it_was(
        requests in proptest::collection::vec(
            (0_u32..55, 0_u64..6, proptest::collection::vec(any::<u8>(), 0..100)), 1..12),
        names in proptest::sample::select(vec![&b"file\0"[..], b"../secret\0", b"a\0b\0", b""]),
    ) {
        let mut guest = Guest::new();
        let before = fs::metadata(guest.root.path().join("secret")).unwrap();
        let _ = guest.node("file");
        for (opcode, node, body) in requests {
            // Those that have no answer.
            if matches!(opcode, 2 | 36 | 42) {
                continue;
            }
            let _ = guest.ask(opcode, node, &[&body[..], names].concat());
        }
        let after = fs::metadata(guest.root.path().join("secret")).unwrap();
        prop_assert_eq!((before.ino(), before.ctime_nsec()), (after.ino(), after.ctime_nsec()));
        prop_assert_eq!(fs::read(guest.root.path().join("secret")).unwrap(), b"outside");
    }
}
