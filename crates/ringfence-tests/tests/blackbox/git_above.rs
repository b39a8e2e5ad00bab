//! A workspace that is a directory of a repository: what the repository above it names there, in git's configuration and
//! by links at protected names, is protected as it is from the repository's top.

use ringfence_tests::{Place, everywhere};
use std::fs;
use std::path::PathBuf;

const CONFIG: &str = "[core]\n\thooksPath = web/hk\n\tfsmonitor = web/fsm\n[include]\n\tpath = ../web/inc\n\
                      [filter \"f\"]\n\tclean = web/clean %f\n";

/// What is there in the workspace, and led to from above.
const THERE: [&str; 10] = [
    "hk/pre-commit",
    "fsm",
    "inc",
    "clean",
    "hook",
    "husky",
    "env",
    "vs/tasks.json",
    "cl/settings.json",
    "sm/pre-push",
];
/// What is not there yet.
const ABSENT: [&str; 5] =
    ["hk/post-commit", "none", "vs/launch.json", "cl/hooks/x", "sm/pre-commit"];

/// A repository with this configuration, and its directory `web` with files that say `host`.
fn repository(place: &Place, git: &str, text: &str) {
    place.shell(&format!("mkdir -p {git}/objects {git}/refs {git}/hooks")).ends(0);
    place.file(format!("home/project/{git}/HEAD"), "ref: refs/heads/m\n");
    place.file(format!("home/project/{git}/config"), text);
    for name in THERE {
        let text = if name == "inc" { "[a]\n\thost = 1\n" } else { "host\n" };
        place.file(format!("home/project/web/{name}"), text);
    }
}

fn links(place: &Place) {
    for (link, target) in [
        (".husky/pre-push", "../web/husky"),
        (".envrc", "web/env"),
        ("mise.toml", "web/none"),
        (".vscode", "web/vs"),
        (".claude", "web/cl"),
    ] {
        place.link(format!("home/project/{link}"), target);
    }
}

/// Those of some files in `web` where what a run there writes stays; `plain` and `more/plain`, the controls, are none.
fn changed(place: &Place, options: &[&str], files: &[&str]) -> Vec<String> {
    place.clock_moves_on();
    let act = format!(
        "for file in {} plain more/plain; do mkdir -p $(dirname $file); echo EVIL >> $file; done; true",
        files.join(" ")
    );
    let run = place.sh(&[&["--workdir", "web"], options].concat(), &act);
    let evil = |file: &str| {
        let text = fs::read_to_string(place.project("web").join(file));
        text.is_ok_and(|text| text.contains("EVIL"))
    };
    assert!(evil("plain") && evil("more/plain"), "the controls: {}", run.err);
    place.shell("rm -r web/plain web/more").ends(0);
    files.iter().filter(|file| evil(file)).map(|file| (*file).to_owned()).collect()
}

fn ways(place: &Place) -> &'static [&'static [&'static str]] {
    let namespace = place.tier_name() == "namespace";
    if namespace { &[&[], &["--strict"], &["--overlay=commit"]] } else { &[&[]] }
}

#[test]
fn what_the_repository_above_names_is_not_changed() {
    everywhere(|place| {
        repository(place, ".git", CONFIG);
        links(place);
        place.link("home/project/.git/hooks/pre-commit", "../../web/hook");
        let module = "home/project/.git/modules/sub";
        place.file(format!("{module}/HEAD"), "ref: refs/heads/m\n");
        let text = "[core]\n\tworktree = ../../../sub\n\thooksPath = ../web/sm\n";
        place.file(format!("{module}/config"), text);
        for options in ways(place) {
            assert_eq!(changed(place, options, &THERE), [""; 0], "{options:?}");
            assert_eq!(changed(place, options, &ABSENT), [""; 0], "{options:?}");
            for name in THERE {
                let text = fs::read_to_string(place.project("web").join(name)).unwrap();
                assert!(text.contains("host"), "{name} {options:?}");
            }
        }
        if place.tier_name() == "namespace" {
            let run = place.sh(&["--workdir", "web"], "echo x > fsm; mv hk hk2; rm vs/tasks.json");
            run.says("fsm: Read-only file system").says("Device or resource busy");
        }
        // Who grants what is named means it.
        assert_eq!(changed(place, &["-w", "fsm"], &["fsm", "env"]), ["fsm"]);
    });
}

#[test]
fn why_says_what_leads_to_it_from_above() {
    everywhere(|place| {
        repository(place, ".git", CONFIG);
        links(place);
        let why = |name: &str| {
            let path = place.text(format!("home/project/web/{name}"));
            let words = ["why", "--tier", place.tier_name(), "--workdir", "web", "--", "write"];
            place.ringfence(words.into_iter().chain([&*path]))
        };
        for (name, by) in [
            ("fsm", "core.fsmonitor leads to it"),
            ("hk/pre-commit", "core.hookspath leads to it"),
            ("hk/new", "core.hookspath leads to it"),
            ("env", ".envrc leads to it"),
            ("vs/new", ".vscode leads to it"),
        ] {
            why(name).ends(1).prints("denied").prints(by);
        }
        why("plain").ends(0).prints("allowed");
    });
}

