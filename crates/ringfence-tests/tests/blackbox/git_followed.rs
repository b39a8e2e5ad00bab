//! What git is told to run by configuration in several places: includes, words of commands, the user's own file.

use ringfence_tests::{Place, Tier, everybody, everywhere};
use std::fs;

/// Tries to add to files from inside, and returns those where that stayed; `plain`, the control, is none of them.
fn changed(place: &Place, files: &[&str]) -> Vec<String> {
    place.file("home/project/plain", "host's\n");
    place.clock_moves_on();
    let all = files.join(" ");
    let act = format!("for file in {all} plain; do echo EVIL >> $file; done 2>/dev/null; true");
    let run = place.sh(&[], &act);
    let evil = |file: &str| fs::read_to_string(place.project(file)).unwrap().contains("EVIL");
    assert!(evil("plain"), "the control: {}", run.err);
    files.iter().filter(|file| evil(file)).map(|file| (*file).to_owned()).collect()
}

#[test]
fn what_included_configuration_names_is_protected() {
    everybody(Tier::Namespace, |place| {
        place.shell("mkdir -p hk scripts .git/objects .git/refs").ends(0);
        place.file("home/project/.git/HEAD", "ref: refs/heads/main\n");
        place.file("home/project/.git/config", "[include]\n\tpath = ../.gitconfig\n");
        let text = "[core]\n\thooksPath = hk\n[filter \"f\"]\n\tsmudge = ./scripts/x %f\n\
                    [include]\n\tpath = more.cfg\n";
        place.file("home/project/.gitconfig", text);
        place.file("home/project/more.cfg", "[diff]\n\texternal = sh scripts/z\n");
        for name in ["hk/pre-commit", "scripts/x", "scripts/z"] {
            place.file(format!("home/project/{name}"), "true\n");
        }
        let files = [".gitconfig", "more.cfg", "hk/pre-commit", "scripts/x", "scripts/z"];
        assert_eq!(changed(place, &files), [""; 0]);
    });
}

#[test]
fn what_a_command_of_gits_is_given_is_protected() {
    everybody(Tier::Namespace, |place| {
        place.shell("mkdir -p scripts .git/objects .git/refs").ends(0);
        place.file("home/project/.git/HEAD", "ref: refs/heads/main\n");
        let text = "[diff]\n\texternal = sh scripts/z\n[alias]\n\tq = \"!cd . && sh 'scripts/y' a\"\n\
                    [core]\n\tsshCommand = env A=1 scripts/s\n[merge \"m\"]\n\tdriver = python3 top.py %A\n";
        place.file("home/project/.git/config", text);
        let files = ["scripts/z", "scripts/y", "scripts/s", "top.py"];
        for name in files {
            place.file(format!("home/project/{name}"), "true\n");
        }
        assert_eq!(changed(place, &files), [""; 0]);
        // What no command is given, and what a plain alias is called.
        place.file("home/project/.git/config", "[alias]\n\tst = status\n");
        place.file("home/project/status", "true\n");
        assert_eq!(changed(place, &["status", "scripts/z"]), ["status", "scripts/z"]);
    });
}

#[test]
fn the_hooks_that_the_users_configuration_names_are_not_made_inside() {
    everywhere(|place| {
        for (number, at) in ["home/.gitconfig", "home/.config/git/config"].iter().enumerate() {
            let config = place.file(at, "[core]\n\thooksPath = .myhooks\n");
            let act = "mkdir -p .myhooks sub/.myhooks .others && echo EVIL > .myhooks/pre-commit; \
                       echo EVIL > sub/.myhooks/pre-commit; echo fine > .others/file; true";
            let run = place.sh(&[], act);
            assert!(!place.project(".myhooks/pre-commit").exists(), "{at}: {}", run.err);
            assert!(!place.project("sub/.myhooks/pre-commit").exists(), "{at}: {}", run.err);
            assert!(place.project(".others/file").exists(), "the control: {}", run.err);
            // One that is there already.
            place.file("home/project/.myhooks/pre-commit", "host's");
            place.clock_moves_on();
            let run = place.sh(&[], "echo EVIL > .myhooks/pre-commit; true");
            let text = fs::read_to_string(place.project(".myhooks/pre-commit")).unwrap_or_default();
            assert_eq!(text, "host's", "{number}: {}", run.err);
            fs::remove_dir_all(place.project(".myhooks")).unwrap();
            fs::remove_file(config).unwrap();
        }
        // The control: without a word of it, the name is like any other.
        place.sh(&[], "mkdir -p .myhooks && echo mine > .myhooks/pre-commit").ends(0);
        assert!(place.project(".myhooks/pre-commit").exists());
    });
}

#[test]
fn a_worktree_that_leads_out_of_the_tree_is_judged_where_it_leads() {
    everywhere(|place| {
        let outside = place.text("outside");
        let repository =
            "mkdir -p $1/.git/objects $1/.git/refs; echo 'ref: refs/heads/m' > $1/.git/HEAD";
        let link = format!(
            "ln -s {outside} b/lnk; printf '[core]\\n\\tworktree = ../lnk\\n' > b/.git/config"
        );
        let zero = format!(
            "printf '[core]\\n\\tworktree = \"{outside}\\0/../../../../../../..%s\"\\n' $PWD/c > c/.git/config"
        );
        let inside = "printf '[core]\\n\\tworktree = ../../d\\n' > d/.git/config";
        for (name, act, stays) in
            [("b", link.as_str(), false), ("c", &zero, false), ("d", inside, true)]
        {
            let script = format!("set -- {name}; {repository}; {act}");
            let run = place.sh(&[], &script);
            let there = place.project(name).join(".git/config").exists();
            assert_eq!(there, stays, "{name}: {}{}", run.text(), run.err);
        }
    });
}

