//! Where an object holds tables of numbers, in which nobody looks for texts: in most they take more of the constants
//! than the texts do.
//!
//! Section headers are believed only here: an object whose headers lie hides its own texts, and finds less.

use crate::bytes::Bytes;
use crate::elf::Object;
use object::read::elf::SectionHeader;
use object::{Endianness, elf, pod};

/// Of less constants than this all are read.
const ENOUGH: u64 = 32 << 10;
/// What is shorter than this is read with what is beside it.
const LEAST: u64 = 4 << 10;
/// The most section headers that are looked at.
const MOST: u16 = 1024;
/// Their names mostly stand before the headers, and are read with them.
const BEFORE: u64 = 1024;
/// The most that is read of their names.
const MOST_NAMES: usize = 64 << 10;

/// Parts of a file: where each begins, and where it ends.
type Parts = Vec<(u64, u64)>;

/// What is to be read of an object's constants: all but its tables.
pub(crate) fn texts(bytes: &dyn Bytes, object: &Object) -> Parts {
    let any = object.segments.iter().any(|segment| segment.constant);
    let constants = object.segments.iter().filter(|segment| segment.constant || !any);
    let constants =
        constants.map(|segment| (segment.offset, segment.offset.saturating_add(segment.length)));
    let mut texts: Parts = constants.collect();
    let length = texts.iter().fold(0_u64, |sum, (from, to)| sum.saturating_add(to - from));
    if length >= ENOUGH {
        for table in tables(bytes, object) {
            texts = texts.into_iter().flat_map(|part| without(part, table)).collect();
        }
    }
    texts
}

/// What is left of a part without another one.
fn without((from, to): (u64, u64), (start, end): (u64, u64)) -> impl Iterator<Item = (u64, u64)> {
    let pieces = [(from, to.min(start)), (from.max(end), to)];
    let apart = end <= from || to <= start;
    let pieces = if apart { [(from, to), (to, to)] } else { pieces };
    pieces.into_iter().filter(|(from, to)| from < to)
}

/// The tables, in the order of the file; those that follow each other are one.
fn tables(bytes: &dyn Bytes, object: &Object) -> Parts {
    let endian = if object.machine.big { Endianness::Big } else { Endianness::Little };
    let found = match object.machine.wide {
        true => read::<elf::FileHeader64<Endianness>>(bytes, object, endian),
        false => read::<elf::FileHeader32<Endianness>>(bytes, object, endian),
    };
    let mut found = found.unwrap_or_default();
    found.sort_unstable();
    let mut tables: Parts = Vec::new();
    for (from, to) in found {
        match tables.last_mut() {
            // They are aligned.
            Some(last) if from <= last.1.saturating_add(64) => last.1 = last.1.max(to),
            _ => tables.push((from, to)),
        }
    }
    tables.retain(|(from, to)| to - from >= LEAST);
    tables
}

fn read<H: object::read::elf::FileHeader<Endian = Endianness>>(
    bytes: &dyn Bytes,
    object: &Object,
    endian: Endianness,
) -> Option<Parts> {
    let (at, count, names) = object.sections?;
    let size = size_of::<H::SectionHeader>();
    let start = at.saturating_sub(BEFORE);
    let before = usize::try_from(at - start).ok()?;
    let length = before + usize::from(count.min(MOST)) * size;
    let read = bytes.part(start, length as u64, length);
    let headers = read.get(before..)?;
    let count = headers.len() / size;
    let (headers, _) = pod::slice_from_bytes::<H::SectionHeader>(headers, count).ok()?;
    let named = headers.get(usize::from(names))?;
    let (offset, length) = (named.sh_offset(endian).into(), named.sh_size(endian).into());
    let within = |offset: u64, length: u64| {
        let from = usize::try_from(offset.checked_sub(start)?).ok()?;
        read.get(from..from.checked_add(usize::try_from(length).ok()?)?)
    };
    let apart;
    let names = match within(offset, length) {
        Some(names) => names,
        None => {
            apart = bytes.part(offset, length, MOST_NAMES);
            &apart
        }
    };
    let is_table = |header: &&H::SectionHeader| match header.sh_type(endian) {
        elf::SHT_RELA | elf::SHT_REL | elf::SHT_RELR | elf::SHT_DYNSYM => true,
        elf::SHT_HASH | elf::SHT_GNU_HASH | elf::SHT_GNU_VERSYM => true,
        elf::SHT_NOBITS => false,
        _ => {
            let name = usize::try_from(header.sh_name(endian)).ok();
            let name = name.and_then(|at| names.get(at..)).unwrap_or_default();
            name.starts_with(b".eh_frame\0") || name.starts_with(b".eh_frame_hdr\0")
        }
    };
    let part = |header: &H::SectionHeader| {
        let (offset, size): (u64, u64) =
            (header.sh_offset(endian).into(), header.sh_size(endian).into());
        (offset, offset.saturating_add(size))
    };
    Some(headers.iter().filter(is_table).map(part).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_cut_where_another_one_is() {
        let left = |part, other| without(part, other).collect::<Parts>();
        assert_eq!(left((10, 20), (12, 15)), [(10, 12), (15, 20)]);
        assert_eq!(left((10, 20), (5, 15)), [(15, 20)]);
        assert_eq!(left((10, 20), (15, 25)), [(10, 15)]);
        assert_eq!(left((10, 20), (0, 30)), []);
        for apart in [(0, 10), (20, 30), (15, 15)] {
            let parts = left((10, 20), apart);
            assert_eq!(parts.iter().map(|(from, to)| to - from).sum::<u64>(), 10, "{apart:?}");
        }
    }

    /// Nothing is lost of what linkers made of texts, and much is left out.
    #[test]
    fn real_objects_say_the_same_without_their_tables() {
        let places =
            ["/usr/bin", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"];
        let entries = places.iter().filter_map(|place| std::fs::read_dir(place).ok()).flatten();
        let mut room = Vec::new();
        let (mut all, mut read) = (0, 0);
        let sum = |parts: &Parts| parts.iter().map(|(from, to)| to - from).sum::<u64>();
        for path in entries.flatten().map(|entry| entry.path()).take(600) {
            let Ok(file) = std::fs::File::open(&path) else { continue };
            let Some(object) = crate::elf::parse(&file) else { continue };
            let whole = Object { sections: None, ..object.clone() };
            let said = [&object, &whole].map(|object| crate::hints::of(&file, object, &mut room));
            assert_eq!(said[0], said[1], "{}", path.display());
            (all, read) = (all + sum(&texts(&file, &whole)), read + sum(&texts(&file, &object)));
        }
        assert!(all == 0 || read < all, "{read} of {all} bytes");
    }
}
