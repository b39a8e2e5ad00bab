//! Names that hosts execute or trust, inside writable trees: existing ones cannot be changed,
//! created ones do not survive, and the ordinary use of the programs they belong to works.

use ringfence_tests::{Finished, Place, Tier, everybody, everywhere};
use std::fs;

/// Names of every kind that the list holds, with what a program would put there.
const NAMES: [&str; 28] = [
    ".envrc",
    ".vscode/tasks.json",
    ".idea/workspace.xml",
    ".husky/pre-commit",
    ".pre-commit-config.yaml",
    ".devcontainer/devcontainer.json",
    ".mcp.json",
    ".claude/settings.json",
    ".cursor/mcp.json",
    ".gdbinit",
    ".vimrc",
    ".exrc",
    ".nvim.lua",
    ".dir-locals.el",
    ".npmrc",
    ".yarnrc.yml",
    ".corepack.env",
    ".cargo/config.toml",
    "mise.toml",
    ".git/hooks/pre-commit",
    ".hg/hgrc",
    ".bzr/branch/branch.conf",
    ".fslckout-journal",
    "bin/hermit",
    ".obsidian/plugins/evil/main.js",
    "x.kdev4",
    ".zed/settings.json",
    "project.code-workspace",
];

/// The first component: what must not be on the host afterwards.
fn first(name: &str) -> &str {
    name.split('/').next().unwrap()
}

fn create(name: &str) -> String {
    let directory = name.rsplit_once('/').map_or(".", |(directory, _)| directory);
    format!("mkdir -p '{directory}' && echo inside > '{name}'; ")
}

#[test]
fn what_exists_cannot_be_changed() {
    everybody(Tier::Namespace, |place| {
        for name in NAMES {
            place.file(format!("home/project/{name}"), "host's");
        }
        place.clock_moves_on();
        for name in NAMES {
            let outcome = place.sh(&[], &format!("cat '{name}' && echo inside > '{name}'"));
            assert_ne!(outcome.code, 0, "{name} was written");
            assert_eq!(outcome.text(), "host's", "{name} can be read");
            outcome.says("Read-only file system");
            for act in [
                format!("rm -f '{name}'"),
                format!("mv '{name}' elsewhere"),
                format!("ln -f /etc/passwd '{name}'"),
            ] {
                assert_ne!(place.sh(&[], &act).code, 0, "{act}");
            }
            assert_eq!(fs::read_to_string(place.project(name)).unwrap(), "host's", "{name}");
        }
    });
}

#[test]
fn what_was_made_just_before_the_run_is_the_hosts() {
    everywhere(|place| {
        for (number, name) in NAMES.iter().enumerate() {
            let name = format!("d{number}/{name}");
            place.file(format!("home/project/{name}"), "host's");
            let outcome = place.run(&[], &["true"]);
            assert!(place.project(&name).exists(), "{name}: {}", outcome.err);
        }
    });
}

#[test]
fn what_exists_is_as_before_in_the_process_tier_too() {
    everybody(Tier::Process, |place| {
        for name in NAMES {
            place.file(format!("home/project/{name}"), "host's");
        }
        place.clock_moves_on();
        let all: String =
            NAMES.iter().map(|name| format!("rm -f '{name}'; echo inside > '{name}'; ")).collect();
        let outcome = place.sh(&[], &format!("{all} true"));
        outcome.ends(0);
        for name in NAMES {
            let now = fs::read_to_string(place.project(name)).unwrap_or_default();
            assert_eq!(now, "host's", "{name}: {}", outcome.err);
        }
    });
}

#[test]
fn what_is_created_does_not_survive_and_leaves_no_ghost() {
    everywhere(|place| {
        place.shell("git init -q . 2>/dev/null || mkdir -p .git/hooks").ends(0);
        for name in NAMES {
            let outcome = place.sh(&[], &format!("{} cat '{name}'", create(name)));
            if outcome.code == 0 {
                outcome.says(first(name)).says("protected");
            }
            assert!(!place.project(name).exists(), "{name}");
        }
        // All at once, deep down, and by a link.
        let deep: String = NAMES.iter().map(|name| create(&format!("deep/er/{name}"))).collect();
        place
            .sh(&[], &format!("mkdir -p deep/er/.git; echo x > deep/er/file; {deep} true"))
            .ends(0);
        for name in NAMES {
            assert!(!place.project("deep/er").join(name).exists(), "deep/er/{name} survived");
        }
        assert!(place.project("deep/er/file").exists(), "the rest stays");
        place.sh(&[], "mkdir real; echo x > real/tasks.json; ln -s real .vscode").ends(0);
        assert!(place.project(".vscode").symlink_metadata().is_err());
    });
}

