//! `/etc/ld.so.cache`: which file `ldconfig(8)` found for a name.
//!
//! The new format (`glibc-ld.so.cache1.1`), alone or behind the old one, with the extension that
//! names `glibc-hwcaps` subdirectories. All variants of a library are told, whatever processor
//! this is: which one the loader takes is decided when the program starts.

use crate::elf::Machine;
use crate::table::Table;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const OLD: &[u8] = b"ld.so-1.7.0\0";
const NEW: &[u8] = b"glibc-ld.so.cache1.1";
const OLD_ENTRY: usize = 12;
const HEADER: usize = 48;
const ENTRY: usize = 24;

/// One file for a name.
#[derive(Clone, Copy, Debug)]
struct Entry {
    flags: u32,
    path: u32,
    /// For a part of the processors only.
    variant: bool,
}

/// The cache, in memory.
#[derive(Debug, Default)]
pub struct Cache {
    bytes: Vec<u8>,
    /// Where its strings are counted from.
    base: usize,
    names: Table<Vec<u8>, Vec<Entry>>,
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
        let mut cache = Cache { base, ..Cache::default() };
        for entry in table.chunks_exact(ENTRY).take(count) {
            let (flags, key, path) = (word(entry, 0)?, word(entry, 4)?, word(entry, 8)?);
            let variant = entry[16..24] != [0; 8];
            if let Some(name) = string(&bytes, base, key) {
                let known = cache.names.entry(name.to_vec()).or_default();
                known.push(Entry { flags, path, variant });
            }
        }
        cache.bytes = bytes;
        Some(cache)
    }

    /// The file for a name on this machine, and its variants for other processors.
    pub fn find(&self, name: &[u8], machine: Machine) -> (Option<PathBuf>, Vec<PathBuf>) {
        let Some(entries) = self.names.get(name) else { return (None, Vec::new()) };
        let path = |entry: &Entry| {
            let text = string(&self.bytes, self.base, entry.path)?;
            Some(PathBuf::from(OsStr::from_bytes(text))).filter(|path| path.is_absolute())
        };
        let fitting = || entries.iter().filter(|entry| fits(entry.flags, machine));
        let plain = fitting().filter(|entry| !entry.variant).find_map(path);
        (plain, fitting().filter(|entry| entry.variant).filter_map(path).collect())
    }

    /// The directories that the cache leads to.
    pub fn directories(&self) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = Vec::new();
        for entry in self.names.values().flatten() {
            let text = string(&self.bytes, self.base, entry.path);
            let path = text.map(|text| Path::new(OsStr::from_bytes(text)));
            if let Some(parent) = path.and_then(Path::parent)
                && !found.iter().any(|known| known == parent)
            {
                found.push(parent.to_owned());
            }
        }
        found.sort();
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
