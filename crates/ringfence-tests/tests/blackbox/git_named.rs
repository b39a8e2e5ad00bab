//! What git runs because a configuration names it, below the top of a tree and where the configuration is not at the usual
//! place: nested repositories, worktrees, submodules. And repositories where git keeps other things.

use ringfence_tests::{Place, Tier, everybody, everywhere};
use std::fs;
use std::os::unix::fs::PermissionsExt;

const PARTS: &str = "make() { mkdir -p $1/objects $1/refs; echo 'ref: refs/heads/m' > $1/HEAD; }; ";
const AS_SOMEBODY: &str = "-c user.name=a -c user.email=a@b";

/// A repository in `sub` with this configuration, and files in it.
fn nested(place: &Place, text: &str, files: &[&str]) {
    place.shell(&format!("{PARTS} make sub/.git; mkdir sub/.git/hooks")).ends(0);
    place.file("home/project/sub/.git/config", text);
    for name in files {
        place.file(format!("home/project/sub/{name}"), "host's\n");
    }
    place.file("home/project/sub/plain", "host's\n");
    place.clock_moves_on();
}

/// Those of some files in `sub` where what a run writes there stays; `plain`, the control, is none of them.
fn changed(place: &Place, options: &[&str], files: &[&str]) -> Vec<String> {
    let act = format!(
        "cd sub; for file in {} plain; do mkdir -p $(dirname $file); echo EVIL >> $file; done; true",
        files.join(" ")
    );
    let run = place.sh(options, &act);
    let evil = |file: &str| {
        let text = fs::read_to_string(place.project("sub").join(file));
        text.is_ok_and(|text| text.contains("EVIL"))
    };
    assert!(evil("plain"), "the control: {}", run.err);
    files.iter().filter(|file| evil(file)).map(|file| (*file).to_owned()).collect()
}

const NAMES: &str = "[core]\n\thooksPath = scripts/h\n[filter \"c\"]\n\tclean = ./tools/clean %f\n\
                     [include]\n\tpath = ../tools/inc\n";

#[test]
fn what_a_nested_repository_names_does_not_stay() {
    everywhere(|place| {
        let strict = place.tier_name() == "namespace";
        let ways: &[&[&str]] =
            if strict { &[&[], &["--strict"], &["--overlay=commit"]] } else { &[&[]] };
        for options in ways {
            nested(place, NAMES, &["tools/clean", "tools/inc"]);
            let files = ["scripts/h/pre-commit", "tools/clean", "tools/inc"];
            assert_eq!(changed(place, options, &files), [""; 0], "{options:?}");
            // The control: nothing names it.
            assert_eq!(changed(place, options, &["tools/other"]), ["tools/other"], "{options:?}");
            assert!(place.project("sub/.git/config").exists(), "{options:?}");
            fs::remove_dir_all(place.project("sub")).unwrap();
        }
    });
}

#[test]
fn what_links_at_nested_names_lead_to_does_not_stay() {
    everywhere(|place| {
        let overlay = place.tier_name() == "namespace";
        let ways: &[&[&str]] = if overlay { &[&[], &["--overlay=commit"]] } else { &[&[]] };
        for options in ways {
            nested(place, "[core]\n\tbare = false\n", &["tools/check", "tools/env", "tools/other"]);
            place.link("home/project/sub/.git/hooks/pre-commit", "../../tools/check");
            place.link("home/project/sub/.envrc", "tools/env");
            place.link("home/project/sub/other", "tools/other");
            place.clock_moves_on();
            let files = ["tools/check", "tools/env", "tools/other"];
            // The last one, the control, is led to by no protected name.
            assert_eq!(changed(place, options, &files), ["tools/other"], "{options:?}");
            assert!(place.project("sub/.envrc").is_symlink(), "{options:?}");
            fs::remove_dir_all(place.project("sub")).unwrap();
        }
    });
}

