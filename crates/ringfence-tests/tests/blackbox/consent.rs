//! Questions whose answer changes something: answered by what is typed after they were put, whatever the program typed
//! for before or made of the terminal.

use ringfence_tests::{Person, Place, Terminal, Tier, everybody};
use std::fs;

/// Runs until the window changes, and leaves what is typed meanwhile unread.
const UNREAD: &str = "sleep 1000 & echo rea''dy; wait";

#[test]
fn what_was_typed_for_the_program_commits_nothing() {
    everybody(Tier::Namespace, |place| {
        let kept = place.file("home/project/kept", "kept\n");
        place.clock_moves_on();
        let mut terminal = Terminal::shell(place);
        let mut unread = || {
            terminal.line(&format!(
                "$RF --overlay=ask -- sh -c 'trap \"echo more >> kept; exit 0\" WINCH; {UNREAD}'"
            ));
            terminal.shows("\nready");
            terminal.line("y").shows("y\r\n");
            terminal.resize(30, 90);
            terminal.shows("[k]eep: ");
        };
        unread();
        terminal.line("k").shows("kept apart");
        terminal.code(0);
        assert_eq!(fs::read_to_string(&kept).unwrap(), "kept\n");
        place.ringfence(["overlay", "discard", "latest"]).ends(0);
        // The control: the same answer to the question itself, in any letters.
        terminal.line("$RF --overlay=ask -- sh -c 'echo more >> kept'").shows("[k]eep: ");
        terminal.line("sure").shows("answer y, n, d or k");
        terminal.shows("[k]eep: ");
        terminal.line("Yes").shows("committed 1 change");
        terminal.code(0);
        terminal.leave();
        assert_eq!(fs::read_to_string(&kept).unwrap(), "kept\nmore\n");
    });
}

#[test]
fn a_terminal_that_was_left_raw_can_be_answered_on() {
    everybody(Tier::Namespace, |place| {
        let kept = place.file("home/project/kept", "kept\n");
        let mut terminal = Terminal::shell(place);
        let raw = "$RF --overlay=ask -- sh -c 'stty raw -echo; echo more >> kept'";
        terminal.line(raw).shows("[k]eep: ");
        terminal.types("k\r").shows("kept apart");
        terminal.code(0);
        terminal.line(raw).shows("[k]eep: ");
        // Said as well to who leaves by the other way.
        terminal.types("\x03").shows("kept apart");
        terminal.code(130);
        terminal.line(raw).shows("[k]eep: ");
        terminal.types("\x04").shows("kept apart");
        terminal.code(0);
        terminal.leave();
        assert_eq!(fs::read_to_string(&kept).unwrap(), "kept\n");
    });
}

#[test]
fn what_was_typed_for_the_program_writes_no_profile() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    place.script("waits", &format!("#!/bin/sh\ntrap 'exit 0' WINCH\n{UNREAD}\n"));
    let own = place.at("home/.config/ringfence/profiles/waits.toml");
    let mut terminal = Terminal::shell(place);
    let command = format!("{} profile new ./waits", ringfence_tests::binary().display());
    for (answer, code) in [("\n", 0), ("\x03", 130), ("Y\n", 0)] {
        assert!(!own.exists());
        terminal.line(&command).shows("\nready");
        terminal.line("y").shows("y\r\n");
        terminal.resize(30, 90);
        terminal.shows("waits.toml? [y/N] ");
        terminal.types(answer).code(code);
        terminal.resize(24, 80);
    }
    assert!(own.exists(), "the control: who agrees has it");
    terminal.leave();
}

/// The profile is what it is when the answer comes: an editor may have saved it while the question stood. A link stays one.
#[test]
fn a_profile_that_was_edited_while_the_question_stood_keeps_what_was_written() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    let real = place.file("home/dotfiles/own.toml", "[network]\nallow = []\n");
    place.directory("home/.config/ringfence/profiles");
    let own = place.at("home/.config/ringfence/profiles/own.toml");
    place.shell(&format!("chmod 640 {0}; ln -s {0} {1}", real.display(), own.display())).ends(0);
    let mut session =
        place.start(&["--name", "asked", "-n", "site.test"], &["sh", "-c", "echo up; sleep 1000"]);
    session.printed("up");
    let allow =
        format!("{} allow --always --profile own asked", ringfence_tests::binary().display());
    let mut terminal = Terminal::shell(place);
    terminal.line(&format!("{allow} one.test")).shows("Write it? [y/N] ");
    fs::write(&real, "[network]\nallow = []\ndeny = [\"bad.test\"]\n").unwrap();
    terminal.line("y");
    terminal.code(0);
    let text = fs::read_to_string(&real).unwrap();
    assert_eq!(text, "[network]\nallow = [\n    \"one.test\",\n]\ndeny = [\"bad.test\"]\n");
    let modes = place.shell(&format!("stat -c %A {0}; stat -Lc %a {0}", own.display())).well();
    assert_eq!(modes, "lrwxrwxrwx\n640");
    // Who closed it to himself did not mean it to be written.
    place.shell(&format!("chmod 440 {}", real.display())).ends(0);
    terminal
        .line(&format!("{allow} --yes two.test"))
        .shows("is read-only, and nothing was written");
    terminal.code(125);
    terminal.leave();
    assert_eq!(fs::read_to_string(&real).unwrap(), text);
}

/// Keys with dots and tables on one line are profiles as well; what is no list is left alone, and told.
#[test]
fn a_host_is_added_however_the_profile_is_written() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    let own = place.file("home/.config/ringfence/profiles/own.toml", "");
    let mut session =
        place.start(&["--name", "asked", "-n", "site.test"], &["sh", "-c", "echo up; sleep 1000"]);
    session.printed("up");
    let allow =
        |host| place.ringfence(["allow", "--always", "--yes", "--profile", "own", "asked", host]);
    let texts = [
        "network.allow = [\"old.test\"] # mine\nnetwork.deny = [\"bad.test\"]\n",
        "network = { allow = [\"old.test\"], deny = [\"bad.test\"] } # mine\n",
        "[ network ] # mine\n\"allow\" = [\"old.test\"]\ndeny = [\"bad.test\"]\n",
        "[network]\n# allow = [\nallow = [\"old.test\"]\ndeny = [\"bad.test\"] # mine\n",
    ];
    for text in texts {
        fs::write(&own, text).unwrap();
        allow("one.test").ends(0);
        assert!(allow("one.test").ends(0).text().contains("has \"one.test\""));
        let after = fs::read_to_string(&own).unwrap();
        assert_eq!(after.matches("one.test").count(), 1, "{after}");
        assert!(after.contains("# mine"), "{after}");
        for (host, decision) in
            [("one.test", "allowed"), ("old.test", "allowed"), ("bad.test", "denied")]
        {
            let told =
                place.ringfence(["why", "-p", "own", "--", "connect", &format!("{host}:443")]);
            assert!(told.text().starts_with(decision), "{host} after {after}: {}", told.text());
        }
    }
    let text = "network.allow = \"old.test\"\n";
    fs::write(&own, text).unwrap();
    allow("one.test").ends(125).says("cannot be changed here");
    assert_eq!(fs::read_to_string(&own).unwrap(), text);
}
