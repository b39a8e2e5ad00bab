//! The launcher stops as its command did, for the shell. What is inside may go on, and somebody is there who keeps
//! watch.

use ringfence_tests::{Place, Running, Terminal, Tier, binary, everybody, everywhere, until};
use rustix::process::{Pid, Signal};
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

/// Goes on when the command has stopped, and makes protected names once it is told to.
const SIBLING: &str = "until [ -e go ]; do :; done; mkdir .vscode; echo evil > .vscode/tasks.json; \
     echo evil > .envrc; echo fine > made";

/// Runs a script that stops itself.
fn starts(place: &Place, options: &[&str], script: &str) -> Running {
    let mut command = place.ringfence_run();
    command.args(options).args(["--", "sh", "-c", script]).process_group(0);
    Running::start(command)
}

/// As ps(1) has it.
fn state(pid: u32) -> char {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).unwrap_or('-')
}

fn stops(running: &Running) {
    until("the launcher stops", || state(running.pid()) == 'T');
}

fn children(pid: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Has protected names made, and waits until they are gone; what is ordinary stays.
fn are_taken(place: &Place) {
    place.script("go", "");
    until("it makes names", || place.project("made").exists());
    let there = |name: &str| place.project(name).symlink_metadata().is_ok();
    until("protected names are taken", || !there(".envrc") && !there(".vscode/tasks.json"));
}

#[test]
fn protected_names_are_taken_while_the_command_is_stopped() {
    everywhere(|place| {
        let script = format!("setsid sh -c '{SIBLING}' & kill -STOP $$; echo word; exit 3");
        let running = starts(place, &[], &script);
        stops(&running);
        are_taken(place);
        assert_eq!(state(running.pid()), 'T', "nobody had it go on");
        running.signal(Signal::CONT);
        let finished = running.finish();
        finished.ends(3).prints("word").says(".envrc").says(".vscode/tasks.json");
        assert_eq!(fs::read_to_string(place.project("made")).unwrap(), "fine\n");
        assert!(!place.project(".vscode").exists());
    });
}

#[test]
fn what_is_replaced_outside_while_the_command_is_stopped_is_closed() {
    everybody(Tier::Namespace, |place| {
        for (name, text) in [("secret", "old"), ("free", "old"), ("lefthook.yml", "good")] {
            place.file(format!("home/project/{name}"), text);
        }
        let sibling = "until [ -e go ]; do :; done; n=0; while cat secret > /dev/null 2>&1 || \
             sh -c \": >> lefthook.yml\" 2> /dev/null; do n=$((n+1)); [ $n -lt 20000 ] || exit; done; \
             cat free > copy; echo closed > said";
        let script = format!("setsid sh -c '{sibling}' & kill -STOP $$; exit 3");
        let running = starts(place, &["--deny", "secret"], &script);
        stops(&running);
        for name in ["secret", "free", "lefthook.yml"] {
            let new = place.file("home/project/new", "new");
            fs::rename(new, place.project(name)).expect("replaced");
        }
        place.script("go", "");
        let said =
            || fs::read_to_string(place.project("said")).is_ok_and(|text| text == "closed\n");
        until("what was replaced is closed", said);
        assert_eq!(fs::read_to_string(place.project("copy")).unwrap(), "new");
        assert_eq!(state(running.pid()), 'T', "nobody had it go on");
        running.signal(Signal::CONT);
        let finished = running.finish();
        finished.ends(3).says("secret was replaced outside").says("lefthook.yml was replaced");
    });
}

/// As a job does whose process goes on.
#[test]
fn a_command_that_is_continued_inside_takes_the_launcher_along() {
    everywhere(|place| {
        let script = |then: &str| {
            format!("(until [ -e go ]; do :; done; kill -{then} $$) & kill -STOP $$; exit 3")
        };
        for (signal, code) in [("CONT", 3), ("KILL", 137)] {
            let running = starts(place, &[], &script(signal));
            stops(&running);
            place.script("go", "");
            running.finish().ends(code);
            fs::remove_file(place.project("go")).expect("removed");
        }
    });
}

#[test]
fn a_storm_of_stops_comes_to_its_end() {
    everywhere(|place| {
        let script = "pid=$$; (while kill -CONT $pid; do :; done) 2> /dev/null & n=0; \
             while [ $n -lt 30 ]; do n=$((n+1)); kill -STOP $$; done; kill -KILL $!; echo word; exit 3";
        starts(place, &[], script).finish().ends(3).prints("word");
    });
}

#[test]
fn a_launcher_that_is_killed_while_it_is_stopped_leaves_nobody() {
    everywhere(|place| {
        let script = format!("setsid sh -c '{SIBLING}; exec sleep 1000' & kill -STOP $$");
        let running = starts(place, &[], &script);
        stops(&running);
        let all = children(running.pid());
        assert_eq!(all.len(), 2, "the warden, and who keeps watch");
        are_taken(place);
        running.signal(Signal::KILL);
        running.finish().ends(137);
        until("both are gone", || all.iter().all(|&pid| matches!(state(pid), '-' | 'Z')));
        // The sibling held our pipes open, until it was ended.
        assert!(!place.project(".envrc").exists());
    });
}

#[test]
fn the_time_of_a_command_that_stopped_itself_passes() {
    everywhere(|place| {
        let script = format!("setsid sh -c '{SIBLING}; exec sleep 1000' & kill -STOP $$; wait");
        let running = starts(place, &["--timeout", "1s"], &script);
        place.script("go", "");
        running.finish().ends(124);
        assert!(!place.project(".envrc").exists() && !place.project(".vscode").exists());
    });
}

/// The job that was stopped goes on to its end.
fn goes_on(mut terminal: Terminal) {
    terminal.line("fg");
    terminal.shows("exit 4'");
    terminal.line("word");
    terminal.shows("\ngot word");
    terminal.code(4);
    terminal.leave();
}

#[test]
fn protected_names_are_taken_while_the_user_has_stopped_the_command() {
    everywhere(|place| {
        let mut terminal = Terminal::shell(place);
        let script = "setsid ./sibling & until [ -e up ]; do :; done; echo rea''dy; read word; echo go''t $word; exit 4";
        place.script("sibling", &format!("#!/bin/sh\n: > up\n{SIBLING}\n"));
        terminal.line(&format!("$RF -- sh -c '{script}'"));
        terminal.shows("\nready");
        terminal.stops_job();
        are_taken(place);
        goes_on(terminal);
    });
}

/// The kernel stops the whole group of who reads the terminal from the background.
#[test]
fn protected_names_are_taken_while_the_terminal_has_stopped_the_command() {
    everywhere(|place| {
        let mut terminal = Terminal::shell(place);
        let script =
            "setsid ./sibling & until [ -e up ]; do :; done; read word; echo go''t $word; exit 4";
        place.script("sibling", &format!("#!/bin/sh\n: > up\n{SIBLING}\n"));
        terminal.line(&format!("$RF -- sh -c '{script}' &"));
        terminal.shows("ready> ");
        terminal.line("until jobs -s | grep -q exit; do :; done; echo stop''ped");
        terminal.shows("\nstopped");
        terminal.shows("ready> ");
        are_taken(place);
        goes_on(terminal);
    });
}

/// No key undoes what tcflow(3) did, where it is not refused.
#[test]
fn a_terminal_that_the_command_stopped_shows_what_comes_after_it() {
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        let stop = "import os, signal, sys, termios
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
terminal = os.open('/dev/tty', os.O_RDWR)
try:
    termios.tcflow(terminal, termios.TCOOFF)
except (OSError, termios.error):
    pass
open('.envrc', 'w').close()
signal.pause() if sys.argv[1:] else sys.exit(5)";
        place.script("stop", &format!("#!/usr/bin/env python3\n{stop}\n"));
        let mut terminal = Terminal::shell(place);
        terminal.line("$RF -- ./stop");
        terminal.code(5);
        terminal.line("$RF --timeout 1s -- ./stop for good");
        terminal.shows("timed out after");
        terminal.code(124);
        assert!(!place.project(".envrc").exists());
        terminal.leave();
    });
}

