//! Directories in which services of the host's listen: a read-only mount of one does not stop connecting.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Sockets are looked for so deep where services usually are, and so elsewhere, among so many names: where there are more
/// there may be one in the former.
const DEEPEST: usize = 3;
const ELSEWHERE: usize = 2;
const MOST: usize = 2048;

/// Why a directory is not one rule: services listen in it, or usually do, as in a user's own below `/run/user`
/// (XDG Base Directory Specification, `XDG_RUNTIME_DIR`).
pub(crate) fn listen_in(directory: &Path) -> Option<String> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR")
        .is_some_and(|own| !own.is_empty() && directory == Path::new(&own));
    let users =
        directory.strip_prefix("/run/user").is_ok_and(|below| below.components().count() <= 1);
    let usual = directory == Path::new("/run") || users || runtime;
    let deep = if directory.starts_with("/run") || usual { DEEPEST } else { ELSEWHERE };
    let found = || {
        directory.is_dir() && sockets(directory, deep, &mut MOST.clone()).unwrap_or(deep == DEEPEST)
    };
    (usual || found())
        .then(|| "services listen in it, which act for whoever connects to them".to_owned())
}

/// Whether there is one; nothing where there are too many names.
fn sockets(directory: &Path, depth: usize, left: &mut usize) -> Option<bool> {
    let mut below = Vec::new();
    for entry in directory.read_dir().into_iter().flatten().flatten() {
        *left = left.checked_sub(1)?;
        match entry.file_type() {
            Ok(kind) if kind.is_socket() => return Some(true),
            Ok(kind) if kind.is_dir() && depth > 1 => below.push(entry.path()),
            _ => {}
        }
    }
    for below in below {
        if sockets(&below, depth - 1, left)? {
            return Some(true);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_with_a_socket_in_it_is_no_rule_where_services_listen() {
        let usual = ["/run", "/run/user", "/run/user/1000"];
        assert!(usual.iter().all(|path| listen_in(Path::new(path)).is_some()));
        assert!(listen_in(Path::new("/usr/share")).is_none());
        let place = std::env::temp_dir().join(format!("ringfence-services-{}", std::process::id()));
        std::fs::create_dir_all(place.join("a/b/c")).expect("directories");
        assert_eq!(sockets(&place, DEEPEST, &mut MOST.clone()), Some(false));
        let deep = std::os::unix::net::UnixListener::bind(place.join("a/b/c/socket"));
        assert_eq!(sockets(&place, DEEPEST, &mut MOST.clone()), Some(false), "too deep");
        let near = std::os::unix::net::UnixListener::bind(place.join("a/b/socket"));
        assert_eq!(sockets(&place, DEEPEST, &mut MOST.clone()), Some(true));
        assert!(near.is_ok() && deep.is_ok());
        assert_eq!(sockets(&place, DEEPEST, &mut 1), None);
        std::fs::remove_dir_all(&place).expect("removed");
    }
}
