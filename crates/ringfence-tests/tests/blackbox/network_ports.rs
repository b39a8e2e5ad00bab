//! Ports of the sandbox's own: programs inside share them, and fill a server's queue, as without a sandbox. What must not
//! come of it is in the escape corpus (`network_ports.py`).

use ringfence_tests::{Person, Place, Tier, everybody, everywhere, free_port};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;

fn python(place: &Place) -> bool {
    place.has("python3", "--version")
}

/// As nginx (`listen … reuseport`), prefork servers and asyncio do it.
#[test]
fn programs_inside_share_a_port_among_themselves() {
    everywhere(|place| {
        if !python(place) {
            return;
        }
        let port = free_port();
        let script = format!(
            "import errno, os, socket
def bound(share):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if share: s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    s.bind(('127.0.0.1', {port})); s.listen(); return s
def refused(share):
    try: bound(share)
    except OSError as e: return errno.errorcode[e.errno]
one, two = bound(True), bound(True)
print(refused(False))
r, w = os.pipe()
if os.fork() == 0:
    one.close(); two.close()
    three = bound(True); os.write(w, b'x')
    for _ in range(8): three.accept()[0].sendall(b'child')
    os._exit(0)
os.read(r, 1); one.close(); two.close()
said = {{socket.create_connection(('127.0.0.1', {port}), 20).recv(9) for _ in range(8)}}
os.wait(); print(said, refused(False))
last = bound(False); print(refused(True))"
        );
        let ended = place.run(&["-n", "site.test"], &["python3", "-c", &script]);
        assert_eq!(ended.ends(0).text(), "EADDRINUSE\n{b'child'} None\nEADDRINUSE");
    });
}

/// One thread is both ends: it begins more connections than the server's queue holds, and only then accepts.
#[test]
fn connections_that_find_no_room_are_served_when_there_is_some() {
    everywhere(|place| {
        if !python(place) {
            return;
        }
        let script = "import asyncio, socket
async def serve(r, w):
    w.write(await r.read(5)); await w.drain(); w.close()
async def ask(port):
    r, w = await asyncio.open_connection('127.0.0.1', port)
    w.write(b'hello'); said = await r.read(); w.close(); return said, w.get_extra_info('peername')[1] == port
async def main():
    s = await asyncio.start_server(serve, '127.0.0.1', 0, backlog=4)
    port = s.sockets[0].getsockname()[1]
    print(set(await asyncio.gather(*[ask(port) for _ in range(40)])))
    try: await ask(1)
    except OSError as e: print(type(e).__name__)
asyncio.run(main())
# The same by a thread that waits.
import threading
l = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen(0); to = l.getsockname(); said = []
def wait(): c = socket.create_connection(to, 60); c.sendall(b'x'); said.append(c.recv(1))
threads = [threading.Thread(target=wait) for _ in range(6)]
for t in threads: t.start()
for _ in threads: c = l.accept()[0]; c.sendall(c.recv(1)); c.close()
for t in threads: t.join()
print(said)";
        let ended = place.run(&["-n", "site.test"], &["python3", "-c", script]);
        let text = ended.ends(0).text();
        assert!(text.starts_with("{(b'hello', True)}\nConnection"), "{text}");
        let waited = "[b'x', b'x', b'x', b'x', b'x', b'x']";
        assert!(text.ends_with(waited), "{text}");
    });
}

/// `O_NONBLOCK` is of the open socket, which the launcher connects and a second thread has as well. Nobody waits for that but
/// who connects.
#[test]
fn no_flag_of_a_socket_holds_up_the_launcher() {
    everywhere(|place| {
        if !python(place) {
            return;
        }
        let script = |flips: &str, rounds: &str, then: &str| {
            format!(
                "import fcntl, itertools, os, socket, threading
l = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen(0); to = l.getsockname(); now = None
def begin():
    global now
    s = socket.socket(); s.setblocking(False); now = s.fileno(); s.connect_ex(to); now = None; return s
filled = [begin() for _ in range(4)]
def flip():
    while True:
        try:
            if now is not None: fcntl.fcntl(now, fcntl.F_SETFL, os.O_RDWR)
        except OSError: pass
if {flips}: threading.Thread(target=flip, daemon=True).start()
for _ in {rounds}: begin().close()
{then}"
            )
        };
        let taken = "open('.bashrc', 'w').close()
while os.path.exists('.bashrc'): pass
print('taken', flush=True); os._exit(0)";
        for flips in ["False", "True"] {
            // Where it cannot be written there is nothing to take away.
            if place.tier_name() == "process" {
                let run = script(flips, "range(400)", taken);
                let ended = place.run(&["-n", "site.test"], &["python3", "-c", &run]);
                assert_eq!(ended.ends(0).text(), "taken", "{flips}");
                assert!(!place.project(".bashrc").exists());
            }
            let run = script(flips, "itertools.count()", "");
            let limited = ["--timeout", "1s", "-n", "site.test"];
            place.run(&limited, &["python3", "-c", &run]).ends(124);
        }
    });
}

