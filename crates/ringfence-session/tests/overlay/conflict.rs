//! The host changed the same things meanwhile.

use crate::world::{World, names, no_traces, state};
use ringfence_session::overlay::Select;
use std::fs;

/// A run that changes `kept/a`, deletes `gone` and makes `anew` anew, while the host acts.
fn conflict(act: impl FnOnce(&World)) -> Vec<String> {
    let world = World::new();
    let run = world.begin();
    world.change("kept/a", "new a");
    world.delete("gone");
    world.anew("anew");
    world.put("fresh", "inside");
    act(&world);
    drop(run);
    let before = state(&world.real(""));
    let done = world.commit();
    if !done.conflicts.is_empty() {
        assert_eq!(state(&world.real("")), before, "a commit with conflicts does nothing");
        let forced = Select { paths: Vec::new(), force: true };
        assert!(world.open().commit(&forced).unwrap().empty);
        assert_eq!(fs::read_to_string(world.real("kept/a")).unwrap(), "new a");
    }
    no_traces(&world.real(""));
    names(&done.conflicts)
}

#[test]
fn each_is_named() {
    assert_eq!(conflict(|_| {}), [""; 0], "the control");
    assert_eq!(conflict(|w| w.write("real/kept/b", "elsewhere")), [""; 0], "another file");
    assert_eq!(conflict(|w| w.write("real/kept/a", "host's")), ["kept/a"]);
    assert_eq!(conflict(|w| fs::remove_file(w.real("kept/a")).unwrap()), ["kept/a"]);
    assert_eq!(conflict(|w| w.write("real/gone/deep/file", "host's")), ["gone/deep/file"]);
    assert_eq!(conflict(|w| w.write("real/fresh", "host's")), ["fresh"]);
    assert_eq!(
        conflict(|w| w.write("real/gone/deep/new", "host's")),
        ["gone/deep", "gone/deep/new"]
    );
    assert_eq!(conflict(|w| w.write("real/anew/new", "host's")), ["anew", "anew/new"]);
}

#[test]
fn a_directory_that_another_one_took_the_place_of() {
    let found = conflict(|world| {
        fs::create_dir(world.real("other")).unwrap();
        fs::rename(world.real("kept/a"), world.real("other/a")).unwrap();
        fs::rename(world.real("kept"), world.real("was")).unwrap();
        fs::rename(world.real("other"), world.real("kept")).unwrap();
    });
    assert_eq!(found, ["kept/a"]);
}

/// The host was in the directory, so that its times say nothing: what has a deleted file's bytes was moved.
#[test]
fn what_was_renamed_inside_was_not_deleted_by_the_host() {
    let world = World::new();
    drop(world.begin());
    world.delete("gone/deep/file");
    for name in ["one", "two"] {
        world.change(&format!("kept/{name}"), "old gone/deep/file");
    }
    // Of the same size.
    world.change("kept/other", "new gone/deep/file");
    world.write("real/kept/host", "host's");
    let done = world.commit();
    assert_eq!(names(&done.conflicts), ["kept/other"]);
}

/// More than is read to find out stays a conflict, and is read no further.
#[test]
fn what_is_too_much_to_be_read_is_unclear() {
    let world = World::new();
    let large = |name: &str, bytes: u64| {
        let file = fs::File::create(world.top.join(name)).unwrap();
        file.set_len(bytes).unwrap();
    };
    let conflicts = |bytes: u64| {
        large("real/gone/deep/file", bytes);
        drop(world.begin());
        world.delete("gone/deep/file");
        world.change("kept/new", "");
        large("session/overlay/0/upper/kept/new", bytes);
        world.write(&format!("real/kept/{bytes}"), "host's");
        let changes = world.open().changes().unwrap();
        let troubled = changes.iter().filter(|found| found.change.trouble.is_some());
        let troubled = troubled.map(|found| found.change.path.clone()).collect::<Vec<_>>();
        world.open().discard(true).unwrap();
        troubled
    };
    assert_eq!(conflicts(1 << 10), [b""; 0], "the control");
    assert_eq!(conflicts(129 << 20), [b"kept/new"]);
}

#[test]
fn the_tree_itself_is_another_one() {
    let world = World::new();
    drop(world.begin());
    world.put("new", "x");
    fs::rename(world.real(""), world.top.join("moved")).unwrap();
    std::os::unix::fs::symlink(world.top.join("outside"), world.real("")).ok();
    std::os::unix::fs::symlink(world.top.join("outside"), world.top.join("real")).ok();
    let error = world.open().commit(&Select::default()).unwrap_err().to_string();
    assert!(error.contains("another directory"), "{error}");
    world.outside_is_unchanged();
}
