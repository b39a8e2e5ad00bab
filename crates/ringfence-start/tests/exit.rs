//! A process ends where the call that ends it is not carried out any more.

use ringfence_start::{Sysno, call};

unsafe extern "C" {
    fn fork() -> i32;
    fn alarm(seconds: u32) -> u32;
    fn prctl(option: i32, ...) -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
}

/// `struct sock_filter`.
#[repr(C)]
struct Instruction(u16, u8, u8, u32);

/// `struct sock_fprog`.
#[repr(C)]
struct Program(u16, *const Instruction);

/// Ends, with `exit_group` refused as by a listener that is gone, or not.
fn ended(refused: bool) -> i32 {
    const ERRNO_ENOSYS: u32 = 0x0005_0000 | 38;
    const ALLOW: u32 = 0x7fff_0000;
    let filter = [
        Instruction(0x20, 0, 0, 0),                        // the call's number
        Instruction(0x15, 0, 1, Sysno::exit_group as u32), // is it this one
        Instruction(0x06, 0, 0, if refused { ERRNO_ENOSYS } else { ALLOW }),
        Instruction(0x06, 0, 0, ALLOW),
    ];
    let program = Program(4, filter.as_ptr());
    // SAFETY: the child calls nothing that takes a lock; the program outlives the call.
    unsafe {
        let child = fork();
        if child == 0 {
            // What does not end by itself is ended, otherwise.
            alarm(20);
            prctl(38, 1, 0, 0, 0); // PR_SET_NO_NEW_PRIVS
            prctl(22, 2, &raw const program); // PR_SET_SECCOMP, a filter
            call::exit(5);
        }
        let mut status = 0;
        assert_eq!(waitpid(child, &raw mut status, 0), child);
        status
    }
}

#[test]
fn a_process_ends_whose_end_is_refused() {
    assert_eq!(ended(false), 5 << 8, "the control");
    assert_eq!(ended(true) & 0x7f, 4, "SIGILL");
}
