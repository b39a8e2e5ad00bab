//! What a snapshot knows of a name in a directory, and how a directory of them is stored.

use super::codec::{Reader, put, put_bytes};
use ringfence_start::mark;

/// The name of stored bytes: blake3 of what they are, or of a chunk list (see `content`).
pub type Hash = [u8; 32];

/// No object.
pub(super) const NONE: Hash = [0; 32];

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket. It is removed by a revert, and cannot be brought back.
    Socket,
    /// Something that could not be read: it is known to exist, and never touched.
    Unreadable,
    /// A device, a mount point, the store itself: never touched.
    Foreign,
}

impl Kind {
    const ALL: [Kind; 7] = [
        Kind::File,
        Kind::Directory,
        Kind::Symlink,
        Kind::Fifo,
        Kind::Socket,
        Kind::Unreadable,
        Kind::Foreign,
    ];

    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Kind::File => "file",
            Kind::Directory => "directory",
            Kind::Symlink => "symlink",
            Kind::Fifo => "fifo",
            Kind::Socket => "socket",
            Kind::Unreadable => "unreadable",
            Kind::Foreign => "foreign",
        }
    }

    /// A revert may neither remove nor replace it.
    pub(super) fn untouchable(self) -> bool {
        matches!(self, Kind::Unreadable | Kind::Foreign)
    }
}

/// One name in a directory of a snapshot.
///
/// Times are left out on purpose: a reverted file is a new file to `make` and its kin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name, any bytes but `/` and NUL.
    pub name: Vec<u8>,
    /// What it stands for.
    pub kind: Kind,
    /// Permission bits, with set-id and sticky.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Bytes, for files.
    pub size: u64,
    /// The bytes of a file, the target of a link, the tree of a directory.
    pub hash: Hash,
    /// Its extended attributes, where it has some.
    pub xattrs: Option<Hash>,
    /// The path, relative to the workspace, of the first other name of the same inode.
    pub link: Option<Vec<u8>>,
    /// Runs of zeros are holes.
    pub sparse: bool,
}

impl Entry {
    /// Equal in all that a user would call the file, but for its name.
    pub(super) fn same(&self, other: &Entry) -> bool {
        let bare = |entry: &Entry| (entry.kind, entry.mode, entry.uid, entry.gid, entry.xattrs);
        bare(self) == bare(other)
            && self.link == other.link
            && (self.kind == Kind::Directory || self.same_content(other))
    }

    /// Equal bytes.
    pub(super) fn same_content(&self, other: &Entry) -> bool {
        self.kind == other.kind && self.size == other.size && self.hash == other.hash
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let kind = Kind::ALL.iter().position(|kind| *kind == self.kind).unwrap_or_default() as u8;
        let flags = u8::from(self.xattrs.is_some())
            | u8::from(self.link.is_some()) << 1
            | u8::from(self.sparse) << 2;
        out.push(kind | flags << 4);
        put_bytes(out, &self.name);
        for number in [self.mode, self.uid, self.gid] {
            put(out, u64::from(number));
        }
        put(out, self.size);
        out.extend_from_slice(&self.hash);
        if let Some(xattrs) = &self.xattrs {
            out.extend_from_slice(xattrs);
        }
        if let Some(link) = &self.link {
            put_bytes(out, link);
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Option<Entry> {
        let head = reader.byte()?;
        let name = reader.bytes()?.to_vec();
        let number = |reader: &mut Reader<'_>| u32::try_from(reader.number()?).ok();
        let (mode, uid, gid) = (number(reader)?, number(reader)?, number(reader)?);
        let size = reader.number()?;
        let hash = reader.hash()?;
        let xattrs = if head & 0x10 != 0 { Some(reader.hash()?) } else { None };
        let link = if head & 0x20 != 0 { Some(reader.bytes()?.to_vec()) } else { None };
        let kind = *Kind::ALL.get(usize::from(head & 0xf))?;
        let sparse = head & 0x40 != 0;
        // A stored name is used with *at() calls: it must stay one name.
        let plain = !name.is_empty() && name != b"." && name != b"..";
        let plain = plain && !name.iter().any(|byte| matches!(byte, b'/' | 0));
        plain.then_some(Entry { name, kind, mode, uid, gid, size, hash, xattrs, link, sparse })
    }
}

/// A directory's entries as stored. They are sorted by name.
pub(super) fn write_tree(entries: &[&Entry]) -> Vec<u8> {
    let mut out = Vec::with_capacity(entries.len() * 64);
    entries.iter().for_each(|entry| entry.write(&mut out));
    out
}

/// The reverse of [`write_tree`].
pub(super) fn read_tree(bytes: &[u8]) -> Option<Vec<Entry>> {
    let mut reader = Reader(bytes);
    let mut entries: Vec<Entry> = Vec::new();
    while !reader.at_end() {
        let entry = Entry::read(&mut reader)?;
        if entries.last().is_some_and(|last| last.name >= entry.name) {
            return None;
        }
        entries.push(entry);
    }
    Some(entries)
}

/// What the kernel says of an inode; as long as it is the same, so are the bytes.
///
/// The change time cannot be set from outside the kernel, so that `touch -d` hides nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Stamp {
    pub device: u64,
    pub inode: u64,
    pub size: u64,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub links: u32,
    /// Nanoseconds since the epoch.
    pub modified: i64,
    /// Nanoseconds since the epoch.
    pub changed: i64,
}

impl Stamp {
    /// The last moment at which it can have been changed ([`mark::latest`]).
    pub(crate) fn latest(&self) -> i64 {
        let latest = u64::try_from(self.changed).ok().map(mark::latest);
        latest.and_then(|latest| latest.try_into().ok()).unwrap_or(self.changed)
    }

