//! The network filter, in both tiers; who is told of what; rules that change while a session lives.

use ringfence_tests::{Place, Tier, everywhere};
use std::io::{BufRead, Read, Write};
use std::net::{TcpListener, TcpStream};

/// A server on the host's loopback that answers each connection.
fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client: TcpStream = client.unwrap();
            let _ = client.read(&mut [0; 512]);
            let _ = client.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 6\r\n\r\nserved");
        }
    });
    port
}

fn python(place: &Place) -> bool {
    place.has("python3", "--version")
}

fn ask(port: u16) -> String {
    format!(
        "import socket\nc = socket.create_connection(('127.0.0.1', {port}), 5)\n\
         c.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n')\nprint(c.recv(99)[-6:].decode())"
    )
}

#[test]
fn what_is_granted_is_reached_and_nothing_else() {
    everywhere(|place| {
        if !python(place) {
            return;
        }
        let (granted, other) = (server(), server());
        let rule = format!("localhost:{granted}");
        let run = |port| place.run(&["-n", &rule], &["python3", "-c", &ask(port)]);
        assert_eq!(run(granted).ends(0).text().trim(), "served");
        run(other).ends(1);
        // The control.
        assert_eq!(place.shell(&format!("python3 -c \"{}\"", ask(other))).well(), "served");
    });
}

#[test]
fn the_monitor_names_the_process_and_the_way_to_allow() {
    everywhere(|place| {
        if !python(place) {
            return;
        }
        let argv = [
            "python3",
            "-c",
            "import socket; socket.create_connection(('192.0.2.9', 80), 5).recv(1)",
        ];
        let ended = place.run(&["-m", "-n", "example.org"], &argv);
        ended.ends(1).says("denied 192.0.2.9:80 by python3").says("--allow-host 192.0.2.9");
        let lookup = ["getent", "ahosts", "no.example.net"];
        let ended = place.run(&["-m", "-n", "example.org"], &lookup);
        ended.ends(2).says("denied name no.example.net (A) by getent[");
    });
}

#[test]
fn a_sandbox_reaches_the_servers_of_its_own() {
    everywhere(|place| {
        if !python(place) {
            return;
        }
        let script = "
import socket, errno
for address in ('127.0.0.1', '0.0.0.0'):
    server = socket.create_server((address, 0))
    client = socket.create_connection(('127.0.0.1', server.getsockname()[1]), 5)
    client.sendall(b'own'); assert server.accept()[0].recv(3) == b'own'
    server.close()
print('served')";
        let ended = place.run(&["-n", "example.org"], &["python3", "-c", script]);
        assert!(ended.ends(0).text().ends_with("served"));
    });
}

/// Other threads change the address and the socket's number while calls are made with them.
const SWAPS: &str = "
import ctypes, os, socket, struct, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
good, bad = int(sys.argv[1]), int(sys.argv[2])
def raw(port): return struct.pack('<H', socket.AF_INET) + struct.pack('>H', port) + socket.inet_aton('127.0.0.1') + bytes(8)
address = ctypes.create_string_buffer(raw(good), 16)
going = True
def swap():
    while going:
        ctypes.memmove(address, raw(bad), 16); ctypes.memmove(address, raw(good), 16)
threads = [threading.Thread(target=swap) for _ in range(2)]
for thread in threads: thread.start()
made = 0
for _ in range(200):
    s = socket.socket(); s.settimeout(5)
    if libc.connect(s.fileno(), address, 16) == 0:
        made += 1
    else:
        s.setblocking(True)
        made += libc.connect(s.fileno(), address, 16) == 0
    s.close()
going = False
for thread in threads: thread.join()
print('made', made > 0)
";

#[test]
fn an_address_that_changes_under_the_call_leads_nowhere_else() {
    everywhere(|place| {
        if !python(place) {
            return;
        }
        let witness = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = witness.local_addr().unwrap();
        let granted = server();
        let (good, bad) = (granted.to_string(), to.port().to_string());
        let argv = ["python3", "-c", SWAPS, &good, &bad];
        let ended = place.run(&["-n", &format!("localhost:{granted}")], &argv);
        ended.ends(0).prints("made");
        // Whoever comes later is the first whom the witness sees.
        let control = TcpStream::connect(to).unwrap();
        assert_eq!(witness.accept().unwrap().1, control.local_addr().unwrap());
    });
}

