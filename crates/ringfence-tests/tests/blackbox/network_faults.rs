//! What goes wrong on a network, seen by programs inside as what it is, with a decision that says why:
//! names without an address, servers that are not there, that hang, that end half of a connection, that
//! are not read from; and a launcher that is killed.

use crate::clients::server;
use ringfence_tests::{
    PATIENCE, Place, Running, Tier, everybody, everywhere, free_port, held, lets_go,
};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::TcpListener;

fn python(place: &Place) -> bool {
    place.has("python3", "--version")
}

/// Answers each connection with one word, and ends it.
fn word() -> u16 {
    server(|client| client.write_all(b"served"))
}

#[test]
fn names_without_an_address_and_servers_that_are_not_there() {
    everywhere(|place| {
        if !python(place) {
            return;
        }
        let unused = free_port();
        let (nobody, host) = ("no-such-name.invalid", format!("localhost:{unused}"));
        let script = format!(
            "import socket
for to in (('{nobody}', 80), ('localhost', {unused})):
    try:
        s = socket.create_connection(to, 60); print('ended', s.recv(1))
    except ConnectionError as error: print('error')"
        );
        let ended = place.run(&["-m", "-n", nobody, "-n", &host], &["python3", "-c", &script]);
        // A reset, before or after the connection is seen to be made.
        assert_eq!(ended.ends(0).text(), "error\nerror", "{}", ended.err);
        ended.says(&format!("failed {nobody}:80")).says("cannot resolve");
        ended.says(&format!("failed localhost:{unused}")).says("Connection refused\n");
        ended.says(&format!("cannot connect to localhost: [::1]:{unused}: "));
    });
}

/// Accepts as many as its queue holds and no more: whoever comes then waits for an answer to nothing.
fn unanswering() -> (TcpListener, Vec<std::net::TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let to = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    for _ in 0..8 {
        let socket = rustix::net::socket(
            rustix::net::AddressFamily::INET,
            rustix::net::SocketType::STREAM,
            None,
        );
        let socket = std::net::TcpStream::from(socket.unwrap());
        socket.set_nonblocking(true).unwrap();
        let _ = rustix::net::connect(&socket, &to);
        waiting.push(socket);
    }
    (listener, waiting)
}

#[test]
fn a_server_that_does_not_answer_delays_nobody_else() {
    everywhere(|place| {
        if !python(place) {
            return;
        }
        let (dead, _waiting) = unanswering();
        let dead = dead.local_addr().map(|at| (at.port(), dead)).unwrap();
        let good = word();
        let script = format!(
            "import socket, threading
hanging = []
for _ in range(20):
    s = socket.socket(); s.setblocking(False)
    try: s.connect(('127.0.0.1', {}))
    except BlockingIOError: pass
    hanging.append(s)
for _ in range(20):
    print(socket.create_connection(('127.0.0.1', {good})).recv(9).decode())",
            dead.0
        );
        let rules = ["-n", &format!("localhost:{}", dead.0), "-n", &format!("localhost:{good}")];
        let ended = place.run(&rules, &["python3", "-c", &script]);
        assert_eq!(ended.ends(0).text().matches("served").count(), 20);
    });
}

#[test]
fn half_of_a_connection_can_end_either_way() {
    everywhere(|place| {
        if !python(place) {
            return;
        }
        // Reads to the end, and answers then.
        let after = server(|client| {
            let mut all = Vec::new();
            client.read_to_end(&mut all)?;
            client.write_all(format!("heard {}", all.len()).as_bytes())
        });
        // Ends its own half first, and says what it heard through the next connection.
        let before = server(|client| {
            client.write_all(b"first")?;
            client.shutdown(std::net::Shutdown::Write)?;
            let mut all = Vec::new();
            client.read_to_end(&mut all)?;
            assert_eq!(all.len(), 3_000_000);
            Ok(())
        });
        let script = format!(
            "import socket
def all(s):
    data = b''
    while (more := s.recv(65536)): data += more
    return data.decode()
s = socket.create_connection(('127.0.0.1', {after}))
s.sendall(b'x' * 3000000); s.shutdown(socket.SHUT_WR); print(all(s))
s = socket.create_connection(('127.0.0.1', {before}))
print(all(s)); s.sendall(b'x' * 3000000); s.shutdown(socket.SHUT_WR); print('sent')"
        );
        let rules = ["-n", &format!("localhost:{after}"), "-n", &format!("localhost:{before}")];
        let ended = place.run(&rules, &["python3", "-c", &script]);
        assert_eq!(ended.ends(0).text(), "heard 3000000\nfirst\nsent");
    });
}

