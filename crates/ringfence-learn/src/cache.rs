//! `/etc/ld.so.cache`: which file `ldconfig(8)` found for a name.
//!
//! The new format (`glibc-ld.so.cache1.1`), alone or behind the old one, with the extension that
//! names `glibc-hwcaps` subdirectories. All variants of a library are told, whatever processor
//! this is: which one the loader takes is decided when the program starts.

use crate::elf::Machine;
use foldhash::fast::RandomState;
use std::ffi::OsStr;
use std::hash::BuildHasher;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

const OLD: &[u8] = b"ld.so-1.7.0\0";
const NEW: &[u8] = b"glibc-ld.so.cache1.1";
const OLD_ENTRY: usize = 12;
const HEADER: usize = 48;
const ENTRY: usize = 24;

/// One file for a name.
struct Entry<'c> {
    flags: u32,
    path: &'c [u8],
    /// For a part of the processors only.
    variant: bool,
}

/// The cache, in memory.
#[derive(Debug, Default)]
pub struct Cache {
    bytes: Vec<u8>,
    /// Where its strings are counted from.
    base: usize,
    /// A part of the hash of each entry's name: there are thousands, of which a program asks for few, and a table takes
    /// longer than all that is asked.
    names: Vec<u32>,
    hashes: RandomState,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes([four[0], four[1], four[2], four[3]]))
}

impl Cache {
    /// Reads the cache; nothing is in it where the format is not known.
    pub fn new(bytes: Vec<u8>) -> Cache {
        Cache::read(bytes).unwrap_or_default()
    }

    fn read(bytes: Vec<u8>) -> Option<Cache> {
        let base = if bytes.starts_with(OLD) {
            let count = word(&bytes, OLD.len())? as usize;
            // The new format follows, aligned to eight.
            let end = count.checked_mul(OLD_ENTRY)?.checked_add(OLD.len() + 4)?;
            end.checked_add(7)? & !7
        } else {
            0
        };
        if !bytes.get(base..)?.starts_with(NEW) {
            return None;
        }
        let count = word(&bytes, base + NEW.len())? as usize;
        let table = bytes.get(base + HEADER..)?;
        let hashes = RandomState::default();
        let mut names = Vec::with_capacity(count.min(table.len() / ENTRY));
        for entry in table.chunks_exact(ENTRY).take(count) {
            let name = string(&bytes, base, word(entry, 4)?).unwrap_or_default();
            names.push(hashes.hash_one(name) as u32);
        }
        Some(Cache { bytes, base, names, hashes })
    }

    /// An entry, if it has this name.
    fn named(&self, at: usize, name: &[u8]) -> Option<Entry<'_>> {
        let string = |at| string(&self.bytes, self.base, at);
        let entry = self.entry(at)?;
        if string(word(entry, 4)?)? != name {
            return None;
        }
        let variant = entry[16..24] != [0; 8];
        Some(Entry { flags: word(entry, 0)?, path: string(word(entry, 8)?)?, variant })
    }

    fn entry(&self, at: usize) -> Option<&[u8]> {
        self.bytes.get(self.base + HEADER + at * ENTRY..)?.get(..ENTRY)
    }

    /// The file for a name on this machine, and its variants for other processors.
    pub fn find(&self, name: &[u8], machine: Machine) -> (Option<PathBuf>, Vec<PathBuf>) {
        let hash = self.hashes.hash_one(name) as u32;
        let alike = self.names.iter().enumerate().filter(|(_, known)| **known == hash);
        let entries: Vec<Entry<'_>> = alike.filter_map(|(at, _)| self.named(at, name)).collect();
        let path = |entry: &Entry<'_>| {
            let path = PathBuf::from(OsStr::from_bytes(entry.path));
            Some(path).filter(|path| path.is_absolute())
        };
        let fitting = || entries.iter().filter(|entry| fits(entry.flags, machine));
        let plain = fitting().filter(|entry| !entry.variant).find_map(path);
        (plain, fitting().filter(|entry| entry.variant).filter_map(path).collect())
    }

    /// The directories that the cache leads to.
    pub fn directories(&self) -> Vec<PathBuf> {
        let mut found: Vec<&[u8]> = Vec::new();
        for at in 0..self.names.len() {
            let path = self.entry(at).and_then(|entry| word(entry, 8));
            let text = path.and_then(|path| string(&self.bytes, self.base, path));
            let text = text.unwrap_or_default();
            let Some(end) = memchr::memrchr(b'/', text) else { continue };
            // Most are where the one before is.
            let above = &text[..end.max(1)];
            if found.last() != Some(&above) && !found.contains(&above) {
                found.push(above);
            }
        }
        let mut found: Vec<PathBuf> =
            found.into_iter().map(|path| PathBuf::from(OsStr::from_bytes(path))).collect();
        found.sort();
        found.dedup();
        found
    }
}

