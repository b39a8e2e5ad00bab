//! What `learn` records beside files and hosts: peaks, variables, the session bus, devices,
//! sockets; what of it reaches out of the sandbox is named and never proposed.

use ringfence_tests::{Finished, Person, Place, Running, Tier, everybody, left_out};
use rustix::process::Signal;
use std::fs;

fn learn(place: &Place, env: &[(&str, &str)], script: &str) -> Finished {
    let mut command = place.command(ringfence_tests::binary());
    command.envs(env.iter().copied());
    command.args(["learn", "-o", "l.toml", "--", "sh", "-c", script]);
    Running::start(command).finish()
}

fn learnt(place: &Place) -> String {
    fs::read_to_string(place.project("l.toml")).unwrap_or_default()
}

/// The rules that are in force: without comments.
fn rules(profile: &str) -> String {
    let lines = profile.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

/// The number before a word.
fn number(text: &str, before: &str) -> u64 {
    let start = text.split(before).next().unwrap_or_default();
    start
        .rsplit([' ', '('])
        .find(|word| !word.is_empty())
        .and_then(|word| word.parse().ok())
        .unwrap_or(0)
}

#[test]
fn the_most_that_was_used_at_once_is_told() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    if !place.has("python3", "--version") {
        return;
    }
    // Four at once, held by a pipe; one with 64 MiB; 3 MiB to the disk.
    let script = "mkfifo gate; for i in 1 2 3 4; do cat gate & done; \
                  /usr/bin/python3 -c 'x = bytearray(64 << 20); open(\"out\", \"wb\").write(x[:3 << 20])'; \
                  : > gate; wait";
    learn(place, &[], script).ends(0);
    let text = learnt(place);
    let line = text.lines().find(|line| line.contains("It used at most")).unwrap_or_default();
    let memory = number(line, " MiB of memory at once");
    assert!((64..1024).contains(&memory), "{text}");
    assert!(line.contains("of it by python3"), "{text}");
    assert!((6..40).contains(&number(line, " processes and threads")), "{text}");
    assert!((8..=1024).contains(&number(line, " open files")), "{text}");
    // What is in memory is written to no disk.
    let in_memory = place.shell("stat -f -c %T .").text() == "tmpfs";
    assert!(in_memory || number(line, " MiB written") >= 3, "{text}");
    assert!(text.contains("# Limits with room for twice that: memory = \""), "{text}");
    assert!(!rules(&text).contains("memory"), "limits are the user's to set: {text}");
    // The limit is enough; memory and processes take control groups, which not everybody has.
    let files = text.split("open_files = ").nth(1).and_then(|rest| rest.lines().next());
    place.sh(&["--open-files", files.unwrap_or_default()], script).ends(0);
}

#[test]
fn hidden_variables_that_files_speak_of_are_named_and_left_to_the_user() {
    everybody(Tier::Namespace, |place| {
        let _ = fs::remove_file(place.project("l.toml"));
        place.script("tool", "#!/bin/sh\necho \"<${SOME_SERVICE_TOKEN-none}>\"\n");
        let env = [("SOME_SERVICE_TOKEN", "sekrit"), ("OTHER_API_KEY", "sekrit"), ("PLAIN", "x")];
        let ran = learn(place, &env, "./tool");
        ran.ends(0).prints("<none>").says("not proposed: environment.pass SOME_SERVICE_TOKEN");
        let text = learnt(place);
        assert!(text.contains("# \"SOME_SERVICE_TOKEN\", # "), "{text}");
        assert!(!text.contains("sekrit") && !ran.err.contains("sekrit"), "{text}");
        assert!(!text.contains("OTHER_API_KEY") && !text.contains("PLAIN"), "{text}");
        assert!(!rules(&text).contains("TOKEN"), "{text}");
        // The control: passed by the user's word, it is there, and nothing is left to say.
        let mut command = place.command(ringfence_tests::binary());
        command.envs(env).args(["learn", "-e", "SOME_SERVICE_TOKEN", "--", "./tool"]);
        let ran = Running::start(command).finish();
        ran.ends(0).prints("<sekrit>");
        assert!(!ran.err.contains("SOME_SERVICE_TOKEN"), "{}", ran.err);
    });
}

