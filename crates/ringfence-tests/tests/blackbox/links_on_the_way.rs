//! Links on the way to what protected names lead to: who replaces one chooses what is run.

use ringfence_tests::{Place, Tier, everybody, everywhere};
use std::fs;

/// What files say after acts inside, of which each that fails is no matter but for the last, the control.
fn after(place: &Place, options: &[&str], act: &str, files: &[&str]) -> Vec<String> {
    place.clock_moves_on();
    let run = place.sh(options, &format!("({act}) 2>/dev/null; echo x > control"));
    assert!(place.project("control").exists(), "the control: {}", run.err);
    fs::remove_file(place.project("control")).unwrap();
    let text = |file: &&str| fs::read_to_string(place.at(file)).unwrap_or_default();
    files.iter().map(text).map(|text| text.trim().to_owned()).collect()
}

/// Files that say `host`, their directories beside, and links.
fn make(place: &Place, files: &[&str], links: &[(&str, &str)]) {
    for file in files {
        place.file(format!("home/project/{file}"), "host\n");
    }
    for (link, target) in links {
        place.link(format!("home/{link}"), target);
    }
}

#[test]
fn links_of_dotfiles_to_links_go_on_leading_where_they_did() {
    everywhere(|place| {
        let overlay = place.tier_name() == "namespace";
        let ways: &[&[&str]] = if overlay { &[&[], &["--overlay=commit"]] } else { &[&[]] };
        make(
            place,
            &["bash/rc", "v1/profile", "v1/gitconfig", "v1/config.fish", "v2/other", "tools/own"],
            &[
                ("project/bashrc", "bash/rc"),
                (".bashrc", "project/bashrc"),
                ("project/current", "v1"),
                (".profile", "project/current/profile"),
                (".gitconfig", "project/current/gitconfig"),
                (".config/fish", "../project/fish"),
                ("project/fish", "v1"),
                // The control: nothing leads over it.
                ("project/ordinary", "v1"),
            ],
        );
        place.file("home/project/v1/gitconfig", "[user]\n\tname = host\n");
        let act = "for v in bashrc current fish ordinary; do rm -f $v; echo EVIL > v2/profile; \
                   ln -s v2 $v; done; echo EVIL > v2/config.fish; rm bashrc; echo EVIL > bashrc";
        for options in ways {
            let files = [".bashrc", ".profile", ".config/fish/config.fish"];
            let files = files.map(|file| format!("home/{file}"));
            let files = files.each_ref().map(String::as_str);
            assert_eq!(after(place, options, act, &files), ["host"; 3], "{options:?}");
            let ordinary = fs::read_link(place.project("ordinary")).unwrap();
            assert_eq!(ordinary.to_str(), Some("v2"), "{options:?}");
            for (link, target) in [("bashrc", "bash/rc"), ("current", "v1"), ("fish", "v1")] {
                let now = fs::read_link(place.project(link)).unwrap();
                assert_eq!(now.to_str(), Some(target), "{options:?}");
            }
        }
        if overlay {
            let refused = "rm bashrc; mv current x; ln -sfn v2 fish";
            place.sh(&[], refused).says("Device or resource busy");
        }
    });
}

#[test]
fn a_profile_behind_two_links_stays_what_it_was() {
    everywhere(|place| {
        let text = "extends = [\"default\"]\n";
        for name in ["v1/mine.toml", "v2/mine.toml", "v1/named.toml", "v2/named.toml"] {
            place.file(format!("home/project/{name}"), text);
        }
        make(place, &[], &[("project/current", "v1"), ("project/by-name", "v1")]);
        let profile = place.project("current/mine.toml");
        place.link("home/.config/ringfence/profiles/mine.toml", profile);
        place.person.owns(&place.at("home"));
        let evil = "printf '[filesystem]\\nwrite = [\"/home\"]\\n' | tee v2/mine.toml > v2/named.toml; \
                    ln -sfn v2 current; ln -sfn v2 by-name";
        let profile = ["home/.config/ringfence/profiles/mine.toml"];
        assert_eq!(after(place, &[], evil, &profile), [text.trim()]);
        // The control: nothing names the other one, until a run takes its policy from it.
        assert_eq!(fs::read_link(place.project("by-name")).unwrap().to_str(), Some("v2"));
        place.shell("ln -sfn v1 by-name").ends(0);
        let named = ["-p", "./by-name/named.toml"];
        let there = ["home/project/by-name/named.toml"];
        assert_eq!(after(place, &named, evil, &there), [text.trim()]);
    });
}

