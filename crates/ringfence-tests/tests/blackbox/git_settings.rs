//! `--feature git-settings`: what git itself writes into a repository's configuration stays, what makes git run
//! something is after the run what it was.

use ringfence_tests::{Place, Running, everywhere};
use std::fs;

const FEATURE: [&str; 2] = ["--feature", "git-settings"];

/// A repository with an upstream in it, and a setting that runs something.
fn repository(place: &Place) -> bool {
    if !place.has("git", "--version") {
        return false;
    }
    let commit = "-c user.name=a -c user.email=a@b commit -q --allow-empty -m one";
    place
        .shell(&format!(
            "git init -q -b main . && git config alias.hi '!echo hi' && git {commit} && \
             git clone -q --bare . up && git -C up branch feature"
        ))
        .ends(0);
    true
}

fn config(place: &Place) -> String {
    fs::read_to_string(place.project(".git/config")).unwrap_or_default()
}

/// What git does every day with its configuration.
const EVERYDAY: &str = "git config user.name Ada && git remote add origin ./up && git fetch -q && \
    git checkout -q -b topic --track origin/feature && git branch -m topic renamed && \
    git push -q -u origin renamed";

#[test]
fn what_git_writes_stays() {
    everywhere(|place| {
        if !repository(place) {
            return;
        }
        let before = config(place);
        assert_ne!(place.sh(&[], "git config user.name Ada && git push -q -u ./up").code, 0);
        assert_eq!(config(place), before, "without the feature nothing stays");

        assert_eq!(place.sh(&FEATURE, EVERYDAY).ends(0).quiet(), "");
        let now = config(place);
        for part in ["name = Ada", "[remote \"origin\"]", "[branch \"renamed\"]", "hi = !echo hi"] {
            assert!(now.contains(part), "{part}: {now}");
        }
        place.shell("git hi && git status -s").ends(0).prints("hi");
    });
}

#[test]
fn what_makes_git_run_something_is_what_it_was() {
    everywhere(|place| {
        if !repository(place) {
            return;
        }
        place.file("home/project/bad", "[core]\n\tfsmonitor = ./x\n");
        let acts = [
            "git config core.fsmonitor ./x",
            "git config user.name x && git config alias.hi '!echo bad'",
            "git config --add alias.hi '!echo bad'",
            "git config --unset alias.hi",
            "git config include.path ../bad",
            "git config includeIf.gitdir:/.path ../bad",
            "git config core.worktree /",
            "printf '[core]\\n\\tfsmonitor = ./x\\n[alias]\\n\\thi = !echo hi\\n' > .git/config",
            "printf '[core]\\n\\tfsmonitor\\\\\\n = ./x\\n' >> .git/config",
            "printf '\\377\\n' >> .git/config",
            "echo '[' >> .git/config",
            "rm .git/config",
            "cp .git/config c && rm .git/config && ln -s ../c .git/config",
            "rm .git/config && mkdir .git/config",
            "rm .git/config && mkfifo .git/config",
        ];
        for (number, act) in acts.into_iter().enumerate() {
            // The host goes on meanwhile: what is put back is what was there last.
            place.shell(&format!("git config user.email {number}@example.org")).ends(0);
            let before = config(place);
            assert!(before.contains(&format!("{number}@")), "{before}");
            let outcome = place.sh(&FEATURE, &format!("{act}; echo done"));
            outcome.ends(0).prints("done");
            assert_eq!(config(place), before, "{act}: {}", outcome.err);
            let data = place.project(".git/config").symlink_metadata().unwrap();
            assert!(data.is_file(), "{act}");
            outcome.says("restored");
        }
        // Hooks and the like are held as ever.
        let act = "echo x > .git/hooks/pre-commit; echo x > .envrc; true";
        place.sh(&FEATURE, act);
        assert!(!place.project(".git/hooks/pre-commit").exists());
        assert!(!place.project(".envrc").exists());
    });
}

#[test]
fn worktrees_and_submodules_have_it_too() {
    everywhere(|place| {
        if !repository(place) {
            return;
        }
        place.shell("git worktree add -q ../tree").ends(0);
        let inside = |script: &str| {
            let mut command = place.ringfence_run();
            command.current_dir(place.at("home/tree")).args(FEATURE);
            command.args(["--", "sh", "-c", script]);
            Running::start(command).finish()
        };
        inside("git config user.name Ada").ends(0);
        assert!(config(place).contains("Ada"));
        inside("git config core.sshCommand ./x").ends(0);
        assert!(!config(place).contains("sshCommand"));

        let add = "git -c protocol.file.allow=always submodule --quiet add ./up lib && \
                   git -C lib config user.name Ada";
        place.sh(&FEATURE, add).ends(0);
        assert!(config(place).contains("[submodule \"lib\"]"));
        assert!(place.project(".gitmodules").exists());
        let module = || fs::read_to_string(place.project(".git/modules/lib/config")).unwrap();
        assert!(module().contains("Ada"), "{}", module());
        place.sh(&FEATURE, "git -C lib config user.name Eve").ends(0);
        assert!(module().contains("Eve"), "{}", module());
        place.sh(&FEATURE, "git -C lib config core.pager ./x; git -C lib config core.worktree /");
        assert!(!module().contains("pager") && !module().contains("worktree = /"), "{}", module());
    });
}