fn string(bytes: &[u8], base: usize, at: u32) -> Option<&[u8]> {
    let rest = bytes.get(base.checked_add(at as usize)?..)?;
    let end = memchr::memchr(0, &rest[..rest.len().min(4096)])?;
    Some(&rest[..end])
}

/// Whether the flags of an entry (glibc's `ldconfig.h`) are a machine's. What a library is for
/// is looked at again when it is opened.
fn fits(flags: u32, machine: Machine) -> bool {
    const X86: u16 = 3;
    const X86_64: u16 = 62;
    const ARM: u16 = 40;
    const AARCH64: u16 = 183;
    let of = flags >> 8 & 0xff;
    match (machine.number, machine.wide) {
        (X86, _) => of == 0,
        (X86_64, true) => of == 3,
        (X86_64, false) => of == 8,
        (AARCH64, _) => of == 10,
        (ARM, _) => of == 9 || of == 11 || of == 0,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const WIDE: Machine = Machine { wide: true, big: false, number: 62 };

    /// A cache of the new format with these entries: name, path, flags, hwcap.
    fn cache(entries: &[(&str, &str, u32, u64)]) -> Vec<u8> {
        let mut strings = Vec::new();
        let first = HEADER + ENTRY * entries.len();
        let mut place = |text: &str| {
            let at = first + strings.len();
            strings.extend_from_slice(text.as_bytes());
            strings.push(0);
            u32::try_from(at).expect("small").to_ne_bytes()
        };
        let mut bytes = NEW.to_vec();
        bytes.extend(u32::try_from(entries.len()).expect("few").to_ne_bytes());
        bytes.resize(HEADER, 0);
        for (name, path, flags, hwcap) in entries {
            bytes.extend(flags.to_ne_bytes());
            bytes.extend(place(name));
            bytes.extend(place(path));
            bytes.extend([0; 4]);
            bytes.extend(hwcap.to_ne_bytes());
        }
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn a_name_leads_to_its_file_and_to_every_variant() {
        let cache = Cache::new(cache(&[
            ("liba.so.1", "/v3/liba.so.1", 0x303, 1 << 62),
            ("liba.so.1", "/lib32/liba.so.1", 3, 0),
            ("liba.so.1", "/lib/liba.so.1", 0x303, 0),
        ]));
        let (plain, variants) = cache.find(b"liba.so.1", WIDE);
        assert_eq!(plain.as_deref(), Some(Path::new("/lib/liba.so.1")));
        assert_eq!(variants, [Path::new("/v3/liba.so.1")]);
        let narrow = Machine { wide: false, number: 3, ..WIDE };
        assert_eq!(
            cache.find(b"liba.so.1", narrow).0.as_deref(),
            Some(Path::new("/lib32/liba.so.1"))
        );
        assert_eq!(cache.find(b"libb.so.1", WIDE).0, None);
    }

    #[test]
    fn directories_are_those_of_all_entries() {
        let cache = Cache::new(cache(&[
            ("liba.so.1", "/lib/liba.so.1", 0x303, 0),
            ("libb.so.1", "/lib/libb.so.1", 0x303, 0),
            ("libc.so.1", "/opt/x/libc.so.1", 0x303, 0),
            ("liba.so.1", "/lib/y/liba.so.1", 0x303, 0),
            ("libd.so.1", "/libd.so.1", 0x303, 0),
            ("libe.so.1", "/lib/libe.so.1", 0x303, 0),
        ]));
        assert_eq!(cache.directories(), ["/", "/lib", "/lib/y", "/opt/x"].map(PathBuf::from));
        assert_eq!(
            cache.find(b"liba.so.1", WIDE).0,
            Some("/lib/liba.so.1".into()),
            "the first one"
        );
    }

    #[test]
    fn the_old_format_may_stand_in_front() {
        let mut bytes = OLD.to_vec();
        bytes.extend(1u32.to_ne_bytes());
        bytes.extend([0; OLD_ENTRY]);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes.extend(cache(&[("liba.so.1", "/lib/liba.so.1", 0x303, 0)]));
        let (plain, _) = Cache::new(bytes).find(b"liba.so.1", WIDE);
        assert_eq!(plain.as_deref(), Some(Path::new("/lib/liba.so.1")));
    }

    #[test]
    fn counts_that_lie_are_not_believed() {
        let good = cache(&[("liba.so.1", "/lib/liba.so.1", 0x303, 0)]);
        for length in 0..good.len() {
            let _ = Cache::new(good[..length].to_vec()).find(b"liba.so.1", WIDE);
        }
        let mut lying = good.clone();
        lying[NEW.len()..NEW.len() + 4].fill(0xff);
        lying[HEADER + 8..HEADER + 12].fill(0xff);
        assert_eq!(Cache::new(lying).find(b"liba.so.1", WIDE).0, None);
        let mut old = OLD.to_vec();
        old.extend([0xff; 4]);
        assert!(Cache::new(old).directories().is_empty());
    }
}