#[test]
fn what_is_asked_of_the_session_bus_is_refused_and_named() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    for (program, option) in
        [("dbus-run-session", "--version"), ("gdbus", "help"), ("xdg-dbus-proxy", "--version")]
    {
        if !place.has(program, option) {
            return left_out("learning names of the bus", &format!("{program} is not installed"));
        }
    }
    let call = "gdbus call --session -d org.freedesktop.DBus -o / -m org.freedesktop.DBus";
    let asks = format!(
        "{call}.RequestName org.example.Mine 0; {call}.NameHasOwner org.example.Other; \
         gdbus call --session -d org.example.Service -o /a/b -m org.example.Service.Do; true"
    );
    place.file("home/project/asks", asks);
    let binary = ringfence_tests::binary().display().to_string();
    let ran = place.shell(&format!("dbus-run-session -- {binary} learn -o l.toml -- sh asks"));
    ran.ends(0);
    let text = learnt(place);
    assert!(!ran.text().contains("uint32 1"), "no name is owned: {}", ran.text());
    for told in [
        "# \"org.example.Mine\", # once, by gdbus",
        "# \"org.example.Other\", # once, by gdbus",
        "# \"org.example.Service=org.example.Service.Do@/a/b\", # once, by gdbus",
    ] {
        assert!(text.contains(told), "{told}: {text}");
    }
    assert!(!rules(&text).contains("org.example"), "{text}");
    place.ringfence(["profile", "check", "l.toml"]).ends(0);
    // The control: what is granted by the user's hand is there, and no longer told.
    place.file(
        "home/project/own.toml",
        "extends = [\"default\"]\n[dbus]\nown = [\"org.example.Mine\"]\n",
    );
    let ran = place.shell(&format!("dbus-run-session -- {binary} learn -p ./own.toml -- sh asks"));
    assert!(ran.text().contains("(uint32 1,)"), "{} {}", ran.text(), ran.err);
    assert!(
        !ran.err.contains("org.example.Mine") && ran.err.contains("org.example.Other"),
        "{}",
        ran.err
    );
}

#[test]
fn devices_and_sockets_are_named_and_left_to_the_user() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    if !place.has("python3", "--version") {
        return;
    }
    let devices =
        ["/dev/fuse", "/dev/net/tun", "/dev/kvm", "/dev/loop-control", "/dev/rtc0", "/dev/port"];
    let Some(device) = devices.into_iter().find(|path| fs::metadata(path).is_ok()) else {
        return left_out("learning devices", "there is none of the usual ones");
    };
    let socket = place.text("home/.service/socket");
    place.directory("home/.service");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let script = format!(
        "cat {device} 2>/dev/null; for i in 1 2; do /usr/bin/python3 -c 'import socket; \
         s = socket.socket(socket.AF_UNIX); s.connect(\"{socket}\")' 2>/dev/null; done; true"
    );
    let ran = learn(place, &[], &script);
    ran.ends(0).says(&format!("not proposed: filesystem.read {device}?: a device of the host's"));
    let text = learnt(place);
    assert!(text.contains("~/.service/socket?\", # 2 times, by python3"), "{text}");
    assert!(!rules(&text).contains("/dev/") && !rules(&text).contains("sockets"), "{text}");
    drop(listener);
}

#[test]
fn who_ends_learn_ends_the_run_and_learns_what_was_seen() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    let scratch = place.directory("scratch");
    place.file("home/.app/a", "x");
    let script = "cat ~/.app/a > /dev/null; echo ready; exec sleep 1000";
    let start = || {
        let mut command = place.command(ringfence_tests::binary());
        command.env("TMPDIR", &scratch);
        command.args(["learn", "-o", "l.toml", "--", "sh", "-c", script]);
        let mut running = Running::start(command);
        running.printed("ready");
        running
    };
    let running = start();
    running.signal(Signal::TERM);
    running.finish().ends(143);
    assert!(rules(&learnt(place)).contains("~/.app?"), "{}", learnt(place));
    assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0, "nothing is left");
    fs::remove_file(place.project("l.toml")).unwrap();
    // Its output is at its end when nothing has it open any more.
    let running = start();
    running.signal(Signal::KILL);
    running.finish().ends(137);
    assert_eq!(learnt(place), "");
}

#[test]
fn a_library_beyond_the_exact_set_is_learnt_by_the_name_that_finds_it() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    if !place.has("python3", "--version") || !place.has("ssh", "-V") {
        return;
    }
    // What it starts is computed, and so in no set.
    let words = ["python3", "-c", "import os; os.execv('/usr/' + 'bin/ssh', ['-', '-V'])"];
    place.file(
        "home/.config/ringfence/profiles/base.toml",
        "extends = [\"default\"]\nlibs = \"exact\"\n",
    );
    let learn = |options: &[&str]| {
        let words = ["learn"].iter().chain(options).chain(&["--"]).chain(&words).copied();
        place.ringfence(words.collect::<Vec<_>>())
    };
    place.run(&["-p", "base"], &words).ends(127).says("cannot open shared object file");
    learn(&["-p", "base", "-o", "l.toml"]).ends(0);
    let both = ["-p", "l.toml"];
    place.run(&both, &words).ends(0);
    learn(&both).ends(0).says("nothing to propose");
    // What is named is not missing, and what is missing is no feature's matter.
    let traced = |options: &[&str]| place.run(&[options, &["--trace-missing"]].concat(), &words);
    let missing = traced(&both).ends(0).err.clone();
    assert!(!missing.contains(".so."), "{missing}");
    let missing = traced(&["-p", "base"]).ends(127).err.clone();
    assert!(missing.contains(".so") && missing.contains("--read /"), "{missing}");
    assert!(!missing.contains("feature alsa"), "{missing}");
}

