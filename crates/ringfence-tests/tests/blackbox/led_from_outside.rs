//! What lies outside of the writable tree and leads into it: dotfiles and profiles that are links, the user's own git
//! configuration, and what one writable tree names in another.

use ringfence_tests::{Place, everywhere};
use std::fs;

/// Adds to files from inside, and says in which of them that stayed; `plain`, the control, is none of them.
fn changed(place: &Place, options: &[&str], files: &[&str]) -> Vec<String> {
    place.file("home/project/plain", "host's\n");
    place.clock_moves_on();
    let all = files.join(" ");
    let act = format!("for file in {all} plain; do echo EVIL >> $file; done 2>/dev/null; true");
    let run = place.sh(options, &act);
    let evil = |file: &str| {
        fs::read_to_string(place.project(file)).is_ok_and(|text| text.contains("EVIL"))
    };
    assert!(evil("plain"), "the control: {}", run.err);
    files.iter().filter(|file| evil(file)).map(|file| (*file).to_owned()).collect()
}

#[test]
fn what_links_of_the_home_lead_to_is_not_changed() {
    everywhere(|place| {
        let there = ["bashrc", "gitconfig", "fish/config.fish", "a.service", "bin/ls", "tool"];
        for name in there {
            place.file(format!("home/project/{name}"), "true\n");
        }
        for (link, target) in [
            (".bashrc", "project/bashrc"),
            (".gitconfig", "project/gitconfig"),
            (".zshrc", "project/zshrc"),
            (".config/fish", "../project/fish"),
            (".config/systemd/user/a.service", "../../../project/a.service"),
            (".local/bin", "../project/bin"),
            (".cargo/bin/tool", "../../project/tool"),
        ] {
            place.link(format!("home/{link}"), target);
        }
        let files = ["bashrc", "gitconfig", "fish/config.fish", "a.service", "bin/ls"];
        assert_eq!(changed(place, &[], &files), [""; 0]);
        // What is not there yet: the target of a link, and what is in a directory that one leads to.
        assert_eq!(changed(place, &[], &["zshrc", "fish/conf.d", "bin/new"]), [""; 0]);
        // A program of the project's that its user has put into PATH is the project's; and who names a file means it.
        assert_eq!(changed(place, &[], &["tool"]), ["tool"]);
        let bashrc = place.text("home/project/bashrc");
        assert_eq!(changed(place, &["-w", &bashrc], &["bashrc", "gitconfig"]), ["bashrc"]);
        for link in [".bashrc", ".config/fish", ".zshrc"] {
            assert!(place.at("home").join(link).is_symlink(), "{link}");
        }
    });
}

#[test]
fn what_links_of_the_home_lead_to_is_not_changed_where_the_list_has_a_pattern() {
    everywhere(|place| {
        let there = ["bazelrc", "mise.global", "work.code-workspace", "other"];
        for name in there {
            place.file(format!("home/project/{name}"), "true\n");
        }
        for (link, name) in [
            (".bazelrc", "bazelrc"),
            (".config/mise.toml", "mise.global"),
            ("work.code-workspace", "work.code-workspace"),
            (".config/unknown.toml", "other"),
        ] {
            place.link(format!("home/{link}"), place.project(name));
        }
        assert_eq!(changed(place, &[], &there), ["other"]);
    });
}

