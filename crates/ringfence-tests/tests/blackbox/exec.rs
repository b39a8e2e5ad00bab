//! `exec`: one more command inside a session that runs, as confined as the first, and as close
//! to the caller as if it ran here.

use ringfence_tests::{Place, Running, Terminal, Tier, binary, everybody, everywhere, until};
use rustix::process::Signal;
use std::process::Command;

/// A session of this name that runs until it is told to end.
fn session(place: &Place, options: &[&str]) -> Running {
    let mut all = vec!["--name", "one"];
    all.extend(options);
    let mut running = place.start(&all, &["sh", "-c", "echo up; exec sleep 1000"]);
    running.printed("up\n");
    running
}

/// `ringfence exec WORDS`, to be completed.
fn exec(place: &Place, words: &[&str]) -> Command {
    let mut command = place.command(binary());
    command.arg("exec").args(words);
    command
}

fn ends(place: &Place, running: Running) {
    place.ringfence(["kill", "one"]).quiet();
    running.finish().ends(143);
}

#[test]
fn it_has_our_streams_its_own_words_and_its_own_code() {
    everywhere(|place| {
        let running = session(place, &[]);
        let script = "read line; echo out $line \"$@\"; echo err >&2; exit 7";
        let words = ["one", "--", "sh", "-c", script, "sh", "a b", ""];
        let done = Running::start_with(exec(place, &words), b"typed\n".to_vec()).finish();
        assert_eq!(done.ends(7).says("err\n").text(), "out typed a b");
        place.ringfence(["exec", "one", "sh", "-c", "kill -USR1 $$"]).ends(128 + 10);
        place.ringfence(["exec", "one", "true"]).quiet();
        place.ringfence(["exec", "one", "no-such-command"]).ends(127).says("command not found");
        place.ringfence(["exec", "one", "/etc/passwd"]).ends(126).says("cannot execute");
        place.script("odd", "echo the shell reads it");
        assert_eq!(place.ringfence(["exec", "one", "./odd"]).quiet(), "the shell reads it");
        ends(place, running);
    });
}

#[test]
fn it_is_where_the_session_is_with_what_the_session_has() {
    everywhere(|place| {
        let running = session(place, &["-e", "GIVEN=first"]);
        place.directory("home/project/sub");
        let print = "pwd; echo $GIVEN $ADDED $HERE $RINGFENCE_SESSION";
        let own = place.ringfence(["exec", "one", "sh", "-c", print]).quiet();
        let id = own.rsplit(' ').next().unwrap().to_owned();
        assert_eq!(own, format!("{}\nfirst {id}", place.text("home/project")));
        assert_eq!(id.len(), 8, "{own}");
        let mut command =
            exec(place, &["-e", "ADDED=x=y", "one", "-e", "HERE", "-e", "GIVEN=other"]);
        command.args(["--workdir", "sub", "--", "sh", "-c", &format!("{print}; echo $PWD")]);
        command.env("HERE", "ours").env("AWS_SECRET_ACCESS_KEY", "hidden");
        let sub = place.text("home/project/sub");
        let changed = Running::start(command).finish().quiet();
        assert_eq!(changed, format!("{sub}\nother x=y ours {id}\n{sub}"));
        // The caller's own environment stays outside.
        let mut command = exec(place, &["one", "env"]);
        command.env("AWS_SECRET_ACCESS_KEY", "hidden");
        assert!(!Running::start(command).finish().quiet().contains("AWS_SECRET"));
        let gone = place.ringfence(["exec", "one", "--workdir", "/absent/dir", "true"]);
        gone.ends(125).says("cannot start in /absent/dir").says("--workdir");
        ends(place, running);
    });
}

