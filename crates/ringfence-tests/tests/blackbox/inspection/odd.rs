//! Odd programs and odd servers, where requests are looked at.

use super::{Server, host, rule, run};
use crate::clients::server;
use crate::network_told::rows;
use ringfence_tests::{everywhere, until};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

/// What went wrong is the program's own doing, and it is told so: with 502 it would try again.
#[test]
fn a_body_that_breaks_off_in_its_chunks_is_a_bad_request() {
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        let server = Server::plain();
        let post = rule(&server, "POST", "/*");
        for (chunks, status, why) in [
            ("1;a=b\\r\\nx\\r\\n0\\r\\n\\r\\n", "200", "body 1 78"),
            ("1\\r\\nx\\r\\nzz\\r\\n", "400", "a chunk whose size is none, or beyond all measure"),
            ("2\\r\\nabcd\\r\\n", "400", "a chunk that is not as long as it says"),
        ] {
            let script = format!(
                "import socket
s = socket.create_connection(('localhost', {}), 60)
s.sendall(b'POST /x HTTP/1.1\\r\\nHost: localhost:{}\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n{chunks}')
a = b''
while b'\\n' not in a.partition(b'\\r\\n\\r\\n')[2][-1:]: a += s.recv(999) or exit(1)
print(a.decode())",
                server.port, server.port
            );
            let seen = run(place, &server, &["--http", &post], &["python3", "-c", &script]).well();
            assert!(seen.starts_with(&format!("HTTP/1.1 {status} ")), "{chunks}: {seen}");
            assert!(seen.trim_end().ends_with(why), "{chunks}: {seen}");
        }
    });
}

/// What several servers would read differently is refused with a sentence, and the requests before it are answered.
#[test]
fn a_request_that_is_none_is_told_why() {
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        let server = Server::plain();
        let get = rule(&server, "GET", "/*");
        for (head, why) in [
            ("GET /x HTTP/1.1\\r\\nHost: a\\r\\nHost: b\\r\\n\\r\\n", "a request with two Hosts"),
            ("GET /x HTTP/1.1\\r\\nHost: a\\r\\n folded\\r\\n\\r\\n", "a folded header field"),
            ("RINGFENCE-REFUSED /x HTTP/1.1\\r\\nHost: localhost:PORT\\r\\n\\r\\n", "to allow it"),
            ("GET /x HTTP/1.2\\r\\nHost: localhost:PORT\\r\\n\\r\\n", ""),
        ] {
            // Behind a request that is one.
            let head = head.replace("PORT", &server.port.to_string());
            let script = format!(
                "import socket
s = socket.create_connection(('localhost', {0}), 60)
s.sendall(b'GET /x HTTP/1.1\\r\\nHost: localhost:{0}\\r\\n\\r\\n{head}')
s.shutdown(socket.SHUT_WR)
a = b''
while (b := s.recv(9999)): a += b
print(a.decode())",
                server.port
            );
            let ended = run(place, &server, &["-m", "--http", &get], &["python3", "-c", &script]);
            let seen = ended.ends(0).text();
            assert!(seen.starts_with("HTTP/1.1 200 "), "{head}: {seen}");
            let status = if why == "to allow it" { " 403 " } else { " 400 " };
            assert_eq!(seen.matches("HTTP/1.1 ").count(), 2, "{head}: {seen}");
            assert!(seen.contains(&format!("HTTP/1.1{status}")), "{head}: {seen}");
            assert!(seen.contains(why), "{head}: {seen}");
            let told = if why.is_empty() { "a request that cannot be read" } else { why };
            ended.says(told);
        }
    });
}

/// Chunks beside a length: the length is none (RFC 9112 §6.3).
#[test]
fn an_answer_with_a_length_and_chunks_is_whole() {
    everywhere(|place| {
        let port = server(move |client| {
            let mut request = [0; 4096];
            let _ = client.read(&mut request)?;
            client.write_all(
                b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n\
                  6\r\nserved\r\n0\r\n\r\n",
            )
        });
        let get = format!("GET localhost:{port}/*");
        let ask = format!("curl -sS http://localhost:{port}/");
        for options in [["--http", get.as_str()], ["-n", &get[4..get.len() - 2]]] {
            assert_eq!(place.run(&options, &["bash", "-c", &ask]).well(), "served", "{options:?}");
        }
    });
}

/// A status alone would say that all is well; the program sees that it is not, and what there was of it.
#[test]
fn an_answer_that_breaks_off_is_told_as_such() {
    everywhere(|place| {
        let short = "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nshort";
        let cut = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n9\r\n";
        let wrong = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
        let whole = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwhole";
        let ended = "the server ended the connection too early";
        for (answer, shown, told) in [
            (
                short,
                "short 18",
                format!(
                    "failed GET {{}}: the answer broke off: {ended}; until then 200, 0 bytes sent, 5 received, "
                ),
            ),
            (
                cut,
                "short 18",
                format!(
                    "failed GET {{}}: the answer broke off: {ended}; until then 200, 0 bytes sent, 5 received, "
                ),
            ),
            (wrong, " 18", "failed GET {}: the answer broke off: ".to_owned()),
            (whole, "whole 0", "200 GET {}: 0 bytes sent, 5 received, ".to_owned()),
        ] {
            let port = server(move |client| {
                let _ = client.read(&mut [0; 4096])?;
                client.write_all(answer.as_bytes())
            });
            let get = format!("GET localhost:{port}/*");
            let ask =
                format!("curl -s -D head http://localhost:{port}/x; echo \" $?\"; head -c 12 head");
            let run = place.run(&["-m", "--http", &get], &["bash", "-c", &ask]);
            assert_eq!(run.ends(0).text(), format!("{shown}\nHTTP/1.1 200"), "{}", run.err);
            run.says(&told.replace("{}", &format!("localhost:{port}/x")));
            let row = &rows(place, "http")[0];
            assert_eq!(row["status"], 200);
            let why = row["why"].as_str().unwrap_or_default();
            assert_eq!(why.contains("the answer broke off"), answer != whole, "{row}");
        }
    });
}

