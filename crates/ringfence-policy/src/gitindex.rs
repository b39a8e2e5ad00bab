//! Git's index: whether it names only what git itself would have put there.
//!
//! Git believes the paths in an index; see [`gitpath`](crate::gitpath). Read as git reads it (`read-cache.c`,
//! gitformat-index(5)), in one pass, of whatever size, with a window of it in memory. What git could read in another way
//! than this does is not read here.

use crate::gitpath::refused;
use std::collections::VecDeque;
use std::io;

/// A file's content.
pub struct Content<'a> {
    /// Its bytes.
    pub size: u64,
    /// Reads from a place on, as pread(2).
    pub read_at: &'a mut dyn FnMut(u64, &mut [u8]) -> io::Result<usize>,
}

/// What is wrong with a file of git's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bad {
    /// It names a path that git itself would refuse.
    Path(String),
    /// Git has another program do something.
    Runs(String),
    /// It cannot be read, for this reason; what git makes of it is not known.
    Unreadable(&'static str),
}

/// Larger ones are not read.
const LARGEST: u64 = 1 << 30;
/// `DIRC`, the version, the number of entries.
const HEADER: u64 = 12;
/// Times, device and the like, before an entry's hash.
const STAMPS: usize = 40;
/// Where in them the mode is.
const MODE: usize = 24;
const EXTENDED: u16 = 0x4000;
/// The length of a name, or all ones for a longer one.
const LENGTH: u16 = 0x0fff;
/// An entry may be so long.
const LONGEST: usize = 16 << 10;
/// As may its path, which may have most of what it has from the one before: longer ones cannot be made (`PATH_MAX`).
const LONGEST_PATH: usize = 4096;
/// And all paths together: hundreds of bytes for each of a million.
const LONGEST_PATHS: usize = 512 << 20;
const WINDOW: usize = 256 << 10;
const SHA_1: usize = 20;
/// Blocks of entries that git reads at once: as many as it has threads.
const MOST_BLOCKS: u64 = 1 << 14;

/// Judges an index whose hashes have `hash` bytes, and tells each of its paths, in their order, until something is
/// wrong.
///
/// # Errors
/// What is wrong with it.
pub fn judge(content: Content<'_>, hash: usize, each: &mut dyn FnMut(&[u8])) -> Result<(), Bad> {
    if content.size > LARGEST {
        return Err(Bad::Unreadable("it is too large"));
    }
    // The hash of all before it, which git does not look at either.
    let end = content.size.checked_sub(hash as u64).filter(|end| *end >= HEADER);
    let end = end.ok_or(Bad::Unreadable("it is too short"))?;
    let mut window = Window { content, end, bytes: Vec::new(), at: 0 };
    let header = window.exactly(0, HEADER as usize)?;
    let (kind, version, count) = (&header[..4], number(header, 4), number(header, 8));
    if kind != b"DIRC" || !(2..=4).contains(&version) {
        return Err(Bad::Unreadable("its version is not known"));
    }
    let stated = end_of_entries(&mut window, hash)?;
    let blocks = match stated {
        Some(at) => blocks(&mut window, at)?,
        None => VecDeque::new(),
    };
    let mut entries =
        Entries { at: HEADER, version, hash, path: Vec::new(), read: 0, blocks, stripped: false };
    for entry in 0..count {
        entries.next(&mut window, entry)?;
        each(&entries.path);
    }
    if !entries.blocks.is_empty() || stated.is_some_and(|stated| stated != entries.at) {
        return Err(Bad::Unreadable("its entries are not where it says"));
    }
    let split = extensions(&mut window, entries.at)?;
    // Only in a split index an entry stands for one of the shared one, by its place.
    if entries.stripped && !split {
        return Err(Bad::Path(String::new()));
    }
    Ok(())
}

fn number(bytes: &[u8], at: usize) -> u32 {
    let byte = |more: usize| bytes.get(at + more).copied().unwrap_or_default();
    u32::from_be_bytes([byte(0), byte(1), byte(2), byte(3)])
}

