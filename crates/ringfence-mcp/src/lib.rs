//! Sandboxes as tools of the Model Context Protocol (MCP).
//!
//! [`serve`] is a server on standard input and output: it starts one sandbox, under a policy that
//! the user gave on its command line and no call can change, and its tools act in there. [`wrap`]
//! stands in front of somebody else's server, which runs in a sandbox, and decides which of its
//! tools are to be had.
//!
//! Nothing of this is loaded or started unless `ringfence mcp` is.

mod files;
mod judged;
mod line;
mod message;
mod schema;
mod server;
mod snapshots;
mod stdio;
mod text;
mod tools;
mod transport;
mod within;
mod wrap;

pub use server::serve;
pub use wrap::{Tools, wrap};

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;

/// What a server is started with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Options of `run` that make the policy.
    pub options: Vec<OsString>,
    /// The directory the sandbox starts in, whose snapshots are made.
    pub workdir: PathBuf,
    /// The same, held: what is inside may rename it, and put a link in its place.
    pub held: Arc<File>,
}

impl Config {
    /// Where each command of ringfence is started: the directory itself, wherever its name leads by then.
    fn place(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.held.as_raw_fd()))
    }
}
