//! Where a request ends, and where TLS begins: what a server counts differently, and a hello that comes later.

use crate::clients::server;
use crate::network_told::proxy;
use crate::network_tricks::head;
use ringfence_tests::{Place, Running, everywhere};
use std::io::{Read, Write};
use std::sync::Mutex;
use std::sync::mpsc::channel;

/// Runs a script in Python where `site.test` is allowed, and is the server.
fn python(place: &Place, (to, port): (u16, u16), script: &str, words: &[&str]) -> String {
    let through = format!("http://127.0.0.1:{}", proxy(to));
    let mut command = place.ringfence_run();
    command.env("HTTP_PROXY", &through).env("HTTPS_PROXY", &through);
    command.args(["-n", &format!("site.test:{port}"), "--", "python3", "-c", script]).args(words);
    Running::start(command).finish().ends(0).text()
}

/// A server of 32 bits takes the fifth byte for the first of the next request; one that knows no trailers takes these for it.
#[test]
fn what_servers_count_differently_hides_no_request() {
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        let (send, heard) = channel();
        let send = Mutex::new(send);
        let port = server(move |client| {
            let mut all = Vec::new();
            let read = client.read_to_end(&mut all);
            let _ = send.lock().unwrap().send(String::from_utf8_lossy(&all).into_owned());
            read?;
            client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nserved")
        });
        let script = "import socket, sys
s = socket.create_connection(('site.test', 80), 60)
try:
    s.sendall(sys.argv[1].encode()); s.shutdown(socket.SHUT_WR)
    print(s.makefile('rb').read()[-6:])
except OSError: print('reset')";
        let chunked = "Transfer-Encoding: chunked\r\n\r\n";
        let evil = "GET /evil HTTP/1.1\r\nHost: evil.test\r\n\r\n";
        for (rest, passes) in [
            (format!("{chunked}00000005;a=b\r\nhello\r\n0\r\nDigest: x/y=\r\n\r\n"), true),
            (format!("{chunked}100000005\r\nhello\r\n0\r\n\r\n{evil}"), false),
            (format!("{chunked}80000000\r\n\r\n{evil}"), false),
            (format!("{chunked}5 5\r\nhello\r\n0\r\n\r\n{evil}"), false),
            (format!("{chunked}0\r\nXGET http://evil.test/ HTTP/1.1\r\n\r\n"), false),
            (format!("{chunked}0\r\nXA: http://evil.test/ x\r\n\r\n"), false),
            (format!("{chunked}0\r\n {evil}"), false),
            ("Content-Length: 5\r\n\r\nhello".to_owned(), true),
            (format!("Content-Length: 9223372036854775808\r\n\r\n{evil}"), false),
            (format!("Content-Length: \x0c0\r\n\r\n{evil}"), false),
        ] {
            let said = format!("POST /x HTTP/1.1\r\nHost: site.test\r\n{rest}");
            let seen = python(place, (port, 80), script, &[&said]);
            assert_eq!(seen, if passes { "b'served'" } else { "reset" }, "{rest:?}");
            let arrived = heard.recv().unwrap();
            match passes {
                true => assert_eq!(arrived, said),
                false => assert!(!arrived.contains("evil"), "{rest:?}: {arrived:?}"),
            }
        }
    });
}

/// A record of TLS, whole.
fn record(from: &mut impl Read) -> std::io::Result<Vec<u8>> {
    let mut all = vec![0; 5];
    from.read_exact(&mut all)?;
    all.resize(5 + (usize::from(all[3]) << 8 | usize::from(all[4])), 0);
    from.read_exact(&mut all[5..])?;
    Ok(all)
}

