//! `--publish`: the host connects in, and what the program was given for it opens nothing else.

use ringfence_tests::{Person, Place, Tier, everybody, free_port};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// A port of the host's loopback that nobody uses.
/// Serves one connection, and says `ready` when it can.
const SERVER: &str = "
import socket, sys
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(('127.0.0.1', int(sys.argv[1])))
server.listen()
print('ready', server.getsockname()[0], flush=True)
client, _ = server.accept()
client.sendall(b'served ' + client.recv(16))
client.close()
";

fn asks(port: u16) -> String {
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.write_all(b"host").unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    text
}

fn python(place: &Place) -> bool {
    place.has("python3", "--version")
}

#[test]
fn the_host_connects_in_to_what_is_published_and_to_nothing_else() {
    everybody(Tier::Namespace, |place| {
        if !python(place) || !place.publishes() {
            return;
        }
        let (host, inside) = (free_port(), 7001);
        let publish = format!("{host}:{inside}");
        let argv = ["python3", "-c", SERVER, &inside.to_string()];
        let mut running = place.start(&["--publish", &publish], &argv);
        running.printed("ready");
        assert_eq!(asks(host), "served host");
        running.finish().ends(0);
        // Without it the same server is the sandbox's own.
        let mut running = place.start(&[], &argv);
        running.printed("ready");
        assert!(TcpStream::connect(("127.0.0.1", host)).is_err());
        assert!(TcpStream::connect(("127.0.0.1", inside)).is_err());
        drop(running);
    });
}

#[test]
fn programs_inside_reach_the_published_port_too() {
    everybody(Tier::Namespace, |place| {
        if !python(place) || !place.publishes() {
            return;
        }
        let publish = format!("{}:7002", free_port());
        let script = format!(
            "import threading\n{}",
            SERVER.replace(
                "client, _ = server.accept()",
                "
def ask():
    own = socket.create_connection(('127.0.0.1', 7002)); own.sendall(b'inside')
    print(own.recv(32).decode())
asking = threading.Thread(target=ask); asking.start()
client, _ = server.accept()"
            )
        ) + "asking.join()";
        let ended = place.run(&["--publish", &publish], &["python3", "-c", &script, "7002"]);
        ended.ends(0).prints("served inside");
    });
}

/// Serves one client of its own, and cuts it off.
const CUTS_OFF: &str = "
import socket, struct, sys
server = socket.create_server(('127.0.0.1', 7002))
own = socket.create_connection(('127.0.0.1', 7002))
client, _ = server.accept()
client.sendall(b'half')
print(own.recv(8).decode())
client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
client.close()
try: print('ended', own.recv(8))
except ConnectionResetError: print('reset')
";

#[test]
fn what_is_cut_off_inside_does_not_look_complete() {
    everybody(Tier::Namespace, |place| {
        if python(place) && place.publishes() {
            let publish = format!("{}:7002", free_port());
            let ended = place.run(&["--publish", &publish], &["python3", "-c", CUTS_OFF]);
            ended.ends(0).prints("half\nreset");
        }
    });
}

/// Serves the published port, closes it, and asks it again when somebody else is there; then serves it anew.
const CLOSES: &str = "
import socket, sys
port = int(sys.argv[1])
def serve():
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if sys.argv[2] == 'shared': s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    s.bind(('127.0.0.1', port)); s.listen(); return s
def ask():
    try:
        c = socket.create_connection(('127.0.0.1', port)); c.sendall(b'inside'); return c.recv(32).decode() or 'nothing'
    except OSError as e: return type(e).__name__
def own(s):
    c = socket.create_connection(('127.0.0.1', port)); there = s.accept()[0]; there.sendall(b'own'); return c.recv(8).decode()
server = serve(); said = [own(server)]
server.close()
go = open('go')
print('closed', flush=True); go.readline()
said.append(ask())
print('asked', flush=True); go.readline()
server = serve(); said.append(own(server))
print(*said, flush=True)
";

#[test]
fn who_listens_at_a_published_port_later_is_not_reached() {
    everybody(Tier::Namespace, |place| {
        if !python(place) || !place.publishes() {
            return;
        }
        place.shell("mkfifo go").ends(0);
        // Open for both: nobody waits for the other end.
        let go = std::fs::File::options().read(true).write(true).open(place.project("go")).unwrap();
        for kind in ["alone", "shared"] {
            let port = free_port();
            let (publish, inside) = (format!("{port}:7003"), "7003");
            let argv = ["python3", "-c", CLOSES, inside, kind];
            let mut running = place.start(&["-w", ".", "--publish", &publish], &argv);
            running.printed("closed");
            // The port is the host's again, and somebody else's.
            let other = TcpListener::bind(("127.0.0.1", port)).unwrap();
            (&go).write_all(b"\n").unwrap();
            running.printed("asked");
            other.set_nonblocking(true).unwrap();
            let came = other.accept().map(|_| ());
            assert_eq!(came.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
            // The control: others do reach it.
            let _client = TcpStream::connect(("127.0.0.1", port)).unwrap();
            other.set_nonblocking(false).unwrap();
            other.accept().unwrap();
            // A child that another test has forked meanwhile has it until it executes.
            rustix::net::shutdown(&other, rustix::net::Shutdown::Both).unwrap();
            drop(other);
            (&go).write_all(b"\n").unwrap();
            running.finish().ends(0).prints("own ConnectionResetError own");
            assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "it is free");
        }
    });
}

