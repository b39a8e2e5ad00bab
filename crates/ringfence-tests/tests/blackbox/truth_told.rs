//! What `why` says beside yes and no is true as well: what becomes of what is written, and what changes the answer.

use crate::truth::why;
use ringfence_tests::{Person, Place, Tier, everybody, everywhere};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// What is at a path of the project, if something is.
fn text(place: &Place, file: &str) -> Option<String> {
    fs::read_to_string(place.project(file)).ok()
}

/// What a line of an answer says.
fn line<'a>(said: &'a str, what: &str) -> &'a str {
    said.lines().find_map(|line| line.strip_prefix(what)).unwrap_or_default().trim_start()
}

#[test]
fn what_is_there_at_a_protected_name_fares_as_is_said() {
    everywhere(|place| {
        let put = |file: &str| place.file(format!("home/project/{file}"), "host's\n");
        let (read_only, put_back) = ("is read-only inside", "is put back after the run");
        let top = if place.tier == Tier::Namespace { read_only } else { put_back };
        let names = [".envrc", ".vscode/tasks.json", "web/.envrc", "web/.vscode/tasks.json"];
        for file in names {
            put(file);
            let (allowed, said) = why(place, &[], &["write", file]);
            let effect = line(&said, "effect:");
            assert!(!allowed, "{said}");
            let below = file.starts_with("web");
            assert!(effect.contains(if below { "is not put back" } else { top }), "{file}: {said}");
            for (act, written) in [("echo evil >", true), ("rm", false)] {
                put(file);
                place.clock_moves_on();
                let ran = place.sh(&[], &format!("{act} {file}"));
                let done = ran.code == 0;
                assert_eq!(done, !effect.contains(read_only), "{act} {file}: {}", ran.err);
                // A control: neither is refused by the host.
                let kept = (!below).then(|| "host's\n".to_owned());
                assert_eq!(text(place, file), kept, "{act} {file}: {said}{}", ran.err);
                if below && written {
                    ran.says("and is protected: moved to");
                }
            }
        }
        // Of what is not there, beside what is.
        put(".vscode/tasks.json");
        put("web/.vscode/tasks.json");
        for (file, made) in
            [(".vscode/new", place.tier == Tier::Process), ("web/.vscode/new", true)]
        {
            let (_, said) = why(place, &[], &["write", file]);
            assert_eq!(said.contains("it cannot be made: "), !made, "{said}");
            place.clock_moves_on();
            assert_eq!(place.sh(&[], &format!("echo > {file}")).code == 0, made, "{said}");
            assert_eq!(text(place, file), None, "{said}");
        }
        let (_, said) = why(place, &[], &["write", "new/.envrc"]);
        assert_eq!(line(&said, "effect:"), "a new one does not survive the run");
    });
}

/// Which tier it is decides the plan.
#[test]
fn the_tier_that_is_taken_is_the_one_that_is_told_of() {
    everybody(Tier::Namespace, |place| {
        place.file("home/project/.envrc", "");
        let told = place.ringfence(["why", "--tier", "auto", "--", "write", ".envrc"]);
        told.ends(1).prints("what is there is read-only inside");
        place.sh(&[], ": >> .envrc").says("Read-only file system");
    });
}

#[test]
fn writes_that_are_kept_apart_are_said_to_be() {
    everybody(Tier::Namespace, |place| {
        for (option, end, committed) in [
            ("--overlay=keep", ", until `ringfence overlay commit`", false),
            ("--overlay=ask", "; at the end you are asked whether it is committed", false),
            ("--overlay=discard", ", and dropped at the end", false),
            ("--dry-run", ", and dropped at the end", false),
            ("--overlay=commit", ", and committed at the end", true),
        ] {
            place.file("home/project/web/.envrc", "host's\n");
            let apart = format!("what is written is kept apart from the host's files{end}");
            let (allowed, said) = why(place, &[option], &["write", "new"]);
            assert!(allowed && line(&said, "effect:") == apart, "{option}: {said}");
            let (allowed, said) = why(place, &[option], &["write", "web/.envrc"]);
            assert!(!allowed && said.contains("kept apart from the host's files"), "{said}");
            let (_, private) = why(place, &[option], &["write", "/tmp/new"]);
            assert!(private.contains("private: discarded at the end"), "{private}");
            let ran = place.sh(&[option], "echo new > new; echo evil > web/.envrc");
            ran.ends(0);
            assert_eq!(text(place, "new").is_some(), committed, "{option}: {}", ran.err);
            assert_eq!(text(place, "web/.envrc").as_deref(), Some("host's\n"), "{}", ran.err);
        }
        let (_, plain) = why(place, &[], &["write", "new"]);
        assert!(!plain.contains("kept apart"), "{plain}");
    });
}