/// PostgreSQL's clients ask for TLS before they say hello. Servers of many tenants look for theirs in that.
#[test]
fn a_hello_after_a_wish_for_tls_names_no_other_host() {
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        // It takes no GSSAPI, and no TLS of who asked for that before; wants another hello of whose random number is all 0xaa.
        let (send, heard) = channel();
        let send = Mutex::new(send);
        let port = server(move |client| {
            let (mut wish, mut hellos) = ([0; 8], 0);
            let mut tls = || {
                loop {
                    client.read_exact(&mut wish)?;
                    let answer = if wish[7] == 47 { b"S" } else { b"N" };
                    client.write_all(answer)?;
                    if wish[7] == 3 {
                        return client.write_all(b"served");
                    }
                    if wish[7] == 47 {
                        break;
                    }
                }
                let hello = record(client)?;
                hellos += 1;
                if hello[11..43] == [0xaa; 32] {
                    let random = "cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c";
                    let byte = |at: usize| u8::from_str_radix(&random[2 * at..][..2], 16).unwrap();
                    let random: Vec<u8> = (0..32).map(byte).collect();
                    let head = [22, 3, 3, 0, 40, 2, 0, 0, 36, 3, 3];
                    client.write_all(&[&head[..], &random, &[0; 2]].concat())?;
                    record(client)?;
                    hellos += 1;
                }
                client.write_all(b"served")
            };
            let ended = tls();
            let _ = send.lock().unwrap().send(hellos);
            ended
        });
        let script = "import socket, ssl, sys
def hello(name, random=b''):
    out = ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), out, server_hostname=name)
    try: tls.do_handshake()
    except ssl.SSLWantReadError: hello = bytearray(out.read())
    if random: hello[11:43] = random
    return hello
gss, tls = bytes.fromhex('0000000804d21630'), bytes.fromhex('0000000804d2162f')
s = socket.create_connection(('site.test', 5432), 60)
def say(bytes, count):
    s.sendall(bytes)
    answer = b''
    while len(answer) < count:
        more = s.recv(count - len(answer))
        if not more: raise OSError()
        answer += more
    return answer
try:
    how, name = sys.argv[1:]
    if how == 'wish': say(tls, 1); print(say(hello(name), 6))
    if how == 'pieces': say(tls[:3], 0); say(tls[3:], 1); print(say(hello(name), 6))
    if how == 'gss': assert say(gss, 1) == b'N'; say(tls, 1); print(say(hello(name), 6))
    if how == 'at once': print(say(tls + hello(name), 7)[1:])
    if how == 'again':
        say(tls, 1); assert len(say(hello('site.test', b'\\xaa' * 32), 45)) == 45; print(say(hello(name), 6))
    if how == 'plain': print(say(bytes.fromhex('0000000800030003'), 7)[1:])
except OSError: print('reset')";
        for how in ["wish", "pieces", "gss", "at once", "again"] {
            for (name, passes) in [("site.test", true), ("other.test", false)] {
                let seen = python(place, (port, 5432), script, &[how, name]);
                assert_eq!(seen, if passes { "b'served'" } else { "reset" }, "{how} {name}");
                let hellos = usize::from(passes) + usize::from(how == "again");
                assert_eq!(heard.recv().unwrap(), hellos, "{how} {name}");
            }
        }
        assert_eq!(python(place, (port, 5432), script, &["plain", ""]), "b'served'");
        assert_eq!(heard.recv().unwrap(), 0);
    });
}

/// A server that refuses an upload says so and reads no more of it: its answer is what the client is to see, and not the
/// reset that follows.
#[test]
fn what_a_server_says_of_an_upload_that_it_does_not_take_is_heard() {
    const ANSWER: &str =
        "HTTP/1.1 401 Unauthorized\r\nContent-Length: 6\r\nConnection: close\r\n\r\nno";
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        let port = server(|client| {
            head(client);
            client.write_all(ANSWER.as_bytes())?;
            client.write_all(b"such")
        });
        let script = format!(
            "import socket
s = socket.create_connection(('127.0.0.1', {port}), 60)
s.sendall(b'PUT /x HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\nContent-Length: 67108864\\r\\n\\r\\n')
try:
    for _ in range(1024): s.sendall(bytes(65536))
    print('all was taken')
except OSError: pass
said = b''
try:
    while not said.endswith(b'such'): said += s.recv(4096) or b' end such'
    print(said.split(b'\\r')[0].decode())
except OSError: print('reset')"
        );
        let (granted, inspected) = (format!("localhost:{port}"), format!("* localhost:{port}/*"));
        assert_eq!(
            place.shell(&format!("python3 - <<'E'\n{script}\nE")).text(),
            "HTTP/1.1 401 Unauthorized"
        );
        for options in [["-n", &granted], ["--http", &inspected]] {
            for _ in 0..3 {
                let said = place.run(&options, &["python3", "-c", &script]);
                assert_eq!(said.text(), "HTTP/1.1 401 Unauthorized", "{options:?} {}", said.err);
            }
        }
    });
}
