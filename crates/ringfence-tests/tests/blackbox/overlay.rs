//! Writes kept apart: the real tree stays as it is until its user commits, and gets just what was
//! committed.

use ringfence_tests::{Person, Place, Running, Terminal, Tier, everybody, everywhere, left_out};
use std::fs;
use std::path::Path;

const CHANGES: &str = "echo new >> kept && mv old moved && rm -r gone && mkdir gone && echo y > gone/y \
                       && mkdir made && echo z > made/z && ln -s /etc/passwd link && chmod 600 kept";

fn project(place: &Place) {
    place.file("home/project/kept", "kept\n");
    place.file("home/project/old", "old\n");
    place.file("home/project/gone/x", "x\n");
    place.clock_moves_on();
}

/// Names and texts of a tree.
fn tree(top: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let mut pending = vec![top.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(top).unwrap().display().to_string();
            if path.is_dir() && !path.is_symlink() {
                pending.push(path);
                all.push(format!("{name}/"));
            } else if path.is_symlink() {
                all.push(format!("{name} -> {}", path.read_link().unwrap().display()));
            } else {
                all.push(format!("{name}: {}", fs::read_to_string(&path).unwrap().trim_end()));
            }
        }
    }
    all.sort();
    all
}

const AFTER: [&str; 7] = [
    "gone/",
    "gone/y: y",
    "kept: kept\nnew",
    "link -> /etc/passwd",
    "made/",
    "made/z: z",
    "moved: old",
];

#[test]
fn nothing_is_written_until_it_is_committed() {
    everybody(Tier::Namespace, |place| {
        project(place);
        let before = tree(&place.project(""));
        let run = place.sh(&["--overlay=keep"], &format!("{CHANGES} && cat kept moved gone/y"));
        assert_eq!(run.well(), "kept\nnew\nold\ny", "the command sees what it wrote");
        assert_eq!(tree(&place.project("")), before, "the real tree is untouched");
        run.says("these changes were kept apart");
        let shown = place.ringfence(["overlay", "diff", "latest", "--summary"]).quiet();
        let shown = shown.replace(&place.text("home/project/"), "");
        assert_eq!(shown, "D gone/x\nA gone/y\nM kept\nA link\nA made/\nA made/z\nA moved\nD old");
        let diff = place.ringfence(["overlay", "diff", "latest", "kept"]);
        diff.ends(0).prints("+new");
        place.ringfence(["overlay", "commit", "latest"]).ends(0).says("committed 8 changes");
        assert_eq!(tree(&place.project("")), AFTER);
        let mode = fs::metadata(place.project("kept")).unwrap().permissions();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);
        place.ringfence(["overlay", "diff", "latest"]).ends(125).says("keeps no changes apart");
    });
}

#[test]
fn the_end_is_what_was_asked_for() {
    everybody(Tier::Namespace, |place| {
        project(place);
        let before = tree(&place.project(""));
        for (options, shown) in
            [(["--overlay=discard"], ""), (["--dry-run"], "+new"), (["--overlay"], "kept apart")]
        {
            let run = place.sh(&options, &format!("{CHANGES}; exit 7"));
            run.ends(7).says(shown);
            assert_eq!(tree(&place.project("")), before, "{options:?}");
        }
        place.ringfence(["overlay", "discard", "latest"]).ends(0);
        let run = place.sh(&["--overlay=commit"], &format!("{CHANGES}; exit 7"));
        run.ends(7).says("committed 8 changes");
        assert_eq!(tree(&place.project("")), AFTER);
        assert_eq!(place.run(&["--overlay=commit"], &["true"]).quiet(), "", "nothing was done");
    });
}

#[test]
fn control_c_at_the_question_keeps_the_changes() {
    everybody(Tier::Namespace, |place| {
        project(place);
        let mut terminal = Terminal::shell(place);
        terminal.line("$RF --overlay=ask -- sh -c 'echo new >> kept'").shows("[k]eep: ");
        terminal.types("\x03").code(130);
        terminal.leave();
        assert_eq!(fs::read_to_string(place.project("kept")).unwrap(), "kept\n");
        let shown = place.ringfence(["overlay", "diff", "latest", "--summary"]).quiet();
        assert!(shown.ends_with("project/kept"), "{shown}");
        place.ringfence(["overlay", "discard", "latest"]).ends(0);
    });
}

