//! A real terminal: job control, sizes and keys as without a sandbox.
//!
//! Each test plays the user of an interactive shell on the host. What is typed is echoed, so
//! that the words waited for are put together by the programs (`do''ne` is shown as typed, and
//! as `done` only by the program).

use ringfence_tests::{Terminal, Tier, everybody, everywhere};

#[test]
fn a_terminal_is_a_terminal() {
    everywhere(|place| {
        let mut terminal = Terminal::shell(place);
        terminal.line("tty; $RF -- sh -c 'test -t 0 && test -t 1 && test -t 2 && echo al''l'");
        terminal.shows("\nall");
        terminal.line("$RF -- sh -c 'stty size; echo do''ne'");
        assert!(terminal.shows("\ndone").contains("24 80"));
        terminal.shows("ready> ");
        terminal.line("$RF -- sh -c 'echo to > /dev/tty; echo do''ne'");
        let shown = terminal.shows("\ndone");
        assert!(shown.contains("to\r"), "/dev/tty is the terminal: {shown}");
        terminal.leave();
    });
}

#[test]
fn the_terminal_is_opened_again_by_the_streams_names() {
    everywhere(|place| {
        let mut terminal = Terminal::shell(place);
        terminal.line(
            "$RF -- sh -c \"echo err''or > /dev/stderr; echo out''put > /dev/stdout; read x < /dev/stdin; echo go''t \\$x\"",
        );
        terminal.shows("\nerror");
        terminal.shows("\noutput");
        terminal.types("wo").types("rd\n");
        terminal.shows("got word");
        terminal.leave();
    });
}

#[test]
fn the_terminal_has_its_name() {
    everywhere(|place| {
        let mut terminal = Terminal::shell(place);
        terminal.line("tty; echo do''ne");
        terminal.shows("\ndone");
        terminal.line("$RF -- sh -c 'tty; echo en''d $?'");
        let shown = terminal.shows("\nend 0");
        assert!(shown.contains("/dev/"), "{shown}");
        terminal.leave();
    });
}

#[test]
fn the_window_changes_inside_too() {
    everywhere(|place| {
        let mut terminal = Terminal::shell(place);
        terminal.line(
            "$RF -- sh -c 'trap \"stty size; exit 3\" WINCH; sleep 1000 & echo rea''dy; wait'",
        );
        terminal.shows("\nready");
        terminal.resize(40, 132);
        terminal.shows("40 132");
        terminal.code(3);
        terminal.leave();
    });
}

#[test]
fn control_c_ends_the_command_and_the_shells_list() {
    everywhere(|place| {
        let mut terminal = Terminal::shell(place);
        terminal.line("$RF -- sh -c 'echo rea''dy; exec sleep 1000'");
        terminal.shows("\nready");
        terminal.types("\x03").code(130);
        // A loop around it ends, as it does around any command that dies of Ctrl-C.
        terminal.line(
            "for i in 1 2 3; do $RF -- sh -c 'echo rou''nd; exec sleep 1000'; echo af''ter; done",
        );
        terminal.shows("\nround");
        terminal.types("\x03");
        let shown = terminal.shows("ready> ");
        assert!(!shown.contains("\nafter") && !shown.contains("\nround"), "{shown}");
        // A command that handles it decides itself, and the loop goes on.
        terminal.line("$RF -- sh -c 'trap \"echo ig''nored; exit 7\" INT; sleep 1000 & echo rea''dy; wait'; echo co''de $?");
        terminal.shows("\nready");
        terminal.types("\x03").shows("ignored");
        terminal.shows("\ncode 7");
        terminal.leave();
    });
}

/// A launcher that is behind hears of the end in the turn in which it heard of the start, before it looks for the key.
#[test]
fn control_c_is_not_missed_by_a_launcher_that_is_behind() {
    everybody(Tier::Process, |place| {
        if !place.has("strace", "--version") {
            return;
        }
        let mut terminal = Terminal::shell(place);
        let late = "strace -qq -o ../calls -e inject=recvmsg:delay_enter=300000";
        let command = "$RF --timeout 1h -- sh -c 'echo rou''nd; exec sleep 1000'";
        terminal.line(&format!("for i in 1 2; do {late} {command}; echo af''ter; done"));
        terminal.shows("\nround");
        terminal.types("\x03");
        let shown = terminal.shows("ready> ");
        assert!(!shown.contains("after"), "{shown}");
        terminal.leave();
    });
}