#[test]
fn who_does_not_read_holds_up_nobody_and_takes_little_memory() {
    const MUCH: usize = 100_000_000;
    everybody(Tier::Namespace, |place| {
        if !python(place) {
            return;
        }
        let much = server(|client| {
            let piece = vec![7; 1_000_000];
            (0..MUCH / piece.len()).try_for_each(|_| client.write_all(&piece))
        });
        let good = word();
        let script = format!(
            "import socket, sys
slow = [socket.create_connection(('127.0.0.1', {much})) for _ in range(8)]
for s in slow: s.recv(1)
for _ in range(20):
    assert socket.create_connection(('127.0.0.1', {good})).recv(9) == b'served'
print('waiting', flush=True); sys.stdin.readline()
count, s = 1, slow[0]
while (more := len(s.recv(1 << 20))): count += more
print(count)"
        );
        let mut command = place.ringfence_run();
        let rules = [format!("localhost:{much}"), format!("localhost:{good}")];
        command.args(["-n", &rules[0], "-n", &rules[1], "--", "python3", "-c", &script]);
        let mut running = Running::start_with(command, b"go\n".to_vec());
        running.printed("waiting");
        let status = std::fs::read_to_string(format!("/proc/{}/status", running.pid())).unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        let resident: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
        assert!(resident < 8 * 1024, "{resident} KiB");
        let ended = running.finish();
        assert!(ended.ends(0).text().ends_with(&MUCH.to_string()), "{}", ended.text());
    });
}

#[test]
fn with_the_launcher_connections_and_programs_die() {
    everywhere(|place| {
        if !python(place) {
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let script = format!(
            "import socket
s = [socket.create_connection(('127.0.0.1', {port})) for _ in range(3)]
for one in s: one.sendall(b'hello')
print('connected', flush=True)
while s[0].recv(9): pass"
        );
        let host = format!("localhost:{port}");
        let mut running = place.start(&["-n", &host], &["python3", "-c", &script]);
        let mut clients: Vec<_> = (0..3).map(|_| listener.accept().unwrap().0).collect();
        for client in &mut clients {
            let mut hello = [0; 5];
            client.read_exact(&mut hello).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
        }
        running.printed("connected");
        running.signal(Signal::KILL);
        for client in &mut clients {
            // An end or a reset, and not silence.
            match client.read(&mut [0; 9]) {
                Ok(count) => assert_eq!(count, 0),
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
            }
        }
        // Whoever holds its output has ended too.
        assert_eq!(running.finish().signal, Some(9));
    });
}

/// A program that sends and ends at once: nobody inside is left when its connection is accepted.
#[test]
fn what_was_sent_before_the_end_arrives_and_is_told() {
    const TIMES: usize = 8;
    everywhere(|place| {
        if !python(place) {
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (send, arrived) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for mut client in listener.incoming().flatten() {
                let mut all = Vec::new();
                let _ = client.read_to_end(&mut all);
                // A server that does not close holds up nobody.
                let _ = send.send((all, client));
            }
        });
        let script = format!(
            "import os, socket
s = socket.create_connection(('127.0.0.1', {port})); s.sendall(b'last words'); os._exit(3)"
        );
        let host = format!("localhost:{port}");
        for _ in 0..TIMES {
            let ended = place.run(&["-m", "-n", &host], &["python3", "-c", &script]);
            ended.ends(3).says("allowed localhost").says("10 bytes sent, 0 received");
            let (all, _) = arrived.recv_timeout(PATIENCE).expect("the words");
            assert_eq!(all, b"last words");
        }
    });
}

/// Who is gone and said nothing is not dialled for: the launcher ends with the program.
#[test]
fn a_server_that_does_not_answer_holds_up_no_end() {
    use rustix::net::{AddressFamily, SocketType, bind, listen, socket};
    everywhere(|place| {
        if !python(place) {
            return;
        }
        // Its queue is full: it answers nobody.
        let full = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&full, &std::net::SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        listen(&full, 0).unwrap();
        let full = TcpListener::from(full);
        let at = full.local_addr().unwrap();
        let moment = std::time::Duration::from_millis(100);
        let fill = std::iter::repeat_with(|| std::net::TcpStream::connect_timeout(&at, moment));
        let held: Vec<_> = fill.map_while(Result::ok).take(16).collect();
        assert!((1..16).contains(&held.len()), "{}", held.len());
        let script = format!(
            "import os, socket
s = socket.create_connection(('127.0.0.1', {})); os._exit(3)",
            at.port()
        );
        let host = format!("localhost:{}", at.port());
        let ended = place.run(&["-m", "-n", &host], &["python3", "-c", &script]);
        ended.ends(3).says("the program ended before there was an answer");
    });
}