/// A part of the file.
struct Window<'a> {
    content: Content<'a>,
    /// Where what is read ends.
    end: u64,
    bytes: Vec<u8>,
    /// Where the part begins.
    at: u64,
}

impl Window<'_> {
    /// What there is from a place on: `least` bytes where the file has as many, and seldom more than is read at once.
    fn from(&mut self, at: u64, least: usize) -> Result<&[u8], Bad> {
        let left = self.end.saturating_sub(at);
        let wanted = u64::min(left, least as u64) as usize;
        let known = at.checked_sub(self.at).and_then(|skip| usize::try_from(skip).ok());
        let known = known.filter(|skip| self.bytes.len().saturating_sub(*skip) >= wanted);
        let skip = match known {
            Some(skip) => skip,
            None => {
                self.fill(at, u64::min(left, WINDOW as u64) as usize)?;
                0
            }
        };
        Ok(self.bytes.get(skip..).unwrap_or_default())
    }

    fn fill(&mut self, at: u64, length: usize) -> Result<(), Bad> {
        self.bytes.resize(length, 0);
        self.at = at;
        let mut filled = 0;
        while filled < length {
            match (self.content.read_at)(at + filled as u64, &mut self.bytes[filled..]) {
                Ok(read) if read > 0 => filled += read.min(length - filled),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => return Err(Bad::Unreadable("it cannot be read to its end")),
            }
        }
        Ok(())
    }

    fn exactly(&mut self, at: u64, length: usize) -> Result<&[u8], Bad> {
        self.from(at, length)?.get(..length).ok_or(Bad::Unreadable("it ends too soon"))
    }
}

/// Where the extensions begin, as one at the end of the file says: git starts to read them there. Of SHA-256 it writes a
/// longer one than it looks for.
fn end_of_entries(window: &mut Window<'_>, hash: usize) -> Result<Option<u64>, Bad> {
    let mut stated = None;
    for size in [4 + SHA_1, 4 + hash] {
        let Some(at) = window.end.checked_sub(8 + size as u64).filter(|at| *at >= HEADER) else {
            continue;
        };
        let bytes = window.exactly(at, 12)?;
        if !bytes.starts_with(b"EOIE") || number(bytes, 4) as usize != size {
            continue;
        }
        let offset = number(bytes, 8).into();
        if stated.replace(offset).is_some_and(|other| other != offset) {
            return Err(Bad::Unreadable("its entries are not where it says"));
        }
    }
    Ok(stated)
}

/// The blocks of entries that git would read each by itself: where they begin, and how many are in them.
fn blocks(window: &mut Window<'_>, mut at: u64) -> Result<VecDeque<(u64, u32)>, Bad> {
    let mut found = VecDeque::new();
    while at + 8 <= window.end {
        let head = window.exactly(at, 8)?;
        let (table, size) = (head.starts_with(b"IEOT"), u64::from(number(head, 4)));
        at += 8;
        if table {
            let count = size.saturating_sub(4) / 8;
            if size < 12 || size % 8 != 4 || count > MOST_BLOCKS {
                return Err(Bad::Unreadable("its table of entries cannot be read"));
            }
            for block in 0..count {
                let bytes = window.exactly(at + 4 + 8 * block, 8)?;
                found.push_back((number(bytes, 0).into(), number(bytes, 4)));
            }
            break;
        }
        at += size;
    }
    Ok(found)
}

struct Entries {
    at: u64,
    version: u32,
    hash: usize,
    /// The path of the entry before.
    path: Vec<u8>,
    /// Bytes of all paths.
    read: usize,
    /// See [`blocks`]; those that were met are gone, of the first the entries are counted down.
    blocks: VecDeque<(u64, u32)>,
    /// There are entries without a path.
    stripped: bool,
}

