//! The launcher's word that the plan holds: who becomes the command does all but execute before it comes, and nothing
//! else if it does not come.

use ringfence_tests::{Finished, Place, Tier, everybody, left_out, until};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;

/// At most so often a plan that was kept is waited for.
const ATTEMPTS: usize = 40;

/// Runs a command under strace, which does this to its launcher; with the calls that the launcher made.
fn injected(place: &Place, inject: &str, command: &str) -> (Finished, String) {
    let line = format!("strace -qq -o ../calls -e inject={inject} $RF -- {command}; echo $?");
    let ended = place.shell(&line);
    (ended, fs::read_to_string(place.at("home/calls")).unwrap_or_default())
}

/// Whether a launcher came to this call without libc, which begins with the heap: by a kept plan.
fn comes_to(calls: &str, call: &str) -> bool {
    calls.split_once(call).is_some_and(|(before, _)| !before.contains("brk("))
}

/// Whether a launcher's calls can be followed here, and a start of the command comes from a kept plan that holds.
fn is_kept(place: &Place, command: &str) -> bool {
    if !place.has("strace", "--version") {
        return false;
    }
    place.clock_moves_on();
    let nothing = "sched_yield:delay_enter=1";
    let held = (0..ATTEMPTS).any(|_| comes_to(&injected(place, nothing, command).1, "sendto("));
    if !held {
        left_out("a kept plan", "under strace no start came from one");
    }
    held
}

/// The launcher's first message is its word: it dies on the way to it, long after everybody waits for that.
#[test]
fn a_launcher_that_dies_before_its_word_has_nothing_executed() {
    everybody(Tier::Namespace, |place| {
        let command = "sh -c 'echo ran >> log'";
        if !is_kept(place, command) {
            return;
        }
        let lines = || fs::read_to_string(place.project("log")).unwrap_or_default().lines().count();
        let ran = lines();
        assert!(ran > 0, "the control: it writes there");
        let late = "sched_yield:delay_enter=200000:when=1 -e inject=sendto:signal=KILL:when=1";
        let (ended, calls) = injected(place, late, command);
        assert!(comes_to(&calls, "sendto("), "{calls}");
        assert_eq!(ended.text(), "137", "{}", ended.err);
        // Whoever is left of it has the standard output that was read to its end.
        assert_eq!(place.left_behind(), [""; 0]);
        assert_eq!(lines(), ran);
        let (ended, _) = injected(place, "sendto:delay_enter=1", command);
        assert_eq!((ended.text().as_str(), lines()), ("0", ran + 1), "{}", ended.err);
    });
}

/// Everybody waits for a launcher that is stopped, and goes on with it.
#[test]
fn a_launcher_that_is_stopped_before_its_word_is_waited_for() {
    everybody(Tier::Namespace, |place| {
        let command = "sh -c 'echo ran >> log'";
        if !is_kept(place, command) {
            return;
        }
        let _ = fs::remove_file(place.project("log"));
        let line = format!(
            "strace -qq -o ../calls -e inject=sched_yield:signal=STOP:when=1 \
             $RF -- {command} & echo $!; wait; echo over"
        );
        let mut running = place.shell_start(&line);
        let stat = |pid: i32| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = |pid: i32| stat(pid).rsplit(") ").next().and_then(|rest| rest.chars().next());
        let children = |pid: i32| -> Vec<i32> {
            let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
            let list = list.unwrap_or_default();
            list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
        };
        running.printed("\n");
        let strace: i32 = running.so_far().trim().parse().expect("strace's number");
        // Its launcher, the warden, who becomes the command.
        let mut line = [0; 3];
        until("all three wait", || {
            let mut above = strace;
            for one in &mut line {
                let Some(&child) = children(above).first() else { return false };
                (*one, above) = (child, child);
            }
            matches!(state(line[0]), Some('T' | 't'))
                && line[1..].iter().all(|&pid| state(pid) == Some('S'))
        });
        assert!(!place.project("log").exists());
        kill_process(Pid::from_raw(line[0]).expect("a number"), Signal::CONT).expect("its own");
        running.finish().prints("over");
        assert_eq!(fs::read_to_string(place.project("log")).expect("it ran"), "ran\n");
    });
}

