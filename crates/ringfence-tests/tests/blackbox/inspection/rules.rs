//! Which requests pass, and what becomes of credentials.

use super::{SECRET, Server, host, inject, rule, run, script};
use ringfence_tests::{Place, Running, Tier, everybody, everywhere};
use rustix::process::Signal;

/// The status that curl got for each of its arguments' requests.
const STATUS: &str = "curl -sS -o /dev/null -w '%{http_code} %{http_version}\\n'";

#[test]
fn only_the_requests_that_rules_name_pass() {
    everywhere(|place| {
        let server = Server::secure();
        let (get, post) = (rule(&server, "GET,HEAD", "/echo/*"), rule(&server, "POST", "/echo/in"));
        let options = ["--http", get.as_str(), "--http", post.as_str()];
        let asked = format!(
            "set -e; for v in --http1.1 --http2; do
             {STATUS} $v $U/echo/a; {STATUS} $v -I $U/echo/a; {STATUS} $v -d x $U/echo/in
             {STATUS} $v $U/other; {STATUS} $v -d x $U/echo/a; {STATUS} $v -X DELETE $U/echo/a
             {STATUS} $v --path-as-is $U/echo/../other; {STATUS} $v $U/echo/%2e%2e/other
             {STATUS} $v $U/echo%2fa; {STATUS} $v -H 'X-HTTP-Method-Override: DELETE' -d x $U/echo/in
             {STATUS} $v -H 'X-Original-URL: /other' $U/echo/a
             {STATUS} $v -H 'X_HTTP_Method_Override: DELETE' -d x $U/echo/in
             {STATUS} $v -H 'Host: example.org' $U/echo/a; {STATUS} $v -X TRACE $U/echo/a; done"
        );
        let seen = script(place, &server, &options, &asked).well();
        let versions = |version| {
            let good = format!("200 {version}\n").repeat(3);
            let bad = format!("403 {version}\n").repeat(11);
            good + &bad
        };
        assert_eq!(seen + "\n", versions("1.1") + &versions("2"));
    });
}

#[test]
fn every_request_of_a_connection_is_looked_at() {
    everywhere(|place| {
        let server = Server::secure();
        let get = rule(&server, "GET", "/echo/*");
        // One curl, one connection: `num_connects` is 0 from the second request on.
        let asked = "curl -sS -o /dev/null -w '%{http_code} %{num_connects}\\n' --http1.1 \
                     $U/echo/1 -o /dev/null $U/other -o /dev/null $U/echo/2";
        let seen = script(place, &server, &["--http", &get], asked).well();
        assert_eq!(seen, "200 1\n403 0\n200 0");
    });
}

#[test]
fn a_refusal_says_what_to_type_and_why_says_the_same() {
    everybody(Tier::Namespace, |place| {
        let server = Server::secure();
        let get = rule(&server, "GET", "/echo/*");
        let seen = script(place, &server, &["--http", &get], "curl -sS -X PUT $U/echo/a/../b");
        let remedy = format!("--http 'PUT localhost:{}/echo/b'", server.port);
        let text = seen.well();
        assert!(text.starts_with("ringfence: ") && text.contains(&remedy), "{text}");
        let url = format!("https://localhost:{}/echo/a/../b", server.port);
        for (method, code) in [("PUT", 1), ("GET", 0)] {
            let why = ["why", "--http", &get, "--", "http", method, &url];
            place.ringfence(why).ends(code);
        }
        let both = ["--http", get.as_str(), "--http", &remedy[8..remedy.len() - 1]];
        script(place, &server, &both, "curl -sSf -X PUT $U/echo/a/../b").ends(0);
    });
}

/// The next of some numbers that look like chance and are the same in every run.
fn draw<'a, T: ?Sized>(state: &mut u64, from: &[&'a T]) -> &'a T {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    from[(*state >> 33) as usize % from.len()]
}

