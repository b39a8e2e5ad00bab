//! Connections to the session bus inside, passed on to its filter: when that is started, what is
//! passed, and what whoever connects may try with them.

use crate::dbus::{beside_a_bus, possible, ringfence};
use ringfence_tests::{Finished, Place, Tier, everybody, left_out, write_program};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Runs a Python script inside, beside a bus of its own.
fn inside(place: &Place, python: &str) -> Finished {
    place.file("home/project/inside.py", python);
    beside_a_bus(place, &format!("{} run -p ./bus.toml -- python3 inside.py", ringfence()))
}

/// Passes pipes to the holder of the allowed name; before each of them comes a message that the
/// filter drops.
const PASSES: &str = "
import bus, os
line = bus.connect(); bus.begin(line); bus.call(line, 1, 'Hello')
for serial in range(10, 60, 2):
    read, write = os.pipe()
    line.sendall(bus.message(serial, 'X', to='org.example.Denied', flags=1))
    data = bus.message(serial + 1, 'Take', 'h', bytes(4), 'org.example.Allowed', passed=1, flags=1)
    bus.with_descriptors(line, data, [write]); os.close(write)
    if os.read(read, 99) != b'through\\n': print('lost', serial); break
else: print('all came')
";

#[test]
fn descriptors_are_passed_with_messages() {
    everybody(Tier::Namespace, |place| {
        if possible(place) {
            assert_eq!(inside(place, PASSES).well(), "all came");
        }
    });
}

/// Each part tries something; after it a connection as any other works.
const TRIES: &str = "
import bus, os, socket, subprocess, sys
def works(after):
    line = bus.connect(); bus.begin(line)
    line.sendall(bus.message(1, 'Hello')); print(after, len(line.recv(4096)) > 0, flush=True)
works('at first')

many, refused = [], 0
path = os.environ['DBUS_SESSION_BUS_ADDRESS'].split('path=')[1]
for number in range(1000):
    one = socket.socket(socket.AF_UNIX); one.setblocking(False)
    try: one.connect(path); many.append(one)
    except BlockingIOError: refused += 1
print('all at once', len(many) + refused, 'some wait', refused > 0)
for one in many: one.close()
works('many')
for number in range(1000): bus.connect().close()
works('one after the other')

line = bus.connect(); bus.begin(line); line.sendall(bus.message(1, 'Hello'))
line.setblocking(False)
null = os.open('/dev/null', os.O_RDONLY)
def floods(line):
    for serial in range(2, 100000):
        data = bus.message(serial, 'GetId', passed=16)
        try: sent = bus.with_descriptors(line, data, [null] * 16)
        except (BlockingIOError, OSError) as error: return type(error).__name__
        if sent < len(data): return 'BlockingIOError'
print('never reads', floods(line) in ('BlockingIOError', 'BrokenPipeError', 'ConnectionResetError', 'OSError'))
works('descriptors that nobody takes')
line.close()

raw = bus.connect(); raw.setblocking(False)
try:
    while True: bus.with_descriptors(raw, b'x', [null] * 253)
except OSError: pass
works('descriptors without a message')

half = 'import bus; line = bus.connect(); bus.begin(line); line.sendall(bus.message(1, \"Hello\")[:20]); import os; os.kill(os.getpid(), 9)'
print('killed', subprocess.run([sys.executable, '-c', half]).returncode)
works('half a message')
ends = bus.connect(); bus.begin(ends); ends.shutdown(socket.SHUT_WR)
print('half closed', ends.recv(99) == b'')
works('half closed')
";

#[test]
fn whatever_one_connection_does_others_go_on() {
    everybody(Tier::Namespace, |place| {
        if !possible(place) {
            return;
        }
        let text = inside(place, TRIES).well();
        let lines: Vec<&str> = text.lines().collect();
        let wanted = [
            "at first True",
            "all at once 1000 some wait True",
            "many True",
            "one after the other True",
            "never reads True",
            "descriptors that nobody takes True",
            "descriptors without a message True",
            "killed -9",
            "half a message True",
            "half closed True",
            "half closed True",
        ];
        assert_eq!(lines, wanted);
    });
}

/// A filter that can be told from another, and does nothing.
const BROKEN: &str = "#!/bin/sh\ntouch \"$HOME/project/called\"\nexit 3\n";

/// A filter where only root can write, the first in `PATH`: others are not started.
struct Installed(PathBuf);

