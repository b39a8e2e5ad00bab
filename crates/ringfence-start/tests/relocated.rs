//! The pages that libc's start relocates are found in the program's own headers.

use ringfence_start::key::Caller;
use ringfence_start::relocated::region;

unsafe extern "C" {
    static environ: *const *const u8;
}

#[test]
fn what_is_had_at_once_is_what_libc_relocates() {
    // SAFETY: nothing has changed the environment: it is where the kernel put it, before the auxiliary vector.
    let caller = unsafe { Caller { count: 0, arguments: environ, environment: environ } };
    // SAFETY: as above.
    let (start, length) = unsafe { region(&caller) }.expect("headers");
    // Relocated, libc has made it read-only: a mapping of its own, of this program's file.
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let own = std::env::current_exe().expect("a name");
    let range = format!("{start:x}-{:x} r--p ", start + length);
    let line = maps.lines().find(|line| line.starts_with(&range));
    assert!(line.is_some_and(|line| line.ends_with(&*own.to_string_lossy())), "{range}\n{maps}");
}
