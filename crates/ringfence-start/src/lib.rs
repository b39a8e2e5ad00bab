//! Carries out a compiled plan with nothing but system calls.
//!
//! A plan is compiled to an [`image`]: the very system calls that build the boundary, in order,
//! with their arguments. [`machine`] makes them, one after the other; it decides nothing. The
//! same code does it in two situations:
//!
//! - after an ordinary start, for a plan that was just made;
//! - at the program's own ELF [`entry`], *before libc is initialised*, for an image from the
//!   cache whose inputs are all as they were. libc's start costs more than all of the rest where
//!   CPUID traps (virtual machines: 0.75 ms measured), and so the launcher does it while the
//!   child builds the sandbox.
//!
//! The launcher of a command that ends soon stays there to the end ([`brief`]).
//!
//! What runs there has no heap, no thread-local storage, no relocated pointers and no `memcpy`
//! (glibc's is chosen at its start): the crate is `no_std` and `no_builtins`, copies in plain
//! loops, keeps no table of pointers, and asks libc for nothing. A test looks through the
//! object code for what slipped in.
//!
//! Beside `ringfence-sys` this is the only crate with `unsafe` code, for the same reason: it
//! talks to the kernel.

#![no_std]
#![no_builtins]

pub mod account;
mod apart;
pub mod ask;
pub mod before;
pub mod beside;
pub mod brief;
pub mod bytes;
pub mod call;
pub mod child;
mod clone;
pub mod code;
mod entries;
pub mod entry;
pub mod flags;
pub mod image;
pub mod inherited;
pub mod job;
pub mod key;
pub mod later;
pub mod listing;
pub mod machine;
pub mod mark;
mod memory;
mod network;
pub mod order;
mod private;
mod processors;
pub mod quiet;
pub mod relocated;
pub mod runs;
pub mod spawn;
pub mod stamp;
pub mod teardown;
pub mod tops;
pub mod trace;
mod waits;
pub mod warden;
pub mod withdrawn;

pub use syscalls::{Errno, Sysno};

/// Result of one kernel call.
pub type Result<T> = core::result::Result<T, Errno>;
