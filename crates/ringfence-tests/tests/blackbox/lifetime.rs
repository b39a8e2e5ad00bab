//! Signals in both directions, and the end of everything together.

use ringfence_tests::{Place, Running, Tier, everybody, everywhere, until};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};

#[test]
fn signals_are_forwarded() {
    everywhere(|place| {
        for (name, signal) in [
            ("TERM", Signal::TERM),
            ("HUP", Signal::HUP),
            ("INT", Signal::INT),
            ("QUIT", Signal::QUIT),
            ("USR1", Signal::USR1),
            ("USR2", Signal::USR2),
            ("WINCH", Signal::WINCH),
        ] {
            let script = format!(
                "trap 'echo got {name}; exit 5' {name}; echo ready; while :; do sleep 1000 & wait; done"
            );
            let mut running = place.start(&[], &["bash", "-c", &script]);
            running.printed("ready\n").signal(signal);
            let ended = running.finish();
            assert_eq!(ended.ends(5).text(), format!("ready\ngot {name}"));
        }
    });
}

#[test]
fn a_forwarded_signal_that_kills_is_told_as_one() {
    everywhere(|place| {
        for signal in [Signal::TERM, Signal::HUP, Signal::USR1] {
            let mut running = place.start(&[], &["sh", "-c", "echo ready; exec sleep 1000"]);
            running.printed("ready\n").signal(signal);
            running.finish().ends(128 + signal.as_raw());
        }
    });
}

/// Somebody outside in the group of processes that ringfence is started in, as in a script or a pipeline: says each
/// line again, while it lives.
fn neighbour(place: &Place) -> Child {
    let mut cat = place.command("cat");
    cat.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
    cat.spawn().expect("cat(1)")
}

/// Whether it is as it was; a signal that it got comes before what it reads.
fn is_well(neighbour: &mut Child) -> bool {
    let (mut to, mut from) = (neighbour.stdin.take(), neighbour.stdout.take());
    let written = to.take().map(|mut to| to.write_all(b"well"));
    let mut said = String::new();
    let read = from.take().map(|mut from| from.read_to_string(&mut said));
    let ended = neighbour.wait().expect("a child");
    matches!((written, read), (Some(Ok(())), Some(Ok(_)))) && said == "well" && ended.success()
}

#[test]
fn signals_to_the_own_group_stay_inside() {
    everywhere(|place| {
        let handled = "trap 'exit 7' USR1; kill -USR1 0; sleep 1000 & wait";
        // Its child is of the group as well.
        let child = "sleep 1000 & trap '' USR1; kill -USR1 0; wait $!; test $? -gt 128 && exit 8";
        // In a group of their own.
        let apart = "setsid -w sh -c 'sleep 1000 & kill -KILL 0'; test $? = 137 && exit 9";
        let leader = "sleep 1000 & kill -s TERM -- -$$ 2> said; grep -q 'No such' said && exit 10";
        let invalid =
            "python3 -c 'import os; os.kill(0, 65)' 2> said; grep -q 'Invalid arg' said && exit 11";
        let exit = "trap 'kill 0' EXIT; sleep 1000 & exit 3";
        let scripts = [
            (handled, 7),
            (child, 8),
            (apart, 9),
            (leader, 10),
            (invalid, 11),
            (exit, 143),
            ("sleep 1000 & kill -KILL 0", 137),
        ];
        for (script, code) in scripts {
            let mut outside = neighbour(place);
            let mut command = place.ringfence_run();
            command.args(["--", "sh", "-c", script]).process_group(outside.id().cast_signed());
            // By its code: the launcher, of the same group, is not signalled either.
            Running::start(command).finish().ends(code);
            assert!(is_well(&mut outside), "{script}");
        }
    });
}

