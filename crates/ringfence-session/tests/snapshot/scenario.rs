//! What users do, one by one.

use crate::state::state;
use crate::store::{Place, create, named};
use ringfence_session::SessionError;
use ringfence_session::snapshot::{Ignored, Most, New, Options, Select, Store, What};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

fn changed(place: &Place, from: &str) -> Vec<(String, What)> {
    let mut store = place.open();
    let from = store.find(from).unwrap();
    let changes = store.changes(&from, None, &Select::default()).unwrap();
    changes.into_iter().map(|c| (c.path.to_string_lossy().into_owned(), c.what)).collect()
}

/// Bytes that no compression makes smaller.
fn noise(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    bytes
}

#[test]
fn an_edit_of_equal_size_with_a_forged_time_is_seen() {
    let place = Place::new();
    place.write("file", "one");
    let mut store = place.open();
    let base = named(&mut store, "base");
    let time = place.work().join("file").metadata().unwrap().modified().unwrap();
    place.write("file", "two");
    let file = std::fs::File::options().write(true).open(place.work().join("file")).unwrap();
    file.set_modified(time).unwrap();
    assert_eq!(changed(&place, "base"), [("file".to_owned(), What::Modified)]);
    store.revert(&base, &Select::default()).unwrap();
    assert_eq!(place.read("file"), b"one");
}

#[test]
fn edits_within_one_tick_of_the_clock_are_seen() {
    let place = Place::new();
    let mut store = place.open();
    for round in 0..200u8 {
        place.write("file", [round]);
        let base = create(&mut store);
        place.write("file", [round.wrapping_add(1)]);
        let changes = store.changes(&base, None, &Select::default()).unwrap();
        assert_eq!(changes.len(), 1, "round {round}");
    }
}

#[test]
fn touching_is_no_change() {
    let place = Place::new();
    place.write("file", "same");
    let mut store = place.open();
    named(&mut store, "base");
    place.write("file", "same");
    assert_eq!(changed(&place, "base"), []);
}

/// Whoever only looks writes what it learnt by reading, once, and nothing where names are gone or new.
#[test]
fn looking_writes_no_more_than_it_learns() {
    let place = Place::new();
    for number in 0..300 {
        place.write(&format!("file{number}"), format!("{number}"));
    }
    let mut store = place.open();
    let base = named(&mut store, "base");
    let log = || place.top.path().join("store/store.db-wal").metadata().unwrap().len();
    let look = |store: &mut Store| {
        let before = log();
        let changes = store.changes(&base, None, &Select::default()).unwrap();
        (changes.len(), log() - before)
    };
    place.write("file7", "7");
    // Long enough ago that stamps can be trusted.
    place.clock_moves_on();
    // A file that was written again is read, and that its bytes are the same is learnt.
    let (changes, written) = look(&mut store);
    assert!(changes == 0 && written > 0, "{changes} {written}");
    assert_eq!(look(&mut store), (0, 0));
    for number in 0..10 {
        std::fs::remove_file(place.work().join(format!("file{number}"))).unwrap();
        place.write(&format!("new{number}"), "new");
    }
    place.write("file11", "x");
    place.clock_moves_on();
    assert_eq!(look(&mut store), (21, 0));
    // A file that comes back is the one that it was, however it is known.
    let reverted = store.revert(&base, &Select::default()).unwrap();
    assert_eq!((reverted.changes.len(), place.read("file3")), (21, b"3".to_vec()));
    assert_eq!(look(&mut store).0, 0);
}

