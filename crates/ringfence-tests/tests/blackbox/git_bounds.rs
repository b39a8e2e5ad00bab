//! Configurations of git's that are made to be too much for whoever judges them: they are taken away unread, and what is
//! beside them is judged all the same.

use ringfence_tests::{Finished, Place, Tier, everybody, everywhere};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

const PARTS: &str = "make() { mkdir -p $1/objects $1/refs $1/hooks; echo 'ref: refs/heads/m' > $1/HEAD; }; \
                     big() { head -c $1 /dev/zero | tr '\\0' $2; }; ";

/// What a run makes beside: hooks in repositories that are walked to later, and a file of its own.
const BESIDE: &str = "for at in z1 z2 z3; do make $at/.git; echo '[core]' > $at/.git/config; \
                      echo x > $at/.git/hooks/pre-commit; done; echo made > plain; true";

/// Makes something in a project that is empty, and looks at what is beside it in the end.
fn after(place: &Place, options: &[&str], act: &str) -> Finished {
    let run = made(place, options, act);
    for at in ["z1", "z2", "z3"] {
        assert!(place.project(at).join(".git/config").exists(), "the control: {}", run.err);
    }
    run
}

fn made(place: &Place, options: &[&str], act: &str) -> Finished {
    let run = place.sh(options, &format!("{PARTS} {act}; {BESIDE}"));
    for at in ["z1", "z2", "z3"] {
        assert!(!place.project(at).join(".git/hooks/pre-commit").exists(), "{act}: {}", run.err);
    }
    let plain = fs::read_to_string(place.project("plain")).unwrap_or_default();
    assert_eq!(plain, "made\n", "{act}: all that was made beside stays: {}", run.err);
    run
}

/// A directory with a configuration of this text.
fn config(directory: &str, text: &str) -> String {
    format!("make {directory}; {{ {text}; }} > {directory}/config")
}

fn tidy(place: &Place) {
    place.shell("rm -rf .git [a-z]* .ringfence*").ends(0);
    place.clock_moves_on();
}

#[test]
fn a_configuration_beyond_a_bound_is_taken_away() {
    // 75,000 bytes were 320 million, when each setting had a copy of its section's name.
    let section = "printf '[x \"'; big 65536 A; echo '\"]'; big 5000 a | fold -w 1";
    let settings = "echo '[x]'; big 200000 a | fold -w 1";
    let large = "big 5000000 '#'";
    everywhere(|place| {
        for at in [".git", "sub/.git", "bare"] {
            for (text, said) in [
                (section, "has a section whose name is longer than 4096 bytes: git could run"),
                (settings, "has more than 100000 settings: git could run anything by it"),
                (large, "has more than 4 MiB: git could run anything by it"),
            ] {
                let run = after(place, &[], &config(at, text));
                run.ends(0).says(said);
                assert!(!place.project(at).join("config").exists(), "{at} {said}: {}", run.err);
                tidy(place);
            }
            // The control: a long name of a section, many settings, and many bytes.
            let text = "printf '[x \"'; big 4000 A; echo '\"]'; big 90000 a | fold -w 1; echo; big 1000000 '#'";
            let run = after(place, &[], &config(at, text));
            assert!(place.project(at).join("config").exists(), "{at}: {}", run.err);
            tidy(place);
        }
    });
}

#[test]
fn a_worktree_that_git_cannot_use_is_none() {
    everywhere(|place| {
        // As git has it, for what is three levels down.
        let worktree = |parts: u32, lines: u32| {
            let way = format!("printf '\\tworktree = ../../../'; yes a/ | head -n {parts}");
            let more = format!("yes 'worktree = ../../../m' | head -n {lines}");
            let text = format!("echo '[core]'; {way} | tr -d '\\n'; echo; {more}");
            config("sub/.git/modules/m", &text)
        };
        for (parts, lines, stays) in
            [(20, 0, true), (20, 7, true), (20, 8, false), (1000, 0, false), (20_000, 0, false)]
        {
            let run = after(place, &[], &worktree(parts, lines));
            let there = place.project("sub/.git/modules/m/config").exists();
            assert_eq!(there, stays, "{parts} {lines}: {}", run.err);
            tidy(place);
        }
    });
}

#[test]
fn one_file_under_many_names_is_not_read_for_each() {
    const NAMES: usize = 40;
    let act = format!(
        "make a1/.git; big 4000000 '#' > a1/.git/config; for n in $(seq 2 {NAMES}); do make a$n/.git; \
         ln a1/.git/config a$n/.git/config; done"
    );
    everywhere(|place| {
        // What comes when all is used up is taken as well, however small it is.
        let run = made(place, &[], &act);
        run.ends(0)
            .says("is of more than 64 MiB of git's configuration: git could run anything by it");
        let all = (1..=NAMES).map(|n| place.project(format!("a{n}/.git/config")));
        let left: Vec<PathBuf> = all.filter(|path| path.exists()).collect();
        // So much is read of each, and so often; those that are read are harmless.
        assert!((1..=16).contains(&left.len()), "{left:?}: {}", run.err);
        for path in left {
            assert_eq!(path.metadata().unwrap().nlink(), 1, "{}", path.display());
        }
    });
}

#[test]
fn what_is_beyond_a_bound_is_not_committed() {
    everybody(Tier::Namespace, |place| {
        let section = "printf '[x \"'; big 65536 A; echo '\"]'; big 5000 a | fold -w 1";
        let worktree = "echo '[core]'; { printf '\\tworktree = ../../../'; yes a/ | head -n 20000; } | tr -d '\\n'";
        for (at, text, said) in [
            ("sub/.git", section, "and it has a section whose name is longer than 4096 bytes"),
            ("sub/.git/modules/m", worktree, "is a protected name"),
            ("bare", section, "and it has a section whose name is longer than 4096 bytes"),
            ("sub/.git", "big 5000000 '#'", "and it has more than 4 MiB"),
        ] {
            let run = after(place, &["--overlay=commit"], &config(at, text));
            run.says(said);
            assert!(!place.project(at).join("config").exists(), "{at} {said}: {}", run.err);
            tidy(place);
        }
        // The control; more than a megabyte.
        let run = after(place, &["--overlay=commit"], &config("sub/.git", "big 2000000 '#'"));
        assert!(place.project("sub/.git/config").exists(), "{}", run.err);
    });
}

#[test]
fn the_users_own_beyond_a_bound_is_a_refusal() {
    everywhere(|place| {
        place.shell(&format!("{PARTS} make .git")).ends(0);
        let control = "[core]\n\tbare = false\n".to_owned();
        let section = format!("[x \"{}\"]\n", "A".repeat(65_536));
        let settings = "[x]\n".to_owned() + &"a\n".repeat(200_000);
        for (text, said) in [
            (&control, None),
            (&section, Some("has a section whose name is longer than 4096 bytes: what git's")),
            (&settings, Some("has more than 100000 settings: what git's configuration names")),
        ] {
            place.file("home/project/.git/config", text);
            place.clock_moves_on();
            let run = place.sh(&[], "echo ran > plain");
            let ran = place.project("plain").exists();
            assert_eq!(ran, said.is_none(), "{}", run.err);
            if let Some(said) = said {
                run.ends(125).says(said).says("--allow-degraded protect");
            }
            let _ = fs::remove_file(place.project("plain"));
        }
    });
}