#[test]
fn a_repository_by_another_name_is_not_committed_with_what_git_would_run() {
    everybody(Tier::Namespace, |place| {
        let whole = "make() { mkdir -p $1/objects $1/refs $1/hooks; echo 'ref: refs/heads/m' > $1/HEAD; \
                     echo x > $1/hooks/$2; printf '[core]\\n\\t%s\\n' \"$3\" > $1/config; }; \
                     make evil pre-commit 'fsmonitor = ./x'; make fine pre-commit.sample 'bare = true'; \
                     mkdir -p two/objects two/refs one; echo 'ref: refs/heads/m' > one/HEAD; echo ../two > one/commondir";
        let run = place.run(&["--overlay=commit"], &["sh", "-c", whole]);
        run.says("a repository to git");
        for (name, stays) in [
            ("evil/config", false),
            ("evil/hooks/pre-commit", false),
            ("one/commondir", false),
            // The controls: what runs nothing.
            ("evil/HEAD", true),
            ("fine/config", true),
            ("fine/hooks/pre-commit.sample", true),
            ("one/HEAD", true),
        ] {
            assert_eq!(place.project(name).exists(), stays, "{name}: {}{}", run.text(), run.err);
        }
    });
}

/// What makes a directory a repository to git, and what git would run there.
const PARTS: &str = "mkdir -p store/objects store/refs; echo 'ref: refs/heads/m' > store/HEAD";
const RUNS: &str = "mkdir -p store/hooks; echo x > store/hooks/post-checkout; \
                    printf '[core]\n\tfsmonitor = ./x\n' > store/config";

#[test]
fn a_repository_by_another_name_is_not_committed_in_steps() {
    everybody(Tier::Namespace, |place| {
        for (first, second) in [(PARTS, RUNS), (RUNS, PARTS)] {
            for step in [first, second] {
                place.run(&["--overlay=commit"], &["sh", "-c", step]);
            }
            let there = |name: &str| place.project("store").join(name).exists();
            let runs = there("config") || there("hooks/post-checkout");
            assert!(!(there("HEAD") && runs), "{second}");
            // The control: the first step came, and the second one but for what is judged.
            assert!(there(if first == PARTS { "HEAD" } else { "config" }));
            assert!(there(if first == PARTS { "hooks" } else { "objects" }));
            fs::remove_dir_all(place.project("store")).unwrap();
        }
    });
}

#[test]
fn a_link_to_where_a_protected_name_is_looked_for_is_not_committed() {
    everybody(Tier::Namespace, |place| {
        place.file("home/project/.git/HEAD", "ref: refs/heads/main\n");
        let script = "mkdir evil sub; echo '{}' > evil/settings.json; ln -s evil .claude; ln -s evil plain; \
                      ln -s ../evil sub/.claude; ln -s ../evil .git/modules; ln -s evil .venv";
        let run = place.run(&["--overlay=commit"], &["sh", "-c", script]);
        run.says("it leads to where .claude/settings.json, a protected name, is looked for");
        for (name, comes) in [
            (".claude", false),
            ("sub/.claude", false),
            (".git/modules", false),
            // The controls.
            ("plain", true),
            (".venv", true),
            ("evil/settings.json", true),
        ] {
            let there = place.project(name).symlink_metadata().is_ok();
            assert_eq!(there, comes, "{name}: {}{}", run.text(), run.err);
        }
    });
}

/// The command could not have kept it: its snapshot has it still, and is reverted to when nothing judges it any more.
#[test]
fn what_git_would_run_does_not_come_back_from_a_commands_snapshot() {
    everybody(Tier::Namespace, |place| {
        let program = ringfence_tests::binary().to_str().unwrap();
        let script = format!(
            "{PARTS}; {RUNS}; mkdir sub; echo 'gitdir: ../store' > sub/.git; echo kept > plain; \
             n=0; until ln -sfn store .claude; {program} snapshot create >&2; test -L .claude; do n=$((n+1)); done; \
             echo $((n+1)); rm -rf store sub plain .claude"
        );
        // The link is taken away soon, while the command runs: in the last snapshot it is.
        let run = place.run(&["--gateway", "-r", program], &["sh", "-c", &script]);
        let last = run.ends(0).text().to_owned();
        let done = place.ringfence(["snapshot", "revert", &last]);
        done.ends(0)
            .says("store/config: config of ")
            .says("sub/.git: .git leads to a repository that is not protected; name it")
            .says(".claude: it leads to where .claude/");
        let there = |name: &str| place.project(name).symlink_metadata().is_ok();
        for (name, comes) in [
            ("store/config", false),
            ("store/hooks/post-checkout", false),
            ("sub/.git", false),
            (".claude", false),
            // The controls.
            ("store/HEAD", true),
            ("plain", true),
        ] {
            assert_eq!(there(name), comes, "{name}: {}{}", done.text(), done.err);
        }
        place.ringfence(["snapshot", "revert", &last, "--", "sub/.git"]).ends(0);
        assert!(there("sub/.git"), "the user's own word");
    });
}
