//! `ringfence profile new`, and configurations of a profile.

use ringfence_tests::{Person, Place, Terminal, Tier, everybody, left_out};
use std::fs;

/// Reads settings and data of its own, and says what it found.
const PROGRAM: &str = "#!/bin/sh\ncat ~/.config/viewer/settings ~/.viewer-data/a && echo x > ~/.viewer-data/b && echo shown\n";

fn viewer(place: &Place) {
    place.script("viewer", PROGRAM);
    place.file("home/.config/viewer/settings", "settings\n");
    place.file("home/.viewer-data/a", "data\n");
}

#[test]
fn a_profile_is_drafted_learnt_and_enough() {
    everybody(Tier::Namespace, |place| {
        viewer(place);
        let own = place.at("home/.config/ringfence/profiles/viewer.toml");
        place.run(&[], &["./viewer"]).ends(1);
        // Shown, and written nowhere: nobody could be asked.
        let made = place.ringfence(["profile", "new", "./viewer"]);
        made.ends(0).says("not written").prints("\"~/.config/viewer?\", # once, by cat");
        assert!(!own.exists() && !place.at("home/.viewer-data/b").exists());
        place.ringfence(["profile", "new", "--save", "./viewer"]).ends(0).says("run -p viewer");
        place.run(&["-p", "viewer"], &["./viewer"]).ends(0).prints("settings\ndata\nshown");
        assert!(place.at("home/.viewer-data/b").exists());
        place.ringfence(["learn", "-p", "viewer", "--", "./viewer"]).says("nothing to propose");
        // One that is there is not overwritten.
        let before = fs::read(&own).unwrap();
        place.ringfence(["profile", "new", "--save", "./viewer"]).ends(125).says("--merge");
        assert_eq!(fs::read(&own).unwrap(), before);
        place.ringfence(["profile", "new", "no-such-program"]).ends(127).says("not found");
        place.ringfence(["profile", "new", "--name", "../x", "true"]).ends(125).says("--name");
    });
}

#[test]
fn nothing_is_run_where_that_is_not_wanted() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    let ran = place.text("home/project/ran");
    place.script("tool", &format!("#!/bin/sh\ntouch {ran}; echo ran\n"));
    let made = place.ringfence(["profile", "new", "--no-run", "-o", "t.toml", "./tool"]);
    assert!(!made.ends(0).text().lines().any(|line| line == "ran"), "{}", made.text());
    assert!(fs::read_to_string(place.project("t.toml")).unwrap().contains("libs = \"exact\""));
    // The control: it is run when it may be, and even then where nothing stays.
    let made = place.ringfence(["profile", "new", "-o", "u.toml", "./tool"]);
    assert!(made.ends(0).text().lines().any(|line| line == "ran"), "{}", made.text());
    assert!(!place.project("ran").exists());
}

#[test]
fn what_its_files_say_becomes_features() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    if place.shell("command -v xterm").code != 0 {
        return left_out("a program with windows", "xterm is not installed");
    }
    let made = place.ringfence(["profile", "new", "--no-run", "xterm"]);
    made.ends(0).prints("extends = [\"program\"]").prints("    \"display\", # ");
    made.prints("libX11.so");
    let plain = place.ringfence(["profile", "new", "--no-run", "cat"]);
    assert!(!plain.ends(0).text().contains("features"), "{}", plain.text());
}

#[test]
fn the_user_reviews_before_it_is_written() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    viewer(place);
    let own = place.at("home/.config/ringfence/profiles/viewer.toml");
    let mut terminal = Terminal::shell(place);
    let command = format!("{} profile new ./viewer", ringfence_tests::binary().display());
    for (answer, written) in [("", false), ("n", false), ("y", true)] {
        terminal.line(&command);
        let shown = terminal.shows("viewer.toml? [y/N]");
        assert!(shown.contains("~/.config/viewer?"), "{shown}");
        terminal.line(answer).code(0);
        assert_eq!(own.exists(), written, "{answer:?}");
    }
    terminal.leave();
}

