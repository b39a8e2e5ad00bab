//! The command as a job of its own: at a terminal it has what a shell's job has, for itself.

use ringfence_tests::{Place, Terminal, Tier, everybody, everywhere, until};

/// Prints whether a process leads its group, and the terminal listens to that.
const STAT: &str = "read -r pid name state parent group session terminal listens rest < /proc/$$/stat; \
     [ $group = $$ ] && [ $listens = $$ ] && echo own''job";

/// Has the job that was started with `GOES_ON` run in the background, and brings it to the front; `end` is that of its
/// line, in which it loops.
fn to_the_front(terminal: &mut Terminal, end: &str) {
    terminal.stops_job();
    terminal.line("bg");
    // What is typed before it goes on is nobody's.
    terminal.shows("goes\r\n");
    terminal.line("fg");
    terminal.shows(&format!("{end}'"));
    terminal.is_given();
}

const GOES_ON: &str = "trap \"echo go''es\" CONT";

/// A program `job`, which starts another one as a job of its own, and does then what its script says.
fn starts_jobs(place: &Place, then: &str) {
    let start = "#!/usr/bin/env python3
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execvp(sys.argv[1], sys.argv[1:])
";
    place.script("job", &format!("{start}{then}"));
}

#[test]
fn the_command_leads_a_job_to_which_the_terminal_listens() {
    everybody(Tier::Namespace, |place| {
        let mut terminal = Terminal::shell(place);
        // Planned, and from the plan that was kept; by the shell, since it has no `#!`, too.
        place.script("bare", &format!("{STAT}\n"));
        for command in [format!("sh -c '{STAT}'"), "./bare".to_owned()] {
            for stale in [false, false, true, false] {
                if stale {
                    // The plan does not hold any more, which is known when all but the command is there.
                    place.file("home/project/.envrc", &command);
                }
                terminal.line(&format!("$RF -- {command}"));
                terminal.shows("\nownjob");
                terminal.code(0);
            }
        }
        terminal.leave();
    });
}

/// gdb and shells do so.
#[test]
fn what_gives_the_terminal_away_takes_it_back() {
    everywhere(|place| {
        let mut terminal = Terminal::shell(place);
        let script =
            "set -m; sh -c \"read word; echo go''t \\$word\"; read word; echo the''n $word; exit 3";
        for _ in 0..2 {
            terminal.line(&format!("$RF -- bash -c '{script}'"));
            terminal.shows("exit 3'");
            terminal.line("one");
            terminal.shows("\ngot one");
            terminal.line("two");
            terminal.shows("\nthen two");
            terminal.code(3);
        }
        terminal.leave();
    });
}

#[test]
fn a_key_is_for_all_of_the_job() {
    everywhere(|place| {
        let mut terminal = Terminal::shell(place);
        // The shell waits for its child, which has to get the key too.
        terminal.line("$RF -- bash -c 'sh -c \"echo rea''dy; exec sleep 1000\"; exit 9'");
        terminal.shows("\nready");
        terminal.types("\x03").code(130);
        terminal.leave();
    });
}

/// The shell says nothing to a job that runs, when it gives the terminal to it.
#[test]
fn a_job_that_runs_in_the_background_is_brought_to_the_front() {
    everywhere(|place| {
        let mut terminal = Terminal::shell(place);
        terminal.line(&format!("$RF -- sh -c '{GOES_ON}; echo up; until [ -e go ]; do :; done'"));
        terminal.shows("\nup");
        to_the_front(&mut terminal, "done");
        to_the_front(&mut terminal, "done");
        terminal.types("\x03").code(130);
        // It reads when it has the terminal.
        let reads = "until [ -e go ]; do :; done; trap - CONT; read word; echo go''t $word; exit 5";
        terminal.line(&format!("$RF -- sh -c '{GOES_ON}; echo up; {reads}'"));
        terminal.shows("\nup");
        to_the_front(&mut terminal, "exit 5");
        place.script("go", "");
        terminal.line("word");
        terminal.shows("got word");
        terminal.code(5);
        terminal.leave();
    });
}