#[test]
fn why_agrees_with_the_live_proxy() {
    const METHODS: [&str; 6] = ["GET", "POST", "GET,POST", "DELETE", "*", "PUT,HEAD"];
    const RULED: [&str; 8] =
        ["/echo/*", "/echo/a", "/*", "", "/echo/a/*", "/echo", "/other", "/echo/A%20b"];
    const ASKED: [&str; 4] = ["GET", "POST", "DELETE", "PUT"];
    const PATHS: [&str; 15] = [
        "/echo/a",
        "/echo/b",
        "/echo/a/../b",
        "/echo/%61",
        "/echo//a",
        "/other",
        "/echo/a?/other",
        "/echo%2fa",
        "/ECHO/a",
        "/echo/a/",
        "/echo",
        "/echo/A%20b",
        "/echo/..;/a",
        "/echo/..%20/a",
        "/%65cho/a/c",
    ];
    everybody(Tier::Namespace, |place| {
        let server = Server::secure();
        let (mut state, mut answers) = (1, std::collections::BTreeSet::new());
        for _ in 0..5 {
            let rules: Vec<String> = (0..2)
                .map(|_| rule(&server, draw(&mut state, &METHODS), draw(&mut state, &RULED)))
                .collect();
            let options = ["--http", &rules[0], "--http", &rules[1]];
            let asked: Vec<_> =
                (0..10).map(|_| (draw(&mut state, &ASKED), draw(&mut state, &PATHS))).collect();
            let lines: Vec<String> = asked
                .iter()
                .map(|(method, path)| {
                    format!("{STATUS} --path-as-is -X {method} -d '' \"$U{path}\"")
                })
                .collect();
            let seen = script(place, &server, &options, &lines.join("; ")).well();
            assert_eq!(seen.lines().count(), asked.len(), "{seen}");
            for ((method, path), happened) in asked.iter().zip(seen.lines()) {
                let url = format!("https://localhost:{}{path}", server.port);
                let why = ["why", "--http", &rules[0], "--http", &rules[1], "--", "http"];
                let said = place.ringfence(why.iter().copied().chain([*method, url.as_str()]));
                assert!(matches!(said.code, 0 | 1), "{}", said.text());
                let allowed = said.code == 0;
                assert_eq!(allowed, !happened.starts_with("403"), "{rules:?}: {method} {path}");
                answers.insert(allowed);
            }
        }
        assert_eq!(answers.len(), 2, "both answers came up");
    });
}

#[test]
fn the_path_that_was_judged_is_the_path_that_is_sent() {
    everybody(Tier::Namespace, |place| {
        let server = Server::secure();
        let get = rule(&server, "GET", "/echo/*");
        let asked = "curl -sSf --path-as-is \"$U/x/..//echo/./%61?q=/../%2e\" | head -1";
        let seen = script(place, &server, &["--http", &get], asked).well();
        assert_eq!(seen, "GET /echo/a?q=/../%2e HTTP/1.1".replace("1.1", "2.0"));
    });
}

#[test]
fn plain_http_is_looked_at_too() {
    everywhere(|place| {
        let server = Server::plain();
        let get = rule(&server, "GET", "/echo/*");
        let asked = format!("U=http${{U#https}}; {STATUS} $U/echo/a $U/x; curl -sS -d x $U/echo/a");
        let asked = asked.replace("$U/x;", "-o /dev/null $U/x;");
        let seen = script(place, &server, &["--http", &get], &asked).well();
        assert!(seen.starts_with("200 1.1\n403 1.1\nringfence: "), "{seen}");
    });
}

#[test]
fn a_credential_is_put_in_and_never_seen_inside() {
    everywhere(|place| {
        let server = Server::secure();
        let rule = inject(&server, "Authorization=Bearer {env:TOKEN}");
        let host = host(&server);
        let options = ["-n", host.as_str(), "--inject", rule.as_str(), "-e", "TOKEN"];
        // What the program sends by this name is replaced, however often it is there.
        let asked = "curl -sSf -H 'Authorization: mine' -H 'authorization: too' $U/echo/x";
        let seen = script(place, &server, &options, asked).well();
        let sent: Vec<_> = seen.lines().filter(|line| line.starts_with("auth")).collect();
        assert_eq!(sent, [format!("authorization: Bearer {SECRET}")]);
        // Nor does it pass in a spelling that a server may take for this name.
        let asked = "curl -sSf --http1.1 -H 'X_Key: mine' -H 'X-Keys: other' $U/echo/x";
        let key = inject(&server, "X-Key={env:TOKEN}");
        let options_of_key = ["-n", host.as_str(), "--inject", key.as_str(), "-e", "TOKEN"];
        let seen = script(place, &server, &options_of_key, asked).well();
        let sent: Vec<_> = seen.lines().filter(|line| line.starts_with("x")).collect();
        assert_eq!(sent, [format!("x-key: {SECRET}"), "x-keys: other".to_owned()]);
        // The body of an echo is the server's to send; headers come without it.
        let asked = "curl -sSi $U/redirect; env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null \
                     | tr '\\0' '\\n'; set";
        let ended = script(place, &server, &options, asked);
        let seen = ended.well();
        assert!(seen.contains("[redacted by ringfence]") && seen.contains("RINGFENCE=1"), "{seen}");
        assert!(!seen.contains(SECRET) && !ended.err.contains(SECRET), "{seen}");
        // The control: it is in the caller's environment, and a program finds it there.
        let control = place.command("env").env("TOKEN", SECRET).output().unwrap();
        assert!(String::from_utf8_lossy(&control.stdout).contains(SECRET));
    });
}