#[test]
fn each_kind_of_change_has_its_word() {
    let place = Place::new();
    for name in ["changed", "deleted", "mode", "kind", "directory/file"] {
        place.write(name, name);
    }
    let mut store = place.open();
    named(&mut store, "base");
    place.write("changed", "CHANGED");
    std::fs::remove_file(place.work().join("deleted")).unwrap();
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(place.work().join("mode"), mode).unwrap();
    std::fs::remove_file(place.work().join("kind")).unwrap();
    std::fs::create_dir(place.work().join("kind")).unwrap();
    place.write("added", "");
    let wanted = [
        ("added", What::Added),
        ("changed", What::Modified),
        ("deleted", What::Deleted),
        ("kind", What::Kind),
        ("mode", What::Attributes),
    ];
    assert_eq!(changed(&place, "base"), wanted.map(|(path, what)| (path.to_owned(), what)));
}

#[test]
fn a_revert_can_be_reverted() {
    let place = Place::new();
    place.write("file", "first");
    let mut store = place.open();
    let base = create(&mut store);
    place.write("file", "second");
    place.write("new", "new");
    let later = state(&place.work());
    let done = store.revert(&base, &Select::default()).unwrap();
    assert!(!place.work().join("new").exists());
    store.revert(&done.before.unwrap(), &Select::default()).unwrap();
    assert_eq!(state(&place.work()), later);
}

#[test]
fn one_path_is_reverted_with_the_directories_above_it() {
    let place = Place::new();
    place.write("a/b/one", "one");
    place.write("a/b/two", "two");
    let mut store = place.open();
    let base = create(&mut store);
    std::fs::remove_dir_all(place.work().join("a")).unwrap();
    place.write("other", "kept");
    let select = Select { only: vec!["a/b/one".into()], except: vec![] };
    store.revert(&base, &select).unwrap();
    assert_eq!(place.read("a/b/one"), b"one");
    assert!(!place.work().join("a/b/two").exists());
    assert_eq!(place.read("other"), b"kept");
}

#[test]
fn excepted_paths_stay() {
    let place = Place::new();
    place.write(".git/hooks/pre-commit", "old");
    place.write("file", "old");
    let mut store = place.open();
    let base = create(&mut store);
    place.write(".git/hooks/pre-commit", "new");
    place.write("file", "new");
    let select = Select { only: vec![], except: vec![".git/hooks".into()] };
    store.revert(&base, &select).unwrap();
    assert_eq!(place.read("file"), b"old");
    assert_eq!(place.read(".git/hooks/pre-commit"), b"new");
}

#[test]
fn ignored_files_are_left_alone_when_excluded() {
    let place = Place::new();
    place.write(".gitignore", "target/\n*.log\n!kept.log\n");
    place.write("target/debug/big", "big");
    place.write("sub/.gitignore", "*\n");
    place.write("sub/hidden", "hidden");
    place.write("kept.log", "kept");
    place.write("lost.log", "lost");
    let mut store = place.open();
    let new = New { ignored: Ignored::Excluded, ..New::default() };
    let base = store.create(&new).unwrap().snapshot;
    let paths: Vec<PathBuf> =
        store.entries(&base).unwrap().into_iter().map(|(path, _)| path).collect();
    let wanted = [".gitignore", "kept.log", "sub", "sub/.gitignore"].map(PathBuf::from);
    assert_eq!(paths, wanted);
    place.write("target/debug/big", "rebuilt");
    place.write("sub/hidden", "changed");
    assert!(store.changes(&base, None, &Select::default()).unwrap().is_empty());
    // A rule that was added later hides nothing.
    place.write(".gitignore", "*\n");
    place.write("new", "new");
    assert_eq!(store.changes(&base, None, &Select::default()).unwrap().len(), 2);
    store.revert(&base, &Select::default()).unwrap();
    assert!(!place.work().join("new").exists());
    assert_eq!(place.read("target/debug/big"), b"rebuilt");
    assert_eq!(place.read("lost.log"), b"lost");
}

#[test]
fn ignored_files_are_kept_when_included() {
    let place = Place::new();
    place.write(".gitignore", "target/\n");
    place.write("target/big", "big");
    let mut store = place.open();
    let base = create(&mut store);
    std::fs::remove_dir_all(place.work().join("target")).unwrap();
    store.revert(&base, &Select::default()).unwrap();
    assert_eq!(place.read("target/big"), b"big");
}

