//! `--libs exact`: directories of libraries hold what the command needs, and nothing else.

use ringfence_tests::{Person, Place, Tier, everybody, everywhere, left_out};
use std::collections::BTreeSet;

const EXACT: [&str; 2] = ["--libs", "exact"];

/// The machine's directory of libraries, where this is a multiarch system.
fn machine() -> Option<&'static str> {
    let known = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"];
    known.into_iter().find(|path| std::path::Path::new(path).is_dir())
}

#[test]
fn real_programs_work() {
    everybody(Tier::Namespace, |place| {
        for command in [
            &["git", "--version"][..],
            &["/usr/bin/python3", "-c", "import json, sqlite3, ssl, pwd; pwd.getpwuid(0)"],
            &["curl", "--version"],
            &["redis-server", "--version"],
            &["perl", "-e", "use POSIX; use Socket; print 1"],
            &["ssh", "-V"],
            &["gcc", "--version"],
            &["java", "-version"],
            &["node", "-e", "require('crypto')"],
            &["npm", "--version"],
            &["nginx", "-v"],
        ] {
            if place
                .command(command[0])
                .args(&command[1..])
                .output()
                .is_ok_and(|o| o.status.success())
            {
                place.run(&EXACT, command).ends(0);
            } else {
                left_out(command[0], "it does not run outside");
            }
        }
    });
}

#[test]
fn a_compiler_compiles_and_what_it_made_runs() {
    everybody(Tier::Namespace, |place| {
        if !place.has("gcc", "--version") {
            return;
        }
        place.file("home/project/a.c", "#include <math.h>\n#include <stdio.h>\nint main(int c, char **v) { printf(\"%.1f\\n\", pow(c * 4.0, 0.5)); }\n");
        place.run(&EXACT, &["gcc", "-O1", "a.c", "-lm", "-o", "a"]).ends(0);
        assert_eq!(place.run(&EXACT, &["./a"]).well(), "2.0");
        // By who calls the compiler, and with its words.
        place.file("home/project/Makefile", "made: a.c\n\tgcc -O1 $< -lm -o $@\n");
        if place.has("make", "--version") {
            place.run(&EXACT, &["make", "-s", "made"]).ends(0);
            assert_eq!(place.run(&EXACT, &["./made"]).well(), "2.0");
        }
        if place.has("ccache", "--version") {
            place.run(&EXACT, &["ccache", "gcc", "-c", "a.c"]).ends(0);
        }
    });
}

#[test]
fn git_works_with_what_it_starts() {
    everybody(Tier::Namespace, |place| {
        if !place.has("git", "--version") {
            return;
        }
        let script = "git init -q . && git config user.email a@b && git config user.name n \
                      && echo x > f && git add f && git commit -qm m && git log --oneline | wc -l \
                      && git submodule status && git stash list && git bisect log; git status --short";
        let outside = place.shell(&format!("mkdir o && cd o && {{ {script}; }}"));
        let inside =
            place.run(&EXACT, &["sh", "-c", &format!("mkdir i && cd i && {{ {script}; }}")]);
        assert_eq!(inside.text(), outside.text(), "{}", inside.err);
    });
}

#[test]
fn nothing_else_is_there() {
    let Some(machine) = machine() else { return left_out("names", "no multiarch system") };
    everybody(Tier::Namespace, |place| {
        let list = format!("ls {machine}");
        let all = place.sh(&[], &list).quiet();
        let exact = place.sh(&EXACT, &list).quiet();
        let names = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
        let (all, exact) = (names(&all), names(&exact));
        assert!(exact.is_subset(&all), "names that the host has not: {:?}", exact.difference(&all));
        assert!(exact.len() < 30 && all.len() > exact.len(), "{exact:?}");
        let unneeded = all
            .iter()
            .find(|name| name.starts_with("libssl.so") || name.starts_with("libstdc++.so"));
        let Some(unneeded) = unneeded else {
            return left_out("absence", "no library that ls does not need");
        };
        let see = format!("cat {machine}/{unneeded} > /dev/null");
        place.sh(&[], &see).ends(0);
        place.sh(&EXACT, &see).ends(1).says("No such file or directory");
    });
}

#[test]
fn the_process_tier_refuses_to_read_the_others() {
    let Some(machine) = machine() else { return left_out("reading", "no multiarch system") };
    everybody(Tier::Process, |place| {
        let others = std::fs::read_dir(machine).unwrap().flatten();
        let other = others.map(|entry| entry.path()).find(|path| {
            path.file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(b"libstdc++.so"))
        });
        let Some(other) = other else {
            return left_out("reading", "no library that cat does not need");
        };
        let see = format!("cat {} > /dev/null && echo seen", other.display());
        assert_eq!(place.sh(&[], &see).well(), "seen");
        place.sh(&EXACT, &see).ends(1).says("Permission denied");
    });
}

