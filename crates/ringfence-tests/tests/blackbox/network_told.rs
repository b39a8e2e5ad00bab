//! What is told of the network, in lines and in rows: what happened, by the names that were asked for, and once.

use crate::clients::server;
use crate::inspection::server::Server;
use ringfence_tests::{Place, Running, Tier, everybody, everywhere};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

/// A proxy, as companies have them, behind which every name is the server.
pub fn proxy(to: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let Ok(mut client) = client else { return };
            std::thread::spawn(move || {
                let mut lines = BufReader::new(client.try_clone().unwrap());
                let mut line = String::new();
                while lines.read_line(&mut line).unwrap_or(0) > 2 {
                    line.clear();
                }
                let mut server = TcpStream::connect(("127.0.0.1", to)).unwrap();
                client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
                let (mut from, mut into) =
                    (server.try_clone().unwrap(), client.try_clone().unwrap());
                let back = std::thread::spawn(move || std::io::copy(&mut from, &mut into));
                let _ = std::io::copy(&mut lines, &mut server);
                let _ = server.shutdown(std::net::Shutdown::Write);
                let _ = back.join();
            });
        }
    });
    port
}

/// The rows of a kind that the latest session has.
pub fn rows(place: &Place, kind: &str) -> Vec<Value> {
    let told = place.ringfence(["logs", "latest", "--json", "--kind", kind]).quiet();
    let told: Value = serde_json::from_str(&told).unwrap();
    told["events"].as_array().unwrap().clone()
}

/// What they say, without when, who and how long.
fn told(place: &Place, kind: &str, fields: &[&str]) -> Vec<String> {
    let field = |row: &Value, name: &&str| match &row[*name] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let row =
        |row: Value| fields.iter().map(|name| field(&row, name)).collect::<Vec<_>>().join(" ");
    rows(place, kind).into_iter().map(row).collect()
}

#[test]
fn a_name_is_told_with_the_records_that_were_asked_for() {
    everywhere(|place| {
        let ended =
            place.run(&["-m", "-n", "example.org"], &["getent", "ahosts", "no.example.net"]);
        for record in ["(A)", "(AAAA)"] {
            let line = format!("denied name no.example.net {record} by getent[");
            assert_eq!(ended.ends(2).err.matches(&line).count(), 1, "{}", ended.err);
        }
        ended.says(
            "--allow-host no.example.net (ports 80 and 443; another one: no.example.net:PORT)",
        );
        let mut all = told(place, "dns", &["verdict", "record", "name", "code"]);
        all.sort();
        assert_eq!(all, ["deny A no.example.net 3", "deny AAAA no.example.net 3"]);
    });
}

/// What no rule can name, not even `*`, does not exist, and that is told in letters that mean nothing to a terminal.
#[test]
fn what_is_no_name_of_a_host_is_told_as_it_was_asked_for() {
    const ASK: &str = r"
import socket, struct
def ask(*labels):
    name = b''.join(bytes([len(label)]) + label for label in labels) + bytes(1)
    query = struct.pack('>6H', 1, 256, 1, 0, 0, 0) + name + struct.pack('>2H', 1, 1)
    s.sendall(struct.pack('>H', len(query)) + query)
    length, = struct.unpack('>H', s.recv(2, socket.MSG_WAITALL))
    return s.recv(length, socket.MSG_WAITALL)[3] & 15
s = socket.create_connection(('192.0.2.53', 53), 20)
for labels in ((b'exa\x00mple', b'org'), (b'\x1b[31m', b'org'), (b'192', b'0', b'2', b'1'), (), (b'example', b'org')):
    print(ask(*labels), end=' ')";
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        let ended = place.run(&["-m", "-n", "*"], &["python3", "-c", ASK]);
        ended.ends(0).prints("3 3 3 3 0");
        let names = [r"exa\000mple.org", r"\027\09131m.org", "192.0.2.1", "."];
        for name in names {
            let line = format!("denied name {name} (A)");
            let why = format!("{name} is no name of a host, so its name is not resolved\n");
            ended.says(&line).says(&why);
        }
        let all = told(place, "dns", &["verdict", "name", "code"]);
        assert_eq!(all, names.map(|name| format!("deny {name} 3")));
    });
}

