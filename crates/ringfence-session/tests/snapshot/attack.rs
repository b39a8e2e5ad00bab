//! What a hostile program in the workspace does while it is snapshotted or reverted.

use crate::state::state;
use crate::store::{Place, create};
use ringfence_session::snapshot::{Kind, New, Options, Select, Store, fault};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;

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

/// Writes to a file by a mapping, what it is told by lines.
const MAPPED: &str = "import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDWR)
mapping = mmap.mmap(file, 0)
os.close(file)
for line in sys.stdin:
    mapping[:5] = line[:5].encode()
    print(flush=True)";

/// The kernel stamps a file when a page of a mapping is first written to, and not again until it has written the page
/// out: what is written meanwhile leaves no sign.
#[test]
fn what_a_mapping_changes_without_a_sign_is_seen() {
    let place = Place::new();
    place.write("file", "never\n");
    let file = place.work().join("file");
    let mut python = std::process::Command::new("python3");
    python.args(["-c", MAPPED]).arg(&file).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut writer) = python.spawn() else {
        println!("skipped: there is no python3");
        return;
    };
    let (mut to, from) = (writer.stdin.take().unwrap(), writer.stdout.take().unwrap());
    let mut from = BufReader::new(from);
    let mut writes = |word: &str| {
        writeln!(to, "{word}").unwrap();
        from.read_line(&mut String::new()).unwrap();
    };
    writes("first");
    place.clock_moves_on();
    let mut store = place.open();
    let base = create(&mut store);
    let stamps =
        || file.metadata().map(|data| (data.modified().unwrap(), data.ctime_nsec())).unwrap();
    let before = stamps();
    writes("other");
    drop((to, from));
    writer.wait().unwrap();
    assert_eq!(place.read("file"), b"other\n", "the control");
    if stamps() != before {
        println!("skipped: the page was written out in between");
        return;
    }
    let changes = store.changes(&base, None, &Select::default()).unwrap();
    assert_eq!(changes.len(), 1, "{changes:?}");
    store.revert(&base, &Select::default()).unwrap();
    assert_eq!(place.read("file"), b"first\n");
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

type Act = (&'static str, Box<dyn FnOnce()>);

thread_local! {
    /// What is done on this thread at a step.
    static ACT: std::cell::Cell<Option<Act>> = const { std::cell::Cell::new(None) };
}

/// Does something once, at a step of what this thread does next.
fn at_step(step: &'static str, act: impl FnOnce() + 'static) {
    fault::install(|point| match ACT.take() {
        Some((step, act)) if step == point => act(),
        other => ACT.set(other),
    });
    ACT.set(Some((step, Box::new(act))));
}

/// A session's gateway opens its tree when it is first asked to, and again when that failed: a program in another
/// sandbox, whose tree this one is in, has as many tries as it likes to hit the moment in between.
#[test]
fn a_workspace_that_becomes_a_link_while_it_is_opened_is_not_followed() {
    let place = Place::new();
    let (outside, work) = (place.top.path().join("outside"), place.work());
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("secret"), "secret").unwrap();
    let options =
        || Options { directory: Some(place.top.path().join("store")), ..Options::default() };
    let (moved, target) = (place.top.path().join("moved"), outside.clone());
    at_step("resolved", move || {
        std::fs::rename(&work, moved).unwrap();
        symlink(target, work).unwrap();
    });
    let refused = Store::open(&place.work(), options()).err().unwrap().to_string();
    assert!(refused.contains("Too many levels of symbolic links"), "{refused}");
    assert!(ACT.take().is_none(), "it was tried");
    // The control: what is a link before is the user's own word.
    let store = Store::open(&place.work(), options()).unwrap();
    assert_eq!(store.workspace(), outside.canonicalize().unwrap());
}

/// A program may put another file in the place of a file's first name, while its other name comes back.
#[test]
fn the_other_name_of_a_file_that_was_replaced_meanwhile_has_its_bytes() {
    for replaced in [true, false] {
        let place = Place::new();
        place.write("a", "stored");
        place.write("one", "stored");
        let (one, two) = (place.work().join("one"), place.work().join("two"));
        std::fs::hard_link(&one, &two).unwrap();
        let mut store = place.open();
        let base = create(&mut store);
        place.write("a", "changed");
        std::fs::remove_file(&two).unwrap();
        let (other, name) = (place.top.path().join("other"), one.clone());
        at_step("make", move || {
            if replaced {
                std::fs::write(&other, "EVIL").unwrap();
                std::fs::rename(other, name).unwrap();
            }
        });
        store.revert(&base, &Select::default()).unwrap();
        assert!(ACT.take().is_none(), "it was tried");
        assert_eq!((place.read("a"), place.read("two")), (b"stored".into(), b"stored".into()));
        let inode = |path| rustix::fs::stat(path).unwrap().st_ino;
        assert_eq!(inode(&one) == inode(&two), !replaced);
        // Doing it again finishes it.
        store.revert(&base, &Select::default()).unwrap();
        assert_eq!(place.read("one"), b"stored");
    }
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

/// What a command made at a protected name is taken away, and its snapshot has it still.
#[test]
fn what_was_not_a_sessions_to_change_does_not_come_back_from_its_snapshots() {
    let place = Place::new();
    let options = |session: Option<&str>| Options {
        directory: Some(place.top.path().join("store")),
        session: session.map(ToOwned::to_owned),
        except: [".envrc", "**/.vscode", "held"].map(Into::into).to_vec(),
        ..Options::default()
    };
    let store = |session| Store::open(&place.work(), options(session)).unwrap();
    let planted = [".envrc", "deep/.vscode/tasks.json", "held/hook"];
    let plant = |text: &str| planted.iter().for_each(|name| place.write(name, text));
    plant("the user's");
    place.write("file", "old");
    let own = create(&mut store(None));
    plant("evil");
    let new = New { session: Some("s1".to_owned()), ..New::default() };
    let theirs = store(Some("s1")).create(&new).unwrap().snapshot;
    for name in [".envrc", "deep", "held"] {
        let path = place.work().join(name);
        drop(std::fs::remove_dir_all(&path).or_else(|_| std::fs::remove_file(&path)));
    }
    place.write("file", "new");
    let there = |name: &str| place.work().join(name).exists();
    let done = store(None).revert(&theirs, &Select::default()).unwrap();
    assert_eq!(place.read("file"), b"old");
    assert!(there("deep") && !planted.iter().any(|name| there(name)));
    assert!(
        done.kept.iter().any(|kept| kept.starts_with(".envrc: the session")),
        "{:?}",
        done.kept
    );
    // Whoever names it wants it; the control is what the user's own snapshot has.
    let named = Select { only: vec![".envrc".into()], ..Select::default() };
    store(None).revert(&theirs, &named).unwrap();
    assert_eq!(place.read(".envrc"), b"evil");
    store(None).revert(&own, &Select::default()).unwrap();
    assert!(planted.iter().all(|name| place.read(name) == b"the user's"));
    // It does not get lost by merging, nor is what is there now replaced or removed.
    let empty = store(Some("s1")).create(&new).unwrap().snapshot;
    let merged = store(None).compact(&[theirs, empty], None).unwrap().snapshot.unwrap();
    plant("newer");
    place.write("file", "newer");
    store(None).revert(&merged, &Select::default()).unwrap();
    assert_eq!(place.read("file"), b"old");
    assert!(planted.iter().all(|name| place.read(name) == b"newer"));
}