#[test]
fn what_its_mode_or_the_kernel_closes_is_not_called_readable() {
    everywhere(|place| {
        let file = place.file("home/project/closed", "x");
        fs::set_permissions(file, fs::Permissions::from_mode(0o000)).unwrap();
        place.file("home/project/open", "x");
        for (path, open) in [
            ("closed", false),
            ("open", true),
            ("/etc/shadow", false),
            ("/etc/passwd", true),
            ("/proc/1/environ", false),
            ("/proc/1/root/etc/passwd", false),
            ("/proc/1/status", true),
            ("/proc/self/environ", true),
        ] {
            let (allowed, said) = why(place, &[], &["read", path]);
            let ran = place.sh(&[], &format!("head -c 1 {path} > /dev/null"));
            assert_eq!((allowed, ran.code == 0), (open, open), "{path}: {said}{}", ran.err);
        }
    });
}

#[test]
fn a_program_that_is_nowhere_is_not_called_executable() {
    everywhere(|place| {
        let tool = place.script("tool", "#!/bin/sh\n");
        let path = format!("PATH={}", tool.parent().unwrap().display());
        for (options, name, code) in [
            (&[][..], "no-such-program-here", 127),
            (&[], "tool", 127),
            (&[], "./tool", 0),
            (&["-e", &path], "tool", 0),
            (&[], "true", 0),
        ] {
            let (allowed, said) = why(place, options, &["exec", name]);
            let ran = place.run(options, &[name]);
            ran.ends(code);
            assert_eq!(allowed, code == 0, "{name}: {said}");
            assert_eq!(
                said.contains("is in no directory of the sandbox's PATH"),
                !allowed,
                "{said}"
            );
        }
        let (_, said) = why(place, &[], &["exec", "tool"]);
        assert_eq!(line(&said, "to change it:"), "name it by its path: ./tool");
    });
}

#[test]
fn a_network_that_was_switched_off_is_told_of_with_what_brings_it_back() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    let off = place.file("home/off.toml", "extends = [\"default\"]\n[network]\nmode = \"none\"\n");
    let off = off.to_str().unwrap();
    let both = "--network filtered --allow-host x.example";
    for (options, remedy) in [
        (&[][..], "--allow-host x.example"),
        (&["--network", "none"], both),
        (&["--feature", "offline"], both),
        (&["-p", off], both),
        (&["--feature", "offline", "-n", "x.example"], "--network filtered"),
        (&["-p", off, "-n", "x.example"], "--network filtered"),
    ] {
        let network =
            |options: &[&str]| place.sh(options, "echo ${RINGFENCE_NETWORK:-some}").text();
        let (allowed, said) = why(place, options, &["connect", "x.example"]);
        assert!(!allowed && line(&said, "to change it:") == remedy, "{options:?}: {said}");
        assert_eq!(network(options), "none", "{options:?}");
        // Without what it is in place of.
        let mut changed: Vec<&str> = options.to_vec();
        changed.retain(|word| !["--network", "none"].contains(word));
        changed.extend(remedy.split(' '));
        let (allowed, said) = why(place, &changed, &["connect", "x.example"]);
        assert!(allowed, "{changed:?}: {said}");
        assert_eq!(network(&changed), "some", "{changed:?}");
    }
}

