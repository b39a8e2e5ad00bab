//! `[dbus]`: the names that a profile grants, and no others.

use ringfence_tests::{Finished, Place, Tier, everybody, left_out};

const PROFILE: &str = "extends = [\"default\"]\n[dbus]\ntalk = [\"org.example.Allowed\"]\nown = [\"org.example.Mine\"]\n";

/// The protocol, so that no bindings are needed: `import bus`.
const PROTOCOL: &str = "
import array, os, socket, struct
def connect():
    parts = os.environ['DBUS_SESSION_BUS_ADDRESS'].split(',')
    path = [part for part in parts if 'path=' in part][0].split('path=')[1]
    bus = socket.socket(socket.AF_UNIX); bus.connect(path)
    return bus
def begin(bus):
    bus.sendall(b'\\0AUTH EXTERNAL ' + str(os.getuid()).encode().hex().encode() + b'\\r\\n')
    assert bus.recv(99).startswith(b'OK')
    bus.sendall(b'NEGOTIATE_UNIX_FD\\r\\n')
    assert bus.recv(99).startswith(b'AGREE')
    bus.sendall(b'BEGIN\\r\\n')
def pad(data, to): return data + bytes(-len(data) % to)
def text(value): value = value.encode(); return struct.pack('<I', len(value)) + value + b'\\0'
def message(serial, member, signature='', body=b'', to='org.freedesktop.DBus', passed=0, flags=0):
    fields = b''
    for code, kind, value in ((1, 'o', '/'), (2, 's', to), (3, 's', member), (6, 's', to)):
        fields = pad(fields, 8) + bytes((code, 1)) + kind.encode() + b'\\0' + text(value)
    if signature:
        fields = pad(fields, 8) + b'\\x08\\x01g\\0' + bytes((len(signature),)) + signature.encode() + b'\\0'
    if passed:
        fields = pad(fields, 8) + b'\\x09\\x01u\\0' + struct.pack('<I', passed)
    head = struct.pack('<BBBBIII', ord('l'), 1, flags, 1, len(body), serial, len(fields))
    return pad(head + fields, 8) + body
def with_descriptors(bus, data, passed):
    rights = array.array('i', passed)
    return bus.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
def call(bus, *words): bus.sendall(message(*words)); bus.recv(4096)
";

/// Holds two names on the bus until its input ends, and says `held`. Whoever passes it a descriptor
/// finds a line in it.
const HOLDER: &str = "
import bus, os, socket, struct, sys, threading
line = bus.connect(); bus.begin(line)
bus.call(line, 1, 'Hello')
for serial, name in ((2, 'org.example.Allowed'), (3, 'org.example.Denied')):
    bus.call(line, serial, 'RequestName', 'su', bus.pad(bus.text(name), 4) + struct.pack('<I', 0))
def serve():
    while True:
        data, passed, _, _ = socket.recv_fds(line, 1 << 16, 64)
        if not data: break
        for descriptor in passed: os.write(descriptor, b'through\\n'); os.close(descriptor)
threading.Thread(target=serve, daemon=True).start()
print('held', flush=True); sys.stdin.read()
";

/// Runs a script beside a bus of its own on which both names are held.
pub(crate) fn beside_a_bus(place: &Place, script: &str) -> Finished {
    place.file("home/project/bus.py", PROTOCOL);
    place.file("home/project/holder.py", HOLDER);
    place.file("home/project/bus.toml", PROFILE);
    let quoted = format!(
        "mkfifo end; python3 holder.py <end >held & exec 5>end; \
         until grep -q held held 2>/dev/null; do read -t 0.1 <> <(:); done; {script}"
    );
    place.file("home/project/script", quoted);
    place.shell("exec dbus-run-session -- bash script")
}

pub(crate) fn possible(place: &Place) -> bool {
    for program in ["dbus-run-session", "gdbus", "xdg-dbus-proxy", "python3"] {
        let option = if program == "gdbus" { "help" } else { "--version" };
        if !place.has(program, option) {
            left_out("D-Bus", &format!("{program} is not installed"));
            return false;
        }
    }
    true
}

pub(crate) fn ringfence() -> String {
    ringfence_tests::binary().display().to_string()
}