/// A profile that is no file of ringfence's own names no other file.
#[test]
fn what_is_learnt_on_top_of_a_file_goes_with_it() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    place.file("outside/told", "told\n");
    let told = place.text("outside/told");
    place.file(
        "home/project/my own.toml",
        format!("extends = [\"default\"]\n[filesystem]\nread = [{told:?}]\n"),
    );
    let words = ["cat", &told];
    let command = [&["learn", "-p", "./my own.toml", "-o", "l.toml", "--"], &words[..]].concat();
    let file = place.text("home/project/my own.toml");
    let both = format!("ringfence run -p '{file}' -p l.toml -- CMD");
    place.ringfence(command).says(&both);
    assert!(learnt(place).contains(&format!("-p '{file}'")), "{}", learnt(place));
    assert_eq!(place.run(&["-p", &file, "-p", "l.toml"], &words).well(), "told");
    assert_eq!(place.run(&["-p", "l.toml"], &words).code, 1);
}

/// Two things that are said must not gainsay each other.
#[test]
fn what_is_common_and_refused_is_left_to_the_user() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    let learn = |script: &str| place.ringfence(["learn", "--", "sh", "-c", script]);
    let refused = learn("cat /sys/devices/system/cpu/possible");
    refused.says("not proposed: nearly each runtime asks for /sys/devices/system/cpu");
    refused.says("nothing to propose: what the policy refuses is left to you");
    learn("true").ends(0).says("nothing to propose: the policy allows what it did");
}

#[test]
fn what_is_added_to_a_file_ends_its_lines_as_the_file_does() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    place.file("home/.app/a", "known\n");
    let old = "# mine\r\nextends = [\"default\"]\r\n[filesystem]\r\nread = [\r\n    \"/srv?\", # mine\r\n]\r\n";
    place.file("home/project/own.toml", old);
    let words =
        ["learn", "--merge", "own.toml", "-o", "own.toml", "--", "sh", "-c", "cat ~/.app/a"];
    place.ringfence(words).ends(0).prints("known");
    let new = fs::read_to_string(place.project("own.toml")).unwrap();
    let kept: Vec<&str> = new.split('\n').filter(|line| !line.contains("~/.app?")).collect();
    assert_eq!(kept.join("\n"), old, "{new:?}");
    assert!(new.contains("    \"~/.app?\", # once, by cat\r\n"), "{new:?}");
    assert_eq!(place.run(&["-p", "./own.toml"], &["sh", "-c", "cat ~/.app/a"]).well(), "known");
}

/// What formats a page is named in its settings and in the page.
#[test]
fn a_page_of_the_manual_is_formatted_with_an_exact_set_of_libraries() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    if !place.has("man", "--version") || !place.has("groff", "--version") {
        return left_out(
            "a page with an exact set of libraries",
            "man and groff are not installed",
        );
    }
    place.file(
        "home/project/page.1",
        "'\\\" t\n.TH PAGE 1\n.SH NAME\npage \\- told\n.TS\nl l.\nin\ttable\n.TE\n",
    );
    let show = |options: &[&str]| place.run(options, &["man", "./page.1"]).well();
    let plain = show(&[]);
    assert!(plain.contains("page - told") && plain.contains("table"), "the control: {plain}");
    assert_eq!(show(&["--libs", "exact"]), plain);
}

/// Whoever makes a file outside chooses its name; and not each missing file is one to be shown.
#[test]
fn what_is_missing_is_told_for_a_terminal_and_a_shell_and_credentials_as_such() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    place.file("home/.ssh/id_ed25519", "a secret");
    place.file("home/other/odd\nringfence: fine\u{1b}[2J; $(name)", "odd");
    let (odd, key) = (place.text("home/other"), place.text("home/.ssh/id_ed25519"));
    let script = format!("cat '{odd}/odd\nringfence: fine\u{1b}[2J; $(name)'; cat {key}");
    let traced = place.run(&["--trace-missing"], &["sh", "-c", &script]);
    let lines: Vec<&str> = traced.err.lines().filter(|line| line.contains("missing:")).collect();
    let told = |part: &str| lines.iter().find(|line| line.contains(part)).copied();
    let file = told("odd\\nringfence: fine\\u{1b}[2J").unwrap_or_else(|| panic!("{}", traced.err));
    assert!(file.contains("; --read $'/") && !traced.err.contains('\u{1b}'), "{file}");
    assert!(!traced.err.contains("\nringfence: fine"), "{}", traced.err);
    let secret = told("id_ed25519").unwrap_or_else(|| panic!("{}", traced.err));
    assert!(secret.contains("missing: CREDENTIALS (keys of ssh), /"), "{secret}");
    assert!(!file.contains("CREDENTIALS"), "the control");
}