#[test]
fn why_says_so() {
    everywhere(|place| {
        if !repository(place) {
            return;
        }
        place
            .ringfence(["why", "--tier", place.tier_name(), "--", "write", ".git/config"])
            .ends(1)
            .prints("--feature git-settings");
        let mut words = vec!["why", "--tier", place.tier_name()];
        words.extend(FEATURE);
        words.extend(["--", "write", ".git/config"]);
        let told = place.ringfence(words).ends(0).text();
        assert!(told.contains("what makes git run something is what it was"), "{told}");
        assert!(!told.contains("--feature"), "it is given: {told}");
    });
}

#[test]
fn another_name_of_a_configuration_is_no_way_to_write_it_later() {
    everywhere(|place| {
        if !place.has("git", "--version") {
            return;
        }
        let make = "git init -q . && ln .git/config kept && \
                    mkdir deep && git init -q deep/er && ln deep/er/.git/config kept2";
        place.sh(&[], make).ends(0);
        assert!(config(place).contains("[core]"), "a harmless one stays");
        let evil = "for f in kept kept2; do printf '[alias]\\n\\thi = !x\\n' >> $f && cat $f; done";
        place.sh(&[], evil).ends(0).prints("hi = !x");
        let deep = fs::read_to_string(place.project("deep/er/.git/config")).unwrap();
        assert!(!config(place).contains("!x") && !deep.contains("!x"), "{}{deep}", config(place));

        // With the feature the configuration has a name that can be linked.
        place.sh(&FEATURE, "git config user.name Ada && ln .git/config .git/again").ends(0);
        place.sh(&[], "printf '[alias]\\n\\thi = !x\\n' >> .git/again").ends(0);
        assert!(config(place).contains("Ada") && !config(place).contains("!x"));
        place.sh(&FEATURE, "ln .git/config .git/more").ends(0);
        place.sh(&[], "printf '[alias]\\n\\thi = !x\\n' >> .git/more; true").ends(0);
        assert!(!config(place).contains("!x"), "{}", config(place));
    });
}

#[test]
fn a_remote_in_the_tree_is_pushed_to() {
    everywhere(|place| {
        if !repository(place) {
            return;
        }
        place.shell("git remote add origin ./up").ends(0);
        let push =
            place.sh(&[], "git push -q origin HEAD:other && git fetch -q && git ls-remote -q .");
        assert!(push.quiet().contains("refs/remotes/origin/other"));
        place.shell("git -C up rev-parse other").ends(0);
    });
}

#[test]
fn git_works_in_a_submodules_directory() {
    everywhere(|place| {
        if !repository(place) {
            return;
        }
        let made = place.shell(
            "git init -q ../lib && git -C ../lib -c user.name=a -c user.email=a@b commit -q --allow-empty -m one && \
             git -c protocol.file.allow=always submodule add -q \"$PWD/../lib\" sub",
        );
        made.ends(0);
        let inside = |script: &str| {
            let mut command = place.ringfence_run();
            command.current_dir(place.project("sub"));
            command.args(["--", "sh", "-c", script]);
            Running::start(command).finish()
        };
        let commit = "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m two && git log --format=%s";
        assert_eq!(inside(commit).text(), "two\none");
        // The rest of the repository is not there, and what git outside runs does not stay.
        let run = inside(
            "cat ../.git/HEAD; echo 'echo EVIL' > ../.git/modules/sub/hooks/post-commit; \
             git config core.sshCommand ./x; true",
        );
        assert_eq!(run.text(), "", "{}", run.err);
        let config = fs::read_to_string(place.project(".git/modules/sub/config")).unwrap();
        assert!(!config.contains("sshCommand"), "{config}");
        assert!(!place.project(".git/modules/sub/hooks/post-commit").exists());
    });
}

/// Addresses that git puts together, for which it runs what they say: of a repository that a run made, and of the user's.
#[test]
fn an_address_that_git_puts_together_runs_nothing() {
    everywhere(|place| {
        if !place.has("git", "--version") {
            return;
        }
        let ran = place.at("home").join("ran");
        let evil = |way: &str| {
            let rewritten = format!("x:sh -c touch% {}", ran.display());
            let (base, of, url) = match way {
                "rewritten" => ("ext:", "x", rewritten.as_str()),
                "scheme" => ("https://a.test/", "nothing", "ext://evil"),
                _ => unreachable!(),
            };
            format!(
                "[protocol \"ext\"]\n\tallow = user\n[url \"{base}\"]\n\tinsteadOf = {of}\n\
                 [remote \"o\"]\n\turl = {url}\n"
            )
        };
        for way in ["rewritten", "scheme"] {
            place.file("home/project/more", evil(way));
            place.file("home/project/ext:/evil", format!("#!/bin/sh\ntouch {}\n", ran.display()));
            place.shell("chmod +x ext:/evil").ends(0);
            let make =
                "rm -rf sub; git init -q sub && cat more >> sub/.git/config && cp -r ext: sub/";
            let fetch = "cd sub && git fetch o; true";
            place.shell(&format!("{make}; {fetch}")).ends(0);
            assert!(ran.exists(), "the control: {way} runs something");
            fs::remove_file(&ran).unwrap();
            place.clock_moves_on();
            let run = place.sh(&[], make);
            place.shell(fetch).ends(0);
            assert!(!ran.exists() && run.err.contains("sub/.git/config"), "{way}: {}", run.err);
        }
    });
}
