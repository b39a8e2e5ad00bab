//! Odd and hostile surroundings: everything works or is refused in a sentence, and nothing is
//! left half done.

use ringfence_tests::{
    Finished, Person, Place, Running, Tier, binary, everybody, everywhere, left_out,
};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn few_descriptors_are_enough_or_an_error() {
    everywhere(|place| {
        let mut worked = 0;
        for limit in (3..40).chain([64, 256]) {
            let ended = place.shell(&format!("ulimit -n {limit}; $RF -- sh -c 'echo ran'"));
            match ended.code {
                0 => {
                    assert_eq!(ended.text(), "ran", "{limit}: {}", ended.err);
                    worked += 1;
                }
                125..=127 => {
                    assert!(
                        ended.err.starts_with("ringfence: ") || limit < 4,
                        "{limit}: {}",
                        ended.err
                    );
                    assert_eq!(ended.text(), "");
                }
                code => panic!("{limit}: {code} {}", ended.err),
            }
            assert_eq!(place.left_behind(), [""; 0], "{limit}");
        }
        assert!(worked > 0, "the control");
    });
}

#[test]
fn few_processes_are_an_error() {
    everybody(Tier::Namespace, |place| {
        if place.person == Person::Root {
            return;
        }
        for limit in [1, 2, 3] {
            let ended = place.shell(&format!("exec bash -c 'ulimit -u {limit}; exec $RF -- true'"));
            assert!(ended.code == 0 || ended.code == 125, "{limit}: {} {}", ended.code, ended.err);
            assert_eq!(place.left_behind(), [""; 0]);
        }
        // Where a filter is in force, whether somebody listens for calls is found out in a thread.
        let program = binary().display();
        let inside = |limit: &str| {
            place.shell(&format!(
                "$RF -r {program} -- bash -c 'ulimit {limit}; exec {program} run --tier process -- true'"
            ))
        };
        inside("-n 512").ends(0);
        inside("-u 1").ends(125).says("limit of processes is reached");
    });
}

/// Sixty starts, which all succeed while somebody outside makes a file and removes it. It is there in the end.
fn starts_while_it_comes_and_goes(
    place: &Place,
    name: &str,
    text: &str,
    start: &dyn Fn() -> Finished,
) {
    let file = place.file(name, text);
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                let _ = fs::write(&file, text).and_then(|()| fs::remove_file(&file));
            }
        });
        let starts: Vec<_> = (0..60).map(|_| start()).collect();
        ends.store(true, Ordering::Relaxed);
        for ended in starts {
            ended.prints("ran").ends(0);
        }
    });
    fs::write(&file, text).unwrap();
}

/// As locks and temporary files do beside what is denied by a wildcard, or at the top of /etc.
#[test]
fn a_denied_file_that_comes_and_goes_keeps_nothing_from_starting() {
    everybody(Tier::Namespace, |place| {
        let denied = ["--deny", "keys/*"];
        starts_while_it_comes_and_goes(place, "home/project/keys/lock", "a secret", &|| {
            place.run(&denied, &["sh", "-c", "cat keys/lock; echo ran"])
        });
        place.sh(&denied, "cat keys/lock").ends(1).says("Permission denied");
    });
}

/// What is protected may be gone when the view is built (`git switch` between branches): what there is then is planned.
#[test]
fn a_protected_file_that_comes_and_goes_keeps_nothing_from_starting() {
    everybody(Tier::Namespace, |place| {
        // One that comes while a run goes on is taken away by it.
        let name = "home/project/.envrc";
        starts_while_it_comes_and_goes(place, name, "mine", &|| place.run(&[], &["echo", "ran"]));
        // The control: it is protected where it is there.
        place.sh(&[], "echo x > .envrc").ends(2).says("Read-only file system");
        assert_eq!(fs::read_to_string(place.at(name)).unwrap(), "mine");
    });
}

#[test]
fn a_current_directory_that_is_gone_is_an_error() {
    everywhere(|place| {
        let ended = place.shell("mkdir gone; cd gone; rmdir ../gone; $RF -- true");
        ended.ends(125).says("current directory");
        // With another one named, it is not needed.
        let project = place.text("home/project");
        let script = format!("mkdir gone; cd gone; rmdir ../gone; $RF --workdir {project} -- pwd");
        let ended = place.shell(&script);
        assert!(ended.code == 0 && ended.text() == project || ended.code == 125, "{}", ended.err);
    });
}

