//! What a program needs, found out without running it, and what a watched run used.
//!
//! - [`elf`], [`cache`], [`search`], [`closure`]: the libraries of an ELF program, as its
//!   loader would find them.
//!
//! Discovery executes nothing. What it reads may be hostile: each number has a bound.

pub mod bytes;
pub mod cache;
pub mod closure;
pub mod elf;
pub mod host;
pub mod search;
pub mod shell;
pub mod words;