#[test]
fn links_in_the_tree_to_links_go_on_leading_where_they_did() {
    everywhere(|place| {
        let overlay = place.tier_name() == "namespace";
        let ways: &[&[&str]] = if overlay { &[&[], &["--overlay=commit"]] } else { &[&[]] };
        place.shell("mkdir -p .git/objects .git/refs .git/hooks tools2").ends(0);
        place.file("home/project/.git/HEAD", "ref: refs/heads/main\n");
        place.file("home/project/.git/config", "[include]\n\tpath = ../inc\n");
        make(
            place,
            &["tools/check", "v1/envrc", "v1/inc"],
            &[
                ("project/cur", "tools"),
                ("project/.git/hooks/pre-commit", "../../cur/check"),
                ("project/env/rc", "../v1/envrc"),
                ("project/.envrc", "env/rc"),
                ("project/inc", "between"),
                ("project/between", "v1/inc"),
                ("project/ordinary", "tools"),
            ],
        );
        place.file("home/project/v1/inc", "");
        let act = "echo EVIL > tools2/check; for l in cur ordinary; do rm $l; ln -s tools2 $l; done; \
                   rm env/rc; echo EVIL > env/rc; rm between; printf '[core]\\n\\tpager = EVIL\\n' > between";
        for options in ways {
            let files = ["home/project/.git/hooks/pre-commit", "home/project/.envrc"];
            assert_eq!(after(place, options, act, &files), ["host"; 2], "{options:?}");
            let inc = fs::read_to_string(place.project("inc")).unwrap();
            assert_eq!(inc, "", "{options:?}");
            let ordinary = fs::read_link(place.project("ordinary")).unwrap();
            assert_eq!(ordinary.to_str(), Some("tools2"), "{options:?}");
        }
    });
}

#[test]
fn a_directory_that_a_run_led_elsewhere_is_held_in_the_next() {
    everywhere(|place| {
        place.link("home/.zshrc", place.project("zsh/rc"));
        place.sh(&[], "mkdir other; ln -s other zsh").ends(0);
        // It leads to nothing that is run.
        assert!(place.project("zsh").is_symlink());
        let act =
            "rm zsh; mkdir zsh; echo EVIL > zsh/rc; echo EVIL > other/rc; echo EVIL > other/plain";
        let files = ["home/.zshrc", "home/project/other/plain"];
        assert_eq!(after(place, &[], act, &files), ["", "EVIL"]);
    });
}

#[test]
fn links_below_the_top_to_links_go_on_leading_where_they_did() {
    everybody(Tier::Namespace, |place| {
        let parts = "mkdir -p sub/.git/objects sub/.git/refs sub/.git/hooks sub/hk n; \
                     echo 'ref: refs/heads/m' > sub/.git/HEAD";
        place.shell(parts).ends(0);
        place.file("home/project/sub/.git/config", "[core]\n\thooksPath = hk\n");
        make(
            place,
            &["tools/pc", "tools/e", "tools/usual", "tools/plain", "sub/hk/post-commit"],
            &[
                ("project/sub/hk/pre-commit", "../../tools/pc"),
                ("project/sub/.git/hooks/pre-push", "../../../tools/usual"),
                ("project/n/e", "../tools/e"),
                ("project/n/.envrc", "e"),
                ("project/n/x", "../tools/plain"),
                ("project/n/.vscode/tasks.json", "../../tools/tasks"),
            ],
        );
        place.file("home/project/tools/tasks", "host\n");
        let act = "for f in tools/pc tools/usual tools/tasks sub/hk/post-commit; do echo EVIL > $f; done; \
                   for l in n/e n/x; do rm $l; echo EVIL > $l; done";
        let files = ["sub/hk/pre-commit", "sub/.git/hooks/pre-push", "sub/hk/post-commit"];
        let files = files.into_iter().chain(["n/.envrc", "n/.vscode/tasks.json", "n/x"]);
        let files: Vec<String> = files.map(|file| format!("home/project/{file}")).collect();
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        let host = ["host", "host", "host", "host", "host", "EVIL"];
        assert_eq!(after(place, &["--overlay=commit"], act, &files), host);
        // Without a layer it is moved away.
        place.shell("rm n/x; ln -s ../tools/plain n/x").ends(0);
        let moved = ["", "", "", "", "", "EVIL"];
        assert_eq!(after(place, &[], act, &files), moved);
    });
}