#[test]
fn a_script_is_read_for_the_commands_it_names() {
    everywhere(|place| {
        place.file("home/project/part.sh", "words() { echo \"$1\" | sed s/a/b/; }\n");
        place.script(
            "script",
            "#!/bin/sh\n. ./part.sh\nTOOL=/usr/bin/find\nwords a\n$TOOL . -name part.sh\nif true; then x=$(id -u); fi\necho $x\n",
        );
        let (user, _) = place.person.ids();
        let printed = place.run(&EXACT, &["./script"]).quiet();
        assert_eq!(printed, format!("b\n./part.sh\n{user}"));
    });
}

#[test]
fn files_that_a_script_reads_by_a_pattern_are_read_too() {
    everybody(Tier::Namespace, |place| {
        place.file("home/project/parts/one", "COLUMNS=$(expr 3 + 4)\n");
        place.file("home/project/parts/.two", "touch ~/made-in-discovery\n");
        place.script(
            "script",
            "#!/bin/sh\nfor file in ./parts/*; do\n  test -f $file && . $file\ndone\necho $COLUMNS\n",
        );
        assert_eq!(place.run(&EXACT, &["./script"]).quiet(), "7");
        let why = place.ringfence(["explain", "--libs", "exact", "/usr/bin/expr", "./script"]);
        why.ends(0).prints("a command in");
        assert!(!place.at("home/made-in-discovery").exists());
    });
}

#[test]
fn what_the_policy_denies_stays_denied() {
    let Some(machine) = machine() else { return left_out("denial", "no multiarch system") };
    everybody(Tier::Namespace, |place| {
        let library = format!("{machine}/libpcre2-8.so.0");
        let Ok(library) = std::fs::canonicalize(library) else {
            return left_out("denial", "ls needs no library but the C library");
        };
        let library = library.to_str().unwrap().to_owned();
        place.run(&EXACT, &["ls", "/"]).ends(0);
        let denied = ["--libs", "exact", "--deny", library.as_str()];
        let refused = place.run(&denied, &["ls", "/"]);
        refused.ends(127).says("cannot open shared object file");
    });
}

#[test]
fn a_grant_of_the_users_own_adds_to_it() {
    let Some(machine) = machine() else { return left_out("grant", "no multiarch system") };
    everybody(Tier::Namespace, |place| {
        let gconv = format!("{machine}/gconv");
        if !std::path::Path::new(&gconv).is_dir() {
            return left_out("grant", "there is no gconv");
        }
        let see = format!("test -d {gconv}");
        place.sh(&EXACT, &see).ends(1);
        place.sh(&["--libs", "exact", "-r", &gconv], &see).ends(0);
    });
}

#[test]
fn a_writable_tree_is_not_narrowed_quietly() {
    let place = Place::new(Person::Ordinary, Tier::Namespace);
    let refused = place.run(&["--libs", "exact", "-w", "/usr"], &["true"]);
    refused.ends(125).says("--libs exact cannot narrow it");
}

#[test]
fn a_changed_library_is_seen_by_the_next_run() {
    let place = Place::new(Person::Ordinary, Tier::Namespace);
    if !place.has("gcc", "--version") {
        return;
    }
    let script = "mkdir -p lib && echo 'int f(void) { return N; }' > f.c && \
         echo 'int f(void); int main(void) { return f(); }' > m.c && \
         gcc -shared -fPIC -DN=3 f.c -o lib/libf.so && gcc m.c -Llib -lf -Wl,-rpath,'$ORIGIN/lib' -o m";
    place.shell(script).ends(0);
    place.run(&EXACT, &["./m"]).ends(3);
    place.shell("gcc -shared -fPIC -DN=4 f.c -o lib/new && mv lib/new lib/libf.so").ends(0);
    place.run(&EXACT, &["./m"]).ends(4);
}

#[test]
fn a_plan_names_the_command_or_says_that_it_must() {
    let place = Place::new(Person::Ordinary, Tier::Namespace);
    place.ringfence(["plan", "--libs", "exact"]).ends(125).says("-- CMD");
    place.ringfence(["plan", "--libs", "exact", "--", "ls"]).ends(0).prints("the command needs it");
}

/// A directory of libraries of which nothing is shown: there are no places to make in it.
#[test]
fn a_directory_of_which_nothing_is_needed_is_empty() {
    everybody(Tier::Namespace, |place| {
        let profile =
            "extends = []\nlibs = \"exact\"\n[filesystem]\nread = [\"/usr/local\", \".\"]\n";
        place.file("home/project/own.toml", profile);
        // Static, so that it needs no library.
        let program = place.project("static");
        ringfence_tests::copy_program(ringfence_tests::binary(), &program);
        for _ in 0..3 {
            let ended = place.run(&["-p", "./own.toml"], &["./static", "--version"]);
            assert!(ended.well().starts_with("ringfence"), "{ended:?}");
        }
    });
}