#[test]
fn exec_does_not_wait_for_ever_for_a_launcher_that_is_stopped() {
    everywhere(|place| {
        let script = "echo up; exec sleep 1000";
        let mut running = place.start(&["--name", "one"], &["sh", "-c", script]);
        running.printed("up\n").signal(Signal::STOP);
        stops(&running);
        // The streams of those that gave up lie in the launcher's socket as long as it is stopped: pipes would stay open.
        let said = place.at("said");
        let exec = |words: &[&str]| {
            let mut command = place.command(binary());
            let file = fs::File::create(&said).unwrap();
            command.arg("exec").args(words).stdin(Stdio::null()).stdout(Stdio::null());
            command.stderr(file).spawn().unwrap()
        };
        let says = |text: &str| fs::read_to_string(&said).unwrap().contains(text);
        let goes_on = format!("kill -CONT {}", running.pid());
        // The plain one is asked for before libc is up.
        for words in [&["one", "touch", "no"][..], &["--workdir", ".", "one", "touch", "no"]] {
            for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
                let mut waiting = exec(words);
                until("it says what to do", || says(&goes_on));
                rustix::process::kill_process(Pid::from_child(&waiting), signal).unwrap();
                assert_eq!(waiting.wait().unwrap().code(), Some(code));
            }
        }
        let mut timed = exec(&["--timeout", "10ms", "one", "touch", "no"]);
        assert_eq!(timed.wait().unwrap().code(), Some(124));
        assert!(says("does not answer") && says("timed out"));
        // One that is still waiting is served, and none of those that gave up, which came before it.
        let mut waiting = exec(&["one", "touch", "yes"]);
        until("it says what to do", || says(&goes_on));
        running.signal(Signal::CONT);
        assert_eq!(waiting.wait().unwrap().code(), Some(0));
        assert!(place.project("yes").exists() && !place.project("no").exists());
        place.ringfence(["exec", "one", "touch", "no"]).quiet();
        assert!(place.project("no").exists());
        place.ringfence(["kill", "one"]).quiet();
        running.finish().ends(143);
    });
}