#[test]
fn a_run_that_makes_nothing_protected_says_and_does_nothing() {
    everywhere(|place| {
        place
            .sh(&[], "mkdir src; echo x > src/main.rs; echo y > README; mv README READ; rm READ")
            .quiet();
        let left: Vec<_> = fs::read_dir(place.project(""))
            .unwrap()
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        assert_eq!(left, ["src"]);
    });
}

#[test]
fn parents_of_what_is_protected_cannot_be_renamed_away() {
    everybody(Tier::Namespace, |place| {
        place.file("home/project/.git/hooks/pre-commit", "host's");
        place.file("home/project/.git/config", "[core]\n");
        place.file("home/project/.claude/settings.json", "{}");
        for act in
            ["mv .git x", "mv .claude x", "python3 -c 'import os; os.rename(\".git\", \"x\")'"]
        {
            let outcome = place.sh(&[], act);
            assert!(
                outcome.code != 0 && outcome.err.contains("busy"),
                "{act}: {} {}",
                outcome.code,
                outcome.err
            );
        }
        place.sh(&[], "mv .git x; cp -r x .git; echo inside > .git/hooks/pre-commit; true");
        assert_eq!(fs::read_to_string(place.project(".git/hooks/pre-commit")).unwrap(), "host's");
    });
    everybody(Tier::Process, |place| {
        place.file("home/project/.git/hooks/pre-commit", "host's");
        place
            .sh(&[], "mv .git x; mkdir -p .git/hooks; echo inside > .git/hooks/pre-commit; true")
            .ends(0);
        let now = fs::read_to_string(place.project(".git/hooks/pre-commit")).unwrap_or_default();
        assert!(!now.contains("inside"), "{now}");
    });
}

#[test]
fn a_link_in_the_place_of_something_protected_is_not_followed() {
    everywhere(|place| {
        place.directory("home/project/real");
        place.link("home/project/.vscode", "real");
        place.file("home/project/real/tasks.json", "host's");
        place.sh(&[], "rm .vscode; mkdir .vscode; echo inside > .vscode/tasks.json; true").ends(0);
        let link = place.project(".vscode");
        assert!(link.is_symlink(), "the link is back");
        assert_eq!(fs::read_link(&link).unwrap().to_str(), Some("real"));
        // A link out of the tree leads nothing out of it.
        place.link("home/project/.idea", place.at("outside"));
        place.sh(&[], "rm .idea; ln -s /etc .idea; true").ends(0);
        assert_eq!(fs::read_link(place.project(".idea")).unwrap(), place.at("outside"));
        assert_eq!(fs::read_to_string(place.at("outside/secret")).unwrap(), "a secret\n");
    });
}

const IDENTITY: &str =
    "git config --global user.name n; git config --global user.email e@example.org;
git config --global init.defaultBranch main;";

/// Git as this person would set it up on the host.
fn with_git(place: &Place) -> bool {
    if !place.has("git", "--version") {
        return false;
    }
    place
        .shell(&format!(
            "{IDENTITY} git init -q . && echo one > file && git add file && git commit -qm one"
        ))
        .ends(0);
    true
}

#[track_caller]
fn works(outcome: &Finished) {
    outcome.ends(0);
}

#[test]
fn git_works_in_an_existing_repository() {
    everywhere(|place| {
        if !with_git(place) {
            return;
        }
        works(&place.sh(
            &[],
            "git status --short && echo two >> file && git commit -qam two && git log --oneline",
        ));
        works(&place.sh(&[], "git checkout -q -b side && git commit -q --allow-empty -m three && git checkout -q main && git merge -q side"));
        works(&place.sh(
            &[],
            "git stash list && git gc -q && git fsck --no-progress && git diff HEAD~1 --stat",
        ));
        let log = place.shell("git log --format=%s && git fsck").well();
        assert!(log.starts_with("three\ntwo\none"), "{log}");
        // What would run on the host later is refused, and nothing of it is left.
        for act in [
            "git config core.hooksPath x",
            "git config core.fsmonitor ./x",
            "git config alias.st '!x'",
            "echo x > .git/hooks/pre-commit",
            "git config filter.x.clean x",
        ] {
            let before = fs::read(place.project(".git/config")).unwrap();
            let outcome = place.sh(&[], act);
            assert_eq!(
                fs::read(place.project(".git/config")).unwrap(),
                before,
                "{act}: {}",
                outcome.err
            );
            assert!(!place.project(".git/hooks/pre-commit").exists(), "{act}");
        }
    });
}