#[test]
fn odd_homes_work_or_are_refused() {
    everywhere(|place| {
        place.shell("unset HOME; $RF -- sh -c 'echo ran'").prints("ran").ends(0);
        for home in [
            "/",
            "",
            "relative",
            "/no/such/home",
            "/dev/null",
            "/proc",
            "/usr",
            "//",
            "/tmp/../tmp",
        ] {
            let ended = place.shell(&format!("HOME='{home}' $RF -- sh -c 'echo ran'"));
            assert!(
                ended.code == 0 && ended.text() == "ran"
                    || ended.code == 125 && ended.text().is_empty(),
                "HOME={home}: {} {}",
                ended.code,
                ended.err
            );
            // Whatever home is, the rest of the host stays out of reach.
            let secret = place.text("outside/secret");
            let reach = place.shell(&format!("HOME='{home}' $RF -- cat {secret}"));
            assert_ne!(reach.code, 0, "HOME={home} opens {secret}");
        }
        // A home that holds the current directory's parents, as a link.
        place.link("linked", place.at("home"));
        let linked = place.text("linked");
        place.shell(&format!("HOME={linked} $RF -- sh -c 'echo x > made'")).ends(0);
        assert!(place.project("made").exists());
    });
}

/// Root has no more rights inside than files give to everybody.
#[test]
fn root_in_a_closed_directory_of_somebody_else_is_told_what_to_do() {
    everybody(Tier::Namespace, |place| {
        if place.person != Person::Root {
            return;
        }
        place.directory("closed/project");
        let closed = place.at("closed");
        Person::Ordinary.owns(&closed);
        let there = place.text("closed/project");
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o711)).unwrap();
        place.shell(&format!("cd {there} && $RF -- pwd")).prints(&there).ends(0);
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
        place.shell(&format!("cd {there} && pwd")).prints(&there).ends(0);
        let said = place.shell(&format!("cd {there} && $RF -- pwd"));
        said.ends(125).says("run ringfence as the owner (sudo -u NAME)");
        assert_eq!(said.text(), "");
    });
}

