//! What a watched run reached by another name, and what is no rule's: links, its own sockets, ringfence's own directories.

use crate::learn_rules::{learn, rules};
use crate::learn_secrets::with_accounts;
use ringfence_tests::{Place, Tier, everybody};
use std::fs;

fn fresh(place: &Place) {
    let _ = fs::remove_file(place.project("l.toml"));
    for directory in ["home/dotfiles", "home/.config/app2", "home/Documents", "home/.srv"] {
        let _ = fs::remove_dir_all(place.at(directory));
    }
}

#[test]
fn what_a_link_leads_to_is_proposed_with_it() {
    everybody(Tier::Namespace, |place| {
        fresh(place);
        place.file("home/dotfiles/app2/conf", "conf\n");
        place.directory("home/.config/app2");
        place.link("home/.config/app2/conf", place.at("home/dotfiles/app2/conf"));
        let script = "cat ~/.config/app2/conf";
        learn(place, &["-o", "l.toml"], script).ends(0).prints("conf");
        let text = rules(place);
        assert!(
            text.contains("read = [\n\"~/.config/app2?\",\n\"~/dotfiles/app2?\",\n]"),
            "{text}"
        );
        place.sh(&["-p", "l.toml"], script).ends(0).prints("conf");
        learn(place, &["-p", "l.toml"], script).ends(0).says("nothing to propose");
        learn(place, &["--merge", "l.toml", "-o", "l.toml"], script).ends(0);
        assert_eq!(rules(place), text, "nothing twice");
        // What was granted of it before lacks the rest alone.
        fs::write(
            place.project("half.toml"),
            "extends = [\"default\"]\n[filesystem]\nread = [\"~/.config/app2?\"]\n",
        )
        .unwrap();
        learn(place, &["--merge", "half.toml", "-o", "half.toml"], script)
            .ends(0)
            .says("1 rule proposed");
        place.sh(&["-p", "./half.toml"], script).ends(0).prints("conf");
        // To write by it, both are needed.
        let script = "echo new >>~/.config/app2/conf";
        fs::remove_file(place.project("l.toml")).unwrap();
        learn(place, &["-o", "l.toml"], script).ends(0);
        place.sh(&["-p", "l.toml"], script).ends(0);
        let kept = fs::read_to_string(place.at("home/dotfiles/app2/conf")).unwrap();
        assert_eq!(kept, "conf\nnew\n", "{}", rules(place));
        learn(place, &["-p", "l.toml"], script).ends(0).says("nothing to propose");
    });
}

#[test]
fn what_is_reached_through_a_link_of_the_runs_own_is_proposed() {
    everybody(Tier::Namespace, |place| {
        fresh(place);
        place.file("home/Documents/tax/1", "tax\n");
        let script = "ln -sfn ~/Documents lnk && ln -sf lnk/tax/1 again && cat again";
        learn(place, &["-o", "l.toml"], script).ends(0).prints("tax");
        assert!(rules(place).contains("read = [\n\"~/Documents/tax?\",\n]"), "{}", rules(place));
        place.sh(&["-p", "l.toml"], script).ends(0).prints("tax");
        learn(place, &["-p", "l.toml"], script).ends(0).says("nothing to propose");
        for link in ["lnk", "again"] {
            fs::remove_file(place.project(link)).unwrap();
        }
    });
}

#[test]
fn a_directory_that_was_only_gone_into_is_no_rule() {
    everybody(Tier::Namespace, |place| {
        fresh(place);
        place.file("home/Documents/tax/1", "tax\n");
        place.file("home/Documents/private/1", "private\n");
        let script = "cd ~/Documents && cat tax/1";
        learn(place, &["-o", "l.toml"], script).ends(0).prints("tax");
        assert!(rules(place).contains("read = [\n\"~/Documents/tax?\",\n]"), "{}", rules(place));
        let ran = place.sh(&["-p", "l.toml"], &format!("{script}; cat private/1"));
        ran.ends(1).prints("tax").says("private/1: No such file");
        learn(place, &["-p", "l.toml"], script).ends(0).says("nothing to propose");
        fs::remove_file(place.project("l.toml")).unwrap();
        learn(place, &["-o", "l.toml"], "cd ~/Documents && ls").ends(0);
        assert!(rules(place).contains("\"~/Documents?\""), "the control: {}", rules(place));
    });
}

/// `find ~` meets them.
#[test]
fn ringfences_own_directories_are_not_proposed() {
    everybody(Tier::Namespace, |place| {
        fresh(place);
        place.file("home/.config/app2/conf", "conf\n");
        let learnt = learn(
            place,
            &["-o", "l.toml"],
            "find ~ >/dev/null; ls -R ~/.local ~/.cache >/dev/null; true",
        );
        learnt.ends(0).says("filesystem.read ~/.local/state/ringfence?: it is ringfence's own");
        let text = rules(place);
        assert!(!text.contains("/ringfence"), "{text}");
        assert!(text.contains("\"~/.config/app2?\""), "the control: {text}");
        place.sh(&["-p", "l.toml"], "echo runs").ends(0).prints("runs");
    });
}

#[test]
fn a_socket_of_the_programs_own_leaves_its_directory_be() {
    everybody(Tier::Namespace, |place| {
        if !place.has("python3", "--version") {
            return;
        }
        fresh(place);
        place.file("home/.srv/settings", "settings\n");
        let serve = "import os, socket\nos.chdir(os.path.expanduser('~/.srv'))\nprint(open('settings').read())\n\
                     path = os.path.abspath('s')\ns = socket.socket(socket.AF_UNIX)\ns.bind(path)\ns.listen()\n\
                     socket.socket(socket.AF_UNIX).connect(path)\nos.unlink(path)";
        let script = format!("/usr/bin/python3 -c \"{serve}\"");
        let learnt = learn(place, &["-o", "l.toml"], &script);
        learnt.ends(0).prints("settings");
        assert!(!learnt.err.contains("not proposed: filesystem"), "{}", learnt.err);
        assert!(rules(place).contains("write = [\n\"~/.srv?\",\n]"), "{}", rules(place));
        place.sh(&["-p", "l.toml"], &script).ends(0).prints("settings");
    });
}

/// In `/srv`, since what is in `/tmp` is each run's own.
#[test]
fn what_a_rule_cannot_make_in_the_hosts_home_is_told() {
    everybody(Tier::Namespace, |place| {
        fresh(place);
        place.directory("mail");
        place.directory("accounts/closed/.config");
        place.directory("accounts/me/kept/sub");
        let run = |verb: &str, script: &str| {
            let run = format!("HOME=/srv/me $RF {verb} --home host -- sh -c '{script}'");
            with_accounts(place, "", &run)
        };
        let Some(learnt) = run("learn -o l.toml", "mkdir ~/new && echo x >~/new/f") else { return };
        learnt
            .ends(0)
            .says("filesystem.write ~/new?: it is not there, so that a rule for it is none");
        assert!(!rules(place).contains("new"), "{}", rules(place));
        fs::remove_file(place.project("l.toml")).unwrap();
        let script = "mkdir ~/kept/sub/a && echo x >~/kept/sub/a/f";
        run("learn -o l.toml", script).expect("as before").ends(0);
        run("run -p l.toml", script).expect("as before").ends(0);
        assert!(place.at("accounts/me/kept/sub/a/f").exists(), "{}", rules(place));
    });
}
