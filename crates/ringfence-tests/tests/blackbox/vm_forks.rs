//! `ringfence fork` of sessions of `--tier vm`: another one goes on from where the first is.

use super::vm::{guests, guests_of_one, guests_of_one_apart, ringfence, start};
use ringfence_tests::{Finished, Place, Running, until};
use rustix::process::Signal;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

fn call(place: &Place, words: &[&str]) -> Finished {
    Running::start(ringfence(place, words)).finish()
}

/// Names for a session and its fork.
fn names(place: &Place, word: &str) -> [String; 2] {
    let user = place.person.ids().0;
    [format!("{word}-{user}"), format!("{word}-copy-{user}")]
}

fn fork(place: &Place, [session, copy]: &[String; 2]) -> Running {
    Running::start(ringfence(place, &["fork", "--name", copy, session]))
}

/// Waits until a session takes commands.
fn takes_commands(place: &Place, session: &str) {
    until("the fork goes on", || call(place, &["exec", session, "--", "true"]).code == 0);
}

/// Whether a process has one that it started.
fn has_started_another(process: impl std::fmt::Display) -> bool {
    let parent = format!("\nPPid:\t{process}\n");
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let status = |entry: fs::DirEntry| fs::read_to_string(entry.path().join("status"));
    entries.filter_map(|entry| status(entry).ok()).any(|status| status.contains(&parent))
}

fn inside(place: &Place, session: &str, script: &str) -> String {
    call(place, &["exec", session, "--", "sh", "-c", script]).quiet()
}

/// Lets a session's command go on, with a word; it may end before this one.
fn go(place: &Place, session: &str, word: &str) {
    let word = format!("echo {word} >/tmp/go");
    call(place, &["exec", session, "--", "sh", "-c", &word]);
}

#[test]
fn a_session_and_its_fork_go_on_each_with_what_is_its_own() {
    guests(|place| {
        let both = names(place, "forked");
        place.file("home/project/lines", "one\ntwo\nthree\n");
        let kept = place.file("home/project/kept", "the host's\n");
        let removed = place.file("home/project/removed", "the host's\n");
        let script = "v=memory; exec 3<lines; read a <&3; sleep 1000 & b=$!
            echo private >/tmp/mine; ln /tmp/mine /tmp/second; mkfifo -m 600 /tmp/go
            echo layer >>kept; rm removed; exec 4>>kept; cat /etc/machine-id >/dev/null
            echo up; read word </tmp/go; read c <&3; kill -0 $b && d=lives
            echo $word $v $a $c $d $(cat /tmp/second); echo $word >&4; cat kept
            cat /proc/sys/kernel/random/uuid /etc/machine-id; [ $word = first ] && exit 3; exit 4";
        let mut first =
            start(place, &["--overlay=discard", "--name", &both[0]], &["bash", "-c", script]);
        first.printed("up\n");
        let second = fork(place, &both);
        takes_commands(place, &both[1]);
        let running = call(place, &["ps"]).well();
        assert!(both.iter().all(|name| running.contains(name)), "{running}");
        // What one writes the other does not see, nor does the host.
        inside(place, &both[1], "echo second >/tmp/theirs; echo second >new");
        let looked = "ls /tmp/theirs new removed; cat kept; ls /tmp | grep -vE '^(ringfence|rf)-' | tr '\\n' ' '";
        let seen = call(place, &["exec", &both[0], "--", "sh", "-c", looked]);
        assert!(seen.text().ends_with("the host's\nlayer\ngo mine second"), "{seen:?}");
        assert_eq!(inside(place, &both[1], "cat new /tmp/theirs"), "second\nsecond");
        call(place, &["exec", &both[1], "--", "test", "-e", "removed"]).ends(1);
        go(place, &both[1], "second");
        let second = second.finish();
        // The first one has not gone on yet.
        go(place, &both[0], "first");
        let first = first.finish();
        second.ends(4);
        first.ends(3);
        let (first, second) = (first.text(), second.text());
        let lines = |text: &str| -> Vec<String> { text.lines().map(str::to_owned).collect() };
        let (first, second) = (lines(&first), lines(&second));
        assert_eq!(
            first[1..5],
            ["first memory one two lives private", "the host's", "layer", "first"]
        );
        assert_eq!(
            second[..4],
            ["second memory one two lives private", "the host's", "layer", "second"]
        );
        assert_ne!(first[5], second[4], "randomness");
        assert_ne!(first[6], second[5], "the machine's identity");
        assert_eq!(fs::read_to_string(&kept).unwrap(), "the host's\n");
        assert!(removed.exists() && !place.project("new").exists());
        let logs = call(place, &["logs", &both[1]]).well();
        assert!(logs.contains("by ringfence fork (vm)"), "{logs}");
        assert_eq!(place.left_behind(), [""; 0]);
    });
}

