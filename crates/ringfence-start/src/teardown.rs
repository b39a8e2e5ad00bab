//! The view's end, left to the kernel.
//!
//! A mount namespace is taken apart by whoever lets go of it last: some fifty mounts, a grace period of RCU, the file
//! systems in memory; half of what the warden's end takes, for which its launcher waits. So the namespace is held by a
//! message that lies unread in a socket, and the socket by another message in itself. When the warden's descriptors
//! are gone, only the kernel's collector of such circles finds it (`net/unix/garbage.c`), in a thread of its own, and
//! lets go of the namespace there: some milliseconds after the run nothing is left of the view.
//!
//! Nobody can enter it meanwhile: there is no process in it, and no descriptor that anybody could receive. All of this
//! is prepared while the command runs, when nobody waits for the warden.

use crate::Result;
use crate::call::{close, sys};
use crate::machine::hand_out;
use crate::stamp::AT_FDCWD;

/// Has the caller's mount namespace outlive it by a moment, whenever it ends. Where that cannot be done (no `/proc` in
/// the view, no descriptors left), its end is waited for, as that of others.
pub(crate) fn leave_to_the_kernel() {
    const READ_CLOEXEC: usize = 0o2_000_000;
    let path = c"/proc/self/ns/mnt".as_ptr();
    // SAFETY: the path ends with a zero byte.
    let opened = unsafe { sys!(openat, AT_FDCWD, path, READ_CLOEXEC, 0) };
    if let Ok(namespace) = opened {
        let _ = hold(namespace as i32);
        close(namespace as i32);
    }
}

/// Puts a descriptor into a circle of sockets, which is closed when this process ends.
fn hold(namespace: i32) -> Result<()> {
    let (near, far) = crate::entry::socket_pair()?;
    let held = hand_out(near, b'n', namespace).and_then(|()| hand_out(near, b's', far));
    close(near);
    held
}

/// Has the kernel forget that another processor has used the caller's memory, as who shared it did until it executed.
///
/// Linux on x86 keeps a processor among those that have used a memory until it is told to forget page tables of it
/// (`flush_tlb_func` in arch/x86/mm/tlb.c, since 6.14). The end of a process would tell it, and wait: 40 µs in a virtual
/// machine. So a page is given back for which there are page tables of its own, while nobody waits for the caller.
pub(crate) fn forget_processors() {
    /// Far from all that the kernel places by itself.
    const ALONE: usize = 0x2000_0000_0000;
    const PAGE: usize = 4096;
    const PROT_READ_WRITE: usize = 3;
    const MAP_PRIVATE_ANONYMOUS: usize = 0x22;
    // SAFETY: a new mapping where nothing is, ours alone, and its first byte.
    unsafe {
        let mapped = sys!(mmap, ALONE, PAGE, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, -1_isize, 0);
        if let Ok(page) = mapped {
            (page as *mut u8).write_volatile(1);
            let _ = sys!(munmap, page, PAGE);
        }
    }
}
