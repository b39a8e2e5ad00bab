//! Protected names below the top of a tree: what hides there is found, what is granted by name stays,
//! and what ringfence says of it is no terminal's command.

use ringfence_tests::{Place, Tier, everybody, everywhere};
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[test]
fn what_is_granted_by_name_below_the_top_stays() {
    everywhere(|place| {
        place.file("home/project/sub/.vscode/tasks.json", "host's");
        place.file("home/project/sub/.claude/settings.json", "{}");
        place.clock_moves_on();
        let granted = ["-w", "sub/.vscode", "-w", "sub/.claude/settings.json"];
        let act = "echo inside > sub/.vscode/tasks.json; echo [] > sub/.claude/settings.json; \
                   echo inside > sub/.envrc";
        let outcome = place.sh(&granted, act);
        outcome.ends(0).says("sub/.envrc was created or changed inside");
        assert!(!place.project("sub/.envrc").exists());
        for (name, text) in [(".vscode/tasks.json", "inside\n"), (".claude/settings.json", "[]\n")]
        {
            assert_eq!(fs::read_to_string(place.project(format!("sub/{name}"))).unwrap(), text);
        }
        // Nor does a later run, without the grant, take away what an earlier one had it for.
        place.sh(&[], "true").ends(0);
        assert!(place.project("sub/.vscode/tasks.json").exists());
        place
            .sh(&[], "echo again > sub/.vscode/tasks.json")
            .says("sub/.vscode was created or changed");
    });
}

#[test]
fn names_made_inside_are_not_sent_to_the_terminal_as_they_are() {
    everybody(Tier::Namespace, |place| {
        let name = "$'e\\e]0;x\\a\\nringfence: all is well\\u202e'";
        let script = format!("mkdir {name} && echo x > {name}/.envrc");
        let outcome = place.run(&[], &["bash", "-c", &script]);
        outcome.ends(0).says("\\u{1b}]0;x\\u{7}\\nringfence: all is well\\u{202e}/.envrc was");
        let odd = |c: &char| (c.is_control() && *c != '\n') || *c == '\u{202e}';
        assert_eq!(outcome.err.chars().find(odd), None, "{:?}", outcome.err);
        assert_eq!(outcome.err.lines().count(), 1, "{:?}", outcome.err);
    });
}