/// What an earlier run left under a harmless name is not what the user's link leads to now.
#[test]
fn a_link_below_the_top_is_not_led_to_what_an_earlier_run_made() {
    everywhere(|place| {
        place.sh(&[], "mkdir -p n/tools; echo EVIL > n/tools/evil; echo fine > n/tools/e").ends(0);
        place.clock_moves_on();
        make(place, &["n/tools/e"], &[("project/n/e", "tools/e"), ("project/n/.envrc", "e")]);
        let act = "ln -sfn tools/evil n/e; ln -s tools/evil n/other";
        let files = ["home/project/n/.envrc", "home/project/n/other"];
        assert_eq!(after(place, &[], act, &files), ["", "EVIL"]);
        assert!(place.project("n/.envrc").is_symlink());
    });
}

/// What git runs in a directory of hooks by any name, and what lies behind a link to such a directory.
#[test]
fn links_among_hooks_are_followed_whatever_the_directory_is_called() {
    everywhere(|place| {
        place.shell("mkdir -p .git/objects .git/refs").ends(0);
        place.file("home/project/.git/HEAD", "ref: refs/heads/main\n");
        make(
            place,
            &["tools/a", "tools/b", "tools/c", "tools/plain", "real/post-commit", "tools/fsm"],
            &[
                ("project/myhooks/pre-commit", "../tools/a"),
                ("project/.githooks/pre-commit", "../tools/b"),
                ("project/other/pre-commit", "../tools/plain"),
                ("project/real/pre-commit", "../tools/c"),
                ("project/led", "real"),
                ("bin/fsm", "../project/tools/fsm"),
            ],
        );
        let act = "for f in tools/a tools/b tools/c tools/plain tools/fsm real/post-commit; do echo EVIL > $f; done; true";
        let files = ["tools/a", "tools/b", "tools/c", "real/post-commit", "tools/fsm"];
        let files = files.map(|file| format!("home/project/{file}"));
        let files = files.each_ref().map(String::as_str);
        let (evil, host) = ("EVIL", "host");
        for (hooks, says) in [
            ("myhooks", [host, host, evil, evil, host]),
            ("led", [evil, host, host, host, host]),
            ("other", [evil, host, evil, evil, host]),
        ] {
            make(place, &["tools/a", "tools/b", "tools/c", "real/post-commit"], &[]);
            let config = format!("[core]\n\thooksPath = {hooks}\n\tfsmonitor = ~/bin/fsm\n");
            place.file("home/project/.git/config", config);
            assert_eq!(after(place, &[], act, &files), says, "{hooks}");
            let plain = if hooks == "other" { host } else { evil };
            let text = fs::read_to_string(place.project("tools/plain")).unwrap();
            assert_eq!(text.trim(), plain, "{hooks}");
            place.file("home/project/tools/plain", "host\n");
        }
    });
}

