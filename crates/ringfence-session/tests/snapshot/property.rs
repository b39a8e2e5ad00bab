//! Random lives of a workspace, against plain copies of it.

use crate::killed::killed;
use crate::state::{ATTRIBUTE, State, state};
use crate::store::Place;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use ringfence_session::snapshot::{New, Select, Snapshot};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug)]
enum Act {
    Write(u8, u8, u16),
    Append(u8, u8),
    Sparse(u8),
    Remove(u8),
    Directory(u8),
    Rename(u8, u8),
    Symlink(u8, u8),
    Link(u8, u8),
    Fifo(u8),
    Mode(u8, u8),
    Attribute(u8, u8),
    Snapshot,
    Changes,
    Revert(u8),
    RevertOne(u8, u8),
    Delete(u8),
    Compact,
    KilledCreate(u8),
    KilledCompact(u8),
    KilledRevert(u8, u8, u8),
}

fn act() -> impl Strategy<Value = Act> {
    let n = any::<u8>;
    prop_oneof![
        6 => (n(), n(), any::<u16>()).prop_map(|(p, b, s)| Act::Write(p, b, s)),
        2 => (n(), n()).prop_map(|(p, b)| Act::Append(p, b)),
        1 => n().prop_map(Act::Sparse),
        3 => n().prop_map(Act::Remove),
        2 => n().prop_map(Act::Directory),
        3 => (n(), n()).prop_map(|(a, b)| Act::Rename(a, b)),
        2 => (n(), n()).prop_map(|(a, b)| Act::Symlink(a, b)),
        3 => (n(), n()).prop_map(|(a, b)| Act::Link(a, b)),
        1 => n().prop_map(Act::Fifo),
        2 => (n(), n()).prop_map(|(p, m)| Act::Mode(p, m)),
        2 => (n(), n()).prop_map(|(p, v)| Act::Attribute(p, v)),
        4 => Just(Act::Snapshot),
        2 => Just(Act::Changes),
        3 => n().prop_map(Act::Revert),
        1 => (n(), n()).prop_map(|(s, p)| Act::RevertOne(s, p)),
        1 => n().prop_map(Act::Delete),
        1 => Just(Act::Compact),
        1 => n().prop_map(Act::KilledCreate),
        1 => n().prop_map(Act::KilledCompact),
        2 => (n(), n(), n()).prop_map(|(s, a, b)| Act::KilledRevert(s, a, b)),
    ]
}

/// Few names, so that they meet; some are odd.
fn path(number: u8) -> PathBuf {
    let names: [&[u8]; 6] = [b"a", b"b", b"\xff\xfe", b" x\n", b".gitignore", b"-rf"];
    let name = |at: u8| std::ffi::OsStr::from_bytes(names[usize::from(at) % 6]);
    let mut path = PathBuf::from(name(number));
    if number >= 96 {
        path = path.join(name(number / 6));
    }
    if number >= 192 {
        path = path.join(name(number / 36));
    }
    path
}

/// Sizes around what the store treats differently. Few bytes to choose from: equal sizes and
/// equal contents are what goes wrong.
fn bytes(byte: u8, size: u16) -> Vec<u8> {
    let sizes = [0, 1, 100, 100, 4096, 70_000, 1 << 20, (1 << 20) + 1];
    let random = |at: usize| (at as u8).wrapping_mul(byte) ^ (at >> 8) as u8;
    let length = sizes[usize::from(size) % sizes.len()];
    if size & 0x100 == 0 { vec![byte % 3; length] } else { (0..length).map(random).collect() }
}

fn perform(work: &Path, act: &Act) {
    let full = |number: &u8| work.join(path(*number));
    // Many do not succeed, and need not.
    let _ = match act {
        Act::Write(p, b, s) => {
            let plain = full(p).symlink_metadata().map_or(true, |found| found.is_file());
            if plain { std::fs::write(full(p), bytes(*b, *s)) } else { Ok(()) }
        }
        Act::Append(p, b) => (|| {
            let found = full(p).symlink_metadata()?;
            if found.is_file() {
                let file = std::fs::File::options().write(true).open(full(p))?;
                file.write_all_at(&[*b], found.len())?;
            }
            Ok(())
        })(),
        Act::Sparse(p) => (|| {
            let file = std::fs::File::create_new(full(p))?;
            file.set_len(3 << 20)?;
            file.write_all_at(b"middle", (1 << 20) + 5)
        })(),
        Act::Remove(p) => {
            std::fs::remove_file(full(p)).or_else(|_| std::fs::remove_dir_all(full(p)))
        }
        Act::Directory(p) => std::fs::create_dir(full(p)),
        Act::Rename(a, b) => std::fs::rename(full(a), full(b)),
        Act::Symlink(a, b) => std::os::unix::fs::symlink(path(*a), full(b)),
        Act::Link(a, b) => std::fs::hard_link(full(a), full(b)),
        Act::Fifo(p) => {
            let mode = rustix::fs::Mode::from_raw_mode(0o640);
            let kind = rustix::fs::FileType::Fifo;
            rustix::fs::mknodat(rustix::fs::CWD, full(p), kind, mode, 0).map_err(Into::into)
        }
        Act::Mode(p, m) => (|| {
            let found = full(p).symlink_metadata()?;
            let mode = [0o600, 0o644, 0o755, 0o700, 0o4755, 0o500][usize::from(*m) % 6];
            let mode = if found.is_dir() { mode | 0o700 } else { mode };
            if found.is_symlink() {
                return Ok(());
            }
            std::fs::set_permissions(full(p), std::fs::Permissions::from_mode(mode))
        })(),
        Act::Attribute(p, v) => {
            let flags = rustix::fs::XattrFlags::empty();
            if full(p).is_file() && !full(p).is_symlink() {
                let _ = rustix::fs::lsetxattr(full(p), ATTRIBUTE, &[*v], flags);
            }
            Ok(())
        }
        _ => Ok(()),
    };
}