#[test]
fn it_is_confined_like_the_sessions_own_command() {
    everywhere(|place| {
        let secret = place.text("outside/secret");
        let granted = place.file("granted/file", "granted\n");
        let granted = granted.to_str().unwrap().to_owned();
        let running = session(place, &["-r", &place.text("granted")]);
        let sh = |script: &str| place.ringfence(["exec", "one", "sh", "-c", script]);
        // The control: what is granted is there.
        assert_eq!(sh(&format!("cat {granted}")).quiet(), "granted");
        let refused = sh(&format!("cat {secret}"));
        refused.ends(1).says(match place.tier {
            Tier::Namespace => "No such file or directory",
            Tier::Process => "Permission denied",
        });
        sh(&format!("echo x > {granted}")).ends(2);
        assert_eq!(std::fs::read_to_string(&granted).unwrap(), "granted\n");
        sh("echo x > here").quiet();
        assert_eq!(std::fs::read_to_string(place.project("here")).unwrap(), "x\n");
        let layers = "grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status";
        let own = sh(layers).quiet();
        assert_eq!(own, place.sh(&[], layers).quiet(), "as the first command");
        for line in ["CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
            assert!(own.contains(line), "{own}");
        }
        sh("unshare -r true").ends(1).says("Operation not permitted");
        ends(place, running);
    });
}

/// The namespaces are the session's, not new ones; what one command starts the others see.
#[test]
fn commands_of_one_session_are_together() {
    everywhere(|place| {
        let running = session(place, &[]);
        let sh = |script: &str| place.ringfence(["exec", "one", "sh", "-c", script]).quiet();
        for kind in ["mnt", "net", "user", "pid", "uts", "ipc"] {
            let read = format!("readlink /proc/self/ns/{kind}");
            assert_eq!(sh(&read), sh(&read), "{kind}");
        }
        sh("echo kept > ${TMPDIR:-/tmp}/between");
        assert_eq!(sh("cat ${TMPDIR:-/tmp}/between"), "kept");
        // One that went into the background stays until the session ends.
        let waits = "setsid sh -c 'echo > out; read line < in' >/dev/null 2>&1";
        let pid = sh(&format!("mkfifo in out; {waits} & read line < out; echo $!"));
        assert_eq!(sh(&format!("cat /proc/{pid}/comm")), "sh");
        ends(place, running);
        assert_eq!(place.left_behind(), Vec::<String>::new());
    });
}

#[test]
fn commands_of_one_session_can_signal_each_other() {
    everybody(Tier::Namespace, |place| {
        let mut first = place.start(
            &["--name", "one"],
            &[
                "sh",
                "-c",
                "trap 'echo heard' USR1; echo $$ up; while :; do sleep 1000 & wait; done",
            ],
        );
        let said = first.printed(" up\n").so_far();
        let pid = said.split(' ').next().unwrap();
        place.ringfence(["exec", "one", "kill", "-USR1", pid]).quiet();
        first.printed("heard\n");
        ends(place, first);
    });
}

#[test]
fn it_ends_with_its_session_and_with_its_caller() {
    everywhere(|place| {
        // The caller is killed: the command ends, the session goes on.
        let running = session(place, &[]);
        let words = ["one", "sh", "-c", "echo on; sleep 1000 & exec sleep 1000"];
        let mut command = Running::start(exec(place, &words));
        command.printed("on\n").signal(Signal::KILL);
        // All that held its streams is gone.
        command.finish().ends(137);
        // The session ends, and all of it.
        let mut command = Running::start(exec(place, &words));
        command.printed("on\n");
        ends(place, running);
        command.finish().ends(137).says("the session ended");
        assert_eq!(place.left_behind(), Vec::<String>::new());
        // The launcher is killed.
        let running = session(place, &[]);
        let mut command = Running::start(exec(place, &words));
        command.printed("on\n");
        running.signal(Signal::KILL);
        command.finish().ends(137);
        running.finish().ends(137);
    });
}

