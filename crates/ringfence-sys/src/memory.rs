//! The memory that a program takes by being there.

use crate::sys;

/// Bytes of a page (x86-64, and most kernels elsewhere).
pub const PAGE: usize = 4096;

/// Gives memory back that was allocated and freed (`malloc_trim(3)`).
pub fn give_back() {
    // SAFETY: takes a number only, and the allocator is locked while it works.
    unsafe { libc::malloc_trim(0) };
}

/// Lets go of the program's own code and constants (`madvise(2)`, `MADV_DONTNEED`): they come
/// back from the page cache, page by page, when they are needed again.
pub fn let_go_of_code() {
    // The linker's own names for where the program begins, and for the end of its code: what is relocated comes behind.
    unsafe extern "C" {
        static __executable_start: u8;
        static etext: u8;
    }
    let start = (&raw const __executable_start).addr() & !(PAGE - 1);
    let end = (&raw const etext).addr() & !(PAGE - 1);
    // SAFETY: whole pages that are mapped from the file and were never written: the kernel maps the same content again
    // on the next touch.
    let _ = unsafe { sys!(madvise, start, end - start, libc::MADV_DONTNEED) };
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
