//! Commits into a tree in which another program changes what names mean.

use crate::racing::{Racer, nowhere, untouched};
use crate::world::World;
use ringfence_session::overlay::{self, Select};
use std::fs;
use std::sync::atomic::Ordering;

/// What the layer changes, and what is on the way to it.
const NAMES: [&str; 7] = ["kept", "kept/a", "gone", "gone/deep", "anew", "made", "replaced"];

fn rounds() -> u64 {
    std::env::var("RINGFENCE_TEST_RACES").ok().and_then(|text| text.parse().ok()).unwrap_or(15)
}

#[test]
fn a_commit_into_a_tree_that_changes_meanwhile_stays_in_it_and_ends() {
    for round in 1..=rounds() {
        let world = World::new();
        let run = world.begin();
        world.change("kept/a", "new a");
        world.delete("gone");
        world.anew("anew");
        world.put("anew/both", "new both");
        world.anew("replaced");
        world.put("replaced/file", "x");
        world.put("made/file", &"made".repeat(50_000));
        world.link("link", "kept".as_ref());
        drop(run);
        let outside = world.top.join("outside");
        let (before, tree) = (untouched(&outside), world.real(""));
        let racer = Racer::new(&tree, &outside, &NAMES);
        std::thread::scope(|scope| {
            scope.spawn(|| racer.run(round));
            scope.spawn(|| racer.run(round + 1_000_000));
            racer.has_begun();
            // What stops it is said; then it is done again, as after a kill.
            for step in 0..20 {
                if !overlay::kept(&world.session()) {
                    break;
                }
                let _ = world.open().commit(&Select { paths: Vec::new(), force: step % 2 == 1 });
            }
            racer.stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(untouched(&outside), before, "round {round}");
        nowhere(&tree, "secret");
        // Nobody races any more: what is in the way is named, or all of it is done.
        if overlay::kept(&world.session()) {
            let done = world.open().commit(&Select { paths: Vec::new(), force: true });
            let said = done.map_or_else(|error| error.to_string(), |done| format!("{done:?}"));
            assert!(!said.is_empty());
        }
        assert_eq!(untouched(&outside), before, "round {round}");
        assert_eq!(fs::read(outside.join("secret")).unwrap(), b"secret");
    }
}