#[test]
fn credentials_come_from_files_commands_and_descriptors() {
    everybody(Tier::Namespace, |place| {
        let server = Server::secure();
        let file = place.file("home/project/token", format!("{SECRET}\n"));
        let host = host(&server);
        let file_rule = inject(&server, &format!("X-File=file:{}", file.display()));
        let command_rule = inject(&server, "X-Command={cmd:printf from-a-command} suffix");
        let options =
            ["-n", host.as_str(), "--inject", file_rule.as_str(), "--inject", &command_rule];
        let asked = "curl -sSf $U/echo/x | grep '^x-'; cat token; echo $?; ls token; \
                     echo changed > token; echo $?";
        let ended = script(place, &server, &options, asked);
        let seen = ended.text();
        assert!(
            seen.starts_with(&format!("x-command: from-a-command suffix\nx-file: {SECRET}\n1\n")),
            "{seen}"
        );
        assert!(seen.ends_with('1') && ended.err.contains("denied"), "{seen}{}", ended.err);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("{SECRET}\n"));
        let text = format!(
            "U=https://localhost:{port}; export SSL_CERT_FILE={ca}; exec 7<{file}
             $RF -n localhost:{port} --inject 'localhost:{port} X-Open=fd:7' -- \
             sh -c \"curl -sSf $U/echo/x | grep x-open; cat <&7\"",
            port = server.port,
            ca = place.text("authority.pem"),
            file = file.display()
        );
        let ended = place.shell(&text);
        assert_eq!(ended.text(), format!("x-open: {SECRET}"), "{}", ended.err);
        assert!(
            ended.err.contains("Bad file descriptor") || ended.err.contains("7"),
            "{}",
            ended.err
        );
    });
}

#[test]
fn a_credential_that_cannot_be_had_is_a_refusal_before_anything_runs() {
    everybody(Tier::Namespace, |place| {
        let server = Server::secure();
        let host = host(&server);
        for (source, word) in [
            ("env:RINGFENCE_UNSET", "RINGFENCE_UNSET is not set"),
            ("file:/nonexistent/token", "/nonexistent/token"),
            ("cmd:exit 3", "exit status: 3"),
            ("cmd:true", "empty"),
            ("fd:99", "descriptor 99 is not open"),
        ] {
            let rule = inject(&server, &format!("X-Key={source}"));
            let made = place.project("made");
            let ended = run(
                place,
                &server,
                &["-n", &host, "--inject", &rule],
                &["touch", made.to_str().unwrap()],
            );
            ended.ends(125).says(word);
            assert!(!made.exists(), "{source}");
        }
    });
}

#[test]
fn credentials_do_not_go_to_other_hosts_nor_in_the_clear() {
    everywhere(|place| {
        let (server, plain) = (Server::secure(), Server::plain());
        let rules = [inject(&server, "Authorization=env:TOKEN"), host(&server), host(&plain)];
        let options = ["--inject", &rules[0], "-n", &rules[1], "-n", &rules[2]];
        let asked = format!("curl -sSf http://localhost:{}/echo/x", plain.port);
        let seen = script(place, &server, &options, &asked).well();
        assert!(seen.starts_with("GET /echo/x") && !seen.contains(SECRET), "{seen}");
        // Named with its port it is the user's own word.
        let own = inject(&plain, "Authorization=env:TOKEN");
        let options = ["--inject", &own, "-n", &rules[2]];
        let seen = script(place, &server, &options, &asked).well();
        assert!(seen.contains(&format!("authorization: {SECRET}")), "{seen}");
    });
}

