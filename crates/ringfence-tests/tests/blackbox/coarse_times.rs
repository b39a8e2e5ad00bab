//! File systems that keep whole seconds only: what changed in the second of a start may have changed after it.

use ringfence_tests::{Person, Place, everywhere, left_out};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

/// One that is mounted at a place's project until it is dropped.
struct Coarse<'p>(&'p Place);

impl Drop for Coarse<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l", &self.0.text("home/project")]).status();
    }
}

/// An ext4 whose inodes take 128 bytes, as ext3's: there is no room for more than seconds.
fn coarse(place: &Place) -> Option<Coarse<'_>> {
    let (image, project) = (place.file("image", ""), place.text("home/project"));
    if !place.has("mkfs.ext4", "-V") {
        return None;
    }
    fs::File::options().write(true).open(&image).unwrap().set_len(32 << 20).unwrap();
    let made = Command::new("mkfs.ext4").args(["-q", "-F", "-I", "128"]).arg(&image).output();
    assert!(made.expect("it runs").status.success());
    let mounted =
        Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&project).output().unwrap();
    if !mounted.status.success() {
        left_out("times of whole seconds", String::from_utf8_lossy(&mounted.stderr).trim());
        return None;
    }
    place.person.owns(&place.project("."));
    Some(Coarse(place))
}

/// Nothing made so far can be of the next run.
fn seconds_go_by(place: &Place) {
    let time = |name| {
        let file = place.file(name, "");
        let data = file.metadata().unwrap();
        assert_eq!(data.ctime_nsec(), 0, "the file system keeps more than seconds");
        fs::remove_file(file).unwrap();
        data.ctime()
    };
    let before = time("home/project/clock");
    ringfence_tests::until("two seconds go by", || time("home/project/clock") > before + 2);
}

fn runs_as_root() -> bool {
    ringfence_tests::people().contains(&Person::Root)
}

#[test]
fn what_a_run_makes_in_its_first_second_is_its_own() {
    everywhere(|place| {
        let Some(_mounted) = runs_as_root().then(|| coarse(place)).flatten() else { return };
        place.shell("mkdir -p sub sub2/.vscode sub3/harmless && git init -q repo").ends(0);
        place.file("home/project/sub2/.vscode/tasks.json", "{}");
        place.file("home/project/sub3/.mcp.json", "the user's");
        seconds_go_by(place);
        let script = "echo evil >sub/.envrc; echo evil >sub2/.vscode/tasks.json; \
                      mv sub3/harmless sub3/.husky; echo harmless >sub/ordinary; \
                      printf '[core]\\nfsmonitor=./evil\\n' >>repo/.git/config";
        let run = place.sh(&[], script);
        run.ends(0)
            .says("sub/.envrc")
            .says("sub2/.vscode")
            .says("repo/.git/config")
            .says("sub3/.husky");
        let left = "grep -rlE 'evil' --exclude-dir='.ringfence*' . ; ls -d sub3/.husky";
        assert_eq!(place.shell(left).text().trim(), "");
        assert_eq!(place.shell("cat sub/ordinary sub3/.mcp.json").text(), "harmless\nthe user's");
    });
}

#[test]
fn what_is_changed_within_a_second_is_no_loss() {
    everywhere(|place| {
        let Some(_mounted) = runs_as_root().then(|| coarse(place)).flatten() else { return };
        place.file("home/project/f", "one\n");
        place.ringfence(["snapshot", "create", "--name", "first"]).ends(0);
        place.file("home/project/f", "two\n");
        assert!(place.ringfence(["snapshot", "changes", "first"]).ends(0).text().contains('f'));
        place.ringfence(["snapshot", "create", "--name", "second"]).ends(0);
        place.file("home/project/f", "bad\n");
        place.ringfence(["snapshot", "revert", "second"]).ends(0);
        assert_eq!(place.shell("cat f").text(), "two");
        if place.tier == ringfence_tests::Tier::Process {
            return;
        }
        seconds_go_by(place);
        place.sh(&["--overlay=keep"], "echo inside >f").ends(0);
        place.file("home/project/f", "host\n");
        place.ringfence(["overlay", "commit", "latest"]).says("f");
        assert_eq!(place.shell("cat f").text(), "host");
    });
}