/// A plan that was made before is not used after a change above the workspace.
#[test]
fn what_is_named_above_between_two_runs_counts_in_the_next() {
    everywhere(|place| {
        repository(place, ".git", "[core]\n\tbare = false\n");
        let steps: [(&str, &dyn Fn() -> PathBuf); 5] = [
            ("fsm", &|| place.file("home/project/.git/config", CONFIG)),
            ("env", &|| place.link("home/project/.envrc", "web/env")),
            ("vs/tasks.json", &|| place.link("home/project/.vscode", "web/vs")),
            ("hook", &|| place.link("home/project/.git/hooks/pre-commit", "../../web/hook")),
            ("husky", &|| place.link("home/project/.husky/pre-push", "../web/husky")),
        ];
        for (file, name) in steps {
            // Two, so that there is a plan to be used again.
            for _ in 0..2 {
                assert_eq!(changed(place, &[], &[file]), [file], "the control");
                place.file(format!("home/project/web/{file}"), "host\n");
            }
            name();
            assert_eq!(changed(place, &[], &[file]), [""; 0]);
        }
        // A repository that comes to be further up.
        place.file("home/project/web/top", "host\n");
        assert_eq!(changed(place, &[], &["top"]), ["top"]);
        place.file("home/.git/config", "[core]\n\tfsmonitor = project/web/top\n");
        place.file("home/project/web/top", "host\n");
        assert_eq!(changed(place, &[], &["top"]), [""; 0]);
    });
}

/// The repository above is a worktree of one elsewhere, or the workspace itself is.
#[test]
fn what_the_repository_of_a_worktree_leads_to_is_not_changed() {
    everywhere(|place| {
        let elsewhere = "../elsewhere/.git";
        let own = format!("{elsewhere}/worktrees/w");
        for (dot_git, name) in [("project/.git", "fsm"), ("project/web/.git", "clean")] {
            let config = CONFIG.replace("web/", if name == "fsm" { "web/" } else { "./" });
            repository(place, elsewhere, &config);
            place.file(format!("home/project/{own}/commondir"), "../..\n");
            let target = place.text("home/elsewhere/.git/worktrees/w");
            let file = place.file(format!("home/{dot_git}"), format!("gitdir: {target}\n"));
            place.link("home/elsewhere/.git/hooks/pre-push", place.project("web/hook"));
            let files = ["hk/pre-commit", "hk/new", name, "hook"];
            assert_eq!(changed(place, &[], &files), [""; 0], "{dot_git}");
            // The control: nothing leads to it.
            fs::remove_file(file).unwrap();
            fs::remove_dir_all(place.at("home/elsewhere")).unwrap();
            assert_eq!(changed(place, &[], &files), files, "{dot_git}");
            for name in THERE {
                place.file(format!("home/project/web/{name}"), "host\n");
            }
            place.shell("rm -f web/hk/new").ends(0);
        }
    });
}

/// The user's own configuration counts in repositories further down too.
#[test]
fn what_the_users_configuration_names_in_each_repository_does_not_stay() {
    everywhere(|place| {
        place.shell("mkdir -p sub/.git/objects sub/.git/refs sub/ci/hooks plain/ci/hooks").ends(0);
        place.file("home/project/sub/.git/HEAD", "ref: refs/heads/m\n");
        place.file("home/project/sub/.git/config", "[core]\n\tbare = false\n");
        let files = ["ci/hooks/pre-commit", "tools/fsm"];
        let changed = |options: &[&str]| {
            for at in ["sub", "plain"] {
                place.file(format!("home/project/{at}/tools/fsm"), "host\n");
            }
            place.clock_moves_on();
            let act = "for d in sub plain; do echo EVIL > $d/ci/hooks/pre-commit; echo EVIL > $d/tools/fsm; done";
            let run = place.sh(options, act);
            let evil = |at: &str, file: &str| {
                let text = fs::read_to_string(place.project(at).join(file));
                text.is_ok_and(|text| text.contains("EVIL"))
            };
            // The control: what is in no repository is called as it likes.
            assert!(files.iter().all(|file| evil("plain", file)), "{}", run.err);
            files.map(|file| evil("sub", file))
        };
        assert_eq!(changed(&[]), [true, true], "the control");
        place.shell("rm */ci/hooks/pre-commit").ends(0);
        let own = "[core]\n\thooksPath = ci/hooks\n\tfsmonitor = ./tools/fsm\n";
        place.file("home/.gitconfig", own);
        for options in ways(place) {
            assert_eq!(changed(options), [false, false], "{options:?}");
        }
    });
}
