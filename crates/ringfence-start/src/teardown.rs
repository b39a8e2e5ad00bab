//! The view's end, left to the kernel.
//!
//! A mount namespace is taken apart by whoever lets go of it last: some fifty mounts, a grace period of RCU, the file
//! systems in memory; half of what the warden's end takes, for which its launcher waits. So the namespace is held by a
//! message that lies unread in a socket, and the socket by another message in itself. When the warden's descriptors
//! are gone, only the kernel's collector of such circles finds it (`net/unix/garbage.c`), in a thread of its own, and
//! lets go of the namespace there: some milliseconds after the run nothing is left of the view.
//!
//! Nobody can enter it meanwhile: there is no process in it, and no descriptor that anybody could receive. What
//! takes longest of it is done while the command runs, when nobody waits for the warden.

use crate::call::{close, sys};
use crate::machine::hand_out;
use crate::stamp::AT_FDCWD;

/// What it takes to leave the caller's mount namespace to the kernel. Nothing is under way in a socket before that is done:
/// of such descriptors a user may have so many only (`RLIMIT_NOFILE`), and sandboxes that live are many.
pub(crate) struct Circle {
    namespace: i32,
    near: i32,
    far: i32,
}

impl Circle {
    /// Nothing where that cannot be done (no `/proc` in the view, no descriptors left): the namespace's end is waited for
    /// then, as that of others.
    pub(crate) fn prepare() -> Option<Circle> {
        const READ_CLOEXEC: usize = 0o2_000_000;
        let path = c"/proc/self/ns/mnt".as_ptr();
        // SAFETY: the path ends with a zero byte.
        let namespace = unsafe { sys!(openat, AT_FDCWD, path, READ_CLOEXEC, 0) }.ok()? as i32;
        match crate::entry::socket_pair() {
            Ok((near, far)) => Some(Circle { namespace, near, far }),
            Err(_) => {
                close(namespace);
                None
            }
        }
    }

    /// Has the namespace outlive the caller, who is about to end, by a moment: the descriptors are closed with it. By
    /// itself each would have the collector woken, on a processor that has gone idle.
    pub(crate) fn leave(self) {
        let _ = hand_out(self.near, b'n', self.namespace)
            .and_then(|()| hand_out(self.near, b's', self.far));
    }

    /// Lets go of it: the caller goes on in another way.
    pub(crate) fn undo(self) {
        close(self.near);
        close(self.far);
        close(self.namespace);
    }
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
