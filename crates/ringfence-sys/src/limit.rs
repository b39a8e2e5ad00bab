//! Resource limits of a process (`setrlimit(2)`) and its processors (`sched_setaffinity(2)`).

use crate::{Result, sys};

/// A resource that the kernel limits for each process or user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Open descriptors (`RLIMIT_NOFILE`).
    OpenFiles,
    /// Processes of the user, within the user namespace since Linux 5.14 (`RLIMIT_NPROC`).
    Processes,
    /// Bytes of address space for each process (`RLIMIT_AS`).
    AddressSpace,
    /// Bytes of a core file (`RLIMIT_CORE`).
    Core,
    /// Bytes of a file that it writes, or makes longer (`RLIMIT_FSIZE`).
    FileSize,
}

fn number(resource: Resource) -> u32 {
    match resource {
        Resource::OpenFiles => libc::RLIMIT_NOFILE,
        Resource::Processes => libc::RLIMIT_NPROC,
        Resource::AddressSpace => libc::RLIMIT_AS,
        Resource::Core => libc::RLIMIT_CORE,
        Resource::FileSize => libc::RLIMIT_FSIZE,
    }
}

/// The soft limit, which counts.
///
/// # Errors
/// The kernel's.
pub fn get(resource: Resource) -> Result<u64> {
    let mut now = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    let null = std::ptr::null::<u8>();
    // SAFETY: pid 0 is ourselves; `now` is room for the answer.
    unsafe { sys!(prlimit64, 0, number(resource), null, &raw mut now) }?;
    Ok(now.rlim_cur)
}

/// Makes the soft limit, which counts, as high as the hard one lets it; returns the one before.
///
/// # Errors
/// The kernel's.
pub fn raise(resource: Resource) -> Result<u64> {
    let mut now = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    let null = std::ptr::null::<u8>();
    // SAFETY: pid 0 is ourselves; `now` is room for the answer.
    unsafe { sys!(prlimit64, 0, number(resource), null, &raw mut now) }?;
    let wanted = libc::rlimit64 { rlim_cur: now.rlim_max, ..now };
    // SAFETY: `wanted` outlives the call; nothing is asked back.
    unsafe { sys!(prlimit64, 0, number(resource), &raw const wanted, null) }?;
    Ok(now.rlim_cur)
}

/// Sets both the soft and the hard limit; a hard limit below `value` stays as it is.
///
/// # Errors
/// The kernel's.
pub fn set(resource: Resource, value: u64) -> Result<()> {
    let mut now = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    let null = std::ptr::null::<u8>();
    // SAFETY: pid 0 is ourselves; `now` is room for the answer.
    unsafe { sys!(prlimit64, 0, number(resource), null, &raw mut now) }?;
    let value = value.min(now.rlim_max);
    let wanted = libc::rlimit64 { rlim_cur: value, rlim_max: value };
    // SAFETY: `wanted` outlives the call; nothing is asked back.
    unsafe { sys!(prlimit64, 0, number(resource), &raw const wanted, null) }.map(drop)
}
