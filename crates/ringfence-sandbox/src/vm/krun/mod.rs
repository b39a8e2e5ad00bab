//! libkrun's machine, for hosts with KVM: built in by the feature `krun`, and used where it is asked for
//! ([`super::monitor`]).
//!
//! ```text
//! launcher ── sandbox with nothing of the user's in it: this program ─► guest
//!                 its standard input is the guest's stream
//! ```
//!
//! It is taken without its C interface, which looks for a kernel of its own at run time. What it would do for a guest on its
//! own account, it is not given: no socket device (whose default, TSI, opens the host's sockets for the guest), no
//! network, no disk, and no file server. There are a console with the one port that the agent speaks by, a balloon and a source of
//! randomness; of these only the console is described to the guest's kernel.
//!
//! It saves no guest: each session boots, and none can be forked.

#[cfg(any(test, feature = "krun"))]
mod acpi;
#[cfg(any(test, feature = "krun"))]
mod kernel;
#[cfg(feature = "krun")]
mod run;

#[cfg(feature = "krun")]
pub use run::run;
#[cfg(feature = "krun")]
pub(super) use run::{Files, boot, words};

/// The program's word for what becomes a machine; what it is given follows ([`super::jail`]).
pub const MACHINE: &str = "machine-krun";

/// None.
#[cfg(not(feature = "krun"))]
pub(super) fn boot(
    _: &super::Assets,
    _: &super::Shape,
    _: &std::path::Path,
) -> Result<(super::machine::Process, std::os::fd::OwnedFd), String> {
    Err("this ringfence was built without libkrun".to_owned())
}
