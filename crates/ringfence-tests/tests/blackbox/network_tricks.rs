//! What a program says so that a server takes it for a word to another one, and what a server says that a program is not
//! to hear.

use crate::clients::server;
use crate::network_told::proxy;
use ringfence_tests::{Place, Running, Tier, everybody, everywhere};
use std::io::{Read, Write};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};

fn python(place: &Place) -> bool {
    place.has("python3", "--version")
}

/// Reads until there is an empty line, or the end.
pub fn head(from: &mut impl Read) -> String {
    let (mut all, mut byte) = (Vec::new(), [0]);
    while !all.ends_with(b"\r\n\r\n") && from.read(&mut byte).is_ok_and(|count| count > 0) {
        all.push(byte[0]);
    }
    String::from_utf8_lossy(&all).into_owned()
}

/// Answers one request, and says what it was.
fn hearing() -> (u16, Receiver<String>) {
    let (send, heard) = channel();
    let send = Mutex::new(send);
    let port = server(move |client| {
        let said = head(client);
        let _ = send.lock().unwrap().send(said);
        client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nserved")
    });
    (port, heard)
}

/// Several servers take the host of a URL of any scheme for the one that is meant, whatever `Host` says (RFC 9112 §3.2.2).
#[test]
fn a_target_of_another_scheme_names_no_other_host() {
    everywhere(|place| {
        if !python(place) {
            return;
        }
        let (port, heard) = hearing();
        let through = format!("http://127.0.0.1:{}", proxy(port));
        for (first, passes) in [
            ("GET /x HTTP/1.1", true),
            ("GET ws://site.test/x HTTP/1.1", true),
            ("GET ws://other.test/x HTTP/1.1", false),
            ("GET ftp://other.test HTTP/1.1", false),
            ("GET other.test/x HTTP/1.1", false),
            ("GET ws://other.test/x", false),
            ("PROXY TCP4 192.0.2.1 192.0.2.2 1 80\r\nGET /x HTTP/1.1", false),
        ] {
            let said = format!("{first}\r\nHost: site.test\r\n\r\n");
            let script = format!(
                "import socket
s = socket.create_connection(('site.test', 80), 20); s.sendall({said:?}.encode())
try: print(s.makefile('rb').read(44)[-6:])
except ConnectionResetError: print('reset')"
            );
            let mut command = place.ringfence_run();
            command.env("HTTP_PROXY", &through);
            command.args(["-n", "site.test", "--", "python3", "-c", &script]);
            let ended = Running::start(command).finish();
            let (seen, arrived) =
                if passes { ("b'served'", said) } else { ("reset", String::new()) };
            assert_eq!(ended.ends(0).text(), seen, "{first}");
            assert_eq!(heard.recv().unwrap(), arrived, "{first}");
        }
    });
}

