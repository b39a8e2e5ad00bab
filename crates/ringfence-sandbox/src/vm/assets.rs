//! What a machine is made of, and where that is on the host.

use super::monitor::Monitor;
use std::path::{Path, PathBuf};

/// The emulator.
pub const QEMU: &str = "qemu-system-x86_64";
/// Where `vm setup`, as root, puts a kernel for all users.
const FOR_ALL: &str = "/var/lib/ringfence/vm";

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assets {
    /// The monitor's program: QEMU's, or this one.
    pub monitor: PathBuf,
    /// The guest's kernel.
    pub kernel: Kernel,
}

/// A kernel for guests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its release.
    pub release: String,
    /// Its image (`vmlinuz`).
    pub image: PathBuf,
    /// Its modules: the directory that holds `kernel/`.
    pub modules: PathBuf,
}

/// Where a user's own things for machines are.
pub fn cache(home: &Path) -> PathBuf {
    match std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from) {
        Some(cache) if cache.is_absolute() => cache.join("ringfence/vm"),
        _ => home.join(".cache/ringfence/vm"),
    }
}

/// Where `vm setup` puts a kernel: for all users when it is root's.
pub fn kernel_place(home: &Path) -> PathBuf {
    if ringfence_sys::identity::user() == 0 { PathBuf::from(FOR_ALL) } else { cache(home) }
}

impl Assets {
    /// Finds all there must be.
    ///
    /// # Errors
    /// A sentence: what is missing, and what to do.
    pub fn find(home: &Path, monitor: Monitor) -> Result<Assets, String> {
        if !cfg!(target_arch = "x86_64") {
            return Err("the vm tier is for x86-64 hosts".to_owned());
        }
        let missing = |what: &str| format!("the vm tier has no {what} yet: ringfence vm setup");
        let monitor = match monitor {
            Monitor::Qemu => qemu().ok_or_else(|| missing("qemu-system-x86_64"))?,
            Monitor::Krun => crate::itself::place()?,
        };
        let kernel = kernel(home).ok_or_else(|| missing("guest kernel"))?;
        Ok(Assets { monitor, kernel })
    }
}

/// QEMU, in the directories of the system: a user's PATH is not asked.
pub fn qemu() -> Option<PathBuf> {
    let places = ["/usr/bin", "/usr/local/bin", "/bin"].map(|place| Path::new(place).join(QEMU));
    places.into_iter().find(|path| path.is_file())
}

/// The kernel: the user's own, then that for all.
pub fn kernel(home: &Path) -> Option<Kernel> {
    [cache(home), PathBuf::from(FOR_ALL)].iter().find_map(|place| kernel_in(&place.join("kernel")))
}

/// The kernel in a directory that `vm setup` filled.
pub fn kernel_in(place: &Path) -> Option<Kernel> {
    let release = std::fs::read_to_string(place.join("release")).ok()?.trim().to_owned();
    let image = place.join("vmlinuz");
    let modules = place.join("modules");
    (image.is_file() && modules.is_dir() && !release.is_empty()).then_some(Kernel {
        release,
        image,
        modules,
    })
}
