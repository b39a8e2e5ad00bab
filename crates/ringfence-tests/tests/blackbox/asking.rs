//! `run --ask`: what is asked about, what never is, and what becomes of a connection that was allowed by an answer.

use ringfence_tests::{Place, Running, everywhere, until};
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener};

/// Gives the same answer to each question of the place's one session, until the session ends or so many were put. What it
/// read goes before, a line each. The client goes on when somebody watches.
const ANSWER: &str = "
import glob, os, socket, sys
word, most, go = sys.argv[1], int(sys.argv[2]), os.path.abspath('go')
at, = glob.glob(os.environ['HOME'] + '/.local/state/ringfence/sessions/*/rules.sock')
os.chdir(os.path.dirname(at))
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect('rules.sock')
s.sendall(b'watch')
s.recv(4096)
held = open(go, 'w')
print('go', file=held, flush=True)
while most:
    line = s.recv(4096).decode()
    if not line: break
    if line[:7] != 'settled': print(line)
    kind, number, waits = (line + '\\t\\t').split('\\t')[:3]
    if kind == 'refused' and waits != '0':
        s.sendall(f'{word}\\t{number}'.encode())
        most -= 1
print('not asked:', most)
";

/// Connects to a host and port in each of these ways, asks for something, and prints the last word of the answer.
const CLIENT: &str = "
import socket, sys
host, port, ways = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
def begun(way):
    if way == 'plain':
        return socket.create_connection((host, port), 60), '/'
    s = socket.create_connection(('127.0.0.1', 1022), 60)
    if way == 'socks':
        s.sendall(b'\\5\\1\\0')
        s.recv(2)
        s.sendall(b'\\5\\1\\0\\3' + bytes([len(host)]) + host.encode() + port.to_bytes(2, 'big'))
        answer = s.recv(10)
        if answer[1]: return s, None
    if way == 'tunnel':
        s.sendall(f'CONNECT {host}:{port} HTTP/1.1\\r\\n\\r\\n'.encode())
        head = s.recv(999)
        if b' 200 ' not in head:
            print(way, (head + s.recv(999)).split(b'\\r\\n\\r\\n')[1].decode())
            return s, None
    return s, f'http://{host}:{port}/' if way == 'url' else '/'
print('up', flush=True)
open('go').readline()
for way in ways:
    everything = b''
    try:
        s, target = begun(way)
        if target:
            s.sendall(f'GET {target} HTTP/1.1\\r\\nHost: {host}:{port}\\r\\nConnection: close\\r\\n\\r\\n'.encode())
            while more := s.recv(999): everything += more
    except OSError as error:
        everything = b'error ' + type(error).__name__.encode()
    print(way, (everything.split(b'\\r\\n\\r\\n')[-1] or b'refused').decode(), flush=True)
";

const SECRET: &str = "s3cret-credential-9876543210";

/// A server at this address that says whether a request came with the credential.
fn server(address: IpAddr) -> u16 {
    let listener = TcpListener::bind((address, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && client.read(&mut byte).is_ok_and(|n| n > 0) {
                head.push(byte[0]);
            }
            let with = String::from_utf8_lossy(&head).contains(SECRET);
            let word = if with { "served-with" } else { "served-plain" };
            let length = word.len();
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{word}"
            );
            let _ = client.write_all(answer.as_bytes());
        }
    });
    port
}

/// An address of this host's own that is no loopback; none where it has no network.
fn outside() -> Option<IpAddr> {
    let route = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    route.connect("192.0.2.1:9").ok()?;
    Some(route.local_addr().unwrap().ip())
}

/// A server at such an address, for clients in Python: its host and port.
fn reachable(place: &Place) -> Option<(String, u16)> {
    let address = outside().filter(|_| place.has("python3", "--version"))?;
    Some((address.to_string(), server(address)))
}

/// Has a server be given the credential.
fn inject(host: &str, port: u16) -> String {
    format!("{host}:{port} Authorization=Bearer {{env:TOKEN}}")
}

/// What a session with these options prints whose client goes these ways, and what is read by who gives this answer to at
/// most so many questions.
fn asked(
    place: &Place,
    options: &[&str],
    (host, port, ways): (&str, u16, &[&str]),
    (word, most): (&str, usize),
) -> (String, String) {
    place.shell("rm -f go && mkfifo go").ends(0);
    let mut command = place.ringfence_run();
    command.env("TOKEN", SECRET).args(options).args(["--", "python3", "-c", CLIENT, host]);
    command.arg(port.to_string()).args(ways);
    let mut running = Running::start(command);
    running.printed("up");
    // Sessions are written down beside the command's start.
    let sessions = place.at("home/.local/state/ringfence/sessions");
    until("the session takes rules", || {
        let all = std::fs::read_dir(&sessions).into_iter().flatten().flatten();
        all.map(|session| session.path().join("rules.sock")).any(|socket| socket.exists())
    });
    let mut person = place.command("python3");
    person.args(["-c", ANSWER, word, &most.to_string()]);
    let read = Running::start(person).finish().ends(0).text();
    (running.finish().ends(0).text(), read)
}