#[test]
fn names_that_are_granted_are_there_and_others_are_not() {
    everybody(Tier::Namespace, |place| {
        if !possible(place) {
            return;
        }
        let has = "gdbus call --session -d org.freedesktop.DBus -o / -m org.freedesktop.DBus";
        let asks = format!(
            "for name in Allowed Denied; do {has}.NameHasOwner org.example.$name; done; \
             for name in Mine Other; do {has}.RequestName org.example.$name 0; done 2>&1"
        );
        let ended = beside_a_bus(
            place,
            &format!("{} run -p ./bus.toml -- bash -c '{asks}'; echo outside; {asks}", ringfence()),
        );
        let text = ended.text();
        let (inside, outside) = text.split_once("outside").unwrap();
        let lines: Vec<&str> = inside.trim().lines().collect();
        assert_eq!(lines[..3], ["(true,)", "(false,)", "(uint32 1,)"], "{text}");
        assert!(lines[3].contains("ServiceUnknown"), "{text}");
        // The control: the bus itself has them all.
        let lines: Vec<&str> = outside.trim().lines().collect();
        assert_eq!(lines, ["(true,)", "(true,)", "(uint32 1,)", "(uint32 1,)"], "{text}");
    });
}

#[test]
fn without_rules_there_is_no_bus_and_afterwards_nothing_is_left() {
    everybody(Tier::Namespace, |place| {
        if !possible(place) {
            return;
        }
        let script = format!(
            "{rf} run -- bash -c 'echo [$DBUS_SESSION_BUS_ADDRESS]'; \
             {rf} run -p ./bus.toml -- bash -c 'test -S ${{DBUS_SESSION_BUS_ADDRESS#unix:path=}} && echo socket'; \
             ls -d ${{XDG_RUNTIME_DIR:-$TMPDIR}}/ringfence-bus-* 2>&1",
            rf = ringfence()
        );
        let ended = beside_a_bus(place, &script);
        let text = ended.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..2], ["[]", "socket"], "{text}");
        assert!(!text.contains("ringfence-bus-") || text.contains("No such file"), "{text}");
    });
}

#[test]
fn what_cannot_be_served_is_refused_with_a_reason() {
    everybody(Tier::Namespace, |place| {
        let profile = place.file("home/project/bus.toml", PROFILE);
        let profile = profile.to_str().unwrap();
        place.run(&["-p", profile], &["true"]).ends(125).says("(file ").says("needs");
        let wrong = place.file("home/project/wrong.toml", "[dbus]\ntalk = [\"*\"]\n");
        place.run(&["-p", wrong.to_str().unwrap()], &["true"]).ends(125).says("well-known name");
    });
}

/// Connects to the bus, says so, and waits for its end.
const WAITER: &str = "
import bus
line = bus.connect(); bus.begin(line)
print('connected', flush=True)
while line.recv(4096): pass
print('the end of the bus')
while True:
    # Who dies closes one descriptor after the other: this may be between them.
    try: bus.connect()
    except OSError as error: print('refused', error.errno); break
";

#[test]
fn a_filter_that_is_killed_is_the_end_of_the_bus_and_of_nothing_else() {
    everybody(Tier::Namespace, |place| {
        if !possible(place) {
            return;
        }
        place.file("home/project/waiter.py", WAITER);
        let script = format!(
            "mkfifo said; {} run -p ./bus.toml -- python3 waiter.py > said & run=$!; exec 6<said; \
             read line <&6; echo $line; for p in /proc/[0-9]*; do \
             if grep -qs \"^PPid:[[:space:]]*$run$\" $p/status && grep -q xdg-dbus-proxy $p/cmdline; \
             then kill -9 ${{p#/proc/}}; echo killed; fi; done; cat <&6; wait $run; echo code $?",
            ringfence()
        );
        let ended = beside_a_bus(place, &script);
        let text = ended.text();
        // ECONNREFUSED: the socket's file is there, and nobody listens.
        assert_eq!(
            text, "connected\nkilled\nthe end of the bus\nrefused 111\ncode 0",
            "{}",
            ended.err
        );
    });
}