#[test]
fn other_transports_are_closed() {
    everywhere(|place| {
        if !python(place) {
            return;
        }
        let script = "
import errno, socket
def attempt(name, act):
    try: act(); print(name, 'done')
    except OSError as error: print(name, errno.errorcode[error.errno])
attempt('mptcp', lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262))
attempt('sctp', lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132))
attempt('raw', lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt('packet', lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
attempt('vsock', lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM, 0))
attempt('diag', lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4))
def datagram():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('192.0.2.9', 443)); s.send(b'x'); s.settimeout(5); s.recv(9)
attempt('udp', datagram)
";
        let ended = place.run(&["-n", "example.org"], &["python3", "-c", script]);
        for line in [
            "mptcp EPERM",
            "sctp EPERM",
            "packet EAFNOSUPPORT",
            "vsock EAFNOSUPPORT",
            "diag EAFNOSUPPORT",
        ] {
            ended.prints(line);
        }
        match place.tier {
            Tier::Namespace => ended.prints("udp ECONNREFUSED").prints("raw EPERM"),
            Tier::Process => ended.prints("udp EACCES").prints("raw EACCES"),
        };
    });
}

/// A server at all addresses of the host, and one of them that is not the loopback.
fn outside() -> Option<(String, u16)> {
    let route = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    route.connect("192.0.2.1:9").ok()?;
    let address = route.local_addr().unwrap().ip();
    let listener = TcpListener::bind((address, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let _ = client.unwrap().write_all(b"served");
        }
    });
    Some((address.to_string(), port))
}

/// Tries to connect, before and after a line of input.
fn attempts(host: &str, port: u16, count: usize) -> String {
    format!(
        "
import socket, sys
for _ in range({count}):
    print('trying', flush=True)
    try: print(socket.create_connection(('{host}', {port}), 50).recv(9).decode(), flush=True)
    except OSError as error: print(type(error).__name__, flush=True)
    if _ + 1 < {count}: sys.stdin.readline()
"
    )
}

#[test]
fn a_host_can_be_allowed_while_the_session_lives() {
    everywhere(|place| {
        let Some((host, port)) = outside().filter(|_| python(place)) else { return };
        let name = format!("live-{}-{}", place.tier_name(), place.person.ids().0);
        let target = format!("{host}:{port}");
        let mut command = place.ringfence_run();
        command.args(["--name", &name, "-n", "example.org", "--", "python3", "-c"]);
        command.arg(attempts(&host, port, 2)).stdin(std::process::Stdio::piped());
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
        let mut next = || lines.next().unwrap().unwrap();
        assert_eq!([next(), next()], ["trying", "ConnectionResetError"]);
        place.ringfence(["allow", &name, "localhost:9"]).ends(125).says("when a session starts");
        place.ringfence(["allow", &name, "a b"]).ends(125).says("white space");
        let allowed = place.ringfence(["allow", &name, &target]);
        allowed.ends(0).prints("is allowed while this session lives");
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        assert_eq!([next(), next()], ["trying", "served"]);
        child.wait().unwrap();
        place.ringfence(["allow", &name, &target]).ends(125);
        // One without a filter has no rules to change.
        let mut running = place.start(&["--name", &name], &["sh", "-c", "echo up; sleep 100"]);
        running.printed("up");
        place.ringfence(["allow", &name, &target]).ends(125).says("no network filter");
    });
}

#[test]
fn a_refusal_waits_for_an_answer_where_it_was_asked_to() {
    everywhere(|place| {
        let Some((host, port)) = outside().filter(|_| python(place)) else { return };
        let name = format!("ask-{}-{}", place.tier_name(), place.person.ids().0);
        let options = ["--name", &name, "--ask=60s", "-n", "example.org"];
        let script = attempts(&host, port, 1);
        let mut running = place.start(&options, &["python3", "-c", &script]);
        running.printed("trying");
        place.ringfence(["allow", &name, &format!("{host}:{port}")]).ends(0);
        running.finish().ends(0).prints("served");
        // Nobody answers in time: refused.
        let options = ["--name", &name, "--ask=1s", "-n", "example.org"];
        let ended = place.run(&options, &["python3", "-c", &script]);
        ended.ends(0).prints("ConnectionResetError").says("waits 1s for an answer");
        ended.says(&format!("or ringfence allow {name} {host}:{port}"));
    });
}

