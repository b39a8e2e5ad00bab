//! Seccomp filters (seccomp(2)): classic BPF over the number and arguments of a call.

use crate::fd::owned;
use crate::{Result, sys};
use std::os::fd::OwnedFd;

/// One BPF instruction, as `struct sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    /// Operation.
    pub code: u16,
    /// Instructions to skip when a test holds.
    pub jump_true: u8,
    /// Instructions to skip when it does not.
    pub jump_false: u8,
    /// Operand.
    pub operand: u32,
}

/// `struct sock_fprog`.
#[repr(C)]
struct SockFprog {
    length: u16,
    filter: *const Instruction,
}

/// The machine that filters are compiled for (`AUDIT_ARCH_*`).
#[cfg(target_arch = "x86_64")]
pub const AUDIT_ARCH: u32 = 0xC000_003E;
/// The machine that filters are compiled for (`AUDIT_ARCH_*`).
#[cfg(target_arch = "aarch64")]
pub const AUDIT_ARCH: u32 = 0xC000_00B7;
/// The machine that filters are compiled for (`AUDIT_ARCH_*`).
#[cfg(target_arch = "riscv64")]
pub const AUDIT_ARCH: u32 = 0xC000_00F3;

const SET_MODE_FILTER: u32 = 1;
const NEW_LISTENER: u32 = 1 << 3;
/// A supervised caller is not woken by signals that do not kill it (Linux 5.19).
const WAIT_KILLABLE: u32 = 1 << 5;

/// A compiled filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program(pub Vec<Instruction>);

impl Program {
    fn load(&self, flags: u32) -> Result<usize> {
        let length = u16::try_from(self.0.len()).map_err(|_| crate::Errno::E2BIG)?;
        let program = SockFprog { length, filter: self.0.as_ptr() };
        // SAFETY: `program` describes the instructions, which outlive the call.
        unsafe { sys!(seccomp, SET_MODE_FILTER, flags, &raw const program) }
    }

    /// Installs the filter on the calling thread, for good. `no_new_privs` must be set.
    ///
    /// # Errors
    /// `EINVAL` for a malformed program, `ENOMEM` when the filters together grow too long.
    pub fn install(&self) -> Result<()> {
        self.load(0).map(drop)
    }

    /// Installs the filter and returns the descriptor on which the kernel announces the calls
    /// that the filter hands to a supervisor.
    ///
    /// # Errors
    /// As [`Program::install`]; `EBUSY` when a filter with a listener is in force already.
    pub fn install_with_listener(&self) -> Result<OwnedFd> {
        match self.load(NEW_LISTENER | WAIT_KILLABLE) {
            Err(crate::Errno::EINVAL) => self.load(NEW_LISTENER),
            other => other,
        }
        .map(owned)
    }
}

/// Whether somebody listens for calls of this process already: a chain of filters has one listener
/// (seccomp_unotify(2)). Tried in a thread that ends, where there are filters at all; where no thread can be made, nobody
/// is taken to listen, and a filter with a listener of one's own is refused when it is put in force.
pub fn is_listened_to() -> bool {
    const RETURN: u16 = 0x06;
    const ALLOW: u32 = 0x7fff_0000;
    let none = crate::process::filters(std::process::id()) == Some(0);
    let tried = || {
        // Filters, capabilities and `no_new_privs` are the thread's.
        crate::caps::give_up()?;
        let allow = Instruction { code: RETURN, jump_true: 0, jump_false: 0, operand: ALLOW };
        Program(vec![allow]).install_with_listener().map(drop)
    };
    let in_thread = || std::thread::Builder::new().spawn(tried).ok()?.join().ok();
    !none && matches!(in_thread(), Some(Err(crate::Errno::EBUSY)))
}

/// Whether the kernel knows this action (`SECCOMP_GET_ACTION_AVAIL`).
pub fn action_available(action: u32) -> bool {
    const GET_ACTION_AVAIL: u32 = 2;
    // SAFETY: the pointer is to the four bytes that the operation reads.
    unsafe { sys!(seccomp, GET_ACTION_AVAIL, 0, &raw const action) }.is_ok()
}
