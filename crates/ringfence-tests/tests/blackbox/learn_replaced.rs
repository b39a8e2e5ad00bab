//! What `learn` makes of names that are replaced, removed or changed: a rule for just such a name is a mount, which no
//! program can replace, and what is never opened is named all the same.

use crate::learn_rules::{learn, rules};
use ringfence_tests::{Person, Place, Tier, everybody};
use std::fs;
use std::os::unix::fs::MetadataExt;

/// A directory of the user's own that is as it was before.
fn afresh(place: &Place, names: &[&str]) {
    let _ = fs::remove_dir_all(place.at("home/data"));
    names.iter().for_each(|name| _ = place.file(format!("home/data/{name}"), "[a]\n\tx = y\n"));
}

/// Learns a script, runs it under what is proposed, and learns nothing more of it.
fn learnt(place: &Place, names: &[&str], script: &str, expected: &str) {
    let _ = fs::remove_file(place.project("l.toml"));
    afresh(place, names);
    let before = place.sh(&[], script);
    assert_ne!(before.code, 0, "the control: it does not work without a rule: {script}");
    let first = learn(place, &["-o", "l.toml"], script);
    first.ends(0).says("1 rule proposed");
    let found = rules(place);
    assert!(found.contains(&format!("write = [\n\"{expected}?\",\n]")), "{script}: {found}");
    for name in names {
        let text = fs::read_to_string(place.at(format!("home/data/{name}"))).unwrap();
        assert_eq!(text, "[a]\n\tx = y\n", "nothing real is changed");
    }
    place.sh(&["-p", "./l.toml"], script).ends(0);
}

/// The same that is done to what another program made of it proposes nothing.
fn and_no_more(place: &Place, names: &[&str], script: &str) {
    afresh(place, names);
    learn(place, &["-p", "./l.toml"], script).ends(0).says("nothing to propose: the policy allows");
}

const REPLACING: [&str; 5] = [
    "python3 -c 'import os; f = os.path.expanduser(\"~/data/rc\"); t = open(f).read(); \
     open(f + \".new\", \"w\").write(t + \"new\"); os.replace(f + \".new\", f)'",
    "sed -i s/y/new/ ~/data/rc",
    "grep -q y ~/data/rc && cp ~/data/rc ~/data/rc-journal && rm ~/data/rc && echo new > ~/data/rc && rm ~/data/rc-journal",
    "grep -q y ~/data/rc && mv ~/data/rc ~/data/rc~ && echo new > ~/data/rc",
    "grep -q y ~/data/rc && ln ~/data/rc ~/data/rc.bak && rm ~/data/rc && echo new > ~/data/rc",
];

#[test]
fn the_directory_of_a_name_that_is_replaced_is_the_rule() {
    everybody(Tier::Namespace, |place| {
        for script in REPLACING {
            learnt(place, &["rc"], script, "~/data");
            let now = place.at("home/data/rc");
            assert!(fs::read_to_string(&now).unwrap().contains("new"), "{script}");
            and_no_more(place, &["rc"], script);
        }
        let git = "GIT_CONFIG_GLOBAL=~/data/rc git config --global a.x new";
        learnt(place, &["rc"], git, "~/data");
        assert!(fs::read_to_string(place.at("home/data/rc")).unwrap().contains("x = new"));
        and_no_more(place, &["rc"], git);
    });
}

