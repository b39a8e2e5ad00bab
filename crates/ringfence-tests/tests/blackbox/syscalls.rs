//! System calls by list: what is learnt is enough, what is not listed is refused, and nothing but
//! the user widens a list.

use ringfence_tests::{Person, Place, Tier, copy_program, everybody, everywhere, left_out};
use rustix::process::Signal;
use std::fs;

/// What a shell that lists a directory calls, and no more.
const LISTING: &str = "cat /etc/hostname > /dev/null; ls / | wc -l > /dev/null; echo done";

fn learn(place: &Place, options: &[&str], script: &str) -> ringfence_tests::Finished {
    let mut words = vec!["learn"];
    words.extend(options);
    words.extend(["--", "sh", "-c", script]);
    place.ringfence(words)
}

fn profile(place: &Place, calls: &[&str], more: &str) {
    let calls: Vec<String> = calls.iter().map(|call| format!("\"{call}\"")).collect();
    let text = format!(
        "extends = [\"default\"]\n[syscalls]\nmode = \"learned\"\nallow = [{}]\n{more}\n",
        calls.join(", ")
    );
    place.file("home/project/list.toml", text);
}

/// Enough for a shell, `mkdir` left out.
const SHELL: [&str; 12] = [
    "clone",
    "faccessat",
    "getcwd",
    "getdents64",
    "ioctl",
    "newfstatat",
    "openat",
    "pipe2",
    "prlimit64",
    "readlinkat",
    "statfs",
    "uname",
];

#[test]
fn what_is_learnt_is_enough_and_what_is_not_listed_is_refused() {
    everybody(Tier::Namespace, |place| {
        let learnt = learn(place, &["--syscalls", "learned", "-o", "l.toml"], LISTING);
        assert!(!learnt.err.contains("--syscalls"), "{}", learnt.err);
        learnt.ends(0).prints("done").says("rules proposed");
        let text = fs::read_to_string(place.project("l.toml")).unwrap();
        assert!(text.contains("mode = \"learned\"") && text.contains("\"openat\", # "), "{text}");
        assert!(!text.contains("mkdirat"), "{text}");
        let options = ["-p", "l.toml"];
        place.sh(&options, LISTING).ends(0).prints("done");
        place.sh(&options, "mkdir made").ends(1).says("Operation not permitted");
        assert!(!place.project("made").exists());
        learn(place, &options, LISTING).ends(0).says("nothing to propose");
        // The control: the same call, listed.
        let merged = ["--merge", "l.toml", "-o", "l.toml"];
        learn(place, &merged, "mkdir made").ends(0).prints("\"mkdirat\", # once, by mkdir");
        place.sh(&options, "mkdir made").ends(0);
        assert!(place.project("made").is_dir());
    });
}

#[test]
fn a_list_holds_in_every_tier_and_from_the_cache() {
    everywhere(|place| {
        profile(place, &SHELL, "");
        let script = "ls . > /dev/null && echo listed; mkdir made || echo refused";
        place.clock_moves_on();
        for _ in 0..3 {
            let ended = place.sh(&["-p", "list.toml"], script);
            assert_eq!(ended.ends(0).text(), "listed\nrefused", "{}", ended.err);
            assert!(!place.project("made").exists());
        }
        place.sh(&[], "mkdir made && rmdir made").ends(0);
        // Options are the user's too.
        place.sh(&["-p", "list.toml", "--syscalls", "default"], "mkdir made").ends(0);
    });
}

#[test]
fn who_makes_another_call_is_killed_if_the_profile_says_so() {
    everywhere(|place| {
        profile(place, &SHELL, "otherwise = \"kill\"");
        place.sh(&["-p", "list.toml"], "echo alive").ends(0).prints("alive");
        const KILLED_BY_SIGSYS: i32 = 128 + 31;
        place.run(&["-p", "list.toml"], &["mkdir", "made"]).ends(KILLED_BY_SIGSYS);
        assert!(!place.project("made").exists());
        // What ringfence says about a command that cannot start does not suffer from it.
        place.run(&["-p", "list.toml"], &["no-such-command"]).ends(127);
    });
}

#[test]
fn an_empty_list_is_a_list() {
    everybody(Tier::Namespace, |place| {
        profile(place, &[], "");
        let ended = place.run(&["-p", "list.toml"], &["ls", "/"]);
        assert!(ended.code != 0 && ended.out.is_empty(), "{}", ended.text());
        place.run(&[], &["ls", "/"]).ends(0);
    });
}

#[test]
fn a_run_under_a_list_widens_nothing() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    learn(place, &["--syscalls", "learned", "-o", "l.toml"], LISTING).ends(0);
    let before = fs::read(place.project("l.toml")).unwrap();
    let learnt = place.ringfence(["profile", "syscalls", "l.toml"]).well();
    place.sh(&["-p", "l.toml"], "mkdir made; ln -s a b; touch c; chmod 700 .").ends(1);
    assert_eq!(fs::read(place.project("l.toml")).unwrap(), before);
    assert_eq!(place.ringfence(["profile", "syscalls", "l.toml"]).well(), learnt);
    // What was learnt is out of reach inside, and nobody else's outside.
    let file = place.at("home/.local/state/ringfence/learnt.db");
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let home = place.text("home");
    let spoil = format!("echo x > {0}; rm -f {0}; ls {0}", file.display());
    assert_ne!(place.sh(&["-w", &home], &spoil).code, 0);
    assert_eq!(place.ringfence(["profile", "syscalls", "l.toml"]).well(), learnt);
    place.ringfence(["profile", "syscalls", "l.toml", "forget"]).ends(0).prints("forgotten");
    place.ringfence(["profile", "syscalls", "l.toml"]).ends(125).says("nothing was learnt");
}

