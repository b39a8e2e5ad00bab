//! A client that asks before it sends a body (`Expect: 100-continue`): its server is asked.

use crate::clients::server;
use crate::network_tricks::head;
use ringfence_tests::everywhere;
use std::io::{Read, Write};
use std::sync::Mutex;
use std::sync::mpsc::channel;

/// Reads a head; whether it asks, and its path.
fn asked(client: &mut impl Read) -> (bool, String) {
    let said = head(client).to_lowercase();
    let path = said.split(' ').nth(1).unwrap_or_default().to_owned();
    (said.contains("\r\nexpect: 100-continue\r\n"), path)
}

#[test]
fn a_server_that_refuses_an_upload_is_asked_before_it_and_gets_nothing_of_it() {
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        let (send, heard) = channel();
        let send = Mutex::new(send);
        let port = server(move |client| {
            let (asks, path) = asked(client);
            if path == "/wanted" {
                client.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
            }
            let mut body = Vec::new();
            if path == "/login" {
                client
                    .write_all(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 6\r\n\r\ndenied")?;
                client.read_to_end(&mut body)?;
            } else {
                // One that knows nothing of it waits for the body.
                body.resize(5, 0);
                client.read_exact(&mut body)?;
                client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nserved")?;
            }
            let _ = send.lock().unwrap().send((
                asks,
                path,
                String::from_utf8_lossy(&body).into_owned(),
            ));
            Ok(())
        });
        let script = format!(
            "import socket, sys
s = socket.create_connection(('127.0.0.1', {port}), 60); f = s.makefile('rb')
s.sendall(('PUT /%s HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\nContent-Length: 5\\r\\n'
    'Expect: 100-continue\\r\\n\\r\\n' % sys.argv[1]).encode())
def answer():
    first, length = f.readline().decode().strip(), 0
    while (line := f.readline().strip().lower()):
        if line.startswith(b'content-length:'): length = int(line[15:])
    return first + ' ' + f.read(length).decode()
said = answer(); print(said)
if ' 100 ' in said: s.sendall(b'hello'); print(answer())"
        );
        let rule = format!("* localhost:{port}/*");
        let run = |path: &str| {
            place.run(&["--http", &rule], &["python3", "-c", &script, path]).ends(0).text()
        };
        for _ in 0..4 {
            assert_eq!(run("login"), "HTTP/1.1 401 Unauthorized denied");
            assert_eq!(heard.recv().unwrap(), (true, "/login".to_owned(), String::new()));
        }
        for path in ["wanted", "unknown"] {
            assert_eq!(run(path), "HTTP/1.1 100 Continue \nHTTP/1.1 200 OK served", "{path}");
            assert_eq!(heard.recv().unwrap(), (true, format!("/{path}"), "hello".to_owned()));
        }
    });
}