#[test]
fn git_makes_and_clones_repositories_inside() {
    everywhere(|place| {
        if !with_git(place) {
            return;
        }
        works(
            &place.sh(
                &[],
                "git init -q new && cd new && echo x > f && git add f && git commit -qm x",
            ),
        );
        assert!(
            place.project("new/.git/config").exists() && place.project("new/.git/HEAD").exists()
        );
        works(&place.sh(&[], "git clone -q . copy && cd copy && git log --oneline"));
        assert_eq!(
            place.shell("git -C copy log --format=%s && git -C new log --format=%s").well(),
            "one\nx"
        );
        assert!(place.project("copy/.git/config").exists(), "a harmless configuration survives");
        // One that runs something does not.
        place.sh(&[], "git init -q bad && git -C bad config core.fsmonitor ./x; true").ends(0);
        let config = fs::read_to_string(place.project("bad/.git/config")).unwrap_or_default();
        assert!(!config.contains("fsmonitor"), "{config}");
        place.sh(&[], "git init -q hooked && echo x > hooked/.git/hooks/pre-commit && chmod +x hooked/.git/hooks/pre-commit; true").ends(0);
        assert!(!place.project("hooked/.git/hooks/pre-commit").exists());
    });
}

#[test]
fn nested_repositories_are_protected_too() {
    everywhere(|place| {
        if !with_git(place) {
            return;
        }
        place.shell("git init -q nested/deep").ends(0);
        let before = fs::read_to_string(place.project("nested/deep/.git/config")).unwrap();
        place.sh(&[], "git -C nested/deep config core.fsmonitor ./x; echo x > nested/deep/.git/hooks/post-checkout; true");
        let config =
            fs::read_to_string(place.project("nested/deep/.git/config")).unwrap_or_default();
        assert!(!config.contains("fsmonitor"), "{config}, before: {before}");
        assert!(!place.project("nested/deep/.git/hooks/post-checkout").exists());
        works(&place.sh(&[], "cd nested/deep && echo x > f && git add f && git commit -qm x"));
    });
}

#[test]
fn worktrees_work_and_their_repository_is_protected() {
    everywhere(|place| {
        if !with_git(place) {
            return;
        }
        place.shell("git worktree add -q ../tree").ends(0);
        let mut command = place.ringfence_run();
        command.current_dir(place.at("home/tree"));
        command.args(["--", "sh", "-c", "git status --short && echo x > g && git add g && git commit -qm tree && git log --oneline"]);
        let outcome = ringfence_tests::Running::start(command).finish();
        works(&outcome);
        let mut command = place.ringfence_run();
        command.current_dir(place.at("home/tree"));
        command.args(["--", "sh", "-c", "git config core.fsmonitor ./x; echo x > $(git rev-parse --git-common-dir)/hooks/pre-commit; true"]);
        ringfence_tests::Running::start(command).finish();
        assert!(!fs::read_to_string(place.project(".git/config")).unwrap().contains("fsmonitor"));
        assert!(!place.project(".git/hooks/pre-commit").exists());
    });
}

#[test]
fn writing_what_is_protected_is_possible_when_exactly_that_is_named() {
    everybody(Tier::Namespace, |place| {
        place.file("home/project/.vscode/tasks.json", "host's");
        place.sh(&["-w", ".vscode"], "echo inside > .vscode/tasks.json").ends(0);
        assert_eq!(fs::read_to_string(place.project(".vscode/tasks.json")).unwrap(), "inside\n");
        place.sh(&["-w", "."], "echo again > .vscode/tasks.json").ends(2);
        assert_eq!(fs::read_to_string(place.project(".vscode/tasks.json")).unwrap(), "inside\n");
    });
}

