//! What a run changed is on record, by content, and can be taken back.

use ringfence_tests::{Person, Place, Tier, everybody, everywhere};
use rustix::fs::FallocateFlags;
use serde_json::Value;
use std::fs;

/// What the record of the last session says of files, relative to the project.
fn changed(place: &Place) -> Vec<String> {
    let logs = place.ringfence(["logs", "latest", "--kind", "file", "--json"]).quiet();
    let logs: Value = serde_json::from_str(&logs).unwrap();
    let top = place.text("home/project/");
    let path = |row: &Value, name: &str| row[name].as_str().unwrap_or("").replace(&top, "");
    let line = |row: &Value| {
        let from = path(row, "was");
        let from = if from.is_empty() { from } else { format!(" {from} ->") };
        format!("{}{from} {}", row["change"].as_str().unwrap(), path(row, "path"))
    };
    let mut all: Vec<String> = logs["events"].as_array().unwrap().iter().map(line).collect();
    all.sort();
    all
}

const CHANGES: &str = "echo new > new; rm gone; mv old moved; echo b > same; touch kept; cp kept copy;                        rm -r tree; chmod 700 mode; ln -s kept link";

fn project(place: &Place) {
    for (name, text) in [
        ("gone", "gone\n"),
        ("old", "old\n"),
        ("same", "a\n"),
        ("kept", "kept\n"),
        ("tree/file", "file\n"),
        ("mode", "mode\n"),
    ] {
        place.file(format!("home/project/{name}"), text);
    }
    place.clock_moves_on();
}

#[test]
fn what_a_run_changed_is_on_record_and_can_be_taken_back() {
    everywhere(|place| {
        project(place);
        place.sh(&["--snapshot"], CHANGES).ends(0);
        assert_eq!(
            changed(place),
            [
                "created copy",
                "created link",
                "created new",
                "deleted gone",
                "deleted tree",
                "deleted tree/file",
                "modified mode",
                // As long as it was, and other bytes.
                "modified same",
                "renamed old -> moved",
            ]
        );
        // What was only touched is as it was.
        let listed = place.ringfence(["snapshot", "list", "--json"]).quiet();
        let listed: Value = serde_json::from_str(&listed).unwrap();
        let first = &listed["snapshots"][0];
        assert_eq!(first["origin"], "start", "{listed}");
        let id = first["id"].to_string();
        let log = place.ringfence(["logs", "latest", "--kind", "snapshot"]).quiet();
        assert!(log.contains(&format!("create {id}")), "{log}");
        place.ringfence(["snapshot", "revert", &id]).ends(0);
        for (name, text) in [("gone", "gone\n"), ("old", "old\n"), ("same", "a\n")] {
            assert_eq!(fs::read_to_string(place.project(name)).unwrap(), text);
        }
        assert!(!place.project("new").exists() && place.project("tree/file").exists());
        // A run that changes nothing has no such rows; one without a snapshot neither.
        place.sh(&["--snapshot"], "touch kept; cat kept").ends(0);
        assert_eq!(changed(place), [""; 0]);
        place.sh(&[], "echo x > new").ends(0);
        assert_eq!(changed(place), [""; 0]);
        // The snapshots are out of reach inside.
        let store = place.text("home/.local/state/ringfence/snapshots");
        let listed = place.sh(&["--snapshot"], &format!("ls {store} 2>/dev/null; echo end"));
        assert_eq!(listed.ends(0).text(), "end");
    });
}

#[test]
fn what_a_layer_holds_is_on_record() {
    everybody(Tier::Namespace, |place| {
        project(place);
        place.sh(&["--overlay=discard"], "echo new > new; rm gone; echo b > same").ends(0);
        assert_eq!(changed(place), ["created new", "deleted gone", "modified same"]);
        assert!(place.project("gone").exists());
        // The same rows as of a snapshot, but for a file that was only touched: its time is a change to commit.
        place.sh(&["--overlay=discard"], CHANGES).ends(0);
        assert_eq!(
            changed(place),
            [
                "created copy",
                "created link",
                "created new",
                "deleted gone",
                "deleted tree",
                "deleted tree/file",
                "modified kept",
                "modified mode",
                "modified same",
                "renamed old -> moved",
            ]
        );
        let both = place.run(&["--snapshot", "--overlay"], &["true"]);
        both.ends(125).says("--snapshot has nothing to keep").says("leave one of them out");
    });
}