#[test]
fn what_the_host_changed_meanwhile_is_not_overwritten() {
    everybody(Tier::Namespace, |place| {
        project(place);
        place.sh(&["--overlay=keep"], CHANGES).ends(0);
        fs::write(place.project("kept"), "host's\n").unwrap();
        fs::write(place.project("made"), "host's\n").unwrap();
        let between = tree(&place.project(""));
        let refused = place.ringfence(["overlay", "commit", "latest"]);
        refused.ends(1).says("conflict").says("home/project/kept").says("home/project/made");
        assert_eq!(tree(&place.project("")), between, "nothing was committed");
        place.ringfence(["overlay", "commit", "latest", "moved"]).ends(0);
        assert_eq!(fs::read_to_string(place.project("moved")).unwrap(), "old\n");
        assert!(place.project("old").exists(), "only what was named");
        place.ringfence(["overlay", "commit", "latest", "--force"]).ends(0);
        assert_eq!(tree(&place.project("")), AFTER);
    });
}

#[test]
fn protected_names_are_not_committed() {
    everybody(Tier::Namespace, |place| {
        project(place);
        place.file("home/project/.vscode/tasks.json", "host's");
        place.clock_moves_on();
        let run = place.sh(
            &["--overlay=commit"],
            "echo evil > .envrc; mkdir -p sub; echo evil > sub/.envrc; echo ok > sub/fine; \
             echo evil > .vscode/tasks.json; mkfifo pipe; true",
        );
        run.ends(0).says("not committed").says(".envrc").says("it is a fifo");
        assert!(!place.project(".envrc").exists() && !place.project("sub/.envrc").exists());
        assert!(!place.project("pipe").exists());
        assert_eq!(fs::read_to_string(place.project("sub/fine")).unwrap(), "ok\n");
        assert_eq!(fs::read_to_string(place.project(".vscode/tasks.json")).unwrap(), "host's");
        // Nothing but these waits.
        let left = place.ringfence(["overlay", "diff", "latest", "--summary"]).quiet();
        assert_eq!(left.lines().count(), 3, "{left}");
        place.ringfence(["overlay", "discard", "latest"]).ends(0);
    });
}

#[test]
fn files_that_are_granted_alone_are_kept_apart_too() {
    everybody(Tier::Namespace, |place| {
        let file = place.file("home/other/file", "old\n");
        place.file("home/other/beside", "beside\n");
        let option = format!("--write={}", file.display());
        let script =
            format!("echo new > {0}; cat {0}; ls {1}", file.display(), place.text("home/other"));
        let run = place.sh(&["--overlay=keep", &option], &script);
        assert_eq!(run.well(), "new\nfile", "nothing beside it is seen");
        assert_eq!(fs::read_to_string(&file).unwrap(), "old\n");
        place.ringfence(["overlay", "commit", "latest"]).ends(0);
        assert_eq!(fs::read_to_string(&file).unwrap(), "new\n");
        assert_eq!(fs::read_to_string(place.at("home/other/beside")).unwrap(), "beside\n");
    });
}

#[test]
fn where_writes_cannot_be_kept_apart_nothing_runs() {
    everywhere(|place| {
        let mark = format!("echo ran > {}", place.text("home/project/ran"));
        if place.tier_name() == "process" {
            place.sh(&["--overlay"], &mark).ends(125).says("--overlay needs mounts");
        } else {
            // The layers would lie in the tree itself.
            let home = format!("--write={}", place.text("home"));
            place.sh(&["--overlay", &home], &mark).ends(125).says("ringfence's own state is in it");
            // The control.
            place.sh(&["--overlay=discard"], &mark).ends(0);
        }
        assert!(!place.project("ran").exists());
    });
}

/// A file system without the user's attributes, as a tmpfs before Linux 6.6, which only root can have here.
#[test]
fn a_layer_that_could_not_hold_everything_is_refused() {
    everybody(Tier::Namespace, |place| {
        if place.person != Person::Root {
            return;
        }
        let state = place.directory("state");
        let mounted = place.shell(&format!("mount -t ramfs -o mode=1777 none {}", state.display()));
        if mounted.code != 0 {
            return left_out("a file system without attributes", mounted.err.trim());
        }
        place.file("home/project/there/file", "x");
        let run = |state: &Path| {
            let mut command = place.ringfence_run();
            command.env("XDG_STATE_HOME", state);
            command.args(["--overlay=discard", "--", "sh", "-c", "rm -r there; ls"]);
            Running::start(command).finish()
        };
        let (refused, control) = (run(&state), run(&place.at("home/state")));
        place.shell(&format!("umount {}", state.display())).ends(0);
        refused
            .ends(125)
            .says("has no place for its layer")
            .says("XDG_STATE_HOME")
            .says(&state.display().to_string());
        assert!(!control.ends(0).text().contains("there"));
    });
}