/// A server that is granted by its address is also reached for a name that is denied: by a later request, or by one that
/// it reads in its own way.
#[test]
fn a_granted_address_is_asked_for_no_denied_name() {
    everywhere(|place| {
        if !python(place) {
            return;
        }
        let (send, heard) = channel();
        let send = Mutex::new(send);
        let port = server(move |client| {
            loop {
                let said = head(client);
                let _ = send.lock().unwrap().send(said.clone());
                if said.is_empty() {
                    return Ok(());
                }
                client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nserved")?;
            }
        });
        let (granted, denied) = (format!("localhost:{port}"), format!("denied.test:{port}"));
        let elsewhere = "denied.test:1";
        let good = "GET /1 HTTP/1.1\r\nHost: good.test\r\n\r\n";
        let evil = "GET /2 HTTP/1.1\r\nHost: denied.test\r\n\r\n";
        for (said, rest) in [
            (good, evil),
            ("GET /2 HTTP/1.1\r\nHost: good.test\r\nHost: denied.test\r\n\r\n", ""),
            ("GET http://denied.test/2 HTTP/1.1\r\nHost: good.test\r\n\r\n", ""),
            ("GET /2 HTTP/1.1\r\nX: y\r\n Host: z\r\nHost: denied.test\r\n\r\n", ""),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ""),
            ("SETUP / RTSP/1.0\r\nHost: denied.test\r\n\r\n", ""),
        ] {
            let script = format!(
                "import socket
s = socket.create_connection(('127.0.0.1', {port}), 20)
for said in {said:?}, {rest:?}:
    try:
        if said: s.sendall(said.encode()); print(s.recv(44)[-6:], end=' ')
    except OSError: print('reset', end=' '); break"
            );
            for (deny, passes) in [(denied.as_str(), false), (elsewhere, true)] {
                // One control for those that are refused at once.
                if passes && said.contains("\r\n Host") {
                    continue;
                }
                let options = ["-n", granted.as_str(), "--deny-host", deny];
                let ended = place.run(&options, &["python3", "-c", &script]);
                let seen = ended.ends(0).text();
                let arrived: Vec<String> =
                    heard.iter().take_while(|head| !head.is_empty()).collect();
                let first = if rest.is_empty() { vec![] } else { vec![good.to_owned()] };
                let refused = if rest.is_empty() { "reset" } else { "b'served' reset" };
                if passes {
                    assert!(seen.starts_with("b'served'") && !seen.contains("reset"), "{said}");
                    assert_eq!(arrived.concat(), format!("{said}{rest}"));
                } else {
                    assert_eq!((seen.trim(), arrived), (refused, first), "{said}");
                }
            }
        }
    });
}

/// Several servers of HTTP take requests of protocols with its form for their own, with whatever host they name.
#[test]
fn a_protocol_with_the_form_of_http_is_spoken_with_servers_of_it_alone() {
    everywhere(|place| {
        if !python(place) {
            return;
        }
        let (send, heard) = channel();
        let send = Mutex::new(send);
        let port = server(move |client| {
            let mut all = head(client);
            let own = if all.contains("good") { "RTSP/1.0" } else { "HTTP/1.1" };
            let _ = client.write_all(format!("{own} 200 OK\r\n\r\n").as_bytes());
            let _ = client.read_to_string(&mut all);
            let _ = send.lock().unwrap().send(all);
            Ok(())
        });
        let (granted, denied) = (format!("localhost:{port}"), format!("denied.test:{port}"));
        let options = ["-n", &granted, "--deny-host", &denied];
        let why = place.ringfence([
            "why",
            "-n",
            &granted,
            "--deny-host",
            &denied,
            "--",
            "connect",
            &granted,
        ]);
        why.ends(0).prints(&format!("`{denied}` speaks of names at this port"));
        let evil = "GET /2 HTTP/1.1\r\nHost: denied.test\r\n\r\n";
        for (url, arrives, whole) in [
            ("rtsp://good.test/1", true, true),
            ("rtsp://other.test/1", true, false),
            ("rtsp://denied.test/1", false, false),
        ] {
            let said = format!("DESCRIBE {url} RTSP/1.0\r\nCSeq: 1\r\n\r\n");
            let script = format!(
                "import errno, socket
s = socket.create_connection(('127.0.0.1', {port}), 60)
try:
    s.sendall({said:?}.encode() + {evil:?}.encode())
    while not s.recv(99).endswith(b'\\r\\n\\r\\n'): pass
    s.shutdown(socket.SHUT_WR)
    while s.recv(99): pass
    print('passed')
except OSError as error:
    assert error.errno in (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN), error
    print('reset')"
            );
            let ended = place.run(&options, &["python3", "-c", &script]);
            let seen = if whole { "passed" } else { "reset" };
            assert_eq!(ended.ends(0).text(), seen, "{url}: {}", ended.err);
            let arrived = match (arrives, whole) {
                (true, true) => format!("{said}{evil}"),
                (true, false) => said,
                _ => String::new(),
            };
            assert_eq!(heard.recv().unwrap(), arrived, "{url}");
        }
    });
}

