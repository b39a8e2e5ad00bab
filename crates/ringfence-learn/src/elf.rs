//! What one ELF object says about itself: interpreter, needs, search paths, notes.
//!
//! Only headers and the dynamic section are read. Numbers in them come from whoever made the
//! file: every size has a bound, and what does not fit makes the object unreadable or shorter,
//! never a panic (`elf(5)`, and the System V ABI's chapter 5 for the dynamic section).

use crate::bytes::Bytes;
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, pod};

/// The type of systemd's notes on what is opened at run time.
const NOTE_DLOPEN: u32 = 0x407c_0c0a;

/// `DF_1_NODEFLIB`: default directories are not searched.
const NO_DEFAULT: u64 = 0x800;

/// The most that is read of a table of program headers.
const MOST_HEADERS: usize = 128 << 10;
/// The most that is read of a dynamic section.
const MOST_DYNAMIC: usize = 128 << 10;
/// The most that is read of a table of strings, and of notes.
const MOST_STRINGS: usize = 16 << 20;
const MOST_NOTES: usize = 64 << 10;
/// The most libraries that one object may need.
const MOST_NEEDED: usize = 4096;
/// The longest name that is taken for one: `PATH_MAX`.
const LONGEST: usize = 4096;

/// The machine that an object is for. Objects of one machine load each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Machine {
    /// 64 bits (else 32).
    pub wide: bool,
    /// Big endian.
    pub big: bool,
    /// `e_machine`.
    pub number: u16,
}

/// A part of the file that is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where it is in the file.
    pub offset: u64,
    /// How long it is in the file.
    pub length: u64,
    /// Where it is in memory.
    pub address: u64,
    /// Neither executable nor writable.
    pub constant: bool,
}

/// What an object says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// What it is for.
    pub machine: Machine,
    /// `PT_INTERP`.
    pub interpreter: Option<Vec<u8>>,
    /// It has a dynamic section.
    pub dynamic: bool,
    /// `DT_NEEDED`, in order, and what `DT_AUXILIARY`, `DT_FILTER` and `DT_AUDIT` name.
    pub needed: Vec<Vec<u8>>,
    /// `DT_SONAME`.
    pub soname: Option<Vec<u8>>,
    /// `DT_RPATH`; unset where there is a `DT_RUNPATH`, as the loader has it.
    pub rpath: Option<Vec<u8>>,
    /// `DT_RUNPATH`.
    pub runpath: Option<Vec<u8>>,
    /// `DF_1_NODEFLIB`.
    pub no_default: bool,
    /// The GNU build-id.
    pub build_id: Option<Vec<u8>>,
    /// Names in `.note.dlopen`.
    pub dlopen: Vec<Vec<u8>>,
    /// What is mapped.
    pub segments: Vec<Segment>,
    /// The table of dynamic strings: offset and length.
    pub strings: Option<(u64, u64)>,
    /// The headers of sections, which no loader needs: offset, count, and which has their names.
    pub sections: Option<(u64, u16, u16)>,
}

/// Reads an object; unset where there is none, or one that no kernel would load.
pub fn parse(bytes: &dyn Bytes) -> Option<Object> {
    let (mut room, got);
    let head = match bytes.start() {
        Some(start) => start,
        None => {
            room = [0; 4096];
            got = bytes.read(0, &mut room);
            &room[..got]
        }
    };
    if head.get(..4)? != b"\x7fELF" {
        return None;
    }
    let endian = match head.get(5)? {
        1 => Endianness::Little,
        2 => Endianness::Big,
        _ => return None,
    };
    match head.get(4)? {
        1 => read::<FileHeader32<Endianness>>(bytes, head, endian, false),
        2 => read::<FileHeader64<Endianness>>(bytes, head, endian, true),
        _ => None,
    }
}

