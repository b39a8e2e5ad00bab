//! A QEMU that has waited for a session, saved as a process: a clone goes on where that one stood.
//!
//! The emulator's own start, and the translation of what a guest executes first, are most of what a clone costs that starts from a
//! saved guest. Both are behind a process, but no part of a guest's state. So the process is saved as well: what it has written of its
//! memory in one file, and all else that it is made of in another ([`Checkpoint`]). It is taken by ptrace(2) ([`save`]), and becomes a
//! process again in the sandbox in which QEMU would start, by a program that maps its memory where it was
//! ([`restore`]).
//!
//! It is a guest's state in another form, made of the same moment. Where it does not fit the host any more, or
//! anything else about it is odd, the restorer ends, and the clone is made of the saved guest.

mod heap;
pub mod restore;
pub(super) mod save;

use ringfence_sys::ptrace::Registers;
use serde::{Deserialize, Serialize};
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Changes with the format.
const VERSION: u32 = 2;
/// What a kernel says of itself: its release, and when and by whom it was built.
const KERNEL: &str = "/proc/version";
/// What the restorer says where there will be no process either the next time, and where there may be one.
pub(super) const NEVER: &str = "a saved machine cannot go on any more: ";
pub(super) const NOT_NOW: &str = "a saved machine cannot go on now: ";
/// All that is not memory.
const PROCESS: &str = "process";
/// What was written of its memory.
const PAGES: &str = "pages";
/// A clone of it ended for no reason that was told, and none has begun since.
const DOUBT: &str = "process-ended";
/// Why there is none, for who looks for it.
pub(super) const WHY: &str = "no-process";
/// The longest description that is read.
const LONGEST: u64 = 4 << 20;
const PAGE: u64 = ringfence_sys::memory::PAGE as u64;

/// The two files of a checkpoint in a template's directory.
pub(super) fn files(place: &Path) -> [PathBuf; 2] {
    [place.join(PROCESS), place.join(PAGES)]
}

/// There is none in this directory, or none any more.
pub(super) fn forget(place: &Path, why: &str) {
    for file in files(place) {
        let _ = fs::remove_file(file);
    }
    // It is told where somebody looks for it.
    let _ = fs::write(place.join(WHY), format!("{why}\n"));
}

/// A clone of it has ended before its guest began, and said so much. What was in its way may pass (a limit of this run's, somebody who
/// killed it), so it is of no use where that was said, or where the next one ends so too.
pub(super) fn ended(place: &Path, said: &str) {
    let doubt = place.join(DOUBT);
    if said.contains(NOT_NOW) {
        return;
    }
    if said.contains(NEVER) || doubt.exists() {
        let _ = fs::remove_file(doubt);
        let why = if said.is_empty() { "two clones ended before they had begun" } else { said };
        return forget(place, why);
    }
    let _ = fs::write(doubt, said);
}

/// A clone of it has begun.
pub(super) fn begun(place: &Path) {
    let _ = fs::remove_file(place.join(DOUBT));
}

/// What a process is made of.
#[derive(Debug, Serialize, Deserialize)]
struct Checkpoint {
    version: u32,
    host: Host,
    /// What the kernel maps into each process, by name.
    kernels: Vec<Kernels>,
    files: Vec<Mapped>,
    regions: Vec<Region>,
    /// Where its heap begins (brk(2)), if it has one.
    heap: Option<u64>,
    /// What rt_sigaction(2) takes of signals 1 to 64.
    handlers: Vec<[u64; 4]>,
    /// Its threads, the first one first.
    threads: Vec<Thread>,
    descriptors: Vec<Descriptor>,
    /// How long the file of its memory is.
    pages: u64,
}

/// What of a host a process depends on, that is the same for all processes. It is a part of a template's key: another kernel,
/// or what a processor's new microcode says, is another template.
#[derive(Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Host {
    /// The kernel, with its build.
    kernel: String,
    /// What the processor says of itself (CPUID): who made it, what it can, what XSAVE writes.
    processor: Vec<[u32; 4]>,
}

impl Host {
    pub(super) fn now() -> Host {
        let kernel = fs::read_to_string(KERNEL).unwrap_or_default();
        let leaves = [(0, 0), (1, 0), (7, 0), (7, 1), (0xd, 0), (0xd, 1), (0x8000_0001, 0)];
        let processor = leaves.map(|(leaf, sub)| {
            let said = std::arch::x86_64::__cpuid_count(leaf, sub);
            // Not which one of the processors it is that answers (APIC's number).
            let own = if leaf == 1 { 0x00ff_ffff } else { u32::MAX };
            [said.eax, said.ebx & own, said.ecx, said.edx]
        });
        Host { kernel, processor: processor.to_vec() }
    }
}

/// `[vdso]`, `[vvar]`: code of the kernel's, which belongs to it, and the clock that it reads.
#[derive(Debug, Serialize, Deserialize)]
struct Kernels {
    name: String,
    start: u64,
    end: u64,
}

/// A file that is mapped, as it was.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Mapped {
    path: PathBuf,
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Mapped {
    fn of(path: &Path, data: &Metadata) -> Mapped {
        Mapped {
            path: path.to_owned(),
            device: data.dev(),
            inode: data.ino(),
            size: data.size(),
            modified: (data.mtime(), data.mtime_nsec()),
        }
    }
}

/// A part of its memory.
#[derive(Debug, Serialize, Deserialize)]
struct Region {
    start: u64,
    end: u64,
    /// `PROT_*`.
    protection: u32,
    content: Content,
}

/// What is in it.
#[derive(Debug, Serialize, Deserialize)]
enum Content {
    /// Zeroes.
    Nothing,
    /// A file, from here on: its place in the list of files.
    File(usize, u64),
    /// The guest's memory, from here on.
    Memory(u64),
    /// What the process wrote, which is here in the file of its pages.
    Pages(u64),
}

/// A thread as it stood. See [`ringfence_sys::restore::Thread`].
#[derive(Debug, Serialize, Deserialize)]
struct Thread {
    registers: Registers,
    vectors: Vec<u8>,
    mask: u64,
    stack: (u64, u32, u64),
    robust: (u64, u64),
    number: u64,
}

/// What it had open.
#[derive(Debug, Serialize, Deserialize)]
struct Descriptor {
    number: i32,
    kind: Kind,
}

/// What is behind a descriptor.
#[derive(Debug, Serialize, Deserialize)]
enum Kind {
    /// What a clone is given by the same number: the guest's memory, its stream, the control connection. Whether it
    /// never waits (`O_NONBLOCK`).
    Given(bool),
    /// The guest's memory once more.
    Memory,
    /// An event counter at so much (eventfd(2)).
    Event(u64),
    /// Signals of this mask (signalfd(2)).
    Signals(u64),
    /// An epoll instance: the numbers that it watches, for what, and what it says then.
    Epoll(Vec<(i32, u32, u64)>),
}

/// The last of the descriptors that a clone is given.
const LAST_GIVEN: i32 = 2;

#[cfg(test)]
mod tests;
