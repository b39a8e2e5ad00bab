//! What is taken from protected names while a command runs, where no rename leads to the quarantine.

use ringfence_tests::{Finished, Place, Running, everywhere};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

/// The state is on another file system than the project: no rename leads there.
#[test]
fn protected_names_are_gone_at_once_across_file_systems() {
    everywhere(|place| {
        let state = Elsewhere::new();
        let gone = |path: &str| format!("while test -e {path} || test -L {path}; do :; done");
        let settled = "while ls -A . .vscode | grep -q ^.ringfence-; do :; done";
        let script = [
            "exec 2>/dev/null".to_owned(),
            // What is written after it was taken away is kept as well.
            "exec 3> .envrc; echo early >&3".into(),
            gone(".envrc"),
            "echo late >&3; exec 3>&-".into(),
            "ln -s /etc/passwd .envrc".into(),
            gone(".envrc"),
            "mkfifo .envrc".into(),
            gone(".envrc"),
            "mkdir .vscode; echo evil > beside; mv beside .vscode/tasks.json".into(),
            gone(".vscode/tasks.json"),
            // Too much for a copy while the command runs. It has another name, which stays.
            "head -c 17M /dev/zero > beside; ln beside other; mv beside .mcp.json".into(),
            gone(".mcp.json"),
            settled.into(),
            "ls -A; echo end".into(),
        ]
        .join("\n");
        let run = state.run(place, &script);
        assert_eq!(run.ends(0).text(), ".vscode\nother\nend", "{}", run.err);
        let said = |what: &str| {
            let told = |line: &&str| line.contains(what) && line.contains("while the command ran");
            run.err.lines().filter(told).count()
        };
        assert_eq!((said("moved to"), said("removed")), (4, 1), "{}", run.err);
        run.says("(it was no plain file)");
        assert!(!run.err.contains("not whole"), "{}", run.err);
        let session = fs::read_dir(state.0.path().join("ringfence/quarantine")).unwrap();
        let session = session.map(|entry| entry.unwrap().path()).next().unwrap();
        let read = |name: &str| fs::read_to_string(session.join(name)).unwrap();
        assert_eq!(read("1-.envrc"), "early\nlate\n");
        assert_eq!(fs::read_link(session.join("2-.envrc")).unwrap().to_str(), Some("/etc/passwd"));
        assert_eq!(read("4-tasks.json"), "evil\n");
        assert_eq!(read("5-.mcp.json").len(), 17 << 20);
        assert_eq!(place.project("other").metadata().unwrap().len(), 17 << 20);
    });
}

/// A launcher that was killed between two steps leaves a name of its own: whoever puts the tree right finds it.
#[test]
fn what_was_set_aside_does_not_stay() {
    everywhere(|place| {
        let script = "mkdir d; for name in 0123456789abcdef 0123; do \
                      echo x > .ringfence-aside-$name; echo x > d/.ringfence-aside-$name; done";
        place.run(&[], &["sh", "-c", script]).ends(0).says("left inside");
        for directory in [".", "d"] {
            let left = place.project(directory);
            assert!(!left.join(".ringfence-aside-0123456789abcdef").exists());
            assert!(left.join(".ringfence-aside-0123").exists(), "its own names stay");
        }
    });
}

/// A giant without content decides neither how long the end takes nor how full the disk gets.
#[test]
fn giants_are_not_copied_across_file_systems() {
    everywhere(|place| {
        let state = Elsewhere::new();
        let run = state.run(
            place,
            "mkdir d; truncate -s 1T d/.envrc .envrc; \
                                   while test -e .envrc; do :; done",
        );
        run.ends(0).says("removed").says("not whole: file too large");
        assert!(!place.project(".envrc").exists() && !place.project("d/.envrc").exists());
        let kept = fs::read_dir(state.0.path().join("ringfence/quarantine")).unwrap();
        let kept = kept.flat_map(|session| fs::read_dir(session.unwrap().path()).unwrap());
        assert!(kept.map(|kept| kept.unwrap().metadata().unwrap().len()).all(|length| length == 0));
    });
}

/// What cannot be kept is removed, as it would be at the end.
#[test]
fn protected_names_are_gone_at_once_where_nothing_can_be_kept() {
    everywhere(|place| {
        let state = Elsewhere::new();
        place.directory("home/project/untouched");
        fs::create_dir(state.0.path().join("ringfence")).unwrap();
        fs::set_permissions(state.0.path().join("ringfence"), Permissions::from_mode(0o777))
            .unwrap();
        fs::write(state.0.path().join("ringfence/quarantine"), "no directory").unwrap();
        let run = state.run(
            place,
            "echo x > .envrc; while test -e .envrc; do :; done; \
                                   while ls -A | grep -q ^.ringfence-; do :; done; ls -A",
        );
        assert_eq!(run.ends(0).text(), "untouched", "{}", run.err);
        run.says("protected: removed while the command ran (");
    });
}

/// A state directory on a file system of its own.
struct Elsewhere(tempfile::TempDir);

impl Elsewhere {
    fn new() -> Elsewhere {
        let state = tempfile::tempdir_in("/dev/shm").unwrap();
        fs::set_permissions(state.path(), Permissions::from_mode(0o777)).unwrap();
        Elsewhere(state)
    }

    fn run(&self, place: &Place, script: &str) -> Finished {
        let device = |path: &std::path::Path| path.metadata().unwrap().dev();
        assert_ne!(
            device(self.0.path()),
            device(&place.project(".")),
            "the tests' own place is there"
        );
        let mut command = place.ringfence_run();
        command.env("XDG_STATE_HOME", self.0.path()).args(["--", "sh", "-c", script]);
        Running::start(command).finish()
    }
}