#[test]
fn control_backslash_quits() {
    everywhere(|place| {
        let mut terminal = Terminal::shell(place);
        terminal.line("$RF -- sh -c 'echo rea''dy; exec sleep 1000'");
        terminal.shows("\nready");
        terminal.types("\x1c").code(131);
        terminal.leave();
    });
}

#[test]
fn control_z_stops_and_fg_goes_on() {
    everywhere(|place| {
        let mut terminal = Terminal::shell(place);
        // The clock of a limited run halts for the user's stop, which the launcher has to see: it leads its job itself.
        for options in ["", "--timeout 1h"] {
            let script = "echo rea''dy; read word; echo go''t $word; exit 4";
            terminal.line(&format!("$RF {options} -- sh -c '{script}'"));
            terminal.shows("\nready");
            terminal.stops_job();
            terminal.line("jobs -s; echo liv''es");
            terminal.shows("\nlives");
            terminal.line("fg");
            // The line of the job that fg continues.
            terminal.shows("exit 4'");
            terminal.line("word");
            terminal.shows("\ngot word");
            terminal.code(4);
        }
        // Twice, as an editor's users do.
        terminal.line("$RF -- sh -c 'echo rea''dy; read a; echo mo''re; read b; echo go''t $a$b'");
        terminal.shows("\nready");
        terminal.stops_job();
        terminal.line("fg");
        terminal.shows("$a$b'");
        terminal.line("x");
        terminal.shows("\nmore");
        terminal.stops_job();
        terminal.line("fg");
        terminal.shows("$a$b'");
        terminal.line("y");
        terminal.shows("\ngot xy");
        terminal.leave();
    });
}

#[test]
fn control_z_is_the_programs_own_to_ignore() {
    everywhere(|place| {
        let mut terminal = Terminal::shell(place);
        for run in ["", "$RF -- "] {
            let script = "trap \"\" TSTP; echo rea''dy; read word; echo go''t $word; exit 3";
            terminal.line(&format!("{run}sh -c '{script}'"));
            terminal.shows("\nready");
            // The key discards what was typed before it; its echo shows that it was taken.
            terminal.types("\x1a").shows("^Z");
            terminal.line("word");
            terminal.shows("\ngot word");
            terminal.code(3);
        }
        terminal.leave();
    });
}

#[test]
fn a_command_in_the_background_is_not_in_the_way() {
    everywhere(|place| {
        let mut terminal = Terminal::shell(place);
        terminal.line("$RF -- sh -c 'echo ba''ck; exit 3' & wait $!; echo co''de $?");
        terminal.shows("\ncode 3");
        // Reading the terminal from the background stops it, as it stops any command.
        terminal.line("$RF -- sh -c 'read word; echo go''t $word' &");
        terminal.shows("ready> ");
        terminal.line("fg");
        terminal.shows("$word'");
        terminal.line("word");
        terminal.shows("\ngot word");
        terminal.leave();
    });
}

#[test]
fn an_interactive_shell_inside_has_job_control() {
    everywhere(|place| {
        let mut terminal = Terminal::shell(place);
        terminal.line("$RF -- env PS1='inside> ' bash --norc --noprofile --noediting -i");
        let shown = terminal.shows("\ninside> ");
        assert!(!shown.contains("no job control"), "{shown}");
        terminal.line("sh -c 'echo rea''dy; exec sleep 1000'");
        terminal.shows("\nready");
        terminal.types("\x1a").shows("Stopped");
        terminal.shows("inside> ");
        // bash's `wait` does not wait for a job that it saw stop.
        terminal.line("kill -KILL %1; while jobs %1 >/dev/null 2>&1; do :; done; echo do''ne");
        terminal.shows("\ndone");
        terminal.shows("inside> ");
        terminal.line("sh -c 'echo rea''dy; exec sleep 1000'");
        terminal.shows("\nready");
        terminal.types("\x03").shows("inside> ");
        terminal.line("echo st''ill; exit 6");
        terminal.shows("\nstill");
        terminal.code(6);
        terminal.leave();
    });
}