/// Some clients offer to change to HTTP/2 in their first request, and go on without where that is not taken.
#[test]
fn an_offer_of_http_2_is_no_reason_to_refuse_a_request() {
    everywhere(|place| {
        let (port, heard) = hearing();
        let (granted, denied) = (format!("localhost:{port}"), format!("denied.test:{port}"));
        let url = format!("http://{granted}/x");
        for (how, arrives) in [("--http2", true), ("--http2-prior-knowledge", false)] {
            let argv = ["curl", "-sS", "-A", "test", "-m", "60", how, &url];
            let ended = place.run(&["-m", "-n", &granted, "--deny-host", &denied], &argv);
            if arrives {
                assert_eq!(ended.ends(0).text(), "served");
                let head = format!(
                    "GET /x HTTP/1.1\r\nHost: {granted}\r\nUser-Agent: test\r\nAccept: */*\r\n\r\n"
                );
                assert_eq!(heard.recv().unwrap(), head);
            } else {
                assert_ne!(ended.code, 0);
                ended.says(&format!("HTTP/2 without TLS, in which the host cannot be checked; `{denied}` has it looked at"));
                assert_eq!(heard.recv().unwrap(), "");
            }
        }
    });
}

/// Servers write what they were sent as a URL, in one case, or as a name.
#[test]
fn an_answer_gives_no_credential_back_in_any_spelling() {
    const SECRET: &str = "Tok/en+of=these tests";
    let spellings = [
        SECRET.to_uppercase(),
        "tok/en%2Bof%3Dthese%20tests".to_owned(),
        "Tok%2fen%2Bof=these+tests".to_owned(),
    ];
    everywhere(|place| {
        if !python(place) {
            return;
        }
        let answers = spellings.clone();
        let port = server(move |client| {
            assert!(head(client).contains(&format!("x-key: {SECRET}\r\n")));
            let fields = answers.iter().map(|one| format!("X-Echo: 1 {one} 2\r\n"));
            let fields = fields.collect::<String>();
            let answer = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 6\r\n\r\nserved");
            client.write_all(answer.as_bytes())
        });
        let script = format!(
            "import http.client
c = http.client.HTTPConnection('localhost', {port}, 20); c.request('GET', '/')
a = c.getresponse(); print(*a.headers.get_all('X-Echo'), a.read())"
        );
        let mut command = place.ringfence_run();
        let host = format!("localhost:{port}");
        let rule = format!("{host} X-Key={{env:TOKEN}}");
        command.env("TOKEN", SECRET).args(["-n", &host, "--inject", &rule]);
        command.args(["--", "python3", "-c", &script]);
        let ended = Running::start(command).finish();
        let mark = "1 [redacted by ringfence] 2";
        assert_eq!(ended.ends(0).text(), format!("{mark} {mark} {mark} b'served'"));
    });
}

/// A record of TLS.
fn record(from: &mut impl Read) -> std::io::Result<Vec<u8>> {
    let mut head = [0; 5];
    from.read_exact(&mut head)?;
    let mut body = vec![0; usize::from(head[3]) << 8 | usize::from(head[4])];
    from.read_exact(&mut body)?;
    Ok([&head[..], &body].concat())
}

