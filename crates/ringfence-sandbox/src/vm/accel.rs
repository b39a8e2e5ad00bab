//! What executes a guest's instructions: KVM where it really does, else QEMU's own emulator.

use serde::{Deserialize, Serialize};

/// What executes a guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accelerator {
    /// The processor's own virtualisation.
    Kvm,
    /// QEMU's emulator: slower, works everywhere.
    Tcg,
}

impl Accelerator {
    /// QEMU's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Accelerator::Kvm => "kvm",
            Accelerator::Tcg => "tcg",
        }
    }
}

/// Finds out, and why KVM is not used where it is not.
///
/// A `/dev/kvm` that opens proves nothing: there are hosts whose KVM executes a kernel's code by an
/// emulator of a thousandth of the speed that lacks instructions which Linux needs. So kernel-mode
/// code is executed, for a limited time.
pub fn find() -> (Accelerator, Option<String>) {
    match ringfence_sys::kvm::probe(MOST_NANOSECONDS) {
        Ok(nanoseconds) if nanoseconds < MOST_NANOSECONDS => (Accelerator::Kvm, None),
        Ok(nanoseconds) => {
            let why = format!(
                "/dev/kvm opens, and takes {nanoseconds} ns for an instruction of a kernel: it \
                 emulates them (a nested or paravirtual host)"
            );
            (Accelerator::Tcg, Some(why))
        }
        Err((call, errno)) => {
            let why = format!("{call}: {} ({errno:?})", ringfence_sys::describe(errno));
            (Accelerator::Tcg, Some(why))
        }
    }
}

/// The same, remembered until the host starts again: the look costs milliseconds.
pub fn known(cache: &std::path::Path) -> Accelerator {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let place = cache.join("accelerator");
    let remembered = std::fs::read_to_string(&place).unwrap_or_default();
    match remembered.strip_prefix(boot.trim()).map(str::trim) {
        Some("kvm") if !boot.is_empty() => return Accelerator::Kvm,
        Some("tcg") if !boot.is_empty() => return Accelerator::Tcg,
        _ => {}
    }
    let (found, _) = find();
    let _ = super::machine::make_directory(cache)
        .and_then(|()| std::fs::write(place, format!("{} {}", boot.trim(), found.name())));
    found
}

/// Slower than this per loop of two instructions is no hardware (an emulated SVM takes 13, a
/// paravirtual host 1,400).
const MOST_NANOSECONDS: u64 = 100;