#[test]
fn names_that_are_no_text_are_told_apart_on_record() {
    everybody(Tier::Namespace, |place| {
        let script = "printf x > \"$(printf 'b\\376')\"; printf y > \"$(printf 'b\\377')\"; printf z > 'b\\xfe'";
        place.sh(&["--overlay=discard"], script).ends(0);
        assert_eq!(changed(place), ["created b\\xfe", "created b\\xfe", "created b\\xff"]);
    });
}

#[test]
fn a_killed_launcher_leaves_the_state_before_the_run() {
    everywhere(|place| {
        project(place);
        let script = "rm gone; echo up; exec sleep 1000";
        let mut running = place.start(&["--snapshot"], &["sh", "-c", script]);
        running.printed("up\n");
        running.signal(rustix::process::Signal::KILL);
        running.finish().ends(137);
        let changes = place.ringfence(["snapshot", "changes", "latest"]).quiet();
        assert_eq!(changes, "D gone");
        place.ringfence(["snapshot", "revert", "latest"]).ends(0);
        assert!(place.project("gone").exists());
    });
}

/// The snapshots of the project, newest first, as `list` shows them.
fn snapshots(place: &Place) -> Vec<String> {
    let listed = place.ringfence(["snapshot", "list"]).quiet();
    listed.lines().map(ToOwned::to_owned).collect()
}