#[test]
fn what_an_earlier_run_made_and_the_user_named_since_is_his() {
    everywhere(|place| {
        nested(place, "[core]\n\tbare = false\n", &[]);
        place.sh(&[], "mkdir -p sub/scripts/h; echo made > sub/scripts/h/pre-commit").ends(0);
        place.clock_moves_on();
        place.file("home/project/sub/.git/config", NAMES);
        place.clock_moves_on();
        assert_eq!(place.sh(&[], "echo more > sub/file").quiet(), "");
        assert_eq!(
            fs::read_to_string(place.project("sub/scripts/h/pre-commit")).unwrap(),
            "made\n"
        );
        // It is put in the place of what he named, by another name's way.
        place.sh(&[], "cd sub/scripts; cp -r h other; echo EVIL > other/pre-commit").ends(0);
        place.clock_moves_on();
        place.sh(&[], "cd sub/scripts; mv h old; mv other h").says("sub/scripts/h/pre-commit was");
        assert!(!place.project("sub/scripts/h/pre-commit").exists());
    });
}

#[test]
fn who_grants_what_is_named_may_write_it() {
    everywhere(|place| {
        nested(place, NAMES, &["tools/clean", "scripts/h/pre-commit"]);
        let granted = ["-w", "sub/tools/clean", "-w", "sub/scripts/h"];
        let files = ["tools/clean", "scripts/h/pre-commit"];
        assert_eq!(changed(place, &granted, &files), files);
    });
}

/// Programs as people write them for a shell, and what their commands merely mention.
#[test]
fn programs_in_gits_configuration_are_read_as_a_shell_reads_them() {
    const RUN: [&str; 9] = [
        "bin/home",
        "bin/alias",
        "bin/pwd",
        "scripts/top",
        "my tools/quoted",
        "my tools/blank",
        "scripts/merge.js",
        "scripts/inner",
        "scripts/wrapped",
    ];
    const READ: [&str; 4] = ["package.json", "package-lock.json", "src/main.rs", "src/data"];
    everywhere(|place| {
        for at in [".", "sub"] {
            let way = if at == "." { "" } else { "sub/" };
            place.shell(&format!("{PARTS} make {at}/.git; mkdir -p {at}/.git/hooks")).ends(0);
            for name in RUN.iter().chain(&READ) {
                place.file(format!("home/project/{way}{name}"), "host's\n");
            }
            let bin = format!("$HOME/project/{way}bin");
            let text = format!(
                "[core]\n\teditor = {bin}/home -w\n[diff \"p\"]\n\ttextconv = ${{PWD}}/bin/pwd\n\
                 [alias]\n\ta = !{bin}/alias\n\tb = !\\\"$(git rev-parse --show-toplevel)/scripts/top\\\"\n\
                 \tv = !node -p \\\"require('./package.json').version\\\"\n\
                 \twip = !git add src/main.rs && git commit -m wip\n\
                 \ti = !sh -c './scripts/inner \\\"$1\\\" src/data' -\n\
                 \tw = !env A=1 ./scripts/wrapped ./src/data\n\
                 [filter \"c\"]\n\tclean = \\\"my tools/quoted\\\" %f\n\
                 [merge \"n\"]\n\tdriver = node scripts/merge.js package-lock.json %A %O %B\n\
                 [filter \"d\"]\n\tclean = my\\\\ tools/blank %f\n"
            );
            place.file(format!("home/project/{way}.git/config"), &text);
        }
        place.clock_moves_on();
        for at in ["", "sub/"] {
            for (names, stays) in [(&RUN[..], false), (&READ[..], true)] {
                for name in names {
                    let act = format!("echo EVIL >> '{at}{name}'");
                    let run = place.sh(&[], &format!("({act}) 2>said; cat said >&2; true"));
                    let file = place.project(format!("{at}{name}"));
                    let text = fs::read_to_string(&file).unwrap_or_default();
                    assert_eq!(text.contains("EVIL"), stays, "{at}{name}: {}", run.err);
                    if stays || at.is_empty() {
                        assert!(text.starts_with("host's"), "{at}{name}: {}", run.err);
                    }
                    if at.is_empty() && !stays && place.tier_name() == "namespace" {
                        assert!(run.err.contains("Read-only file system"), "{name}: {}", run.err);
                    }
                }
            }
        }
        // As `npm install` does it: another file is put in its place.
        let replace = "for at in . sub; do echo new > $at/p && mv $at/p $at/package.json; done";
        place.sh(&[], replace).ends(0);
        assert_eq!(fs::read_to_string(place.project("sub/package.json")).unwrap(), "new\n");
    });
}