fn read<H: FileHeader<Endian = Endianness>>(
    bytes: &dyn Bytes,
    head: &[u8],
    endian: Endianness,
    wide: bool,
) -> Option<Object> {
    let (header, _) = pod::from_bytes::<H>(head).ok()?;
    if !matches!(header.e_type(endian), elf::ET_EXEC | elf::ET_DYN) {
        return None;
    }
    let size = size_of::<H::ProgramHeader>();
    if usize::from(header.e_phentsize(endian)) != size {
        return None;
    }
    let table = usize::from(header.e_phnum(endian)) * size;
    let offset: u64 = header.e_phoff(endian).into();
    let start = usize::try_from(offset).ok();
    let inside = start.and_then(|start| head.get(start..start.checked_add(table)?));
    let read;
    let table = match inside {
        Some(table) => table,
        None => {
            read = bytes.part(offset, table as u64, MOST_HEADERS);
            &read
        }
    };
    let (headers, _) = pod::slice_from_bytes::<H::ProgramHeader>(table, table.len() / size).ok()?;
    let number = header.e_machine(endian).0;
    let same = usize::from(header.e_shentsize(endian)) == size_of::<H::SectionHeader>();
    let sections =
        (header.e_shoff(endian).into(), header.e_shnum(endian), header.e_shstrndx(endian).0);
    let mut object = Object {
        machine: Machine { wide, big: endian == Endianness::Big, number },
        interpreter: None,
        dynamic: false,
        needed: Vec::new(),
        soname: None,
        rpath: None,
        runpath: None,
        no_default: false,
        build_id: None,
        dlopen: Vec::new(),
        segments: Vec::new(),
        strings: None,
        sections: same.then_some(sections),
    };
    let mut dynamic = None;
    for header in headers {
        let (offset, length) = (header.p_offset(endian).into(), header.p_filesz(endian).into());
        match header.p_type(endian) {
            elf::PT_INTERP if object.interpreter.is_none() => {
                let part = part(bytes, head, offset, length, LONGEST);
                object.interpreter = text(&part, 0).filter(|name| !name.is_empty());
            }
            elf::PT_DYNAMIC => dynamic = Some((offset, length)),
            elf::PT_LOAD => {
                let flags = header.p_flags(endian).0;
                let (read, others) = (elf::PF_R.0, elf::PF_X.0 | elf::PF_W.0);
                let constant = flags & read != 0 && flags & others == 0;
                let address = header.p_vaddr(endian).into();
                object.segments.push(Segment { offset, length, address, constant });
            }
            elf::PT_NOTE => {
                let notes = part(bytes, head, offset, length, MOST_NOTES);
                object.notes(&notes, endian);
            }
            _ => {}
        }
    }
    if let Some((offset, length)) = dynamic {
        object.dynamic = true;
        let table = bytes.part(offset, length, MOST_DYNAMIC);
        object.entries::<H>(bytes, &table, endian);
    }
    Some(object)
}

/// A part of the file, from what was read already where it is there.
fn part(bytes: &dyn Bytes, head: &[u8], offset: u64, length: u64, most: usize) -> Vec<u8> {
    let known = usize::try_from(offset).ok().zip(usize::try_from(length).ok());
    let known = known.and_then(|(start, length)| head.get(start..start.checked_add(length)?));
    match known {
        Some(part) => part[..part.len().min(most)].to_vec(),
        None => bytes.part(offset, length, most),
    }
}

/// The text at a place in a table, without its NUL.
fn text(table: &[u8], at: usize) -> Option<Vec<u8>> {
    let rest = table.get(at..)?;
    let end = memchr::memchr(0, &rest[..rest.len().min(LONGEST)])?;
    Some(rest[..end].to_vec())
}

impl Object {
    /// Nothing is loaded with it: neither an interpreter nor a library.
    pub fn is_static(&self) -> bool {
        self.interpreter.is_none() && self.needed.is_empty()
    }