fn live(acts: &[Act]) {
    let place = Place::new();
    let work = place.work();
    let mut store = place.open();
    let mut known: Vec<(Snapshot, State)> = Vec::new();
    for act in acts {
        let pick = |number: u8| {
            let some = !known.is_empty();
            some.then(|| known[usize::from(number) % known.len()].clone())
        };
        match *act {
            Act::Snapshot => {
                let made = store.create(&New::default()).unwrap();
                assert!(made.unreadable.is_empty() && made.unsettled.is_empty());
                known.push((made.snapshot, state(&work)));
            }
            Act::Changes => {
                let Some((snapshot, then)) = pick(0) else { continue };
                let changes = store.changes(&snapshot, None, &Select::default()).unwrap();
                let now = state(&work);
                let mut differ: Vec<&PathBuf> = then
                    .keys()
                    .chain(now.keys())
                    .filter(|path| then.get(*path) != now.get(*path))
                    .collect();
                differ.sort();
                differ.dedup();
                let mut found: Vec<&PathBuf> = changes.iter().map(|change| &change.path).collect();
                found.sort();
                assert_eq!(found, differ);
            }
            Act::Revert(s) => {
                let Some((snapshot, then)) = pick(s) else { continue };
                let before = state(&work);
                let done = store.revert(&snapshot, &Select::default()).unwrap();
                assert_eq!(done.kept, Vec::<String>::new());
                assert_eq!(state(&work), then);
                if let Some(kept) = done.before {
                    known.push((kept, before));
                }
            }
            Act::RevertOne(s, p) => {
                let Some((snapshot, then)) = pick(s) else { continue };
                let before = state(&work);
                let path = path(p);
                let select = Select { only: vec![path.clone()], except: vec![] };
                let done = store.revert(&snapshot, &select).unwrap();
                let now = state(&work);
                for path in then.keys().chain(now.keys()).filter(|p| p.starts_with(&path)) {
                    let plain = |state: &State| match state.get(path) {
                        Some(crate::state::Node::File { bytes, mode, attribute, .. }) => {
                            Some((Some(*bytes), *mode, attribute.clone()))
                        }
                        Some(_) => Some(Default::default()),
                        None => None,
                    };
                    assert_eq!(plain(&now), plain(&then), "{}", path.display());
                }
                if let Some(kept) = done.before {
                    known.push((kept, before));
                }
            }
            Act::Delete(s) => {
                let Some((snapshot, _)) = pick(s) else { continue };
                store.delete(&snapshot).unwrap();
                known.retain(|(other, _)| other.id != snapshot.id);
            }
            Act::Compact => drop(store.compact(&[], None).unwrap()),
            Act::KilledCreate(step) => {
                let before = state(&work);
                let last = store.list().unwrap().last().map_or(0, |last| last.id);
                killed(place.top.path(), "create", usize::from(step % 3));
                assert_eq!(state(&work), before);
                let all = store.list().unwrap();
                known.retain(|(old, _)| all.contains(old));
                known.extend(
                    all.into_iter()
                        .filter(|s| s.id > last)
                        .map(|s| (s, before.clone()))
                        .collect::<Vec<_>>(),
                );
            }
            Act::KilledCompact(step) => {
                killed(place.top.path(), "compact", usize::from(step % 2));
            }
            Act::KilledRevert(s, one, other) => {
                let Some((snapshot, then)) = pick(s) else { continue };
                let before = state(&work);
                let top = place.top.path();
                let was = killed(top, &format!("revert {}", snapshot.id), usize::from(one % 12));
                if was && store.pending().unwrap().is_some() {
                    killed(top, "resume", usize::from(other % 12));
                    store.resume().unwrap();
                    assert_eq!(state(&work), then);
                } else {
                    assert_eq!(state(&work), if was { before } else { then });
                }
                assert_eq!(store.pending().unwrap(), None);
            }
            _ => perform(&work, act),
        }
        // The store keeps some of the automatic ones only.
        let all = store.list().unwrap();
        known.retain(|(snapshot, _)| all.contains(snapshot));
    }
    for (snapshot, then) in known.iter().rev() {
        store.revert(snapshot, &Select::default()).unwrap();
        assert_eq!(&state(&work), then, "snapshot {}", snapshot.id);
    }
}

/// Most of a life is waiting for the disk, so many are lived at a time.
#[test]
fn every_snapshot_brings_back_what_was() {
    const AT_A_TIME: u32 = 20;
    let wanted = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok());
    let cases: u32 = wanted.unwrap_or(1000);
    let one = |cases| {
        let config =
            ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) };
        let told = TestRunner::new(config).run(&prop::collection::vec(act(), 1..60), |acts| {
            live(&acts);
            Ok(())
        });
        told.unwrap_or_else(|failure| panic!("{failure}"));
    };
    std::thread::scope(|scope| {
        for n in 0..AT_A_TIME {
            scope.spawn(move || one(cases / AT_A_TIME + u32::from(n < cases % AT_A_TIME)));
        }
    });
}
