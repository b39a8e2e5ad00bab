//! Capabilities: given up, all of them (capabilities(7)), by those that confine themselves and by threads that
//! need none.

use crate::{Errno, Result, sys};

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Sets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Second version of the interface with two 32-bit halves, `_LINUX_CAPABILITY_VERSION_3`.
const VERSION: u32 = 0x2008_0522;

/// The capability to change bounding and ambient sets.
const CAP_SETPCAP: u32 = 8;

/// Whether a capability is in the effective set.
pub fn has(capability: u32) -> bool {
    let header = Header { version: VERSION, pid: 0 };
    let mut sets = [Sets::default(); 2];
    // SAFETY: version 3 reads the header and fills two Sets.
    unsafe { sys!(capget, &raw const header, sets.as_mut_ptr()) }.is_ok()
        && sets[(capability / 32) as usize].effective & (1 << (capability % 32)) != 0
}

/// `CAP_SYS_ADMIN`.
pub const SYS_ADMIN: u32 = 21;

/// Empties the bounding, ambient, permitted, effective and inheritable sets of the calling
/// thread. Nothing executed afterwards can hold a capability again, not even as uid 0.
///
/// # Errors
/// The kernel's; the caller must not go on then.
pub fn drop_all() -> Result<()> {
    if has(CAP_SETPCAP) {
        // The number of capabilities grows with the kernel: EINVAL names the end.
        for capability in 0..64 {
            // SAFETY: prctl with these operations takes numbers only.
            match unsafe { sys!(prctl, libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } {
                Ok(_) => {}
                Err(Errno::EINVAL) => break,
                Err(errno) => return Err(errno),
            }
        }
    }
    // SAFETY: as above.
    match unsafe { sys!(prctl, libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) } {
        Ok(_) | Err(Errno::EINVAL) => {}
        Err(errno) => return Err(errno),
    }
    let header = Header { version: VERSION, pid: 0 };
    let none = [Sets::default(); 2];
    // SAFETY: version 3 reads the header and two Sets.
    unsafe { sys!(capset, &raw const header, none.as_ptr()) }.map(drop)
}

/// Takes all capabilities from the calling thread and those that it starts, and what executing a program could
/// give them (`no_new_privs`). Other threads keep theirs, and share its memory: this is against mistakes in what a
/// thread does for others, not against whom it obeys altogether.
///
/// # Errors
/// The kernel's; the thread must not go on then.
pub fn give_up() -> Result<()> {
    // SAFETY: prctl with this operation takes numbers only.
    unsafe { sys!(prctl, libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }?;
    drop_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gives_up_what_others_keep() {
        let ours = |line: &str| {
            let status = std::fs::read_to_string("/proc/thread-self/status").expect("read");
            let found = status.lines().find_map(|one| one.strip_prefix(line)?.strip_prefix(':'));
            found.expect("a line of status").trim().to_owned()
        };
        let before = ours("CapPrm");
        let none = "0000000000000000";
        std::thread::spawn(move || {
            give_up().expect("given up");
            for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
                assert_eq!(ours(set), none, "{set}");
            }
            assert_eq!(ours("NoNewPrivs"), "1");
            let heir = std::thread::spawn(move || (ours("CapPrm"), ours("NoNewPrivs"))).join();
            assert_eq!(heir.expect("joined"), (none.to_owned(), "1".to_owned()));
        })
        .join()
        .expect("joined");
        assert_eq!(ours("CapPrm"), before);
    }
}