#[test]
fn nobody_types_for_the_user() {
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        let script = place.script(
            "type",
            "#!/usr/bin/env python3
import fcntl, termios, ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
for number in (termios.TIOCSTI, termios.TIOCSTI | 1 << 32, 0x541c, 0x541d, termios.TIOCEXCL):
    result = libc.ioctl(0, ctypes.c_ulong(number), b'x')
    print(result, errno.errorcode.get(ctypes.get_errno()), end=' ')
for way in (termios.TCOOFF, termios.TCIOFF):
    result = libc.ioctl(0, ctypes.c_ulong(0x540a), way)
    print(result, errno.errorcode.get(ctypes.get_errno()), end=' ')
# The console's: KDSETMODE, KDSKBMODE, PIO_CMAP, VT_SETMODE, VT_ACTIVATE; and three that ask, or are a camera's.
for number in (0x4b3a, 0x4b45, 0x4b71, 0x5602, 0x5606, 0x4b33, 0x5603, 0x80685600):
    result = libc.ioctl(0, ctypes.c_ulong(number), ctypes.create_string_buffer(256))
    print(result, errno.errorcode.get(ctypes.get_errno()), end=' ')
print('en' + 'd')
",
        );
        assert!(script.exists());
        let mut terminal = Terminal::shell(place);
        terminal.line("$RF -- ./type");
        let shown = terminal.shows("end");
        let refused = "-1 EPERM ".repeat(12) + &"-1 ENOTTY ".repeat(3);
        assert!(shown.contains(&refused), "{shown}");
        terminal.leave();
    });
}

/// As servers have it (nginx on its channels): `O_ASYNC` is refused of terminals alone.
#[test]
fn a_socket_tells_of_input_by_a_signal_and_a_terminal_does_not() {
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        place.script(
            "told",
            "#!/usr/bin/env python3
import errno, fcntl, os, signal, socket, struct
told = []
signal.signal(signal.SIGIO, lambda *_: told.append(1))
FIOASYNC, O_ASYNC = 0x5452, 0o20000
def by_flag(file): fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) | O_ASYNC)
def by_request(file): fcntl.ioctl(file, FIOASYNC, struct.pack('i', 1))
for way in (by_flag, by_request):
    near, far = socket.socketpair()
    fcntl.fcntl(near, fcntl.F_SETOWN, os.getpid())
    way(near)
    far.send(b'x')
    assert fcntl.fcntl(near, fcntl.F_GETFL) & O_ASYNC
    fcntl.ioctl(near, FIOASYNC, struct.pack('i', 0))
    far.send(b'x')
    assert not fcntl.fcntl(near, fcntl.F_GETFL) & O_ASYNC
    try: way(os.open('/dev/tty', os.O_RDWR))
    except OSError as error: print(errno.errorcode[error.errno], end=' ')
print(len(told), 'en' + 'd')
",
        );
        let mut terminal = Terminal::shell(place);
        // The control.
        terminal.line("./told");
        let shown = terminal.shows("end");
        assert!(shown.contains("\n2 "), "{shown}");
        terminal.line("$RF -- ./told");
        let shown = terminal.shows("end");
        assert!(shown.contains("EPERM EPERM 2 "), "{shown}");
        terminal.leave();
    });
}

#[test]
fn the_terminals_settings_are_as_before() {
    everywhere(|place| {
        let mut terminal = Terminal::shell(place);
        terminal.line("before=$(stty -g); $RF -- sh -c 'stty -echo raw; stty sane; exit 0'; stty $before; $RF -- true; test $(stty -g) = $before && echo sa''me");
        terminal.shows("\nsame");
        terminal.leave();
    });
}