/// An answer without an end, of which the program takes a part.
#[test]
fn an_answer_that_the_program_leaves_is_told_as_such() {
    everywhere(|place| {
        let port = server(move |client| {
            let _ = client.read(&mut [0; 4096])?;
            client.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
            loop {
                client.write_all(&[b'x'; 4096])?;
            }
        });
        let get = format!("GET localhost:{port}/*");
        let ask = format!("curl -s http://localhost:{port}/x | head -c 5");
        let run = place.run(&["-m", "--http", &get], &["bash", "-c", &ask]);
        assert_eq!(run.ends(0).text(), "xxxxx");
        let left = "the program left before the answer's end; until then 200, ";
        run.says(&format!("failed GET localhost:{port}/x: {left}"));
    });
}

/// A status that no standard knows has no sentence, and gets none from here.
#[test]
fn a_status_of_a_servers_own_is_passed_on_alone() {
    everywhere(|place| {
        let port = server(move |client| {
            let _ = client.read(&mut [0; 4096])?;
            client.write_all(b"HTTP/1.1 799 Of My Own\r\nContent-Length: 0\r\n\r\n")
        });
        let get = format!("GET localhost:{port}/*");
        let url = format!("http://localhost:{port}/");
        let run = place.run(&["--http", &get], &["curl", "-sSi", &url]);
        assert_eq!(run.well().lines().next().map(str::trim_end), Some("HTTP/1.1 799"));
    });
}

/// Browsers send what looks like a hidden name (ECH) to every host; TLS ends at ringfence, for the name that shows.
#[test]
fn a_hidden_name_is_no_matter_where_tls_ends_here() {
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        let server = Server::secure();
        let (get, granted) = (rule(&server, "GET", "/*"), host(&server));
        let script = format!(
            "import socket, ssl
def hello(name):
    out = ssl.MemoryBIO()
    context = ssl.create_default_context(); context.set_alpn_protocols(['http/1.1'])
    tls = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name)
    try: tls.do_handshake()
    except ssl.SSLWantReadError: hello = bytearray(out.read())
    ech = bytes([0xfe, 0x0d, 0, 186, 0, 0, 1, 0, 1, 7, 0, 32]) + bytes(32) + bytes([0, 144]) + bytes(144)
    # After the random number: the session, the suites, the methods; then the extensions.
    at = 5 + 4 + 34; at += 1 + hello[at]; at += 2 + int.from_bytes(hello[at:at + 2], 'big'); at += 1 + hello[at]
    for length, place in ((2, 3), (3, 6), (2, at)):
        more = int.from_bytes(hello[place:place + length], 'big') + len(ech)
        hello[place:place + length] = more.to_bytes(length, 'big')
    return hello + ech
for name in 'localhost', 'other.test':
    s = socket.create_connection(('localhost', {}), 60); s.sendall(hello(name))
    try: print(s.recv(6)[::5], end=' ')
    except ConnectionResetError: print('reset', end=' ')",
            server.port
        );
        // A handshake's record, with the server's hello in it.
        for (options, seen) in [
            (["--http", get.as_str()], "b'\\x16\\x02' reset"),
            (["-n", granted.as_str()], "b'\\x16\\x02' b'\\x16\\x02'"),
        ] {
            let ended = run(place, &server, &options, &["python3", "-c", &script]);
            assert_eq!(ended.well().trim(), seen, "{options:?}: {}", ended.err);
        }
    });
}

/// Every server ends a connection that was idle for long enough, perhaps in the moment in which the next request is on its way.
#[test]
fn a_connection_that_the_server_ends_meanwhile_is_made_anew() {
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        // The server and the test meet before the first connection is ended, and after that.
        let (met, first) = (Arc::new(Barrier::new(2)), AtomicBool::new(true));
        let theirs = Arc::clone(&met);
        let port = server(move |client| {
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && client.read(&mut byte)? > 0 {
                head.push(byte[0]);
            }
            client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
            if first.swap(false, Ordering::Relaxed) {
                theirs.wait();
                client.shutdown(std::net::Shutdown::Both)?;
                theirs.wait();
            }
            Ok(())
        });
        let script = format!(
            "import http.client, os, time
c = http.client.HTTPConnection('localhost', {port}, timeout=60)
c.request('GET', '/'); print(c.getresponse().read().decode(), flush=True)
while not os.path.exists('go'): time.sleep(.001)
c.request('GET', '/'); print('asked', flush=True)
a = c.getresponse(); print(a.status, a.read().decode())"
        );
        let rule = format!("GET localhost:{port}/*");
        let mut running = place.start(&["--http", &rule], &["python3", "-c", &script]);
        running.printed("ok\n");
        // The launcher finds both when it goes on: the request, and the end of the connection that it is for.
        running.signal(Signal::STOP);
        let status = format!("/proc/{}/status", running.pid());
        let stopped = || std::fs::read_to_string(&status).unwrap().contains("State:\tT");
        until("the launcher is stopped", stopped);
        place.file("home/project/go", "");
        running.printed("asked\n");
        met.wait();
        met.wait();
        running.signal(Signal::CONT);
        let text = running.finish().well();
        assert!(text.ends_with("200 ok"), "{text}");
    });
}