#[test]
fn the_hosts_loopback_is_told_by_its_name() {
    everywhere(|place| {
        if !place.has("curl", "--version") {
            return;
        }
        let server = Server::plain();
        let host = format!("localhost:{}", server.port);
        let ask = |name: &str| format!("curl -sS -o /dev/null http://{name}:{}/echo/", server.port);
        let ended = place.sh(&["-m", "-n", &host], &ask("localhost"));
        ended.ends(0).says(&format!("allowed {host}")).says(&format!("closed {host}"));
        assert_eq!(told(place, "network", &["host", "address"]), ["localhost 127.0.0.1"]);
        // What a request says is known.
        let rule = format!("GET {host}/*");
        let both = format!("{}; {}", ask("localhost"), ask("127.0.0.1"));
        place.sh(&["--http", &rule], &both).ends(0);
        for kind in ["network", "http"] {
            assert_eq!(told(place, kind, &["host"]), ["localhost", "127.0.0.1"], "{kind}");
        }
    });
}

#[test]
fn what_a_program_asks_for_is_nothing_that_a_terminal_obeys() {
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        let server = Server::plain();
        let script = format!(
            "import socket
s = socket.create_connection(('localhost', {0}))
s.sendall('GET /\\u009b31m\\u202e HTTP/1.1\\r\\nHost: localhost:{0}\\r\\n\\r\\n'.encode())
assert b' 403 ' in s.recv(99)",
            server.port
        );
        let rule = format!("GET localhost:{}/echo/*", server.port);
        let ended = place.run(&["-m", "--http", &rule], &["python3", "-c", &script]);
        let shown = format!("denied GET localhost:{}/%C2%9B31m%E2%80%AE: ", server.port);
        ended.ends(0).says(&shown);
        assert!(!ended.err.contains(['\u{9b}', '\u{202e}']), "{}", ended.err);
    });
}

#[test]
fn a_server_without_tls_is_told_once_and_gets_no_credential() {
    everybody(Tier::Namespace, |place| {
        if !place.has("curl", "--version") {
            return;
        }
        let run = |port: u16, authority: Option<&str>| {
            let mut command = place.ringfence_run();
            if let Some(authority) = authority {
                command.env("SSL_CERT_FILE", place.file("authority.pem", authority));
            }
            let rule = format!("GET localhost:{port}/*");
            let inject = format!("localhost:{port} X-Key={{env:TOKEN}}");
            command.env("TOKEN", "a-secret-of-these-tests");
            command.args(["-m", "--http", &rule, "--inject", &inject, "--", "curl", "-sS", "-w"]);
            command.args([
                "%{http_code}",
                "-o",
                "answer",
                &format!("https://localhost:{port}/echo/"),
            ]);
            Running::start(command).finish()
        };
        let deaf = server(|client| {
            client.read_exact(&mut [0; 5])?;
            client.write_all(b"HTTP/1.0 400 No\r\n\r\n")
        });
        let ended = run(deaf, None);
        ended
            .ends(0)
            .prints("502")
            .says(&format!("failed GET localhost:{deaf}/echo/: no TLS with"));
        assert!(!ended.err.contains("denied") && !ended.err.contains("closed"), "{}", ended.err);
        let all = told(place, "network", &["verdict", "host", "sent", "received", "why"]);
        assert_eq!(all.len(), 1, "{all:?}");
        let why = format!("allow localhost 0 0 no TLS with localhost:{deaf}: ");
        assert!(all[0].starts_with(&why), "{all:?}");
        let all = told(place, "http", &["verdict", "host", "status", "why"]);
        assert_eq!(all.len(), 1, "{all:?}");
        assert!(all[0].starts_with("allow localhost 502 no TLS with"), "{all:?}");
        assert_eq!(told(place, "substitution", &["source"]), [] as [&str; 0]);
        let text = place.ringfence(["logs", "latest"]).quiet();
        let line = format!("tcp localhost:{deaf}, failed: no TLS with localhost:{deaf}: ");
        assert!(text.contains(&line) && !text.contains("DENIED"), "{text}");
        // The control: a server with TLS gets it, and that is told with where it came from.
        let good = Server::secure();
        run(good.port, Some(&good.authority)).ends(0).prints("200").says("with x-key");
        let all = told(place, "substitution", &["host", "header", "source"]);
        assert_eq!(all, ["localhost x-key env:TOKEN"]);
        assert_eq!(told(place, "http", &["verdict", "status", "why"]), ["allow 200 null"]);
        assert_eq!(told(place, "network", &["verdict", "why"]), ["allow null"]);
    });
}

