//! Git's configuration is bytes: a name in Latin-1 changes nothing of what it names. What cannot be read could name anything.

use ringfence_tests::{Finished, Place, everywhere};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const PARTS: &str = "make() { mkdir -p $1/.git/objects $1/.git/refs $1/.git/hooks; \
                     echo 'ref: refs/heads/m' > $1/.git/HEAD; }; ";

/// A repository in a directory, and files that its configuration may name.
fn repository(place: &Place, at: &str, config: &[u8]) {
    place.shell(&format!("{PARTS} make {at}")).ends(0);
    place.file(format!("home/project/{at}/.git/config"), config);
    for name in ["hk/pre-commit", "tools/clean", "tools/fsm", "plain"] {
        place.file(format!("home/project/{at}/{name}"), "host's\n");
    }
    let latin = OsStr::from_bytes(b"h\xfc/latin");
    place.file(Path::new("home/project").join(at).join(latin), "host's\n");
    place.clock_moves_on();
}

/// All that a run can change there.
fn change(place: &Place, options: &[&str], at: &str) -> Finished {
    let all = "hk/pre-commit tools/clean tools/fsm h*/latin plain";
    place.sh(options, &format!("cd {at}; for file in {all}; do echo EVIL >> $file; done; true"))
}

/// Which of the files have something of the run's, and whether the others are as they were.
fn evil(place: &Place, at: &str, run: &Finished, kept: bool) -> Vec<String> {
    let mut evil = Vec::new();
    for name in ["hk/pre-commit", "tools/clean", "tools/fsm", "h*/latin", "plain"] {
        let text = place.shell(&format!("cat {at}/{name} 2>/dev/null || true")).text();
        if text.contains("EVIL") {
            evil.push(name.to_owned());
        } else if kept {
            assert_eq!(text, "host's", "{at}/{name}: {}", run.err);
        }
    }
    evil
}

const LATIN: &[u8] =
    b"[user]\n\tname = J\xfcrgen\n[branch \"f\xfc\"]\n\tremote = o\n[core]\n\thooksPath = hk\n\
    \thooksPath = h\xfc\n[filter \"c\"]\n\tclean = ./tools/clean %f\n[include]\n\tpath = ../inc\n";

#[test]
fn what_a_configuration_in_another_encoding_names_is_protected() {
    everywhere(|place| {
        let namespace = place.tier_name() == "namespace";
        for at in [".", "sub"] {
            repository(place, at, LATIN);
            let included = b"# \xe9\n[core]\n\tfsmonitor = ./tools/fsm\n";
            place.file(format!("home/project/{at}/inc"), included);
            place.clock_moves_on();
            let run = change(place, &[], at);
            assert_eq!(evil(place, at, &run, at == "."), ["plain"], "{at}: {}", run.err);
            if at == "." && namespace {
                assert!(run.err.contains("Read-only file system"), "{}", run.err);
            }
        }
        if namespace {
            repository(place, "sub", LATIN);
            let run = change(place, &["--overlay=commit"], "sub");
            assert_eq!(evil(place, "sub", &run, true), ["plain"], "{}", run.err);
        }
    });
}

#[test]
fn the_users_own_configuration_may_be_in_another_encoding() {
    everywhere(|place| {
        place.file("home/.gitconfig", LATIN);
        repository(place, ".", b"[core]\n\tbare = false\n");
        let run = change(place, &[], ".");
        // No rule of the user's says that what is included is there.
        assert_eq!(evil(place, ".", &run, true), ["tools/fsm", "plain"], "{}", run.err);
    });
}

#[test]
fn what_cannot_be_read_could_name_anything() {
    everywhere(|place| {
        let namespace = place.tier_name() == "namespace";
        let root = place.shell("id -u").text() == "0";
        let line = format!("# {}\n", "x".repeat(1021));
        let large = line.repeat(5000) + "[core]\n\thooksPath = hk\n";
        let includes = |most: u32| -> String {
            (0..most).map(|n| format!("[include]\n\tpath = i{n}\n")).collect()
        };
        let many = includes(300);
        // To git that is `core.hooksPath`.
        let zero = "[core \"hooksPath\0\"]\n\tx = hk\n".to_owned();
        for (config, closed, said) in [
            (&large, false, "more than 4 MiB"),
            (&many, false, "include fewer"),
            (&many, true, "chmod u+r"),
            (&zero, false, "has a zero byte"),
        ] {
            if closed && root {
                continue;
            }
            let ways: &[&str] =
                if namespace { &["top", "sub", "overlay"] } else { &["top", "sub"] };
            for way in ways {
                let at = if *way == "top" { "." } else { "sub" };
                repository(place, at, config.as_bytes());
                if closed {
                    place.shell(&format!("chmod 0 {at}/.git/config")).ends(0);
                }
                place.clock_moves_on();
                let options: &[&str] = if *way == "overlay" { &["--overlay=commit"] } else { &[] };
                let run = change(place, options, at);
                assert!(run.err.contains(said), "{way} {said}: {}", run.err);
                let kept = *way != "sub";
                assert_eq!(evil(place, at, &run, kept), [""; 0], "{way} {said}: {}", run.err);
                if *way == "top" {
                    run.ends(125);
                }
                // What is closed cannot be put back either.
                if *way == "top" && !closed {
                    let accepted = change(place, &["--allow-degraded", "protect"], at);
                    assert!(accepted.ends(0).err.contains("not protected"), "{}", accepted.err);
                }
                place
                    .shell(&format!("chmod u+r {at}/.git/config; rm -rf .git sub tools h*"))
                    .ends(0);
            }
        }
        // The control: a large one that is read, and some that are included.
        let some = line.repeat(2000) + &includes(100) + "[core]\n\thooksPath = hk\n";
        repository(place, ".", some.as_bytes());
        let run = change(place, &[], ".");
        assert!(!evil(place, ".", run.ends(0), true).contains(&"hk/pre-commit".to_owned()));
    });
}

#[test]
fn git_settings_may_be_in_another_encoding() {
    everywhere(|place| {
        if !place.has("git", "--version") {
            return;
        }
        place.shell("git init -q .").ends(0);
        let mut config = fs::read(place.project(".git/config")).unwrap();
        config.extend_from_slice(b"[user]\n\tname = J\xfcrgen\n[alias]\n\thi = !echo \xfc\n");
        place.file("home/project/.git/config", &config);
        place.clock_moves_on();
        let feature = ["--feature", "git-settings"];
        place.sh(&feature, "git config user.email a@b").ends(0);
        let now = fs::read(place.project(".git/config")).unwrap();
        assert!(
            now.ends_with(b"\temail = a@b\n") || now.windows(11).any(|part| part == b"email = a@b")
        );
        place.clock_moves_on();
        for act in
            ["git config core.fsmonitor ./x", "git config alias.hi \"!echo $(printf '\\375')\""]
        {
            let run = place.sh(&feature, act);
            assert_eq!(fs::read(place.project(".git/config")).unwrap(), now, "{act}: {}", run.err);
            place.clock_moves_on();
        }
    });
}
