//! What a hostile program in the workspace does while it is snapshotted or reverted.

use crate::state::state;
use crate::store::{Place, create};
use ringfence_session::snapshot::{Kind, Options, Select, Store};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

#[test]
fn a_link_to_a_directory_outside_is_kept_as_a_link() {
    let place = Place::new();
    let outside = place.top.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("secret"), "secret").unwrap();
    symlink(&outside, place.work().join("link")).unwrap();
    let mut store = place.open();
    let base = create(&mut store);
    let entries = store.entries(&base).unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].1.kind, Kind::Symlink);
}

#[test]
fn a_directory_that_became_a_link_is_not_written_through() {
    let place = Place::new();
    let outside = place.top.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("file"), "the host's").unwrap();
    place.write("directory/file", "stored");
    let mut store = place.open();
    let base = create(&mut store);
    std::fs::remove_dir_all(place.work().join("directory")).unwrap();
    symlink(&outside, place.work().join("directory")).unwrap();
    let before = state(&outside);
    store.revert(&base, &Select::default()).unwrap();
    assert_eq!(state(&outside), before);
    assert_eq!(place.read("directory/file"), b"stored");
}

#[test]
fn a_hard_link_out_of_the_workspace_is_not_written_through() {
    let place = Place::new();
    place.write("file", "stored");
    let mut store = place.open();
    let base = create(&mut store);
    let outside = place.top.path().join("outside");
    std::fs::write(&outside, "the host's").unwrap();
    std::fs::set_permissions(&outside, PermissionsExt::from_mode(0o640)).unwrap();
    std::fs::remove_file(place.work().join("file")).unwrap();
    std::fs::hard_link(&outside, place.work().join("file")).unwrap();
    store.revert(&base, &Select::default()).unwrap();
    assert_eq!(place.read("file"), b"stored");
    assert_eq!(std::fs::read(&outside).unwrap(), b"the host's");
    assert_eq!(outside.metadata().unwrap().permissions().mode() & 0o777, 0o640);
}

/// Who asks from inside could write to the file while it is made.
#[test]
fn what_a_session_reverts_has_no_privileges() {
    let place = Place::new();
    let mode = |mode| {
        let file = place.work().join("program");
        std::fs::set_permissions(file, PermissionsExt::from_mode(mode)).unwrap();
    };
    place.write("program", "stored");
    mode(0o6755);
    let base = create(&mut place.open());
    for (session, given) in [(Some("1".to_owned()), 0o755), (None, 0o6755)] {
        place.write("program", "changed");
        mode(0o644);
        let directory = Some(place.top.path().join("store"));
        let options = Options { directory, session, ..Options::default() };
        let mut store = Store::open(&place.work(), options).unwrap();
        store.revert(&base, &Select::default()).unwrap();
        assert_eq!(place.read("program"), b"stored");
        let data = place.work().join("program").metadata().unwrap();
        assert_eq!(data.permissions().mode() & 0o7777, given);
    }
}

/// Someone exchanges a directory for a link to the host all the time.
#[test]
fn exchanging_directories_during_the_walk_leads_nowhere() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let place = Place::new();
    let outside = place.top.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("secret"), "the host's secret").unwrap();
    for number in 0..20 {
        place.write(&format!("d/{number}"), "inside");
    }
    let link = place.work().join("link");
    symlink(&outside, &link).unwrap();
    let before = state(&outside);
    let mut store = place.open();
    let base = create(&mut store);
    let stop = AtomicBool::new(false);
    let directory = place.work().join("d");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let cwd = rustix::fs::CWD;
            while !stop.load(Ordering::Relaxed) {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                let _ = rustix::fs::renameat_with(cwd, &link, cwd, &directory, flags);
            }
        });
        for _ in 0..50 {
            create(&mut store);
            // It may fail, for things change: it may not do harm.
            let _ = store.revert(&base, &Select::default());
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(state(&outside), before);
    for snapshot in store.list().unwrap() {
        for (path, entry) in store.entries(&snapshot).unwrap() {
            assert_ne!(path.file_name().unwrap(), "secret");
            assert!(entry.kind != Kind::File || entry.size == 6, "{}", path.display());
        }
    }
}

#[test]
fn a_pipe_does_not_stop_us() {
    let place = Place::new();
    let mode = rustix::fs::Mode::RUSR;
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, place.work().join("pipe"), kind, mode, 0).unwrap();
    let mut store = place.open();
    let base = create(&mut store);
    assert_eq!(store.entries(&base).unwrap()[0].1.kind, Kind::Fifo);
}

#[test]
fn a_deep_tree_is_no_way_to_the_end_of_the_stack() {
    let place = Place::new();
    let mut at = rustix::fs::open(
        place.work(),
        rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::RDONLY,
        rustix::fs::Mode::empty(),
    )
    .unwrap();
    for _ in 0..600 {
        rustix::fs::mkdirat(&at, "d", rustix::fs::Mode::RWXU).unwrap();
        let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::RDONLY;
        at = rustix::fs::openat(&at, "d", flags, rustix::fs::Mode::empty()).unwrap();
    }
    let mut store = place.open();
    let made = store.create(&Default::default()).unwrap();
    // What is not looked into is said to be so, and left alone.
    assert_eq!(made.unreadable.len(), 1);
    let done = store.revert(&made.snapshot, &Select::default()).unwrap();
    assert_eq!(done.changes, []);
}

#[test]
fn the_store_is_no_part_of_the_workspace_and_for_the_user_alone() {
    let place = Place::new();
    place.write("file", "x");
    let directory = place.work().join("state/store");
    let options = Options { directory: Some(directory.clone()), ..Default::default() };
    let mut store = Store::open(&place.work(), options).unwrap();
    let base = create(&mut store);
    assert!(store.entry(&base, Path::new("state/store/store.db")).unwrap().is_none());
    place.write("new", "x");
    store.revert(&base, &Select::default()).unwrap();
    assert!(directory.join("store.db").exists());
    for entry in std::fs::read_dir(&directory).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", entry.path().display());
    }
    assert_eq!(directory.metadata().unwrap().permissions().mode() & 0o777, 0o700);
}
