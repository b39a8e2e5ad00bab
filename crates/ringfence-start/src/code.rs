//! The program's own code and constants, as memory that it takes.

use crate::Result;
use crate::call::sys;
use core::ffi::c_void;

const PAGE: usize = 4096;
/// `MADV_DONTNEED`.
const LET_GO: usize = 4;

/// Lets go of them (`madvise(2)`): they come back from the page cache when they are needed again, by sixteen pages at once.
pub fn let_go() {
    let (start, end) = place();
    let (start, end) = (start & !(PAGE - 1), end & !(PAGE - 1));
    // SAFETY: whole pages that are mapped from the file and were never written: the kernel maps the same content again
    // on the next touch.
    let _ = unsafe { sys!(madvise, start, end.wrapping_sub(start), LET_GO) };
}

/// Waits (`ppoll(2)`) without them: lets go of them last, so that they do not come back on the way to where it waits.
///
/// # Safety
/// As for the call: so many entries in the list, and a time or none.
pub unsafe fn rest(list: *mut c_void, count: usize, limit: *const c_void) -> Result<usize> {
    let_go();
    // SAFETY: by the caller's word; no mask is given.
    unsafe { sys!(ppoll, list, count, limit, 0, 0) }
}

/// The linker's own names for where the program begins, and for the end of its code: what is relocated comes behind. They are
/// taken relative to this very code, since no table of addresses may be there yet.
fn place() -> (usize, usize) {
    let (start, end): (usize, usize);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: computes two addresses.
    unsafe {
        core::arch::asm!(
            "lea {start}, [rip + __executable_start]",
            "lea {end}, [rip + etext]",
            start = out(reg) start,
            end = out(reg) end,
            options(nomem, nostack, preserves_flags, pure)
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: computes two addresses.
    unsafe {
        core::arch::asm!(
            "adrp {start}, __executable_start",
            "add {start}, {start}, :lo12:__executable_start",
            "adrp {end}, etext",
            "add {end}, {end}, :lo12:etext",
            start = out(reg) start,
            end = out(reg) end,
            options(nomem, nostack, preserves_flags, pure)
        );
    }
    (start, end)
}