#[test]
fn of_a_connection_that_is_cut_off_it_is_told_what_went_before() {
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        let server = Server::plain();
        let through = format!("http://127.0.0.1:{}", proxy(server.port));
        let run = |options: &[&str], second: &str| {
            let script = format!(
                "import socket
s = socket.create_connection(('site.test', 80), 20); f = s.makefile('rb')
first = b'POST /echo/ HTTP/1.1\\r\\nHost: site.test\\r\\nContent-Length: 5\\r\\n\\r\\nwords'
print(len(first), flush=True); s.sendall(first)
assert b'200' in f.readline()
try: s.sendall(b'{second}'); all = f.read(); print('400' if b'400 Bad' in all else 'closed')
except ConnectionError: print('reset')"
            );
            let mut command = place.ringfence_run();
            command.env("HTTP_PROXY", &through).arg("-m").args(options);
            command.args(["--", "python3", "-c", &script]);
            Running::start(command).finish()
        };
        let other = "GET / HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n";
        let ended = run(&["-n", "site.test"], other);
        let (sent, how) = ended
            .ends(0)
            .text()
            .split_once('\n')
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .unwrap();
        assert_eq!(how, "reset");
        let why = "the client connected to site.test and then asked for evil.test";
        ended.says(&format!("{why}; until then {sent} bytes sent, "));
        let all = told(place, "network", &["verdict", "host", "sent", "why"]);
        assert_eq!(all, [format!("deny site.test {sent} {why}")]);
        assert!(rows(place, "network")[0]["received"].as_i64() > Some(0));
        // Where requests are looked at, what is none of them ends the connection too.
        let two = "GET / HTTP/1.1\\r\\nHost: site.test\\r\\nContent-Length: 1\\r\\nContent-Length: 2\\r\\n\\r\\n";
        let ended = run(&["--http", "* site.test/*"], two);
        ended.ends(0).prints("400").says("; until then 5 bytes sent, ");
        let all = told(place, "network", &["verdict", "host", "sent"]);
        assert_eq!(all, ["deny site.test 5"]);
        assert_eq!(told(place, "http", &["verdict", "status"]), ["allow 200"]);
    });
}

#[test]
fn a_socket_that_a_tier_has_not_is_named_as_it_was_given() {
    everybody(Tier::Process, |place| {
        let path = place.at("home/agent");
        let _ = std::fs::remove_file(&path);
        let _agent = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let run = |options: &[&str]| {
            let mut command = place.command(ringfence_tests::binary());
            command.env("SSH_AUTH_SOCK", &path).args(["run", "--tier", "process"]).args(options);
            command.args(["--", "true"]);
            Running::start(command).finish()
        };
        let why =
            "needs the namespace tier: the process tier refuses all local sockets of the host";
        run(&["--feature", "ssh-agent"]).ends(125).says(&format!("feature ssh-agent {why}"));
        run(&["--allow-socket", "~/agent"]).ends(125).says(&format!("--allow-socket {why}"));
    });
}