/// In a static program the C library's list of users is no way to find a home.
#[test]
fn a_user_without_name_and_home_is_a_user() {
    if !ringfence_tests::people().contains(&Person::Root) {
        return left_out("users without names", "only root can become one");
    }
    for tier in Tier::here() {
        let place = Place::new(Person::Root, tier);
        let project = place.directory("home/project/theirs");
        for theirs in [&project, &place.at("tmp")] {
            std::os::unix::fs::chown(theirs, Some(54_321), Some(54_321)).unwrap();
        }
        for way in [place.root().to_owned(), place.at("home"), place.project("")] {
            fs::set_permissions(way, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mut command = place.ringfence_run();
        command.args(["--", "sh", "-c", "id -u; echo made > file"]).current_dir(&project);
        command.env_remove("HOME").env_remove("XDG_STATE_HOME").uid(54_321).gid(54_321);
        let outcome = Running::start(command).finish();
        outcome.ends(0).prints("54321").says("this session's record is not kept");
        assert_eq!(fs::read_to_string(project.join("file")).unwrap(), "made\n");
    }
}

/// Whoever starts ringfence may ignore what it waits for.
#[test]
fn a_parent_that_ignores_signals_changes_nothing() {
    everywhere(|place| {
        for ignored in ["CHLD", "CHLD INT TERM HUP QUIT PIPE USR1 USR2 TSTP TTIN TTOU"] {
            let tier = place.tier_name();
            let binary = binary().display().to_string();
            let script = format!(
                "trap '' {ignored}; '{binary}' run --tier {tier} -- sh -c '(exit 3) & wait $!'"
            );
            place.shell(&script).ends(3);
        }
    });
}

#[test]
fn odd_search_paths_find_what_they_name_and_nothing_else() {
    everywhere(|place| {
        place.script("tool", "#!/bin/sh\necho project\n");
        // An empty path is the current directory's, as for any other program.
        let control = place.shell("PATH= /usr/bin/env tool");
        assert_eq!(place.shell("PATH= $RF -- tool").code, control.code);
        place.shell("$RF -- /bin/echo ran").ends(0);
        place.shell("rf=\"$RF\"; unset PATH; $rf -- /bin/echo ran").ends(0);
        let named = place.shell("PATH=.:/usr/bin:/bin $RF -- tool");
        assert_eq!(named.well(), "project");
        place.shell("PATH=/usr/bin:/bin $RF -- tool").ends(127);
        // A program outside of what is granted is not found, wherever PATH leads.
        place.program("outside/bin/other", "#!/bin/sh\necho outside\n");
        place.shell("PATH=../../outside/bin:$PATH other").ends(0);
        let ended = place.shell("PATH=../../outside/bin:/usr/bin:/bin $RF -- other");
        assert!([126, 127].contains(&ended.code), "{} {}", ended.code, ended.err);
        let long = format!("PATH={}:/usr/bin:/bin $RF -- true", "/x".repeat(3000));
        place.shell(&long).ends(0);
    });
}

#[test]
fn variables_that_steer_loaders_and_shells_do_not_steer_ringfence() {
    everywhere(|place| {
        for variable in [
            "LD_PRELOAD=/tmp/x.so",
            "LD_AUDIT=/tmp/x.so",
            "LD_LIBRARY_PATH=.",
            "GCONV_PATH=.",
            "LD_DEBUG=all",
            "GLIBC_TUNABLES=glibc.malloc.check=3",
            "MALLOC_TRACE=trace",
            "TZ=/etc/shadow",
            "XDG_CONFIG_HOME=relative",
            "XDG_STATE_HOME=../../outside",
            "RUST_BACKTRACE=full",
            "RUST_LOG=trace",
            "IFS=/",
            "BASH_ENV=/no",
        ] {
            let ended = place.shell(&format!("env '{variable}' $RF -- /bin/true"));
            assert_eq!(ended.code, 0, "{variable}: {}", ended.err);
        }
        assert!(fs::read_dir(place.project("")).unwrap().next().is_none(), "nothing was written");
    });
}

#[test]
fn arguments_and_environments_as_large_as_the_kernel_takes() {
    everywhere(|place| {
        let large = "x".repeat(120_000);
        let words: Vec<&str> = vec![&large; 10];
        let mut command = place.ringfence_run();
        command
            .env("LARGE", &large)
            .args(["--", "sh", "-c", "echo $# ${#LARGE}", "sh"])
            .args(words);
        assert_eq!(Running::start(command).finish().well(), "10 120000");
    });
}

#[test]
fn a_full_disk_is_an_error_and_no_loss() {
    everybody(Tier::Namespace, |place: &Place| {
        if place.person != Person::Root {
            return;
        }
        let small = place.directory("home/project/small");
        let small = small.to_str().unwrap();
        let mounted = place.shell(&format!("mount -t tmpfs -o size=64k,mode=1777 small {small}"));
        if mounted.code != 0 {
            return left_out("a full disk", mounted.err.trim());
        }
        fs::write(Path::new(small).join("kept"), "kept").unwrap();
        fs::create_dir(Path::new(small).join(".git")).unwrap();
        fs::write(Path::new(small).join(".git/config"), "[core]\n").unwrap();
        for tier in Tier::here() {
            let mut command = place.command(binary());
            command.current_dir(small).args(["run", "--tier", tier.name(), "--", "sh", "-c"]);
            command.arg(
                "head -c 1M /dev/zero > big; mkdir .vscode; echo x > .envrc; rm -f big; exit 3",
            );
            let ended = Running::start(command).finish();
            ended.ends(3).says("No space left on device");
            let text = |name: &str| fs::read_to_string(Path::new(small).join(name)).unwrap();
            assert_eq!((text("kept").as_str(), text(".git/config").as_str()), ("kept", "[core]\n"));
            assert!(!Path::new(small).join(".vscode").exists());
            // And when it is full before and stays so.
            let mut command = place.command(binary());
            command.current_dir(small).args(["run", "--tier", tier.name(), "--", "sh", "-c"]);
            command.arg("head -c 1M /dev/zero > big; mkdir .vscode; exit 4");
            Running::start(command).finish().ends(4);
            assert!(!Path::new(small).join(".vscode").exists());
            let mut command = place.command(binary());
            command.current_dir(small).args(["run", "--tier", tier.name(), "--", "rm", "big"]);
            Running::start(command).finish().ends(0);
        }
        place.shell(&format!("umount {small}")).ends(0);
    });
}

#[test]
fn a_policy_of_two_thousand_rules() {
    everywhere(|place| {
        let mut reads = Vec::new();
        for n in 0..1000 {
            place.file(format!("outside/many/f{n}"), "x");
            reads.push(format!("{:?}", place.text(format!("outside/many/f{n}"))));
        }
        let denied: Vec<String> =
            (0..1000).map(|n| format!("{:?}", place.text(format!("outside/no/{n}")))).collect();
        let profile = format!(
            "extends = [\"default\"]\n[filesystem]\nread = [{}]\ndeny = [{}]\n",
            reads.join(",\n"),
            denied.join(",\n")
        );
        let file = place.file("outside/many.toml", profile);
        let many = place.text("outside/many");
        let script = format!("cat {many}/f0 {many}/f999 && ! cat {}", place.text("outside/secret"));
        let ended = place.sh(&["-p", file.to_str().unwrap()], &script);
        assert_eq!(ended.ends(0).text(), "xx");
        assert_eq!(place.left_behind(), [""; 0]);
    });
}

#[test]
fn a_project_of_a_hundred_thousand_files() {
    for person in ringfence_tests::people() {
        let place = Place::new(person, Tier::Namespace);
        place.shell("mkdir d && cd d && seq 100000 | xargs touch").ends(0);
        for tier in Tier::here() {
            let mut command = place.command(binary());
            command.current_dir(place.project("d"));
            command.args(["run", "--tier", tier.name(), "--", "sh", "-c"]);
            command.arg("test -e 100000 && echo x > 1 && echo y > new");
            Running::start(command).finish().ends(0);
            assert_eq!(fs::read_to_string(place.project("d/new")).unwrap(), "y\n");
        }
    }
}

#[test]
fn names_of_every_kind_can_be_granted() {
    everywhere(|place| {
        for name in [
            "with space",
            "new\nline",
            "quote'\"",
            "dollar$HOME",
            "*",
            "-dash",
            "ünï",
            "a\\b",
            "{x}",
            "#x",
        ] {
            place.file(Path::new("outside/odd").join(name).join("file"), "seen");
            let path = place.text(Path::new("outside/odd").join(name));
            // What is special in a rule is taken literally after a backslash.
            let mut granted = place.text("outside/odd/");
            for letter in name.chars() {
                granted.extend("*?$\\".contains(letter).then_some('\\'));
                granted.push(letter);
            }
            let ended = place.run(&["-r", &granted], &["cat", &format!("{path}/file")]);
            assert_eq!(ended.quiet(), "seen", "{name:?}");
        }
    });
}

/// Escape characters, the one-byte form of `ESC [`, and marks of direction; as text, and as JSON has them.
#[test]
fn nothing_that_a_terminal_obeys_is_printed() {
    everywhere(|place| {
        let odd = "x\u{1b}[31m\u{9b}2J\u{202e}\u{61c}y";
        let file = place.file(Path::new("outside").join(odd), "seen");
        let file = file.to_str().unwrap();
        let tier = ["--tier", place.tier_name(), "-r", file];
        place.run(&["-r", file, "--name", "odd"], &["cat", file]).ends(0).prints("seen");
        let question = ["--", "read", file];
        for (words, shown) in [
            ([&["plan"], &tier[..]].concat(), true),
            ([&["plan", "--json"], &tier[..]].concat(), true),
            ([&["why"], &tier[..], &question[..]].concat(), true),
            ([&["why", "--json"], &tier[..], &question[..]].concat(), true),
            ([&["explain"], &tier[..], &[file]].concat(), true),
            (vec!["logs", "odd"], true),
            (vec!["logs", "odd", "--json"], true),
            (vec!["logs", "odd", "--follow", "--json"], true),
            (vec!["show", "odd"], false),
            (vec!["show", "odd", "--json"], false),
        ] {
            let ended = place.ringfence(&words);
            let text = String::from_utf8(ended.out.clone()).unwrap();
            let raw = ['\u{1b}', '\u{9b}', '\u{202e}', '\u{61c}'].map(|c| text.contains(c));
            assert_eq!(raw, [false; 4], "{words:?}: {text:?}");
            assert!(!shown || text.contains("202e"), "{words:?}: {text}");
            if words.contains(&"--json") && !words.contains(&"--follow") {
                let value: serde_json::Value = serde_json::from_str(&text).unwrap();
                // The same document as ever, to whoever reads it as one.
                assert!(!shown || has(&value, odd), "{words:?}: {text}");
            }
        }
    });
}

/// Whether a string in a document contains a text.
fn has(value: &serde_json::Value, text: &str) -> bool {
    match value {
        serde_json::Value::String(string) => string.contains(text),
        serde_json::Value::Array(values) => values.iter().any(|value| has(value, text)),
        serde_json::Value::Object(values) => values.values().any(|value| has(value, text)),
        _ => false,
    }
}

#[test]
fn a_sandbox_inside_a_sandbox_works_or_says_why_not() {
    everywhere(|place| {
        let binary = binary().to_str().unwrap();
        for tier in ["auto", "namespace", "process"] {
            let inner =
                [binary, "run", "--tier", tier, "--", "sh", "-c", "echo inner; cat ~/secret"];
            place.file("home/secret", "x");
            let ended = place.run(&["-r", binary], &inner);
            assert!(
                ended.text() == "inner" && ended.code == 1
                    || ended.code == 125 && ended.err.starts_with("ringfence: "),
                "{tier}: {} {} {}",
                ended.code,
                ended.text(),
                ended.err
            );
        }
    });
}
