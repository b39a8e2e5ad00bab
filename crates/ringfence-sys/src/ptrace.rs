//! A process that is held still and looked into (ptrace(2)). x86-64.

use crate::{Errno, Result, sys};

const SEIZE: usize = 0x4206;
const INTERRUPT: usize = 0x4207;
const CONTINUE: usize = 7;
const STEP: usize = 9;
const DETACH: usize = 17;
const GET_SET: usize = 0x4204;
const SET_SET: usize = 0x4205;
const GET_MASK: usize = 0x420a;
const GET_RSEQ: usize = 0x420f;
/// `NT_PRSTATUS`, `NT_X86_XSTATE`: which registers.
const GENERAL: usize = 1;
const EXTENDED: usize = 0x202;
/// `syscall`, as it stands in memory.
pub const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// General registers in the order of `struct user_regs_struct`.
pub type Registers = [u64; 27];
/// Places in [`Registers`].
#[allow(missing_docs)]
pub mod register {
    pub const R15: usize = 0;
    pub const R14: usize = 1;
    pub const R13: usize = 2;
    pub const R12: usize = 3;
    pub const RBP: usize = 4;
    pub const RBX: usize = 5;
    pub const R11: usize = 6;
    pub const R10: usize = 7;
    pub const R9: usize = 8;
    pub const R8: usize = 9;
    pub const RAX: usize = 10;
    pub const RCX: usize = 11;
    pub const RDX: usize = 12;
    pub const RSI: usize = 13;
    pub const RDI: usize = 14;
    pub const ORIG_RAX: usize = 15;
    pub const RIP: usize = 16;
    pub const CS: usize = 17;
    pub const FLAGS: usize = 18;
    pub const RSP: usize = 19;
    pub const SS: usize = 20;
    pub const FS_BASE: usize = 21;
    pub const GS_BASE: usize = 22;
}

/// `PTRACE_EVENT_STOP`.
const EVENT_STOP: i32 = 128;

/// Why a thread stands.
enum Stop {
    /// It is held, or stopped as its whole process is.
    Held,
    /// It is about to take this signal; SIGTRAP is that of a step that was made.
    Before(i32),
}

/// How often a step is tried that was held up by what goes before it.
const TRIES: u32 = 8;

/// A thread that this one holds still. Let go of, it goes on.
#[derive(Debug)]
pub struct Held(i32);

impl Held {
    /// Takes hold of a thread of another process.
    ///
    /// # Errors
    /// `EPERM`: it may not be looked into, or somebody else does; `ESRCH`: it has ended.
    pub fn seize(thread: i32) -> Result<Held> {
        // SAFETY: takes numbers only.
        unsafe { sys!(ptrace, SEIZE, thread, 0, 0) }?;
        let held = Held(thread);
        held.interrupt()?;
        Ok(held)
    }

    /// Its number.
    pub fn id(&self) -> i32 {
        self.0
    }

    fn interrupt(&self) -> Result<()> {
        // SAFETY: takes numbers only.
        unsafe { sys!(ptrace, INTERRUPT, self.0, 0, 0) }?;
        loop {
            match self.stopped()? {
                Stop::Held => return Ok(()),
                // It stands before a signal, which is its own: the interruption comes after that.
                Stop::Before(signal) => {
                    // SAFETY: takes numbers only.
                    unsafe { sys!(ptrace, CONTINUE, self.0, 0, signal) }?;
                }
            }
        }
    }

    /// Waits until it stands; why it does.
    fn stopped(&self) -> Result<Stop> {
        let mut status = 0_i32;
        loop {
            // SAFETY: `status` is room for the answer; no usage is asked for.
            match unsafe { sys!(wait4, self.0, &raw mut status, libc::__WALL, 0) } {
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
                Ok(_) if libc::WIFSTOPPED(status) && status >> 16 == EVENT_STOP => {
                    return Ok(Stop::Held);
                }
                Ok(_) if libc::WIFSTOPPED(status) => {
                    return Ok(Stop::Before(libc::WSTOPSIG(status)));
                }
                Ok(_) => return Err(Errno::ESRCH),
            }
        }
    }

    /// Lets it run on for a moment of so many milliseconds, and holds it again.
    ///
    /// # Errors
    /// It has ended.
    pub fn go_on_for(&self, milliseconds: u64) -> Result<()> {
        // SAFETY: takes numbers only.
        unsafe { sys!(ptrace, CONTINUE, self.0, 0, 0) }?;
        std::thread::sleep(std::time::Duration::from_millis(milliseconds));
        self.interrupt()
    }

    fn set(&self, operation: usize, which: usize, bytes: *mut u8, length: usize) -> Result<usize> {
        let mut vector = libc::iovec { iov_base: bytes.cast(), iov_len: length };
        // SAFETY: the vector describes memory of the caller's, which the kernel fills or reads no further than that.
        unsafe { sys!(ptrace, operation, self.0, which, &raw mut vector) }?;
        Ok(vector.iov_len)
    }

    /// Its general registers.
    ///
    /// # Errors
    /// It has ended.
    pub fn registers(&self) -> Result<Registers> {
        let mut registers = Registers::default();
        let length = size_of_val(&registers);
        let bytes = registers.as_mut_ptr().cast();
        (self.set(GET_SET, GENERAL, bytes, length)? == length)
            .then_some(registers)
            .ok_or(Errno::ENODATA)
    }

