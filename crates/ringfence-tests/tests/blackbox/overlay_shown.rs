//! What is shown of changes that wait, and what becomes of a commit that was interrupted.

use ringfence_tests::{Place, Running, Tier, everybody};
use serde_json::Value;
use std::fs;

/// Waiting changes of four files, of which a commit of two is killed before the first of them is in place.
fn interrupted(place: &Place, paths: &[&str]) {
    for name in ["one", "two", "precious"] {
        place.file(format!("home/project/{name}"), "old\n");
    }
    place.clock_moves_on();
    let script = "echo new > one; echo new > two; rm precious; echo bad > unwanted";
    place.sh(&["--overlay=keep"], script).ends(0);
    let mut commit = place.command(ringfence_tests::binary());
    commit.env("RINGFENCE_FAULT", "rename").args(["overlay", "commit", "latest"]).args(paths);
    Running::start(commit).finish().ends(137);
    let shown = place.ringfence(["overlay", "diff", "latest", "--json"]);
    let shown: Value = serde_json::from_str(&shown.well()).unwrap();
    assert_eq!(shown["interrupted"], true, "{shown}");
}

fn read(place: &Place, name: &str) -> String {
    fs::read_to_string(place.project(name)).unwrap_or_else(|error| error.kind().to_string())
}

/// What a commit has under its own name in the project.
fn half_done(place: &Place) -> usize {
    let names = fs::read_dir(place.project("")).unwrap().flatten().map(|entry| entry.file_name());
    names.filter(|name| name.to_string_lossy().starts_with(".ringfence")).count()
}

/// A file system gives the number of a file that was replaced to the next one that is made.
#[test]
fn a_commit_that_is_killed_anywhere_is_finished_by_the_next_one() {
    const FILES: [&str; 4] = ["f1", "f2", "f3", "f4"];
    everybody(Tier::Namespace, |place| {
        for point in ["make", "write", "rename", "remove", "aside"] {
            for time in 1..=3 {
                FILES
                    .iter()
                    .for_each(|name| drop(place.file(format!("home/project/{name}"), "old\n")));
                place.file("home/project/gone1", "old\n");
                place.file("home/project/gone2", "old\n");
                place.clock_moves_on();
                let script =
                    "for file in f1 f2 f3 f4; do echo new $file > $file; done; rm gone1 gone2";
                place.sh(&["--overlay=keep"], script).ends(0);
                let mut commit = place.command(ringfence_tests::binary());
                let fault = format!("{point}:{time}");
                commit.env("RINGFENCE_FAULT", &fault).args(["overlay", "commit", "latest"]);
                let killed = Running::start(commit).finish();
                let removes = ["remove", "aside"].contains(&point);
                assert_eq!(killed.code, if removes && time > 2 { 0 } else { 137 }, "{fault}");
                if killed.code != 0 {
                    place.ringfence(["overlay", "commit", "latest"]).ends(0);
                }
                for name in FILES {
                    assert_eq!(read(place, name), format!("new {name}\n"), "{fault}");
                }
                assert!(!place.project("gone1").exists() && !place.project("gone2").exists());
                assert_eq!(half_done(place), 0, "{fault}");
            }
        }
    });
}

#[test]
fn what_an_interrupted_commit_left_out_waits_for_a_word_of_its_own() {
    everybody(Tier::Namespace, |place| {
        interrupted(place, &["one", "two"]);
        let finished = place.ringfence(["overlay", "commit", "latest"]);
        finished.ends(0).says("was finished").says("2 changes that it left out still wait");
        assert_eq!((read(place, "one"), read(place, "two")), ("new\n".into(), "new\n".into()));
        assert_eq!(read(place, "precious"), "old\n");
        assert!(!place.project("unwanted").exists());
        // The control: now it is asked for.
        place.ringfence(["overlay", "commit", "latest"]).ends(0).says("committed 2 changes");
        assert!(!place.project("precious").exists() && place.project("unwanted").exists());
        assert_eq!(half_done(place), 0);
    });
}

