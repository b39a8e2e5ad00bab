//! Words that `ringfence snapshot` has no use for are refused: they were meant for something.

use ringfence_tests::{Person, Place, Tier};
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_word_too_many_is_told() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    place.file("home/project/file", "text\n");
    for (words, why) in [
        (&["create", "base"][..], "--name"),
        (&["list", "all"], "shows all"),
        (&["create", "--", "file"], "takes no paths"),
        (&["show", "latest", "file", "file"], "one path"),
        (&["history", "file", "file"], "one path"),
        (&["changes", "latest", "latest", "file"], "paths come after `--`"),
        (&["compact", "latest", "--name", "all"], "SNAPSHOT SNAPSHOT... --name"),
    ] {
        let refused = place.ringfence([&["snapshot"], words].concat());
        refused.ends(125).says(why);
        assert_eq!(refused.text(), "", "{words:?}");
    }
    assert_eq!(place.ringfence(["snapshot", "list"]).quiet(), "", "nothing was made");
    // The control.
    place.ringfence(["snapshot", "create", "--name", "base"]).ends(0);
    assert!(place.ringfence(["snapshot", "list"]).quiet().contains("base"));
}

#[test]
fn a_path_that_is_nowhere_is_told() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    place.file("home/project/file", "text\n");
    place.file("home/project/gone", "gone\n");
    place.ringfence(["snapshot", "create", "--name", "base"]).ends(0);
    place.clock_moves_on();
    fs::remove_file(place.project("gone")).unwrap();
    place.file("home/project/new", "new\n");
    for verb in ["changes", "diff", "revert"] {
        let refused = place.ringfence(["snapshot", verb, "base", "--", "new", "nope"]);
        refused.ends(125).says("nope is neither in snapshot base nor in");
    }
    assert!(place.project("new").exists(), "nothing was reverted");
    place.ringfence(["snapshot", "history", "nope"]).ends(125).says("nope is in no snapshot of");
    // The controls: what is on either side, and what did not change.
    let shown = place.ringfence(["snapshot", "changes", "base", "--", "new", "gone", "file"]);
    assert_eq!(shown.quiet(), "D gone\nA new");
    place.ringfence(["snapshot", "history", "gone"]).ends(0).prints("added");
    place.ringfence(["snapshot", "revert", "base", "--", "new", "gone"]).ends(0);
    assert!(!place.project("new").exists() && place.project("gone").exists());
}

#[test]
fn a_file_of_a_snapshot_is_json_when_that_is_asked_for() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    place.file("home/project/file", "text\n");
    place.file("home/project/bytes", b"\xff\n");
    place.ringfence(["snapshot", "create", "--name", "base"]).ends(0);
    let shown = |name: &str| -> Value {
        let shown = place.ringfence(["snapshot", "show", "base", name, "--json"]).quiet();
        serde_json::from_str(&shown).unwrap()
    };
    let file = shown("file");
    assert_eq!((&file["entry"]["path"], &file["text"]), (&"file".into(), &"text\n".into()));
    assert_eq!(shown("bytes")["hex"], "ff0a");
    let plain = place.ringfence(["snapshot", "show", "base", "bytes"]);
    assert_eq!(plain.ends(0).out, b"\xff\n");
}

/// What is printed for people or programs can be given back as it is.
#[test]
fn names_are_told_as_they_are_given() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    for name in ["keep", "me", "keep me"] {
        place.ringfence(["snapshot", "create", "--name", name]).ends(0);
    }
    let taken = place.ringfence(["snapshot", "create", "--name", "keep me"]);
    taken.ends(125).says("ringfence snapshot delete 'keep me'");
    place.file("home/project/a\tb", "new\n");
    let changes = place.ringfence(["snapshot", "changes", "keep", "--json"]).quiet();
    let rows: Value = serde_json::from_str(&changes).unwrap();
    assert_eq!(rows["changes"][0]["path"], "a\tb", "{rows}");
    let path = rows["changes"][0]["path"].as_str().unwrap();
    place.ringfence(["snapshot", "revert", "keep", "--", path]).ends(0);
    assert!(!place.project("a\tb").exists());
}

/// A name is whoever's who made the file: patch(1) makes the same of it, and no other one, which may be protected.
#[test]
fn patch_reads_names_back_whole() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    if !place.has("patch", "--version") {
        return;
    }
    place.ringfence(["snapshot", "create", "--name", "base"]).ends(0);
    place.clock_moves_on();
    let names = [".envrc x", "a b ", ".mcp.json\tz", "a\n+++ .envrc", "\"q\"", "a\\tb", "\u{e4} c"];
    for name in names {
        place.file(format!("home/project/{name}"), "text\n");
    }
    let difference = place.ringfence(["snapshot", "diff", "base"]).ends(0).out.clone();
    let there = place.directory("outside/there");
    fs::write(place.at("outside/difference"), difference).unwrap();
    let mut patch = place.command("patch");
    patch.args(["-p1", "-s", "-i", "../difference"]).current_dir(&there);
    assert!(patch.status().unwrap().success());
    let mut made: Vec<_> =
        fs::read_dir(&there).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let mut wanted = names.map(OsString::from);
    made.sort();
    wanted.sort();
    assert_eq!(made, wanted);
}

#[test]
fn what_was_closed_since_is_told_as_that() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    let file = place.file("home/project/file", "text\n");
    place.file("home/project/directory/inner", "text\n");
    place.ringfence(["snapshot", "create", "--name", "base"]).ends(0);
    place.clock_moves_on();
    for closed in [&file, &place.project("directory")] {
        fs::set_permissions(closed, fs::Permissions::from_mode(0o000)).unwrap();
    }
    let changes = place.ringfence(["snapshot", "changes", "base"]).text();
    fs::set_permissions(place.project("directory"), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(changes, "P directory\nP file");
}
