//! What a program needs, found out without running it, and what a watched run used.
//!
//! - [`elf`], [`cache`], [`search`], [`closure`]: the libraries of an ELF program, as its
//!   loader would find them; [`hints`], [`nss`]: those that it may open while it runs.
//! - [`shell`], [`words`], [`wrappers`]: the commands that a shell script names, and those that start another one.
//! - [`program`]: from a command line to the exact set of libraries, with the reasons;
//!   [`supplies`] is the table of what nothing says.
//!
//! Discovery executes nothing. What it reads may be hostile: each number has a bound.

pub mod bus;
pub mod bytes;
pub mod cache;
mod called;
pub mod closure;
mod collect;
mod credentials;
pub mod draft;
pub mod elf;
pub mod evidence;
mod files;
pub mod fuzzing;
pub mod hints;
pub mod host;
pub mod introspection;
mod looked;
mod makefile;
pub mod masked;
mod modules;
pub mod nss;
pub mod program;
pub mod propose;
mod replaced;
pub mod search;
pub mod secrets;
mod services;
pub mod shell;
pub mod started;
pub mod supplies;
mod table;
mod tables;
pub mod temporary;
pub mod text;
pub mod units;
pub mod variables;
pub mod watch;
pub mod words;
pub mod wrappers;