#[test]
fn what_links_in_protected_directories_lead_to_is_not_changed() {
    everywhere(|place| {
        let overlay = place.tier_name() == "namespace";
        let ways: &[&[&str]] = if overlay { &[&[], &["--overlay=commit"]] } else { &[&[]] };
        make(
            place,
            &["tools/tasks.json", "tools/conf", "tools/settings", "tools/other"],
            &[
                ("project/.vscode/tasks.json", "../tools/tasks.json"),
                ("project/.idea/x.xml", "between"),
                ("project/.idea/between", "../tools/settings"),
                ("project/docs/x", "../tools/other"),
                (".config/fish", "../project/fish"),
                ("project/fish/conf.d/x.fish", "../../tools/conf"),
            ],
        );
        let act = "for f in tasks.json conf settings other; do echo EVIL > tools/$f; done; true";
        let files = ["tasks.json", "conf", "settings", "other"];
        let files = files.map(|file| format!("home/project/tools/{file}"));
        let files = files.each_ref().map(String::as_str);
        for options in ways {
            let now = after(place, options, act, &files);
            assert_eq!(now, ["host", "host", "host", "EVIL"], "{options:?}");
        }
        // Who names a file means it.
        let granted = ["-w", "tools/tasks.json"];
        assert_eq!(after(place, &granted, act, &files), ["EVIL", "host", "host", "EVIL"]);
    });
}

#[test]
fn no_link_is_passed_over_for_what_is_beside_it() {
    everywhere(|place| {
        let beside = "mkdir -p ../.local/share/applications ../.config/ringfence/profiles; \
                      for n in $(seq 700); do : > ../.local/share/applications/$n.desktop; \
                      : > ../.config/ringfence/profiles/$n.toml; done; \
                      for n in $(seq 20); do echo host > $n.desktop; \
                      ln -s $PWD/$n.desktop ../.local/share/applications/z$n.desktop; done; \
                      echo host > zz.toml; ln -s $PWD/zz.toml ../.config/ringfence/profiles/; echo host > plain";
        place.shell(beside).ends(0);
        let files = (1..=20).map(|n| format!("{n}.desktop")).chain(["zz.toml".to_owned()]);
        let files: Vec<String> = files.map(|name| format!("home/project/{name}")).collect();
        let mut files: Vec<&str> = files.iter().map(String::as_str).collect();
        files.push("home/project/plain");
        let act = "for f in *.desktop zz.toml plain; do echo EVIL > $f; done; true";
        let now = after(place, &[], act, &files);
        assert_eq!(now[..21], ["host"; 21]);
        assert_eq!(now[21], "EVIL");
        // More than are followed: a refusal.
        let more = "cd ../.local/share/applications; for n in $(seq 1100); do ln -s x l$n; done";
        place.shell(more).ends(0);
        let run = place.sh(&[], "true");
        run.ends(125).says("symbolic links").says("--allow-degraded protect");
        place.sh(&["--allow-degraded", "protect"], "true").ends(0).says("symbolic links");
    });
}

/// Names with a pattern, behind links to directories: the user's own, and those that an earlier run made.
#[test]
fn names_with_a_pattern_are_found_behind_links() {
    everywhere(|place| {
        place.shell("mkdir -p tooling cfg sub/tooling sub/cfg scripts sub/scripts").ends(0);
        make(
            place,
            &["tooling/README"],
            &[
                ("project/mise", "tooling"),
                ("project/.config", "cfg"),
                ("project/sub/mise", "tooling"),
                ("project/sub/.config", "cfg"),
            ],
        );
        let act = "for d in . sub; do for f in tooling/config.toml tooling/mise.ci.toml cfg/mise.ci.toml \
                   cfg/lefthook.jsonc tooling/other.toml; do echo EVIL > $d/$f; done; done; chmod 300 sub/cfg";
        let names = ["mise/config.toml", "mise/mise.ci.toml", ".config/mise.ci.toml"];
        let names = names.into_iter().chain([".config/lefthook.jsonc", "mise/other.toml"]);
        let below = |d: &str| names.clone().map(|f| format!("home/project/{d}{f}")).collect();
        let files: Vec<String> =
            [below(""), below("sub/")].into_iter().flat_map(|all: Vec<_>| all).collect();
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        let taken = ["", "", "", "", "EVIL"].repeat(2);
        assert_eq!(after(place, &[], act, &files), taken);
        for link in ["mise", ".config", "sub/mise", "sub/.config"] {
            assert!(place.project(link).is_symlink(), "{link}");
        }
        if place.tier_name() == "namespace" {
            place
                .shell("chmod 700 sub/cfg; rm -f tooling/other.toml sub/tooling/other.toml")
                .ends(0);
            assert_eq!(after(place, &["--overlay=commit"], act, &files), taken);
        }
        // Two runs: a link that leads to nothing, and then to something.
        place.shell("rm mise sub/mise; chmod 700 sub/cfg").ends(0);
        place.sh(&[], "ln -s scripts mise; ln -s scripts sub/mise").ends(0);
        assert!(place.project("mise").is_symlink());
        let act = "for d in . sub; do echo EVIL > $d/scripts/config.toml; echo EVIL > $d/scripts/run; done";
        let files = ["mise/config.toml", "sub/mise/config.toml", "scripts/run", "sub/scripts/run"];
        let files = files.map(|file| format!("home/project/{file}"));
        let files = files.each_ref().map(String::as_str);
        assert_eq!(after(place, &[], act, &files), ["", "", "EVIL", "EVIL"]);
    });
}

