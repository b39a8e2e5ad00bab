//! What a program closed to its own user: a revert undoes that as it does all else.

use crate::state::state;
use crate::store::{Place, named};
use ringfence_session::snapshot::Select;
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Root may read everything by a capability, which this thread lets go.
fn as_ordinary() {
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, sets).unwrap();
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// As `chmod -R` does.
fn change(top: &Path, to: u32) {
    if top.is_dir() {
        for entry in fs::read_dir(top).unwrap() {
            change(&entry.unwrap().path(), to);
        }
    }
    mode(top, to);
}

#[test]
fn a_revert_undoes_it_and_can_be_undone() {
    as_ordinary();
    for to in [0o600, 0o644, 0o400, 0o300, 0o000] {
        let place = Place::new();
        for path in ["src/lib/deep/b", "src/a", "c"] {
            place.write(path, path);
        }
        let mut store = place.open();
        let base = named(&mut store, "base");
        let before = state(&place.work());
        place.write("src/lib/deep/b", "edited");
        place.write("new/file", "new");
        for name in ["src", "c", "new"] {
            change(&place.work().join(name), to);
        }
        let done = store.revert(&base, &Select::default()).unwrap();
        assert_eq!((done.kept, done.unread), (Vec::new(), false), "{to:o}");
        assert_eq!(state(&place.work()), before, "{to:o}");
        // What was closed is in the state before, modes and all.
        let undo = done.before.unwrap();
        store.revert(&undo, &Select::default()).unwrap();
        assert_eq!(mode_of(&place.work().join("src")), to);
        assert_eq!(mode_of(&place.work().join("c")), to);
        mode(&place.work().join("new"), 0o700);
        assert_eq!(mode_of(&place.work().join("new/file")), to);
        store.revert(&base, &Select::default()).unwrap();
        assert_eq!(state(&place.work()), before, "{to:o}, again");
    }
}

/// What is not to be reverted keeps its mode, and so does another name of a file that was.
#[test]
fn what_is_not_chosen_stays_closed() {
    as_ordinary();
    let place = Place::new();
    for path in ["one/a", "two/a", "linked"] {
        place.write(path, path);
    }
    let outside = place.top.path().join("outside");
    fs::hard_link(place.work().join("linked"), &outside).unwrap();
    let mut store = place.open();
    let base = named(&mut store, "base");
    for name in ["one", "two", "linked"] {
        change(&place.work().join(name), 0);
    }
    let select = Select { only: vec!["one".into(), "linked".into()], ..Select::default() };
    let done = store.revert(&base, &select).unwrap();
    assert_eq!(done.kept, [""; 0]);
    assert_eq!(place.read("one/a"), b"one/a");
    assert_eq!(place.read("linked"), b"linked");
    assert_eq!(mode_of(&place.work().join("two")), 0);
    assert_eq!(mode_of(&outside), 0);
}

/// The second name of a closed file is closed as the first one is, also when that is opened by then.
#[test]
fn a_closed_file_with_two_names_comes_back_closed() {
    as_ordinary();
    let place = Place::new();
    place.write("file", "x");
    let mut store = place.open();
    let base = named(&mut store, "base");
    place.write("one", "linked");
    let (one, two) = (place.work().join("one"), place.work().join("two"));
    fs::hard_link(&one, &two).unwrap();
    mode(&one, 0);
    let undo = store.revert(&base, &Select::default()).unwrap().before.unwrap();
    assert!(!one.exists() && !two.exists());
    assert_eq!(store.revert(&undo, &Select::default()).unwrap().kept, [""; 0]);
    assert_eq!((mode_of(&one), mode_of(&two)), (0, 0));
    mode(&one, 0o600);
    assert_eq!(place.read("two"), b"linked");
}

/// What the snapshot could not read, and is gone, is not given back: that is no success.
#[test]
fn what_was_closed_and_is_gone_counts_as_unread() {
    as_ordinary();
    let place = Place::new();
    place.write("closed", "x");
    mode(&place.work().join("closed"), 0o200);
    let mut store = place.open();
    let base = named(&mut store, "base");
    // The control: it is there.
    assert!(!store.revert(&base, &Select::default()).unwrap().unread);
    fs::remove_file(place.work().join("closed")).unwrap();
    let done = store.revert(&base, &Select::default()).unwrap();
    assert!(done.unread && done.kept.len() == 1, "{:?}", done.kept);
}

