//! ringfence's own executable, where it lies in a tree that the sandbox writes: what is put in its place would run outside.

use crate::mcp::{HELLO, call};
use ringfence_tests::{Place, Running, Tier, binary, everybody};
use std::fs;
use std::process::Command;

/// Puts a program of its own in the place of `bin/ringfence`, by each way there is. It leaves `escaped` in the home.
const REPLACE: &str = "printf '#!/bin/sh\\ntouch \"$HOME/escaped\"\\n' >evil; chmod +x evil; cp evil evil2; \
                       mv -f evil bin/ringfence; mv bin/ringfence bin/old; rm -f bin/ringfence; \
                       cat evil2 >bin/ringfence; mv bin moved; ln bin/ringfence second; cat evil2 >second; \
                       mkdir -p bin; cp evil2 bin/ringfence; mv -f evil2 link; touch beside; true";

/// A copy of the program in the project, and a link to it.
fn copied(place: &Place) -> String {
    let own = fs::read(binary()).expect("the program");
    let own = place.program("home/project/bin/ringfence", own);
    place.link("home/project/link", "bin/ringfence");
    own.into_os_string().into_string().expect("text")
}

fn is_whole(place: &Place, what: &str) {
    let (now, own) = (fs::read(place.project("bin/ringfence")), fs::read(binary()));
    assert!(now.is_ok_and(|now| now == own.unwrap()), "{what}: it was replaced");
    assert_eq!(fs::read_link(place.project("link")).ok(), Some("bin/ringfence".into()), "{what}");
}

fn finish(mut command: Command, words: &[&str]) -> ringfence_tests::Finished {
    command.args(words);
    Running::start(command).finish()
}

#[test]
fn what_is_started_next_is_not_replaced() {
    everybody(Tier::Namespace, |place| {
        let own = copied(place);
        // A plan of its own, and one that is used again; by its name and by a link to it.
        for by in [own.as_str(), own.as_str(), "./link", "./link"] {
            let words = ["run", "--tier", "namespace", "--", "sh", "-c", REPLACE];
            let run = finish(place.command(by), &words);
            // The control: beside it the project is writable.
            assert!(place.project("beside").exists(), "{by}: {}", run.text());
            fs::remove_file(place.project("beside")).expect("made inside");
            if by == "./link" {
                is_whole(place, by);
            } else {
                // A link that nobody started it by is a file like others.
                let _ = fs::remove_file(place.project("link"));
                place.link("home/project/link", "bin/ringfence");
                is_whole(place, by);
            }
        }
        // In the process tier nothing would hold it.
        let words = ["run", "--tier", "process", "--", "sh", "-c", REPLACE];
        finish(place.command(&own), &words).ends(125).says("ringfence's own").says("bin/ringfence");
        is_whole(place, "process tier");
        // The control: another one, that lies elsewhere, runs there.
        if Tier::here().contains(&Tier::Process) {
            let words = ["run", "--tier", "process", "--", "touch", "beside"];
            finish(place.command(binary()), &words).ends(0);
            assert!(place.project("beside").exists());
        }
    });
}

/// Talks to the server `$0` with the options `$1`, and does `$2` after its second answer.
const TALK: &str = "coproc S { \"$0\" mcp --tier namespace $1; }; \
                    until_said() { while read -r line <&${S[0]}; do printf '%s\\n' \"$line\"; \
                    case $line in *$1*) return;; esac; done; }; \
                    printf %s \"$3\" >&${S[1]}; until_said '\"id\":2'; eval \"$2\"; \
                    printf %s \"$4\" >&${S[1]}; until_said '\"id\":3'";

/// What a server starts for a call is what it is itself, whatever stands in its place.
#[test]
fn a_server_starts_itself_though_another_program_is_in_its_place() {
    everybody(Tier::Namespace, |place| {
        let own = copied(place);
        let evil = place.script("evil", "#!/bin/sh\ntouch \"$HOME/escaped\"\n");
        let mut command = place.command("/bin/bash");
        let replace = format!("mv -f {} {own}", evil.display());
        command.args(["-c", TALK, &own, "", &replace]);
        command.arg([HELLO, &call(2, "exec", r#"{"command":["echo","one"]}"#)].concat());
        command.arg(call(3, "why", r#"{"verb":"write","operands":["/etc/passwd"]}"#));
        let run = Running::start(command).finish();
        run.ends(0).prints("one").prints("\"allowed\":false");
        assert!(!place.at("home/escaped").exists(), "what was put in its place ran");
    });
}

/// The directory of a server's runs is the one that it was started in, whatever its name leads to by then.
#[test]
fn a_server_stays_in_its_directory_though_a_link_is_in_its_place() {
    everybody(Tier::Namespace, |place| {
        place.directory("home/project/ws");
        let exec = |id, script: &str| {
            call(id, "exec", &format!(r#"{{"command":["sh","-c","{script}"]}}"#))
        };
        let granted = place.text("home/project");
        let moved =
            format!("cd {granted}; mv ws old; ln -s {} ws; echo moved", place.text("outside"));
        let asked = format!(r#"{{"verb":"read","operands":["{}"]}}"#, place.text("outside/secret"));
        let mut command = place.command("/bin/bash");
        command.current_dir(place.project("ws")).args(["-c", TALK]).arg(binary());
        command.args([&format!("-w {granted}"), ""]);
        command.arg([HELLO, &exec(2, &moved)].concat()).arg(call(3, "why", &asked));
        let run = Running::start(command).finish();
        run.ends(0).prints("moved").prints("\"allowed\":false");
        assert!(place.project("ws").is_symlink(), "the control: {}", run.text());
    });
}
