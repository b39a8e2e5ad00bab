//! What a program says so that a server takes it for a word to another one, and what a server says that a program is not
//! to hear.

use crate::clients::server;
use crate::network_told::proxy;
use ringfence_tests::{Place, Running, everywhere};
use std::io::{Read, Write};
use std::sync::mpsc::{Receiver, channel};

fn python(place: &Place) -> bool {
    place.has("python3", "--version")
}

/// Reads until there is an empty line, or the end.
fn head(from: &mut impl Read) -> String {
    let (mut all, mut byte) = (Vec::new(), [0]);
    while !all.ends_with(b"\r\n\r\n") && from.read(&mut byte).is_ok_and(|count| count > 0) {
        all.push(byte[0]);
    }
    String::from_utf8_lossy(&all).into_owned()
}

/// Answers one request, and says what it was.
fn hearing() -> (u16, Receiver<String>) {
    let (send, heard) = channel();
    let send = std::sync::Mutex::new(send);
    let port = server(move |client| {
        let said = head(client);
        client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nserved")?;
        let _ = send.lock().unwrap().send(said);
        Ok(())
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
        let send = std::sync::Mutex::new(send);
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
        s.sendall(follows); s.shutdown(socket.SHUT_WR); s.recv(99, socket.MSG_WAITALL)
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