#[test]
fn signals_reach_it() {
    everywhere(|place| {
        let running = session(place, &[]);
        for (name, signal) in [("TERM", Signal::TERM), ("INT", Signal::INT), ("USR2", Signal::USR2)]
        {
            let script = format!(
                "trap 'echo got {name}; kill -9 $!; exit 6' {name}; sleep 1000 & echo on; while :; do wait; done"
            );
            let mut command = Running::start(exec(place, &["one", "sh", "-c", &script]));
            command.printed("on\n").signal(signal);
            assert_eq!(command.finish().ends(6).text(), format!("on\ngot {name}"));
        }
        // Stopped and continued, it goes on.
        let script = "echo on; while [ ! -e go ]; do :; done; echo word";
        let mut command = Running::start(exec(place, &["one", "sh", "-c", script]));
        command.printed("on\n");
        command.stop();
        command.signal(Signal::CONT);
        place.script("go", "");
        assert_eq!(command.finish().ends(0).text(), "on\nword");
        ends(place, running);
    });
}

#[test]
fn a_timeout_ends_it_even_if_it_will_not() {
    everywhere(|place| {
        let running = session(place, &[]);
        let script = "trap '' TERM; echo on; sleep 1000 & while :; do wait; done";
        let words = ["exec", "--timeout", "200ms", "one", "--", "sh", "-c", script];
        place.ringfence(words).ends(124).says("timed out after 200ms");
        // In time, it has its own code.
        place.ringfence(["exec", "--timeout", "1m", "one", "--", "sh", "-c", "exit 3"]).ends(3);
        place.ringfence(["exec", "--timeout", "soon", "one", "true"]).ends(125).says("--timeout");
        ends(place, running);
    });
}

#[test]
fn long_command_lines_arrive_and_endless_ones_are_refused() {
    everywhere(|place| {
        let running = session(place, &[]);
        let long = "x".repeat(100_000);
        let count = place.ringfence(["exec", "one", "sh", "-c", "echo ${#1}", "sh", &long]).quiet();
        assert_eq!(count, "100000");
        // Many words: more than a message holds.
        let many = vec!["word"; 100_000];
        let words = ["exec", "one", "sh", "-c", "echo $#", "sh"];
        assert_eq!(place.ringfence(words.into_iter().chain(many)).quiet(), "100000");
        ends(place, running);
    });
}

#[test]
fn nothing_but_the_streams_is_inherited() {
    everywhere(|place| {
        let running = session(place, &[]);
        let file = place.text("outside/secret");
        let list = format!(
            "exec 9<{file}; {} exec one -- sh -c 'ls /proc/self/fd; cat <&9'",
            binary().display()
        );
        let done = place.shell(&list);
        // 3 is the directory that ls reads.
        assert_eq!(done.ends(2).text(), "0\n1\n2\n3");
        ends(place, running);
    });
}

#[test]
fn many_at_once_each_get_their_own() {
    everywhere(|place| {
        let running = session(place, &[]);
        let all: Vec<Running> = (0..24)
            .map(|number| {
                let script = format!("read line; echo {number} $line; exit {number}");
                let command = exec(place, &["one", "sh", "-c", &script]);
                Running::start_with(command, format!("in {number}\n").into_bytes())
            })
            .collect();
        for (number, command) in all.into_iter().enumerate() {
            assert_eq!(
                command.finish().ends(number as i32).text(),
                format!("{number} in {number}")
            );
        }
        ends(place, running);
    });
}

#[test]
fn a_session_that_is_none_is_told_with_the_nearest() {
    everywhere(|place| {
        let running = session(place, &[]);
        let wrong = place.ringfence(["exec", "onne", "--", "true"]);
        wrong.ends(125).says("there is no session onne; did you mean one?");
        place.ringfence(["exec", "one"]).ends(125).says("name a session and a command");
        place.ringfence(["exec"]).ends(125).says("name a session and a command");
        place.ringfence(["exec", "../../etc", "true"]).ends(125).says("there is no session");
        ends(place, running);
        place.ringfence(["exec", "one", "true"]).ends(125).says("has ended");
    });
}