/// What the snapshot could not read is left alone, with its mode.
#[test]
fn what_was_closed_before_stays_so() {
    as_ordinary();
    let place = Place::new();
    place.write("closed/a", "a");
    place.write("open", "old");
    mode(&place.work().join("closed"), 0);
    let mut store = place.open();
    let base = named(&mut store, "base");
    place.write("open", "new");
    let done = store.revert(&base, &Select::default()).unwrap();
    assert!(!done.unread);
    assert_eq!(place.read("open"), b"old");
    assert_eq!(mode_of(&place.work().join("closed")), 0);
    mode(&place.work().join("closed"), 0o700);
}

/// Nor is it taken for gone by who only looks.
#[test]
fn what_is_in_a_closed_directory_is_no_change() {
    as_ordinary();
    let place = Place::new();
    place.write("closed/a", "a");
    let mut store = place.open();
    let base = named(&mut store, "base");
    mode(&place.work().join("closed"), 0);
    let changes = store.changes(&base, None, &Select::default()).unwrap();
    mode(&place.work().join("closed"), 0o700);
    let paths: Vec<&Path> = changes.iter().map(|change| change.path.as_path()).collect();
    assert_eq!(paths, [Path::new("closed")]);
}

/// What is no part of the tree's file system is named (here a device, as which a mount counts).
#[test]
fn what_is_not_in_a_snapshot_is_told() {
    let place = Place::new();
    place.write("file", "x");
    let mut store = place.open();
    assert_eq!(store.create(&Default::default()).unwrap().foreign, [""; 0].map(Path::new));
    fs::create_dir(place.work().join("below")).unwrap();
    let kind = rustix::fs::FileType::CharacterDevice;
    let none = rustix::fs::Mode::empty();
    rustix::fs::mknodat(rustix::fs::CWD, place.work().join("below/dev"), kind, none, 0).unwrap();
    let made = store.create(&Default::default()).unwrap();
    assert_eq!(made.foreign, [Path::new("below/dev")]);
}

#[test]
fn ringfence_s_own_store_is_not_told() {
    let place = Place::new();
    let directory = place.work().join("state/store");
    let options =
        ringfence_session::snapshot::Options { directory: Some(directory), ..Default::default() };
    let mut store = ringfence_session::snapshot::Store::open(&place.work(), options).unwrap();
    assert_eq!(store.create(&Default::default()).unwrap().foreign, [""; 0].map(Path::new));
}

/// A file that nobody may change (chattr +i, which takes root) is no matter of the others.
#[test]
#[allow(clippy::disallowed_macros, reason = "whoever runs it reads what it says")]
fn an_immutable_file_holds_no_revert_up() {
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
    let place = Place::new();
    for name in ["a", "fixed", "z"] {
        place.write(name, "old");
    }
    let mut store = place.open();
    let base = named(&mut store, "base");
    for name in ["a", "fixed", "made", "z"] {
        place.write(name, "new");
    }
    let set = |name: &str, to: bool| {
        let file = fs::File::open(place.work().join(name)).unwrap();
        let mut flags = ioctl_getflags(&file)?;
        flags.set(IFlags::IMMUTABLE, to);
        ioctl_setflags(&file, flags)
    };
    if let Err(error) = set("fixed", true).and_then(|()| set("made", true)) {
        eprintln!("left out: {error}");
        return;
    }
    let done = store.revert(&base, &Select::default());
    let again = store.pending();
    for name in ["fixed", "made"] {
        set(name, false).unwrap();
    }
    let done = done.unwrap();
    assert_eq!((place.read("a"), place.read("z")), (b"old".to_vec(), b"old".to_vec()));
    assert_eq!(place.read("fixed"), b"new");
    assert_eq!(done.kept.len(), 2, "{:?}", done.kept);
    assert!(done.unread && again.unwrap().is_none());
    store.revert(&base, &Select::default()).unwrap();
    assert_eq!(place.read("fixed"), b"old");
    assert!(!place.work().join("made").exists());
}

/// A store that a power cut emptied is not taken for a new one.
#[test]
fn an_empty_store_is_damaged() {
    let place = Place::new();
    place.write("file", "x");
    let mut store = place.open();
    named(&mut store, "base");
    drop(store);
    let directory = place.top.path().join("store");
    fs::File::create(directory.join("store.db")).unwrap();
    let options = ringfence_session::snapshot::Options {
        directory: Some(directory.clone()),
        ..Default::default()
    };
    let open = || ringfence_session::snapshot::Store::open(&place.work(), options.clone());
    let Err(error) = open() else { panic!("it was taken") };
    assert!(error.to_string().contains("it is empty, and was not"), "{error}");
    // The control: one that was killed while it was made has no lock yet.
    fs::remove_file(directory.join("lock")).unwrap();
    assert!(open().is_ok());
}