/// One launcher is told of calls, which is the outer one: the inner sandbox does without, and says so.
#[test]
fn a_sandbox_inside_says_what_it_does_without() {
    everybody(Tier::Namespace, |place| {
        let binary = ringfence_tests::binary();
        let program = binary.display().to_string();
        let directory = binary.parent().expect("a directory").display().to_string();
        place.file("home/project/sub/own", "");
        let secret = place.text("outside/secret");
        let inner = format!("{program} run -w . --network none --");
        let script = format!(
            "{inner} sh -c 'touch -d 2020-01-01 own && chmod 640 own && stat -c %a-%Y own; \
             cat {secret}; touch ../above; chmod 777 /etc/passwd'; {program} run -n localhost:1 -- true"
        );
        let sub = place.project("sub").display().to_string();
        let run =
            place.run(&["-r", &directory, "-w", &sub, "--workdir", &sub], &["sh", "-c", &script]);
        run.ends(125).prints("640-1577").says("running without metadata");
        run.says("the network filter of the process tier needs seccomp notification");
        run.says("start it outside of that one");
        assert!(!run.text().contains("a secret") && !place.project("above").exists());
        // The control: by itself it does without nothing.
        let alone = place.run(&["-w", &sub, "--workdir", &sub], &["chmod", "600", "own"]);
        assert!(!alone.ends(0).err.contains("without"));
    });
}

/// A sandbox in a sandbox holds its signals in, and the outer one's launcher does not send them in its place.
#[test]
fn a_sandbox_inside_signals_nobody_around_it() {
    everybody(Tier::Namespace, |place| {
        let binary = ringfence_tests::binary();
        let program = binary.display().to_string();
        let kill = "import os, sys\ndef sends(to):\n try: os.kill(to, 10); return 'sent'\n except OSError as e: return e.strerror\nprint(*map(sends, (os.getppid(), 0)), flush=True)";
        let inner = format!("{program} run --tier process -- python3 -c \"{kill}\"");
        let script =
            format!("trap 'echo reached' USR1; {inner}; echo inner $?; kill -USR1 0; echo ends");
        let directory = binary.parent().expect("a directory").display().to_string();
        let options = ["-r", &directory];
        let mut outside = neighbour(place);
        let mut command = place.ringfence_run();
        command.args(options).args(["--", "sh", "-c", &script]);
        command.process_group(outside.id().cast_signed());
        let finished = Running::start(command).finish();
        // The control: by itself the outer one reaches its own.
        let refused = "Operation not permitted Operation not permitted\n";
        finished.ends(0).prints(&format!("{refused}inner 0\nreached\nends"));
        assert!(is_well(&mut outside));
    });
}

/// A script that a shell starts as a job leads its group; inside it has its number and not its group.
#[test]
fn the_group_that_the_command_would_lead_is_signalled_inside() {
    everybody(Tier::Namespace, |place| {
        let mut command = place.ringfence_run();
        let script = "mkfifo go; echo ready; read -r line < go; sleep 1000 & python3 -c 'import os; os.setsid(); os.kill(-2, 15)'; wait";
        command.args(["--", "sh", "-c", script]).process_group(0);
        let mut running = Running::start(command);
        running.printed("ready\n");
        let mut cat = place.command("cat");
        cat.process_group(running.pid().cast_signed()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut outside = cat.spawn().expect("cat(1)");
        std::fs::write(place.at("home/project/go"), "\n").expect("a reader");
        running.finish().ends(143);
        assert!(is_well(&mut outside));
        // What leads a group of its own is the kernel's business.
        let own = "setsid -w sh -c 'sleep 1000 & kill -s TERM -- -$$'; test $? = 143 && exit 9";
        let mut command = place.ringfence_run();
        command.args(["--", "sh", "-c", own]).process_group(0);
        Running::start(command).finish().ends(9);
    });
}

#[test]
fn priorities_of_the_own_group_are_not_those_of_others() {
    everywhere(|place| {
        let mut outside = neighbour(place);
        let mut command = place.ringfence_run();
        // The control: its own priority is its own.
        let script = "nice -n 5 nice; renice -n 5 -g 0 || echo refused";
        command.args(["--", "sh", "-c", script]).process_group(outside.id().cast_signed());
        let run = Running::start(command).finish();
        assert_eq!(run.ends(0).text(), "5\nrefused");
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", outside.id())).expect("alive");
        let nice = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(16));
        assert_eq!(nice, Some("0"), "{stat}");
        assert!(is_well(&mut outside));
    });
}