impl Installed {
    fn new(script: &str) -> Option<Installed> {
        let at = Path::new("/usr/local/lib").join(format!("ringfence-test-{}", std::process::id()));
        if fs::create_dir_all(&at).is_err() {
            left_out("D-Bus", "only root can install another filter");
            return None;
        }
        let installed = Installed(at);
        let filter = installed.0.join("xdg-dbus-proxy");
        write_program(&filter, script);
        fs::set_permissions(&installed.0, Permissions::from_mode(0o755)).expect("root's own");
        Some(installed)
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// It runs outside, as the user.
#[test]
fn a_filter_that_a_program_may_have_left_is_not_started() {
    everybody(Tier::Namespace, |place| {
        if !possible(place) {
            return;
        }
        place.script("tools/xdg-dbus-proxy", BROKEN);
        place.file(
            "home/project/asks.py",
            "import bus\nline = bus.connect(); bus.begin(line)\nprint('served')\n",
        );
        let script = format!(
            "mkdir links; ln -s $PWD/tools/xdg-dbus-proxy links/; export PATH=$PWD/tools:$PWD/links:tools:$PATH; \
             command -v xdg-dbus-proxy; {} run -p ./bus.toml -- python3 asks.py; ls called",
            ringfence()
        );
        let ended = beside_a_bus(place, &script);
        let found = place.project("tools/xdg-dbus-proxy").display().to_string();
        assert_eq!(ended.text().lines().collect::<Vec<_>>(), [found.as_str(), "served"]);
        assert!(!place.project("called").exists());
    });
}

#[test]
fn the_filter_is_started_for_who_connects_and_is_missed_by_nobody_else() {
    everybody(Tier::Namespace, |place| {
        if !possible(place) {
            return;
        }
        let Some(installed) = Installed::new(BROKEN) else { return };
        place.file(
            "home/project/asks.py",
            "import bus\nline = bus.connect(); print(line.recv(99))\n",
        );
        let script = format!(
            "export PATH={at}:$PATH; \
             {rf} run -p ./bus.toml -- sh -c 'test -S ${{DBUS_SESSION_BUS_ADDRESS#unix:path=}} && echo socket'; \
             ls called; {rf} run -p ./bus.toml -- python3 asks.py; echo code $?; ls called",
            at = installed.0.display(),
            rf = ringfence()
        );
        let ended = beside_a_bus(place, &script);
        let text = ended.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.first(), Some(&"socket"), "{text}");
        assert!(ended.err.contains("called"), "it was called although nobody connected: {text}");
        assert_eq!(lines.last(), Some(&"called"), "{text} {}", ended.err);
        assert!(lines.contains(&"code 0") || lines.contains(&"code 1"), "{text}");
        let said = "ringfence: xdg-dbus-proxy ended before it served the bus";
        assert_eq!(ended.err.matches(said).count(), 1, "{}", ended.err);
    });
}

#[test]
fn where_the_bus_was_is_not_used_again() {
    everybody(Tier::Namespace, |place| {
        if !possible(place) {
            return;
        }
        place.file(
            "home/project/asks.py",
            "import bus\nline = bus.connect(); bus.begin(line)\nprint('served')\n",
        );
        let script = format!(
            "rf() {{ RINGFENCE_TRACE_LAUNCH=7 {rf} run -p ./bus.toml -- python3 asks.py 7>trace; \
             echo code $?; }}; \
             for i in $(seq 20); do rf >once; if grep -q resumed trace; then break; fi; done; \
             cat once; grep -c resumed trace; \
             export DBUS_SESSION_BUS_ADDRESS=unix:path=$PWD/nowhere; rf",
            rf = ringfence()
        );
        let ended = beside_a_bus(place, &script);
        let text = ended.text();
        let wanted = ["served", "code 0", "1", "code 125"];
        assert_eq!(text.lines().collect::<Vec<_>>(), wanted, "{}", ended.err);
        assert!(ended.err.contains("there is none at unix:path="), "{}", ended.err);
    });
}

#[test]
fn a_killed_launcher_leaves_neither_a_filter_nor_a_name() {
    everybody(Tier::Namespace, |place| {
        if !possible(place) {
            return;
        }
        place.file(
            "home/project/stays.py",
            "import bus\nline = bus.connect(); bus.begin(line)\nprint('connected', flush=True)\nline.recv(99)\n",
        );
        let script = format!(
            "export XDG_RUNTIME_DIR=$TMPDIR; mkfifo said; \
             {} run -p ./bus.toml -- python3 stays.py > said & run=$!; exec 6<said; read line <&6; echo $line; \
             ls -A $TMPDIR; for p in /proc/[0-9]*; do \
             if grep -qs \"^PPid:[[:space:]]*$run$\" $p/status && grep -q xdg-dbus-proxy $p/cmdline; \
             then proxy=${{p#/proc/}}; fi; done; test -n \"$proxy\" && echo filter; kill -9 $run; \
             cat <&6; tail --pid=$proxy -f /dev/null; ls -A $TMPDIR; echo nothing left",
            ringfence()
        );
        let ended = beside_a_bus(place, &script);
        assert_eq!(ended.text(), "connected\nfilter\nnothing left", "{}", ended.err);
    });
}
