//! The program's own code and constants, let go of by who is about to wait.
//!
//! Fault-around maps sixteen pages for each that is touched, and a process unmaps all of them at its end, which is
//! when somebody waits for it. They stay in the page cache, and come back with the next touch.

use crate::call::sys;
use core::arch::asm;

const PAGE: usize = 4096;
/// `MADV_DONTNEED` (madvise(2)).
const DO_NOT_NEED: usize = 4;

// The linker's own names for where the program begins, and for the end of its code. What is between them is
// mapped from the file and never written: what is relocated comes behind the code.
unsafe extern "C" {
    static __executable_start: u8;
    static etext: u8;
}

/// An address as a distance from here: the table that a compiler would take it from is not relocated before libc
/// is up.
macro_rules! address {
    ($symbol:path) => {{
        let address: usize;
        // SAFETY: computes a number.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            asm!("lea {}, [rip + {}]", out(reg) address, sym $symbol, options(nomem, nostack, pure));
            #[cfg(target_arch = "aarch64")]
            asm!("adrp {0}, {1}", "add {0}, {0}, :lo12:{1}", out(reg) address, sym $symbol,
                options(nomem, nostack, pure));
        }
        address
    }};
}

/// Lets go of them.
pub fn let_go() {
    let start = address!(__executable_start) & !(PAGE - 1);
    let end = address!(etext) & !(PAGE - 1);
    // SAFETY: whole pages that are mapped from the file and were never written: the kernel maps the same content
    // again on the next touch.
    let _ = unsafe { sys!(madvise, start, end.wrapping_sub(start), DO_NOT_NEED) };
}