/// Tries to use the listener, and a connection that it accepted, for something else. The last line
/// tells what the tries came to.
const ESCAPES: &str = "
import errno, socket, sys, threading, os
port, witness = int(sys.argv[1]), ('127.0.0.1', int(sys.argv[2]))
AF_UNSPEC = bytes(16)
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def unspec(s): return libc.connect(s.fileno(), AF_UNSPEC, 16)
def serve():
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(('127.0.0.1', port)); s.listen(); return s
ended = []
def attempt(name, act):
    try: act(); ended.append(name + ' done')
    except OSError as e: ended.append(name + ' ' + errno.errorcode[e.errno])
listener = serve()
print('ready', flush=True)
accepted, _ = listener.accept()
accepted.setblocking(False)
unspec(accepted); accepted.close
attempt('accepted-connect', lambda: accepted.connect(witness))
attempt('accepted-fastopen', lambda: accepted.sendto(b'x', socket.MSG_FASTOPEN, witness))
attempt('accepted-bind', lambda: accepted.bind(('127.0.0.1', 0)))
attempt('accepted-listen', lambda: accepted.listen())
listener.setblocking(False)
try: listener.shutdown(socket.SHUT_RDWR)
except OSError: pass
attempt('listener-connect', lambda: listener.connect(witness))
unspec(listener)
attempt('unspec-connect', lambda: listener.connect(witness))
# The number changes under the call.
mine, going = socket.socket(), True
def swap():
    other = socket.socket(); spare = os.dup(mine.fileno())
    while going:
        os.dup2(listener.fileno(), mine.fileno()); os.dup2(spare, mine.fileno())
thread = threading.Thread(target=swap); thread.start()
for _ in range(300):
    try: mine.connect(witness)
    except OSError: pass
going = False; thread.join()
shared = socket.socket(socket.AF_UNIX)
attempt('shared-bind', lambda: shared.bind('shared.sock'))
attempt('shared-connect', lambda: shared.connect('host.sock'))
private = socket.socket(socket.AF_UNIX)
attempt('private-bind', lambda: private.bind('/tmp/private.sock'))
print(' '.join(ended), flush=True)
";

#[test]
fn a_socket_of_the_host_serves_its_port_alone() {
    everybody(Tier::Namespace, |place| {
        if !python(place) || !place.publishes() {
            return;
        }
        let witness = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = witness.local_addr().unwrap();
        let port = free_port();
        let _host = std::os::unix::net::UnixListener::bind(place.project("host.sock")).unwrap();
        place.person.owns(&place.project("host.sock"));
        let (port_text, to_text) = (port.to_string(), to.port().to_string());
        let argv = ["python3", "-c", ESCAPES, &port_text, &to_text];
        let mut running = place.start(&["-w", ".", "--publish", &port_text], &argv);
        running.printed("ready");
        let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let ended = running.finish();
        ended.ends(0).prints("private-bind done");
        // Whoever comes later is the first whom the witness sees.
        let control = TcpStream::connect(to).unwrap();
        assert_eq!(witness.accept().unwrap().1, control.local_addr().unwrap());
        // At once, whoever asks: a lock on the socket alone stops no connection that the other end begins as well.
        for refused in [
            "accepted-connect EACCES",
            "accepted-fastopen EPERM",
            "accepted-listen EACCES",
            "listener-connect EACCES",
            "unspec-connect EACCES",
        ] {
            ended.prints(refused);
        }
        // Root's sockets are locked by themselves, and may be passed on.
        let shared = if place.person == Person::Root { "done" } else { "EACCES" };
        ended.prints(&format!("shared-bind {shared} shared-connect {shared} private-bind done"));
        drop(client);
        // The control: without a sandbox the same ways lead to the witness.
        let words: Vec<String> =
            argv.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect();
        let mut outside = place.shell_start(&words.join(" "));
        outside.printed("ready");
        let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let peer = witness.accept().unwrap().1;
        assert_ne!(peer, control.local_addr().unwrap());
        outside.finish().prints("shared-connect done");
        drop(client);
        let _ = std::fs::remove_file(place.project("shared.sock"));
    });
}

/// Binds sockets of IPv4 to a privileged port and to another, by an address of IPv4 and by one of no family.
const BINDS: &str = "
import ctypes, errno, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
for family, ip in [(2, b'\\0' * 4), (0, b'\\0' * 4), (0, b'\\x7f\\0\\0\\1')]:
    for port in [81, 2081]:
        server = socket.socket()
        raw = struct.pack('=H', family) + struct.pack('!H', port) + ip + b'\\0' * 8
        failed = libc.bind(server.fileno(), raw, len(raw))
        print(family, ip[0], port, errno.errorcode[ctypes.get_errno()] if failed else server.getsockname()[1])
        server.close()
";

/// The launcher, which binds where something is published, has a privilege that the program has not: the kernel takes an
/// address of no family for one of IPv4.
#[test]
fn no_way_of_writing_an_address_binds_a_privileged_port() {
    everybody(Tier::Namespace, |place| {
        if !python(place) || !place.publishes() {
            return;
        }
        let argv = ["python3", "-c", BINDS];
        let run = |options: &[&str]| place.run(options, &argv).ends(0).text();
        // The control: what the kernel says to who asks it himself.
        let kernel = run(&[]);
        assert_eq!(
            kernel,
            "2 0 81 EACCES\n2 0 2081 2081\n0 0 81 EACCES\n0 0 2081 2081\n0 127 81 EAFNOSUPPORT\n0 127 2081 EAFNOSUPPORT"
        );
        assert_eq!(run(&["--publish", &free_port().to_string()]), kernel);
    });
}
