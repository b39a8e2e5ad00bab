//! `ringfence learn --from SESSION`: what a recorded session was refused, as rules; and where nothing can be watched.

use ringfence_tests::{Person, Place, Tier, everywhere};
use std::fs;

/// The rules of a profile that are in force: without comments.
fn rules(profile: &str) -> String {
    let lines = profile.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

/// Asks for names and addresses that a filtered network refuses; nothing leaves the machine.
const ASKS: &str = "import socket
for host, port in (('refused.invalid', 443), ('denied.invalid', 443), ('10.9.8.7', 8443)):
    try: socket.create_connection((host, port), 5).recv(1)
    except OSError: pass
proxy = socket.create_connection(('127.0.0.1', 1022), 5)
proxy.sendall(b'CONNECT localhost:8444 HTTP/1.1\\r\\nHost: localhost:8444\\r\\n\\r\\n')
assert b'403' in proxy.recv(99)
print('asked')";

#[test]
fn what_a_session_was_refused_is_proposed_and_then_not_again() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    if !place.has("python3", "--version") {
        return;
    }
    let options = ["--name", "asks", "-n", "allowed.invalid", "--deny-host", "denied.invalid"];
    let ran = place.run(&options, &["/usr/bin/python3", "-c", ASKS]);
    assert_eq!(ran.ends(0).text(), "asked");
    let base = ["-n", "allowed.invalid", "--deny-host", "denied.invalid"];
    let from = |more: &[&str]| {
        let words = [&["learn"][..], &base, &["--from", "asks"], more].concat();
        place.ringfence(words)
    };
    let learnt = from(&["-o", "l.toml"]);
    learnt.ends(0).says("1 rule proposed");
    let profile = fs::read_to_string(place.project("l.toml")).unwrap();
    let proposed = rules(&profile);
    // A name that was refused was never connected to: the usual ports.
    assert!(proposed.contains("\"refused.invalid\","), "{profile}");
    assert!(!proposed.contains("10.9.8.7") && !proposed.contains("denied.invalid"), "{profile}");
    learnt.says("not proposed: network.allow 10.9.8.7:8443: an address of the host's own networks");
    learnt
        .says("not proposed: network.allow localhost:8444: an address of the host's own networks");
    learnt.says("not proposed: network.allow denied.invalid");
    assert!(profile.contains("Which rule refused is not on record"), "{profile}");
    // What is denied is, without a network as well.
    let alone = place.ringfence(["learn", "--deny-host", "denied.invalid", "--from", "asks"]);
    alone.ends(0).says("not proposed: network.allow denied.invalid");
    assert!(rules(&alone.text()).contains("refused.invalid"), "{}", alone.text());
    assert!(!rules(&alone.text()).contains("denied.invalid"), "{}", alone.text());
    let again = from(&["-p", "l.toml"]);
    assert!(!rules(&again.text()).contains("refused.invalid"), "{}", again.text());
    place.ringfence(["profile", "check", "l.toml"]).ends(0);
    // Nothing of the session is changed by it.
    place.ringfence(["logs", "asks", "--denied"]).ends(0).prints("refused.invalid");
}

#[test]
fn a_session_that_was_refused_nothing_teaches_nothing() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    place.run(&["--name", "quiet"], &["true"]).ends(0);
    place
        .ringfence(["learn", "--from", "quiet"])
        .ends(0)
        .says("nothing that was refused is on record");
    let both = place.ringfence(["learn", "--from", "quiet", "--", "touch", "ran"]);
    both.ends(125).says("--from learns from what is on record and runs nothing");
    assert!(!place.project("ran").exists());
    place.ringfence(["learn", "--from", "no-such-session"]).ends(125).says("no-such-session");
}

/// A sandbox around this one is told of calls, and a second listener is none: that is said, and nobody waits for it.
#[test]
fn what_cannot_be_watched_is_refused_in_words() {
    everywhere(|place| {
        let binary = ringfence_tests::binary().display().to_string();
        for words in [["learn", "--"], ["run", "--trace-missing"]] {
            let line = format!("{binary} {} true", words.join(" "));
            let ended = place.sh(&["--read", &binary], &line);
            ended.ends(125).says("cannot be watched").says("seccomp notification");
        }
        let line = format!("{binary} run -- echo well");
        place.sh(&["--read", &binary], &line).ends(0).prints("well");
    });
}