    /// It is still the same thing, and nobody wrote to it in between, though names may have come
    /// or gone.
    pub fn stands_for(&self, other: &Stamp, file: bool) -> bool {
        let thing = (self.device, self.inode) == (other.device, other.inode);
        thing && (!file || (self.size, self.modified) == (other.size, other.modified))
    }

    fn write(&self, out: &mut Vec<u8>) {
        for number in [self.device, self.inode, self.size, self.modified as u64] {
            put(out, number);
        }
        for number in [self.mode, self.uid, self.gid, self.links] {
            put(out, u64::from(number));
        }
        put(out, self.changed as u64);
    }

    fn read(reader: &mut Reader<'_>) -> Option<Stamp> {
        let mut wide = [0u64; 4];
        for number in &mut wide {
            *number = reader.number()?;
        }
        let mut narrow = [0u32; 4];
        for number in &mut narrow {
            *number = u32::try_from(reader.number()?).ok()?;
        }
        let [device, inode, size, modified] = wide;
        let [mode, uid, gid, links] = narrow;
        let changed = reader.number()? as i64;
        let modified = modified as i64;
        Some(Stamp { device, inode, size, mode, uid, gid, links, modified, changed })
    }
}

/// A name, with the stamp it had when its bytes were stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub entry: Entry,
    pub stamp: Stamp,
    /// The stamp may be trusted: it was old when the bytes were read.
    pub settled: bool,
}

impl Seen {
    pub fn write(&self, out: &mut Vec<u8>) {
        self.entry.write(out);
        self.stamp.write(out);
        out.push(u8::from(self.settled));
    }

    fn read(reader: &mut Reader<'_>) -> Option<Seen> {
        let entry = Entry::read(reader)?;
        let stamp = Stamp::read(reader)?;
        Some(Seen { entry, stamp, settled: reader.byte()? == 1 })
    }
}

/// A directory of the stat cache.
pub(super) fn write_cache(seen: &[Seen]) -> Vec<u8> {
    let mut out = Vec::with_capacity(seen.len() * 128);
    seen.iter().for_each(|seen| seen.write(&mut out));
    out
}

/// The reverse of [`write_cache`].
pub(super) fn read_cache(bytes: &[u8]) -> Option<Vec<Seen>> {
    let mut reader = Reader(bytes);
    let mut all = Vec::new();
    while !reader.at_end() {
        all.push(Seen::read(&mut reader)?);
    }
    Some(all)
}

/// The same, name by name in their order, with the bytes that each has there.
pub(super) struct Cached<'a> {
    reader: Reader<'a>,
    next: Option<(Seen, &'a [u8])>,
}

impl<'a> Cached<'a> {
    pub fn of(bytes: &'a [u8]) -> Cached<'a> {
        let mut cached = Cached { reader: Reader(bytes), next: None };
        cached.go_on();
        cached
    }

    /// What is damaged ends it: those behind it are read anew.
    fn go_on(&mut self) {
        let from = self.reader.0;
        self.next = Seen::read(&mut self.reader)
            .map(|seen| (seen, &from[..from.len() - self.reader.0.len()]));
        if self.next.is_none() {
            self.reader = Reader(&[]);
        }
    }

    /// The one of a name, after which those before it are not asked for any more.
    pub fn of_name(&mut self, name: &[u8]) -> Option<(Seen, &'a [u8])> {
        while self.next.as_ref().is_some_and(|(seen, _)| &seen.entry.name[..] < name) {
            self.go_on();
        }
        let found = self.next.take_if(|(seen, _)| seen.entry.name == name);
        if found.is_some() {
            self.go_on();
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(name: &[u8]) -> Seen {
        let (mode, uid, gid, size) = (0o644, 1, 2, 300);
        let (kind, hash, xattrs, link) = (Kind::File, [7; 32], None, None);
        let name = name.to_vec();
        let entry = Entry { name, kind, mode, uid, gid, size, hash, xattrs, link, sparse: false };
        let (modified, changed) = (1 << 60, -5);
        let stamp =
            Stamp { device: 9, inode: 1 << 40, size, mode, uid, gid, links: 1, modified, changed };
        Seen { entry, stamp, settled: true }
    }

    #[test]
    fn cached_names_are_found_in_their_order_and_damage_ends_them() {
        let all: Vec<Seen> = [&b"b"[..], b"d", b"\xff"].map(seen).into();
        let bytes = write_cache(&all);
        let mut cached = Cached::of(&bytes);
        let mut copied = Vec::new();
        for (name, known) in [(&b"a"[..], false), (b"b", true), (b"c", false), (b"d", true)] {
            let found = cached.of_name(name);
            assert_eq!(
                found.as_ref().map(|(seen, _)| &seen.entry.name[..] == name),
                known.then_some(true)
            );
            copied.extend_from_slice(found.map_or(&[], |(_, bytes)| bytes));
        }
        assert_eq!(copied, write_cache(&all[..2]));
        assert_eq!(cached.of_name(b"\xff").map(|(seen, _)| seen), Some(seen(b"\xff")));
        assert_eq!(cached.of_name(b"\xff"), None);
        // Cut off anywhere, it gives whole ones, and no other.
        for length in 0..bytes.len() {
            let mut cached = Cached::of(&bytes[..length]);
            for one in &all {
                let found = cached.of_name(&one.entry.name).map(|(seen, _)| seen);
                assert!(found.is_none_or(|found| found == *one));
            }
        }
    }
}
