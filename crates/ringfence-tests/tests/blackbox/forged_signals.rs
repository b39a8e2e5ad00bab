//! Signals by which a program inside would speak to the warden as the launcher does.

use ringfence_tests::{Place, Running, Terminal, Tier, binary, everybody, until};

/// What the programs share. The warden takes a signal of ours before it is woken for the last of some that it collects.
const SHARED: &str = "#!/usr/bin/env python3
import ctypes, os, signal, sys
queue = ctypes.CDLL(None).sigqueue
def collected():
    for _ in range(4):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            orphan = os.fork()
            if orphan: os.write(write, b'%d' % orphan)
            os._exit(0)
        os.waitpid(child, 0)
        orphan = int(os.read(read, 20))
        try:
            while True: os.kill(orphan, 0)
        except ProcessLookupError: pass
";

fn program(place: &Place, name: &str, rest: &str) -> bool {
    place.script(name, &format!("{SHARED}{rest}"));
    place.has("python3", "--version")
}

/// The launcher hands the terminal over so, with a SIGCONT, when the shell has given it that.
#[test]
fn the_terminal_is_not_had_in_the_launchers_name() {
    everybody(Tier::Namespace, |place| {
        let rest = "terminal = os.open('/dev/tty', os.O_RDWR)
os.setpgid(0, 0) if os.getpgrp() != os.getpid() else None
for number in 60, 62: queue(1, number, ctypes.c_void_p(18 | 1024))
collected()
with open('said', 'w') as said: said.write('taken' if os.tcgetpgrp(terminal) == os.getpgrp() else 'left')
os.rename('said', 'told')
";
        if !program(place, "forge", rest) {
            return;
        }
        let mut terminal = Terminal::shell(place);
        // The control: in front it has it.
        terminal.line("$RF -- ./forge; cat told; echo ' en''d'");
        assert!(terminal.shows(" end").contains("taken"));
        terminal.line("rm told; $RF -- ./forge &");
        until("it has tried", || place.project("told").exists());
        terminal.line("wait; cat told; echo ' en''d'");
        assert!(terminal.shows(" end").contains("left"));
        terminal.leave();
    });
}

/// Of a real-time signal for which there is no room the kernel keeps the number, and not who sent it.
#[test]
fn the_launcher_is_not_dead_because_somebody_inside_says_so() {
    everybody(Tier::Namespace, |place| {
        let rest = "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
while queue(os.getpid(), 40, None) == 0: pass
os.kill(1, 64)
collected()
print('still here')
";
        if !program(place, "say", rest) {
            return;
        }
        let mut command = place.command("prlimit");
        command.arg("--sigpending=100").arg(binary());
        command.args(["run", "--tier", place.tier_name(), "--", "./say"]);
        assert_eq!(Running::start(command).finish().quiet(), "still here");
    });
}
