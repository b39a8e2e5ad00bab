//! A virtual machine's one stream, and its two ends.
//!
//! ```text
//! host, in the namespace tier's sandbox          guest, its own kernel
//! bridge ◄──────── one byte stream ────────────► agent (PID 1)
//!   │ standard streams, signals, exit code          │ the command and its descendants
//!   │ files: answers FUSE requests with             │ /dev/fuse: the guest's root directory
//!   │        what the sandbox's own view shows      │
//!   │ dials what the guest's programs connect to    │ every connection comes to the agent
//! ```
//!
//! The bridge stands where the command would stand without a machine: in a sandbox of the namespace
//! tier, under the same plan. So whatever a guest makes of the bridge, it gets no further than the
//! command itself would in that tier; and files, protected paths, the network's filter, limits,
//! overlays and the record are that tier's, unchanged. The guest is not trusted: all that it says
//! is bounded and checked in [`wire`] and [`files`].

#![forbid(unsafe_code)]

pub mod agent;
pub mod bridge;
pub mod files;
mod flow;
#[doc(hidden)]
pub mod fuzzing;
pub mod line;
pub mod rehearsal;
mod stream;
mod waiting;
mod watch;
pub mod wire;

pub use stream::Stream;

/// The file in a guest's first file system that holds the first randomness of its kernel.
pub const SEED: &str = "seed";