/// The rules about its requests and credentials hold on a connection that waited, as on one that a rule allowed.
#[test]
fn what_waited_for_an_answer_is_inspected() {
    everywhere(|place| {
        let Some((host, port)) = reachable(place) else { return };
        let inject = inject(&host, port);
        let ways = ["plain", "socks", "tunnel", "url"];
        let served = ways.map(|way| format!("{way} served-with")).join("\n");
        let options = ["--ask=60s", "--inject", &inject];
        let (seen, read) = asked(place, &options, (&host, port, &ways), ("once", ways.len()));
        assert_eq!(seen, format!("up\n{served}"), "{read}");
        let (seen, read) = asked(place, &options, (&host, port, &["plain"]), ("session", 1));
        assert_eq!(seen, "up\nplain served-with", "{read}");
        // The controls: one that a rule allowed, and one of which no rule speaks.
        let rule = format!("{host}:{port}");
        let options = ["--ask=60s", "-n", &rule, "--inject", &inject];
        let (seen, _) = asked(place, &options, (&host, port, &ways), ("once", 0));
        assert_eq!(seen, format!("up\n{served}"));
        let options = ["--ask=60s", "-n", "example.org"];
        let (seen, _) = asked(place, &options, (&host, port, &["plain"]), ("once", 1));
        assert_eq!(seen, "up\nplain served-plain");
    });
}

/// A rule for some ports of a host denies the others to nobody.
#[test]
fn another_port_of_a_host_that_a_rule_names_is_asked_about() {
    everywhere(|place| {
        let Some((host, port)) = reachable(place) else { return };
        let ways = ["plain", "tunnel"];
        let served = "up\nplain served-plain\ntunnel served-plain";
        let (seen, read) =
            asked(place, &["--ask=60s", "-n", &host], (&host, port, &ways), ("once", 2));
        assert_eq!(seen, served, "{read}");
        // What a rule denies is refused at once.
        let denied = format!("{host}:{port}");
        let options = ["--ask=60s", "-n", &host, "--deny-host", &denied];
        let (seen, read) = asked(place, &options, (&host, port, &ways), ("once", 2));
        assert!(!seen.contains("served") && read.contains("not asked: 2"), "{seen} {read}");
    });
}

/// No answer opens the host's loopback: nobody is asked, and the refusal says what does.
#[test]
fn nobody_is_asked_about_the_hosts_own_loopback() {
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        let port = server(IpAddr::from([127, 0, 0, 1]));
        let mut ways = vec!["socks", "tunnel", "url"];
        if place.tier_name() == "process" {
            // In the namespace tier that is the sandbox's own.
            ways.push("plain");
        }
        for host in ["127.0.0.1", "127.0.0.2", "0.0.0.0", "[::1]", "[::]", "localhost"] {
            let ways = if host.starts_with('[') { &ways[1..3] } else { &ways[..] };
            let options = ["--ask=60s", "-n", "example.org"];
            let (seen, read) = asked(place, &options, (host, port, ways), ("once", 9));
            assert!(!seen.contains("served") && read.contains("not asked: 9"), "{seen} {read}");
            let remedy = format!("to allow it: --allow-host localhost:{port}");
            assert!(seen.matches(&remedy).count() == 2, "{seen}");
            assert!(seen.contains("when a session starts"), "{seen}");
            assert!(read.contains("refused\t1\t0\t"), "who watches is told: {read}");
        }
        // The control: as it says.
        let rule = format!("localhost:{port}");
        let (seen, _) =
            asked(place, &["--ask=60s", "-n", &rule], ("127.0.0.1", port, &ways), ("once", 0));
        assert_eq!(seen.matches("served-plain").count(), ways.len(), "{seen}");
    });
}

/// An answer of no is one, however the connection came.
#[test]
fn what_is_refused_by_an_answer_is_not_dialled() {
    everywhere(|place| {
        let Some((host, port)) = reachable(place) else { return };
        let inject = inject(&host, port);
        let ways = ["plain", "socks", "tunnel", "url"];
        let options = ["--ask=60s", "--inject", &inject];
        let (seen, read) = asked(place, &options, (&host, port, &ways), ("deny", ways.len()));
        assert!(!seen.contains("served"), "{seen}");
        assert!(read.contains("not asked: 0"), "{read}");
    });
}
