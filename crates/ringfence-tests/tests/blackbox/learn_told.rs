//! What `learn` writes, and where: no credentials of the command line, no file of another's, nothing that was not measured.

use crate::learn_rules::learn;
use ringfence_tests::{Person, Place, Running, Tier, everybody, people};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[test]
fn credentials_of_the_command_line_are_not_written() {
    everybody(Tier::Namespace, |place| {
        let _ = fs::remove_file(place.project("l.toml"));
        let words = [
            "learn",
            "-o",
            "l.toml",
            "--",
            "env",
            "PASSWORD=SEKRIT",
            "echo",
            "-H",
            "Authorization: Bearer SEKRIT",
            "https://me:SEKRIT@x.org/",
            "--token",
            "SEKRIT",
            "--user=x",
            "plain",
        ];
        place.ringfence(words).ends(0).prints("SEKRIT");
        let text = fs::read_to_string(place.project("l.toml")).unwrap();
        assert!(!text.contains("SEKRIT") && text.contains("--token *** --user=x plain"), "{text}");
        let json = place.ringfence(["learn", "--json", "--", "echo", "--token", "SEKRIT"]).well();
        let profile = json.split("\"profile\"").nth(1).unwrap_or_default();
        assert!(profile.contains("echo --token ***") && !profile.contains("SEKRIT"), "{json}");
    });
}

/// Another one made it while the command ran.
#[test]
fn a_file_that_appears_meanwhile_is_not_overwritten() {
    everybody(Tier::Namespace, |place| {
        for name in ["l.toml", "target"] {
            let _ = fs::remove_file(place.project(name));
        }
        for link in [false, true] {
            let _ = fs::remove_file(place.project("l.toml"));
            let mut command = place.command(ringfence_tests::binary());
            command.args([
                "learn",
                "-o",
                "l.toml",
                "--",
                "sh",
                "-c",
                "echo started; exec sleep 1000",
            ]);
            let mut learning = Running::start(command);
            learning.printed("started");
            match link {
                false => _ = place.file("home/project/l.toml", "mine\n"),
                true => _ = place.link("home/project/l.toml", "target"),
            }
            learning.signal(Signal::TERM);
            let learnt = learning.finish();
            learnt.ends(125).says("l.toml exists and is not overwritten: --merge l.toml");
            assert!(
                learnt.text().contains("extends = [\"default\"]"),
                "it is printed: {}",
                learnt.text()
            );
            match link {
                false => assert_eq!(fs::read_to_string(place.project("l.toml")).unwrap(), "mine\n"),
                true => assert!(!place.project("target").exists()),
            }
        }
        fs::remove_file(place.project("l.toml")).unwrap();
    });
}

#[test]
fn a_profile_that_is_added_to_keeps_its_mode() {
    everybody(Tier::Namespace, |place| {
        let profile = place.file("home/project/l.toml", "extends = [\"default\"]\n");
        place.file("home/.app/a", "x\n");
        for mode in [0o600, 0o640] {
            fs::set_permissions(&profile, fs::Permissions::from_mode(mode)).unwrap();
            let script = if mode == 0o600 { "cat ~/.app/a" } else { "cat ~/.app/a; cat ~/.app2/a" };
            place.file("home/.app2/a", "x\n");
            learn(place, &["--merge", "l.toml", "-o", "l.toml"], script)
                .ends(0)
                .says("1 rule proposed");
            let now = fs::metadata(&profile).unwrap().permissions().mode();
            assert_eq!(now & 0o7777, mode);
        }
        fs::remove_file(profile).unwrap();
    });
}

/// Root adds to a user's own: it stays that user's.
#[test]
fn a_profile_that_root_adds_to_keeps_its_owner() {
    use std::os::unix::fs::{MetadataExt, chown};
    if !people().contains(&Person::Root) {
        return;
    }
    let place = &Place::new(Person::Root, Tier::Namespace);
    let profile = place.file("home/project/l.toml", "extends = [\"default\"]\n");
    chown(&profile, Some(4321), Some(4321)).unwrap();
    place.file("home/.app/a", "x\n");
    learn(place, &["--merge", "l.toml", "-o", "l.toml"], "cat ~/.app/a")
        .ends(0)
        .says("1 rule proposed");
    let now = fs::metadata(&profile).unwrap();
    assert_eq!((now.uid(), now.gid()), (4321, 4321));
}

#[test]
fn what_was_not_measured_is_not_told() {
    everybody(Tier::Namespace, |place| {
        let _ = fs::remove_file(place.project("l.toml"));
        let mut command = place.command(ringfence_tests::binary());
        command.args(["learn", "-o", "l.toml", "--", "sh", "-c", "echo started; exec sleep 1000"]);
        let mut learning = Running::start(command);
        learning.printed("started");
        learning.signal(Signal::TERM);
        learning.finish();
        let text = fs::read_to_string(place.project("l.toml")).unwrap();
        for invented in ["at most", " 0 MiB of memory", "(by )", "by )", "Limits with room"] {
            assert!(!text.contains(invented), "{invented}: {text}");
        }
    });
}

#[test]
fn what_is_read_after_a_failed_execution_is_by_who_read_it() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    if !place.has("python3", "--version") {
        return;
    }
    let _ = fs::remove_file(place.project("l.toml"));
    place.file("home/.app/a", "x\n");
    let read = "import os\ntry: os.execv('/nowhere/tool', ['tool'])\nexcept OSError: pass\n\
                open(os.path.expanduser('~/.app/a')).read()";
    learn(place, &["-o", "l.toml"], &format!("/usr/bin/python3 -c \"{read}\"")).ends(0);
    let text = fs::read_to_string(place.project("l.toml")).unwrap();
    assert!(text.contains("\"~/.app?\", # once, by python3"), "{text}");
}
