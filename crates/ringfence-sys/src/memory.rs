//! The memory that a program takes by being there.

use crate::sys;

/// Bytes of a page (x86-64, and most kernels elsewhere).
pub const PAGE: usize = 4096;
const PT_LOAD: u32 = 1;
const PF_W: u32 = 2;

/// Gives memory back that was allocated and freed (`malloc_trim(3)`).
pub fn give_back() {
    // SAFETY: takes a number only, and the allocator is locked while it works.
    unsafe { libc::malloc_trim(0) };
}

/// Lets go of the program's own code and constants (`madvise(2)`, `MADV_DONTNEED`): they come
/// back from the page cache, page by page, when they are needed again.
///
/// Only segments that cannot be written are given back: what was relocated stays.
pub fn let_go_of_code() {
    // SAFETY: getauxval takes a number.
    let (table, count, size) = unsafe {
        (
            libc::getauxval(libc::AT_PHDR) as usize,
            libc::getauxval(libc::AT_PHNUM) as usize,
            libc::getauxval(libc::AT_PHENT) as usize,
        )
    };
    if table == 0 || size != size_of::<libc::Elf64_Phdr>() {
        return;
    }
    // SAFETY: the kernel says that the program's headers are there, so many of them.
    let headers = unsafe { std::slice::from_raw_parts(table as *const libc::Elf64_Phdr, count) };
    // Where the program was loaded: the headers stand behind the file's own header, which is
    // in the first segment.
    let Some(first) = headers.iter().find(|header| header.p_type == PT_LOAD) else { return };
    let file = first.p_offset as usize;
    let Some(base) = table
        .checked_sub(size_of::<libc::Elf64_Ehdr>())
        .filter(|_| file == 0)
        .and_then(|start| start.checked_sub(first.p_vaddr as usize))
    else {
        return;
    };
    let page = 4096;
    for header in headers {
        if header.p_type == PT_LOAD && header.p_flags & PF_W == 0 {
            let start = (base + header.p_vaddr as usize).next_multiple_of(page);
            let end = (base + header.p_vaddr as usize + header.p_memsz as usize) / page * page;
            if start < end {
                // SAFETY: whole pages of a segment that is mapped from the file and was never
                // written: the kernel maps the same content again on the next touch.
                let _ = unsafe { sys!(madvise, start, end - start, libc::MADV_DONTNEED) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_program_goes_on_without_its_code() {
        let text = "constants and code are there again when they are needed".to_owned();
        super::let_go_of_code();
        assert_eq!(format!("{text}!").len(), text.len() + 1);
        super::let_go_of_code();
    }
}