#[test]
fn a_terminal_is_one_inside_too() {
    everywhere(|place| {
        let running = session(place, &[]);
        let mut terminal = Terminal::shell(place);
        let rf = binary().display();
        terminal.line(&format!(
            "{rf} exec one -- sh -c 'test -t 0 && test -t 1 && stty size && echo al''l'"
        ));
        assert!(terminal.shows("\nall").contains("24 80"));
        terminal.shows("ready> ");
        // Ctrl-C ends the command, and the shell's list with it.
        terminal
            .line(&format!("{rf} exec one -- sh -c 'echo star''ted; exec sleep 1000'; echo never"));
        terminal.shows("\nstarted");
        terminal.types("\x03");
        // What is typed before the prompt is back is still the command's.
        terminal.shows("ready> ");
        terminal.line("echo co''de $?");
        assert!(!terminal.shows("\ncode 130").contains("\nnever"));
        terminal.shows("ready> ");
        // An interactive shell has job control.
        terminal.line(&format!("{rf} exec one -- bash --norc -i"));
        terminal.line("PS1='in''side> '");
        terminal.shows("inside> ");
        terminal.line("sh -c 'echo sle''eps; exec sleep 1000'");
        terminal.shows("\nsleeps");
        terminal.types("\x1a");
        terminal.shows("Stopped");
        terminal.line("kill %1; echo ji''bs");
        terminal.shows("\njibs");
        terminal.resize(40, 132);
        // It is told by a signal, which what is typed may overtake.
        terminal.line("until [ \"$(stty size)\" = '40 132' ]; do :; done; echo do''ne");
        terminal.shows("\ndone");
        terminal.line("exit 9");
        terminal.code(9);
        // The terminal is as before.
        terminal.line("stty -a; echo e''nd");
        let settings = terminal.shows("\nend");
        assert!(settings.contains(" icanon") && settings.contains(" echo "), "{settings}");
        terminal.leave();
        ends(place, running);
    });
}

/// What is inside goes on when a command of `exec` has ended: with a descriptor of the user's terminal,
/// whichever stream it was, it would read what is typed later.
#[test]
fn the_users_terminal_does_not_go_in() {
    everywhere(|place| {
        let running = session(place, &[]);
        place.file(
            "home/project/look",
            "exec 3>seen.$1\nfor fd in 0 1 2; do\n\
             at=/proc/$$/fd/$fd; echo $fd $(readlink $at) $(stat -L -c id=%d.%i $at) >&3\ndone\n\
             test ! -t 0 && cat >&3\necho look''ed $1\n",
        );
        let mut terminal = Terminal::shell(place);
        let rf = binary().display();
        for (name, line) in [
            ("own", "sh look own".to_owned()),
            ("all", format!("{rf} exec one -- sh look all")),
            ("piped", format!("{rf} exec one -- sh look piped | cat")),
            ("fed", format!("echo typed | {rf} exec one -- sh look fed")),
            ("kept", format!("{rf} exec one -- sh look kept > kept; cat kept")),
        ] {
            terminal.line(&line);
            terminal.shows(&format!("\nlooked {name}"));
            terminal.shows("ready> ");
        }
        terminal.line(&format!("{rf} exec one -- sh -c 'echo err >&2' 2>error; cat er''ror"));
        terminal.shows("\nerr");
        terminal.leave();
        let seen = |name: &str| {
            std::fs::read_to_string(place.at(format!("home/project/seen.{name}"))).unwrap()
        };
        let own = seen("own");
        let own = own.lines().next().unwrap().rsplit(' ').next().unwrap();
        assert!(own.starts_with("id=") && seen("own").matches(own).count() == 3, "{own}");
        for name in ["all", "piped", "fed", "kept"] {
            assert!(!seen(name).contains(own), "{name}: {}, and the user's is {own}", seen(name));
        }
        // A terminal where there was one, and what was lent otherwise.
        assert_eq!(seen("all").matches("/dev/pts/").count(), 3, "{}", seen("all"));
        let piped = seen("piped");
        assert!(piped.contains("0 /dev/null ") && piped.contains("1 pipe:"), "{piped}");
        assert!(piped.contains("2 /dev/pts/"), "{piped}");
        let fed = seen("fed");
        assert!(fed.contains("1 /dev/pts/") && fed.ends_with("typed\n"), "{fed}");
        assert!(seen("kept").contains("/kept "), "{}", seen("kept"));
        ends(place, running);
    });
}

