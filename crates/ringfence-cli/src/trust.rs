//! Which policy files found in projects the user has accepted.
//!
//! A project's own `ringfence.toml` can be written by whoever writes the project, a sandboxed
//! agent included. It counts only when the user has accepted exactly this content at exactly
//! this path: the list holds a hash of each accepted file.

use crate::error::Fault;
use ringfence_policy::{FileView, HostFiles, Profile};
use ringfence_sandbox::inputs::Inputs;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The name under which a project keeps its policy.
pub const PROJECT_FILE: &str = "ringfence.toml";

/// No policy is longer.
const MOST: u64 = 1 << 20;

/// Where the list is kept: outside everything that a sandbox can write.
fn list() -> Result<PathBuf, Fault> {
    let home = ringfence_sys::identity::home().filter(|home| home.is_absolute());
    let home =
        home.ok_or_else(|| Fault::usage("HOME is not set: there is nowhere to keep trust"))?;
    Ok(ringfence_sandbox::state::directory(&home).join("trusted"))
}

/// The line that stands for a file as it is.
fn line(path: &Path, content: &[u8]) -> Result<String, Fault> {
    let real = path
        .canonicalize()
        .map_err(|error| Fault::usage(format!("cannot read {}: {error}", path.display())))?;
    // `Debug` escapes newlines and bytes that are no text.
    Ok(format!("{} {:?}", blake3::hash(content).to_hex(), real.as_os_str()))
}

/// Accepts a file as it is now.
///
/// # Errors
/// It cannot be read, is no valid profile, or the list cannot be written.
pub fn accept(path: &Path) -> Result<(), Fault> {
    let text = HostFiles
        .text(path, MOST)
        .map_err(|error| Fault::usage(format!("cannot read {}: {error}", path.display())))?;
    Profile::from_toml(&text, &path.display().to_string()).map_err(Fault::of)?;
    let line = line(path, text.as_bytes())?;
    let list = list()?;
    let written = (|| {
        if let Some(directory) = list.parent() {
            ringfence_sandbox::state::make_directory(directory)?;
        }
        let mut options = fs::OpenOptions::new();
        let mut file = options.append(true).create(true).mode(0o600).open(&list)?;
        writeln!(file, "{line}")
    })();
    written.map_err(|error| Fault::usage(format!("cannot write {}: {error}", list.display())))
}

/// A project's policy file.
pub enum Found {
    /// There is none.
    None,
    /// It is accepted as it is; its path, and the text that was accepted.
    Trusted(PathBuf, String),
    /// It is not.
    Untrusted(PathBuf),
}

/// Looks for a policy file in a directory.
pub fn find(directory: &Path, inputs: &Inputs) -> Found {
    let path = directory.join(PROJECT_FILE);
    // A compiled plan holds as long as both are as they are now.
    match std::path::absolute(&path) {
        Ok(path) => inputs.content(&path),
        Err(_) => inputs.fleeting("a directory without a name"),
    }
    if let Ok(list) = list() {
        inputs.content(&list);
    }
    // A pipe of that name is there for whoever opens it to wait: it is no policy, and is not waited for.
    let text = match HostFiles.text(&path, MOST) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::InvalidData => return Found::Untrusted(path),
        Err(_) => return Found::None,
    };
    let accepted = (|| {
        let line = line(&path, text.as_bytes()).ok()?;
        let list = fs::read_to_string(list().ok()?).ok()?;
        Some(list.lines().any(|known| known == line))
    })();
    match accepted {
        Some(true) => Found::Trusted(path, text),
        _ => Found::Untrusted(path),
    }
}
