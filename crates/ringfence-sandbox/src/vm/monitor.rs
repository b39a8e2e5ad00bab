//! Which program is the machine: QEMU, or libkrun within this one.

use super::accel::Accelerator;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;

/// Says which one is to be: `qemu` or `krun`.
pub const VARIABLE: &str = "RINGFENCE_VM_MONITOR";

/// What to do where the one that is asked for cannot serve.
pub(super) const REMEDY: &str = "unset RINGFENCE_VM_MONITOR";

/// What a guest's devices and memory are made by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Monitor {
    /// QEMU, which saves guests: sessions are clones of one.
    #[default]
    Qemu,
    /// libkrun, for hosts with KVM: every session boots.
    Krun,
}

impl Monitor {
    /// Whether this program holds it.
    pub fn built(self) -> bool {
        self == Monitor::Qemu || cfg!(feature = "krun")
    }

    /// Whether it is what serves unless something else is asked for; plans say it where it is not.
    pub fn usual(&self) -> bool {
        *self == Monitor::Qemu
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Monitor::Qemu => "QEMU",
            Monitor::Krun => "libkrun",
        }
    }

    /// Which one serves and why, where there is a choice.
    pub(super) fn told(self) -> String {
        match self {
            Monitor::Krun => format!(", machines by libkrun ({VARIABLE}=krun)"),
            Monitor::Qemu if Monitor::Krun.built() => {
                format!(", machines by QEMU (libkrun is built in: {VARIABLE}=krun)")
            }
            Monitor::Qemu => String::new(),
        }
    }

    /// The one that is asked for, where it can serve.
    ///
    /// # Errors
    /// Why it cannot, and what to do.
    pub fn of(asked: Option<&OsStr>) -> Result<Monitor, String> {
        match asked.map(OsStr::to_string_lossy).as_deref() {
            None | Some("" | "qemu") => Ok(Monitor::Qemu),
            Some("krun") if Monitor::Krun.built() => Ok(Monitor::Krun),
            Some("krun") => Err(format!(
                "{VARIABLE}=krun: this ringfence was built without libkrun; build it with cargo \
                 build --release -p ringfence-cli --features krun, or unset the variable: QEMU serves"
            )),
            Some(other) => Err(format!("{VARIABLE}={other}: it is qemu or krun")),
        }
    }

    /// Whether it can serve with what executes a guest's instructions.
    ///
    /// # Errors
    /// Why it cannot, and what to do.
    pub fn with(self, accelerator: Accelerator) -> Result<(), String> {
        match (self, accelerator) {
            (Monitor::Krun, Accelerator::Tcg) => Err(format!(
                "{VARIABLE}=krun: libkrun has no emulator, and KVM does not execute guests here \
                 (ringfence vm status says why); unset the variable: QEMU serves"
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_serves_or_is_refused_with_the_reason() {
        let of = |word: &str| Monitor::of(Some(OsStr::new(word)));
        assert_eq!(Monitor::of(None), Ok(Monitor::Qemu));
        assert_eq!(of("qemu"), Ok(Monitor::Qemu));
        assert!(of("xen").is_err_and(|why| why.contains("qemu or krun")));
        match of("krun") {
            Ok(monitor) => assert!(monitor == Monitor::Krun && cfg!(feature = "krun")),
            Err(why) => {
                assert!(why.contains("--features krun") && !cfg!(feature = "krun"), "{why}")
            }
        }
        assert!(Monitor::Krun.with(Accelerator::Tcg).is_err_and(|why| why.contains("KVM")));
        for (monitor, accelerator) in [
            (Monitor::Krun, Accelerator::Kvm),
            (Monitor::Qemu, Accelerator::Kvm),
            (Monitor::Qemu, Accelerator::Tcg),
        ] {
            assert_eq!(monitor.with(accelerator), Ok(()));
        }
    }
}
