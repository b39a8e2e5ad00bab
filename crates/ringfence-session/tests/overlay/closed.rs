//! Directories whose mode keeps their owner out: they stay, and are in nobody's way.

use crate::world::{World, names, no_traces, state};
use ringfence_session::overlay::{Select, Trouble};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Root may enter everywhere by a capability, which this thread lets go.
pub fn as_ordinary() {
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, sets).unwrap();
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A layer with a directory that is closed by each of these modes; the rest is committed.
#[test]
fn one_that_is_closed_is_named_and_the_rest_is_committed() {
    as_ordinary();
    for closed in [0o644, 0o600, 0o444, 0o300, 0o000] {
        let world = World::new();
        drop(world.begin());
        world.change("kept/a", "new a");
        world.put("result", "work");
        world.put("new/file", "in it");
        world.change("gone/deep/file", "closed inside");
        for path in ["new", "gone"] {
            mode(&world.layer(path), closed);
        }
        let changes = world.open().changes().unwrap();
        assert_eq!(names(&changes), ["gone", "kept/a", "new", "result"], "{closed:o}");
        let path = Select { paths: vec![world.real("result")], force: false };
        let done = world.open().commit(&path).unwrap();
        assert_eq!(names(&done.committed), ["result"], "{closed:o}");
        let done = world.commit();
        assert_eq!(names(&done.committed), ["kept/a"], "{closed:o}");
        assert_eq!(names(&done.left), ["gone", "new"], "{closed:o}");
        let Some(Trouble::Left(why)) = &done.left[0].change.trouble else { panic!("{done:?}") };
        assert!(why.contains("cannot be looked into: Permission denied"), "{why}");
        assert_eq!(fs::read_to_string(world.real("gone/deep/file")).unwrap(), "old gone/deep/file");
        // The way out.
        for path in ["new", "gone"] {
            mode(&world.layer(path), 0o755);
        }
        assert!(world.commit().empty);
        assert_eq!(fs::read_to_string(world.real("new/file")).unwrap(), "in it");
        no_traces(&world.real(""));
    }
}

/// An empty one holds nothing that could be overlooked.
#[test]
fn an_empty_one_that_can_be_listed_is_committed() {
    as_ordinary();
    let world = World::new();
    drop(world.begin());
    fs::create_dir(world.layer("new")).unwrap();
    mode(&world.layer("new"), 0o644);
    assert!(world.commit().empty);
    assert_eq!(fs::metadata(world.real("new")).unwrap().permissions().mode() & 0o777, 0o644);
}

/// The real one is closed: what was deleted or written in it stays in the layer.
#[test]
fn a_real_one_that_is_closed_stays_as_it_is() {
    as_ordinary();
    for closed in [0o600, 0o300, 0o000] {
        let world = World::new();
        mode(&world.real("anew"), closed);
        let run = world.begin();
        world.delete("anew");
        world.delete("gone");
        world.change("kept/a", "new a");
        drop(run);
        let done = world.commit();
        assert_eq!(names(&done.left), ["anew"], "{closed:o}");
        assert_eq!(
            names(&done.committed),
            ["gone", "gone/deep", "gone/deep/file", "kept/a"],
            "{closed:o}"
        );
        mode(&world.real("anew"), 0o755);
        assert_eq!(fs::read_to_string(world.real("anew/old")).unwrap(), "old anew/old");
    }
}

/// What the host did to a directory itself is not taken back by one that was copied up before.
#[test]
fn a_mode_that_the_host_gave_meanwhile_is_a_conflict() {
    let world = World::new();
    mode(&world.real("kept"), 0o755);
    drop(world.begin());
    world.put("kept/new", "new");
    mode(&world.layer("kept"), 0o755);
    mode(&world.real("kept"), 0o700);
    // A new name besides changes both times.
    world.write("real/kept/host", "host's");
    let before = state(&world.real(""));
    assert_eq!(names(&world.commit().conflicts), ["kept"]);
    assert_eq!(state(&world.real("")), before);
    let path = Select { paths: vec![world.real("kept/new")], force: false };
    let done = world.open().commit(&path).unwrap();
    assert_eq!(names(&done.committed), ["kept/new"]);
    assert_eq!(fs::metadata(world.real("kept")).unwrap().permissions().mode() & 0o777, 0o700);
}

/// The control: what the run alone did to a directory is committed.
#[test]
fn a_mode_that_the_run_gave_is_committed() {
    let world = World::new();
    mode(&world.real("kept"), 0o755);
    drop(world.begin());
    world.put("kept/new", "new");
    mode(&world.layer("kept"), 0o750);
    assert!(world.commit().empty);
    assert_eq!(fs::metadata(world.real("kept")).unwrap().permissions().mode() & 0o777, 0o750);
}

#[test]
fn paths_that_are_too_long_for_the_kernel_are_deleted() {
    let world = World::new();
    let name = "n".repeat(200);
    let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::RDONLY;
    let open = |at: &rustix::fd::OwnedFd| {
        rustix::fs::openat(at, &name, flags, rustix::fs::Mode::empty()).unwrap()
    };
    let mut at = rustix::fs::open(world.real("gone"), flags, rustix::fs::Mode::empty()).unwrap();
    for _ in 0..45 {
        rustix::fs::mkdirat(&at, &name, rustix::fs::Mode::RWXU).unwrap();
        at = open(&at);
    }
    drop(world.begin());
    world.delete("gone");
    world.put("new", "new");
    assert!(world.commit().empty);
    assert!(!world.real("gone").exists());
}

/// A commit of one name of a file changes the time of the others, and is no change of the host's.
#[test]
fn names_of_one_file_can_be_committed_one_by_one() {
    let linked = |act: fn(&World)| {
        let world = World::new();
        for name in ["b", "c", "d"] {
            fs::hard_link(world.real("kept/a"), world.real(&format!("anew/{name}"))).unwrap();
        }
        drop(world.begin());
        world.put("kept/a", "new a");
        world.delete("anew/b");
        world.put("anew/c", "new c");
        for name in ["kept/a", "anew/b"] {
            let path = Select { paths: vec![world.real(name)], force: false };
            assert_eq!(names(&world.open().commit(&path).unwrap().committed), [name]);
        }
        act(&world);
        let done = world.commit();
        assert_eq!(fs::read_to_string(world.real("kept/a")).unwrap(), "new a");
        names(&done.conflicts)
    };
    assert_eq!(linked(|_| {}), [""; 0]);
    assert_eq!(linked(|world| mode(&world.real("anew/d"), 0o600)), ["anew/c"], "the host's");
}

/// An access list may take the owner's right to set the other attributes: it comes last.
#[test]
fn attributes_of_a_read_only_file_with_an_access_list() {
    as_ordinary();
    let world = World::new();
    drop(world.begin());
    world.put("ro", "new");
    let path = world.layer("ro");
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&path, "user.x", b"v", flags).unwrap();
    // The owner may read, no more.
    let mut list = crate::lists::list(1, 4, 4);
    list[6] = 4;
    if !crate::lists::set(&path, crate::lists::ACCESS, &list) {
        return;
    }
    let done = world.commit();
    assert_eq!(done.kept, [""; 0]);
    let mut value = [0; 8];
    assert_eq!(rustix::fs::getxattr(world.real("ro"), "user.x", &mut value[..]), Ok(1));
}
