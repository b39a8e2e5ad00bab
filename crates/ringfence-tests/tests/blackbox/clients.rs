//! Real clients of many protocols, through the filter and not inspected: who speaks first, and in what,
//! makes no difference. What this machine does not have is left out.

use ringfence_tests::{Place, everywhere};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// A server on the host's loopback; `talk` serves one connection.
pub fn server(talk: impl Fn(&mut TcpStream) -> std::io::Result<()> + Send + Sync + 'static) -> u16 {
    let talk = std::sync::Arc::new(talk);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let talk = talk.clone();
            std::thread::spawn(move || {
                let mut client = client;
                let _ = talk(&mut client);
            });
        }
    });
    port
}

/// Runs a script where the server may be reached, and then where another port may be: `served` is printed
/// in the first place alone.
#[track_caller]
pub fn reaches(place: &Place, program: &str, script: &str, port: u16) {
    if !place.has(program, "--version") {
        return;
    }
    let script = format!("{{ {}; }} 2>&1", script.replace("PORT", &port.to_string()));
    let run = |rule: String| place.run(&["-n", &rule], &["bash", "-c", &script]).text();
    let (allowed, refused) = (run(format!("localhost:{port}")), run("localhost:1".to_owned()));
    assert!(allowed.contains("served"), "{program}: {allowed}");
    assert!(!refused.contains("served"), "{program}: {refused}");
}

/// Reads the head of a request, and answers its path with what `page` has for it.
pub fn http(client: &mut TcpStream, page: impl Fn(&str) -> String) -> std::io::Result<()> {
    http_of(client, |path| ("application/json", page(path)))
}

/// The same with a type for each; a page without a text is none.
pub fn http_of(
    client: &mut TcpStream,
    page: impl Fn(&str) -> (&'static str, String),
) -> std::io::Result<()> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        if client.read(&mut byte)? == 0 {
            return Ok(());
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head);
    let (kind, body) = page(head.split(' ').nth(1).unwrap_or_default());
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    client.write_all(answer.as_bytes())
}

#[test]
fn redis_cli() {
    everywhere(|place| {
        let port = server(|client| {
            let mut buffer = [0; 512];
            while client.read(&mut buffer)? > 0 {
                client.write_all(b"+served\r\n")?;
            }
            Ok(())
        });
        reaches(place, "redis-cli", "redis-cli -h localhost -p PORT ping", port);
    });
}

#[test]
fn psql_asks_for_tls_in_a_way_of_its_own() {
    everywhere(|place| {
        let port = server(|client| {
            let mut buffer = [0; 512];
            // SSLRequest, to which the answer is no; then the startup message.
            client.read_exact(&mut buffer[..8])?;
            assert_eq!(buffer[4..8], [4, 210, 22, 47]);
            client.write_all(b"N")?;
            let _ = client.read(&mut buffer)?;
            let fields = b"SFATAL\0VFATAL\0C28000\0Mserved\0\0";
            client.write_all(b"E")?;
            client.write_all(&(fields.len() as u32 + 4).to_be_bytes())?;
            client.write_all(fields)
        });
        let script = "psql 'host=localhost port=PORT user=x dbname=x gssencmode=disable sslmode=prefer' -c 'select 1'";
        reaches(place, "psql", script, port);
    });
}

#[test]
fn ssh_to_a_server_that_speaks_first() {
    everywhere(|place| {
        if place.shell("command -v ssh").code != 0 {
            return;
        }
        let port = server(|client| {
            client.write_all(b"served\r\nSSH-2.0-test\r\n")?;
            let mut buffer = [0; 512];
            let _ = client.read(&mut buffer)?;
            assert!(buffer.starts_with(b"SSH-2.0-"));
            Ok(())
        });
        let line = "ssh -v -F /dev/null -o BatchMode=yes -o StrictHostKeyChecking=no \
                    -o UserKnownHostsFile=/dev/null -p PORT localhost true";
        let script = format!("{{ {}; }} 2>&1", line.replace("PORT", &port.to_string()));
        let run = |rule: String| place.run(&["-n", &rule], &["bash", "-c", &script]).text();
        let allowed = run(format!("localhost:{port}"));
        assert!(allowed.contains("served"), "{allowed}");
        assert!(!run("localhost:1".to_owned()).contains("served"));
    });
}

#[test]
fn npm_asks_a_registry() {
    everywhere(|place| {
        let port = server(|client| {
            http(client, |_| {
                r#"{"name":"probe","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"probe","version":"1.0.0","description":"served"}}}"#.to_owned()
            })
        });
        let script = "npm view probe description --registry http://localhost:PORT/ \
                      --no-update-notifier --fetch-retries 0";
        reaches(place, "npm", script, port);
    });
}

#[test]
fn pip_asks_an_index() {
    everywhere(|place| {
        if place.shell("/usr/bin/python3 -m pip --version").code != 0 {
            return;
        }
        let port = server(|client| http(client, |_| "{}".to_owned()));
        // No index answers like that; that it was asked shows in what pip says of it.
        let script = "/usr/bin/python3 -m pip download --no-cache-dir --retries 0 --no-deps \
                      --disable-pip-version-check --index-url http://localhost:PORT/simple probe \
                      2>&1 | sed 's/.*got Content-Type.*/served/'";
        reaches(place, "python3", script, port);
    });
}