#[test]
fn what_several_servers_would_read_differently_is_refused() {
    everybody(Tier::Namespace, |place| {
        let server = Server::plain();
        let any = rule(&server, "GET,POST", "/echo/*");
        let ask = |request: &str| {
            let text = format!(
                "exec 3<>/dev/tcp/127.0.0.1/{port}; printf '{request}' >&3; cat <&3",
                port = server.port
            );
            run(place, &server, &["--http", &any], &["bash", "-c", &text]).text()
        };
        let host = format!("Host: localhost:{}\\r\\n", server.port);
        let good = ask(&format!("GET /echo/x HTTP/1.1\\r\\n{host}Connection: close\\r\\n\\r\\n"));
        assert!(good.starts_with("HTTP/1.1 200 OK"), "{good}");
        for fields in [
            "Content-Length: 5\\r\\nTransfer-Encoding: chunked\\r\\n",
            "Transfer-Encoding: chunked\\r\\nContent-Length: 5\\r\\n",
            "Content-Length: 5\\r\\nContent-Length: 6\\r\\n",
            "Content-Length: +5\\r\\n",
            "Transfer-Encoding: xchunked\\r\\n",
            "Transfer-Encoding : chunked\\r\\n",
            "X: y\\r\\n folded: z\\r\\n",
            "Host: localhost\\r\\n",
        ] {
            let seen = ask(&format!(
                "POST /echo/x HTTP/1.1\\r\\n{host}{fields}\\r\\n0\\r\\n\\r\\nGET /other HTTP/1.1\\r\\n{host}\\r\\n"
            ));
            let refused = seen.is_empty() || seen.starts_with("HTTP/1.1 400");
            assert!(refused && !seen.contains("200"), "{fields}: {seen}");
        }
    });
}

/// A client that writes frames of HTTP/2 by itself: a line for each request, with the status or the error.
const FRAMES: &str = r#"
import socket, ssl, struct, sys
port = int(sys.argv[1])
def frame(kind, flags, payload): return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", 1) + payload
def field(name, value): return b"\0" + b"".join(bytes([len(x)]) + x for x in (name.encode(), value.encode()))
def head(*more, method="GET", path="/echo/x", authority=f"localhost:{port}", first=()):
    fields = [*first, (":method", method), (":scheme", "https"), (":path", path), (":authority", authority), *more]
    return b"".join(field(*one) for one in fields)
def ask(name, *frames):
    context = ssl.create_default_context()
    context.set_alpn_protocols(["h2"])
    s = context.wrap_socket(socket.create_connection(("localhost", port)), server_hostname="localhost")
    assert s.selected_alpn_protocol() == "h2"
    f = s.makefile("rb")
    try: s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\4" + bytes(5) + b"".join(frames))
    except OSError: return print(name, "closed")
    while True:
        start = f.read(9)
        if len(start) < 9: return print(name, "closed")
        kind, payload = start[3], f.read(int.from_bytes(start[:3], "big"))
        if kind == 0 and payload: return print(name, "refused" if payload.startswith(b"ringfence: ") else "passed", "|".join(l for l in payload.decode().split("\n") if l.lower().startswith(("get", "post", "x", "auth", "trailer"))))
        if kind in (3, 7): return print(name, "error")
END = 5
def get(name, *more, **other): ask(name, frame(1, END, head(*more, **other)))
get("control")
get("fragment", path="/echo/x#/../../shut")
get("look-alike", ("x_key", "mine"), ("x-key", "mine"))
ask("trailers", frame(1, 4, head(method="POST")), frame(0, 0, b"12345"), frame(1, END, field("x_key", "mine") + field("authorization", "mine") + field("grpc-kept", "y")))
get("another authority", authority="example.org")
get("another host", ("host", "example.org"))
get("two paths", first=[(":path", "/shut")])
get("two methods", first=[(":method", "GET")])
get("late path", (":path", "/shut"))
get("absolute path", path="https://example.org/echo/x")
get("line in path", path="/echo/x HTTP/1.1\r\nHost: example.org")
get("line in value", ("x-a", "b\r\nhost: example.org"))
get("line in name", ("x-a: b\r\nhost", "example.org"))
get("chunks", ("transfer-encoding", "chunked"))
get("tunnel", method="CONNECT")
get("websocket", method="CONNECT", first=[(":protocol", "websocket")])
ask("short", frame(1, 4, head(("content-length", "5"), method="POST")), frame(0, 1, b"123"))
ask("long", frame(1, 4, head(("content-length", "3"), method="POST")), frame(0, 1, b"12345"))
ask("endless head", frame(1, 0, head()), frame(9, 0, field("a", "b" * 120) * 120) * 400)
"#;

