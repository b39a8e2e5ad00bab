//! Entry points for fuzzing: each takes any bytes and must come back.

use crate::cache::Cache;
use crate::elf::{self, Machine};
use crate::hints;
use crate::shell;
use crate::words::Variables;

/// An ELF file.
pub fn elf(bytes: &[u8]) {
    let bytes = bytes.to_vec();
    if let Some(object) = elf::parse(&bytes) {
        let _ = hints::of(&bytes, &object, &mut Vec::new());
    }
}

/// A loader's cache.
pub fn cache(bytes: &[u8]) {
    let cache = Cache::new(bytes.to_vec());
    let _ = cache.find(b"libc.so.6", Machine { wide: true, big: false, number: 62 });
    let _ = cache.directories();
}

/// A shell script.
pub fn shell(bytes: &[u8]) {
    let _ = shell::scan(bytes, &mut Variables::default());
}
