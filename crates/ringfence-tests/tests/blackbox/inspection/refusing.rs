//! Servers that do not take a request, or say more than an engine expects.

use super::{Server, rule, script};
use crate::clients::server;
use ringfence_tests::{Finished, Place, Running, everywhere};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned, version};

/// A frame of HTTP/2: its kind and its stream.
fn frame(from: &mut impl Read) -> io::Result<(u8, [u8; 4])> {
    let mut head = [0; 9];
    from.read_exact(&mut head)?;
    let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
    from.read_exact(&mut vec![0; length])?;
    Ok((head[3], head[5..].try_into().unwrap()))
}

/// Serves a connection; how many requests came by it.
fn refuse(
    stream: TcpStream,
    config: &Arc<ServerConfig>,
    how: u8,
    first: bool,
) -> io::Result<usize> {
    let tls = ServerConnection::new(config.clone()).map_err(io::Error::other)?;
    let mut tls = StreamOwned::new(tls, stream);
    let mut begun = vec![0; 24];
    tls.read_exact(&mut begun)?;
    if tls.conn.alpn_protocol() == Some(b"http/1.1") {
        while !begun.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            tls.read_exact(&mut byte)?;
            begun.push(byte[0]);
        }
        tls.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?;
        return Ok(1);
    }
    tls.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0])?;
    let mut heads = 0;
    loop {
        let Ok((kind, stream)) = frame(&mut tls) else { return Ok(heads) };
        if kind != 1 {
            continue;
        }
        heads += 1;
        match how {
            // GOAWAY: the last stream that was taken is none.
            7 if first => {
                tls.write_all(&[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])?;
                tls.conn.send_close_notify();
                tls.flush()?;
                return Ok(heads);
            }
            // RST_STREAM: REFUSED_STREAM.
            3 if heads == 1 => {
                tls.write_all(&[&[0, 0, 4, 3, 0][..], &stream, &[0, 0, 0, 7]].concat())?;
            }
            // HTTP_1_1_REQUIRED, of the stream.
            13 => tls.write_all(&[&[0, 0, 4, 3, 0][..], &stream, &[0, 0, 0, 13]].concat())?,
            // A head, a part of a body, and INTERNAL_ERROR.
            2 => {
                tls.write_all(&[&[0, 0, 1, 1, 4][..], &stream, &[0x88]].concat())?;
                tls.write_all(&[&[0, 0, 5, 0, 0][..], &stream, b"short"].concat())?;
                tls.write_all(&[&[0, 0, 4, 3, 0][..], &stream, &[0, 0, 0, 2]].concat())?;
            }
            // Always.
            9 => tls.write_all(&[&[0, 0, 4, 3, 0][..], &stream, &[0, 0, 0, 7]].concat())?,
            // HEADERS, the last of the stream: 200.
            _ => tls.write_all(&[&[0, 0, 1, 1, 5][..], &stream, &[0x88]].concat())?,
        }
    }
}

/// A server of HTTP/2 that takes no request but, mostly, a second one; how many requests each of its connections brought.
fn refusing(how: u8) -> (u16, String, Receiver<usize>) {
    let protocols: &[&[u8]] = if how == 13 { &[b"h2", b"http/1.1"] } else { &[b"h2"] };
    let (config, authority) = Server::certified(protocols);
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (send, heads) = channel();
    thread::spawn(move || {
        for (at, stream) in listener.incoming().enumerate() {
            let (stream, config, send) = (stream.unwrap(), config.clone(), send.clone());
            thread::spawn(move || {
                if let Ok(seen) = refuse(stream, &config, how, at == 0) {
                    let _ = send.send(seen);
                }
            });
        }
    });
    (port, authority, heads)
}

fn curl(place: &Place, to: (u16, &str), more: &[&str]) -> String {
    asked(place, to, more).well()
}

fn asked(place: &Place, (port, authority): (u16, &str), more: &[&str]) -> Finished {
    let authority = place.file("authority.pem", authority);
    let rule = format!("GET,POST localhost:{port}/*");
    let mut command = place.ringfence_run();
    command.env("SSL_CERT_FILE", authority).args(["-m", "--http", &rule]);
    command.args(["--", "curl", "-sS", "--http2"]);
    command.args(["-m", "60", "-w", "%{http_code} %{http_version}"]).args(more);
    command.arg(format!("https://localhost:{port}/x"));
    Running::start(command).finish()
}