/// Commands that run something behind words of their own, and those that show or edit a file.
#[test]
fn what_wrappers_and_interpreters_are_told_to_run_is_protected() {
    const RUN: [(&str, &str); 15] = [
        ("tools/flock", "!flock .git/lk ./tools/flock"),
        ("tools/xargs", "!xargs -a ./list ./tools/xargs"),
        ("tools/rebase", "rebase -x ./tools/rebase"),
        ("tools/option", "-c core.editor=./tools/option commit"),
        ("tools/exec", "!git rebase --exec ./tools/exec main"),
        ("tools/date.rb", "!ruby -rdate tools/date.rb"),
        ("tools/a.R", "!Rscript tools/a.R %O"),
        ("tools/a.jar", "!java -jar tools/a.jar %O"),
        ("tools/a.ps1", "!pwsh -File tools/a.ps1"),
        ("tools/a.ts", "!ts-node tools/a.ts"),
        ("tools/watch", "!watch ./tools/watch"),
        ("tools/trap", "!trap ./tools/trap EXIT"),
        ("tools/function", "!bash -c 'function f { ./tools/function; }; f'"),
        // Nobody knows these; what they are told looks like a program.
        ("tools/begins", "!nobody-knows --with ./tools/begins"),
        ("tools/ends.py", "nobody-knows ./tools/ends.py"),
    ];
    const READ: [(&str, &str); 7] = [
        ("list", "!xargs -a ./list git add"),
        ("TODO.md", "!$EDITOR TODO.md"),
        ("NOTES.md", "!${EDITOR:-vim} NOTES.md"),
        ("docs/a.md", "!$(git var GIT_EDITOR) docs/a.md"),
        ("docs/b.sh", "!\\\"$PAGER\\\" docs/b.sh"),
        ("src/data", "!nobody-knows ./src/data"),
        ("src/a.js", "!eslint --fix src/a.js"),
    ];
    everywhere(|place| {
        place.shell(&format!("{PARTS} make .git; mkdir -p .git/hooks")).ends(0);
        let mut text = "[alias]\n".to_owned();
        for (number, (name, value)) in RUN.iter().chain(&READ).enumerate() {
            let script = *name == "tools/begins";
            place.file(
                format!("home/project/{name}"),
                if script { "#!/bin/sh\nhost's\n" } else { "host's\n" },
            );
            text += &format!("\ta{number} = \"{value}\"\n");
        }
        place.file("home/project/.git/config", &text);
        place.clock_moves_on();
        for (names, stays) in [(&RUN[..], false), (&READ[..], true)] {
            for (name, value) in names {
                let run = place.sh(&[], &format!("(echo EVIL >> {name}) 2>said; cat said >&2"));
                let text = fs::read_to_string(place.project(name)).unwrap_or_default();
                assert_eq!(text.contains("EVIL"), stays, "{value}: {}", run.err);
                assert!(text.contains("host's"), "{value}: {}", run.err);
                if !stays && place.tier_name() == "namespace" {
                    assert!(run.err.contains("Read-only file system"), "{value}: {}", run.err);
                }
            }
        }
    });
}

/// Text of a file of the project, which a run tries to change.
fn after(place: &Place, options: &[&str], act: &str, file: &str) -> String {
    let run = place.sh(options, &format!("({act}) 2>/dev/null; echo x > control"));
    let control = place.project(file).ancestors().any(|above| above.join("control").exists());
    assert!(control, "the control: {}", run.err);
    fs::read_to_string(place.project(file)).unwrap_or_default()
}

