//! What a client says first, and how it ends it: what a server might take for another host's must not reach one.

use crate::world::{Sandbox, Server, witness};

/// All of them.
pub const ALL: &[(&str, fn())] = &[
    ("what_comes_before_a_hello_or_is_none", what_comes_before_a_hello_or_is_none),
    ("an_end_ends_no_head_unseen", an_end_ends_no_head_unseen),
];

const HOSTS: &str = "5.5.5.5 site.test\n";

/// Sends bytes, ends its half if it is told to, and prints what comes of it.
const CLIENT: &str = r#"
import socket, ssl
def hello(name):
    context = ssl.create_default_context(); context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    try: context.wrap_bio(incoming, outgoing, server_hostname=name).do_handshake()
    except ssl.SSLWantReadError: return outgoing.read()
def records(message, size):
    parts = (message[at:at + size] for at in range(0, len(message), size))
    return b"".join(b"\x16\3\1" + len(part).to_bytes(2, "big") + part for part in parts)
def say(port, data, end=False, step=0):
    s = socket.create_connection(("site.test", port), 5)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        for at in range(0, len(data), step or len(data)): s.sendall(data[at:at + (step or len(data))])
        if end: s.shutdown(socket.SHUT_WR)
        print(s.recv(9).decode() or "closed", end=" ")
    except ConnectionError: print("reset", end=" ")
"#;

fn said(script: &str) -> String {
    let sandbox = Sandbox::new(&["site.test"], &[], HOSTS);
    let servers = vec![Server::new("[::]:80", witness), Server::new("[::]:443", witness)];
    let script = format!("python3 - <<'EOF'\n{CLIENT}\n{script}\nEOF\n");
    sandbox.run(&script, servers).output.trim().to_owned()
}

/// Records that are no handshake's, before a hello and within it; hellos in pieces, and beyond all measure.
fn what_comes_before_a_hello_or_is_none() {
    let output = said(
        r#"
good, evil = hello("site.test")[5:], hello("evil.test")[5:]
alert, change, data, heart = b"\x15\3\3\0\2\1\0", b"\x14\3\3\0\1\1", b"\x17\3\3\0\1x", b"\x18\3\3\0\3\1\0\0"
for size in (1, 7, 100, 9999): say(443, records(good, size))
say(443, records(good, 1), step=1)
print()
for size in (1, 7, 100, 9999): say(443, records(evil, size))
say(443, records(evil, 1), step=1)
for other in (alert, change, data, heart):
    say(443, other + records(evil, 9999)); say(443, other + records(good, 9999))
    say(443, records(good[:40], 40) + other + records(evil[40:], 999))
say(443, b"\x16\3\1\0\0" + records(evil, 9999))
say(443, records(b"\x01\0\xff\xff" + evil[4:] + 70000 * b"x", 16384))
say(443, records(b"\x01\xff\xff\xff" + 70000 * b"x", 1))
say(443, records(b"\0\0\0\0" + evil, 9999))
say(443, b"\x16\3\1\x40\1" + evil + 17000 * b"x")"#,
    );
    let lines: Vec<_> = output.lines().map(str::trim).collect();
    assert_eq!(lines, [["got"; 5].join(" "), ["reset"; 22].join(" ")]);
}

/// Some servers take the end of what a client says for the end of a request's head, and some serve a request of
/// HTTP/0.9.
fn an_end_ends_no_head_unseen() {
    let output = said(
        r#"
say(80, b"GET / HTTP/1.1\r\nHost: site.test\r\n", end=True)
say(80, b"GET / HTTP/1.0", end=True)
say(80, b"hello world", end=True)
say(80, b"hello", end=True)
print()
say(80, b"GET / HTTP/1.1\r\nHost: evil.test\r\n", end=True)
say(80, b"GET / HTTP/1.1\r\nHost: evil.test", end=True)
say(80, b"GET http://evil.test/ HTTP/1.0", end=True)
say(80, b"GET http://evil.test/", end=True)
say(80, b"GET http://evil.test/\r\n")
say(80, b"GET /\r\nHost: evil.test\r\n\r\n")
say(443, b"GET / HTTP/1.1\r\nHost: evil.test\r\n", end=True)"#,
    );
    let lines: Vec<_> = output.lines().map(str::trim).collect();
    assert_eq!(lines, [["got"; 4].join(" "), ["reset"; 7].join(" ")]);
}
