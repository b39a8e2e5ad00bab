//! `--tier vm`: a guest's standard streams and terminal are as a program's elsewhere.

use super::vm::{cache, guests, guests_of_one, ringfence, start};
use ringfence_tests::{Place, Running, Terminal, binary};
use rustix::process::Signal;
use std::fs;
use std::process::Stdio;

/// A shell on a terminal, with `$VM` for a run in a guest.
fn shell(place: &Place) -> Terminal {
    let mut terminal = Terminal::shell(place);
    let (rf, cache) = (binary().display(), cache(place.person));
    terminal.line(&format!(
        "export XDG_CACHE_HOME='{}' VM='{rf} run --tier vm'; echo se''t",
        cache.display()
    ));
    terminal.shows("\nset");
    terminal.shows("ready> ");
    terminal
}

#[test]
fn what_cannot_be_written_is_told_and_is_a_failure() {
    guests_of_one(|place| {
        let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut one = start(place, &["--name", "one"], &["sh", "-c", "echo up; sleep 1000"]);
        one.printed("up\n");
        let run: &[&str] = &["run", "--tier", "vm", "--"];
        for how in [run, &["exec", "one", "--"]] {
            let ends = |script: &str, stdout: Stdio| {
                let mut command = ringfence(place, how);
                command.args(["sh", "-c", script]).stdout(stdout).stderr(Stdio::piped());
                let ended = command.spawn().unwrap().wait_with_output().unwrap();
                (ended.status.code(), String::from_utf8(ended.stderr).unwrap())
            };
            for (script, code) in [("echo hi", 125), ("echo hi; exit 3", 3), ("exec yes", 125)] {
                let (ended, said) = ends(script, full().into());
                assert_eq!(ended, Some(code), "{how:?} {script}");
                let why = "output could not be written to the end: No space left on device";
                assert!(said.contains(why), "{how:?} {script}: {said}");
            }
            // Who reads no more of it has all that he wanted.
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            assert_eq!(ends("echo hi", writer.into()), (Some(0), String::new()), "{how:?}");
        }
        one.signal(Signal::TERM);
        one.finish();
    });
}

/// On a disk that is full by then: no call tells the program.
#[test]
fn a_mapping_that_cannot_be_written_is_told_and_is_a_failure() {
    guests_of_one(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        let program = "import mmap, sys\n\
                       size = int(sys.argv[1]) << 20\n\
                       with open('/tmp/mapped', 'w+b') as file:\n    \
                           file.truncate(size)\n    view = mmap.mmap(file.fileno(), size)\n\
                       for at in range(0, size, 4096):\n    view[at] = 1\n\
                       print('changed')\n";
        place.file("home/project/changes.py", program);
        let run = |megabytes: &str| {
            let words = ["python3", "changes.py", megabytes];
            start(place, &["--disk", "4M"], &words).finish()
        };
        let ended = run("8");
        ended.ends(125).says("a mapping of /tmp/mapped could not be written: No space left");
        assert_eq!(ended.text(), "changed");
        run("1").ends(0);
    });
}

#[test]
fn standard_streams_are_opened_by_their_names() {
    guests(|place| {
        let script =
            "echo out >/dev/stdout; echo err >/dev/stderr; cat /dev/stdin; cat /proc/self/fd/0";
        let mut command = ringfence(place, &["run", "--tier", "vm", "--", "sh", "-c", script]);
        command.stderr(Stdio::piped());
        let ended = Running::start_with(command, b"in\n".to_vec()).finish();
        ended.ends(0);
        assert_eq!((ended.text().as_str(), ended.err.as_str()), ("out\nin", "err\n"));
    });
    guests_of_one(|place| {
        let mut terminal = shell(place);
        terminal.line("$VM -- sh -c 'echo a''ll >$(tty) && read word <$(tty) && echo go''t $word'");
        terminal.shows("\nall");
        terminal.line("word");
        terminal.shows("\ngot word");
        terminal.leave();
    });
}

#[test]
fn a_command_in_a_guest_is_stopped_and_goes_on() {
    guests_of_one(|place| {
        let mut terminal = shell(place);
        let reads = "sh -c 'stty -echo; echo star\"\"ted; read word; echo go\"\"t $word; exit 3'";
        terminal.line(&format!("$VM --name one -- {reads}"));
        terminal.shows("\nstarted");
        terminal.types("\x1a").shows("Stopped");
        terminal.shows("ready> ");
        terminal.line("stty -a; echo e''nd");
        let settings = terminal.shows("\nend");
        assert!(settings.contains(" icanon") && settings.contains(" echo "), "{settings}");
        terminal.line("fg");
        terminal.shows("one");
        terminal.line("word");
        terminal.shows("\ngot word");
        terminal.code(3);
        // One without a terminal, told by whoever looks after jobs.
        terminal
            .line("$VM --name one -- sh -c 'echo star\"\"ted; exec sleep 1000' </dev/null | cat &");
        terminal.shows("started");
        terminal.line("kill -TSTP %1; until jobs -s | grep -q Stopped; do :; done; echo stop''ped");
        // What is typed before the prompt is shown again behind it.
        terminal.shows("\nstopped");
        terminal.shows("ready> ");
        terminal.line("kill -CONT %1; until jobs -r | grep -q one; do :; done; echo runn''ing");
        terminal.shows("\nrunning");
        terminal.shows("ready> ");
        terminal.line("kill %1; wait; echo do''ne");
        terminal.shows("\ndone");
        terminal.leave();
    });
}

/// In a window of its own, or by `ssh -t`: nobody would have it go on.
#[test]
fn no_key_stops_a_command_in_a_guest_without_a_shell() {
    guests_of_one(|place| {
        if !place.has("script", "--version") {
            return;
        }
        let script = "echo started; read word; echo got $word; exit 3";
        place.script("command", &format!("#!/bin/sh\n{script}\n"));
        let mut terminal = shell(place);
        terminal.line("script -qec \"exec $VM -- ./command\" /dev/null; echo co''de $?");
        terminal.shows("\nstarted");
        terminal.types("\x1a").shows("^Z");
        terminal.line("word");
        terminal.shows("\ngot word");
        terminal.shows("\ncode 3");
        terminal.leave();
    });
}
