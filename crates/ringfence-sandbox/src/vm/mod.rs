//! The vm tier: the same plan, behind a kernel of its own.
//!
//! ```text
//! launcher ─┬─ sandbox of the namespace tier, by the command's plan: bridge (`ringfence-guest`)
//!           │                                                         ▲ a socket of the launcher's
//!           └─ sandbox of the namespace tier, with nothing in it: QEMU ─┴─► guest: agent, command
//! ```
//!
//! There are two walls, one behind the other. What breaks out of the guest's kernel is in QEMU,
//! in a sandbox that shows QEMU's libraries and nothing of the user's; what deceives the bridge is in
//! the very sandbox that the namespace tier would have given the command.

pub mod accel;
pub mod assets;
mod initramfs;
mod jail;
mod machine;
mod qmp;
pub mod setup;
pub mod show;
mod template;

pub use assets::Assets;
pub use machine::Machine;
pub use template::{Key, discard as discard_templates};

use serde::{Deserialize, Serialize};

/// Memory of a guest, unless a limit says otherwise.
pub const MEMORY: u64 = 1 << 30;
/// The least a guest can have.
pub const LEAST_MEMORY: u64 = 128 << 20;

/// What a machine is like: part of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// What executes the guest's instructions.
    pub accelerator: accel::Accelerator,
    /// Bytes of memory.
    pub memory: u64,
    /// The guest's kernel.
    pub kernel: String,
    /// The most processes in the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Processors that QEMU may use, in thousandths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
}