#[test]
fn options_that_come_to_nothing_together_are_refused_or_told() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    for (mode, option, value) in [
        ("none", "--allow-host", "x.example"),
        ("none", "--http", "GET x.example/"),
        ("none", "--inject", "x.example A=env:X"),
        ("host", "--allow-host", "x.example"),
        ("host", "--deny-host", "x.example"),
        ("host", "--publish", "3020"),
    ] {
        let ran = place.sh(&["--network", mode, option, value], "touch ran");
        let told = format!("with --network {mode}; leave one of the two out");
        ran.ends(125).says(&told).says(&format!("option {option} \"{value}\": "));
        assert!(!place.project("ran").exists(), "{}", ran.err);
    }
    for (mode, why) in
        [("none", "there is no network"), ("host", "the host's network is used as it is")]
    {
        for words in [
            &["run", "--ask", "--network", mode, "--", "touch", "ran"][..],
            &["plan", "--ask=5s", "--network", mode],
        ] {
            let told =
                format!("option --ask: {why} with --network {mode}; leave one of the two out");
            place.ringfence(words).ends(125).says(&told);
        }
        assert!(!place.project("ran").exists());
    }
    let told = "--ask has no effect: there is no network; --network filtered changes that";
    place.sh(&["--ask"], "true").ends(0).says(told);
    let told =
        "--ask has no effect: there is no network (none: feature offline); --network filtered";
    place.sh(&["--feature", "offline", "--ask"], "true").ends(0).says(told);
    assert_eq!(place.sh(&["--ask", "--network", "filtered"], "true").quiet(), "");
    // Each alone is well, and so is what a profile allows where the network is switched off.
    let some = place
        .file("home/some.toml", "extends = [\"default\"]\n[network]\nallow = [\"x.example\"]\n");
    let some = some.to_str().unwrap();
    for options in
        [&["-n", "x.example"][..], &["--network", "none"], &["-p", some, "--network", "none"]]
    {
        assert_eq!(place.sh(options, "true").quiet(), "", "{options:?}");
    }
    let told = "--allow-host x.example has no effect: there is no network (none: feature offline); \
                --network filtered changes that";
    place.sh(&["--feature", "offline", "-n", "x.example"], "true").ends(0).says(told);
}

/// Servers may have methods of their own, so that it is no refusal.
#[test]
fn a_method_that_looks_like_a_slip_is_told_with_the_nearest() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    let told = "`GTE` is no usual method; the nearest is `GET`";
    place.sh(&["--http", "GET,GTE x.example/"], "true").ends(0).says(told);
    for rule in ["GET x.example/", "PROPFIND x.example/", "BREW x.example/", "* x.example/"] {
        assert_eq!(place.sh(&["--http", rule], "true").quiet(), "", "{rule}");
    }
}

/// All of the host is shown but what is the sandbox's own.
#[test]
fn private_directories_are_told_of_where_all_of_the_host_is_shown() {
    everybody(Tier::Namespace, |place| {
        let home = place.text("home/new");
        for (path, private) in [
            ("/tmp/new", true),
            ("/dev/shm/new", true),
            (&home, true),
            ("/var/tmp/new", false),
            ("/etc/new", false),
        ] {
            let (allowed, said) = why(place, &["-r", "/"], &["write", path]);
            assert_eq!(allowed, private, "{path}: {said}");
            assert_eq!(said.contains("private: discarded at the end"), private, "{path}: {said}");
            let ran = place.sh(&["-r", "/"], &format!(": > {path}"));
            assert_eq!(ran.code == 0, private, "{path}: {}{said}", ran.err);
        }
        // What the host has there is not shown.
        let file = place.file("home/there", "x");
        let file = file.to_str().unwrap();
        let (allowed, said) = why(place, &["-r", "/"], &["read", file]);
        assert!(!allowed, "{said}");
        assert_ne!(place.sh(&["-r", "/"], &format!("cat {file}")).code, 0, "{said}");
        for device in ["/dev/null", "/etc/passwd"] {
            let (allowed, said) = why(place, &["-r", "/"], &["read", device]);
            assert!(allowed, "{said}");
        }
    });
}