/// A server may want another hello, and takes the name in that one for the one that is meant.
#[test]
fn a_second_hello_names_no_other_host() {
    /// The random number by which a server says so.
    const AGAIN: &str = "cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c";
    everywhere(|place| {
        if !python(place) {
            return;
        }
        let (send, heard) = channel();
        let send = Mutex::new(send);
        let port = server(move |client| {
            let mut all = record(client)?;
            let random: String = all[11..43].iter().map(|byte| format!("{byte:02x}")).collect();
            // What the test's client puts there says what it is to be answered.
            let random = if random.starts_with("aa") { AGAIN.to_owned() } else { "07".repeat(32) };
            let random = (0..32).map(|at| u8::from_str_radix(&random[2 * at..][..2], 16).unwrap());
            let random: Vec<u8> = random.collect();
            client.write_all(
                &[&[22, 3, 3, 0, 40, 2, 0, 0, 36, 3, 3][..], &random, &[0; 2]].concat(),
            )?;
            let _ = client.read_to_end(&mut all);
            let _ = send.lock().unwrap().send(all);
            Ok(())
        });
        let through = format!("http://127.0.0.1:{}", proxy(port));
        // A hello's first record, and its random number; then what follows.
        let script = "
import errno, socket, ssl, sys
def hello(name):
    out = ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), out, server_hostname=name)
    try: tls.do_handshake()
    except ssl.SSLWantReadError: return out.read()
first = bytearray(hello('site.test')); first[11:43] = bytes.fromhex(sys.argv[1]) * 32
change, early = bytes.fromhex('140303000101'), bytes.fromhex('170303000161')
other = {'same': hello('site.test'), 'other': hello('other.test'), 'none': b''}[sys.argv[2]]
before = sys.argv[3] == 'before'
follows = (early if before else b'') + change + other
with socket.create_connection(('site.test', 443), 60) as s:
    s.sendall(first)
    if not before: assert len(s.recv(45, socket.MSG_WAITALL)) == 45
    try:
        s.sendall(follows); s.shutdown(socket.SHUT_WR)
        # A reset may come behind the answer.
        while s.recv(99): pass
        print('passed', len(first + follows))
    except OSError as error:
        assert error.errno in (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN), error
        print('reset', len(first))";
        for (answer, second, when, passes) in [
            ("aa", "same", "after", true),
            ("aa", "other", "after", false),
            ("aa", "same", "before", true),
            ("aa", "other", "before", false),
            ("aa", "none", "before", true),
            // Who wants no other hello takes none.
            ("bb", "other", "after", true),
        ] {
            let mut command = place.ringfence_run();
            command.env("HTTPS_PROXY", &through).args(["-n", "site.test", "--"]);
            command.args(["python3", "-c", script, answer, second, when]);
            let ended = Running::start(command).finish();
            let text = ended.ends(0).text();
            let (seen, count) = text.split_once(' ').unwrap();
            let case = format!("{answer} {second} {when}: {}", ended.err);
            assert_eq!(seen, if passes { "passed" } else { "reset" }, "{case}");
            assert_eq!(heard.recv().unwrap().len().to_string(), count, "{case}");
        }
    });
}

/// What is sent before a server has answered a hello has no measure but the server's own.
#[test]
fn much_may_be_said_before_a_hello_is_answered() {
    const EARLY: usize = 5 * (16_000 + 5);
    everywhere(|place| {
        if !python(place) {
            return;
        }
        // The second connection says that all of the first one's has been sent.
        let (send, heard) = channel();
        let (go, sent) = channel();
        let (send, go, sent) = (Mutex::new(send), Mutex::new(go), Mutex::new(sent));
        let port = server(move |client| {
            let mut all = record(client)?;
            if all[0] == 23 {
                let _ = go.lock().unwrap().send(());
                return client.write_all(b"sent");
            }
            let _ = sent.lock().unwrap().recv();
            client.write_all(&[&[22, 3, 3, 0, 40, 2, 0, 0, 36, 3, 3][..], &[7; 34]].concat())?;
            let _ = client.read_to_end(&mut all);
            let _ = send.lock().unwrap().send(all.len());
            Ok(())
        });
        let through = format!("http://127.0.0.1:{}", proxy(port));
        let script = format!(
            "import socket, ssl
out = ssl.MemoryBIO()
tls = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), out, server_hostname='site.test')
try: tls.do_handshake()
except ssl.SSLWantReadError: hello = out.read()
early = 5 * (bytes.fromhex('1703033e80') + bytes(16000)); assert len(early) == {EARLY}
with socket.socket() as s:
    s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    s.settimeout(60); s.connect(('site.test', 443)); s.sendall(hello + early)
    with socket.create_connection(('localhost', {port}), 60) as other:
        other.sendall(bytes.fromhex('170303000161')); assert other.recv(4) == b'sent'
    try: answer = s.recv(45, socket.MSG_WAITALL); s.shutdown(socket.SHUT_WR)
    except ConnectionResetError: answer = b''
    print(len(answer), len(hello + early))"
        );
        let mut command = place.ringfence_run();
        let granted = format!("localhost:{port}");
        command.env("HTTPS_PROXY", &through).args(["-n", "site.test", "-n", &granted, "--"]);
        command.args(["python3", "-c", &script]);
        let ended = Running::start(command).finish();
        let text = ended.ends(0).text();
        let arrived = heard.recv().unwrap();
        assert_eq!(text, format!("45 {arrived}"));
        assert!(arrived > EARLY);
    });
}

