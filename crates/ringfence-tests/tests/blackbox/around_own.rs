//! What is granted around directories of the sandbox's own: all of the host, and trees that have the home in them. Nothing
//! of what the host has there is to be had by any name.

use ringfence_tests::{Place, Tier, everybody};
use std::fs;

const HOME: &str = "home";

/// A home with a secret and a note, and the tree around it.
fn around(place: &Place) -> String {
    place.file("home/.ssh/key", "secret\n");
    place.file("home/note", "note\n");
    place.file("home/project/own", "own\n");
    place.file("beside/file", "beside\n");
    place.root().to_str().unwrap().to_owned()
}

/// What is in the home on the host: it is to stay so.
fn names(place: &Place) -> Vec<String> {
    let names = fs::read_dir(place.at(HOME)).unwrap().flatten();
    let mut names: Vec<_> = names.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.retain(|name| !matches!(&**name, ".local" | ".cache" | ".config"));
    names.sort_unstable();
    names
}

#[test]
fn nothing_of_the_host_lies_over_the_root_that_is_the_hosts() {
    everybody(Tier::Namespace, |place| {
        let root = around(place);
        let hooks = place.directory("home/project/.git/hooks");
        place.file("home/project/.git/HEAD", "ref: refs/heads/main\n");
        let (home, project) = (place.text(HOME), place.text("home/project"));
        assert_eq!(fs::read_to_string(place.at("home/.ssh/key")).unwrap(), "secret\n", "a control");
        // What the root has above itself is the root.
        let script = format!(
            "stat -c %d:%i / /.. /../.. | sort -u | wc -l; cat /..{project}/own; \
             cat /..{home}/.ssh/key; echo evil >/..{project}/.git/hooks/pre-commit; echo more >>/..{home}/note; \
             chmod 600 /..{root}/beside/file; awk '$5 == \"/\"' /proc/self/mountinfo | wc -l"
        );
        for options in
            [&["-r", "/"][..], &["-r", "/", "--overlay=discard"], &["-r", "/", "--disk", "64M"]]
        {
            let ended = place.sh(options, &script);
            assert_eq!(ended.text(), "1\nown\n1", "{options:?}: {}", ended.err);
            let missing = format!("cat: /..{home}/.ssh/key: No such file or directory");
            ended.says(&missing);
            assert!(fs::read_dir(&hooks).unwrap().next().is_none(), "{options:?}");
            assert_eq!(fs::read_to_string(place.at("home/note")).unwrap(), "note\n");
        }
        // Nor for who comes later.
        let mut session =
            place.start(&["-r", "/", "--name", "over"], &["sh", "-c", "echo up; exec sleep 1000"]);
        session.printed("up\n");
        let look = format!("stat -c %d:%i / /.. | sort -u | wc -l; cat /..{home}/.ssh/key");
        let ended = place.ringfence(["exec", "over", "--", "sh", "-c", &look]);
        assert_eq!(ended.text(), "1", "{}", ended.err);
        ended.says("No such file or directory");
        drop(session);
    });
}

#[test]
fn a_tree_around_the_home_does_not_show_it() {
    everybody(Tier::Namespace, |place| {
        let root = around(place);
        let (key, state) = (place.text("home/.ssh/key"), place.text("home/.local/state/ringfence"));
        let before = names(place);
        let script = format!(
            "ls -A ~; cat {root}/beside/file; cat {key}; echo x >~/new && cat ~/new; echo x >{state}/x"
        );
        for grant in ["-r", "-w"] {
            let ended = place.sh(&[grant, &root], &script);
            assert_eq!(ended.text(), "project\nbeside\nx", "{grant}: {}", ended.err);
            ended.says(&format!("cat: {key}: No such file or directory"));
            assert!(!place.at("home/.local/state/ringfence/x").exists(), "{grant}");
            assert_eq!(names(place), before, "{grant}");
        }
        // A denial says no more, and what is granted in it by its own name is there.
        place.run(&["-r", &root, "--deny", &key], &["cat", &key]).ends(1).says("No such file");
        let note = place.text("home/note");
        let ended = place.sh(&["-r", &root, "-r", &note], "ls -A ~; cat ~/note");
        assert_eq!(ended.quiet(), "note\nproject\nnote");
        let ended = place.sh(&["-w", &root, "-w", &note], "echo more >>~/note; cat ~/note");
        assert_eq!(ended.quiet(), "note\nmore");
        assert_eq!(fs::read_to_string(&note).unwrap(), "note\nmore\n");
        // So is the home, where that is granted.
        let ended = place.sh(&["-r", &root, "-r", &place.text(HOME)], "cat ~/note");
        assert_eq!(ended.quiet(), "note\nmore");
        // A home that is kept has what was kept in it.
        let kept = ["--home", "apart", "-r", &root];
        assert_eq!(place.sh(&kept, "echo kept >~/k; ls -A ~").quiet(), "k\nproject");
        assert_eq!(place.sh(&kept, "cat ~/k").quiet(), "kept");
        assert_eq!(names(place), before);
    });
}

#[test]
fn why_says_of_a_home_in_a_granted_tree_what_is_so() {
    everybody(Tier::Namespace, |place| {
        let root = around(place);
        let (note, beside) = (place.text("home/note"), place.text("beside/file"));
        let why = |words: &[&str]| place.ringfence([&["why"], words].concat());
        why(&["-r", &root, "--", "read", &beside]).ends(0);
        why(&["-r", &root, "--", "read", &note]).ends(1).prints("does not show the host's");
        why(&["-w", &root, "--", "write", &note]).ends(0).prints("discarded at the end");
        why(&["-r", &root, "-r", &note, "--", "read", &note]).ends(0).prints("option --read");
    });
}