#[test]
fn holes_stay_holes_and_cost_nothing() {
    let place = Place::new();
    place.write("sparse", "");
    let path = place.work().join("sparse");
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(1 << 40).unwrap();
    file.write_all_at(b"far", (1 << 39) + 7).unwrap();
    let mut store = place.open();
    let made = store.create(&New::default()).unwrap().snapshot;
    assert!(made.added < 1 << 20, "{} bytes", made.added);
    std::fs::remove_file(&path).unwrap();
    store.revert(&made, &Select::default()).unwrap();
    let found = path.metadata().unwrap();
    assert_eq!(found.len(), 1 << 40);
    assert!(found.blocks() < 4096, "{} blocks", found.blocks());
    let mut bytes = [0; 3];
    std::fs::File::open(&path).unwrap().read_exact_at(&mut bytes, (1 << 39) + 7).unwrap();
    assert_eq!(&bytes, b"far");
}

#[test]
fn hard_links_come_back_as_one_file() {
    let place = Place::new();
    place.write("a/one", "shared");
    place.write("b/alone", "shared");
    let (one, two) = (place.work().join("a/one"), place.work().join("two"));
    std::fs::hard_link(&one, &two).unwrap();
    let mut store = place.open();
    let base = create(&mut store);
    std::fs::remove_file(&two).unwrap();
    std::fs::write(&two, "apart").unwrap();
    store.revert(&base, &Select::default()).unwrap();
    assert_eq!(one.metadata().unwrap().ino(), two.metadata().unwrap().ino());
    assert_ne!(
        one.metadata().unwrap().ino(),
        place.work().join("b/alone").metadata().unwrap().ino()
    );
    assert!(store.changes(&base, None, &Select::default()).unwrap().is_empty());
}

/// What one path has been linked to is not reverted with it.
#[test]
fn other_names_of_what_is_reverted_stay_as_they_are() {
    let place = Place::new();
    place.write("one", "shared");
    let at = |name: &str| place.work().join(name);
    for directory in ["gone", "mine", "still"] {
        std::fs::create_dir(at(directory)).unwrap();
        std::fs::hard_link(at("one"), at(directory).join("two")).unwrap();
    }
    let mut store = place.open();
    let base = create(&mut store);
    std::fs::remove_dir_all(at("gone")).unwrap();
    std::fs::remove_file(at("mine/two")).unwrap();
    place.write("mine/two", "mine");
    std::fs::remove_file(at("one")).unwrap();
    place.write("one", "changed");
    let select = Select { only: vec!["one".into()], except: vec![] };
    store.revert(&base, &select).unwrap();
    assert_eq!(place.read("one"), b"shared");
    assert!(!at("gone").exists());
    assert_eq!(place.read("mine/two"), b"mine");
    assert_eq!(place.read("still/two"), b"shared");
}

#[test]
fn names_of_any_bytes_are_kept() {
    let place = Place::new();
    let name = std::ffi::OsStr::from_bytes(b"\xff\x01 \n'\"$x");
    let path = place.work().join(name);
    std::fs::write(&path, "odd").unwrap();
    let mut store = place.open();
    let base = create(&mut store);
    std::fs::remove_file(&path).unwrap();
    store.revert(&base, &Select::default()).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"odd");
}

#[test]
fn names_are_unique_and_no_numbers() {
    let place = Place::new();
    let mut store = place.open();
    named(&mut store, "base");
    for name in ["base", "12", "latest", "", "-x", "a/b", "a\nb", &"x".repeat(65)] {
        let new = New { name: Some(name.into()), ..New::default() };
        assert!(store.create(&new).is_err(), "{name}");
    }
    assert_eq!(store.list().unwrap().len(), 1);
}