/// Before it is known that the plan holds nobody tells of what is not found, and nothing is executed: the launcher is held
/// up until all are ready.
#[test]
fn a_plan_that_does_not_hold_executes_nothing_and_says_nothing() {
    everybody(Tier::Namespace, |place| {
        let mode = |bits: u32| {
            use std::os::unix::fs::PermissionsExt;
            let bits = fs::Permissions::from_mode(bits);
            fs::set_permissions(place.project("prog"), bits).expect("one's own");
        };
        place.script("prog", "#!/bin/sh\necho ran >> log\n");
        if !is_kept(place, "./prog") {
            return;
        }
        let late = |wanted: &str| {
            let late = "sched_yield:delay_enter=200000:when=1";
            let (ended, calls) = injected(place, late, "./prog");
            assert!(comes_to(&calls, "sched_yield("), "{calls}");
            assert_eq!(ended.text(), wanted, "{}", ended.err);
            assert_eq!(place.left_behind(), [""; 0]);
            ended.err
        };
        late("0");
        let lines = || fs::read_to_string(place.project("log")).unwrap_or_default().lines().count();
        let ran = lines();
        late("0");
        assert_eq!(lines(), ran + 1, "the control: the plan holds");
        // One more name to protect: it is planned anew, and what that plan starts is all that runs.
        place.file("home/project/.envrc", "host's");
        late("0");
        assert_eq!(lines(), ran + 2);
        assert!(is_kept(place, "./prog"));
        let ran = lines();
        mode(0o644);
        assert_eq!(late("126").matches("cannot execute").count(), 1);
        mode(0o755);
        assert!(is_kept(place, "./prog"));
        fs::remove_file(place.project("prog")).expect("its own");
        assert_eq!(late("127").matches("not found").count(), 1);
        assert!(lines() > ran, "it ran between the two");
    });
}

/// The word is heard by a call that a list need not have, since the list comes after it.
#[test]
fn a_list_without_the_call_that_hears_the_word_starts_too() {
    everybody(Tier::Namespace, |place| {
        if !place.has("python3", "--version") {
            return;
        }
        let script = "import socket\na, b = socket.socketpair()\na.send(b'x')\nprint(b.recv(1))";
        let calls = |more: &str| {
            let all = "clone|faccessat|getcwd|getdents64|ioctl|newfstatat|openat|pipe2|prlimit64|readlinkat|statfs|uname|\
                       socketpair|sendto|getrandom|sysinfo|getuid|geteuid|getgid|getegid|gettid|fcntl|epoll_create1|\
                       clock_getres|sched_getaffinity|stat|lstat|readlink|access|mremap|dup|sigaltstack|fstatfs|getpid";
            let list: Vec<_> = all.split('|').chain(more.split_whitespace()).collect();
            let list = list.iter().map(|call| format!("\"{call}\"")).collect::<Vec<_>>().join(", ");
            let text = "extends = [\"default\"]\n[syscalls]\nmode = \"learned\"\nallow";
            place.file("home/project/list.toml", format!("{text} = [{list}]\n"));
            place.clock_moves_on();
        };
        // The control: the same, listed.
        for (more, wanted) in [("recvfrom", 0), ("", 1)] {
            calls(more);
            for _ in 0..3 {
                let ended = place.run(&["-p", "list.toml"], &["python3", "-c", script]);
                assert_eq!(ended.code, wanted, "{more}: {}", ended.err);
                match wanted {
                    0 => ended.prints("b'x'"),
                    _ => ended.says("PermissionError"),
                };
            }
        }
    });
}
