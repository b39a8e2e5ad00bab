//! Snapshots and reverts of a tree in which another program changes what names mean.

use crate::racing::{Racer, nowhere, untouched};
use crate::store::{Place, create};
use ringfence_session::snapshot::{Kind, New, Select};
use std::sync::atomic::Ordering;

const NAMES: [&str; 6] = ["d", "d/1", "d/2", "deep/e/f", "deep/e", "deep"];

fn rounds() -> u64 {
    std::env::var("RINGFENCE_TEST_RACES").ok().and_then(|text| text.parse().ok()).unwrap_or(15)
}

#[test]
fn a_tree_that_changes_meanwhile_is_kept_and_reverted_within_itself() {
    for round in 1..=rounds() {
        let place = Place::new();
        let outside = place.top.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("secret"), "the host's secret").unwrap();
        for name in ["d/1", "d/2", "d/3", "deep/e/f", "deep/g"] {
            place.write(name, "inside ".repeat(30_000));
        }
        let mut store = place.open();
        let base = create(&mut store);
        let (before, tree) = (untouched(&outside), place.work());
        let racer = Racer::new(&tree, &outside, &NAMES);
        std::thread::scope(|scope| {
            scope.spawn(|| racer.run(round));
            scope.spawn(|| racer.run(round + 1_000_000));
            racer.has_begun();
            for _ in 0..5 {
                // It may fail, for things change: it may not do harm, nor stop.
                let _ = store.create(&New::default());
                let _ = store.revert(&base, &Select::default());
                let _ = store.resume();
            }
            racer.stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(untouched(&outside), before, "round {round}");
        nowhere(&tree, "secret");
        for snapshot in store.list().unwrap() {
            for (path, entry) in store.entries(&snapshot).unwrap() {
                let read = (entry.kind == Kind::File).then(|| store.read(&entry, 1 << 20).unwrap());
                let bytes = read.flatten().unwrap_or_default();
                assert!(!bytes.windows(6).any(|part| part == b"secret"), "{}", path.display());
            }
        }
        // When nobody races any more, it is what it was.
        let _ = store.resume();
        store.revert(&base, &Select::default()).unwrap();
        assert_eq!(place.read("deep/e/f"), "inside ".repeat(30_000).as_bytes());
        assert_eq!(untouched(&outside), before, "round {round}");
    }
}
