//! What a revert gives back beside the bytes.

use ringfence_tests::{Person, Place, Tier, binary};
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

/// A revert takes no descriptor for each directory that a program closed (to look into it, or to change what is in it), nor
/// for each that it removes something from.
#[test]
fn however_many_directories_were_closed_all_are_reverted() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    let all = |act: &dyn Fn(&Path)| {
        (0..600).for_each(|number| act(&place.project(format!("d/{number}"))));
    };
    all(&|directory| {
        std::fs::create_dir_all(directory).unwrap();
        std::fs::write(directory.join("file"), "old").unwrap();
        place.person.owns(directory);
        place.person.owns(&directory.join("file"));
    });
    place.person.owns(&place.project("d"));
    let mode = |at: &Path| at.symlink_metadata().unwrap().permissions().mode() & 0o7777;
    let was = mode(&place.project("d/7"));
    place.ringfence(["snapshot", "create", "--name", "base"]).ends(0);
    for to in [0o600, 0o000, 0o555] {
        all(&|directory| {
            std::fs::write(directory.join("file"), "new").unwrap();
            set_permissions(directory, Permissions::from_mode(to)).unwrap();
        });
        if to != 0o555 {
            set_permissions(place.project("d"), Permissions::from_mode(to)).unwrap();
        }
        let revert = format!("ulimit -n 256; {} snapshot revert base", binary().display());
        let done = place.shell(&revert);
        done.ends(0).prints("paths reverted");
        assert_eq!(done.err, "", "{to:o}");
        all(&|directory| {
            assert_eq!(mode(directory), was, "{to:o}");
            assert_eq!(std::fs::read_to_string(directory.join("file")).unwrap(), "old");
        });
    }
}