/// As a suite of tests does it, beside a server that was started first.
#[test]
fn a_server_is_reached_whoever_has_listened_since() {
    everywhere(|place| {
        if !python(place) {
            return;
        }
        let script = "import socket
def server(): s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); return s
first = server()
for _ in range(4200): server().close()
client = socket.create_connection(first.getsockname(), 60); client.sendall(b'hello')
print(first.accept()[0].recv(9))";
        let ended = place.run(&["-n", "site.test"], &["python3", "-c", script]);
        assert_eq!(ended.ends(0).text(), "b'hello'");
    });
}

/// More than the launcher keeps in mind, most of which are gone: the first and the last are shared.
#[test]
fn a_port_is_shared_whatever_was_bound_before() {
    everywhere(|place| {
        if !python(place) {
            return;
        }
        let script = "import resource, socket
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]; resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
def bound(port=0):
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1); s.bind(('127.0.0.1', port)); return s
def again(s): return bound(s.getsockname()[1]).fileno() > 0
first = bound(); again(first)
for _ in range(1500): bound().close()
print(again(first), again(bound()))
held = []
try:
    while len(held) < 1200: held.append(bound())
except OSError: pass
print(again(held[-1]))";
        let ended = place.run(&["-n", "site.test"], &["python3", "-c", script]);
        assert_eq!(ended.ends(0).text(), "True True\nTrue");
    });
}

/// One that is in a writable tree has no mount of its own; another one that gets its name is not it.
#[test]
fn a_socket_that_is_granted_in_a_writable_tree_goes_with_a_published_port() {
    everybody(Tier::Namespace, |place| {
        if !python(place) || !place.publishes() {
            return;
        }
        let listens = |name: &str, said: &'static [u8]| {
            let socket = UnixListener::bind(place.project(name)).unwrap();
            place.person.owns(&place.project(name));
            std::thread::spawn(move || {
                while let Ok((mut client, _)) = socket.accept() {
                    let _ = client.write_all(said);
                }
            });
        };
        listens("ok.sock", b"granted");
        listens("other.sock", b"another");
        let granted = place.project("ok.sock").display().to_string();
        place.shell("mkfifo go").ends(0);
        // Open for both: nobody waits for the other end.
        let go = std::fs::File::options().read(true).write(true).open(place.project("go")).unwrap();
        let script = "import errno, socket
def ask(name):
    s = socket.socket(socket.AF_UNIX)
    try: s.connect(name); return s.recv(9).decode()
    except OSError as e: return errno.errorcode[e.errno]
said = [ask('ok.sock'), ask('other.sock')]
go = open('go')
print('asked', flush=True); go.readline()
print(*said, ask('was.sock'), ask('ok.sock'))";
        let publish = free_port().to_string();
        // Root's published socket is locked by itself.
        let other = if place.person == Person::Root { "another" } else { "EACCES" };
        let renamed = |from: &str, to: &str| {
            std::fs::rename(place.project(from), place.project(to)).unwrap();
        };
        // The second start may use the first one's plan.
        for _ in 0..2 {
            let options = ["-w", ".", "--publish", &publish, "--allow-socket", &granted];
            let mut running = place.start(&options, &["python3", "-c", script]);
            running.printed("asked");
            renamed("ok.sock", "was.sock");
            renamed("other.sock", "ok.sock");
            (&go).write_all(b"\n").unwrap();
            let ended = running.finish();
            ended.ends(0).prints(&format!("granted {other} granted {other}"));
            renamed("ok.sock", "other.sock");
            renamed("was.sock", "ok.sock");
        }
    });
}

