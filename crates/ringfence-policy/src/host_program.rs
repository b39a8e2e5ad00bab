//! Programs of the host's that ringfence itself starts, outside of every sandbox: tar(1) for a copy, the filter of the
//! session bus, what installs a guest's kernel.
//!
//! `PATH` is the user's, and names trees that sandboxed programs write: a virtual environment's `bin`, `node_modules/.bin`,
//! as root also what is root's. What lies there is never one of them.

use crate::files::{FileView, HostFiles, Resolver};
use std::ffi::OsStr;
use std::iter::once;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where a system keeps its programs: no policy makes them writable by itself.
const SYSTEM: [&str; 5] = ["/usr", "/bin", "/sbin", "/nix/store", "/gnu/store"];
/// Looked at behind `PATH`.
const USUAL: [&str; 4] = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin"];

/// The first program of a name in the directories of `search` (`PATH`), and in the usual ones, that is the system's: it, each
/// link on the way, and every directory above them are root's, and nobody else may change them.
pub fn program(name: &str, search: Option<&OsStr>, files: &dyn FileView) -> Option<PathBuf> {
    let mut resolver = Resolver::new(files);
    let listed = search.into_iter().flat_map(std::env::split_paths);
    let listed = listed.filter(|directory| directory.is_absolute());
    listed.chain(USUAL.map(PathBuf::from)).find_map(|directory| {
        let directory = resolver.real(&directory).ok().filter(|real| real.exists)?.path;
        let path = directory.join(name);
        let real = resolver.real(&path).ok().filter(|real| real.exists)?;
        // A directory has itself in it.
        let is_directory = files.link(&real.path.join(".")).is_ok();
        let mut stands =
            once(&path).chain(real.links.iter().map(|(link, _)| link)).chain(once(&real.path));
        let held = stands.all(|at| is_the_systems(at, files));
        (!is_directory && held && is_program(&real.path, files)).then_some(path)
    })
}

/// A command that starts it.
///
/// # Errors
/// A sentence: the system has none.
pub fn command(name: &str) -> Result<Command, String> {
    let search = std::env::var_os("PATH");
    let program = program(name, search.as_deref(), &HostFiles).ok_or_else(|| missing(name))?;
    Ok(Command::new(program))
}

/// The sentence for one that the system has not.
pub fn missing(name: &str) -> String {
    format!(
        "{name} is not installed where only root can write (/usr/bin): ringfence starts it outside of the sandbox, and \
         does not take it from elsewhere"
    )
}

fn is_the_systems(path: &Path, files: &dyn FileView) -> bool {
    const STICKY: u32 = 0o1000;
    // In a directory with the sticky bit (Nix's store) nobody replaces what is another's.
    let held = |(owner, mode)| owner == 0 && (mode & 0o022 == 0 || mode & STICKY != 0);
    SYSTEM.iter().any(|system| path.starts_with(system))
        && path.ancestors().skip(1).all(|above| files.owner_and_mode(above).is_some_and(held))
}

fn is_program(path: &Path, files: &dyn FileView) -> bool {
    let ours = |(owner, mode)| owner == 0 && mode & 0o022 == 0 && mode & 0o111 != 0;
    files.owner_and_mode(path).is_some_and(ours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn nothing_is_taken_from_where_programs_write() {
        let place =
            std::env::temp_dir().join(format!("ringfence-host-program-{}", std::process::id()));
        fs::create_dir_all(place.join("links")).expect("a place");
        let planted = place.join("sh");
        fs::write(&planted, "#!/bin/false\n").expect("a place");
        fs::set_permissions(&planted, fs::Permissions::from_mode(0o755)).expect("a place");
        // What is planted may be a link to another program of the system's.
        symlink("/usr/bin/env", place.join("links/sh")).expect("a place");
        let search = std::env::join_paths([&place, &place.join("links"), Path::new("relative")])
            .expect("a place");
        let found = program("sh", Some(&search), &HostFiles).expect("the system's");
        assert!(found.starts_with("/usr"), "{}", found.display());
        assert_eq!(program("ringfence-has-no-such", Some(&search), &HostFiles), None);
        assert_eq!(program("bin", Some(OsStr::new("/usr")), &HostFiles), None, "a directory");
        fs::remove_dir_all(place).expect("a place");
    }
}
