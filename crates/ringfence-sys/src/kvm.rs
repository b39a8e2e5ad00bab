//! Whether KVM executes a kernel's code, and how fast.

use crate::fd::owned;
use crate::{Errno, sys};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Instant;

/// ioctl numbers (`include/uapi/linux/kvm.h`).
const CREATE_VM: usize = 0xAE01;
const VCPU_MMAP_SIZE: usize = 0xAE04;
const CREATE_VCPU: usize = 0xAE41;
const SET_USER_MEMORY_REGION: usize = 0x4020_AE46;
const RUN: usize = 0xAE80;
const GET_SREGS: usize = 0x8138_AE83;
const SET_SREGS: usize = 0x4138_AE84;
const SET_REGS: usize = 0x4090_AE82;
const EXIT_HLT: u32 = 5;

/// How often the loop runs, each time. Few times first: where an emulator takes 1,000 ns, all together take 60 ms. More than
/// once, since the first time a processor also fetches what it has never seen, and somebody else may
/// take the processor; many times, since where virtualisation is emulated itself, each entry takes as long as a
/// thousand turns.
const TURNS: [u32; 8] = [500, 500, 10_000, 10_000, 10_000, 10_000, 10_000, 10_000];
const MEMORY: usize = 8192;

/// A mapping that is removed at the end.
struct Mapped(*mut u8, usize);

impl Mapped {
    fn new(fd: Option<&OwnedFd>, size: usize) -> Result<Mapped, Errno> {
        let (flags, fd) = match fd {
            Some(fd) => (libc::MAP_SHARED, fd.as_raw_fd()),
            None => (libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1),
        };
        let null = std::ptr::null::<u8>();
        // SAFETY: asks for a new mapping wherever there is room.
        let at =
            unsafe { sys!(mmap, null, size, libc::PROT_READ | libc::PROT_WRITE, flags, fd, 0) }?;
        Ok(Mapped(at as *mut u8, size))
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's own, and used no more.
        let _ = unsafe { sys!(munmap, self.0, self.1) };
    }
}

/// Executes a short loop at the most privileged level of a machine of KVM's and says how many
/// nanoseconds a turn took, at best; what takes less than `enough` is not tried again. Costs some milliseconds at most.
///
/// # Errors
/// The call that failed. A machine that ended otherwise than it must: `EIO`.
pub fn probe(enough: u64) -> Result<u64, (&'static str, Errno)> {
    let at = |call: &'static str| move |errno| (call, errno);
    let kvm = crate::fd::open_at(crate::fd::CWD, c"/dev/kvm", libc::O_RDWR, 0)
        .map_err(at("open(/dev/kvm)"))?;
    // SAFETY: takes numbers only.
    let machine = unsafe { sys!(ioctl, kvm.as_raw_fd(), CREATE_VM, 0) };
    let machine = owned(machine.map_err(at("KVM_CREATE_VM"))?);
    let memory = Mapped::new(None, MEMORY).map_err(at("mmap"))?;
    // struct kvm_userspace_memory_region: slot and flags, guest address, size, our address.
    let region = [0_u64, 0, MEMORY as u64, memory.0 as u64];
    // SAFETY: the structure lives through the call, and the memory longer than the machine runs.
    unsafe { sys!(ioctl, machine.as_raw_fd(), SET_USER_MEMORY_REGION, region.as_ptr()) }
        .map_err(at("KVM_SET_USER_MEMORY_REGION"))?;
    // SAFETY: takes numbers only.
    let processor = unsafe { sys!(ioctl, machine.as_raw_fd(), CREATE_VCPU, 0) };
    let processor = owned(processor.map_err(at("KVM_CREATE_VCPU"))?);
    // SAFETY: takes numbers only.
    let size = unsafe { sys!(ioctl, kvm.as_raw_fd(), VCPU_MMAP_SIZE, 0) }
        .map_err(at("KVM_GET_VCPU_MMAP_SIZE"))?;
    let run = Mapped::new(Some(&processor), size).map_err(at("mmap"))?;
    // struct kvm_sregs is 312 bytes; the code segment's base comes first, its selector at 12.
    let mut special = [0_u64; 39];
    // SAFETY: the array is room for the structure.
    unsafe { sys!(ioctl, processor.as_raw_fd(), GET_SREGS, special.as_mut_ptr()) }
        .map_err(at("KVM_GET_SREGS"))?;
    special[0] = 0;
    special[1] &= !(0xffff << 32);
    // SAFETY: as above.
    unsafe { sys!(ioctl, processor.as_raw_fd(), SET_SREGS, special.as_ptr()) }
        .map_err(at("KVM_SET_SREGS"))?;
    let mut least = u64::MAX;
    for turns in TURNS {
        least = least.min(run_once(&memory, &processor, &run, turns)?);
        if least < enough {
            break;
        }
    }
    Ok(least)
}

/// Executes the loop once: nanoseconds for a turn.
fn run_once(
    memory: &Mapped,
    processor: &OwnedFd,
    run: &Mapped,
    turns: u32,
) -> Result<u64, (&'static str, Errno)> {
    let at = |call: &'static str| move |errno| (call, errno);
    // mov ecx, turns; again: dec ecx; jnz again; hlt (16-bit, operand-size prefixes)
    let count = turns.to_le_bytes();
    let code = [0x66, 0xb9, count[0], count[1], count[2], count[3], 0x66, 0x49, 0x75, 0xfc, 0xf4];
    // SAFETY: the mapping has MEMORY bytes, and the machine does not run now.
    unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), memory.0.add(0x1000), code.len()) };
    // struct kvm_regs: rax … r15, rip, rflags.
    let mut registers = [0_u64; 18];
    registers[16] = 0x1000;
    registers[17] = 2;
    // SAFETY: the array is the structure.
    unsafe { sys!(ioctl, processor.as_raw_fd(), SET_REGS, registers.as_ptr()) }
        .map_err(at("KVM_SET_REGS"))?;
    let begun = Instant::now();
    // SAFETY: takes numbers only.
    unsafe { sys!(ioctl, processor.as_raw_fd(), RUN, 0) }.map_err(at("KVM_RUN"))?;
    let took = begun.elapsed();
    // SAFETY: exit_reason is the 32 bits at offset 8 of struct kvm_run.
    let reason = unsafe { run.0.add(8).cast::<u32>().read_volatile() };
    if reason != EXIT_HLT {
        return Err(("KVM_RUN", Errno::EIO));
    }
    Ok(took.as_nanos() as u64 / u64::from(turns))
}