/// Without numbers of its own a program could join any job of the shell that started it.
#[test]
fn groups_outside_are_not_joined() {
    everybody(Tier::Process, |place| {
        let mut outside = neighbour(place);
        let script = "import os, subprocess, sys\n\
            def joins(process, group):\n try: os.setpgid(process, group); return 'joined'\n except OSError as e: return e.strerror\n\
            first = os.getpgrp()\n\
            print(joins(0, int(sys.argv[1])), os.getpgrp() == first)\n\
            print(joins(0, 0), joins(0, first), joins(0, os.getpid()))\n\
            lead, end = os.pipe()\n\
            def child():\n pid = os.fork()\n if pid == 0: os.close(end); os.read(lead, 1); os._exit(0)\n return pid\n\
            one, two, three = child(), child(), child()\n\
            print(joins(one, one), joins(two, one), joins(two, int(sys.argv[1])))\n\
            os.kill(one, 9); os.waitpid(one, 0)\n\
            print(joins(three, one), os.getpgid(three) == one)\n";
        let group = outside.id().to_string();
        let run = place.run(&[], &["python3", "-c", script, &group]);
        let refused = "Operation not permitted";
        let said =
            format!("{refused} True\njoined joined joined\njoined joined {refused}\njoined True");
        assert_eq!(run.ends(0).text(), said);
        assert!(is_well(&mut outside));
        // The control: outside it is joined.
        let mut outside = neighbour(place);
        let join = format!("python3 -c 'import os; os.setpgid(0, {}); print(1)'", outside.id());
        assert_eq!(place.shell(&join).ends(0).text(), "1");
        assert!(is_well(&mut outside));
        // Jobs of a shell inside.
        let jobs = "set -m; echo a | cat | cat; sleep 1000 & kill %1; wait %1; test $? = 143 && fg 2> no; echo $?";
        place.run(&[], &["bash", "-c", jobs]).ends(0).prints("a\n1");
    });
}

/// timeout(1) signals what its command started by its own group, which is the launcher's.
#[test]
fn what_a_timeout_inside_ends_is_all_that_its_command_started() {
    everywhere(|place| {
        let mut outside = neighbour(place);
        let mut command = place.ringfence_run();
        let script = "out=$(timeout 0.1 sh -c 'sleep 1000; :'); echo $?";
        command.args(["--", "sh", "-c", script]).process_group(outside.id().cast_signed());
        let run = Running::start(command).finish();
        assert_eq!(run.ends(0).text(), "124");
        assert!(is_well(&mut outside));
    });
}

#[test]
fn commands_of_one_session_signal_each_other() {
    everybody(Tier::Namespace, |place| {
        let mut running = place.start(
            &["--name", "signals"],
            &["sh", "-c", "trap 'exit 7' USR1; echo $$ > its; echo ready; sleep 1000 & wait"],
        );
        running.printed("ready\n");
        // It may be ended with the session before it can say how it went.
        let _ = place.ringfence(["exec", "signals", "--", "sh", "-c", "kill -USR1 $(cat its)"]);
        running.finish().ends(7);
    });
}

#[test]
fn who_is_inside_has_no_word_with_the_process_that_watches() {
    everywhere(|place| {
        // The kernel's own number for what the launcher's death is told by is among them.
        for signal in ["KILL", "STOP", "TERM", "HUP", "62", "63", "64"] {
            let script = format!(
                "kill -{signal} $PPID 2> /dev/null; mkdir -p d; echo evil > d/.envrc; echo $?; exit 3"
            );
            let ended = place.run(&["--timeout", "60"], &["bash", "-c", &script]);
            assert_eq!(ended.ends(3).text(), "0", "{signal}");
            assert!(ended.err.contains("d/.envrc was created"), "{signal}");
            assert!(!place.project("d/.envrc").exists(), "{signal}");
        }
        // Nor has who leaves the group that it is in.
        let left = "setsid -w true; kill -WINCH -1 2> /dev/null; exit 4";
        place.run(&[], &["bash", "-c", left]).ends(4);
    });
}