/// A program that speaks something else to the proxy than the proxy does is told at once: it would wait for an answer.
#[test]
fn what_the_proxy_does_not_speak_is_answered() {
    everywhere(|place| {
        if !python(place) {
            return;
        }
        let script = "import socket
for said in bytes.fromhex('0401005001020304') + b'x' + bytes(1), bytes.fromhex('16030100050100000100'), b'GET /\\n\\n':
    s = socket.create_connection(('127.0.0.1', 1022), 60); s.sendall(said)
    print(s.makefile('rb').read().decode().splitlines()[-1])";
        let ended = place.run(&["-n", "site.test"], &["python3", "-c", script]);
        let told = "ringfence: this proxy speaks HTTP and SOCKS5, both without TLS";
        let none = "ringfence: this is no request";
        assert_eq!(ended.ends(0).text(), format!("{told}\n{told}\n{none}"));
    });
}

/// What is held until it is clear what a connection is has a measure for all of them: it is the launcher's memory.
#[test]
fn beginnings_without_an_end_are_held_to_a_measure() {
    everybody(Tier::Namespace, |place| {
        if !python(place) {
            return;
        }
        let port = server(move |client| {
            let said = head(client);
            if said.is_empty() {
                return Ok(());
            }
            client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nserved")
        });
        let script = format!(
            "import select, socket
def connect(): return socket.create_connection(('127.0.0.1', {port}), 60)
def reset(s, said):
    try: s.sendall(said); return False
    except OSError: return True
hello = bytes.fromhex('1603013e80') + bytes.fromhex('01ffffff') + bytes(15996)
hello += 2 * (bytes.fromhex('1603013e80') + bytes(16000)) + bytes.fromhex('1603013e80') + bytes(12000)
many = [connect() for _ in range(300)]
for s in many: reset(s, hello)
# The filter reads beside us: until it has met its measure.
poll = select.poll()
for s in many: poll.register(s, select.POLLIN)
poll.poll(60000)
def served():
    try: s = connect(); s.sendall(b'GET / HTTP/1.1\\r\\nHost: site.test\\r\\n\\r\\n'); return s.recv(99)[-6:]
    except OSError: return b''
# While it is full none begins; those that are over make room.
print(next(filter(None, (served() for _ in range(100)))), end=' ')
for s in many: s.setblocking(False)
def over(s):
    try: s.recv(1); return True
    except BlockingIOError: return False
    except OSError: return True
count = sum(map(over, many)); print(0 < count < 200, count)"
        );
        let (granted, denied) = (format!("localhost:{port}"), format!("denied.test:{port}"));
        let options = ["-n", granted.as_str(), "--deny-host", denied.as_str()];
        let ended = place.run(&options, &["python3", "-c", &script]);
        assert!(ended.ends(0).text().starts_with("b'served' True "), "{}", ended.text());
    });
}
