//! What a machine is made of, and where that is on the host.

use super::monitor::Monitor;
use ringfence_policy::shown;
use std::os::unix::fs::MetadataExt;
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

/// Whether that is the caller's, there or yet to be made: as root with another user's `HOME` it is not, and what lies there
/// would be the kernel and the memory of root's guests.
///
/// # Errors
/// A sentence.
pub fn is_own(cache: &Path) -> Result<(), String> {
    let there = cache.ancestors().find_map(|above| above.metadata().ok());
    match there.map(|data| data.uid()) {
        Some(user) if user != crate::facts::user() => Err(format!(
            "{} is another user's (uid {user}), and so would your guests be: set HOME or XDG_CACHE_HOME to a directory of yours",
            shown::path(cache)
        )),
        _ => Ok(()),
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
        is_own(&cache(home))?;
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