/// Connects to each of its arguments and prints what came of it.
const EACH: &str = "
import socket, sys
for target in sys.argv[1:]:
    host, port = target.rsplit(':', 1)
    try: print(target, socket.create_connection((host, int(port)), 20).recv(9) == b'served')
    except OSError: print(target, False)
";

#[test]
fn why_agrees_with_what_happens() {
    everywhere(|place| {
        let (Some((host, one)), Some((_, two))) = (outside(), outside()) else { return };
        if !python(place) {
            return;
        }
        let mut net: Vec<&str> = host.split('.').collect();
        net.pop();
        let net = format!("{}.0/24", net.join("."));
        let rules: Vec<Vec<String>> = [
            "-n {host}:{one}",
            "-n {host}:{one} -n {host}:{two}",
            "-n {net}:{one}",
            "-n {net}:* --deny-host {host}:{two}",
            "-n {host}:* --deny-host {net}:{one}",
            "-n *:{one}",
            "-n example.org",
            "-n localhost:{one}",
            "-n {host}",
            "--network filtered",
        ]
        .iter()
        .map(|line| {
            let line = line.replace("{host}", &host).replace("{net}", &net);
            let line = line.replace("{one}", &one.to_string()).replace("{two}", &two.to_string());
            line.split(' ').map(ToOwned::to_owned).collect()
        })
        .collect();
        let targets = [one, two].map(|port| format!("{host}:{port}"));
        let mut seen = std::collections::BTreeSet::new();
        for options in &rules {
            let options: Vec<&str> = options.iter().map(String::as_str).collect();
            let mut argv = vec!["python3", "-c", EACH];
            argv.extend(targets.iter().map(String::as_str));
            let happened = place.run(&options, &argv).ends(0).text();
            for target in &targets {
                let mut words = vec!["why", "--tier", place.tier_name()];
                words.extend(&options);
                words.extend(["--", "connect", target]);
                let said = place.ringfence(words).code == 0;
                let line = format!("{target} {}", if said { "True" } else { "False" });
                assert!(happened.contains(&line), "{options:?}: {line} is said, {happened}");
                seen.insert(said);
            }
        }
        assert_eq!(seen.len(), 2, "both answers came up");
    });
}

/// Half a request line is a whole message to some servers. It waits for the rest of it only where a rule could speak
/// of what that names.
#[test]
fn half_a_line_is_held_up_only_where_its_rest_could_matter() {
    everywhere(|place| {
        if !python(place) {
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (send, heard) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (mut client, mut bytes) = (client.unwrap(), [0; 512]);
                let count = client.read(&mut bytes).unwrap_or(0);
                let _ = client.write_all(b"answer");
                let _ = send.send(bytes[..count].to_vec());
            }
        });
        let connect = format!(
            "import socket; s = socket.create_connection(('127.0.0.1', {port}), 60); s.sendall(b'GET / HT'); "
        );
        let run = |options: &[&str], rest: &str| {
            place.run(options, &["python3", "-c", &format!("{connect}{rest}")])
        };
        let rule = format!("localhost:{port}");
        let ended = run(&["-n", &rule, "--deny-host", "denied.test"], "print(s.recv(9).decode())");
        assert_eq!(ended.ends(0).text(), "answer");
        assert_eq!(heard.recv().unwrap(), b"GET / HT");
        let denied = format!("denied.test:{port}");
        let options = ["-m", "-n", &rule, "--deny-host", &denied];
        for (host, passes) in [("denied.test", false), ("other.test", true)] {
            let rest = format!(
                "s.sendall(b'TP/1.1\\r\\nHost: {host}\\r\\n\\r\\n'); print(s.recv(9).decode())"
            );
            let ended = run(&options, &rest);
            let whole = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
            assert_eq!(ended.code == 0, passes, "{}", ended.err);
            let expected = if passes { whole.as_bytes() } else { b"" };
            assert_eq!(heard.recv().unwrap(), expected);
        }
    });
}
