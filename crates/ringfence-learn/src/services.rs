//! Directories in which services of the host's listen: a read-only mount of one does not stop connecting.

use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

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
    let mut left = None;
    let mut found = || {
        let found = sockets(directory, deep, &mut MOST.clone(), &mut left);
        directory.is_dir() && found.unwrap_or(deep == DEEPEST)
    };
    let listen = || "services listen in it, which act for whoever connects to them".to_owned();
    if usual || found() {
        return Some(listen());
    }
    // Who has listened there may do so again, and would be in reach.
    left.map(|socket| {
        let socket = socket.display();
        format!("a service has listened in it: where none will any more, remove its socket {socket}, and learn again")
    })
}

/// Whether nobody has a socket by this name any more. Nobody notices being asked for one of datagrams (unix(7)): another one is
/// told by `EPROTOTYPE`.
fn is_left(socket: &Path) -> bool {
    let connected = UnixDatagram::unbound().and_then(|asks| asks.connect(socket));
    connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

/// Whether there is one; nothing where there are too many names. One that was left by who listened is noted.
fn sockets(
    directory: &Path,
    depth: usize,
    most: &mut usize,
    left: &mut Option<PathBuf>,
) -> Option<bool> {
    let mut below = Vec::new();
    for entry in directory.read_dir().into_iter().flatten().flatten() {
        *most = most.checked_sub(1)?;
        match entry.file_type() {
            Ok(kind) if kind.is_socket() && is_left(&entry.path()) => *left = Some(entry.path()),
            Ok(kind) if kind.is_socket() => return Some(true),
            Ok(kind) if kind.is_dir() && depth > 1 => below.push(entry.path()),
            _ => {}
        }
    }
    for below in below {
        if sockets(&below, depth - 1, most, left)? {
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
        let look = |most: usize| sockets(&place, DEEPEST, &mut most.clone(), &mut None);
        assert_eq!(look(MOST), Some(false));
        let deep = std::os::unix::net::UnixListener::bind(place.join("a/b/c/socket"));
        assert_eq!(look(MOST), Some(false), "too deep");
        let near = std::os::unix::net::UnixListener::bind(place.join("a/b/socket"));
        assert_eq!(look(MOST), Some(true));
        assert!(near.is_ok() && deep.is_ok());
        assert_eq!(look(1), None);
        let datagrams = UnixDatagram::bind(place.join("d"));
        drop((near, deep));
        assert_eq!(look(MOST), Some(true), "one of datagrams");
        drop(datagrams);
        assert_eq!(look(MOST), Some(false), "nobody listens any more");
        std::fs::remove_file(place.join("a/b/c/socket")).expect("removed");
        let told = listen_in(&place.join("a/b")).unwrap_or_default();
        let socket = place.join("a/b/socket");
        assert!(told.contains(&format!("remove its socket {}", socket.display())), "{told}");
        std::fs::remove_dir_all(&place).expect("removed");
    }
}