#[test]
fn only_what_runs_inside_is_learnt_by_program_and_build() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    // Beside it runs a program that makes other calls all the time.
    let noise = place.shell_start("while :; do mkdir -p noise && rmdir noise; done");
    let options = ["--syscalls", "learned", "-o", "l.toml"];
    learn(place, &options, "cat /etc/hostname").ends(0);
    noise.signal(Signal::TERM);
    noise.finish();
    let shown = place.ringfence(["profile", "syscalls", "l.toml"]).well();
    assert!(!shown.contains("mkdirat") && !shown.contains("ringfence"), "{shown}");
    let programs: Vec<&str> = shown.lines().filter(|line| line.starts_with('/')).collect();
    assert_eq!(programs.len(), 2, "the shell and cat: {shown}");
    for program in programs {
        let build = program.split("(build ").nth(1).unwrap_or_default().trim_end_matches(')');
        assert!(build.len() >= 16 && !build.contains("not the one"), "{program}");
    }
}

/// Evidence is a profile's that is named, and no other's that was once in a file of the same name.
#[test]
fn what_another_profile_called_is_not_proposed() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    let made = ["--syscalls", "learned", "-o", "l.toml"];
    learn(place, &made, "mkdir made").ends(0);
    let text = fs::read_to_string(place.project("l.toml")).unwrap();
    assert!(text.contains("\"mkdirat\""), "the control: {text}");
    fs::remove_file(place.project("l.toml")).unwrap();
    learn(place, &made, "ls .").ends(0);
    let text = fs::read_to_string(place.project("l.toml")).unwrap();
    assert!(text.contains("\"getdents64\"") && !text.contains("mkdirat"), "{text}");
    let shown = place.ringfence(["profile", "syscalls", "l.toml"]).well();
    assert!(!shown.contains("mkdirat"), "{shown}");
    // What is learnt for a named profile adds up, wherever it is written to, and by whatever name the file is found.
    fs::create_dir(place.project("sub")).unwrap();
    let named = |name: &'static str, output: &'static str| {
        ["--syscalls", "learned", "-p", name, "-o", output]
    };
    learn(place, &named("./l.toml", "one.toml"), "mkdir made").ends(0);
    learn(place, &named("./sub/../l.toml", "two.toml"), "ln -s a b").ends(0);
    let text = fs::read_to_string(place.project("two.toml")).unwrap();
    assert!(text.contains("\"mkdirat\"") && text.contains("\"symlinkat\""), "{text}");
    // Nor is what a program called that has been replaced since.
    let tool = place.project("tool");
    copy_program("/bin/rmdir", &tool);
    learn(place, &named("./l.toml", "three.toml"), "mkdir made; ./tool made").ends(0);
    let text = fs::read_to_string(place.project("three.toml")).unwrap();
    assert!(text.contains("\"unlinkat\", # once, by tool"), "the control: {text}");
    copy_program("/bin/true", &tool);
    learn(place, &named("./l.toml", "four.toml"), "./tool").ends(0);
    let text = fs::read_to_string(place.project("four.toml")).unwrap();
    assert!(text.contains("\"mkdirat\"") && !text.contains("unlinkat"), "{text}");
}

#[test]
fn a_list_goes_with_published_ports() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    if !place.has("python3", "--version") {
        return left_out("publishing under a list", "python3 is not there");
    }
    if !place.publishes() {
        return;
    }
    let calls = [
        &SHELL[..],
        &["socket", "bind", "listen", "getsockname", "setsockopt", "sysinfo", "lseek", "fcntl"],
    ]
    .concat();
    let serve = "import socket; s = socket.socket(); s.bind(('127.0.0.1', 7397)); s.listen(); print('serves')";
    let python = ["/usr/bin/python3", "-ISc", serve];
    profile(place, &calls, "");
    place.run(&["-p", "list.toml", "--publish", "7397"], &python).ends(0).prints("serves");
    let without: Vec<&str> = calls.iter().copied().filter(|call| *call != "bind").collect();
    profile(place, &without, "");
    let refused = place.run(&["-p", "list.toml", "--publish", "7397"], &python);
    refused.ends(1).says("Operation not permitted");
}

#[test]
fn mistakes_in_a_list_are_told() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    profile(place, &["mkdri"], "");
    let nearest = "there is no system call \"mkdri\"; the nearest is `mkdir`";
    place.run(&["-p", "list.toml"], &["true"]).ends(125).says(nearest);
    place.run(&["--syscalls", "few"], &["true"]).ends(125).says("learned");
    profile(place, &["openat"], "");
    let plan = place.ringfence(["plan", "-p", "list.toml"]);
    plan.ends(0).prints("system calls allowed; any other is refused").prints("openat2");
}