/// What a server of HTTP/2 says that it has not taken may be sent again (RFC 9113 §8.7); what had a body is the program's
/// to send again.
#[test]
fn what_a_server_has_not_taken_is_sent_again() {
    everywhere(|place| {
        if !place.shell("curl --version").ends(0).text().contains("HTTP2") {
            return;
        }
        for (how, connections) in [(3, &[2][..]), (7, &[1, 1])] {
            let (port, authority, heads) = refusing(how);
            assert_eq!(curl(place, (port, &authority), &[]), "200 2", "{how}");
            assert_eq!(heads.iter().take(connections.len()).collect::<Vec<_>>(), connections);
            let (port, authority, heads) = refusing(how);
            let refused = curl(place, (port, &authority), &["-d", "x"]);
            assert!(refused.contains("the server has not taken it: "), "{refused}");
            assert!(refused.ends_with("502 2"), "{refused}");
            assert_eq!(heads.recv().unwrap(), 1);
        }
        let (port, authority, heads) = refusing(9);
        let refused = curl(place, (port, &authority), &[]);
        assert!(refused.contains("the server has not taken it: ") && refused.ends_with("502 2"));
        assert_eq!(heads.recv().unwrap(), 3, "not without an end");
    });
}

/// The program is told in the server's way, asks again by HTTP/1.1, and has its answer.
#[test]
fn a_server_that_wants_http_1_1_is_asked_so() {
    everywhere(|place| {
        if !place.shell("curl --version").ends(0).text().contains("HTTP2") {
            return;
        }
        for more in [&[][..], &["-d", "x"]] {
            let (port, authority, heads) = refusing(13);
            let run = asked(place, (port, &authority), more);
            assert_eq!(run.ends(0).text(), "200 1.1", "{}", run.err);
            let method = if more.is_empty() { "GET" } else { "POST" };
            let why = "the server takes it by HTTP/1.1 alone (HTTP_1_1_REQUIRED)";
            run.says(&format!("failed {method} localhost:{port}/x: {why}"));
            let mut seen = [heads.recv().unwrap(), heads.recv().unwrap()];
            seen.sort_unstable();
            assert_eq!(seen, [1, 1]);
        }
    });
}

/// An answer of HTTP/2 that its server ends in the middle.
#[test]
fn a_stream_that_is_reset_in_the_middle_is_told() {
    everywhere(|place| {
        if !place.shell("curl --version").ends(0).text().contains("HTTP2") {
            return;
        }
        let (port, authority, _heads) = refusing(2);
        let run = asked(place, (port, &authority), &["-v"]);
        assert_eq!((run.code, run.text().starts_with("short200 2")), (92, true), "{}", run.text());
        run.says(&format!(
            "failed GET localhost:{port}/x: the answer broke off: the server reset the request's stream \
             (INTERNAL_ERROR); until then 200, 0 bytes sent, 5 received, "
        ));
    });
}

/// A certificate of the client's is the program's, which does not speak to the server here: what is missing is said.
#[test]
fn a_server_that_wants_a_certificate_of_the_client_is_told_apart() {
    everywhere(|place| {
        for version in [&version::TLS12, &version::TLS13] {
            let (config, authority) = Server::asking(&[b"http/1.1"], Some(version));
            let config = Arc::new(config);
            let port = server(move |client| {
                let tls = ServerConnection::new(config.clone()).map_err(io::Error::other)?;
                let _ = StreamOwned::new(tls, client.try_clone()?).read(&mut [0; 99]);
                Ok(())
            });
            let refused = curl(place, (port, &authority), &[]);
            let why = "the server asks for a certificate of the client's (mutual TLS)";
            assert!(refused.contains(why) && refused.contains("502 "), "{version:?}: {refused}");
        }
    });
}

/// As `openssl req -x509` makes it, and as devices do: an authority's certificate, and the server's.
#[test]
fn a_certificate_of_a_servers_own_is_taken_by_who_trusts_it() {
    everywhere(|place| {
        let (config, authority) = Server::own();
        let config = Arc::new(config);
        let port = server(move |client| {
            let tls = ServerConnection::new(config.clone()).map_err(io::Error::other)?;
            let mut tls = StreamOwned::new(tls, client.try_clone()?);
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                tls.read_exact(&mut byte)?;
                head.push(byte[0]);
            }
            tls.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        });
        assert_eq!(curl(place, (port, &authority), &[]), "ok200 1.1");
        // Another one that is like it is another one.
        let refused = curl(place, (port, &Server::own().1), &[]);
        let why =
            format!("no TLS with localhost:{port}: the server's certificate is an authority's");
        assert!(refused.contains(&why) && refused.contains("502 "), "{refused}");
    });
}

