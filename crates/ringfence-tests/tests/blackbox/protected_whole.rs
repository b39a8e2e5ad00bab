//! Protected directories around the tree that is written, and protected names that go with the directory they are in.

use crate::truth::why;
use ringfence_tests::{Person, Place, Tier, everybody, everywhere};
use std::fs;

#[test]
fn a_tree_in_a_protected_directory_is_read_only() {
    everywhere(|place| {
        let around = place.text("home");
        place.file("home/project/main.tf", "orig\n");
        place.link("outside/link", &around);
        let link = place.text("outside/link");
        let mut ways: Vec<Vec<&str>> = vec![
            vec!["--protect", &around],
            vec!["--protect", &link],
            vec!["--protect", "."],
            vec!["--protect", &around, "-w", "."],
            vec!["--protect", &around, "--strict"],
        ];
        if place.tier == Tier::Namespace {
            ways.push(vec!["--protect", &around, "--overlay=commit"]);
        }
        for options in ways {
            let ran = place.sh(&options, "echo evil > main.tf; echo n > new.tf; cat main.tf");
            ran.prints("orig").says("is read-only: option --protect");
            let text = fs::read_to_string(place.project("main.tf")).unwrap();
            assert_eq!(text, "orig\n", "{options:?}");
            assert!(!place.project("new.tf").exists(), "{options:?}");
            for (name, effect) in [("main.tf", "read-only inside"), ("new.tf", "cannot be made")] {
                let (allowed, said) = why(place, &options, &["write", name]);
                assert!(!allowed && said.contains(effect), "{options:?}: {said}");
            }
        }
    });
}

/// What was at some names, made anew.
fn begun(place: &Place) {
    for name in [".claude", "c", ".git", "g2"] {
        let path = place.project(name);
        let _ = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
    }
    place.file("home/project/.claude/settings.json", "{}");
    place.file("home/project/.claude/hooks/deep/x", "hook");
    place.file("home/project/.git/config", "[core]\n\tbare = false\n");
    place.file("home/project/.git/HEAD", "ref: refs/heads/main\n");
}

#[test]
fn what_goes_with_its_directory_is_put_back_where_no_mount_holds_it() {
    everybody(Tier::Process, |place| {
        for (script, kept) in [
            ("rm -r .claude", None),
            ("mv .claude c", None),
            ("rm -r .claude; ln -s /etc .claude", Some("1-.claude")),
            (
                "mv .claude c; ln -s c .claude; echo '{\"hooks\": 1}' > c/settings.json",
                Some("1-.claude"),
            ),
            ("rm -r .claude; echo x > .claude", Some("1-.claude")),
            ("mv .git g2", None),
            ("rm -r .git; echo 'gitdir: g2' > .git", Some("1-.git")),
        ] {
            begun(place);
            place.clock_moves_on();
            let ran = place.sh(&[], script);
            ran.ends(0).says("was removed inside and is protected: restored");
            for (name, text) in [
                (".claude/settings.json", "{}"),
                (".claude/hooks/deep/x", "hook"),
                (".git/config", "[core]\n\tbare = false\n"),
            ] {
                let now = fs::read_to_string(place.project(name)).unwrap_or_default();
                assert_eq!(now, text, "{script}: {name}");
                assert!(!place.project(name).parent().unwrap().is_symlink(), "{script}");
            }
            if let Some(kept) = kept {
                ran.says("was created inside and is protected: moved to").says(kept);
            }
        }
        // What git removes with its directory is not made again.
        if place.person == Person::Ordinary && place.has("git", "--version") {
            let make = "rm -rf .git && git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x \
                        && git worktree add -q wt";
            place.shell(&format!("cd {} && {{ {make}; }}", place.text("home/project"))).ends(0);
            place.clock_moves_on();
            let ran = place.sh(&[], "git worktree remove wt");
            ran.ends(0);
            assert!(!place.project(".git/worktrees/wt").exists(), "{ran:?}");
        }
    });
}