    /// Where in the file an address of memory comes from.
    fn offset_of(&self, address: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| {
            let within = address.checked_sub(segment.address)?;
            (within < segment.length).then(|| segment.offset.checked_add(within))?
        })
    }

    fn entries<H: FileHeader<Endian = Endianness>>(
        &mut self,
        bytes: &dyn Bytes,
        table: &[u8],
        endian: Endianness,
    ) {
        let count = table.len() / size_of::<H::Dyn>();
        let Ok((entries, _)) = pod::slice_from_bytes::<H::Dyn>(table, count) else { return };
        let entries: Vec<(u64, u64)> = entries
            .iter()
            .map(|entry| (entry.tag(endian).0 as u64, entry.val(endian)))
            .take_while(|(tag, _)| *tag != 0)
            .collect();
        let value = |wanted: i64| {
            entries.iter().find(|(tag, _)| *tag == wanted as u64).map(|(_, value)| *value)
        };
        let place = value(elf::DT_STRTAB.0).and_then(|address| self.offset_of(address));
        let Some(offset) = place else { return };
        let length = value(elf::DT_STRSZ.0).unwrap_or(MOST_STRINGS as u64);
        self.strings = Some((offset, length));
        let mut strings = Strings { bytes, start: 0, window: Vec::new() };
        let mut name = |at: u64| strings.at(offset.checked_add(at).filter(|_| at < length)?);
        for (tag, at) in &entries {
            let listed = [
                elf::DT_NEEDED.0,
                elf::DT_AUXILIARY.0,
                elf::DT_FILTER.0,
                elf::DT_AUDIT.0,
                elf::DT_DEPAUDIT.0,
            ];
            if listed.iter().any(|listed| *listed as u64 == *tag)
                && self.needed.len() < MOST_NEEDED
                && let Some(name) = name(*at).filter(|name| !name.is_empty())
                && !self.needed.contains(&name)
            {
                self.needed.push(name);
            }
        }
        self.soname = value(elf::DT_SONAME.0).and_then(&mut name);
        self.runpath = value(elf::DT_RUNPATH.0).and_then(&mut name);
        self.rpath = value(elf::DT_RPATH.0).and_then(&mut name).filter(|_| self.runpath.is_none());
        self.no_default = value(elf::DT_FLAGS_1.0).is_some_and(|flags| flags & NO_DEFAULT != 0);
    }

    /// Notes: name size, description size, type, name, description; each aligned to four.
    fn notes(&mut self, notes: &[u8], endian: Endianness) {
        let mut rest = notes;
        while rest.len() >= 12 {
            let word = |at: usize| {
                let bytes = [rest[at], rest[at + 1], rest[at + 2], rest[at + 3]];
                let little = endian == Endianness::Little;
                if little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) }
            };
            let (name, length, kind) = (word(0) as usize, word(4) as usize, word(8));
            let aligned = |size: usize| size.checked_add(3).map(|size| size & !3);
            let Some(start) = aligned(name).and_then(|name| name.checked_add(12)) else { return };
            let Some(description) = start.checked_add(length).and_then(|end| rest.get(start..end))
            else {
                return;
            };
            match (rest.get(12..12 + name), kind) {
                (Some(b"GNU\0"), 3) => self.build_id = Some(description.to_vec()),
                (Some(b"FDO\0"), NOTE_DLOPEN) => self.dlopen.extend(sonames(description)),
                _ => {}
            }
            let Some(next) = aligned(length).and_then(|length| start.checked_add(length)) else {
                return;
            };
            rest = rest.get(next..).unwrap_or(&[]);
        }
    }
}

/// Strings of the file, of which those that are needed mostly follow each other.
struct Strings<'b> {
    bytes: &'b dyn Bytes,
    /// Where the window begins.
    start: u64,
    /// What was read last.
    window: Vec<u8>,
}

impl Strings<'_> {
    fn at(&mut self, offset: u64) -> Option<Vec<u8>> {
        const WINDOW: usize = 1024;
        let within = offset.checked_sub(self.start).and_then(|at| usize::try_from(at).ok());
        if let Some(known) = within.and_then(|at| text(&self.window, at)) {
            return Some(known);
        }
        self.start = offset;
        self.window.resize(WINDOW, 0);
        let got = self.bytes.read(offset, &mut self.window);
        self.window.truncate(got);
        let known = text(&self.window, 0);
        known.or_else(|| text(&self.bytes.part(offset, LONGEST as u64, LONGEST), 0))
    }
}

/// The names in a note: JSON, a list of objects with a list `soname` each
/// (<https://uapi-group.org/specifications/specs/elf_dlopen_metadata/>).
fn sonames(description: &[u8]) -> Vec<Vec<u8>> {
    let end = memchr::memchr(0, description).unwrap_or(description.len());
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(&description[..end]) else {
        return Vec::new();
    };
    let features = value.as_array().into_iter().flatten();
    let names = features.filter_map(|feature| feature.get("soname")?.as_array()).flatten();
    names.filter_map(|name| Some(name.as_str()?.as_bytes().to_vec())).take(MOST_NEEDED).collect()
}