#[test]
fn connections_of_a_fork_are_reset_and_lost_files_say_so() {
    guests_of_one(|place| {
        let both = names(place, "connected");
        let server = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = server.local_addr().unwrap().port();
        for name in ["kept", "lost"] {
            place.file(format!("home/project/{name}"), "one\ntwo\n");
        }
        let script = format!(
            "exec 3<kept 4<lost 5<>/dev/tcp/127.0.0.1/{port}; read a <&4; mkfifo /tmp/go; rm lost
             echo up; read word </tmp/go; cat <&3; cat <&4; read answer <&5; echo answer $answer
             exec 6<>/dev/tcp/127.0.0.1/{port}; read answer <&6; echo new $answer"
        );
        let rule = format!("localhost:{port}");
        let mut first = start(place, &["-n", &rule, "--name", &both[0]], &["bash", "-c", &script]);
        first.printed("up\n");
        let (mut connection, _) = server.accept().unwrap();
        // What exec started lives on, and waits for nobody who reads what it writes.
        let beating = "while :; do head -c 100000 /dev/zero; date +%N >/tmp/beat; done";
        let mut visitor = ringfence(place, &["exec", &both[0], "--", "sh", "-c", beating]);
        let mut visitor = visitor.stdout(std::process::Stdio::null()).spawn().unwrap();
        until("it beats", || {
            call(place, &["exec", &both[0], "--", "test", "-s", "/tmp/beat"]).code == 0
        });
        let mut second = fork(place, &both);
        second.said("could not be opened again");
        takes_commands(place, &both[1]);
        let beat = || inside(place, &both[1], "cat /tmp/beat");
        let before = beat();
        until("it beats in the fork", || beat() != before);
        go(place, &both[1], "second");
        let answer = |mut connection: TcpStream| connection.write_all(b"heard\n").unwrap();
        answer(server.accept().unwrap().0);
        let second = second.finish();
        second.prints("one\ntwo\nanswer\nnew heard").says("Stale file handle");
        second.says("Connection reset");
        answer(connection.try_clone().unwrap());
        go(place, &both[0], "first");
        answer(server.accept().unwrap().0);
        assert_eq!(first.finish().quiet(), "up\none\ntwo\ntwo\nanswer heard\nnew heard");
        assert_eq!(connection.read(&mut [0; 8]).unwrap_or_default(), 0, "it has ended");
        visitor.wait().unwrap();
        assert_eq!(place.left_behind(), [""; 0]);
    });
}

#[test]
fn a_fork_that_is_killed_leaves_nothing_and_its_session_goes_on() {
    guests_of_one(|place| {
        let both = names(place, "killed");
        let script = "mkfifo /tmp/go; echo up; read word </tmp/go; echo $word";
        let mut first =
            start(place, &["--overlay=discard", "--name", &both[0]], &["sh", "-c", script]);
        first.printed("up\n");
        // Wherever it is: before it asks, while all is held still, and while its own machine is made.
        for stage in 0..4 {
            let killed = fork(place, &both);
            until("it is so far", || match stage {
                0 => true,
                1 => fs::read_to_string(format!("/proc/{}/cmdline", killed.pid()))
                    .is_ok_and(|words| words.contains("session-fork")),
                2 => has_started_another(killed.pid()),
                _ => call(place, &["exec", &both[1], "--", "true"]).code == 0,
            });
            killed.signal(Signal::KILL);
            assert_ne!(killed.finish().code, 0);
            assert_eq!(inside(place, &both[0], "echo lives"), "lives", "{stage}");
        }
        go(place, &both[0], "first");
        assert_eq!(first.finish().quiet(), "up\nfirst");
        until("nothing is left", || place.left_behind().is_empty());
    });
}

