//! A kernel as libkrun loads it: of Debian's packed image the program that is in it, with a segment more that holds the tables of
//! [`super::acpi`].

use super::acpi;

/// Lengths and places in the image's header (x86's boot protocol, 2.08).
const SECTORS: usize = 0x1f1;
const MAGIC: usize = 0x202;
const PAYLOAD: usize = 0x248;
/// An archive of LZ4 as kernels have it: pieces, each after its length.
const PACKED: u32 = 0x184c_2102;
/// The most that is unpacked.
const MOST: usize = 256 << 20;
/// Lengths of a program's header, and of one for each of its segments (elf(5)).
const HEADER: usize = 64;
const SEGMENT: usize = 56;
const LOADED: u64 = 1;

/// Makes it of a packed image.
///
/// # Errors
/// A sentence: it is not packed as Debian packs them.
pub fn make(image: &[u8], tables: &[u8]) -> Result<Vec<u8>, String> {
    let odd = |what: &str| format!("the guest's kernel cannot be given to libkrun: {what}");
    let payload = payload(image).ok_or_else(|| odd("it is no image of x86's boot protocol"))?;
    if number(payload, 0, 4) != Some(PACKED.into()) {
        return Err(odd("it is not packed by LZ4, as Debian 12's is"));
    }
    let program =
        unpacked(&payload[4..]).ok_or_else(|| odd("what is packed in it is not whole"))?;
    with(&program, tables).ok_or_else(|| odd("what is packed in it is no program of x86-64"))
}

fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(length)?)?;
    Some(bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

fn payload(image: &[u8]) -> Option<&[u8]> {
    if image.get(MAGIC..MAGIC + 4)? != b"HdrS" || number(image, MAGIC + 4, 2)? < 0x208 {
        return None;
    }
    let sectors = number(image, SECTORS, 1)?;
    let at = (sectors as usize + 1) * 512 + number(image, PAYLOAD, 4)? as usize;
    image.get(at..at.checked_add(number(image, PAYLOAD + 4, 4)? as usize)?)
}

/// Unpacks pieces. What follows the last one is how long all of them are.
fn unpacked(mut pieces: &[u8]) -> Option<Vec<u8>> {
    let (all, length) = pieces.split_at_checked(pieces.len().checked_sub(4)?)?;
    let length = number(length, 0, 4)? as usize;
    let mut out = vec![0; Some(length).filter(|length| *length <= MOST)?];
    let mut place = 0;
    pieces = all;
    while !pieces.is_empty() {
        let size = number(pieces, 0, 4)?;
        pieces = &pieces[4..];
        if size != u64::from(PACKED) {
            let piece;
            (piece, pieces) = pieces.split_at_checked(size as usize)?;
            place += lz4_flex::block::decompress_into(piece, &mut out[place..]).ok()?;
        }
    }
    (place == length).then_some(out)
}

/// A program of what another one loads, and the tables: without sections, and without notes, which would have it begun
/// otherwise.
fn with(program: &[u8], tables: &[u8]) -> Option<Vec<u8>> {
    // 64 bits, the lowest first.
    if program.get(..6)? != b"\x7fELF\x02\x01" || number(program, 54, 2)? != SEGMENT as u64 {
        return None;
    }
    let first = number(program, 32, 8)? as usize;
    let mut segments = vec![(acpi::BASE, tables.len() as u64, tables)];
    for at in 0..number(program, 56, 2)? as usize {
        let at = first.checked_add(at * SEGMENT)?;
        if number(program, at, 4)? != LOADED {
            continue;
        }
        let field = |place: usize| number(program, at + place, 8);
        let (from, length) = (field(8)? as usize, field(32)? as usize);
        segments.push((field(24)?, field(40)?, program.get(from..from.checked_add(length)?)?));
    }
    let mut out = program.get(..HEADER)?.to_vec();
    out[32..40].copy_from_slice(&(HEADER as u64).to_le_bytes());
    out[40..48].fill(0);
    out[56..58].copy_from_slice(&(segments.len() as u16).to_le_bytes());
    out[58..64].fill(0);
    let mut place = (HEADER + segments.len() * SEGMENT) as u64;
    for (address, memory, bytes) in &segments {
        let length = bytes.len() as u64;
        // To be loaded, executed, written and read: who loads it looks at places and lengths only.
        out.extend((7 << 32 | LOADED).to_le_bytes());
        for field in [place, *address, *address, length, *memory, 1] {
            out.extend(field.to_le_bytes());
        }
        place += length;
    }
    segments.iter().for_each(|(_, _, bytes)| out.extend_from_slice(bytes));
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program of one segment.
    fn program(bytes: &[u8]) -> Vec<u8> {
        let mut program = vec![0; 200];
        program[..6].copy_from_slice(b"\x7fELF\x02\x01");
        program[32] = HEADER as u8;
        program[54] = SEGMENT as u8;
        // A note, and what is loaded.
        program[56] = 2;
        program[HEADER] = 4;
        let at = HEADER + SEGMENT;
        program[at] = LOADED as u8;
        for (place, value) in [(8, 200), (24, 0x100_0000), (32, bytes.len() as u64), (40, 4096)] {
            program[at + place..at + place + 8].copy_from_slice(&u64::to_le_bytes(value));
        }
        [&program, bytes].concat()
    }

    /// An image that holds a program, in pieces as they are.
    fn image(program: &[u8]) -> Vec<u8> {
        let mut payload = PACKED.to_le_bytes().to_vec();
        for piece in program.chunks(100) {
            let packed = [&[0xf0, piece.len() as u8 - 15][..], piece].concat();
            payload.extend([&(packed.len() as u32).to_le_bytes()[..], &packed].concat());
        }
        payload.extend((program.len() as u32).to_le_bytes());
        let mut image = vec![0; 1024];
        image[SECTORS] = 1;
        image[MAGIC..MAGIC + 6].copy_from_slice(b"HdrS\x0f\x02");
        image[PAYLOAD + 4..PAYLOAD + 8].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        [image, payload].concat()
    }

    #[test]
    fn the_tables_are_one_segment_more_and_the_kernel_is_where_it_was() {
        let kernel: Vec<u8> = (0..=255).collect();
        let made = make(&image(&program(&kernel)), b"tables").expect("made");
        assert_eq!(number(&made, 56, 2), Some(2));
        for (at, (address, bytes)) in
            [(acpi::BASE, &b"tables"[..]), (0x100_0000, &kernel)].iter().enumerate()
        {
            let at = HEADER + at * SEGMENT;
            let field = |place: usize| number(&made, at + place, 8).expect("there");
            let (from, length) = (field(8) as usize, field(32) as usize);
            assert_eq!((number(&made, at, 4), field(24)), (Some(LOADED), *address));
            assert_eq!(&made[from..from + length], *bytes);
        }
    }

    #[test]
    fn what_is_repeated_is_found_where_it_is() {
        // Behind a piece of six bytes, which is none of the next one's.
        let part = |piece: &[u8], length: u32| {
            let before = [&7_u32.to_le_bytes()[..], b"\x60before"].concat();
            let size = (piece.len() as u32).to_le_bytes();
            let all = [&before, &size[..], piece, &(6 + length).to_le_bytes()].concat();
            unpacked(&all).map(|mut out| out.split_off(6))
        };
        assert_eq!(part(b"\x32abc\x03\0\x10d", 10).as_deref(), Some(&b"abcabcabcd"[..]));
        let long = part(b"\x1fa\x01\0\xff\x05\x10b", 281).expect("a run");
        assert!(long == [vec![b'a'; 1 + 4 + 15 + 255 + 5], b"b".to_vec()].concat());
        // Longer and shorter than it is said to be.
        for length in [9, 11] {
            assert_eq!(part(b"\x32abc\x03\0\x10d", length), None, "{length}");
        }
        // Before the piece's beginning, nowhere, and cut off.
        let odd = [&b"\x10a\x02\0\x10b"[..], b"\x10a\0\0\x10b", b"\x40abc", b"\xf0\xff"];
        for piece in odd {
            assert!((0..300).all(|length| part(piece, length).is_none()), "{piece:?}");
        }
    }

    #[test]
    fn what_is_no_kernel_is_refused() {
        let whole = image(&program(b"a kernel of some length"));
        let refused = |image: &[u8], why: &str| {
            let said = make(image, b"").expect_err("refused");
            assert!(said.contains(why), "{said}");
        };
        refused(b"", "boot protocol");
        refused(&whole[..whole.len() - 9], "boot protocol");
        let mut other = whole.clone();
        other[1024] = 0;
        refused(&other, "LZ4");
        let mut short = whole.clone();
        let last = short.len() - 4;
        short[last] ^= 1;
        refused(&short, "not whole");
        refused(&image(b"0123456789abcdefghij"), "no program");
    }
}
