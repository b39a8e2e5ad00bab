//! What a process is made of that another one was saved from: mappings, descriptors, threads. x86-64.
//!
//! A restorer maps the saved process's memory beside its own, makes what its descriptors stand for, and then
//! [`become_process`]: its threads go on where those of the saved process stood.

use crate::ptrace::{Registers, register};
use crate::{Errno, Result, sys};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

mod late;

const PAGE: u64 = crate::memory::PAGE as u64;

/// Maps a file privately, or memory without one, where nothing is mapped.
///
/// # Errors
/// `EEXIST`: something is.
pub fn map(
    start: u64,
    length: u64,
    protection: u32,
    file: Option<(BorrowedFd<'_>, u64)>,
) -> Result<()> {
    let fixed = libc::MAP_PRIVATE | libc::MAP_FIXED_NOREPLACE | libc::MAP_NORESERVE;
    let (flags, fd, offset) = match file {
        Some((file, offset)) => (fixed, file.as_raw_fd(), offset),
        None => (fixed | libc::MAP_ANONYMOUS, -1, 0),
    };
    // SAFETY: nothing that is mapped is replaced (Linux 4.17; older kernels take the address for a hint).
    let at = unsafe { sys!(mmap, start, length, protection, flags, fd, offset) }?;
    if at as u64 == start { Ok(()) } else { Err(Errno::EEXIST) }
}

/// Where this process's heap ends (brk(2)).
pub fn heaps_end() -> Option<u64> {
    // SAFETY: of an address at which there can be no heap the kernel tells where it is, and changes nothing.
    unsafe { sys!(brk, 0) }.ok().map(|end| end as u64)
}

/// A descriptor once more, by a number from `least` on (fcntl(2), `F_DUPFD_CLOEXEC`).
///
/// # Errors
/// `EBADF`, `EINVAL`: no number so high is allowed.
pub fn above(number: i32, least: i32) -> Result<OwnedFd> {
    // SAFETY: takes numbers only.
    let fd = unsafe { sys!(fcntl, number, libc::F_DUPFD_CLOEXEC, least) }?;
    // SAFETY: the kernel has just made it, for nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Makes a number stand for a descriptor, which has another one; what it stood for is closed (dup3(2)).
///
/// # Errors
/// `EINVAL`: it has this one.
pub fn place(fd: BorrowedFd<'_>, number: i32) -> Result<()> {
    // SAFETY: takes numbers only. Whose number it was is the caller's business, who becomes another process.
    unsafe { sys!(dup3, fd.as_raw_fd(), number, libc::O_CLOEXEC) }.map(drop)
}

/// A new descriptor of an event counter that stands at so much (eventfd(2)).
///
/// # Errors
/// The kernel's.
pub fn event(count: u64) -> Result<OwnedFd> {
    let count = u32::try_from(count).or(Err(Errno::EINVAL))?;
    let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
    // SAFETY: takes numbers only.
    let fd = unsafe { sys!(eventfd2, count, flags) }?;
    // SAFETY: the kernel has just made it, for nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// A new descriptor at which signals of a mask arrive (signalfd(2)).
///
/// # Errors
/// The kernel's.
pub fn signals(mask: u64) -> Result<OwnedFd> {
    let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
    // SAFETY: the pointer is to a mask of the size that is given.
    let fd = unsafe { sys!(signalfd4, -1i32, &raw const mask, size_of::<u64>(), flags) }?;
    // SAFETY: the kernel has just made it, for nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// A new epoll instance.
///
/// # Errors
/// The kernel's.
pub fn epoll() -> Result<OwnedFd> {
    // SAFETY: takes a number only.
    let fd = unsafe { sys!(epoll_create1, libc::EPOLL_CLOEXEC) }?;
    // SAFETY: the kernel has just made it, for nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Has an epoll instance watch a descriptor, both by their numbers.
///
/// # Errors
/// The kernel's.
pub fn watch(epoll: i32, number: i32, events: u32, data: u64) -> Result<()> {
    let mut event = libc::epoll_event { events, u64: data };
    // SAFETY: the pointer is to an event.
    unsafe { sys!(epoll_ctl, epoll, libc::EPOLL_CTL_ADD, number, &raw mut event) }.map(drop)
}

/// What this thread is called in lists of processes, as far as 15 bytes (prctl(2), `PR_SET_NAME`).
pub fn call_it(name: &std::ffi::CStr) {
    // SAFETY: the pointer is to a string that ends with a zero.
    let _ = unsafe { sys!(prctl, libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) };
}

/// A thread as it stood.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Its general registers.
    pub registers: Registers,
    /// Its other ones, as XSAVE writes them.
    pub vectors: Vec<u8>,
    /// Its blocked signals.
    pub mask: u64,
    /// The stack for its signal handlers: where, flags, how long (sigaltstack(2)).
    pub stack: (u64, u32, u64),
    /// Its list of robust futexes.
    pub robust: (u64, u64),
    /// Where the C library keeps its number.
    pub number: u64,
}

/// A process's part that belongs to the kernel: `[vdso]` and what goes with it. From where, to where, how long.
pub type Move = (u64, u64, u64);

/// `struct rt_sigframe` without its first word, as the kernel's signal delivery writes it, and behind it what it points to.
#[repr(C, align(64))]
struct Frame {
    /// `struct _fpstate`: as XSAVE writes it, and the kernel's mark at its end.
    vectors: [u8; VECTORS],
    /// Where a handler would return to, which stands before what `rt_sigreturn` reads.
    before: u64,
    flags: u64,
    link: u64,
    /// `stack_t`: where, flags, how long.
    stack: [u64; 3],
    /// r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, flags, segments, error, trap, old mask, fault's address.
    general: [u64; 23],
    /// Where `vectors` is.
    state: u64,
    reserved: [u64; 8],
    mask: u64,
    /// `siginfo_t`, which is not read.
    information: [u64; 16],
}

/// The most bytes of vector registers: those of AMX are 8 KiB.
const VECTORS: usize = 16 * 1024;
/// Registers that a thread has only once it has asked the kernel for them, which an emulator does not: AMX's tiles. ptrace(2) tells of
/// them, zeroed; of a thread that has none `rt_sigreturn` takes nothing that is as long as with them.
const ON_DEMAND: u64 = 1 << 18;
/// Where XSAVE writes which registers are not as they were in the beginning (`XSTATE_BV`).
const USED: usize = 512;
/// Where XSAVE leaves room for software, and what the kernel wants to read there (`struct _fpx_sw_bytes`).
const SOFTWARE: usize = 464;
const FIRST_MARK: u32 = 0x4650_5853;
const LAST_MARK: u32 = 0x4650_5845;
/// There are extended registers; the stack segment is saved, and is to be restored as it is.
const FLAGS: u64 = 1 | 2 | 4;
/// The kernel's own error numbers, with which it interrupts a call that is to be made again.
const RESTART: std::ops::RangeInclusive<i64> = -514..=-512;
/// The same of one that would go on by `restart_syscall(2)`, whose state is the kernel's: it is interrupted.
const RESTART_BLOCK: i64 = -516;

/// How long it is what XSAVE writes of so many features, of which a processor tells where they are, and how long.
fn length_of(features: u64, place: impl Fn(u32) -> (usize, usize)) -> usize {
    // The first two are in the part that is always there, with the header behind it.
    let others = (2..63).filter(|feature| features & 1 << feature != 0);
    let ends = others.map(|feature| {
        let (at, length) = place(feature);
        at + length
    });
    ends.max().unwrap_or(0).max(576)
}

impl Frame {
    fn fill(&mut self, thread: &Thread) -> Result<()> {
        use register::{CS, FLAGS as EFLAGS, ORIG_RAX, R8, R9, R10, R11, R12, R13, R14, R15};
        use register::{RAX, RBP, RBX, RCX, RDI, RDX, RIP, RSI, RSP, SS};
        if !(576..=VECTORS - 4).contains(&thread.vectors.len()) {
            return Err(Errno::EINVAL);
        }
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&thread.vectors[at..at + 8]);
            u64::from_le_bytes(word)
        };
        // The kernel of the saved one has left there which registers there are (XCR0).
        let features = word(SOFTWARE) & !ON_DEMAND;
        if word(USED) & ON_DEMAND != 0 {
            return Err(Errno::EINVAL);
        }
        let length = match word(SOFTWARE) & ON_DEMAND {
            0 => thread.vectors.len(),
            _ => thread.vectors.len().min(length_of(features, |feature| {
                let place = std::arch::x86_64::__cpuid_count(0xd, feature);
                (place.ebx as usize, place.eax as usize)
            })),
        };
        self.vectors[..length].copy_from_slice(&thread.vectors[..length]);
        let mut put = |at: usize, bytes: &[u8]| {
            self.vectors[at..at + bytes.len()].copy_from_slice(bytes);
        };
        put(SOFTWARE, &FIRST_MARK.to_le_bytes());
        put(SOFTWARE + 4, &(length as u32 + 4).to_le_bytes());
        put(SOFTWARE + 8, &features.to_le_bytes());
        put(SOFTWARE + 16, &(length as u32).to_le_bytes());
        put(length, &LAST_MARK.to_le_bytes());
        let r = &thread.registers;
        let (mut rip, mut rax) = (r[RIP], r[RAX]);
        if r[ORIG_RAX] as i64 >= 0 {
            match rax as i64 {
                errno if RESTART.contains(&errno) => {
                    (rip, rax) = (rip - crate::ptrace::SYSCALL.len() as u64, r[ORIG_RAX]);
                }
                RESTART_BLOCK => rax = -i64::from(libc::EINTR) as u64,
                _ => {}
            }
        }
        let segments = (r[CS] & 0xffff) | (r[SS] & 0xffff) << 48;
        self.general = [
            r[R8], r[R9], r[R10], r[R11], r[R12], r[R13], r[R14], r[R15], r[RDI], r[RSI], r[RBP],
            r[RBX], r[RDX], rax, r[RCX], r[RSP], rip, r[EFLAGS], segments, 0, 0, 0, 0,
        ];
        self.flags = FLAGS;
        self.stack = [thread.stack.0, thread.stack.1.into(), thread.stack.2];
        self.mask = thread.mask;
        self.state = self.vectors.as_ptr() as u64;
        Ok(())
    }

    /// What the stack pointer is when `rt_sigreturn` is called.
    fn pointer(&self) -> u64 {
        &raw const self.flags as u64
    }
}

/// What is let go of: `[start, length]`. A list of them ends with one that starts at 0.
type Part = [u64; 2];

/// Where frames are while this program is there, and after it: what the last thread lets go of of this program, what is let go of
/// once the process is at work, and a frame for each thread. All else of this program may be gone when they are read.
struct Kept {
    own: *mut [Part; OWN],
    later: &'static mut [Part],
    frames: &'static mut [Frame],
}

/// The program, its heap, and the end of the list.
const OWN: usize = 3;

impl Kept {
    /// Room for so many threads, and so many parts that are let go of later, besides this program and the list's end.
    fn new(threads: usize, parts: usize) -> Result<Kept> {
        let lists = ((OWN + parts + 2) * size_of::<Part>()).next_multiple_of(PAGE as usize);
        let length = (lists + threads * size_of::<Frame>()) as u64;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, where there is room.
        let at = unsafe { sys!(mmap, 0, length, protection, flags, -1i32, 0) }?;
        let own = at as *mut [Part; OWN];
        let (later, frames) = (own.wrapping_add(1).cast(), (at + lists) as *mut Frame);
        // SAFETY: zeroes, of which frames and lists can be made; one behind the other, the frames page by page, and so
        // aligned, and never unmapped.
        let (later, frames) = unsafe {
            let later = std::slice::from_raw_parts_mut(later, parts + 2);
            (later, std::slice::from_raw_parts_mut(frames, threads))
        };
        Ok(Kept { own, later, frames })
    }
}

/// What a process takes that nothing of it is needed of any more: its program with what was relocated and written, and
/// its heap, which may be nowhere.
fn own(heap: Option<(u64, u64)>) -> [Part; OWN] {
    // The linker's own names.
    unsafe extern "C" {
        static __executable_start: u8;
        static _end: u8;
    }
    let start = (&raw const __executable_start).addr() as u64 & !(PAGE - 1);
    let end = ((&raw const _end).addr() as u64).next_multiple_of(PAGE);
    let (from, to) = heap.unwrap_or_default();
    [[start, end - start], [from, to - from], [0; 2]]
}

/// Becomes a process whose memory is mapped and whose descriptors are there: its first thread is this one, which must be
/// alone. Returns only where it cannot, and then this program must end: nothing that it does is sure to work.
///
/// `handlers` are what `rt_sigaction` takes of signals 1, 2, …; `heap` is where this program's is, from where to where: it is let
/// go of with all else that this program takes. `constant` is what the process has mapped of files and never writes, from
/// where to where: it is let go of once the process is at work.
pub fn become_process(
    moves: &[Move],
    handlers: &[[u64; 4]],
    threads: &[Thread],
    heap: Option<(u64, u64)>,
    constant: &[(u64, u64)],
) -> Errno {
    match becoming(moves, handlers, threads, heap, constant) {
        Ok(never) => match never {},
        Err(errno) => errno,
    }
}

fn becoming(
    moves: &[Move],
    handlers: &[[u64; 4]],
    threads: &[Thread],
    heap: Option<(u64, u64)>,
    constant: &[(u64, u64)],
) -> Result<std::convert::Infallible> {
    // All that is to be allocated, before anything of this program is taken away.
    let Kept { own: list, later, frames } = Kept::new(threads.len(), constant.len())?;
    for (part, (from, to)) in later.iter_mut().zip(constant) {
        *part = [*from, to - from];
    }
    // What started the others, too.
    later[constant.len()] = own(None)[0];
    for (frame, thread) in frames.iter_mut().zip(threads) {
        frame.fill(thread)?;
    }
    // SAFETY: there is room for it, which nobody else knows.
    unsafe { list.write(own(heap)) };
    let (Some((first, others)), Some(frame)) = (threads.split_first(), frames.first()) else {
        return Err(Errno::EINVAL);
    };
    let all = u64::MAX;
    // SAFETY: the pointer is to a mask of the size that is given.
    unsafe { sys!(rt_sigprocmask, libc::SIG_SETMASK, &raw const all, 0, size_of::<u64>()) }?;
    for (number, handler) in (1..).zip(handlers) {
        if number == libc::SIGKILL || number == libc::SIGSTOP {
            continue;
        }
        // SAFETY: `handler` has the kernel's layout. No signal is taken before the process is there.
        unsafe { sys!(rt_sigaction, number, handler.as_ptr(), 0, size_of::<u64>()) }?;
    }
    // From here on the C library's clock may be gone.
    for &(from, to, length) in moves {
        if from == to {
            continue;
        }
        map(to, length, 0, None)?;
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: what is replaced was mapped just now, by nobody else; what is moved is called by the C library alone,
        // for calls that are not made here any more.
        unsafe { sys!(mremap, from, length, length, flags, to) }?;
    }
    for (thread, frame) in others.iter().zip(&frames[1..]) {
        start(thread, frame)?;
    }
    late::let_go(later);
    // SAFETY: takes no arguments.
    let number = unsafe { sys!(gettid) }?;
    // SAFETY: where the saved process's C library keeps the number, in its memory, which is mapped now; the
    // kernel clears it at the thread's end. Its list and its thread-local storage are in that memory as well: nothing
    // of this program's is used from here on but the last instructions, which come back from the file. What this
    // program takes is let go of (madvise(2), `MADV_DONTNEED`) by them, which use no memory but what is kept.
    unsafe {
        (first.number as *mut u32).write(number as u32);
        sys!(set_tid_address, first.number)?;
        sys!(set_robust_list, first.robust.0, first.robust.1)?;
        sys!(arch_prctl, ARCH_SET_FS, first.registers[register::FS_BASE])?;
        std::arch::asm!(
            "mov rsp, r13",
            "2:",
            "mov rdi, [r12]",
            "test rdi, rdi",
            "jz 3f",
            "mov rsi, [r12 + 8]",
            "mov edx, 4",
            "mov eax, 28",
            "syscall",
            "add r12, 16",
            "jmp 2b",
            "3:",
            "mov eax, 15",
            "syscall",
            "ud2",
            in("r12") list,
            in("r13") frame.pointer(),
            options(noreturn)
        )
    }
}

const ARCH_SET_FS: u32 = 0x1002;

/// What a thread shares with its process (clone(2)).
const THREAD: i32 = libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM;

/// Starts a thread, which does nothing before it is what was saved.
fn start(thread: &Thread, frame: &Frame) -> Result<()> {
    let flags = THREAD | libc::CLONE_SETTLS | libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID;
    let mut result: i64;
    // SAFETY: the new thread shares this memory and uses none of it but its frame, by set_robust_list(2) and
    // rt_sigreturn(2); its storage and the place of its number are the saved process's, which are mapped.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "mov rdi, r12",
            "mov rsi, r13",
            "mov eax, 273",
            "syscall",
            "mov eax, 15",
            "syscall",
            "ud2",
            "2:",
            inlateout("rax") 56_i64 => result,
            in("rdi") i64::from(flags),
            in("rsi") frame.pointer(),
            in("rdx") 0,
            in("r10") thread.number,
            in("r8") thread.registers[register::FS_BASE],
            in("r12") thread.robust.0,
            in("r13") thread.robust.1,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    if result < 0 { Err(Errno::new(-result as i32)) } else { Ok(()) }
}

/// Whether numbers describe whole pages that exist.
pub fn are_pages(start: u64, end: u64) -> bool {
    start < end && start.is_multiple_of(PAGE) && end.is_multiple_of(PAGE) && end <= 1 << 47
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A processor with AMX, as Intel's are.
    const AMX: [(u32, usize, usize); 7] = [
        (2, 576, 256),
        (5, 1088, 64),
        (6, 1152, 512),
        (7, 1664, 1024),
        (9, 2688, 8),
        (17, 2752, 64),
        (18, 2816, 8192),
    ];

    #[test]
    fn registers_that_no_thread_has_asked_for_are_left_out() {
        let place = |feature| {
            let (_, at, length) =
                AMX.into_iter().find(|(known, ..)| *known == feature).expect("known");
            (at, length)
        };
        let features = AMX.iter().fold(3, |all, (feature, ..)| all | 1 << feature);
        assert_eq!(length_of(features, place), 11_008);
        assert_eq!(length_of(features & !ON_DEMAND, place), 2816);
        assert_eq!(length_of(3, place), 576);
        let mut vectors = vec![0; 11_008];
        vectors[SOFTWARE..SOFTWARE + 8].copy_from_slice(&features.to_le_bytes());
        let mut thread = Thread {
            registers: Registers::default(),
            vectors,
            mask: 0,
            stack: (0, 0, 0),
            robust: (0, 0),
            number: 0,
        };
        // SAFETY: a frame of zeroes is one.
        let mut frame: Frame = unsafe { std::mem::zeroed() };
        assert_eq!(frame.fill(&thread), Ok(()));
        let word = |frame: &Frame, at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&frame.vectors[at..at + 8]);
            u64::from_le_bytes(word)
        };
        assert_eq!(word(&frame, SOFTWARE + 8), features & !ON_DEMAND);
        // What the kernel compares with what a thread has, and reads its mark behind: this processor's.
        let length = word(&frame, SOFTWARE + 16) as usize;
        assert!((576..=2816).contains(&length), "{length}");
        assert_eq!(word(&frame, length) as u32, LAST_MARK);
        // One that does have them is not what can be restored.
        thread.vectors[USED..USED + 8].copy_from_slice(&ON_DEMAND.to_le_bytes());
        assert_eq!(frame.fill(&thread), Err(Errno::EINVAL));
    }
}