#[test]
fn an_interrupted_commit_is_finished_by_the_same_words() {
    everybody(Tier::Namespace, |place| {
        interrupted(place, &["one", "two"]);
        let finished = place.ringfence(["overlay", "commit", "latest", "one", "two"]);
        assert!(!finished.ends(0).says("was finished").err.contains("committed 0"));
        assert_eq!((read(place, "one"), read(place, "two")), ("new\n".into(), "new\n".into()));
        assert_eq!(read(place, "precious"), "old\n");
        // What it was not asked for is named as ever, and what was is no change any more.
        place.ringfence(["overlay", "commit", "latest", "one"]).ends(125).says("was not changed");
        place.ringfence(["overlay", "commit", "latest", "precious"]).ends(0);
        assert!(!place.project("precious").exists());
        place.ringfence(["overlay", "discard", "latest"]).ends(0);
        // All of it, and nothing is said to be done of which nothing was.
        interrupted(place, &[]);
        let finished = place.ringfence(["overlay", "commit", "latest"]);
        assert!(!finished.ends(0).says("was finished").err.contains("committed"));
        assert_eq!((read(place, "one"), read(place, "unwanted")), ("new\n".into(), "bad\n".into()));
    });
}

#[test]
fn an_interrupted_commit_that_is_dropped_leaves_none_of_its_names() {
    everybody(Tier::Namespace, |place| {
        interrupted(place, &[]);
        assert_eq!(half_done(place), 1, "there is something to remove");
        place.ringfence(["overlay", "discard", "latest"]).ends(125).says("was interrupted");
        place.ringfence(["overlay", "discard", "latest", "--force"]).ends(0);
        assert_eq!(half_done(place), 0);
        let left = fs::read_dir(place.project("")).unwrap().count();
        assert!((2..=4).contains(&left), "what is half committed stays: {left}");
    });
}

#[test]
fn bytes_that_are_no_text_are_shown() {
    everybody(Tier::Namespace, |place| {
        place.file("home/project/latin", b"same \xdf\na\xe4b\n");
        place.clock_moves_on();
        place.ringfence(["snapshot", "create", "--name", "base"]).well();
        place.sh(&["--overlay=keep"], "printf 'same \\337\\na\\366b\\n' > latin").ends(0);
        let wanted = b" same \xdf\n-a\xe4b\n+a\xf6b\n";
        let shows = |words: &[&str]| {
            let shown = place.ringfence(words);
            let there = shown.out.windows(wanted.len()).any(|part| part == wanted);
            assert!(there, "{words:?}: {}", shown.text());
        };
        shows(&["overlay", "diff", "latest", "latin"]);
        place.ringfence(["overlay", "commit", "latest"]).ends(0);
        shows(&["snapshot", "diff", "base"]);
        // JSON is text: what differs there, differs.
        let shown = place.ringfence(["snapshot", "diff", "base", "--json"]).quiet();
        let shown: Value = serde_json::from_str(&shown).unwrap();
        let text = shown["changes"][0]["diff"].as_str().unwrap();
        assert!(text.contains("-a\\xe4b\n+a\\xf6b\n"), "{text}");
    });
}

/// With what is there now, behind bars: patch(1) passes over it.
#[test]
fn what_is_not_committed_is_shown_too() {
    everybody(Tier::Namespace, |place| {
        place.file("home/project/both", "first\n");
        place.clock_moves_on();
        place.sh(&["--overlay=keep"], "echo inside > both; echo evil > .envrc; echo a > a").ends(0);
        fs::write(place.project("both"), "outside\n").unwrap();
        let shown = place.ringfence(["overlay", "diff", "latest"]).quiet();
        assert!(shown.contains("| -outside\n| +inside"), "{shown}");
        assert!(shown.contains("| --- /dev/null\n| +++ b/"), "{shown}");
        assert!(shown.contains("| +evil\n"), "{shown}");
        assert!(shown.contains("\n+a"), "the control: {shown}");
        assert!(!shown.contains("\n+evil") && !shown.contains("\n+inside"), "{shown}");
        place.ringfence(["overlay", "diff", "latest", "nope"]).ends(125).says("was not changed");
        let one = place.ringfence(["overlay", "diff", "latest", "a"]).quiet();
        assert!(one.contains("+a") && !one.contains("evil"), "{one}");
    });
}