/// A question is answered by who is inside being gone: what was asked for is refused, and told so.
#[test]
fn a_question_that_is_open_at_the_end_is_a_refusal() {
    everywhere(|place| {
        if !python(place) {
            return;
        }
        let request = "GET http://192.0.2.2:7/ HTTP/1.1\\r\\nHost: 192.0.2.2:7\\r\\n\\r\\n";
        for (to, words) in [("192.0.2.2", ""), ("192.0.2.2", "words"), ("127.0.0.1", request)] {
            let port = if words == request { 1022 } else { 7 };
            let script = format!(
                "import os, socket
s = socket.create_connection(('{to}', {port})); s.sendall(b'{words}'); os._exit(3)"
            );
            let options = ["-m", "--ask=60s", "-n", "example.org"];
            let ended = place.run(&options, &["python3", "-c", &script]);
            ended.ends(3).says("denied 192.0.2.2:7").says(": no rule allows 192.0.2.2:7");
            assert!(!ended.err.contains("failed"), "{}", ended.err);
        }
    });
}

/// Of a request that was passed on the answer is not waited for once nobody is there to read it.
#[test]
fn an_answer_that_nobody_reads_holds_up_no_end_where_requests_are_looked_at() {
    everywhere(|place| {
        if !python(place) {
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (send, arrived) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for mut client in listener.incoming().flatten() {
                let (mut all, mut byte) = (Vec::new(), [0]);
                while !all.ends_with(b"\r\n\r\n") && client.read(&mut byte).is_ok_and(|n| n > 0) {
                    all.push(byte[0]);
                }
                let begun: &[u8] = match all.get(4..9) {
                    Some(b" /par") => b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart",
                    Some(b"/sock") => {
                        b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
                    }
                    _ => b"",
                };
                let _ = client.write_all(begun);
                let _ = client.read_to_end(&mut all);
                let _ = send.send(String::from_utf8_lossy(&all).into_owned());
            }
        });
        let websocket = "Connection: Upgrade\\r\\nUpgrade: websocket\\r\\nSec-WebSocket-Key: \
                         MTIzNDU2Nzg5MDEyMzQ1Ng==\\r\\nSec-WebSocket-Version: 13\\r\\n\\r\\n";
        let body = "Content-Length: 5\\r\\n\\r\\nwords";
        for (head, heard, then, told) in [
            ("POST /nothing", body, "", "no answer POST 127.0.0.1"),
            (
                "POST /part",
                body,
                "s.recv(999)",
                "the program left before the answer's end; until then 200",
            ),
            ("GET /socket", websocket, "s.recv(999); s.sendall(b'words')", "101 GET 127.0.0.1"),
        ] {
            let script = format!(
                "import os, socket
s = socket.create_connection(('127.0.0.1', {port}))
s.sendall(b'{head} HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\n{heard}'); {then}
os._exit(3)"
            );
            let rule = format!("localhost:{port}/*");
            let ended =
                place.run(&["-m", "--http", &format!("* {rule}")], &["python3", "-c", &script]);
            let (told, arrived) = (ended.ends(3).says(told), arrived.recv_timeout(PATIENCE));
            told.says("5 bytes sent").says(&format!("closed 127.0.0.1:{port}"));
            assert!(arrived.expect("the request").ends_with("words"));
        }
    });
}

/// Who is gone before its server has spoken TLS has taken no part in it, and asked for nothing.
#[test]
fn a_server_that_does_not_speak_tls_holds_up_no_end() {
    everywhere(|place| {
        if !python(place) {
            return;
        }
        let port = server(|client| client.read_to_end(&mut Vec::new()).map(drop));
        let script = format!(
            "import os, socket, ssl
inside, out = ssl.MemoryBIO(), ssl.MemoryBIO()
tls = ssl.create_default_context().wrap_bio(inside, out, server_hostname='localhost')
try: tls.do_handshake()
except ssl.SSLWantReadError: pass
s = socket.create_connection(('127.0.0.1', {port})); s.sendall(out.read()); os._exit(3)"
        );
        let rule = format!("GET localhost:{port}/*");
        let ended = place.run(&["-m", "--http", &rule], &["python3", "-c", &script]);
        let told = format!("failed localhost:{port}");
        ended.ends(3).says(&told).says("the program ended before there was an answer");
    });
}

