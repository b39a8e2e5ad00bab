//! The kernel calls of the bench, as safe functions; all of its `unsafe` is in this module.
//!
//! The bench does not use `ringfence-sys`: what measures the product, and the floor that the product
//! is held against, must not be built from the product's own parts.
#![allow(unsafe_code)]

pub mod mount;
pub mod probe;
pub mod process;
pub mod signal;

use std::io;

/// The result of a raw system call: `-1` becomes `errno`.
fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
