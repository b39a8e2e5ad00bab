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
    // Root with another user's HOME trusts what root has accepted.
    let state = ringfence_sandbox::state::directory(&home).map_err(Fault::usage)?;
    Ok(state.join("trusted"))
}

/// The line that stands for a file as it is.
fn line(path: &Path, content: &[u8]) -> Result<String, Fault> {
    let place = place(path)
        .map_err(|error| Fault::usage(format!("cannot read {}: {error}", path.display())))?;
    Ok(format!("{} {}", blake3::hash(content).to_hex(), written(&place)))
}

/// Where a file stands. A link at its name is not followed: what is accepted at one place is not accepted wherever a
/// link leads to there, which a program inside can make.
fn place(path: &Path) -> std::io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(ErrorKind::InvalidInput.into());
    };
    Ok(parent.canonicalize()?.join(name))
}

/// A path as the list has it: `Debug` escapes newlines and bytes that are no text.
fn written(place: &Path) -> String {
    format!("{:?}", place.as_os_str())
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

/// Forgets a file that was accepted, where nothing is there any more; whether there was one.
///
/// # Errors
/// The list cannot be written.
pub fn forget(path: &Path) -> Result<bool, Fault> {
    let gone = |error: std::io::Error| error.kind() == ErrorKind::NotFound;
    let (Ok(place), true) = (place(path), path.symlink_metadata().err().is_some_and(gone)) else {
        return Ok(false);
    };
    let (list, place) = (list()?, written(&place));
    let text = fs::read_to_string(&list).unwrap_or_default();
    let is = |line: &&str| line.split_once(' ').is_some_and(|(_, other)| other == place);
    let mut kept = String::new();
    text.lines().filter(|line| !is(line)).for_each(|line| kept.extend([line, "\n"]));
    if kept.lines().count() == text.lines().count() {
        return Ok(false);
    }
    let new = list.with_extension(std::process::id().to_string());
    let written = (|| {
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(kept.as_bytes())?;
        fs::rename(&new, &list)
    })();
    let failed = |error| Fault::usage(format!("cannot write {}: {error}", list.display()));
    written.map_err(failed).map(|()| true)
}

/// A project's policy file.
pub enum Found {
    /// There is none.
    None,
    /// It is accepted as it is; its path, and the text that was accepted.
    Trusted(PathBuf, String),
    /// It is not.
    Untrusted(PathBuf),
    /// There is none any more, where one was accepted.
    Gone(PathBuf),
}

/// The files that were accepted, by names that are text: each where it was, links followed but for one at its name,
/// which does not count (`place`).
pub fn accepted(inputs: &Inputs) -> Vec<PathBuf> {
    let Ok(list) = list() else { return Vec::new() };
    inputs.content(&list);
    let text = fs::read_to_string(list).unwrap_or_default();
    let path = |line: &str| {
        let path = line.split_once(' ')?.1.strip_prefix('"')?.strip_suffix('"')?;
        (!path.contains('\\')).then(|| PathBuf::from(path))
    };
    let mut all: Vec<PathBuf> = text.lines().filter_map(path).collect();
    all.sort();
    all.dedup();
    all
}

/// Looks for a policy file in a directory.
///
/// # Errors
/// One that was accepted cannot be read: its rules would not hold.
pub fn find(directory: &Path, inputs: &Inputs) -> Result<Found, Fault> {
    let path = directory.join(PROJECT_FILE);
    // A compiled plan holds as long as both are as they are now.
    match std::path::absolute(&path) {
        Ok(path) => inputs.content(&path),
        Err(_) => inputs.fleeting("a directory without a name"),
    }
    if let Ok(list) = list() {
        inputs.content(&list);
    }
    let known = |is: &dyn Fn(&str) -> bool| {
        let list = list().ok().and_then(|list| fs::read_to_string(list).ok());
        list.is_some_and(|list| list.lines().any(is))
    };
    let known_place = || {
        let place = place(&path).map(|place| written(&place));
        place.is_ok_and(|place| {
            known(&|line| line.split_once(' ').is_some_and(|(_, other)| other == place))
        })
    };
    // A pipe of that name is there for whoever opens it to wait: it is no policy, and is not waited for.
    let text = match HostFiles.text(&path, MOST) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::InvalidData => return Ok(Found::Untrusted(path)),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(if known_place() { Found::Gone(path) } else { Found::None });
        }
        Err(error) if known_place() => {
            return Err(Fault::usage(format!(
                "{}, which you trusted, cannot be read: {error}; make it readable, or remove it to run without its rules",
                path.display()
            )));
        }
        Err(_) => return Ok(Found::None),
    };
    let accepted = line(&path, text.as_bytes()).is_ok_and(|line| known(&|other| other == line));
    Ok(if accepted { Found::Trusted(path, text) } else { Found::Untrusted(path) })
}