#[test]
fn compacting_merges_and_the_newest_wins() {
    let place = Place::new();
    let mut store = place.open();
    place.write("same", "old");
    place.write("only-old", "1");
    let old = create(&mut store);
    place.write("same", "new");
    std::fs::remove_file(place.work().join("only-old")).unwrap();
    let new = create(&mut store);
    let merged = store.compact(&[new, old], Some("merged")).unwrap().snapshot.unwrap();
    assert_eq!(store.list().unwrap().len(), 1);
    let read = |path: &str| {
        let entry = store.entry(&merged, Path::new(path)).unwrap().unwrap();
        store.read(&entry, 99).unwrap().unwrap()
    };
    assert_eq!((read("same"), read("only-old")), (b"new".to_vec(), b"1".to_vec()));
}

#[test]
fn deleting_gives_space_back_and_spares_the_others() {
    let place = Place::new();
    let noise = noise(4 << 20);
    place.write("kept", "kept");
    let mut store = place.open();
    let kept = create(&mut store);
    place.write("large", &noise);
    let large = create(&mut store);
    std::fs::remove_file(place.work().join("large")).unwrap();
    store.delete(&large).unwrap();
    let done = store.compact(&[], None).unwrap();
    assert!(done.after < 1 << 20, "{} bytes", done.after);
    // The stat cache must not vouch for what is gone.
    place.write("large", &noise);
    let again = create(&mut store);
    std::fs::remove_file(place.work().join("large")).unwrap();
    store.revert(&again, &Select::default()).unwrap();
    assert_eq!(place.read("large"), noise);
    store.revert(&kept, &Select::default()).unwrap();
    assert_eq!(place.read("kept"), b"kept");
}

#[test]
fn a_full_store_is_an_error_and_no_loss() {
    let place = Place::new();
    place.write("file", "first");
    let base = create(&mut place.open());
    let noise = noise(2 << 20);
    place.write("large", &noise);
    place.write("file", "second");
    let before = state(&place.work());
    let mut store = place.limited(512 << 10);
    assert!(matches!(store.create(&New::default()), Err(SessionError::Full(_))));
    // A revert that cannot keep what it replaces does not begin.
    assert!(matches!(store.revert(&base, &Select::default()), Err(SessionError::Full(_))));
    assert_eq!(store.pending().unwrap(), None);
    assert_eq!(state(&place.work()), before);
    assert_eq!(store.list().unwrap().len(), 1);
    drop(store);
    place.open().revert(&base, &Select::default()).unwrap();
    assert_eq!(place.read("file"), b"first");
}

#[test]
fn a_damaged_store_and_a_later_one_are_said_to_be_so() {
    let place = Place::new();
    place.write("file", "x");
    let base = create(&mut place.open());
    let path = place.top.path().join("store/store.db");
    let change = |sql: &str| {
        rusqlite::Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    };
    place.write("file", "y");
    change("UPDATE object SET data = x'00', encoding = 0");
    let mut store = place.open();
    let error = store.revert(&base, &Select::default()).unwrap_err();
    assert!(matches!(error, SessionError::Corrupt { .. }), "{error}");
    assert_eq!(place.read("file"), b"y");
    drop(store);
    change("PRAGMA user_version = 99");
    let options = Options { directory: Some(place.top.path().join("store")), ..Default::default() };
    let error = Store::open(&place.work(), options).err().unwrap();
    assert!(matches!(error, SessionError::Newer { found: 99, .. }), "{error}");
}

#[test]
fn history_tells_each_version() {
    let place = Place::new();
    let mut store = place.open();
    create(&mut store);
    place.write("file", "one");
    create(&mut store);
    create(&mut store);
    place.write("file", "two");
    create(&mut store);
    std::fs::remove_file(place.work().join("file")).unwrap();
    create(&mut store);
    let versions = store.history(Path::new("file")).unwrap();
    let words: Vec<What> = versions.into_iter().map(|version| version.what).collect();
    assert_eq!(words, [What::Added, What::Modified, What::Deleted]);
}