/// Bursts of connections of all kinds: allowed, refused, reset by either side, without an end.
#[test]
fn bursts_leave_no_descriptor_behind() {
    everywhere(|place| {
        if !python(place) {
            return;
        }
        let good = word();
        let unused = free_port();
        let script = format!(
            "import socket, struct, sys
def burst():
    for n in range(120):
        s = socket.socket()
        try:
            s.connect(('127.0.0.1', ({good}, {unused}, 9)[n % 3]))
            if n % 2: s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
            elif n % 3 == 0: assert s.recv(9) == b'served'
        except ConnectionError: pass
        s.close()
    held = [socket.create_connection(('127.0.0.1', {good})) for _ in range(200)]
    for s in held:
        assert s.recv(9) == b'served'; assert s.recv(9) == b''
    for s in held: s.close()
for _ in range(5):
    print('burst', flush=True); sys.stdin.readline(); burst()"
        );
        let rules = [format!("localhost:{good}"), format!("localhost:{unused}")];
        let words = ["-n", &rules[0], "-n", &rules[1], "--", "python3", "-c", &script];
        let mut command = place.ringfence_run();
        let (input, output) = std::io::pipe().unwrap();
        command.args(words).stdin(input).stdout(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(command);
        let mut lines =
            std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
        let mut output = output;
        // What serves the connections is made with the first one.
        let (mut before, serving) = (None, 16);
        for _ in 0..5 {
            assert_eq!(lines.next().unwrap().unwrap(), "burst");
            // The last of a burst are still on their way out.
            let most = *before.get_or_insert_with(|| held(child.id()).len() + serving);
            lets_go(child.id(), most);
            output.write_all(b"\n").unwrap();
        }
        assert!(child.wait().unwrap().success());
    });
}

/// The status of a process's thread that has this name.
fn status(pid: u32, name: &str) -> Option<String> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let statuses =
        threads.map(|thread| std::fs::read_to_string(thread.unwrap().path().join("status")));
    statuses.flatten().find(|status| status.starts_with(&format!("Name:\t{name}\n")))
}

#[test]
fn what_serves_connections_has_no_capabilities() {
    everywhere(|place| {
        if !python(place) {
            return;
        }
        let good = word();
        let script = format!(
            "import signal, socket
s = socket.create_connection(('127.0.0.1', {good}))
assert s.recv(9) == b'served'
print('served', flush=True); signal.pause()"
        );
        let rule = format!("localhost:{good}");
        let mut running = place.start(&["-m", "-n", &rule], &["python3", "-c", &script]);
        running.printed("served");
        let of = |status: &str, line: &str| {
            let found = status.lines().find_map(|one| one.strip_prefix(line)).unwrap();
            found.trim().to_owned()
        };
        let none = "0000000000000000";
        let serving = status(running.pid(), "ringfence-net").expect("it serves");
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
            assert_eq!(of(&serving, set), none, "{set}");
        }
        assert_eq!(of(&serving, "NoNewPrivs:"), "1");
        // The launcher's own have to do with the user who started it.
        let main = std::fs::read_to_string(format!("/proc/{}/status", running.pid())).unwrap();
        let root = of(&main, "Uid:").starts_with("0\t");
        assert_eq!(of(&main, "CapEff:") != none, root);
        running.signal(Signal::TERM);
        // And it still finds whose a connection is; it looks for no longer than is good for the connection.
        let found = running.finish().err.contains("python3")
            || (0..10).any(|_| {
                let mut running = place.start(&["-m", "-n", &rule], &["python3", "-c", &script]);
                running.printed("served");
                running.signal(Signal::TERM);
                running.finish().err.contains("python3")
            });
        assert!(found, "no connection has its program");
    });
}

/// A launcher with few descriptors serves some, and the next ones when these have gone; it keeps some for itself.
#[test]
fn who_finds_no_room_waits_for_it() {
    everywhere(|place| {
        if !python(place) {
            return;
        }
        let good = word();
        let script = format!(
            "import os, socket
def crowd():
    held = [socket.create_connection(('127.0.0.1', {good})) for _ in range(40)]
    for s in held: assert s.recv(9) == b'served'; s.close()
pids = []
for _ in range(4):
    if not (pid := os.fork()): crowd(); os._exit(0)
    pids.append(pid)
print([os.waitpid(pid, 0)[1] for pid in pids])"
        );
        place.file("home/project/crowd.py", script);
        let run = format!("ulimit -n 192; $RF -n localhost:{good} -- python3 crowd.py");
        let ended = place.shell(&run);
        assert_eq!(ended.ends(0).text(), "[0, 0, 0, 0]", "{}", ended.err);
    });
}