#[test]
fn the_layer_is_out_of_reach_inside() {
    everybody(Tier::Namespace, |place| {
        let state = place.text("home/.local/state");
        let script = format!("echo x > written; ls {state}; grep -c ' /proc ' /proc/self/mounts");
        let run = place.sh(&["--overlay=discard"], &script);
        run.says("No such file or directory");
    });
}

/// No byte can be written to any file: as on a full disk.
#[test]
fn layers_that_cannot_be_made_leave_nothing() {
    everybody(Tier::Namespace, |place| {
        place.sh(&["--overlay=keep"], "echo new > made").ends(0);
        let before = place.ringfence(["ps", "--all", "--json"]).quiet();
        let sessions = place.at("home/.local/state/ringfence/sessions");
        let names = || {
            let all = fs::read_dir(&sessions).unwrap().flatten();
            let mut names: Vec<_> = all.map(|entry| entry.file_name()).collect();
            names.sort();
            names
        };
        let there = names();
        let full = "trap '' XFSZ; ulimit -f 0; exec $RF --overlay=keep -- sh -c 'echo ran'";
        let refused = place.shell(full);
        refused.ends(125).says("overlay/record.json");
        assert!(!refused.text().contains("ran"));
        assert_eq!(names(), there);
        assert_eq!(place.ringfence(["ps", "--all", "--json"]).quiet(), before);
        // The control: what waits is still there, and with room the same run works.
        assert_eq!(place.left_behind(), [""; 0]);
        place.ringfence(["overlay", "commit", "latest"]).ends(0);
        assert_eq!(fs::read_to_string(place.project("made")).unwrap(), "new\n");
        place.sh(&["--overlay=keep"], "echo ran").ends(0).prints("ran");
    });
}

/// What a program wrote is looked at on a terminal, which would obey it.
#[test]
fn differences_command_no_terminal() {
    everybody(Tier::Namespace, |place| {
        place.file("home/project/kept", "kept\n");
        let ringfence = ringfence_tests::binary().display().to_string();
        place.ringfence(["snapshot", "create", "--name", "base"]).well();
        let evil = "x\\033]52;c;ZXZpbA==\\007\\r+++ b/forged\\n\\233\\n";
        place.sh(&["--overlay=keep"], &format!("printf '{evil}' > kept")).well();
        let mut terminal = Terminal::shell(place);
        let mut looks = |command: &str| {
            terminal.line(&format!("{ringfence} {command}; echo do''ne"));
            let shown = terminal.shows("\ndone");
            let shown = shown[shown.find('\n').unwrap()..].trim_end_matches('\r');
            let raw = |c: char| c.is_control() && !matches!(c, '\n' | '\t' | '\r');
            assert!(
                !shown.contains(raw) && !shown.replace("\r\n", "\n").contains('\r'),
                "{shown:?}"
            );
            assert!(shown.contains("x\\u{1b}]52;c;ZXZpbA==\\u{7}\\r"), "{command}: {shown}");
            terminal.shows("ready> ");
        };
        looks("overlay diff latest");
        place.ringfence(["overlay", "commit", "latest"]).ends(0);
        place.ringfence(["snapshot", "create", "--name", "evil"]).well();
        looks("snapshot diff base");
        looks("snapshot show evil kept");
        terminal.leave();
        // The control: patch(1) and files have it as it is.
        let piped = place.shell(&format!("{ringfence} snapshot diff base | cat"));
        piped.ends(0).prints("+x\u{1b}]52;c;ZXZpbA==\u{7}\r");
        let piped = place.shell(&format!(
            "{ringfence} snapshot show evil kept > copy; cmp copy kept && echo same"
        ));
        piped.ends(0).prints("same");
    });
}

/// The end of an overlay has the kernel write out all that the file system below holds (a second and more after a
/// build), unless that was given up: for what is dropped, and for nothing else.
#[test]
fn only_what_is_dropped_is_not_written_out() {
    const SHOWN: &str =
        "echo x > made; grep -c ' / .* - overlay .*volatile' /proc/self/mountinfo; true";
    everybody(Tier::Namespace, |place| {
        project(place);
        let volatile = |end: &str| place.sh(&[end], SHOWN).well().parse::<u32>().unwrap() > 0;
        assert!(volatile("--overlay=discard"));
        assert!(!volatile("--overlay=keep"));
        assert!(!volatile("--overlay=commit"));
        // The mark that the kernel leaves in such a layer goes with it.
        let sessions = place.at("home/.local/state/ringfence/sessions");
        let layers = fs::read_dir(sessions).unwrap().flatten();
        let layers =
            layers.filter(|session| session.path().join("overlay/0/work").exists()).count();
        assert_eq!(layers, 1, "but for the one that was kept");
    });
}