const CONFIGURED: &str = "extends = [\"default\"]\ndescription = \"mine\"\n\n[filesystem]\nread = [\"~/shared?\"]\n\n\
[configuration.work]\ndescription = \"for work\"\nhome = \"work\"\n[configuration.work.filesystem]\nread = [\"~/work?\"]\n\
[configuration.bare.filesystem]\nread = []\n";

#[test]
fn configurations_vary_a_profile() {
    everybody(Tier::Namespace, |place| {
        place.file("home/.config/ringfence/profiles/mine.toml", CONFIGURED);
        place.file("home/shared/a", "shared\n");
        place.file("home/work/a", "work\n");
        let reads = |profile: &str, name: &str| {
            place.sh(&["-p", profile], &format!("cat ~/{name}/a")).text()
        };
        assert_eq!((reads("mine", "shared"), reads("mine", "work")), ("shared".into(), "".into()));
        assert_eq!(
            (reads("mine:work", "shared"), reads("mine:work", "work")),
            ("shared".into(), "work".into())
        );
        assert_eq!(reads("mine:bare", "shared"), "");
        // A single value counts in place of the profile's.
        place.sh(&["-p", "mine:work"], "echo kept > ~/note").ends(0);
        assert_eq!(place.sh(&["-p", "mine:work"], "cat ~/note").well(), "kept");
        place.sh(&["-p", "mine"], "cat ~/note").ends(1);
        // Decisions name it.
        let work = place.text("home/work/a");
        let why = place.ringfence(["why", "-p", "mine:work", "--", "read", &work]);
        why.ends(0).prints("profile mine:work");
        place.ringfence(["profile", "list"]).ends(0).prints("mine:work").prints("for work");
        place.ringfence(["profile", "check", "mine:work", "mine"]).ends(0);
        place.ringfence(["profile", "diff", "mine", "mine:work"]).ends(1).prints("+ home = work");
        place.run(&["-p", "mine:wrok"], &["true"]).ends(125).says("mine:work");
        place.run(&["-p", "less:x"], &["true"]).ends(125).says("less:x");
    });
}

#[test]
fn configurations_in_a_file_hold_what_a_profile_holds_and_no_more() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    place.file("home/project/p.toml", CONFIGURED);
    place.file("home/work/a", "work\n");
    assert_eq!(place.sh(&["-p", "./p.toml:work"], "cat ~/work/a").well(), "work");
    for (text, said) in [
        ("[configuration.x]\nextends = [\"git\"]\n", "whole profile"),
        ("[configuration.x]\nprograms = [\"git\"]\n", "whole profile"),
        ("[configuration.\"a b\"]\nhome = \"x\"\n", "no name of a configuration"),
        ("[configuration.x.filesystem]\nraed = []\n", "the nearest is `read`"),
        ("[configuration.x.configuration.y]\nhome = \"x\"\n", "no key `configuration`"),
        ("configuration = 7\n", "configuration"),
        // Hooks run outside: not in a file, whichever part of it.
        ("[configuration.x.hooks]\nbefore = [\"true\"]\n", "hooks run outside"),
    ] {
        place.file("home/project/wrong.toml", text);
        place.run(&["-p", "./wrong.toml:x"], &["true"]).ends(125).says(said);
    }
}

#[test]
fn kept_homes_are_kept_unless_writes_are_apart() {
    everybody(Tier::Namespace, |place| {
        place.sh(&["--home", "kept"], "echo first > ~/note").ends(0);
        let note = place.at("home/.local/state/ringfence/homes/kept/note");
        assert_eq!(fs::read_to_string(&note).unwrap(), "first\n");
        // By no path: neither as the home, nor where it is on the host.
        let there = note.display();
        let script = format!("echo second > ~/note; echo third > {there}; cat ~/note");
        place.sh(&["--home", "kept", "--overlay=discard"], &script).prints("second");
        assert_eq!(fs::read_to_string(&note).unwrap(), "first\n");
        // Two at once see the same home.
        let mut one =
            place.start(&["--home", "kept"], &["sh", "-c", "echo here; read x; cat ~/note"]);
        one.printed("here");
        place.sh(&["--home", "kept"], "echo other > ~/note").ends(0);
        drop(one);
        assert_eq!(fs::read_to_string(&note).unwrap(), "other\n");
    });
}