#[test]
fn a_name_at_the_top_of_the_home_that_is_replaced_is_told() {
    everybody(Tier::Namespace, |place| {
        let python = "python3 -c 'import os; f = os.path.expanduser(\"~/.apprc\"); t = open(f).read(); \
                      open(f + \".new\", \"w\").write(t + \"new\"); os.replace(f + \".new\", f)'";
        let all = [
            (".apprc", python),
            (".apprc", "sed -i s/y/new/ ~/.apprc"),
            (".config/apprc", "sed -i s/y/new/ ~/.config/apprc"),
            ("f.txt", "mv ~/f.txt ~/f.txt~ && echo new > ~/f.txt"),
            (".gitconfig", "git config --global a.b new || true"),
        ];
        for (name, script) in all {
            let _ = fs::remove_file(place.project("l.toml"));
            let file = place.file(format!("home/{name}"), "[a]\n\tx = y\n");
            let told = learn(place, &["-o", "l.toml"], script);
            told.ends(0);
            told.says(&format!("not proposed: filesystem.write ~/{name}?: its name is replaced"));
            told.says("(EBUSY)").says("nothing to propose: what the policy refuses is left to you");
            assert!(!rules(place).contains(name), "{}", rules(place));
            // The control: a rule for it does not let it either, which is told of a profile that has one.
            place.file(
                "home/project/own.toml",
                format!("extends = [\"default\"]\n[filesystem]\nwrite = [\"~/{name}\"]\n"),
            );
            let ran = place.sh(&["-p", "./own.toml"], script);
            ran.says("busy");
            learn(place, &["-p", "./own.toml"], script).says("its name is replaced");
            assert_eq!(fs::read_to_string(&file).unwrap(), "[a]\n\tx = y\n");
            fs::remove_file(&file).unwrap();
        }
    });
}

/// What is protected would be a mount in a run: while it is learnt it is replaced as outside, and nothing real is.
#[test]
fn protected_files_of_the_home_are_replaced_while_a_run_is_watched() {
    everybody(Tier::Namespace, |place| {
        let git = place.file("home/.gitconfig", "[user]\n");
        let shell = place.file("home/.bashrc", "x\n");
        place.file("home/one/f", "f\n");
        place.directory("home/other");
        let script = "git config --global a.b new && git config --global a.b && rm ~/.bashrc && ln ~/one/f ~/other/f \
                      && mv ~/other/f ~/g && cat ~/g";
        let _ = fs::remove_file(place.project("l.toml"));
        let learnt = learn(place, &["-o", "l.toml"], script);
        learnt.ends(0).prints("new\nf").says("not proposed: filesystem.write ~/.gitconfig?: ");
        learnt.says("not proposed: filesystem.write ~/.bashrc?: ");
        assert!(!rules(place).contains(".gitconfig") && !rules(place).contains(".bashrc"));
        assert_eq!(fs::read_to_string(&git).unwrap(), "[user]\n");
        assert_eq!(fs::read_to_string(&shell).unwrap(), "x\n");
        assert!(place.at("home/one/f").exists() && !place.at("home/g").exists());
        // The control: in a run it is protected.
        place.sh(&["-w", &place.text("home")], "rm ~/.bashrc").ends(1);
        assert!(shell.exists());
    });
}

/// Under a rule for the database alone its journal is in the private home: cut off, a transaction stays half done.
#[test]
fn a_database_is_no_rule_without_its_journal() {
    everybody(Tier::Namespace, |place| {
        let python = |path: &str, mode: &str| {
            format!(
                "python3 -c 'import sqlite3, os; d = sqlite3.connect(os.path.expanduser(\"{path}\")); \
                 d.execute(\"pragma journal_mode = {mode}\"); d.execute(\"create table if not exists t (a)\"); \
                 d.execute(\"insert into t values (1)\"); d.commit()'"
            )
        };
        if !place.has("python3", "--version") {
            return;
        }
        for (mode, journal) in [("delete", "-journal"), ("wal", "-wal")] {
            for (path, directory) in [("~/data/x.db", Some("~/data")), ("~/x.db", None)] {
                for name in ["data/x.db", "x.db"] {
                    place.file(format!("home/{name}"), "");
                }
                let _ = fs::remove_file(place.project("l.toml"));
                let script = python(path, mode);
                let told = learn(place, &["-o", "l.toml"], &script);
                told.ends(0);
                match directory {
                    Some(directory) => {
                        let found = rules(place);
                        assert!(
                            found.contains(&format!("write = [\n\"{directory}?\",\n]")),
                            "{found}"
                        );
                        place.sh(&["-p", "./l.toml"], &script).ends(0);
                        assert!(fs::metadata(place.at("home/data/x.db")).unwrap().len() > 0);
                        let none = "nothing to propose: the policy allows";
                        learn(place, &["-p", "./l.toml"], &script).ends(0).says(none);
                    }
                    None => {
                        told.says(&format!("not proposed: filesystem.write {path}?: "));
                        told.says(&format!("{path}{journal} is gone with each run"));
                        assert!(!rules(place).contains("x.db"), "{}", rules(place));
                        // A profile that has such a rule is told the same.
                        place.file(
                            "home/project/own.toml",
                            format!(
                                "extends = [\"default\"]\n[filesystem]\nwrite = [\"{path}\"]\n"
                            ),
                        );
                        let told = learn(place, &["-p", "./own.toml"], &script);
                        told.says(&format!("{path}{journal} is gone with each run"));
                    }
                }
            }
        }
    });
}