#[test]
fn what_cannot_be_forked_is_refused_before_it_is_held() {
    guests_of_one(|place| {
        let both = names(place, "refused");
        let profile = place.file(
            "home/mine.toml",
            "extends = [\"default\"]\n[network]\nallow = [\"one.example\"]\n",
        );
        let (profile, project) = (profile.to_str().unwrap(), place.text("home/project"));
        let script = "mkfifo /tmp/go; echo up; read word </tmp/go; echo $word";
        let mut first = start(
            place,
            &["-p", profile, "-w", &project, "--name", &both[0]],
            &["sh", "-c", script],
        );
        first.printed("up\n");
        call(place, &["fork", &both[0], "3"]).ends(125).says("one fork is made at a time");
        call(place, &["fork", "--json", &both[0]]).ends(125).says("--json");
        call(place, &["fork", "--name", &both[0], &both[0]]).ends(125).says(&both[0]);
        // Neither with fewer rules nor with more.
        place.file(
            "home/mine.toml",
            "extends = [\"default\"]\n[network]\nallow = [\"one.example\", \"two.example\"]\n",
        );
        call(place, &["fork", &both[0]]).ends(125).says("its policy would be another one now");
        place.file(
            "home/mine.toml",
            "extends = [\"default\"]\n[network]\nallow = [\"one.example\"]\n",
        );
        // One that is held still is forked, and stays so.
        call(place, &["suspend", &both[0]]).quiet();
        let second = fork(place, &both);
        takes_commands(place, &both[1]);
        assert!(call(place, &["ps"]).well().contains("suspended"));
        go(place, &both[1], "second");
        assert_eq!(second.finish().quiet(), "second");
        call(place, &["exec", &both[0], "--", "true"]).ends(125).says("ringfence resume");
        call(place, &["resume", &both[0]]).quiet();
        // A fork can be forked, by a name or without.
        let second = fork(place, &both);
        takes_commands(place, &both[1]);
        let third = Running::start(ringfence(place, &["fork", &both[1]]));
        let forks = || {
            let running = call(place, &["ps"]).well();
            running.lines().filter(|line| line.contains("running")).count()
        };
        until("it goes on", || forks() == 3);
        go(place, &both[1], "second");
        assert_eq!(second.finish().quiet(), "second");
        third.signal(Signal::TERM);
        third.finish().ends(143);
        go(place, &both[0], "first");
        assert_eq!(first.finish().quiet(), "up\nfirst");
        // A port is one session's.
        let server = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = server.local_addr().unwrap().port().to_string();
        drop(server);
        let options = ["--publish", &port, "--name", &both[0]];
        let mut first = start(place, &options, &["sh", "-c", "echo up; exec sleep 1000"]);
        first.printed("up\n");
        call(place, &["fork", &both[0]]).ends(125).says("published");
        first.signal(Signal::TERM);
        first.finish().ends(143);
        assert_eq!(place.left_behind(), [""; 0]);
    });
}