#[test]
fn others_of_a_pipe_have_the_terminal_too() {
    everywhere(|place| {
        let mut terminal = Terminal::shell(place);
        let pager = "sh -c 'cat; read word < /dev/tty; echo go''t $word'";
        terminal.line(&format!("$RF -- echo in''side | {pager}; echo af''ter"));
        terminal.shows("\ninside");
        terminal.line("word");
        terminal.shows("\ngot word");
        terminal.shows("\nafter");
        terminal.line(&format!("$RF -- sh -c 'echo be''gun >&2; exec sleep 1000' | {pager}"));
        terminal.shows("begun");
        terminal.types("\x03").code(130);
        terminal.leave();
    });
}

/// Who starts jobs may not take the terminal back by itself.
#[test]
fn the_terminal_is_given_back() {
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        starts_jobs(
            place,
            "os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
back = os.tcgetpgrp(0) == child
_, status = os.waitpid(child, 0)
os.tcsetpgrp(0, os.getpgrp())
print('back' if back else 'kept', os.waitstatus_to_exitcode(status), 'en' + 'd')
",
        );
        let mut terminal = Terminal::shell(place);
        // One that ends at once, one that takes its time, one that cannot be executed, two that are killed.
        for (command, code) in [
            ("true", 0),
            ("sh -c 'sleep 0.2; exit 4'", 4),
            ("./nothing", 127),
            ("sh -c 'kill -9 $$'", 137),
            ("sh -c 'kill -INT $$'", -2),
        ] {
            for _ in 0..2 {
                terminal.line(&format!("./job $RF -- {command}"));
                let shown = terminal.shows(" end");
                let limited = shown.contains("back 130");
                let ended = shown.contains(&format!("back {code}")) || (code == -2 && limited);
                assert!(ended, "{command}: {shown}");
            }
        }
        terminal.leave();
    });
}

/// Whoever started the job has it back by then.
#[test]
fn a_terminal_that_was_taken_meanwhile_is_not_taken_away() {
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        starts_jobs(
            place,
            "while not os.path.exists('up'): pass
os.tcsetpgrp(0, os.getpgrp())
open('go', 'w').close()
_, status = os.waitpid(child, 0)
mine = os.tcgetpgrp(0) == os.getpgrp()
for name in ('up', 'go'): os.remove(name)
print('mine' if mine else 'taken', os.waitstatus_to_exitcode(status), 'en' + 'd')
",
        );
        let mut terminal = Terminal::shell(place);
        for _ in 0..2 {
            terminal.line("./job $RF -- sh -c ': > up; until [ -e go ]; do :; done; exit 4'");
            let shown = terminal.shows(" end");
            assert!(shown.contains("mine 4"), "{shown}");
        }
        terminal.leave();
    });
}

#[test]
fn what_is_sent_to_the_job_is_for_all_of_it() {
    everywhere(|place| {
        let inner = "trap 'echo in''ner; exit 5' USR1; echo up; until [ -e go ]; do :; done";
        place.script("inner", &format!("#!/bin/sh\n{inner}\n"));
        let mut terminal = Terminal::shell(place);
        terminal.line("$RF -- sh -c 'trap : USR1; ./inner'");
        terminal.shows("\nup");
        terminal.stops_job();
        terminal.line("kill -USR1 %1; fg");
        terminal.shows("inner\r\n");
        terminal.code(5);
        terminal.leave();
    });
}

/// No signal tells the launcher that it is in the foreground.
#[test]
fn a_job_that_is_brought_to_the_front_has_the_keys_and_the_windows() {
    everywhere(|place| {
        let mut terminal = Terminal::shell(place);
        let script = "trap \"stty size; exit 3\" WINCH; echo up; until [ -e go ]; do :; done";
        terminal.line(&format!("$RF -- sh -c '{GOES_ON}; {script}'"));
        terminal.shows("\nup");
        to_the_front(&mut terminal, "done");
        terminal.resize(40, 132);
        terminal.shows("40 132");
        terminal.code(3);
        terminal.leave();
    });
}

#[test]
fn a_stopped_job_ends_with_its_shell() {
    everywhere(|place| {
        let mut terminal = Terminal::shell(place);
        terminal.line("PS1='inner> ' bash --norc --noprofile --noediting -i");
        terminal.shows("\ninner> ");
        let script = "trap \"echo hung > up; exit 1\" HUP; echo rea''dy; sleep 1000 & wait";
        terminal.line(&format!("$RF -- sh -c '{script}'"));
        terminal.shows("\nready");
        terminal.types("\x1a").shows("Stopped");
        terminal.shows("inner> ");
        terminal.line("kill -9 $$");
        terminal.shows("Killed");
        until("it is told", || place.project("up").exists());
        terminal.leave();
    });
}