/// Clients that start their daemon where none is, and `nc -z`, ask so.
#[test]
fn a_port_at_which_nobody_listens_is_refused_and_one_of_the_hosts_is_not_told() {
    everywhere(|place| {
        if !python(place) {
            return;
        }
        let host = TcpListener::bind("127.0.0.1:0").unwrap();
        let (closed, open) = (free_port(), host.local_addr().unwrap().port());
        let script = format!(
            "import asyncio, errno, socket
def named(number): return errno.errorcode.get(number, number)
def waits(to):
    s = socket.socket(socket.AF_INET6 if ':' in to[0] else socket.AF_INET); s.settimeout(60)
    try: s.connect(to); return s.recv(1)
    except OSError as e: return named(e.errno)
def goes_on(to):
    async def ask():
        try: await asyncio.open_connection(*to); return 'made'
        except OSError as e: return named(e.errno)
    return asyncio.run(ask())
to = ('127.0.0.1', {closed})
print(waits(to), waits(('0.0.0.0', {closed})), goes_on(to))
server = socket.socket(); server.bind(to); server.listen()
client = socket.create_connection(to, 60); client.sendall(b'hello'); print(server.accept()[0].recv(9))
client.close(); server.close(); print(waits(to))
print(waits(('127.0.0.1', {open})))"
        );
        let ended = place.run(&["-m", "-n", "site.test"], &["python3", "-c", &script]);
        let last = match place.tier_name() {
            // There it is a port of the sandbox's own loopback.
            "namespace" => "ECONNREFUSED",
            _ => "ECONNRESET",
        };
        let refused = "ECONNREFUSED ECONNREFUSED ECONNREFUSED\nb'hello'\nECONNREFUSED";
        assert_eq!(ended.ends(0).text(), format!("{refused}\n{last}"), "{}", ended.err);
        assert!(!ended.err.contains(&format!(":{closed}")), "{}", ended.err);
        if place.tier_name() == "process" {
            ended.says(&format!("denied localhost:{open}"));
        }
        host.set_nonblocking(true).unwrap();
        assert_eq!(host.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    });
}

/// What a connection leaves of an address is no address to the kernel, which would bind a server to all of the host's.
#[test]
fn a_socket_that_was_connected_listens_for_nobody_outside() {
    everybody(Tier::Process, |place| {
        if !python(place) {
            return;
        }
        let script = "import ctypes, socket
libc = ctypes.CDLL(None)
own = socket.create_server(('127.0.0.1', 0)); to = own.getsockname()[1]
for family, ip in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::ffff:127.0.0.1')):
    for option in (None, 24):
        s = socket.socket(family)
        # IP_BIND_ADDRESS_NO_PORT
        if option: s.setsockopt(0, option, 1)
        s.connect((ip, to)); libc.connect(s.fileno(), bytes(16), 16)
        s.listen(); print(s.getsockname()[0])
        socket.create_connection(('127.0.0.1', s.getsockname()[1]), 20).close(); s.accept()[0].close()
        s.listen(); s.close()
s = socket.socket(); s.setsockopt(0, 24, 1); s.bind(('0.0.0.0', 0)); s.listen(); print(s.getsockname()[0])";
        let script = place.file("server.py", script).display().to_string();
        // The control.
        let outside = place.shell(&format!("python3 {script}"));
        assert_eq!(outside.ends(0).text(), "0.0.0.0\n0.0.0.0\n::\n::\n0.0.0.0");
        let inside = place.run(&["-n", "site.test", "-r", &script], &["python3", &script]);
        let (four, six) = ("127.0.0.1", "::ffff:127.0.0.1");
        assert_eq!(inside.ends(0).text(), [four, four, six, six, four].join("\n"));
        // A port of its choice where any is asked for.
        let range = "import socket; socket.socket().setsockopt(0, 51, bytes(4))";
        place
            .run(&["-n", "site.test"], &["python3", "-c", range])
            .ends(1)
            .says("Operation not permitted");
        place.shell(&format!("python3 -c '{range}'"));
    });
}
