//! Programs that git's configuration names and that are not there when a run begins.

use ringfence_tests::{Place, everywhere};
use std::fs;

const REPOSITORY: &str = "mkdir -p .git/objects .git/refs .git/hooks tools; \
                          echo 'ref: refs/heads/m' > .git/HEAD";

/// What git would run, none of which is there.
const RUN: [(&str, &str); 9] = [
    ("tools/monitor", "[core]\n\tfsmonitor = tools/monitor\n"),
    ("tools/clean", "[filter \"a\"]\n\tclean = tools/clean %f\n"),
    ("new/deep/process", "[filter \"b\"]\n\tprocess = ./new/deep/process\n"),
    ("my tools/gpg", "[gpg]\n\tprogram = my tools/gpg\n"),
    ("tools/a.js", "[merge \"n\"]\n\tdriver = node tools/a.js package.json %A\n"),
    ("tools/b", "[diff \"p\"]\n\ttextconv = python3 tools/b\n"),
    ("tools/alias", "[alias]\n\ta = !cd . && ./tools/alias \\\"$1\\\"\n"),
    ("tools/top", "[alias]\n\tb = !\\\"$(git rev-parse --show-toplevel)/tools/top\\\"\n"),
    // What a link that is there leads to.
    ("tools/behind", "[diff \"q\"]\n\ttextconv = tools/link\n"),
];

/// Words of another meaning.
const NOT_RUN: [(&str, &str); 7] = [
    ("TODO.md", "[alias]\n\tc = !$EDITOR TODO.md\n"),
    ("docs/a.md", "[alias]\n\td = !make docs/a.md\n"),
    ("src/new.rs", "[alias]\n\te = !git add src/new.rs && tools/alias src/new.rs\n"),
    ("lib/in", "[alias]\n\tf = !perl -I lib /usr/bin/true\n"),
    // A directory is no program of git's.
    ("module/in", "[alias]\n\tg = !python3 module\n"),
    ("bin/tool", "[alias]\n\th = !$GOPATH/bin/tool\n"),
    ("plain", ""),
];

fn repository(place: &Place) {
    place.shell(&format!("rm -rf .git tools; {REPOSITORY}; ln -s behind tools/link")).ends(0);
    let settings = RUN.iter().chain(&NOT_RUN).map(|(_, setting)| *setting);
    place.file("home/project/.git/config", settings.collect::<String>());
    place.clock_moves_on();
}

/// Writes a file inside, with what it is in.
fn write(files: &[(&str, &str)]) -> String {
    let one = |(file, _): &(&str, &str)| {
        format!("(mkdir -p \"$(dirname '{file}')\"; echo EVIL > '{file}');")
    };
    files.iter().map(one).collect::<String>() + "true"
}

#[test]
fn what_git_would_run_is_not_made() {
    everywhere(|place| {
        let more = place.tier_name() == "namespace";
        let ways: &[&[&str]] =
            if more { &[&[], &["--strict"], &["--overlay=commit"]] } else { &[&[]] };
        for options in ways {
            repository(place);
            let all: Vec<_> = RUN.iter().chain(&NOT_RUN).copied().collect();
            let run = place.sh(options, &write(&all));
            for (file, _) in RUN {
                let there = place.project(file).symlink_metadata().is_ok();
                assert!(!there, "{file} {options:?}: {}", run.err);
            }
            for (file, _) in NOT_RUN {
                let text = fs::read_to_string(place.project(file)).unwrap_or_default();
                assert_eq!(text, "EVIL\n", "{file} {options:?}: {}", run.err);
                fs::remove_file(place.project(file)).unwrap();
            }
            match *options {
                ["--strict"] => drop(run.says("Operation not permitted")),
                [] => drop(run.says("tools/monitor was created inside and is protected")),
                _ => {}
            }
        }
    });
}

#[test]
fn what_git_would_run_is_taken_away_while_the_command_runs() {
    everywhere(|place| {
        repository(place);
        let act = "echo EVIL > tools/monitor; mkdir -p module; echo a > module/in; \
                   until [ ! -e tools/monitor ]; do sleep 0.05; done; cat module/in";
        place.sh(&[], act).ends(0).prints("a");
        assert!(place.project("module/in").exists());
    });
}

#[test]
fn a_way_to_what_git_would_run_is_not_made() {
    everywhere(|place| {
        repository(place);
        let act = "mkdir other; echo EVIL > other/process; mkdir new; ln -s ../other new/deep; \
                   echo EVIL > x; mv x tools/monitor; ln -s ../other/process tools/clean; true";
        let run = place.sh(&[], act);
        for file in ["new/deep/process", "tools/monitor", "tools/clean"] {
            let there = place.project(file).symlink_metadata().is_ok();
            assert!(!there, "{file}: {}", run.err);
        }
        assert!(place.project("other/process").exists(), "the control: {}", run.err);
    });
}

#[test]
fn why_says_so_before_it_is_made_and_a_grant_lifts_it() {
    everywhere(|place| {
        repository(place);
        let why =
            |file: &str| place.ringfence(["why", "--tier", place.tier_name(), "--", "write", file]);
        why("tools/monitor").ends(1).prints("core.fsmonitor leads to it");
        why("tools/monitor").prints("a new one does not survive the run");
        why("docs/a.md").ends(0);
        place.sh(&["-w", "?tools/monitor"], "echo mine > tools/monitor");
        assert_eq!(fs::read_to_string(place.project("tools/monitor")).unwrap(), "mine\n");
    });
}

#[test]
fn what_the_users_own_configuration_would_run_is_not_made() {
    everywhere(|place| {
        place.file(
            "home/.gitconfig",
            "[alias]\n\tz = !tools/own\n[core]\n\tfsmonitor = ~/led\n[diff]\n\texternal = ~/none\n",
        );
        place.link("home/led", "project/target");
        let act = write(&[("tools/own", ""), ("target", ""), ("plain", "")]);
        let run = place.sh(&[], &act);
        for file in ["tools/own", "target"] {
            assert!(!place.project(file).exists(), "{file}: {}", run.err);
        }
        assert!(place.project("plain").exists(), "the control: {}", run.err);
    });
}
