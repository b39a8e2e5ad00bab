//! Sandboxes as tools of the Model Context Protocol (MCP).
//!
//! [`serve`] is a server on standard input and output: it starts one sandbox, under a policy that
//! the user gave on its command line and no call can change, and its tools act in there. [`wrap`]
//! stands in front of somebody else's server, which runs in a sandbox, and decides which of its
//! tools are to be had.
//!
//! Nothing of this is loaded or started unless `ringfence mcp` is.

mod files;
mod line;
mod message;
mod schema;
mod server;
mod snapshots;
mod stdio;
mod text;
mod tools;
mod within;
mod wrap;

pub use server::serve;
pub use wrap::{Tools, wrap};

use std::ffi::OsString;
use std::path::PathBuf;

/// What a server is started with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Options of `run` that make the policy.
    pub options: Vec<OsString>,
    /// The directory the sandbox starts in, whose snapshots are made.
    pub workdir: PathBuf,
}
