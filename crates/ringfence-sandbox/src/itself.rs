//! This very program: where it is, and how it starts itself.
//!
//! Whoever can write the place of the program that is started next decides what runs outside of every sandbox. So a
//! process starts itself as what it is already, whatever stands in its place by then, and what it was started by is
//! protected inside.

use ringfence_policy::{HostFiles, Resolver};
use ringfence_sys as sys;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the kernel calls a program whose file is gone.
const DELETED: &[u8] = b" (deleted)";
/// The program, though another one should stand in its place or none.
pub const OWN: &str = "/proc/self/exe";

/// The program itself, though another one should stand in its place or none; its name is the one that this one was
/// called by, so that it knows it too.
pub fn command() -> Command {
    let mut command = Command::new(OWN);
    let called = called().or_else(|| std::env::current_exe().ok());
    command.arg0(called.as_deref().unwrap_or(Path::new("ringfence")));
    // What it runs is to have these as our own caller has.
    sys::signal::as_the_caller(&mut command);
    command
}

/// Where it is, for a sandbox that is to show it.
///
/// # Errors
/// A sentence: another program stands in its place, or none, which would be shown in its stead.
pub fn place() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
    if own.as_os_str().as_bytes().ends_with(DELETED) && !own.exists() {
        return Err(format!(
            "this program was replaced or removed since it was started ({}): start it anew",
            own.display()
        ));
    }
    Ok(own)
}

/// Where it is, and the links that lead to it from what it was called by. They are looked at beside what a plan was
/// derived from: the names themselves are in its key.
pub fn places() -> Vec<PathBuf> {
    let mut places = Vec::new();
    if let Ok(own) = std::env::current_exe() {
        // What was put in its place since is what is started next.
        let replaced = own.as_os_str().as_bytes().strip_suffix(DELETED).filter(|_| !own.exists());
        places.push(replaced.map_or(own.clone(), |path| PathBuf::from(OsStr::from_bytes(path))));
    }
    let Some(called) = called().filter(|called| !places.contains(called)) else { return places };
    if let Ok(real) = Resolver::new(&HostFiles).real(&called) {
        places.extend(real.links.into_iter().map(|(link, _)| link));
        places.push(real.path);
    }
    places
}

/// What it was called by, as an absolute path; none where that was a name without one.
fn called() -> Option<PathBuf> {
    let called = OsStr::from_bytes(ringfence_start::entry::caller()?.called()?);
    let named = called.as_bytes().contains(&b'/');
    let path = named.then(|| std::env::current_dir().ok().map(|here| here.join(called)))??;
    Some(ringfence_policy::path::normal(&path))
}