#[test]
fn files_move_between_directories_by_one_rename() {
    everywhere(|place| {
        place.shell("mkdir -p a/b c && echo x > a/b/f").ends(0);
        let python =
            "import os; os.rename('a/b/f', 'c/f'); os.link('c/f', 'a/l'); os.rename('a', 'c/a')";
        if place.has("python3", "--version") {
            place.run(&[], &["python3", "-c", python]).ends(0);
            assert_eq!(std::fs::read_to_string(place.project("c/a/l")).unwrap(), "x\n");
        }
    });
}

#[test]
fn a_stopped_and_continued_command_goes_on() {
    everywhere(|place| {
        let script = "echo ready; while [ ! -e go ]; do :; done; echo word";
        let mut command = place.ringfence_run();
        command.args(["--", "sh", "-c", script]);
        // A job of its own, as shells make them: a group that nobody of the session watches over,
        // which the tests' own may be, cannot be stopped by SIGTSTP (setpgid(2)).
        command.process_group(0);
        let mut running = Running::start(command);
        running.printed("ready\n");
        running.stop();
        running.signal(Signal::CONT);
        place.script("go", "");
        assert_eq!(running.finish().ends(0).text(), "ready\nword");
    });
}

#[test]
fn orphans_are_reaped() {
    everywhere(|place| {
        // The orphan's entry in /proc goes away only when somebody waits for it.
        let script =
            "pid=$(sh -c 'true & echo $!'); while [ -e /proc/$pid ]; do :; done; echo reaped";
        assert_eq!(place.sh(&[], script).quiet(), "reaped");
    });
}

#[test]
fn inside_there_are_only_its_own_processes() {
    everybody(Tier::Namespace, |place| {
        let seen = place.sh(&[], "ls /proc | grep -E '^[0-9]+$' | wc -l").quiet();
        assert!(seen.parse::<u32>().unwrap() <= 6, "{seen}");
        // The init cannot be looked into or traced, and signals do not end it.
        place.sh(&[], "cat /proc/1/environ").ends(1).says("Permission denied");
        place.sh(&[], "readlink /proc/1/exe || cat /proc/1/maps").ends(1).says("Permission denied");
        place
            .sh(&[], "readlink /proc/1/fd/* || ls /proc/1/root/")
            .ends(2)
            .says("Permission denied");
        place.sh(&[], "kill -9 1; kill -TERM 1; exit 6").ends(6);
    });
    everybody(Tier::Process, |place| {
        let parent = format!("kill -0 {}", std::process::id());
        place.shell(&parent);
        assert_ne!(place.sh(&[], &parent).code, 0, "signals do not leave the sandbox");
    });
}

/// Starts processes that try to outlive the command: in sessions of their own, with no stream
/// held open, deaf to polite signals.
fn outliving(place: &Place, then: &str) -> String {
    let path = place.text("");
    let stay = "trap \"\" TERM HUP INT QUIT; while :; do sleep 1000; done";
    format!(
        "sh -c '{stay}' {path} </dev/null >/dev/null 2>&1 &
         setsid sh -c '{stay}' {path} </dev/null >/dev/null 2>&1 &
         (setsid sh -c 'sh -c \"$1\" {path} & sh -c \"$1\" {path}' x '{stay}' {path} </dev/null >/dev/null 2>&1 &)
         sleep 1000 &
         echo ready; {then}"
    )
}

#[test]
fn what_runs_in_the_background_ends_with_the_command() {
    everywhere(|place| {
        let ended = place.sh(&[], &outliving(place, "exit 4"));
        assert_eq!(ended.ends(4).text(), "ready");
        assert_eq!(place.left_behind(), [""; 0]);
    });
}