/// Nobody inside reaches a session's socket, not their own either, whatever they may see of home.
#[test]
fn nothing_inside_reaches_a_session() {
    everywhere(|place| {
        let state = place.text("home/.local/state/ringfence/sessions");
        let first = session(place, &[]);
        let connect = "import os, socket, sys\n\
            s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n\
            s.connect(sys.argv[1])\nprint('connected')";
        place.file("home/project/connect.py", connect);
        let socket = format!("{state}/by-name/one/control.sock");
        if !place.has("python3", "--version") {
            return ends(place, first);
        }
        // The control: outside it can be connected to, and says nothing to what is no request.
        assert_eq!(place.shell(&format!("python3 connect.py {socket}")).quiet(), "connected");
        let home = place.text("home");
        place.directory("home/.config");
        for options in [&["-w", &home][..], &["-r", &home], &["--home", "host", "-w", &home]] {
            let mut options = options.to_vec();
            options.extend(["--name", "two"]);
            let inside = place.sh(&options, &format!("python3 connect.py {socket}"));
            assert_ne!(inside.code, 0, "{options:?}");
            // The process tier cannot hide a directory in a writable tree: it refuses to start.
            let shown = ["Error", "cannot be denied", "cannot be protected"];
            let shown = shown.iter().any(|text| inside.err.contains(text));
            assert!(shown, "{options:?}: {}", inside.err);
            // Nor its own, nor anything of any session.
            let own = format!("{state}/$RINGFENCE_SESSION/control.sock");
            assert_ne!(place.sh(&options, &format!("python3 connect.py {own}")).code, 0);
            let list = place.sh(&options, &format!("cat {state}/*/journal"));
            assert_ne!(list.code, 0, "{options:?}: {}", list.text());
            let link = place.sh(&options, &format!("ln -sfn /tmp {state}/by-name/one"));
            assert_ne!(link.code, 0, "{options:?}");
        }
        place.ringfence(["exec", "one", "true"]).quiet();
        ends(place, first);
    });
}

/// Who waits needs a few pages of its program's code, also where it has carried out what somebody asked for.
#[test]
fn who_waits_after_it_holds_few_pages_of_its_code() {
    everybody(Tier::Namespace, |place| {
        let running = session(place, &[]);
        place.ringfence(["exec", "one", "true"]).quiet();
        let launcher = running.pid();
        let children = format!("/proc/{launcher}/task/{launcher}/children");
        let children = std::fs::read_to_string(children).unwrap();
        let program = binary().canonicalize().unwrap();
        // kB in memory of the part that can be executed.
        let code = |pid: &str| {
            let maps = std::fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
            let mut lines = maps.lines().skip_while(|line| {
                !(line.contains(" r-xp ") && line.ends_with(program.to_str().unwrap()))
            });
            let size = lines.find_map(|line| line.strip_prefix("Rss:"));
            size.map(|size| size.trim().trim_end_matches(" kB").parse::<u64>().unwrap())
        };
        let pids = std::iter::once(launcher.to_string())
            .chain(children.split_whitespace().map(str::to_owned));
        let held: Vec<String> = pids.filter(|pid| code(pid).is_some()).collect();
        assert_eq!(held.len(), 2, "the control: a launcher and a first process");
        for pid in held {
            until("it is small", || code(&pid).is_some_and(|size| size <= 400));
        }
        ends(place, running);
    });
}
