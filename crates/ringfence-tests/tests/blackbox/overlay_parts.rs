//! Commits of some paths, one after the other: what they leave is what was there, and their own writes are not the host's.

use ringfence_tests::{Place, Tier, everybody};
use std::fs;
use std::os::unix::fs::PermissionsExt;

fn kept(place: &Place, script: &str) {
    place.clock_moves_on();
    place.sh(&["--overlay=keep"], script).ends(0);
}

fn commit(place: &Place, paths: &[&str]) {
    place.ringfence([&["overlay", "commit", "latest"], paths].concat()).ends(0);
}

#[test]
fn the_change_of_a_directory_waits_when_a_file_in_it_is_committed() {
    everybody(Tier::Namespace, |place| {
        place.file("home/project/d/x", "x\n");
        fs::set_permissions(place.project("d"), fs::Permissions::from_mode(0o755)).unwrap();
        kept(place, "chmod 700 d; echo n > d/new");
        commit(place, &["d/new"]);
        let mode = || fs::metadata(place.project("d")).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(), 0o755);
        let waits = place.ringfence(["overlay", "diff", "latest", "--summary"]).quiet();
        assert!(waits.starts_with("P ") && waits.ends_with("/d/"), "{waits}");
        commit(place, &[]);
        assert_eq!((mode(), place.project("d/new").exists()), (0o700, true));
        // With the last one, nothing waits any more.
        kept(place, "echo 1 > d/one; echo 2 > d/two");
        commit(place, &["d/one"]);
        commit(place, &["d/two"]);
        place.ringfence(["overlay", "diff", "latest"]).ends(125).says("keeps no changes apart");
    });
}

#[test]
fn what_a_commit_wrote_is_no_conflict_for_the_next_one() {
    everybody(Tier::Namespace, |place| {
        for (name, text) in [("e/x", "1\n"), ("e/y", "2\n"), ("old", "keep\n"), ("other", "z\n")] {
            place.file(format!("home/project/{name}"), text);
        }
        kept(place, "rm -r e");
        commit(place, &["e/x"]);
        commit(place, &[]);
        assert!(!place.project("e").exists());
        kept(place, "mv old new; echo more >> new; echo q > other");
        commit(place, &["other"]);
        commit(place, &["old"]);
        commit(place, &[]);
        assert_eq!(fs::read_to_string(place.project("new")).unwrap(), "keep\nmore\n");
        // The control: what the host does between two of them is.
        for name in ["f/x", "f/y"] {
            place.file(format!("home/project/{name}"), "1\n");
        }
        kept(place, "rm -r f");
        commit(place, &["f/x"]);
        place.file("home/project/f/z", "host's\n");
        let refused = place.ringfence(["overlay", "commit", "latest"]);
        refused.ends(1).says("conflict").says("f/z");
        assert!(place.project("f/y").exists());
        place.ringfence(["overlay", "discard", "latest"]).ends(0);
        // And what it did before the first.
        place.file("home/project/g/x", "1\n");
        kept(place, "rm -r g");
        place.file("home/project/g/z", "host's\n");
        commit(place, &["g/x"]);
        place.ringfence(["overlay", "commit", "latest"]).ends(1).says("conflict").says("g/z");
        place.ringfence(["overlay", "discard", "latest"]).ends(0);
    });
}

#[test]
fn what_the_host_made_of_a_file_is_not_said_to_be_deleted_inside() {
    everybody(Tier::Namespace, |place| {
        for name in ["changed", "gone"] {
            place.file(format!("home/project/{name}"), "old\n");
        }
        kept(place, "echo more >> changed; rm gone; echo new > made; ln -s x link");
        for name in ["changed", "gone", "made"] {
            let _ = fs::remove_file(place.project(name));
            place.file(format!("home/project/{name}/host"), "host's\n");
        }
        let refused = place.ringfence(["overlay", "commit", "latest"]);
        refused.ends(1).says("changed: the host changed it meanwhile");
        refused.says("made: the host changed it meanwhile");
        // The control: this one was.
        refused.says("gone: deleted inside, and the host changed it meanwhile");
        for name in ["changed", "made"] {
            let wrong = refused
                .err
                .lines()
                .find(|line| line.contains(&format!("/{name}")) && line.contains("deleted inside"));
            assert_eq!(wrong, None, "{}", refused.err);
        }
        assert!(place.project("changed/host").exists() && !place.project("link").is_symlink());
        // By force they make way.
        place.ringfence(["overlay", "commit", "latest", "--force"]).ends(0);
        assert_eq!(fs::read_to_string(place.project("changed")).unwrap(), "old\nmore\n");
        assert_eq!(fs::read_to_string(place.project("made")).unwrap(), "new\n");
    });
}