#[test]
fn a_long_file_of_nothing_is_nothing_in_a_fork() {
    guests_of_one(|place| {
        let both = names(place, "sparse");
        let script = "mkfifo /tmp/go; truncate -s 512M /tmp/long; echo end >>/tmp/long
            echo up; read word </tmp/go; stat -c '%s' /tmp/long; tail -c 4 /tmp/long; echo $word";
        let mut first = start(place, &["--name", &both[0]], &["sh", "-c", script]);
        first.printed("up\n");
        let second = fork(place, &both);
        takes_commands(place, &both[1]);
        for session in &both {
            let blocks = inside(place, session, "stat -c %b /tmp/long");
            assert!(blocks.parse::<u64>().unwrap() <= 64, "{blocks}");
            go(place, session, session);
        }
        second.finish().prints(&format!("536870916\nend\n{}", both[1]));
        assert_eq!(first.finish().quiet(), format!("up\n536870916\nend\n{}", both[0]));
        assert_eq!(place.left_behind(), [""; 0]);
    });
}

#[test]
fn a_server_in_a_private_directory_is_connected_to_in_a_fork() {
    guests_of_one(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        let both = names(place, "listening");
        let server = "import os, socket, sys, threading
def serve(path):
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    os.chmod(path, 0o666)
    server.listen()
    yield
    while True:
        connection, _ = server.accept()
        connection.sendall(connection.recv(100).upper())
        connection.close()
os.mkfifo('/tmp/go')
for path in sys.argv[1:]:
    one = serve(path)
    next(one)
    threading.Thread(target=lambda one=one: list(one), daemon=True).start()
print('up', flush=True)
print(open('/tmp/go').read(), end='', flush=True)
os._exit(0)
";
        place.file("home/project/server.py", server);
        place.file(
            "home/project/client.py",
            "import socket, sys
for path in sys.argv[1:]:
    client = socket.socket(socket.AF_UNIX)
    client.connect(path)
    client.sendall(path.encode())
    print(client.recv(100).decode())
",
        );
        let home = format!("{}/socket", place.text("home"));
        let paths = ["/tmp/socket", &home, "beside"];
        let argv = [&["python3", "server.py"][..], &paths].concat();
        let mut first = start(place, &["--overlay=discard", "--name", &both[0]], &argv);
        first.printed("up\n");
        let looked = format!("stat -c '%i %A' {}; python3 client.py {0}", paths.join(" "));
        let seen = inside(place, &both[0], &looked);
        assert!(seen.ends_with(&paths.join("\n").to_uppercase()), "{seen}");
        let second = fork(place, &both);
        takes_commands(place, &both[1]);
        assert_eq!(inside(place, &both[1], &looked), seen);
        // And in a fork of that, whose directories are others again.
        let last = [both[1].clone(), format!("{}-again", both[1])];
        let third = fork(place, &last);
        takes_commands(place, &last[1]);
        assert_eq!(inside(place, &last[1], &looked), seen);
        // The directory by which its bridge called is its own alone.
        assert_eq!(inside(place, &last[1], "find /tmp -name 'ringfence-vm-*' | wc -l"), "1");
        // A file that is new has a number of its own.
        let numbers = "touch /tmp/new ~/new new; stat -c %i /tmp/* ~/* * | sort | uniq -d";
        assert_eq!(inside(place, &last[1], numbers), "");
        for (session, name) in [(third, &last[1]), (second, &both[1]), (first, &both[0])] {
            go(place, name, "over");
            assert!(session.finish().well().ends_with("over"));
        }
        assert_eq!(place.left_behind(), [""; 0]);
    });
}

#[test]
fn what_a_program_has_closed_to_itself_is_named() {
    guests_of_one(|place| {
        let both = names(place, "closed");
        let script = "mkfifo /tmp/go; mkdir -p a/closed /tmp/b; echo >/tmp/b/closed
            chmod 000 $0; echo up; read word </tmp/go; chmod 700 $0; echo up; read word </tmp/go";
        for (closed, why) in [("a/closed", "its program has closed"), ("/tmp/b/closed", "open(")] {
            let options = ["--overlay=discard", "--name", &both[0]];
            let mut first = start(place, &options, &["sh", "-c", script, closed]);
            first.printed("up\n");
            let refused = fork(place, &both).finish();
            let path = place.at("home/project").join(closed);
            refused.ends(125).says("cannot be forked: ").says(why).says(path.to_str().unwrap());
            // It was told so while it went on, and can be forked when that is open.
            go(place, &both[0], "on");
            first.printed("up\n");
            let second = fork(place, &both);
            takes_commands(place, &both[1]);
            for (name, session) in [(&both[1], second), (&both[0], first)] {
                go(place, name, "over");
                session.finish().ends(0);
            }
        }
        assert_eq!(place.left_behind(), [""; 0]);
    });
}

