//! Files that decide what a sandbox may do, in places that it writes: policy never comes from inside.

use ringfence_tests::{Place, Running, Tier, everybody, everywhere};
use std::fs;

/// What a profile would say that a program inside wrote.
const MORE: &str = "printf '[filesystem]\\nread = [\"%s\"]\\n' \"$OUT\" >> $FILE";

/// Tries to change a file from inside, in each way there is, and says what it reads then.
fn tampers(place: &Place, options: &[&str], file: &str) {
    let before = fs::read(place.project(file)).unwrap();
    let out = format!("OUT={}", place.text("outside"));
    let name = format!("FILE={file}");
    for way in [
        MORE,
        "rm -f $FILE; touch kept",
        "chmod 0 $FILE",
        "mv $FILE moved; cp moved $FILE; echo '# inside' >> $FILE",
        "cp $FILE new; echo '# inside' >> new; mv -f new $FILE",
        "rm -f $FILE; ln -s /etc/hostname $FILE",
    ] {
        let options = [options, &["-e", &out, "-e", &name]].concat();
        let run = place.sh(&options, &format!("{way}; echo fine > beside"));
        let now = fs::read(place.project(file)).unwrap_or_default();
        assert_eq!(now, before, "{way}: {}{}", run.text(), run.err);
        assert!(!place.project(file).is_symlink(), "{way}");
        // The control: beside it the project is writable.
        assert!(place.project("beside").exists(), "{way}: {}", run.err);
        fs::remove_file(place.project("beside")).unwrap();
    }
}

#[test]
fn a_profile_that_is_named_by_its_file_is_not_changed_by_what_it_rules() {
    everywhere(|place| {
        place.file("home/project/my.toml", "extends = [\"default\"]\n");
        tampers(place, &["-p", "./my.toml"], "my.toml");
        // One by a link, where that leads to.
        place.file("home/project/sub/real.toml", "extends = [\"default\"]\n");
        place.link("home/project/link.toml", "sub/real.toml");
        tampers(place, &["-p", "./link.toml"], "sub/real.toml");
        // The control: not in use, it is a file like any other.
        place.sh(&[], "echo '# mine' >> my.toml").ends(0);
        assert!(fs::read_to_string(place.project("my.toml")).unwrap().contains("# mine"));
    });
}

/// A project whose own policy denies something.
fn trusted(place: &Place) {
    place.file("home/project/.env", "SECRETENV\n");
    let text = "extends = [\"default\"]\n[filesystem]\nwrite = [\".\"]\ndeny = [\".env\"]\n";
    place.file("home/project/ringfence.toml", text);
    place.ringfence(["trust", "ringfence.toml"]).ends(0);
}

#[test]
fn a_trusted_project_file_is_not_changed_by_what_it_rules() {
    everybody(Tier::Namespace, |place| {
        trusted(place);
        tampers(place, &[], "ringfence.toml");
        let next = place.sh(&[], "cat .env; echo ran");
        assert_eq!(next.text(), "ran", "{}", next.err);
    });
}

#[test]
fn a_trusted_project_file_is_not_changed_from_a_directory_above_either() {
    everybody(Tier::Namespace, |place| {
        trusted(place);
        let file = place.project("ringfence.toml");
        let before = fs::read(&file).unwrap();
        let home = place.text("home");
        let act = "rm -f ~/project/ringfence.toml; echo x > ~/project/ringfence.toml; echo y > ~/project/beside";
        let mut command = place.ringfence_run();
        command.current_dir(place.at("outside")).args(["-w", &home, "--", "sh", "-c", act]);
        let run = Running::start(command).finish();
        assert_eq!(fs::read(&file).unwrap_or_default(), before, "{}", run.err);
        assert!(place.project("beside").exists(), "the control: {}", run.err);
    });
}

#[test]
fn a_trusted_project_file_that_is_gone_or_cannot_be_read_is_told() {
    everybody(Tier::Namespace, |place| {
        trusted(place);
        place.shell("chmod 0 ringfence.toml").ends(0);
        let unreadable = place.sh(&[], "cat .env; echo ran");
        match place.person {
            ringfence_tests::Person::Root => assert_eq!(unreadable.text(), "ran"),
            ringfence_tests::Person::Ordinary => {
                unreadable.ends(125).says("which you trusted, cannot be read");
            }
        }
        place.shell("chmod 0644 ringfence.toml").ends(0);
        assert_eq!(place.sh(&[], "cat .env; echo ran").text(), "ran");
        fs::remove_file(place.project("ringfence.toml")).unwrap();
        place.sh(&[], "true").ends(0).says("which you trusted, is gone");
        place.ringfence(["trust", "ringfence.toml"]).ends(0);
        assert_eq!(place.sh(&[], "true").ends(0).err, "");
        place.ringfence(["trust", "ringfence.toml"]).ends(125);
        // Where none was, there is nothing to say.
        let mut command = place.ringfence_run();
        command.current_dir(place.directory("home/elsewhere")).args(["--", "true"]);
        assert_eq!(Running::start(command).finish().ends(0).err, "");
    });
}

#[test]
fn a_link_to_a_policy_that_is_trusted_elsewhere_is_not_trusted_here() {
    everywhere(|place| {
        let outside = place.text("outside");
        let text = format!("extends = [\"default\"]\n[filesystem]\nread = [{outside:?}]\n");
        let file = place.file("home/other/ringfence.toml", text);
        place.ringfence(["trust", file.to_str().unwrap()]).ends(0);
        let script = format!("cat {outside}/secret");
        place.sh(&[], &format!("ln -s {} ringfence.toml", file.display())).ends(0);
        let next = place.sh(&[], &script);
        assert!(!next.text().contains("a secret"), "{}", next.text());
        next.says("is not trusted and not used");
        // The control: one that the user accepts by that name.
        place.ringfence(["trust", "ringfence.toml"]).ends(0);
        assert_eq!(place.sh(&[], &script).well(), "a secret");
    });
}

#[test]
fn the_process_tier_refuses_where_it_cannot_hold_the_configuration() {
    everybody(Tier::Process, |place| {
        place.directory("home/.config");
        let config = place.text("home/.config");
        place
            .sh(&["-w", &config], "true")
            .ends(125)
            .says("cannot be protected inside the writable")
            .says("--allow-degraded deny");
        let elsewhere = place.directory("home/project/c");
        let mut command = place.ringfence_run();
        command.env("XDG_CONFIG_HOME", &elsewhere).args(["--", "true"]);
        Running::start(command).finish().ends(125).says("cannot be protected inside");
        // The controls: another directory in there, and who accepts it.
        let other = place.directory("home/.config/other");
        place.sh(&["-w", other.to_str().unwrap()], "true").ends(0);
        place.sh(&["-w", &config, "--allow-degraded", "deny"], "true").ends(0);
    });
}