/// What git's `http.proxy` and its like do: a grant of the proxy leads nowhere, and the sentence says where to.
#[test]
fn a_proxy_in_a_programs_own_settings_is_told_with_what_to_do() {
    everywhere(|place| {
        if !place.has("curl", "--version") {
            return;
        }
        let server = Server::plain();
        let through = format!("http://127.0.0.1:{}", proxy(server.port));
        for (rules, asked) in [
            (["-n", "site.test"], "http://evil.test/"),
            (["-n", "site.test"], "https://evil.test/"),
            (["--http", "* site.test/*"], "http://evil.test/"),
        ] {
            let mut command = place.ringfence_run();
            command.env("HTTP_PROXY", &through).arg("-m").args(rules);
            command.args([
                "--",
                "curl",
                "-s",
                "-o",
                "/dev/null",
                "-x",
                "http://site.test:80",
                asked,
            ]);
            Running::start(command).finish().says(
                "the client connected to site.test and then asked for evil.test, as of a proxy: set HTTPS_PROXY \
                 (HTTP_PROXY for port 80) outside, for ringfence,",
            );
        }
    });
}

/// A name that the host's own file leads to its loopback is refused with what grants it, and `why` says the same without a
/// run.
#[test]
fn names_of_the_hosts_own_file_are_told_with_what_grants_them() {
    let text = std::fs::read_to_string("/etc/hosts").unwrap();
    let mut lines = text.lines().map(|line| line.split_whitespace());
    let name = lines.find_map(|mut words| {
        let here = words.next() == Some("127.0.0.1");
        words.find(|name| here && !name.ends_with("localhost") && !name.contains("localhost."))
    });
    let Some(name) = name else { return };
    everywhere(|place| {
        let port = server(|client| {
            let _ = client.read(&mut [0; 4096])?;
            client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nserved")
        });
        let (to, grant) = (format!("{name}:{port}"), format!("localhost:{port}"));
        let why = format!(
            "{name} leads to 127.0.0.1 by this host's /etc/hosts, which is no public address"
        );
        let fetch = ["curl", "-sS", "-m", "60", &format!("http://{to}/")];
        // Programs read the file themselves, and mean their own loopback then.
        assert_ne!(place.run(&["-n", &to], &fetch).code, 0);
        let through = ["curl", "-sS", "-m", "60", "-x", "http://127.0.0.1:1022", fetch[4]];
        let refused = place.run(&["-n", &to], &through);
        let told =
            format!("ringfence: {why}; if that is right, grant it too: --allow-host {grant}");
        assert_eq!(refused.ends(0).text(), told);
        let asked = place.ringfence(["why", "-n", &to, "--", "connect", &to]);
        asked.ends(1).prints(&why).prints(&format!("to change it: --allow-host {grant}"));
        let allowed = place.run(&["-n", &to, "-n", &grant], &fetch);
        assert_eq!(allowed.ends(0).text(), "served");
        place.ringfence(["why", "-n", &to, "-n", &grant, "--", "connect", &to]).ends(0);
        // The address alone, to which programs connect; not where a rule denies the name.
        assert_eq!(place.run(&["-n", &grant], &fetch).ends(0).text(), "served");
        let by = format!("{name} is allowed by its address 127.0.0.1");
        let asked = place.ringfence(["why", "-n", &grant, "--", "connect", &to]);
        asked.ends(0).prints(&by).prints(&format!("rule:    option --allow-host {grant}"));
        let denied = ["-n", grant.as_str(), "--deny-host", to.as_str()];
        assert_ne!(place.run(&denied, &fetch).code, 0);
        place
            .ringfence(["why", denied[0], denied[1], denied[2], denied[3], "--", "connect", &to])
            .ends(1);
    });
}

