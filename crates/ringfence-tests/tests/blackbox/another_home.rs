//! Root with another user's `HOME` (`sudo -E`): what ringfence keeps is not kept where that user puts links.

use ringfence_tests::{Finished, Person, Place, Running, everywhere, people};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Another user's home, whose state leads to what is root's.
struct Theirs {
    place: Place,
    kept: PathBuf,
}

/// What ringfence appends to or makes, and directories that it makes things in or clears.
const FILES: [&str; 3] = ["runs", "trusted", "listeners"];
const DIRECTORIES: [&str; 6] = ["copies", "quarantine", "sessions", "before", "learn", "homes"];

impl Theirs {
    fn new(place: &Place) -> Theirs {
        let kept = place.directory("outside/kept");
        let theirs = Place::new(Person::Ordinary, place.tier);
        for directory in DIRECTORIES {
            place.file(format!("outside/kept/{directory}/2147483647-work/file"), "a year's work");
        }
        for file in FILES {
            place.file(format!("outside/kept/{file}"), "");
        }
        lead(&theirs.directory("home/.local/state/ringfence"), &kept);
        Theirs { place: theirs, kept }
    }

    fn ringfence(&self, of: &Place, words: &[&str]) -> Finished {
        let mut command = of.command(ringfence_tests::binary());
        command.env("HOME", self.place.at("home")).args(words);
        Running::start(command).finish()
    }

    fn is_untouched(&self) {
        is_untouched(&self.kept);
    }
}

/// Puts links into a state.
fn lead(state: &Path, kept: &Path) {
    for name in DIRECTORIES.iter().chain(&FILES) {
        symlink(kept.join(name), state.join(name)).unwrap();
    }
}

fn is_untouched(kept: &Path) {
    for name in FILES {
        assert_eq!(fs::read_to_string(kept.join(name)).unwrap(), "", "{name}");
    }
    for name in DIRECTORIES {
        let inner = |path: &Path| -> Vec<_> {
            fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect()
        };
        assert_eq!(inner(&kept.join(name)), ["2147483647-work"], "{name}");
        assert_eq!(inner(&kept.join(name).join("2147483647-work")), ["file"], "{name}");
    }
}

const OTHERS: &str = "belongs to another user, and nothing of yours is kept there";

#[test]
fn what_lies_there_is_left_alone_and_runs_go_on_without_it() {
    everywhere(|place| {
        if place.person != Person::Root {
            return;
        }
        let theirs = Theirs::new(place);
        // Twice: a plan that is used again.
        for _ in 0..2 {
            let script = "echo > .envrc; sleep 0.1";
            let words = ["run", "--tier", place.tier_name(), "--", "sh", "-c", script];
            let run = theirs.ringfence(place, &words);
            run.ends(0).says("this session's record is not kept").says(OTHERS);
            let short = ["run", "--tier", place.tier_name(), "--", "true"];
            theirs.ringfence(place, &short).ends(0).says(OTHERS);
        }
        // Taken away all the same, and where it is now is said with the reason.
        let aside = fs::read_dir(place.project("")).unwrap().flatten();
        let names: Vec<_> = aside.map(|entry| entry.file_name().into_string().unwrap()).collect();
        assert!(!names.iter().any(|name| name == ".envrc"), "{names:?}");
        theirs.is_untouched();
    });
}

#[test]
fn what_is_about_kept_things_alone_is_refused() {
    if !people().contains(&Person::Root) {
        return;
    }
    everywhere(|place| {
        if place.person != Person::Root {
            return;
        }
        let theirs = Theirs::new(place);
        place.file("home/project/ringfence.toml", "extends = [\"default\"]\n");
        let named = ["run", "--tier", place.tier_name(), "--home", "x", "--", "true"];
        let layers = ["run", "--tier", place.tier_name(), "--overlay=keep", "--", "true"];
        let commands: [&[&str]; 6] = [
            &["trust", "ringfence.toml"],
            &["cp", "some:/tmp/d", "out"],
            &["exec", "some", "true"],
            &["snapshot", "create"],
            &named,
            &layers,
        ];
        let all = if place.tier_name() == "namespace" { 6 } else { 4 };
        for words in &commands[..all] {
            theirs.ringfence(place, words).ends(125).says(OTHERS).says("sudo -H");
        }
        theirs.is_untouched();
        // The control: the one whose it is may.
        let own = Place::new(Person::Ordinary, place.tier);
        own.file("home/project/ringfence.toml", "extends = [\"default\"]\n");
        own.ringfence(["trust", "ringfence.toml"]).ends(0);
    });
}

/// A compiled plan writes by itself, before anybody looks whose directory it is.
#[test]
fn a_state_that_somebody_else_has_by_now_is_not_used_by_a_plan_from_before() {
    everywhere(|place| {
        if place.person != Person::Root {
            return;
        }
        let kept = Theirs::new(place).kept;
        let state = place.at("home/.local/state/ringfence");
        for _ in 0..3 {
            place.run(&[], &["true"]).ends(0);
            place.clock_moves_on();
        }
        fs::rename(&state, place.at("home/.local/state/before")).unwrap();
        lead(&place.directory("home/.local/state/ringfence"), &kept);
        Person::Ordinary.owns(&state);
        place.run(&[], &["true"]).ends(0).says(OTHERS);
        is_untouched(&kept);
    });
}