#[test]
fn a_profile_that_is_a_link_is_not_written_from_inside() {
    everywhere(|place| {
        let victim = place.file("home/victim", "secret\n");
        let profile = place.file("home/project/rf/mine.toml", "[filesystem]\nread = []\n");
        place.file("home/project/rf/whole/other.toml", "[filesystem]\nread = []\n");
        place.link("home/.config/ringfence/profiles/mine.toml", &profile);
        place.link("home/.config/ringfence/profiles/none.toml", place.project("rf/none.toml"));
        place.link("home/.config/ringfence/features", place.project("rf/whole"));
        place.person.owns(&place.at("home"));
        let files = ["rf/mine.toml", "rf/none.toml", "rf/whole/other.toml", "rf/whole/new.toml"];
        assert_eq!(changed(place, &[], &files), [""; 0]);
        // The control: it is the profile that `-p mine` takes, and the user may write it.
        let read =
            format!("extends = [\"default\"]\n[filesystem]\nread = [\"{}\"]\n", victim.display());
        place.run(&["-p", "mine", "-p", "default"], &["cat", "../victim"]).ends(1);
        fs::write(&profile, read).unwrap();
        place.run(&["-p", "mine"], &["cat", "../victim"]).ends(0).prints("secret");
    });
}

#[test]
fn what_the_users_git_configuration_names_is_not_changed() {
    everywhere(|place| {
        place.shell("git init -q . && mkdir -p tools ci/hooks tpl/hooks").ends(0);
        let names = ["cfg/work", "tools/fsm", "tools/ed", "ci/hooks/old", "tpl/hooks/old"];
        for name in names {
            place.file(format!("home/project/{name}"), "");
        }
        let project = place.text("home/project");
        place.file(
            "home/.gitconfig",
            format!(
                "[includeIf \"gitdir:~/elsewhere/\"]\n\tpath = ~/project/cfg/work\n\
                 [core]\n\tfsmonitor = ./tools/fsm\n[init]\n\ttemplateDir = {project}/tpl\n"
            ),
        );
        let included = format!("[core]\n\thooksPath = ci/hooks\n\teditor = {project}/tools/ed\n");
        place.file("home/project/cfg/work", included);
        assert_eq!(changed(place, &[], &names), [""; 0]);
        assert_eq!(changed(place, &[], &["ci/hooks/pre-commit", "tpl/hooks/pre-commit"]), [""; 0]);
        // The control: a configuration that names none of it.
        place.file("home/.gitconfig", "[user]\n\tname = a\n");
        assert_eq!(changed(place, &[], &names), names);
    });
}

#[test]
fn the_configuration_that_a_variable_names_is_not_changed() {
    everywhere(|place| {
        place.file("home/project/global", "[user]\n\tname = a\n");
        let named = "GIT_CONFIG_GLOBAL=$PWD/global $RF -- sh -c \
                     'printf \"[core]\\n\\tfsmonitor = ./x\\n\" >> global; echo x > plain'";
        place.shell(named);
        assert_eq!(fs::read_to_string(place.project("plain")).unwrap(), "x\n");
        assert_eq!(fs::read_to_string(place.project("global")).unwrap(), "[user]\n\tname = a\n");
        // The control: nothing names it.
        place.shell(&named.replace("GIT_CONFIG_GLOBAL", "GIT_CONFIG_NONE"));
        let text = fs::read_to_string(place.project("global")).unwrap();
        assert!(text.contains("fsmonitor"), "{text}");
    });
}

#[test]
fn what_a_tree_names_in_another_one_is_not_changed() {
    everywhere(|place| {
        place.shell("git init -q . && mkdir ../shared").ends(0);
        let names = ["check", "env", "inc", "fsm"].map(|name| format!("../shared/{name}"));
        for name in &names {
            place.file(format!("home/project/{name}"), "");
        }
        let shared = place.text("home/shared");
        place.link("home/project/.git/hooks/pre-commit", format!("{shared}/check"));
        place.link("home/project/.envrc", "../shared/env");
        let git = place.shell(&format!(
            "git config include.path {shared}/inc && git config core.fsmonitor {shared}/fsm"
        ));
        git.ends(0);
        let names = names.each_ref().map(String::as_str);
        let both = ["-w", &shared];
        assert_eq!(changed(place, &both, &names), [""; 0]);
        // The control: without what names them.
        place.shell("rm -r .git .envrc").ends(0);
        assert_eq!(changed(place, &both, &names), names);
    });
}