/// All that is in a directory has the protected name that is a link to it.
#[test]
fn directories_that_links_at_protected_names_lead_to_are_held() {
    everywhere(|place| {
        let overlay = place.tier_name() == "namespace";
        let ways: &[&[&str]] =
            if overlay { &[&[], &["--strict"], &["--overlay=commit"]] } else { &[&[]] };
        place.shell("mkdir -p .git/objects .git/refs").ends(0);
        place.file("home/project/.git/HEAD", "ref: refs/heads/main\n");
        make(
            place,
            &["hk/pre-commit", "vs/tasks.json", "hs/pre-push", "v1/gh/x", "behind", "ordinary/x"],
            &[
                ("project/.git/hooks", "../hk"),
                ("project/.vscode", "vs"),
                ("project/.husky", "between"),
                ("project/between", "hs"),
                ("project/.github", "v1"),
                ("project/v1/hooks", "gh"),
                ("project/hs/led", "../behind"),
                // The control.
                ("project/plain", "ordinary"),
            ],
        );
        let act = "for f in hk/pre-commit hk/post-commit vs/tasks.json vs/new hs/pre-push v1/gh/x v1/gh/y behind \
                   ordinary/x; do echo EVIL > $f; done; mv hk hk2; mkdir hk; echo EVIL > hk/pre-commit; \
                   rm between; mkdir between; echo EVIL > between/pre-push";
        let (names, none) = (
            [
                ".git/hooks/pre-commit",
                ".vscode/tasks.json",
                ".husky/pre-push",
                ".github/hooks/x",
                "behind",
            ],
            [".git/hooks/post-commit", ".vscode/new", ".github/hooks/y"],
        );
        let all = names.iter().chain(&none).chain(&["plain/x"]);
        let all: Vec<String> = all.map(|name| format!("home/project/{name}")).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let wanted = ["host", "host", "host", "host", "host", "", "", "", "EVIL"];
        for options in ways {
            assert_eq!(after(place, options, act, &all), wanted, "{options:?}");
            assert!(place.project("between").is_symlink(), "{options:?}");
        }
        if overlay {
            let run = place.sh(&[], "echo x > vs/new; mv hk hk3");
            run.says("vs/new: Read-only file system").says("Device or resource busy");
        }
        // Who grants the directory means it.
        let granted = after(place, &["-w", "vs"], "echo more > vs/tasks.json", &all[1..2]);
        assert_eq!(granted, ["more"]);
    });
}