/// In a window of its own, or by `ssh -t`: nobody would have it go on.
#[test]
fn no_key_stops_a_command_without_a_shell() {
    everywhere(|place| {
        if !place.has("script", "--version") {
            return;
        }
        let mut terminal = Terminal::shell(place);
        let script = "set -m; sh -c \"read word; echo go''t \\$word\"; echo ne''xt; read word; echo the''n $word; exit 3";
        place.script("command", &format!("#!/bin/bash\n{script}\n"));
        terminal.line("script -qec \"exec $RF -- ./command\" /dev/null; echo co''de $?");
        terminal.types("one\n").shows("got one");
        // What was typed before the key is dropped.
        terminal.shows("next");
        terminal.types("\x1a").shows("^Z");
        terminal.line("two");
        terminal.shows("then two");
        terminal.shows("\ncode 3");
        terminal.leave();
    });
}

/// A program `name` in Python, with `give` by which it gives a terminal, and what it does then.
fn gives(place: &Place, name: &str, then: &str) {
    let give = "#!/usr/bin/env python3
import errno, os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
def give(group, terminal=0):
    try: os.tcsetpgrp(terminal, group); return 'given'
    except OSError as error: return errno.errorcode[error.errno]
";
    place.script(name, &format!("{give}{then}"));
}

/// Its keys' signals would go there, and those of each new size of the window.
#[test]
fn the_terminal_is_not_given_to_another_job_of_the_shells() {
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        gives(
            place,
            "give",
            "own = os.tcgetpgrp(0)
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    signal.pause()
while os.getpgid(child) == os.getpgid(0): pass
# To a job of its own, and back again; to a number that is nobody's.
print(give(child), give(own), give(int(sys.argv[1])), os.tcgetpgrp(0) == own, 'en' + 'd')
os.kill(child, signal.SIGKILL)
os.tcsetpgrp(0, own)
",
        );
        let mut terminal = Terminal::shell(place);
        terminal.line("sh -c 'echo up > up; exec sleep 1000' &");
        until("it runs", || place.project("up").exists());
        // The control.
        terminal.line("./give $(jobs -p)");
        terminal.shows("given given given False end");
        terminal.line("$RF -- ./give $(jobs -p)");
        let shown = terminal.shows("True end");
        let refused = if place.tier == Tier::Process { "EPERM" } else { "ESRCH" };
        assert!(shown.contains(&format!("given given {refused} ")), "{shown}");
        terminal.line("kill $(jobs -p)");
        terminal.leave();
    });
}

/// What is typed for the user's shell would be read inside.
#[test]
fn a_job_in_the_background_does_not_take_the_terminal_from_the_shell() {
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        gives(
            place,
            "take",
            "terminal = os.open('/dev/tty', os.O_RDWR)
os.setpgid(0, 0) if os.getpgrp() != os.getpid() else None
with open('said', 'w') as said: said.write(give(os.getpgrp(), terminal))
os.rename('said', sys.argv[1])
",
        );
        let mut terminal = Terminal::shell(place);
        // In front it may.
        terminal.line("$RF -- ./take front; cat front; echo ' en''d'");
        assert!(terminal.shows(" end").contains("given"));
        terminal.line("rm front; $RF -- ./take back < /dev/null > /dev/null 2>&1 &");
        until("it has tried", || place.project("back").exists());
        terminal.line("wait; cat back; echo ' en''d'");
        assert!(terminal.shows(" end").contains("EPERM"));
        terminal.leave();
    });
}

/// By a program that is not asked to lead a job, in a script.
#[test]
fn a_script_has_the_terminal_again_after_the_run() {
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        place.script(
            "keep",
            "#!/usr/bin/env python3
import os, signal
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpgrp())
    print('ke' + 'pt', flush=True)
    os._exit(0)
os.waitpid(child, 0)
",
        );
        place.script("script", "#!/bin/sh\n$RF -- ./keep; read word; echo go''t $word; exit 3\n");
        let mut terminal = Terminal::shell(place);
        terminal.line("./script");
        terminal.shows("\nkept");
        terminal.line("word");
        terminal.shows("\ngot word");
        terminal.code(3);
        terminal.leave();
    });
}