/// Who works on his hooks stands in their directory, or grants it.
#[test]
fn hooks_are_written_where_their_directory_is_granted_exactly() {
    everywhere(|place| {
        let hook = "home/project/hk/pre-commit";
        for (file, value) in [
            ("home/.gitconfig", "~/project/hk"),
            ("home/.gitconfig", "hk"),
            ("home/project/.git/config", "hk"),
            ("home/project/hk/.git/config", "."),
        ] {
            let config = place.file(file, format!("[core]\n\thooksPath = {value}\n"));
            for name in ["objects/x", "refs/x"] {
                place.file(format!("home/project/hk/.git/{name}"), "");
            }
            place.file("home/project/hk/.git/HEAD", "ref: refs/heads/m\n");
            for options in [&[][..], &["-w", "hk"], &["--workdir", "hk"]] {
                place.file(hook, "host's\n");
                place.clock_moves_on();
                let inside = options.first() == Some(&"--workdir");
                let at = if inside { "." } else { "hk" };
                let run = place.sh(options, &format!("echo more >> {at}/pre-commit; true"));
                let text = fs::read_to_string(place.at(hook)).unwrap_or_default();
                let written = !options.is_empty() && text == "host's\nmore\n";
                assert!(written || options.is_empty(), "{file} {value} {options:?}: {}", run.err);
                if options.is_empty() {
                    // What it stands in the way of: hooks of a repository that somebody works beside.
                    assert!(!text.contains("more"), "{file} {value}: {}", run.err);
                    let tier = place.tier_name() == "namespace" && value != ".";
                    assert!(!tier || run.err.contains("Read-only file system"), "{}", run.err);
                }
            }
            fs::remove_file(config).unwrap();
        }
    });
}

/// In directories of the home that the list holds whole: no name of it says these.
#[test]
fn what_single_links_in_directories_of_the_home_lead_to_is_not_changed() {
    const LINKED: [&str; 9] = [
        ".config/gdb/gdbinit",
        ".config/direnv/direnvrc",
        ".config/Code/User/settings.json",
        ".config/zed/settings.json",
        ".config/nushell/config.nu",
        ".oh-my-zsh/custom/a.zsh",
        ".ipython/profile_default/startup/a.py",
        ".docker/cli-plugins/docker-x",
        ".vim/ftplugin/a.vim",
    ];
    const FREE: [&str; 4] =
        [".local/bin/tool", ".cargo/bin/tool", "code/other/link", ".config/unheard-of/rc"];
    everywhere(|place| {
        let of = |name: &str| name.replace('/', "-").trim_start_matches('.').to_owned();
        for name in LINKED.iter().chain(&FREE) {
            place.file(format!("home/project/dot/{}", of(name)), "host's\n");
            place.link(format!("home/{name}"), place.project(format!("dot/{}", of(name))));
        }
        place.link("home/.config/gdb/absent", place.project("dot/absent"));
        let files: Vec<String> =
            LINKED.iter().chain(&FREE).map(|name| format!("dot/{}", of(name))).collect();
        let files: Vec<&str> = files.iter().map(String::as_str).chain(["dot/absent"]).collect();
        let free: Vec<String> = FREE.iter().map(|name| format!("dot/{}", of(name))).collect();
        assert_eq!(changed(place, &[], &files), free);
        // A link that is made after a plan was kept counts as well, also where other names were looked for.
        for directory in [".config/gdb", ".config/Code", ".vim"] {
            place.file("home/project/dot/late", "host's\n");
            assert_eq!(changed(place, &[], &["dot/late"]), ["dot/late"], "{directory}");
            place.file(format!("home/{directory}/ordinary"), "");
            assert_eq!(changed(place, &[], &["dot/late"]), ["dot/late"], "{directory}");
            let link = place.link(format!("home/{directory}/late"), place.project("dot/late"));
            place.file("home/project/dot/late", "host's\n");
            assert_eq!(changed(place, &[], &["dot/late"]), [""; 0], "{directory}");
            fs::remove_file(link).unwrap();
        }
    });
}