/// A fork that is stopped in the middle: it has what it asked for, and copies.
fn stopped(place: &Place, both: &[String; 2]) -> Running {
    let copy = fork(place, both);
    let children = format!("/proc/{0}/task/{0}/children", copy.pid());
    until("it has a machine", || fs::read_to_string(&children).is_ok_and(|one| !one.is_empty()));
    copy.signal(Signal::STOP);
    copy
}

/// How often a fork may be stopped too late: it has copied all by then, and takes commands when it goes on.
const TOO_LATE: usize = 8;

/// Stops forks of sessions in the middle, one after the other, until one has not copied all: it ends, and what it says is
/// returned. Between its being stopped and its going on, `meanwhile` is done with the session, which is handed on if it
/// is still needed.
fn refused(
    place: &Place,
    both: &[String; 2],
    session: impl Fn() -> Running,
    meanwhile: impl Fn(Running) -> Option<Running>,
) -> (Finished, Option<Running>) {
    for _ in 0..TOO_LATE {
        let first = session();
        let second = stopped(place, both);
        let first = meanwhile(first);
        second.signal(Signal::CONT);
        let takes = || call(place, &["exec", &both[1], "--", "true"]).code == 0;
        let mut is_late = false;
        until("it ends or takes commands", || {
            is_late = !second.has_ended() && takes();
            is_late || second.has_ended()
        });
        if !is_late {
            return (second.finish(), first);
        }
        for (name, session) in [(&both[1], Some(second)), (&both[0], first)] {
            if let Some(session) = session {
                go(place, name, "over");
                session.finish().well();
            }
        }
    }
    panic!("{TOO_LATE} forks had copied all when they were stopped");
}

#[test]
fn a_session_is_not_held_for_a_fork_that_is_stopped() {
    guests_of_one_apart(|place| {
        let both = names(place, "held");
        let script = "mkfifo /tmp/go; echo layer >new; echo up; read word </tmp/go; echo $word";
        let session = || {
            let options = ["--overlay=discard", "--name", &both[0]];
            let mut first = start(place, &options, &["sh", "-c", script]);
            first.printed("up\n");
            first
        };
        // It goes on, and what is copied after that is none.
        let (second, first) = refused(place, &both, session, |first| {
            assert_eq!(inside(place, &both[0], "echo later >>new; echo lives"), "lives");
            Some(first)
        });
        second.ends(125).says("went on as nothing was heard of its fork");
        go(place, &both[0], "first");
        assert_eq!(first.unwrap().finish().quiet(), "up\nfirst");
        // Whoever asks a command of exec to end waits for that no longer than for any other guest: it is held still then.
        let first = session();
        let words = ["exec", &both[0], "--", "sh", "-c", "echo on; sleep 1000"];
        let mut visitor = Running::start(ringfence(place, &words));
        visitor.printed("on\n");
        let second = stopped(place, &both);
        visitor.signal(Signal::TERM);
        visitor.finish().ends(143);
        second.signal(Signal::CONT);
        takes_commands(place, &both[1]);
        for (name, session) in [(&both[1], second), (&both[0], first)] {
            go(place, name, "over");
            assert!(session.finish().well().ends_with("over"));
        }
        // Whoever asks it to end is heard while it is held.
        let (second, _) = refused(place, &both, session, |first| {
            first.signal(Signal::TERM);
            first.finish().ends(143);
            None
        });
        second.ends(125).says("the session that is forked ended");
        assert_eq!(place.left_behind(), [""; 0]);
    });
}
