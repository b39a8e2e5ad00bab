//! What a revert gives back beside the bytes.

use ringfence_tests::{Person, Place, Tier};
use rustix::io::Errno;
use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Attributes of a directory that nobody may write to come back, and it stays so.
#[test]
fn attributes_of_read_only_directories_come_back() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    let closed = |path: &Path, mode| {
        set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    let set = |path: &Path, name: &str, value: &[u8]| {
        rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty()).unwrap();
    };
    let has = |path: &Path, name: &str| {
        let mut value = [0; 64];
        rustix::fs::getxattr(path, name, &mut value[..]).map(|length| value[..length].to_vec())
    };
    let (closes, was) =
        (place.directory("home/project/closes"), place.directory("home/project/was"));
    for directory in [&closes, &was] {
        set(directory, "user.kept", b"old");
    }
    closed(&was, 0o555);
    place.ringfence(["snapshot", "create", "--name", "base"]).ends(0);
    for directory in [&closes, &was] {
        set(directory, "user.kept", b"new");
        set(directory, "user.more", b"x");
    }
    closed(&closes, 0o555);
    let done = place.ringfence(["snapshot", "revert", "base"]);
    done.ends(0).prints("2 paths reverted");
    assert_eq!(done.err, "", "nothing is left as it is");
    for (directory, mode) in [(&closes, 0o755), (&was, 0o555)] {
        assert_eq!(has(directory, "user.kept"), Ok(b"old".to_vec()), "{directory:?}");
        assert_eq!(has(directory, "user.more"), Err(Errno::NODATA), "{directory:?}");
        assert_eq!(directory.metadata().unwrap().permissions().mode() & 0o7777, mode);
    }
}
