//! Where few files can be opened: what was made at protected names is found all the same, or nothing runs, or it is said
//! that it was not.

use ringfence_tests::{Person, Place, Tier, everywhere};
use std::fs;

/// Below a repository that is nested, they are looked for by a walk when the command has ended.
#[test]
fn with_few_descriptors_protected_names_are_looked_after_or_nothing_runs() {
    everywhere(|place| {
        place.shell("git init -q sub").ends(0);
        let made = "echo evil > .envrc; echo evil > sub/.envrc";
        let (mut worked, mut refused) = (0, 0);
        for limit in (8..26).chain((26..64).step_by(4)).chain([64, 256]) {
            let ended = place.shell(&format!("ulimit -n {limit}; $RF -- sh -c '{made}'"));
            match ended.code {
                0 => {
                    worked += 1;
                    assert_eq!(ended.err.matches("moved to").count(), 2, "{limit}: {}", ended.err);
                }
                _ => {
                    refused += 1;
                    ended.ends(125).says("raise the limit of open files");
                }
            }
            for name in [".envrc", "sub/.envrc"] {
                assert!(!place.at(format!("home/project/{name}")).exists(), "{limit}: {name}");
            }
        }
        assert!(worked > 1 && refused > 1, "{worked} {refused}");
        // What the hard limit lets it have, a launcher takes; its command has the caller's.
        let ended = place.shell(&format!("ulimit -Sn 12; $RF -- sh -c 'ulimit -n; {made}'"));
        assert_eq!(
            (ended.code, ended.text(), ended.err.matches("moved to").count()),
            (0, "12".to_owned(), 2),
            "{}",
            ended.err
        );
        place.shell("ulimit -n 8; ${RF%% run*} learn -- true").ends(125).says("too few files");
    });
}

/// The limit is taken from a launcher that has begun: what it cannot look at, it does not say to be elsewhere or unreadable,
/// and that is no end of the command's own.
#[test]
fn want_of_descriptors_in_the_end_is_said() {
    for person in [Person::Ordinary, Person::Root] {
        let place = &Place::new(person, Tier::Namespace);
        if !place.has("prlimit", "--version") {
            return;
        }
        place.shell("git init -q sub; mkfifo go").ends(0);
        let script = "echo begun; read x < go; echo evil > .envrc; echo evil > sub/.envrc";
        // The control: as many as there were.
        for (limit, code) in [("4096", 0), ("5", 125)] {
            let mut running = place.start(&[], &["sh", "-c", script]);
            running.printed("begun");
            let pid = running.pid().to_string();
            place.shell(&format!("prlimit --pid {pid} --nofile={limit}")).ends(0);
            fs::write(place.project("go"), "x\n").unwrap();
            let ended = running.finish();
            ended.ends(code);
            let told = ended.err.contains("no more files could be opened");
            assert_eq!(told, code == 125, "{}", ended.err);
            let wrong = ["was renamed", "cannot be read"];
            assert!(!wrong.iter().any(|wrong| ended.err.contains(wrong)), "{}", ended.err);
            place.shell("rm -f .envrc sub/.envrc").ends(0);
        }
    }
}