#[test]
fn a_profile_has_the_state_before_each_run_kept() {
    everywhere(|place| {
        project(place);
        let profile =
            place.file("home/auto.toml", "extends = [\"default\"]\nsnapshot = \"auto\"\n");
        let profile = ["-p", profile.to_str().unwrap()];
        let with = |more: &[&'static str]| [&profile[..], more].concat();
        // Twice: a plan that was kept must not leave it out.
        for round in 1..3 {
            let done = place.sh(&profile, "rm gone; echo b > same");
            assert_eq!(done.quiet(), "", "nothing is said of what goes well");
            assert_eq!(changed(place), ["deleted gone", "modified same"]);
            assert!(snapshots(place)[0].contains("start"), "{:?}", snapshots(place));
            place.ringfence(["snapshot", "revert", "latest"]).ends(0);
            assert!(place.project("gone").exists());
            // One at the start of the run, one before the revert.
            assert_eq!(snapshots(place).len(), 2 * round);
        }
        let before = snapshots(place).len();
        // Not: said so on the line, without a record, with nothing that could change.
        place.sh(&with(&["--snapshot=never"]), "true").quiet();
        place.sh(&with(&["--no-record"]), "true").quiet();
        place.sh(&[], "true").quiet();
        if place.tier == Tier::Namespace {
            place.sh(&with(&["--overlay=discard"]), "true").quiet();
        }
        assert_eq!(snapshots(place).len(), before);
        place.sh(&["--snapshot=always"], "true").quiet();
        assert_eq!(snapshots(place).len(), before + 1);
        place
            .sh(&["--snapshot=sometimes"], "true")
            .ends(125)
            .says("none of `auto`, `always`, `never`");
    });
}

/// What would take long is left out with a reason, runs all the same, and is made when it is asked for.
#[test]
fn a_large_tree_is_not_kept_by_itself() {
    everybody(Tier::Process, |place| {
        // One file with room for 300 MiB, and nothing in it.
        let grow = |length: u64| {
            let file = fs::File::options().create(true).append(true).open(place.project("large"));
            // Closed again: one that somebody has open for writing is read each time.
            rustix::fs::fallocate(file.unwrap(), FallocateFlags::empty(), 0, length).unwrap();
        };
        grow(300 << 20);
        place.person.owns(&place.project("large"));
        place.file("home/project/a", "one\n");
        let auto = ["--snapshot=auto"];
        let done = place.sh(&auto, "echo two > a; echo ran");
        done.ends(0).prints("ran").says("the state before this run is not kept: the tree has more");
        done.says("256 MiB that no snapshot has; `ringfence snapshot create`");
        assert_eq!(snapshots(place), [""; 0]);
        assert_eq!(changed(place), [""; 0]);
        // Without it, the same run has what it should.
        place.clock_moves_on();
        place.ringfence(["snapshot", "create"]).well();
        assert_eq!(place.sh(&auto, "echo three > a").quiet(), "");
        assert_eq!(changed(place), ["modified a"]);
        // Larger again: a known one grew.
        grow(301 << 20);
        place.sh(&auto, "true").ends(0).says("the state before this run is not kept");
        assert_eq!(snapshots(place).len(), 2);
    });
}

/// A program closes a directory, which takes it one call. Whose it is can open it.
#[test]
fn a_directory_that_is_closed_holds_no_revert_up_and_what_is_in_it_is_not_taken_for_gone() {
    everybody(Tier::Namespace, |place| {
        let text = |name: &str| fs::read_to_string(place.project(name)).unwrap();
        place.file("home/project/d/kept", "old");
        place.file("home/project/f", "old");
        place.ringfence(["snapshot", "create", "--name", "base"]).well();
        place.run(&[], &["sh", "-c", "printf new > f; printf new > d/kept; chmod 0 d"]).quiet();
        let done = place.ringfence(["snapshot", "revert", "base"]);
        done.ends(0);
        assert_eq!(text("f"), "old", "{}", done.err);
        place.shell("chmod 700 d").ends(0);
        assert_eq!(text("d/kept"), "old", "{}", done.err);
        // Its names can be read, and no more.
        place.shell("chmod 400 d").ends(0);
        let made = place.ringfence(["snapshot", "create", "--name", "listed"]);
        made.ends(0);
        if place.person == Person::Ordinary {
            made.says("d cannot be read: it is not in the snapshot");
        }
        place.shell("chmod 700 d; printf newer > f").ends(0);
        place.ringfence(["snapshot", "revert", "listed"]).ends(0);
        assert_eq!(text("f"), "old");
        assert!(place.project("d/kept").exists());
    });
}

/// Two file systems of FUSE: another user's (`EACCES`), and one whose server is gone (`ENOTCONN`).
const UNTOLD: &str = "mkdir mnt d/mnt; (exec 3<>/dev/fuse) || exit 77; exec 3<>/dev/fuse 4<>/dev/fuse; \
    mount -i -t fuse -o fd=3,rootmode=40000,user_id=4242,group_id=4242 x mnt || exit 77; \
    mount -i -t fuse -o fd=4,rootmode=40000,user_id=0,group_id=0 x d/mnt || exit 77; exec 4>&-; ";

#[test]
fn a_name_that_cannot_be_looked_at_is_left_alone_by_itself() {
    everybody(Tier::Namespace, |place| {
        // Only root mounts them everywhere.
        if place.person != Person::Root || !place.has("unshare", "--version") {
            return;
        }
        place.file("home/project/f", "old");
        place.file("home/project/d/f", "old");
        let ringfence = ringfence_tests::binary().display().to_string();
        let script = format!(
            "{UNTOLD} stat mnt d/mnt; {ringfence} snapshot create && printf new > f && rm d/f && \
             {ringfence} snapshot revert 1 && {ringfence} run --snapshot -- true"
        );
        let done = place.shell(&format!("unshare -m sh -c '{script}'"));
        if done.code == 77 {
            return ringfence_tests::left_out("names that tell nothing", "no FUSE is mounted here");
        }
        done.ends(0).says("Permission denied").says("Transport endpoint is not connected");
        done.says("mnt cannot be read: it is not in the snapshot").prints("2 paths reverted");
        done.says("d/mnt cannot be read: it is not in the snapshot");
        for name in ["f", "d/f"] {
            assert_eq!(fs::read_to_string(place.project(name)).unwrap(), "old");
        }
    });
}

/// A file's access list bounds its group's rights, and the mode shows that bound: without the list it would be a right of
/// the group.
#[test]
fn where_an_access_list_cannot_be_set_its_bound_is_no_right() {
    everybody(Tier::Namespace, |place| {
        // A file system without lists takes a mount.
        if place.person != Person::Root || !place.has("unshare", "--version") {
            return;
        }
        place.file("home/project/listed", "x");
        place.file("home/project/plain", "x");
        let set = "import os, struct\nall = [(1, 6, -1), (2, 6, 1), (4, 4, -1), (16, 6, -1), (32, 4, -1)]\n\
                   value = struct.pack('<I', 2) + b''.join(struct.pack('<HHi', *one) for one in all)\n\
                   os.setxattr('listed', 'system.posix_acl_access', value)";
        place.file("home/set.py", set);
        place.shell("python3 ../set.py && chmod 664 plain").ends(0);
        place.ringfence(["snapshot", "create", "--name", "base"]).well();
        let program = ringfence_tests::binary().display();
        let script = format!(
            "mount -t ramfs none . || exit 77; cd . && cd \"$PWD\" && {program} snapshot revert base && stat -c \"%n %a\" listed plain"
        );
        let done = place.shell(&format!("unshare -m sh -c '{script}'"));
        if done.code == 77 {
            return ringfence_tests::left_out("access lists", "nothing can be mounted here");
        }
        done.ends(0)
            .prints("listed 604")
            .prints("plain 664")
            .says("system.posix_acl_access cannot be set");
    });
}
