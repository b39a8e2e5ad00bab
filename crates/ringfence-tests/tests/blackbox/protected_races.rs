//! Another sandbox in the same tree changes what names mean while the end of a run puts things right:
//! what is moved away, kept and put back is what stood in the tree, and nothing that a link leads to.

use ringfence_tests::{Place, Tier, everybody, everywhere};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs in which the two meet; without care, one in ten of them did harm.
const ROUNDS: usize = 30;

/// While `command` runs in a project where `prepare` was run (scripts), a directory there changes
/// places with a link to `outside` all the time. Nothing comes of it there, nor from there.
fn exchanged(place: &Place, at: &str, prepare: &str, command: &str) {
    let (link, name) = (place.project("link"), place.project(at));
    let clear = |path: &Path| {
        let _ = fs::remove_file(path);
        let _ = fs::remove_dir_all(path);
    };
    let outside = || {
        let entries = fs::read_dir(place.at("outside")).unwrap().flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
        names.sort();
        names
    };
    let before = outside();
    place.shell(prepare).ends(0);
    place.sh(&[], command).ends(0).says("is protected: moved to");
    for round in 0..ROUNDS {
        clear(&link);
        clear(&name);
        place.shell(prepare).ends(0);
        symlink(place.at("outside"), &link).unwrap();
        place.person.owns(&link);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let _ = renameat_with(CWD, &link, CWD, &name, RenameFlags::EXCHANGE);
                }
            });
            // What the command comes to does not matter, nor whether it starts.
            place.sh(&[], command);
            stop.store(true, Ordering::Relaxed);
        });
        let which = format!("{at}, round {round}, {:?} {:?}", place.person, place.tier);
        assert_eq!(outside(), before, "{which}");
        let leaked = [&link, &name].map(|path| path.join("secret")).into_iter().any(|path| {
            fs::canonicalize(path).is_ok_and(|real| {
                real.starts_with(place.at("home")) && fs::read(real).unwrap() == b"a secret\n"
            })
        });
        assert!(!leaked, "{which}");
    }
}

#[test]
fn hooks_that_change_places_with_a_link_lead_nowhere() {
    everywhere(|place| {
        if !place.has("git", "--version") {
            return;
        }
        place.file("outside/authorized_keys", "a key\n");
        exchanged(
            place,
            ".git/hooks",
            "git init -q . && rm -rf .git/hooks new",
            "mkdir new && for name in 1 2 3 4 5 6 authorized_keys secret; do echo x >new/$name; done; \
             mv new .git/hooks",
        );
    });
}

/// What is put back is what was there, and it is put where it was.
#[test]
fn what_is_put_back_comes_from_the_tree_and_stays_in_it() {
    everybody(Tier::Process, |place| {
        exchanged(
            place,
            ".husky",
            "rm -rf .husky; mkdir .husky && for name in 1 2 3 4 5 6; do echo x >.husky/$name; done",
            "echo y >.husky/1; rm -f .husky/2 .husky/3; true",
        );
    });
}