    /// Its floating point and vector registers, as XSAVE writes them in memory (Intel SDM volume 1, 13.4).
    ///
    /// # Errors
    /// It has ended.
    pub fn vectors(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; 64 * 1024];
        let length = self.set(GET_SET, EXTENDED, bytes.as_mut_ptr(), bytes.len())?;
        bytes.truncate(length);
        Ok(bytes)
    }

    /// Its blocked signals.
    ///
    /// # Errors
    /// It has ended.
    pub fn mask(&self) -> Result<u64> {
        let mut mask = 0_u64;
        // SAFETY: `mask` has the size that is given.
        unsafe { sys!(ptrace, GET_MASK, self.0, size_of::<u64>(), &raw mut mask) }?;
        Ok(mask)
    }

    /// Where its list of robust futexes begins, and how long the beginning is (get_robust_list(2)).
    ///
    /// # Errors
    /// It has ended.
    pub fn robust(&self) -> Result<(u64, u64)> {
        let (mut head, mut length) = (0_u64, 0_u64);
        // SAFETY: both pointers are to room for a word.
        unsafe { sys!(get_robust_list, self.0, &raw mut head, &raw mut length) }?;
        Ok((head, length))
    }

    /// Where its C library has the kernel write which processor it runs on (rseq(2)), if it does.
    ///
    /// # Errors
    /// `EIO`: the kernel does not tell (Linux 5.13).
    pub fn rseq(&self) -> Result<Option<u64>> {
        // struct ptrace_rseq_configuration: where, how long and by which signature, flags.
        let mut found = [0_u64; 3];
        let length = size_of_val(&found);
        // SAFETY: `found` has the size that is given.
        unsafe { sys!(ptrace, GET_RSEQ, self.0, length, found.as_mut_ptr()) }?;
        Ok((found[0] != 0).then_some(found[0]))
    }

    /// Has it make a system call with four words, and puts its registers back. It must stand behind a call of its own:
    /// that instruction is executed again.
    ///
    /// # Errors
    /// It has ended; `EINTR`: a signal came first, which it has lost, and the call was not made; the call's.
    pub fn call(&self, number: crate::Sysno, words: [u64; 4]) -> Result<usize> {
        use register::{ORIG_RAX, R10, RAX, RDI, RDX, RIP, RSI};
        let mut before = self.registers()?;
        let mut registers = before;
        registers[RIP] -= SYSCALL.len() as u64;
        registers[RAX] = number as u64;
        // No call is to be made again.
        registers[ORIG_RAX] = u64::MAX;
        (registers[RDI], registers[RSI], registers[RDX], registers[R10]) =
            (words[0], words[1], words[2], words[3]);
        let length = size_of_val(&registers);
        self.set(SET_SET, GENERAL, registers.as_mut_ptr().cast(), length)?;
        let after = self.step().and_then(|()| self.registers());
        self.set(SET_SET, GENERAL, before.as_mut_ptr().cast(), length)?;
        let after = after?;
        if after[RIP] != before[RIP] {
            return Err(Errno::EINTR);
        }
        match after[RAX] as i64 {
            failed @ -4095..0 => Err(Errno::new(-failed as i32)),
            result => Ok(result as usize),
        }
    }
}

impl Held {
    /// Has it execute one instruction.
    fn step(&self) -> Result<()> {
        for _ in 0..TRIES {
            // SAFETY: takes numbers only.
            unsafe { sys!(ptrace, STEP, self.0, 0, 0) }?;
            match self.stopped()? {
                Stop::Held => {}
                Stop::Before(libc::SIGTRAP) => return Ok(()),
                Stop::Before(_) => return Err(Errno::EINTR),
            }
        }
        Err(Errno::EINTR)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: takes numbers only.
        let _ = unsafe { sys!(ptrace, DETACH, self.0, 0, 0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_is_looked_into_and_goes_on() {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("cat(1)");
        let pid = child.id() as i32;
        let memory = std::fs::File::open(format!("/proc/{pid}/mem")).expect("its memory");
        let held = Held::seize(pid).expect("held");
        // It may not have come to its read(2) yet.
        let in_call = |registers: &Registers| {
            let mut before = [0; 2];
            let at = registers[register::RIP].saturating_sub(2);
            registers[register::ORIG_RAX] == 0
                && memory.read_exact_at(&mut before, at).is_ok()
                && before == SYSCALL
        };
        let mut registers = held.registers().expect("registers");
        while !in_call(&registers) {
            held.go_on_for(1).expect("goes on");
            registers = held.registers().expect("registers");
        }
        assert_eq!(held.call(crate::Sysno::getpid, [0; 4]), Ok(pid as usize));
        assert_eq!(held.call(crate::Sysno::close, [999, 0, 0, 0]), Err(Errno::EBADF));
        assert_eq!(held.registers(), Ok(registers));
        // A signal that comes first: no call was made, and none is told to have been.
        crate::signal::kill(pid, libc::SIGWINCH).expect("sent");
        assert_eq!(held.call(crate::Sysno::getpid, [0; 4]), Err(Errno::EINTR));
        assert_eq!(held.registers(), Ok(registers));
        assert_eq!(held.call(crate::Sysno::getpid, [0; 4]), Ok(pid as usize));
        assert!(held.vectors().expect("vectors").len() >= 576);
        assert_eq!(held.mask(), Ok(0));
        assert_ne!(held.robust().expect("a list").0, 0);
        assert!(Held::seize(pid).is_err());
        drop(held);
        drop(child.stdin.take());
        assert!(child.wait().expect("ended").success());
    }
}
