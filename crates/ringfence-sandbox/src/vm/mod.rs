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
#[cfg(target_arch = "x86_64")]
pub mod checkpoint;
mod fork;
mod initramfs;
mod jail;
pub mod krun;
mod machine;
mod memory;
pub mod monitor;
mod place;
mod qmp;
pub mod setup;
pub mod show;
mod still;
mod template;
mod turn;
mod whole;

pub use assets::Assets;
pub use fork::{Forked, Wish, read_ahead};
pub use jail::INNER;
pub use machine::Machine;
pub(crate) use memory::answer as answer_open;
pub use monitor::Monitor;
pub use still::{hold, release};
pub use template::{Key, discard as discard_templates};

use crate::doctor::{Finding, State};
use serde::{Deserialize, Serialize};
use std::ffi::{CString, OsStr};
use std::path::Path;

/// The program's word for what stands in a sandbox for a guest's command.
pub const BRIDGE: &str = "guest-bridge";
/// The same for one more command of the session.
pub const EXEC: &str = "guest-exec";

/// The same for what goes on as a fork of a session; its door follows, its name, and the words that session was started with.
pub const FORK: &str = "session-fork";

/// The program's word for what becomes a saved machine's process; its files follow, and QEMU's path.
pub const RESTORE: &str = "machine-restore";

/// The words by which a session whose own command has `words` runs one more: in the guest, where
/// its own runs there.
pub(crate) fn further(words: &[CString], argv: &[CString]) -> Vec<CString> {
    let bridge = match words {
        // An absolute path, the name, and the option that comes first: nobody else's command.
        [program, name, first, ..]
            if program.as_bytes().starts_with(b"/")
                && name.as_bytes() == BRIDGE.as_bytes()
                && first.as_bytes() == b"--socket" =>
        {
            Some(program)
        }
        _ => None,
    };
    let before = bridge.and_then(|program| Some([program.clone(), CString::new(EXEC).ok()?]));
    before.into_iter().flatten().chain(argv.iter().cloned()).collect()
}

/// What `doctor` says of this tier.
pub fn finding(home: &Path, asked: Option<&OsStr>) -> Finding {
    let finding = |state, found, remedy| Finding { name: "vm tier", state, found, remedy };
    let partial = |found, remedy: &str| finding(State::Partial, found, Some(remedy.to_owned()));
    let monitor = match Monitor::of(asked) {
        Ok(monitor) => monitor,
        Err(why) => return partial(why, monitor::REMEDY),
    };
    let kernel = match Assets::find(home, monitor) {
        Ok(assets) => assets.kernel.release,
        Err(why) => return partial(why, "ringfence vm setup"),
    };
    let (accelerator, why) = accel::find();
    if let Err(why) = monitor.with(accelerator) {
        return partial(why, monitor::REMEDY);
    }
    match accelerator {
        accel::Accelerator::Kvm => {
            let found = format!("KVM, guest kernel {kernel}{}", monitor.told());
            finding(State::Ok, found, None)
        }
        accel::Accelerator::Tcg => {
            let why = why.unwrap_or_default();
            let found = format!("QEMU's emulator (slow), guest kernel {kernel}; {why}");
            let remedy = "use a host with hardware virtualisation, and let the user open /dev/kvm";
            partial(found, remedy)
        }
    }
}

/// What may be the reason that no machine with so many bytes of memory begins, where each process may map so many.
fn hint(address_space: Option<u64>, memory: u64) -> String {
    /// What QEMU maps besides the guest's memory: 0.7 GiB were seen.
    const BESIDES: u64 = 1 << 30;
    match address_space.filter(|&most| most < memory.saturating_add(BESIDES)) {
        Some(most) => format!(
            "a process may map {} MiB here (ulimit -v), and QEMU maps the guest's {} MiB and some 700 MiB \
             besides; run it without that limit",
            most >> 20,
            memory >> 20
        ),
        None => {
            "is the host overloaded? ringfence vm clean lets the next run boot a new one".to_owned()
        }
    }
}

/// Memory of a guest, unless a limit says otherwise.
pub const MEMORY: u64 = 1 << 30;
/// The least a guest can have.
pub const LEAST_MEMORY: u64 = 128 << 20;

/// What a machine is like: part of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// What executes the guest's instructions.
    pub accelerator: accel::Accelerator,
    /// What its devices are made by.
    #[serde(default, skip_serializing_if = "Monitor::usual")]
    pub monitor: Monitor,
    /// Bytes of memory.
    pub memory: u64,
    /// The guest's kernel.
    pub kernel: String,
    /// The most processes in the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// The most open files of a process in the guest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// The guest has virtualisation (emulated) and a `/dev/kvm` of its own: to try the way by KVM in.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nested: bool,
    /// The most bytes in `/dev/shm`, the one directory of the guest's own that programs may write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<u64>,
    /// Processors that QEMU may use, in thousandths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_limit_that_is_too_low_for_a_machine_is_named() {
        let hint = |limit| super::hint(limit, 1 << 30);
        assert!(hint(Some(600_000 << 10)).contains("585 MiB here (ulimit -v)"));
        for other in [None, Some(8 << 30), Some(u64::MAX)] {
            assert!(hint(other).contains("overloaded"), "{other:?}");
        }
    }
}