#[test]
fn a_locked_directory_is_looked_into_and_keeps_its_mode() {
    everywhere(|place| {
        let act = "mkdir -p a/b/.vscode && echo x > a/b/.vscode/tasks.json && echo y > a/b/kept && \
                   chmod 0311 a/b && chmod 0 a";
        place.sh(&[], act).ends(0).says(".vscode was created or changed inside");
        let mode =
            |path: &str| fs::metadata(place.project(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode("a"), 0);
        fs::set_permissions(place.project("a"), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(mode("a/b"), 0o311);
        assert!(!place.project("a/b/.vscode").exists());
        assert_eq!(fs::read_to_string(place.project("a/b/kept")).unwrap(), "y\n");
    });
}

/// Parts of a repository prepared under another name, and put together by a later run's `mv`.
#[test]
fn what_was_prepared_beside_a_grant_or_kept_apart_is_judged_when_it_is_moved() {
    everywhere(|place| {
        place.directory("home/project/sub/.vscode");
        place.directory("home/project/other");
        let config = "[core]\n\tfsmonitor = ./x\n";
        let prepare = format!("mkdir other/g && printf '{config}' > other/g/config");
        let mut ways = vec![vec!["-w", "sub/.vscode"]];
        if place.tier_name() == "namespace" {
            ways.push(vec!["--overlay=commit"]);
        }
        for options in ways {
            place.sh(&options, &prepare).ends(0);
            place.clock_moves_on();
            let put_together = "cd other && mkdir g/objects g/refs && \
                                echo 'ref: refs/heads/main' > g/HEAD && mv g .git";
            place.sh(&[], put_together).ends(0).says("other/.git/config was created or changed");
            assert!(!place.project("other/.git/config").exists(), "{options:?}");
            assert!(place.project("other/.git/HEAD").exists());
            fs::remove_dir_all(place.project("other/.git")).unwrap();
        }
    });
}

/// Prepared in a run that had a part of the project, moved by one that has all of it.
#[test]
fn what_a_run_prepared_in_a_smaller_tree_is_judged_where_a_later_one_moves_it() {
    everywhere(|place| {
        place.directory("home/project/sub");
        place.directory("home/project/other");
        let make = "mkdir g && printf '[core]\\n\\tfsmonitor = ./x\\n' > g/config";
        place.sh(&["--workdir", "sub"], make).ends(0);
        assert!(place.project("sub/g/config").exists(), "it is no repository yet");
        place.clock_moves_on();
        // The control: the user's own, made when no run went on, is moved like any directory.
        place.shell(&format!("mkdir mine && cd mine && {make}")).ends(0);
        place.clock_moves_on();
        let moves = "for g in mine/g sub/g; do mkdir $g/objects $g/refs; echo 'ref: refs/heads/main' > $g/HEAD; done; \
                     mkdir own && mv mine/g own/.git && mv sub/g other/.git";
        let outcome = place.sh(&[], moves);
        outcome.ends(0).says("other/.git/config was created or changed");
        assert!(!place.project("other/.git/config").exists());
        assert!(place.project("other/.git/HEAD").exists());
        assert!(place.project("own/.git/config").exists(), "{}", outcome.err);
    });
}

/// Prepared in a project that its user renamed before the next run.
#[test]
fn what_a_run_prepared_is_judged_under_the_projects_new_name() {
    everywhere(|place| {
        place.directory("home/project/sub");
        let make = "mkdir g && printf '[core]\\n\\tfsmonitor = ./x\\n' > g/config";
        place.sh(&["--workdir", "sub"], &format!("mkdir d && cd d && {make}")).ends(0);
        place.clock_moves_on();
        // The control: the user's own is moved like any directory.
        place.shell(&format!("mkdir sub/mine && cd sub/mine && {make}")).ends(0);
        fs::rename(place.project("sub"), place.project("other")).unwrap();
        place.clock_moves_on();
        let moves = "for g in mine/g d/g; do mkdir $g/objects $g/refs; echo 'ref: refs/heads/main' > $g/HEAD; done; \
                     mv mine/g mine/.git && mv d/g d/.git";
        let outcome = place.sh(&["--workdir", "other"], moves);
        outcome.ends(0).says("d/.git/config was created or changed");
        assert!(!place.project("other/d/.git/config").exists());
        assert!(place.project("other/d/.git/HEAD").exists());
        assert!(place.project("other/mine/.git/config").exists(), "{}", outcome.err);
    });
}

/// What earlier runs made harmlessly, and the user's own, is left alone by later ones.
#[test]
fn what_was_there_before_is_not_taken_for_the_programs() {
    everywhere(|place| {
        place.file("home/project/own/.vscode/tasks.json", "host's");
        place.file("home/project/own/.git/hooks/pre-commit", "#!/bin/sh\n");
        place.file("home/project/own/.git/config", "[core]\n\tfsmonitor = ./x\n");
        place.clock_moves_on();
        for _ in 0..3 {
            assert_eq!(place.sh(&[], "echo x > own/.git/ORIG_HEAD; echo x > own/file").quiet(), "");
        }
        // Made by the user between two runs.
        place.file("home/project/own/.envrc", "host's");
        place.clock_moves_on();
        assert_eq!(place.sh(&[], "echo x > own/other").quiet(), "");
        for name in [".vscode/tasks.json", ".git/hooks/pre-commit", ".git/config", ".envrc"] {
            assert!(place.project(format!("own/{name}")).exists(), "{name}");
        }
    });
}

#[test]
fn submodules_with_slashes_in_their_names_work() {
    everywhere(|place: &Place| {
        if !place.has("git", "--version") {
            return;
        }
        let commit = "-c user.name=a -c user.email=a@b commit -q --allow-empty -m one";
        place
            .shell(&format!(
                "git init -q . && git {commit} && git init -q lib && git -C lib {commit}"
            ))
            .ends(0);
        place.clock_moves_on();
        let add = "git -c protocol.file.allow=always submodule --quiet add ./lib libs/sub && \
                   git -C libs/sub log --oneline && git worktree add -q tree && git -C tree status -s";
        let outcome = place.sh(&[], add);
        outcome.ends(0);
        // The repository's own configuration was there, and stays as it was.
        let said = outcome.err.lines().filter(|line| line.starts_with("ringfence: "));
        let others = said.filter(|line| !line.contains("/project/.git/config was"));
        assert_eq!(others.collect::<Vec<_>>(), [""; 0], "{}", outcome.err);
        let log = "git -C libs/sub log --oneline && git -C tree log --oneline";
        place.shell(log).ends(0).prints("one");
    });
}

/// A file that is granted by its name is that file: a directory in its place is one like others.
#[test]
fn what_is_in_a_directory_in_the_place_of_a_granted_file_is_judged() {
    everywhere(|place| {
        let overlay = place.tier_name() == "namespace";
        let ways: &[&[&str]] = if overlay { &[&[], &["--overlay=commit"]] } else { &[&[]] };
        for options in ways {
            for name in ["notes", "sub/notes", ".envrc"] {
                place.file(format!("home/project/{name}"), "host's\n");
            }
            place.clock_moves_on();
            let act = "for d in notes sub/notes .envrc other; do rm -f $d; mkdir -p $d/.vscode $d/deep/.git; \
                       echo EVIL > $d/.vscode/tasks.json; echo EVIL > $d/.mise.toml; \
                       printf '[core]\\n\\tfsmonitor = evil\\n' > $d/deep/.git/config; echo fine > $d/plain; done";
            let granted = ["-w", "notes", "-w", "sub/notes", "-w", ".envrc"];
            let run = place.sh(&[*options, &granted].concat(), act);
            run.ends(0);
            let left = |place: &Place| {
                let names = [".vscode/tasks.json", ".mise.toml", "deep/.git/config"];
                let all = ["notes", "sub/notes", ".envrc", "other"].into_iter();
                let all = all.flat_map(|at| names.map(|name| format!("{at}/{name}")));
                all.filter(|name| place.project(name).exists()).collect::<Vec<_>>()
            };
            assert_eq!(left(place), [""; 0], "{options:?}: {}", run.err);
            // The control, and what would be all granted in the next run.
            for (name, stays) in [("notes", true), ("sub/notes", true), ("other", true)] {
                assert_eq!(
                    place.project(name).join("plain").exists(),
                    stays,
                    "{name}: {}",
                    run.err
                );
            }
            assert!(!place.project(".envrc").is_dir(), "{options:?}: {}", run.err);
            place.shell("rm -rf notes sub .envrc other").ends(0);
        }
        // As a file it may be what it likes, and another one.
        place.file("home/project/.envrc", "host's\n");
        place.clock_moves_on();
        let write = "echo theirs > new; mv new .envrc";
        assert_eq!(place.sh(&["-w", ".envrc"], write).quiet(), "");
        assert_eq!(fs::read_to_string(place.project(".envrc")).unwrap(), "theirs\n");
        place.clock_moves_on();
        assert_eq!(place.sh(&[], "true").quiet(), "");
        assert_eq!(fs::read_to_string(place.project(".envrc")).unwrap(), "theirs\n");
    });
}

#[test]
fn what_git_keeps_for_itself_has_its_own_names_alone_and_why_knows() {
    everywhere(|place| {
        place
            .shell("mkdir -p .git/objects .git/refs n/.git; echo ref: refs/heads/m > .git/HEAD")
            .ends(0);
        let stay = [".git/modules/s/.vscode/a", "n/.git/mise.toml"];
        let go = ["n/.vscode/a", "n/mise.toml", ".git/modules/s/hooks/a"];
        let why = |file: &str| {
            place.ringfence(["why", "--tier", place.tier_name(), "--", "write", file]).code
        };
        assert_eq!(stay.map(why), [0; 2]);
        assert_eq!(go.map(why), [1; 3]);
        let files = [&stay[..], &go].concat().join(" ");
        let act = format!("for f in {files}; do mkdir -p $(dirname $f); echo > $f; done");
        let run = place.sh(&[], &act);
        for file in stay {
            assert!(place.project(file).exists(), "{file}: {}", run.err);
        }
        for file in go {
            assert!(!place.project(file).exists(), "{file}: {}", run.err);
        }
    });
}