#[test]
fn requests_of_http2_in_disguise_do_not_pass() {
    everybody(Tier::Namespace, |place| {
        let server = Server::secure();
        let (any, key) =
            (rule(&server, "GET,POST", "/echo/*"), inject(&server, "X-Key={env:TOKEN}"));
        let options = ["--http", any.as_str(), "--inject", key.as_str()];
        place.file("home/project/frames.py", FRAMES);
        let port = server.port.to_string();
        let seen = run(place, &server, &options, &["python3", "frames.py", &port]).well();
        let mut lines = seen.lines();
        for name in ["control", "fragment", "look-alike", "trailers"] {
            let (method, kept) = match name {
                "trailers" => ("POST", "|trailer grpc-kept: y"),
                _ => ("GET", ""),
            };
            let expected = format!("{name} passed {method} /echo/x HTTP/2.0|x-key: {SECRET}{kept}");
            assert_eq!(lines.next(), Some(expected.as_str()));
        }
        let mut others = 0;
        for line in lines {
            let ended = ["refused ", "error", "closed"].iter().any(|how| line.ends_with(how));
            assert!(ended, "{line}");
            others += 1;
        }
        assert_eq!(others, 15, "{seen}");
    });
}

/// Many downloads of which nobody takes anything.
const NOBODY_READS: &str = r#"
import signal, socket, ssl, sys
port, count = int(sys.argv[1]), int(sys.argv[2])
context = ssl.create_default_context()
context.set_alpn_protocols(["http/1.1"])
def ask(path):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect(("localhost", port))
    s = context.wrap_socket(s, server_hostname="localhost")
    s.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode())
    assert s.recv(12) == b"HTTP/1.1 200"
    return s
held = [ask("/large/100000000") for _ in range(count)]
for _ in range(20): ask("/echo/x")
print("waiting", flush=True); signal.pause()
"#;

#[test]
fn downloads_that_nobody_takes_are_held_to_a_measure() {
    everybody(Tier::Namespace, |place| {
        let server = Server::secure();
        place.file("home/project/held.py", NOBODY_READS);
        let authority = place.file("authority.pem", &server.authority);
        let any = rule(&server, "GET", "/*");
        let mut command = place.ringfence_run();
        command.env("SSL_CERT_FILE", authority).args(["--http", &any, "--"]);
        command.args(["python3", "held.py", &server.port.to_string(), "120"]);
        let mut running = Running::start(command);
        running.printed("waiting");
        let status = std::fs::read_to_string(format!("/proc/{}/status", running.pid())).unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        let resident: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
        assert!(resident < 96 * 1024, "{resident} KiB");
        running.signal(Signal::TERM);
        running.finish();
    });
}

#[test]
fn a_server_that_nobody_vouches_for_is_not_spoken_to() {
    everywhere(|place| {
        let (mut server, other) = (Server::secure(), Server::secure());
        server.authority.clone_from(&other.authority);
        let get = rule(&server, "GET", "/*");
        // The caller trusts another authority: what the program sees is a readable 502.
        let ended = script(
            place,
            &server,
            &["-m", "--http", &get],
            "curl -sS -o - -w '%{http_code}' $U/echo/x",
        );
        let seen = ended.well();
        assert!(seen.ends_with("502") && seen.contains("certificate"), "{seen}");
        assert!(ended.err.contains("failed") && ended.err.contains("certificate"), "{}", ended.err);
    });
}

#[test]
fn other_protocols_do_not_pass_where_requests_are_looked_at() {
    everywhere(|place| {
        let server = Server::plain();
        let any = rule(&server, "GET", "/*");
        let text = format!(
            "exec 3<>/dev/tcp/127.0.0.1/{}; printf 'SSH-2.0-x\\r\\n' >&3; cat <&3",
            server.port
        );
        let ended = run(place, &server, &["-m", "--http", &any], &["bash", "-c", &text]);
        ended.says("neither TLS nor HTTP");
        assert_eq!(ended.text(), "");
    });
}

#[test]
fn requests_are_told() {
    everywhere(|place| {
        let server = Server::secure();
        let get = rule(&server, "GET", "/echo/*");
        let key = inject(&server, "X-Key=env:TOKEN");
        let options = ["-m", "--http", get.as_str(), "--inject", key.as_str()];
        let ended =
            script(place, &server, &options, "curl -sS $U/echo/a?query=1 $U/x; echo $TOKEN");
        ended.ends(0);
        let port = server.port;
        ended.says(&format!("200 GET localhost:{port}/echo/a, with x-key: 0 bytes sent"));
        ended.says(&format!("denied GET localhost:{port}/x: "));
        for hidden in [SECRET, "query=1"] {
            assert!(!ended.err.contains(hidden), "{}", ended.err);
        }
    });
}

#[test]
fn nothing_of_it_is_there_when_no_rule_needs_it() {
    everybody(Tier::Namespace, |place: &Place| {
        let asked = "ls -d /run/ringfence; env | grep -c -e CAINFO -e trustStore; true";
        let seen = place.sh(&["-n", "example.org"], asked);
        assert_eq!(seen.well(), "0");
    });
}