#[test]
fn killing_the_launcher_ends_everything() {
    everywhere(|place| {
        let mut running = place.start(&[], &["sh", "-c", &outliving(place, "wait")]);
        running.printed("ready\n").signal(Signal::KILL);
        // The end of standard output: everybody who held it is gone.
        running.finish().ends(137);
        assert_eq!(place.left_behind(), [""; 0]);
    });
}

/// The children of a process.
fn children(pid: u32) -> Vec<i32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    list.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

#[test]
fn killing_the_process_that_watches_inside_ends_everything() {
    everywhere(|place| {
        let mut running = place.start(&[], &["sh", "-c", &outliving(place, "wait")]);
        running.printed("ready\n");
        let all = children(running.pid());
        let [watcher] = all[..] else { panic!("children: {all:?}") };
        kill_process(Pid::from_raw(watcher).unwrap(), Signal::KILL).unwrap();
        running.finish().ends(137);
        assert_eq!(place.left_behind(), [""; 0]);
    });
}

#[test]
fn what_is_protected_is_put_right_when_the_launcher_is_killed() {
    everywhere(|place| {
        let script = "mkdir .vscode && echo x > .vscode/tasks.json && echo x > .envrc && echo ready && exec sleep 1000";
        let mut running = place.start(&[], &["sh", "-c", script]);
        running.printed("ready\n").signal(Signal::KILL);
        running.finish();
        assert!(!place.project(".vscode").exists());
        assert!(!place.project(".envrc").exists());
        assert_eq!(place.left_behind(), [""; 0]);
    });
}

#[test]
fn what_is_protected_is_put_right_when_the_launcher_dies_with_the_command() {
    everywhere(|place| {
        place.shell("mkfifo gate").ends(0);
        let script = "mkdir .vscode; echo x > .vscode/tasks.json; echo ready; read line < gate";
        let mut running = place.start(&[], &["sh", "-c", script]);
        running.printed("ready\n");
        let all = children(running.pid());
        let [watcher] = all[..] else { panic!("children: {all:?}") };
        // The launcher sleeps while the command ends: what the watcher tells it stays unread.
        running.signal(Signal::STOP);
        let gate = std::fs::OpenOptions::new().write(true).open(place.project("gate")).unwrap();
        drop(gate);
        until("the command has ended", || children(watcher as u32).is_empty());
        running.signal(Signal::KILL);
        running.finish().ends(137);
        assert!(!place.project(".vscode").exists(), "{:?} {:?}", place.person, place.tier);
        assert_eq!(place.left_behind(), [""; 0]);
    });
}

#[test]
fn twenty_at_once() {
    everywhere(|place| {
        let all: Vec<Running> = (0..20)
            .map(|n| place.start(&[], &["sh", "-c", &format!("echo x > f{n}; exit {n}")]))
            .collect();
        for (n, running) in all.into_iter().enumerate() {
            let ended = running.finish();
            assert_eq!((ended.code, ended.err.as_str()), (n as i32, ""));
            assert!(place.project(format!("f{n}")).exists());
        }
        assert_eq!(place.left_behind(), [""; 0]);
    });
}

#[test]
fn the_watching_process_shows_nothing_and_takes_little() {
    everybody(Tier::Namespace, |place| {
        let mut running = place.start(&[], &["sh", "-c", "echo ready; exec sleep 1000"]);
        running.printed("ready\n");
        // It makes itself small when the command turns out to run for a while.
        let resident = || -> u64 {
            let status = format!("/proc/{}/status", running.pid());
            let status = std::fs::read_to_string(status).unwrap();
            let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
            resident.split_whitespace().next().unwrap().parse().unwrap()
        };
        until("the launcher holds at most 4096 KiB", || resident() <= 4096);
        running.signal(Signal::TERM);
        running.finish().ends(143);
    });
}
