//! The pages of the program that libc's start relocates, all of them, one word after the other: had at
//! once they take one call, and not a page fault each, which costs more than the page where a hypervisor is.

use crate::call::sys;
use crate::key::Caller;

const PAGE: usize = 4096;

// `getauxval(3)`, `elf(5)`.
const AT_PHDR: usize = 3;
const AT_PHENT: usize = 4;
const AT_PHNUM: usize = 5;
const PT_PHDR: u32 = 6;
const PT_GNU_RELRO: u32 = 0x6474_e552;
/// `MADV_POPULATE_WRITE`, since Linux 5.14. Older ones refuse it, and take the faults.
const POPULATE: usize = 23;

/// A program header of a 64-bit object.
#[repr(C)]
#[derive(Clone, Copy)]
struct Header {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    physical: u64,
    in_file: u64,
    in_memory: u64,
    aligned: u64,
}

/// Asks for them, on the way to libc.
///
/// # Safety
/// What the caller was read off must be the stack of this process's entry.
pub(crate) unsafe fn populate(caller: &Caller) {
    // SAFETY: by the caller's word; the call changes no page's content.
    unsafe {
        if let Some((start, length)) = region(caller) {
            let _ = sys!(madvise, start, length, POPULATE);
        }
    }
}

/// Where they are: the first one, and how many bytes.
///
/// # Safety
/// What the caller was read off must be the stack of this process's entry.
pub unsafe fn region(caller: &Caller) -> Option<(usize, usize)> {
    // SAFETY: behind the environment's null pointer are pairs of words up to a zero; they lead to the
    // program's own headers, which are mapped.
    unsafe {
        let mut at = caller.environment;
        while !(*at).is_null() {
            at = at.add(1);
        }
        let mut pair = at.add(1).cast::<usize>();
        let (mut table, mut size, mut count) = (0, 0, 0);
        while *pair != 0 {
            match *pair {
                AT_PHDR => table = *pair.add(1),
                AT_PHENT => size = *pair.add(1),
                AT_PHNUM => count = *pair.add(1),
                _ => {}
            }
            pair = pair.add(2);
        }
        if table == 0 || size != size_of::<Header>() {
            return None;
        }
        let headers = table as *const Header;
        let (mut base, mut found) = (0, None);
        let mut index = 0;
        while index < count {
            let header = &*headers.add(index);
            if header.kind == PT_PHDR {
                base = table.wrapping_sub(header.address as usize);
            } else if header.kind == PT_GNU_RELRO {
                found = Some((header.address as usize, header.in_file as usize));
            }
            index += 1;
        }
        let (address, length) = found?;
        let address = address.wrapping_add(base);
        let start = address & !(PAGE - 1);
        let end = address.wrapping_add(length).wrapping_add(PAGE - 1) & !(PAGE - 1);
        Some((start, end.wrapping_sub(start)))
    }
}
