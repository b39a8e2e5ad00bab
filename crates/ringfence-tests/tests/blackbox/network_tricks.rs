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