#[test]
fn a_directory_that_is_not_empty_is_not_removed_by_trying() {
    everybody(Tier::Namespace, |place| {
        let _ = fs::remove_file(place.project("l.toml"));
        place.file("home/.app/f", "x");
        let script = "cat ~/.app/f > /dev/null; rmdir ~/.app || true";
        learn(place, &["-o", "l.toml"], script).ends(0).says("1 rule proposed");
        assert!(rules(place).contains("\"~/.app?\""), "{}", rules(place));
        // The control: here it goes.
        let told = learn(place, &[], "rm -r ~/.app");
        told.ends(0).says("not with the directory itself (EBUSY): ~/.app");
        // Nothing in it is used: a rule would be good for nothing.
        fs::remove_file(place.at("home/.app/f")).unwrap();
        let told = learn(place, &[], "rmdir ~/.app");
        told.ends(0).says("not proposed: filesystem.write ~/.app?: its name is replaced");
    });
}

/// All that is in it can go; of the directory's own name it is told that it stays.
#[test]
fn a_directory_that_is_removed_with_what_is_in_it_is_proposed() {
    everybody(Tier::Namespace, |place| {
        for (directory, script) in [
            (".app", "rm -r ~/.app"),
            (".cache/tool", "rm -r ~/.cache/tool && mkdir ~/.cache/tool"),
        ] {
            let _ = fs::remove_file(place.project("l.toml"));
            place.file(format!("home/{directory}/f"), "x");
            place.file(format!("home/{directory}/deep/f"), "x");
            let first = learn(place, &["-o", "l.toml"], script);
            let stays = format!("not with the directory itself (EBUSY): ~/{directory}");
            first.ends(0).says("1 rule proposed").says(&stays);
            let found = rules(place);
            assert!(found.contains(&format!("write = [\n\"~/{directory}?\",\n]")), "{found}");
            let text = fs::read_to_string(place.project("l.toml")).unwrap();
            assert!(text.contains(&stays), "{text}");
            assert!(
                place.at(format!("home/{directory}/deep/f")).exists(),
                "nothing real is changed"
            );
            let again = learn(place, &["-p", "./l.toml"], script);
            again.says("nothing to propose").says(&stays);
            let before = place.sh(&[], script);
            assert!(
                place.at(format!("home/{directory}/f")).exists(),
                "the control: {}",
                before.err
            );
            place.sh(&["-p", "./l.toml"], script).says("busy");
            let left = fs::read_dir(place.at(format!("home/{directory}"))).unwrap().count();
            assert_eq!(left, 0, "all that was in it is gone");
        }
    });
}

#[test]
fn a_name_beside_credentials_that_is_replaced_is_told() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    place.file("home/.app/rc", "y\n");
    place.file("home/.app/token.json", "kept\n");
    let told = learn(place, &["-o", "l.toml"], "sed -i s/y/new/ ~/.app/rc");
    told.ends(0);
    told.says("~/.app is not proposed: in it are credentials, by their names");
    assert!(!rules(place).contains(".app"), "{}", rules(place));
    fs::remove_file(place.at("home/.app/token.json")).unwrap();
    fs::remove_file(place.project("l.toml")).unwrap();
    learn(place, &["-o", "l.toml"], "sed -i s/y/new/ ~/.app/rc").ends(0);
    assert!(rules(place).contains("\"~/.app?\""), "the control: {}", rules(place));
}

