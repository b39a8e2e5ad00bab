//! What `exec` and `fork` lend to a session goes to nobody else who listens at its place.

use ringfence_tests::{Person, Place, Running, Tier};

/// Listens as a session would, and says how many descriptors come.
const LISTENER: &str = r#"
import os, socket, sys
os.umask(0)
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.bind(sys.argv[1]); s.listen()
print("up", flush=True)
c, _ = s.accept(); data, lent, _, _ = socket.recv_fds(c, 65536, 8)
print("lent", len(lent), flush=True)
c.send(b"x\x07")
"#;

/// Asks at the socket of a session, with root's streams, where this user listens.
fn lent_to(listener: Person, words: &[&str]) -> (i32, String) {
    let place = Place::new(Person::Root, Tier::Namespace);
    let session = place.directory("home/.local/state/ringfence/sessions/abcdef12");
    listener.owns(&session);
    let script = place.file("listener.py", LISTENER);
    let mut command = place.command("python3");
    listener.becomes(&mut command);
    command.arg(script).arg(session.join("control.sock"));
    let mut running = Running::start(command);
    running.printed("up\n");
    let asked = place.ringfence(["exec"].iter().chain(words)).code;
    if asked != 7 {
        running.signal(rustix::process::Signal::KILL);
    }
    (asked, running.finish().text())
}

#[test]
fn nothing_is_lent_to_another_user() {
    let place = Place::new(Person::Root, Tier::Namespace);
    if ringfence_tests::people().len() < 2 || !place.has("python3", "--version") {
        return;
    }
    // Before libc, and after it.
    for words in [&["abcdef12", "true"][..], &["-e", "A=b", "abcdef12", "true"]] {
        let (code, said) = lent_to(Person::Root, words);
        assert!(code == 7 && said.contains("lent 3"), "the control: {code} {said}");
        let (code, said) = lent_to(Person::Ordinary, words);
        assert!(code == 125 && !said.contains("lent 3"), "{code} {said}");
    }
}