/// Further down they are found after the run, and at the commit of an overlay.
#[test]
fn what_a_run_changed_in_directories_that_links_further_down_lead_to_does_not_stay() {
    everywhere(|place| {
        let overlay = place.tier_name() == "namespace";
        let ways: &[&[&str]] = if overlay { &[&[], &["--overlay=commit"]] } else { &[&[]] };
        place.shell("mkdir -p sub/.git/objects sub/.git/refs sub/other").ends(0);
        place.file("home/project/sub/.git/HEAD", "ref: refs/heads/main\n");
        make(
            place,
            &["sub/hk/pre-commit", "sub/vs/deep/kept", "sub/gh/x", "shared/set.json", "skills/x"],
            &[
                ("project/sub/.git/hooks", "../hk"),
                ("project/sub/.vscode", "vs"),
                ("project/sub/.github", "between"),
                ("project/sub/between/hooks", "../gh"),
                ("project/sub/.zed", "../shared"),
                // The control: a link in what is protected leads to something of another name.
                ("project/sub/.claude/skills/x", "../../../skills"),
            ],
        );
        let act = "cd sub; for f in hk/post-commit vs/tasks.json vs/deep/tasks.json gh/y ../shared/set.json \
                   ../skills/x other/x; do echo EVIL > $f; done";
        let names = [
            ".git/hooks/pre-commit",
            ".vscode/deep/kept",
            ".github/hooks/x",
            ".git/hooks/post-commit",
            ".vscode/tasks.json",
            ".vscode/deep/tasks.json",
            ".github/hooks/y",
            ".zed/set.json",
            "../skills/x",
            "other/x",
        ];
        let all = names.map(|name| format!("home/project/sub/{name}"));
        let all = all.each_ref().map(String::as_str);
        let wanted = ["host", "host", "host", "", "", "", "", "", "EVIL", "EVIL"];
        for options in ways {
            assert_eq!(after(place, options, act, &all), wanted, "{options:?}");
            place.shell("rm skills/x sub/other/x; echo host > skills/x").ends(0);
        }
        // What the user puts there is his, and what a later run changes elsewhere is no matter.
        place.file("home/project/sub/vs/tasks.json", "host\n");
        assert_eq!(after(place, &[], "echo more > sub/other/x", &all[4..5]), ["host"]);
    });
}

#[test]
fn what_links_at_protected_names_lead_to_is_not_made() {
    everywhere(|place| {
        let links = [
            ("project/.envrc", "tools/env"),
            ("project/.pryrc", "hop"),
            ("project/hop", "tools/pry"),
            ("project/.vscode", "editor"),
            ("project/.git/hooks/pre-commit", "../../tools/check"),
            ("project/.git/hooks/c.sample", "../../tools/sample"),
            ("project/.husky", "hooks"),
            ("project/.claude/skills/a", "../../skill"),
            // The control: no name of the list.
            ("project/ordinary", "tools/ordinary"),
        ];
        make(place, &["tools/in", ".git/HEAD"], &links);
        let act = "mkdir editor hooks skill; for f in tools/env tools/pry tools/check tools/sample tools/ordinary \
                   editor/tasks.json hooks/pre-push skill/in; do echo EVIL > $f; done";
        let led =
            [".envrc", ".pryrc", ".vscode/tasks.json", ".git/hooks/pre-commit", ".husky/pre-push"];
        let free = ["tools/sample", "tools/ordinary", "skill/in"];
        let overlay = place.tier_name() == "namespace";
        let ways: &[&[&str]] =
            if overlay { &[&[], &["--overlay=commit"], &["--strict"]] } else { &[&[]] };
        let files: Vec<_> =
            led.iter().chain(&free).map(|file| format!("home/project/{file}")).collect();
        let files: Vec<_> = files.iter().map(String::as_str).collect();
        for options in ways {
            let is = after(place, options, act, &files);
            assert_eq!(is[..5], [""; 5], "{options:?}");
            assert_eq!(is[5..], ["EVIL"; 3], "the controls: {options:?}");
            place.shell("rm -r tools/sample tools/ordinary skill").ends(0);
        }
        let why =
            |file: &str| place.ringfence(["why", "--tier", place.tier_name(), "--", "write", file]);
        for file in ["tools/env", "tools/pry", "tools/check", "editor/tasks.json", "hooks/pre-push"]
        {
            why(file).ends(1).prints("leads to it").prints("a new one does not survive the run");
        }
        for file in free {
            why(file).ends(0);
        }
        place.sh(&["-w", "?tools/env"], "echo mine > tools/env").ends(0);
        assert_eq!(fs::read_to_string(place.project(".envrc")).unwrap(), "mine\n");
    });
}