#[test]
fn what_the_configuration_of_a_worktree_names_stays_as_it_was() {
    everywhere(|place| {
        if !place.has("git", "--version") {
            return;
        }
        let make = format!(
            "git init -q . && git {AS_SOMEBODY} commit -q --allow-empty -m one && git worktree add -q tree && \
             git config core.fsmonitor ./tools/fsm && git config extensions.worktreeConfig true && \
             git -C tree config --worktree diff.external 'sh tools/own' && mkdir tree/tools && \
             echo host > tree/tools/fsm && echo host > tree/tools/own && echo host > tree/tools/other"
        );
        place.shell(&make).ends(0);
        place.clock_moves_on();
        let tree = ["--workdir", "tree"];
        for (name, text) in [("fsm", "host\n"), ("own", "host\n"), ("other", "EVIL\n")] {
            let act = format!("echo EVIL > tools/{name}");
            assert_eq!(after(place, &tree, &act, &format!("tree/tools/{name}")), text, "{name}");
        }
        // What git writes goes on.
        let commit =
            format!("git {AS_SOMEBODY} -c core.fsmonitor=false commit -q --allow-empty -m two");
        place.sh(&tree, &commit).ends(0);
    });
}

#[test]
fn what_further_configuration_at_the_top_names_stays_as_it_was() {
    everywhere(|place| {
        let make = format!(
            "{PARTS} make .git; make .git/modules/lib/sub; mkdir -p sub/h tools hk; \
             for name in sub/h/pre-commit sub/other tools/fsm hk/pre-commit; do echo host > $name; done; \
             echo 'gitdir: ../.git/modules/lib/sub' > sub/.git"
        );
        place.shell(&make).ends(0);
        place.file("home/project/.git/config", "[extensions]\n\tworktreeConfig = true\n");
        let own = "[core]\n\tfsmonitor = ./tools/fsm\n\thooksPath = hk\n";
        place.file("home/project/.git/config.worktree", own);
        let module = "[core]\n\tworktree = ../../../../sub\n\thooksPath = h\n";
        place.file("home/project/.git/modules/lib/sub/config", module);
        place.clock_moves_on();
        for (name, text) in [
            ("tools/fsm", "host\n"),
            ("hk/pre-commit", "host\n"),
            ("sub/h/pre-commit", "host\n"),
            ("sub/other", "EVIL\n"),
        ] {
            let act = format!("echo EVIL > {name}");
            assert_eq!(after(place, &[], &act, name), text, "{name}");
        }
    });
}

/// Samples of hooks and directories of objects are looked past: no repository hides there.
#[test]
fn no_repository_stays_where_git_keeps_other_things() {
    everywhere(|place| {
        place.shell(&format!("{PARTS} make .git; mkdir .git/objects/cd")).ends(0);
        place.file("home/project/.git/objects/cd/object", "host's\n");
        place.clock_moves_on();
        let evil = format!(
            "{PARTS} evil() {{ make $1; mkdir $1/hooks; echo x > $1/hooks/pre-receive; \
             printf '[core]\\n\\tfsmonitor = ./x\\n' > $1/config; }}; make sub/.git; mkdir sub/.git/hooks; \
             echo sample > sub/.git/hooks/plain.sample; evil sub/.git/hooks/e.sample; evil sub/.git/objects/ab; \
             evil sub/.git/objects/0f/deep; evil .git/objects/cd; evil .git/objects/ef; \
             echo object > sub/.git/objects/ab/object; mkdir sub/.git/objects/pack"
        );
        let run = place.sh(&[], &evil);
        for at in [
            "sub/.git/hooks/e.sample",
            "sub/.git/objects/ab",
            "sub/.git/objects/0f/deep",
            ".git/objects/cd",
            ".git/objects/ef",
        ] {
            let there = |name: &str| place.project(at).join(name).exists();
            let runs = there("config") || there("hooks/pre-receive");
            assert!(!(there("HEAD") && runs), "{at}: {}", run.err);
        }
        // The controls: what git makes.
        for name in [
            "sub/.git/hooks/plain.sample",
            "sub/.git/objects/ab/object",
            "sub/.git/objects/pack",
            ".git/objects/cd/object",
        ] {
            assert!(place.project(name).exists(), "{name}: {}", run.err);
        }
    });
}

