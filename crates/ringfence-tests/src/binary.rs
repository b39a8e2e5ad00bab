//! The binary under test.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The binary: `$RINGFENCE`, else what cargo builds (once for each test program). Everybody can
/// execute it: where its directory is closed to others, it is copied to one that is not.
///
/// # Panics
/// It cannot be built or copied.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY
        .get_or_init(|| reachable(std::env::var_os("RINGFENCE").map_or_else(build, PathBuf::from)))
}

fn build() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ringfence-cli/Cargo.toml");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--release", "--message-format=json", "--manifest-path"])
        .arg(&manifest)
        // The project's own settings are found from the current directory up.
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo can be started");
    assert!(output.status.success(), "ringfence cannot be built");
    let messages = String::from_utf8_lossy(&output.stdout);
    let built = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .find_map(|message| message["executable"].as_str().map(PathBuf::from));
    built.expect("cargo names the executable it built")
}

/// Whether others may pass through every directory on the way.
fn open_to_all(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.ancestors().all(|at| at.metadata().is_ok_and(|data| data.permissions().mode() & 1 != 0))
}

fn reachable(path: PathBuf) -> PathBuf {
    let path = path.canonicalize().expect("the binary exists");
    if open_to_all(&path) {
        return path;
    }
    // One copy for each build, made beside and moved into place: several programs may do this.
    let data = path.metadata().expect("the binary exists");
    let name = format!("ringfence-under-test-{}-{}", data.ino(), data.mtime());
    let copy = std::env::temp_dir().join(name);
    let ours = |data: std::fs::Metadata| data.uid() == rustix::process::geteuid().as_raw();
    if !copy.symlink_metadata().is_ok_and(|there| ours(there) && same(&copy, &path)) {
        let beside = tempfile::Builder::new().prefix("ringfence-under-test-").tempdir();
        let beside = beside.expect("a temporary directory");
        let made = beside.path().join("ringfence");
        crate::copy_program(&path, &made);
        std::fs::rename(&made, &copy).expect("the copy can be moved");
    }
    copy
}

fn same(one: &Path, other: &Path) -> bool {
    std::fs::read(one).is_ok_and(|one| std::fs::read(other).is_ok_and(|other| one == other))
}