impl Entries {
    fn next(&mut self, window: &mut Window<'_>, entry: u32) -> Result<(), Bad> {
        const SHORT: Bad = Bad::Unreadable("it ends too soon");
        const NAME: Bad = Bad::Unreadable("an entry cannot be read");
        let begins = self.block(entry)?;
        let bytes = window.from(self.at, LONGEST)?;
        let fixed = STAMPS + self.hash;
        let two = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
        let mode = number(bytes, MODE);
        let flags = two(fixed).ok_or(SHORT)?;
        let mut start = fixed + if flags & EXTENDED == 0 { 2 } else { 4 };
        let mut kept = 0;
        if self.version == 4 {
            let (strip, length) = varint(bytes.get(start..).ok_or(SHORT)?).ok_or(NAME)?;
            start += length;
            let before = if entry == 0 { 0 } else { self.path.len() };
            kept = match entry {
                0 => 0,
                _ => before.checked_sub(usize::try_from(strip).map_err(|_| NAME)?).ok_or(NAME)?,
            };
            // Where a block begins git keeps nothing.
            if begins && kept != 0 {
                return Err(NAME);
            }
        }
        let rest = bytes.get(start..).ok_or(SHORT)?;
        let length = match flags & LENGTH {
            LENGTH => rest.iter().position(|&byte| byte == 0).ok_or(NAME)?,
            whole => usize::from(whole).checked_sub(kept).ok_or(NAME)?,
        };
        let name = rest.get(..length).ok_or(SHORT)?;
        // For some of git a zero byte ends it, for some its length.
        if rest.get(length) != Some(&0) || name.contains(&0) {
            return Err(NAME);
        }
        self.path.truncate(kept);
        self.path.extend_from_slice(name);
        self.read += self.path.len();
        if self.path.len() > LONGEST_PATH || self.read > LONGEST_PATHS {
            return Err(Bad::Unreadable("its paths are too long"));
        }
        let used = match self.version {
            4 => start + length + 1,
            // Padded with up to eight zeroes.
            _ => (start + length + 8) & !7,
        };
        if used > bytes.len() {
            return Err(SHORT);
        }
        self.at += used as u64;
        if self.path.is_empty() {
            self.stripped = true;
        } else if refused(&self.path, mode) {
            return Err(Bad::Path(String::from_utf8_lossy(&self.path).into_owned()));
        }
        Ok(())
    }

    /// Whether a block begins with the next entry; each begins where it says.
    fn block(&mut self, entry: u32) -> Result<bool, Bad> {
        let Some((at, left)) = self.blocks.front_mut() else { return Ok(false) };
        let begins = *at != 0;
        if begins && *at != self.at || *left == 0 {
            return Err(Bad::Unreadable("its entries are not where it says"));
        }
        (*at, *left) = (0, *left - 1);
        if *left == 0 {
            self.blocks.pop_front();
        }
        Ok(begins && entry > 0)
    }
}

/// A number of any length (`decode_varint` in varint.c), and how many bytes it takes.
fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = u64::from(bytes.first()? & 0x7f);
    let mut used = 1;
    while bytes[used - 1] & 0x80 != 0 {
        let byte = *bytes.get(used)?;
        value = value.checked_add(1)?.checked_mul(128)?.checked_add(u64::from(byte & 0x7f))?;
        used += 1;
    }
    Some((value, used))
}

/// Whether one of the extensions says that the index is a split one.
fn extensions(window: &mut Window<'_>, mut at: u64) -> Result<bool, Bad> {
    let mut split = false;
    while at < window.end {
        let head = window.exactly(at, 8)?;
        match &head[..4] {
            b"link" => split = true,
            // A directory outside of a sparse checkout has one entry.
            b"sdir" => {}
            // These may be left out by who does not know them.
            [b'A'..=b'Z', ..] => {}
            _ => return Err(Bad::Unreadable("it needs an extension that is not known")),
        }
        at += 8 + u64::from(number(head, 4));
    }
    match at == window.end {
        true => Ok(split),
        false => Err(Bad::Unreadable("it ends too soon")),
    }
}
