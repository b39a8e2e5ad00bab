//! Bodies that servers leave unread, targets that no URL has, and first requests that are none.

use super::{Server, rule, run};
use crate::clients::server;
use ringfence_tests::everywhere;
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::channel;

/// A server that reads the bodies of POST alone, as Python's does, and takes what is left for the next request. It says of
/// each the number of its connection, and its first line.
fn leaving() -> (u16, std::sync::mpsc::Receiver<String>) {
    let (send, heard) = channel();
    let (send, connections) = (Mutex::new(send), AtomicUsize::new(0));
    let port = server(move |client| {
        let number = connections.fetch_add(1, Relaxed) + 1;
        let mut from = BufReader::new(client.try_clone()?);
        loop {
            let (mut head, mut line) = (Vec::new(), String::new());
            while from.read_line(&mut line)? > 2 {
                head.push(std::mem::take(&mut line).trim_end().to_ascii_lowercase());
            }
            let Some(first) = head.first() else { return Ok(()) };
            let _ = send.lock().unwrap().send(format!("{number} {first}"));
            let length = head.iter().find_map(|line| line.strip_prefix("content-length: "));
            if first.starts_with("post ") {
                from.read_exact(&mut vec![0; length.map_or(0, |length| length.parse().unwrap())])?;
            }
            let close = head.iter().any(|line| line == "connection: close");
            let said = if close { "Connection: close\r\n" } else { "" };
            let answer = format!("HTTP/1.1 200 OK\r\n{said}Content-Length: 6\r\n\r\nserved");
            client.write_all(answer.as_bytes())?;
            if close {
                return Ok(());
            }
        }
    });
    (port, heard)
}

/// The bodies are requests.
#[test]
fn a_body_that_a_server_leaves_unread_is_no_request() {
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        for (method, seen) in [
            ("GET", ["1 get /ok/1 http/1.1", "2 get /ok/2 http/1.1"]),
            ("DELETE", ["1 delete /ok/1 http/1.1", "2 delete /ok/2 http/1.1"]),
            // These are read, and their connections kept.
            ("POST", ["1 post /ok/1 http/1.1", "1 post /ok/2 http/1.1"]),
        ] {
            let (port, heard) = leaving();
            let script = format!(
                "import http.client
c = http.client.HTTPConnection('localhost', {port}, timeout=60)
body = 'PURGE /no HTTP/1.1\\r\\nHost: localhost:{port}\\r\\n\\r\\n'
for path in '/ok/1', '/ok/2':
    c.request('{method}', path, body); print(c.getresponse().read(), end=' ')"
            );
            let http = format!("{method} localhost:{port}/ok/*");
            let ended = place.run(&["--http", &http], &["python3", "-c", &script]);
            assert_eq!(ended.ends(0).text().trim(), "b'served' b'served'", "{method}");
            let all: Vec<String> = heard.try_iter().collect();
            assert_eq!(all, seen, "{method}");
        }
        // Without bodies one connection is enough.
        let (port, heard) = leaving();
        let http = format!("GET localhost:{port}/ok/*");
        let url = format!("http://localhost:{port}/ok/");
        let ask = format!("curl -sS {url}1 {url}2");
        assert_eq!(place.run(&["--http", &http], &["bash", "-c", &ask]).well(), "servedserved");
        let all: Vec<String> = heard.try_iter().collect();
        assert_eq!(all, ["1 get /ok/1 http/1.1", "1 get /ok/2 http/1.1"]);
    });
}

/// Programs write quotes and letters of any script as they are; they are sent as URLs have them.
#[test]
fn a_target_that_no_url_has_is_sent_as_one() {
    everywhere(|place| {
        let server = Server::secure();
        let get = rule(&server, "GET", "/echo/*");
        for (written, sent) in [
            ("/echo/a?x={\"a\":1}<>`", "/echo/a?x={%22a%22:1}%3C%3E%60"),
            ("/echo/<\">`{a}|", "/echo/%3C%22%3E%60{a}|"),
            ("/echo/\u{e9}?\u{e9}", "/echo/%C3%A9?%C3%A9"),
        ] {
            let url = format!("https://localhost:{}{written}", server.port);
            let curl = ["curl", "-sSg", "--http1.1", &url];
            let echo = run(place, &server, &["--http", &get], &curl).well();
            assert_eq!(echo.lines().next(), Some(&*format!("GET {sent} HTTP/1.1")), "{written}");
            let why = ["why", "--http", &get, "--", "http", "GET", &url];
            assert!(place.ringfence(why).ends(0).text().starts_with("allowed: "), "{written}");
            // Another path is not allowed by it.
            let other = url.replace("/echo/", "/other/");
            let refused =
                run(place, &server, &["--http", &get], &["curl", "-sSg", "--http1.1", &other]);
            assert!(refused.well().starts_with("ringfence: rules for this host"), "{written}");
        }
    });
}

/// In HTTP/2 such a request does not get so far; it is told.
#[test]
fn a_request_of_http_2_that_cannot_be_read_is_told() {
    everywhere(|place| {
        if !place.shell("curl --version").ends(0).text().contains("HTTP2") {
            return;
        }
        let server = Server::secure();
        let get = rule(&server, "GET", "/echo/*");
        let url = format!("https://localhost:{}/echo/a", server.port);
        for (query, told) in [("?x=<>", true), ("?x=y", false)] {
            let curl = ["curl", "-sSg", "--http2", "-o", "/dev/null", &format!("{url}{query}")];
            let ended = run(place, &server, &["-m", "--http", &get], &curl);
            ended.ends(if told { 92 } else { 0 });
            let denied =
                format!("denied ? localhost:{}: a request that cannot be read", server.port);
            assert_eq!(ended.err.matches(&denied).count(), usize::from(told), "{}", ended.err);
        }
    });
}

/// As a later one of its connection is.
#[test]
fn a_first_request_that_is_none_is_answered() {
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        let server = Server::plain();
        let (get, port) = (rule(&server, "GET", "/*"), server.port);
        let at = format!("Host: localhost:{port}");
        for (head, status, why) in [
            (format!("GET /x HTTP/1.1\r\n{at}\r\nConnection: close"), "200", "body 0 0"),
            (
                format!("GET http://evil.test:{port}/x HTTP/1.1\r\nHost: evil.test:{port}"),
                "403",
                "then asked for evil.test, as of a proxy: set HTTPS_PROXY (HTTP_PROXY for port 80) outside, for \
                 ringfence, which goes through it, and take it out of the program's own settings",
            ),
            (format!("GET /x HTTP/1.1\r\n{at}\r\nX: y\r\n z"), "400", "a folded header field"),
            (
                format!("GET /x y HTTP/1.1\r\n{at}"),
                "400",
                "a request line that servers read differently",
            ),
            ("GET /x HTTP/1.1\r\nHost: localhost:+1".to_owned(), "400", "whose Host is none"),
        ] {
            let script = format!(
                "import socket
s = socket.create_connection(('localhost', {port}), 60); s.sendall({head:?}.encode() + b'\\r\\n\\r\\n')
print(s.makefile('rb').read().decode())"
            );
            let ended = run(place, &server, &["-m", "--http", &get], &["python3", "-c", &script]);
            let seen = ended.ends(0).text();
            assert!(seen.starts_with(&format!("HTTP/1.1 {status} ")), "{head}: {seen}");
            assert!(seen.trim_end().ends_with(why), "{head}: {seen}");
            if status != "200" {
                assert_eq!(ended.err.matches(why).count(), 1, "{}", ended.err);
            }
        }
    });
}