#[test]
fn what_is_changed_and_never_opened_is_named() {
    everybody(Tier::Namespace, |place| {
        let python = |what: &str| {
            format!("python3 -c 'import os; f = os.path.expanduser(\"~/.app/f\"); {what}'")
        };
        let scripts = [
            "rm ~/.app/f".to_owned(),
            "mv ~/.app/f ~/.app/g".to_owned(),
            "ln ~/.app/f ~/.app/g".to_owned(),
            "chmod 600 ~/.app/f".to_owned(),
            "chgrp $(id -g) ~/.app/f".to_owned(),
            "touch -c -d 2001-01-01 ~/.app/f && test -e ~/.app/f".to_owned(),
            "rmdir ~/.app/empty".to_owned(),
            "mv ~/.app/empty ~/.app/full".to_owned(),
            python("os.truncate(f, 0)"),
            python("os.setxattr(f, \"user.a\", b\"1\")"),
            python("os.utime(f)"),
        ];
        for script in scripts {
            let _ = fs::remove_file(place.project("l.toml"));
            let _ = fs::remove_dir_all(place.at("home/.app"));
            place.directory("home/.app/empty");
            place.file("home/.app/f", "x");
            let before = place.sh(&[], &script);
            assert_ne!(before.code, 0, "the control: {script}");
            learn(place, &["-o", "l.toml"], &script).ends(0).says("1 rule proposed");
            let found = rules(place);
            assert!(found.contains("write = [\n\"~/.app?\",\n]"), "{script}: {found}");
            learn(place, &["-p", "./l.toml"], &script)
                .ends(0)
                .says("nothing to propose: the policy allows");
            let state = |name: &str| {
                let data = place.at(name).symlink_metadata().ok()?;
                Some((data.ctime(), data.ctime_nsec(), data.ino()))
            };
            let all =
                || ["f", "g", "empty", "full"].map(|name| state(&format!("home/.app/{name}")));
            let old = all();
            place.sh(&["-p", "./l.toml"], &script).ends(0);
            assert_ne!(all(), old, "it is done on the host: {script}");
        }
    });
}

#[test]
fn what_is_opened_to_be_read_and_written_is_shown() {
    everybody(Tier::Namespace, |place| {
        let script = "python3 -c 'import os; f = open(os.path.expanduser(\"~/.app/f\"), \"r+\"); \
                      t = f.read(); f.write(t + \"new\")'";
        let _ = fs::remove_file(place.project("l.toml"));
        place.file("home/.app/f", "old\n");
        assert_ne!(place.sh(&[], script).code, 0, "the control");
        learn(place, &["-o", "l.toml"], script).ends(0).says("1 rule proposed");
        assert!(rules(place).contains("write = [\n\"~/.app?\",\n]"), "{}", rules(place));
        place.sh(&["-p", "./l.toml"], script).ends(0);
        assert!(fs::read_to_string(place.at("home/.app/f")).unwrap().ends_with("new"));
        learn(place, &["-p", "./l.toml"], script).ends(0).says("nothing to propose: the policy");
        // What begins empty is only written: without a rule the directory that it is in is not there.
        let empty = "python3 -c 'import os; open(os.path.expanduser(\"~/.app/f\"), \"w+\")'";
        assert_ne!(place.sh(&[], empty).code, 0, "the control");
        learn(place, &[], empty).ends(0).says("1 rule proposed");
        // In the home itself it needs none.
        let empty = empty.replace("/.app/f", "/.f");
        learn(place, &[], &empty).ends(0).says("nothing to propose").says("gone with each run");
    });
}

#[test]
fn what_is_moved_from_one_rule_to_another_is_told() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    place.file("home/.app/f", "x");
    place.file("home/.config/other/g", "x");
    let script = "python3 -c 'import os; h = os.path.expanduser(\"~\"); \
                  os.rename(h + \"/.app/f\", h + \"/.config/other/g\")'";
    let told = learn(place, &[], &format!("cat ~/.config/other/g; {script} || true"));
    told.ends(0).says(
        "not proposed: filesystem.write ~/.config/other/g?: ~/.app/f is renamed or linked to it",
    );
    told.says("(EXDEV: some programs copy it then), and ~ is not proposed: a home is in it");
    let inside = "cat ~/.config/other/g; mv ~/.config/other/g ~/.config/other/h";
    let told = learn(place, &[], inside);
    told.ends(0);
    assert!(!told.err.contains("EXDEV"), "the control: {}", told.err);
}