#[test]
fn automatic_ones_are_few() {
    let place = Place::new();
    let mut store = place.open();
    let base = create(&mut store);
    for round in 0..25u8 {
        place.write("file", [round]);
        store.revert(&base, &Select::default()).unwrap();
    }
    assert_eq!(store.list().unwrap().len(), 11);
}

/// Large automatic ones take the space of a few, and the newest three are there anyhow.
#[test]
fn automatic_ones_take_no_more_than_so_much() {
    let place = Place::new();
    let directory = Some(place.top.path().join("store"));
    // Not ten of the largest.
    let limit = Some(1200 << 10);
    let options = Options { directory, limit, automatic_bytes: 200 << 10, ..Options::default() };
    let mut store = Store::open(&place.work(), options).unwrap();
    place.write("file", "first");
    let base = create(&mut store);
    let mut fill = blake3::Hasher::new().finalize_xof();
    let mut round = |store: &mut Store, size: usize| {
        let mut bytes = vec![0; size];
        fill.fill(&mut bytes);
        place.write("file", &bytes);
        let done = store.revert(&base, &Select::default()).unwrap();
        assert_eq!(place.read("file"), b"first");
        (done.before.unwrap(), bytes)
    };
    let mut kept = |size: usize| {
        let last = (0..25).map(|_| round(&mut store, size)).last().unwrap();
        let automatic = store.list().unwrap().len() - 1;
        store.revert(&last.0, &Select::default()).unwrap();
        assert_eq!(place.read("file"), last.1, "the newest one is whole");
        automatic
    };
    assert_eq!(kept(10), 10, "small ones are as many as without");
    assert_eq!(kept(40 << 10), 4);
    assert_eq!(kept(150 << 10), 3);
}

#[test]
fn attributes_come_back_and_go() {
    let place = Place::new();
    place.write("with", "x");
    place.write("without", "x");
    let get = |path: &str| {
        let mut value = [0u8; 9];
        let path = place.work().join(path);
        let length = rustix::fs::lgetxattr(path, crate::state::ATTRIBUTE, &mut value[..]).ok()?;
        Some(value[..length].to_vec())
    };
    let set = |path: &str, value: &[u8]| {
        let (path, flags) = (place.work().join(path), rustix::fs::XattrFlags::empty());
        rustix::fs::lsetxattr(path, crate::state::ATTRIBUTE, value, flags).unwrap();
    };
    set("with", b"old");
    let mut store = place.open();
    let base = named(&mut store, "base");
    set("with", b"new");
    set("without", b"new");
    let wanted = ["with", "without"].map(|path| (path.to_owned(), What::Attributes));
    assert_eq!(changed(&place, "base"), wanted);
    store.revert(&base, &Select::default()).unwrap();
    assert_eq!((get("with"), get("without")), (Some(b"old".to_vec()), None));
}

/// Holes are not read, and take no room.
#[test]
fn what_a_snapshot_may_take_at_most_is_counted_without_holes() {
    let place = Place::new();
    let image = std::fs::File::create(place.work().join("image")).unwrap();
    image.set_len(1 << 40).unwrap();
    image.write_all_at(b"data", 1 << 39).unwrap();
    let most = Some(Most { names: 100, files: 100, bytes: 1 << 20 });
    let directory = Some(place.top.path().join("store"));
    let open = || {
        Store::open(
            &place.work(),
            Options { directory: directory.clone(), most, ..Options::default() },
        )
        .unwrap()
    };
    let made = open().create(&New::default()).unwrap();
    assert_eq!(made.snapshot.bytes, 1 << 40);
    // The control, when nothing is known, and when it is new.
    place.write("dense", noise(2 << 20));
    let refused = open().create(&New::default()).unwrap_err().to_string();
    assert!(refused.contains("no snapshot has"), "{refused}");
    std::fs::remove_dir_all(place.top.path().join("store")).unwrap();
    assert!(open().create(&New::default()).is_err());
}