/// Answers `ok` to whatever it reads, and hands on what that was when nothing more comes.
fn answering() -> (u16, std::sync::mpsc::Receiver<Vec<u8>>) {
    let (send, heard) = std::sync::mpsc::channel();
    let send = std::sync::Mutex::new(send);
    let port = server(move |client| {
        let (mut all, mut piece) = (Vec::new(), [0; 999]);
        while let Ok(count @ 1..) = client.read(&mut piece) {
            all.extend_from_slice(&piece[..count]);
            client.write_all(b"ok")?;
        }
        send.lock().unwrap().send(all).map_err(std::io::Error::other)
    });
    (port, heard)
}

/// Lengths that protocols begin with can be blanks, or digits before one: a word of MySQL's, MongoDB's, LDAP's, HL7's and
/// syslog's of some lengths was held for ever. What follows on the same connection is watched all the same.
#[test]
fn a_length_that_is_a_blank_does_not_hold_a_protocol_up() {
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        let (port, heard) = answering();
        let through = format!("http://127.0.0.1:{}", proxy(port));
        let request = r"GET / HTTP/1.1\r\nHost: other.test\r\n\r\n";
        for (first, then, seen) in [
            (r"\x05\x01\x00\x01\x85\xa6\xff\x19", "", "b'ok'"),
            (r"\x09\x01\x00\x01\x85\xa6\xff\x19", "", "b'ok'"),
            (r"\x0b\x01\x00\x00\x02\x00\x00\x00", "", "b'ok'"),
            (r"\x20\x00\x00\x01\x85\xae\xff\x19", "", "b'ok'"),
            (r"0\x20\x02\x01\x01\x60\x1b\x02\x01\x03", "", "b'ok'"),
            (r"\x0bMSH|^~\\&|A|B\rPID|1\x1c\r", "", "b'ok'"),
            (r"18 <34>1 - a b - - -", "", "b'ok'"),
            (r"\x09\x01\x00\x01", r"\x85\xa6\r\n", "b'ok' b'ok'"),
            (r"\x09\x01\x00\x01", request, "b'ok' reset"),
            (r"0\x20\x02\x01", request, "b'ok' reset"),
            (r"18 <34>1 ", request, "b'ok' reset"),
        ] {
            let script = format!(
                "import socket
s = socket.create_connection(('site.test', 80), 20)
for said in (b'{first}', b'{then}'):
    if not said: continue
    s.sendall(said)
    try: print(s.recv(2), end=' ')
    except TimeoutError: print('held', end=' ')
    except ConnectionResetError: print('reset', end=' ')"
            );
            let mut command = place.ringfence_run();
            command.env("HTTP_PROXY", &through);
            command.args(["-n", "site.test", "--", "python3", "-c", &script]);
            let ended = Running::start(command).finish();
            assert_eq!(ended.ends(0).text().trim_end(), seen, "{first} {then}");
            let arrived = heard.recv().unwrap();
            assert!(!arrived.ends_with(b"\r\n\r\n"), "{}", arrived.escape_ascii());
        }
    });
}

/// What may become a request's, and does not.
#[test]
fn what_is_held_for_long_is_told() {
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        let (port, _heard) = answering();
        let script = r"import socket
s = socket.create_connection(('site.test', 80), 60); s.sendall(b'HELLO x\r'); s.recv(1)";
        let mut command = place.ringfence_run();
        command.env("HTTP_PROXY", format!("http://127.0.0.1:{}", proxy(port)));
        command.args(["-m", "-n", "site.test", "--", "python3", "-c", script]);
        let mut running = Running::start(command);
        running.said("held site.test:80 by python3").said(
            "8 bytes are held, since they may be the beginning of a request or of TLS, and nothing follows them",
        );
        running.signal(rustix::process::Signal::TERM);
        drop(running.finish());
        let held = told(place, "network", &["verdict", "host", "why"]);
        assert!(
            held.iter().any(|row| row.starts_with("allow site.test 8 bytes are held, ")),
            "{held:?}"
        );
    });
}