/// Sites set many cookies.
#[test]
fn heads_have_many_fields() {
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        for (asked, answered, status, why) in [
            (500, 500, "200", ""),
            (600, 1, "400", "a request with more than 512 header fields"),
            (3, 600, "502", "too large"),
        ] {
            let port = server(move |client| {
                let (mut head, mut byte) = (Vec::new(), [0]);
                while !head.ends_with(b"\r\n\r\n") && client.read(&mut byte)? > 0 {
                    head.push(byte[0]);
                }
                let cookies: String =
                    (0..answered).map(|n| format!("Set-Cookie: c{n}=v\r\n")).collect();
                let head = format!("HTTP/1.1 200 OK\r\n{cookies}Content-Length: 0\r\n\r\n");
                client.write_all(head.as_bytes())
            });
            let script = format!(
                "import http.client
http.client._MAXHEADERS = 9999
c = http.client.HTTPConnection('localhost', {port}, timeout=60)
c.request('GET', '/', headers={{'X-%d' % n: 'v' for n in range({asked} - 2)}})
a = c.getresponse(); print(a.status, len(a.headers.get_all('Set-Cookie') or []), a.read().decode())"
            );
            let rule = format!("GET localhost:{port}/*");
            let ended = place.run(&["-m", "--http", &rule], &["python3", "-c", &script]);
            let text = ended.ends(0).text();
            let cookies = if status == "200" { answered } else { 0 };
            assert!(text.starts_with(&format!("{status} {cookies}")), "{text}");
            ended.says(why);
            assert!(status != "502" || text.contains(why), "{text}");
        }
    });
}

/// In HTTP/2 a field may be one byte on the wire, and is as large in memory as any.
#[test]
fn heads_of_http2_have_no_more_fields() {
    everywhere(|place| {
        let server = Server::secure();
        let get = rule(&server, "GET", "/echo/*");
        for (fields, status, why) in
            [(300, "200 2", ""), (600, "400 2", "a request with more than 512 header fields")]
        {
            let asked = format!(
                "H=(); for i in $(seq {fields}); do H+=(-H \"X-$i: v\"); done
                 curl -sS -o /dev/null -w '%{{http_code}} %{{http_version}}' --http2 \"${{H[@]}}\" $U/echo/a"
            );
            let ended = script(place, &server, &["-m", "--http", &get], &asked);
            assert_eq!(ended.ends(0).text(), status);
            ended.says(why);
        }
    });
}

/// Trailers stand under no window, so that a side that takes nothing would have the other's held, however many they are.
#[test]
fn trailers_of_http2_take_no_more_than_their_part() {
    everywhere(|place| {
        let server = Server::secure();
        let rules = ["-m", "--http", &rule(&server, "GET,POST", "/*")];
        if place.shell("curl --version").ends(0).text().contains("HTTP2") {
            let get = |count: usize| {
                let asked = format!(
                    "curl -sSv --http2 $U/trailers/{count} 2>&1 | grep -c 'x-trailer: end'"
                );
                script(place, &server, &rules, &asked)
            };
            assert_eq!(get(99).ends(0).text(), "99");
            let refused = get(300);
            assert_eq!(refused.ends(1).text(), "0", "{}", refused.err);
            // Before or after its head has come.
            refused.says("trailers that take more than 40 KiB");
        }
        if !place.has("python3", "--version") {
            return;
        }
        for (count, answered, why) in [
            (99, "True", "200 POST localhost"),
            (300, "False", "denied ? localhost"),
            (1900, "False", "trailers that take more than 40 KiB"),
        ] {
            let asked = format!(
                "export U; python3 -c \"
import os, socket, ssl
def frame(kind, flags, held):
    return len(held).to_bytes(3, 'big') + bytes([kind, flags, 0, 0, 0, 0 if kind == 4 else 1]) + held
url = os.environ['U'].split('//')[1].encode()
tls = ssl.create_default_context(); tls.set_alpn_protocols(['h2'])
link = tls.wrap_socket(socket.create_connection(('localhost', int(url.split(b':')[1]))), server_hostname='localhost')
head = bytes([0x83, 0x87, 4, 7]) + b'/echo/a' + bytes([1, len(url)]) + url
field = bytes([0x40, 1, 0x78, 0])
link.sendall(b'PRI * HTTP/2.0' + bytes([13, 10, 13, 10]) + b'SM' + bytes([13, 10, 13, 10]) + frame(4, 0, b'')
    + frame(1, 4, head) + frame(0, 0, b'body') + frame(1, 5, field + bytes([0xbe]) * {count}))
seen = more = b'-'
while more and b'POST /echo/a' not in seen:
    try: more = link.recv(9999)
    except OSError: more = b''
    seen += more
print(b'POST /echo/a' in seen)\""
            );
            let ended = script(place, &server, &rules, &asked);
            assert_eq!(ended.ends(0).text(), answered, "{count}: {}", ended.err);
            ended.says(why);
        }
    });
}