/// `ln -s scripts tools` is an ordinary act: no protected name is in there.
#[test]
fn an_ordinary_link_stays_that_could_lead_to_a_protected_name() {
    everywhere(|place| {
        place.file("home/project/scripts/run", "host's\n");
        place.clock_moves_on();
        let link = "mkdir x other; ln -s scripts tools; ln -s ../scripts x/tools; ln -s ../scripts x/.config; \
                    echo EVIL > other/bazel; ln -s ../other x/mise; mkdir y; ln -s ../other y/tools";
        let run = place.sh(&[], link);
        for (name, stays) in [
            ("tools", true),
            ("x/tools", true),
            ("x/.config", true),
            ("x/mise", true),
            ("y/tools", false),
        ] {
            assert_eq!(place.project(name).is_symlink(), stays, "{name}: {}", run.err);
        }
        // A later run makes the name behind it.
        place.clock_moves_on();
        place.sh(&[], "echo EVIL > scripts/bazel; true");
        assert!(!place.project("tools/bazel").exists() && !place.project("x/tools/bazel").exists());
        assert!(place.project("scripts/run").exists());
    });
}

/// What agents and people do beside all that.
#[test]
fn ordinary_work_below_the_top_goes_on() {
    everybody(Tier::Namespace, |place| {
        if !place.has("git", "--version") {
            return;
        }
        let make = format!(
            "for r in . sub; do git init -q $r && git -C $r {AS_SOMEBODY} commit -q --allow-empty -m one; done; \
             git -C sub config core.hooksPath .husky/_ && git -C sub config filter.lfs.process 'git-lfs filter-process' && \
             git -C sub config alias.lg 'log --oneline -- ./x'"
        );
        place.shell(&make).ends(0);
        place.clock_moves_on();
        let work = format!(
            "cd sub && echo x > x && git add x && git {AS_SOMEBODY} -c core.hooksPath=/dev/null commit -q -m two && \
             git worktree add -q ../tree && git init -q --template= ../bare.git --bare && \
             mkdir -p .venv/bin node_modules/.bin && echo home = /usr > .venv/pyvenv.cfg && \
             echo true > .venv/bin/python && ln -s ../x/cli.js node_modules/.bin/x && git -C ../tree status -s"
        );
        let run = place.sh(&[], &work);
        run.ends(0);
        let said: Vec<&str> =
            run.err.lines().filter(|line| line.starts_with("ringfence: ")).collect();
        assert!(said.is_empty(), "{said:?}");
        let venv = fs::metadata(place.project("sub/.venv/pyvenv.cfg")).unwrap();
        assert!(venv.permissions().mode() & 0o400 != 0);
        assert!(place.project("tree/.git").exists() && place.project("bare.git/config").exists());
    });
}

#[test]
fn settings_that_shells_hooks_evaluate_do_not_stay() {
    everywhere(|place| {
        let mut all: Vec<String> = Vec::new();
        for name in [
            "_opam/.opam-switch/environment",
            "_opam/.opam-switch/switch-config",
            "mise/config.local.toml",
            "mise/conf.d/x.toml",
            ".mise.dev.toml",
            "mise.dev.local.toml",
            ".config/mise.local.toml",
            ".rtx.toml",
            ".prototools",
            // As MISE_ENV says.
            "mise.ci.toml",
            ".mise.ci.local.toml",
        ] {
            all.extend([name.to_owned(), format!("sub/{name}")]);
        }
        let act = format!(
            "for file in {} mise.nobody.toml; do mkdir -p $(dirname $file); echo EVIL > $file; done",
            all.join(" ")
        );
        let shell = place.shell(&format!("export MISE_ENV=ci,/x; $RF -- sh -c '{act}'"));
        for name in all {
            assert!(!place.project(&name).exists(), "{name}: {}", shell.err);
        }
        assert!(place.project("mise.nobody.toml").exists(), "the control: {}", shell.err);
    });
}