#[test]
fn what_was_taken_away_is_kept_for_the_user() {
    everybody(Tier::Namespace, |place| {
        let outcome = place.sh(&[], "mkdir .vscode && echo precious > .vscode/tasks.json");
        outcome.ends(0).says("moved to");
        let kept = outcome.err.split("moved to ").nth(1).unwrap().trim();
        // On a machine that is busy it was taken away while the command ran, file by file.
        let kept = kept.lines().next().unwrap().trim_end_matches(" while the command ran");
        let kept = std::path::Path::new(kept).parent().unwrap();
        assert!(kept.starts_with(place.at("home")), "{}", kept.display());
        let text = place.shell(&format!("find {} -type f -exec cat {{}} +", kept.display()));
        assert_eq!(text.well(), "precious");
    });
}

/// The command waits, and the name is gone: nothing but the launcher can have taken it.
#[test]
fn protected_names_that_are_made_are_gone_while_the_command_runs() {
    everywhere(|place| {
        place.directory("home/project/way");
        let gone = |path: &str| format!("while test -e {path}; do :; done; echo gone {path}");
        let script = [
            "echo evil > .envrc".to_owned(),
            gone(".envrc"),
            // A directory stays while the command runs, what is in it does not.
            "mkdir -p .vscode/deep; echo evil > .vscode/deep/x; echo evil > .vscode/tasks.json"
                .into(),
            gone(".vscode/deep/x"),
            gone(".vscode/tasks.json"),
            "echo evil > beside; ln beside .mcp.json".into(),
            gone(".mcp.json"),
            "echo evil > way/named".into(),
            gone("way/named"),
            // Moved into place, and as a link.
            "mkdir made; echo evil > made/tasks.json; mv made/tasks.json .vscode/tasks.json".into(),
            gone(".vscode/tasks.json"),
            "ln -s /etc/passwd .envrc".into(),
            "while test -L .envrc; do :; done; echo gone link".into(),
            "git init -q . && mkdir -p .git/hooks".into(),
            "echo '#!/bin/sh' > .git/hooks/pre-commit; echo ok > .git/hooks/fine.sample".into(),
            gone(".git/hooks/pre-commit"),
            "echo fine > ordinary; echo end".into(),
        ]
        .join("\n");
        let run = place.sh(&["--protect", "way/named"], &script);
        assert!(run.ends(0).text().ends_with("end"), "{}", run.text());
        let said = run.err.lines().filter(|line| line.contains("while the command ran")).count();
        assert_eq!(said, 8, "{}", run.err);
        // What is kept is what was there, each by itself; links lead nowhere.
        let kept = place.at("home/.local/state/ringfence/quarantine");
        let session = fs::read_dir(&kept).unwrap().next().unwrap().unwrap().path();
        let mut names: Vec<String> = fs::read_dir(session)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names.len(), 9, "and the directory: {names:?}");
        assert!(!place.project(".vscode").exists());
        assert!(place.project(".git/hooks/fine.sample").exists());
        assert_eq!(fs::read_to_string(place.project("ordinary")).unwrap(), "fine\n");
        let log = place.ringfence(["logs", "latest", "--denied"]).quiet();
        assert_eq!(log.lines().count(), 9, "{log}");
    });
}

/// Who makes the name goes on changing what it is, so that what is taken could be something else.
#[test]
fn what_is_taken_away_at_once_is_never_something_elsewhere() {
    everywhere(|place| {
        place.file("outside/tasks.json", "mine\n");
        place.file("outside/.envrc", "mine\n");
        let outside = place.text("outside");
        let script = format!(
            "n=0; while test $n -lt 50; do n=$((n+1)); mkdir .vscode 2>/dev/null; \
             echo evil > .vscode/tasks.json; mv .vscode away$n; ln -s {outside} .vscode; \
             rm .vscode; ln -s {outside}/.envrc .envrc; rm -f .envrc; mkfifo .envrc; rm -f .envrc; done \
             2>/dev/null; sleep 0.1; echo end"
        );
        let run = place.sh(&[], &script);
        assert!(run.text().ends_with("end"), "{} {}", run.text(), run.err);
        for name in ["tasks.json", ".envrc"] {
            let text = fs::read_to_string(place.at("outside").join(name)).unwrap();
            assert_eq!(text, "mine\n", "{name}");
        }
        assert!(!place.project(".vscode/tasks.json").exists());
        assert!(place.project(".envrc").symlink_metadata().is_err());
    });
}
