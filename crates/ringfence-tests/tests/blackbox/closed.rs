//! Directories that a run closed to its own user: what is denied or protected in them stays so in the next run,
//! which cannot look into them.

use ringfence_tests::{Person, Place, Tier, everybody, everywhere};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// Opens a directory of the project again.
fn open(place: &Place, name: &str) {
    fs::set_permissions(place.project(name), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn what_is_denied_in_a_directory_that_a_run_closed_stays_denied() {
    everybody(Tier::Namespace, |place| {
        place.file("home/project/keys/k.pem", "TOPSECRET");
        place.file("home/project/keys/free", "free");
        for (rule, modes) in [
            ("keys/k.pem", ["0400", "0200", "0"].as_slice()),
            ("keys/*.pem", ["0300", "0100", "0"].as_slice()),
            ("*/k.pem", ["0400", "0"].as_slice()),
        ] {
            for mode in modes {
                let deny = ["--deny", rule];
                place.sh(&deny, &format!("chmod {mode} keys")).ends(0);
                let next = place.sh(&deny, "chmod 0755 keys; cat keys/k.pem keys/free");
                let what = format!("{rule} {mode}: {}{}", next.text(), next.err);
                assert!(!next.text().contains("TOPSECRET"), "{what}");
                if place.person == Person::Ordinary {
                    next.ends(125).says("is closed to yourself").says("chmod u+rwx");
                }
                // The control: opened again, it is a rule like any other.
                open(place, "keys");
                let open = place.sh(&deny, "cat keys/k.pem; cat keys/free");
                assert_eq!(open.ends(0).text(), "free", "{what}");
            }
        }
    });
}

#[test]
fn what_is_protected_in_a_directory_that_a_run_closed_stays_protected() {
    everybody(Tier::Namespace, |place| {
        place.file("home/project/ci/w.yml", "host's");
        for (rule, mode) in [("ci/w.yml", "0400"), ("ci/*", "0300")] {
            let protect = ["--protect", rule];
            place.sh(&protect, &format!("chmod {mode} ci")).ends(0);
            let next = place.sh(&protect, "chmod 0755 ci; echo evil > ci/w.yml; true");
            open(place, "ci");
            let text = fs::read_to_string(place.project("ci/w.yml")).unwrap();
            assert_eq!(text, "host's", "{rule}: {}", next.err);
            // The control: what the rule does not name.
            place.sh(&protect, "mkdir -p more && echo made > more/file").ends(0);
            assert!(place.project("more/file").exists());
        }
    });
}

#[test]
fn what_was_absent_when_a_plan_was_kept_is_looked_for_again() {
    everybody(Tier::Namespace, |place| {
        let deny = ["--deny", "a/keys/k"];
        place.directory("home/project/a");
        for _ in 0..3 {
            place.clock_moves_on();
            place.sh(&deny, "true").ends(0);
        }
        // With another key than that plan: this one does not know that it is there.
        place.file("home/project/a/keys/k", "TOPSECRET");
        place.sh(&["--deny", "a/keys/k", "-e", "X=1"], "chmod 0400 a").ends(0);
        let next = place.sh(&deny, "chmod 0755 a; cat a/keys/k");
        assert!(!next.text().contains("TOPSECRET"), "{}{}", next.text(), next.err);
        open(place, "a");
    });
}

#[test]
fn directories_of_others_that_are_closed_are_no_reason_to_refuse() {
    everybody(Tier::Namespace, |place| {
        if place.person == Person::Root || ringfence_tests::people().len() < 2 {
            return;
        }
        // Root's, in the project: nobody inside can open it.
        let theirs = place.project("theirs");
        fs::create_dir(&theirs).unwrap();
        fs::write(theirs.join("k"), "theirs").unwrap();
        fs::set_permissions(&theirs, fs::Permissions::from_mode(0o700)).unwrap();
        for rule in ["theirs/k", "theirs/*"] {
            for option in ["--deny", "--protect"] {
                let run = place.sh(&[option, rule], "chmod 0755 theirs; cat theirs/k; echo ran");
                assert_eq!(run.text(), "ran", "{option} {rule}: {}", run.err);
            }
        }
    });
}

/// A checkout that another user has made, as containers and continuous integration have it.
#[test]
fn root_is_told_of_a_tree_that_it_may_not_write_inside() {
    everywhere(|place| {
        if place.person != Person::Root {
            return;
        }
        let project = place.at("home/project");
        let give =
            |owner: u32| std::os::unix::fs::chown(&project, Some(owner), Some(owner)).unwrap();
        // The control, before and after: it is root's.
        let quiet = |name: &str| {
            let run = place.run(&[], &["touch", name]);
            assert!(!run.ends(0).err.contains("may write no more there"), "{}", run.err);
        };
        quiet("own");
        give(1);
        for _ in 0..2 {
            let run = place.run(&[], &["touch", "new"]);
            run.ends(1).says("is user 1's, and root inside may write no more there");
            assert!(!place.project("new").exists());
        }
        give(0);
        quiet("new");
    });
}
