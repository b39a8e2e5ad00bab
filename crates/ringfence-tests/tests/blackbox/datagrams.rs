//! `--publish PORT/udp`: datagrams from outside reach the program, its answers go back to who asked, and
//! it can send to nobody else.

use ringfence_tests::{Place, Tier, everybody, free_port, until};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::time::Duration;

/// Long enough that nothing which comes is missed: nobody waits for it where something comes.
const LONG: Duration = Duration::from_secs(30);

/// A client at an address of the host's loopback; 127.0.0.1 and `[::1]` are the usual ones.
fn client(address: &str) -> Option<UdpSocket> {
    let socket = UdpSocket::bind((address, 0)).ok()?;
    socket.set_read_timeout(Some(LONG)).unwrap();
    Some(socket)
}

fn asks(client: &UdpSocket, to: (&str, u16), question: &[u8]) -> String {
    client.send_to(question, to).unwrap();
    let mut answer = vec![0; 70_000];
    let (count, from) = client.recv_from(&mut answer).expect("an answer");
    let to: SocketAddr = (to.0.parse::<std::net::IpAddr>().unwrap(), to.1).into();
    assert_eq!(from, to, "the answer comes from where the question went");
    String::from_utf8_lossy(&answer[..count]).into_owned()
}

fn python(place: &Place) -> bool {
    place.has("python3", "--version")
}

/// Binds ADDRESS PORT, says `ready`, and tells each peer who it seems to be and how much it sent, until
/// one sends `end`.
const SERVER: &str = "
import socket, sys
address, port = sys.argv[1], int(sys.argv[2])
server = socket.socket(socket.AF_INET6 if ':' in address else socket.AF_INET, socket.SOCK_DGRAM)
server.bind((address, port))
print('ready', server.getsockname()[1], flush=True)
data = b''
while data != b'end':
    data, peer = server.recvfrom(70000)
    server.sendto(('%s %d %d' % (peer[0], peer[1], len(data))).encode(), peer)
";

#[test]
fn the_host_is_answered_and_seen_as_who_it_is() {
    everybody(Tier::Namespace, |place| {
        if !python(place) {
            return;
        }
        // What is bound inside, what is published, and who asks where.
        let cases = [
            ("127.0.0.1", "127.0.0.1", "127.0.0.1", "127.0.0.1", "127.0.0.1"),
            ("0.0.0.0", "0.0.0.0", "127.0.0.7", "127.0.0.9", "127.0.0.7"),
            ("::", "0.0.0.0", "127.0.0.7", "127.0.0.9", "::ffff:127.0.0.7"),
            ("::", "[::1]", "::1", "::1", "::1"),
            // Another family: then it is the sandbox's own loopback that asks.
            ("127.0.0.1", "[::1]", "::1", "::1", "127.0.0.1"),
        ];
        for (bound, published, from, to, seen) in cases {
            let Some(client) = client(from) else {
                println!("left out: this host has no {from}");
                continue;
            };
            let host = free_port();
            let publish = format!("{published}:{host}:7003/udp");
            let argv = ["python3", "-c", SERVER, bound, "7003"];
            let mut running = place.start(&["--publish", &publish], &argv);
            running.printed("ready");
            let port = client.local_addr().unwrap().port();
            for question in [&[b'x'; 3][..], &[b'x'; 60_000], b"end"] {
                let expected = format!("{seen} {port} {}", question.len());
                assert_eq!(asks(&client, (to, host), question), expected, "{bound} {published}");
            }
            running.finish().ends(0);
        }
    });
}

#[test]
fn without_it_nobody_outside_is_heard() {
    everybody(Tier::Namespace, |place| {
        if !python(place) {
            return;
        }
        let port = free_port();
        let mut running =
            place.start(&[], &["python3", "-c", SERVER, "127.0.0.1", &port.to_string()]);
        running.printed("ready");
        let client = client("127.0.0.1").unwrap();
        client.connect(("127.0.0.1", port)).unwrap();
        client.send(b"end").unwrap();
        // The host's kernel says at once that nobody is there.
        let refused = client.recv(&mut [0; 16]).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        drop(running);
    });
}

/// Tries to reach somebody who did not ask, from the published socket and from another one.
const ESCAPES: &str = "
import socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(('0.0.0.0', 7004))
print('ready', flush=True)
data, peer = server.recvfrom(100)
witness = ('127.0.0.1', int(sys.argv[1]))
other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for socket_, to in ((server, witness), (other, witness), (other, peer)):
    try: socket_.sendto(b'escaped', to)
    except OSError as error: print(error)
server.sendto(b'answer', peer)
server.recvfrom(100)
";

#[test]
fn nobody_is_reached_who_did_not_ask_nor_from_another_port() {
    everybody(Tier::Namespace, |place| {
        if !python(place) {
            return;
        }
        let witness = client("127.0.0.1").unwrap();
        let at = witness.local_addr().unwrap();
        let host = free_port();
        let publish = format!("0.0.0.0:{host}:7004/udp");
        let argv = ["python3", "-c", ESCAPES, &at.port().to_string()];
        let mut running = place.start(&["--publish", &publish], &argv);
        running.printed("ready");
        let client = client("127.0.0.1").unwrap();
        assert_eq!(asks(&client, ("127.0.0.1", host), b"question"), "answer");
        // Whoever comes later is the first whom the witness hears.
        let control = UdpSocket::bind("127.0.0.1:0").unwrap();
        control.send_to(b"control", at).unwrap();
        let mut heard = [0; 16];
        let (count, _) = witness.recv_from(&mut heard).unwrap();
        assert_eq!(&heard[..count], b"control");
        client.send_to(b"end", ("127.0.0.1", host)).unwrap();
        running.finish().ends(0);
    });
}

#[test]
fn a_port_that_is_taken_outside_is_told_and_the_program_learns_it() {
    everybody(Tier::Namespace, |place| {
        if !python(place) {
            return;
        }
        let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let publish = format!("{port}:7005/udp");
        let script = "import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
try: s.bind(('127.0.0.1', 7005))
except OSError as e: print(e.errno)
s.bind(('127.0.0.1', 7006)); print('bound')";
        let ended = place.run(&["--publish", &publish], &["python3", "-c", script]);
        ended.ends(0).prints("98\nbound").says(&format!(
            "cannot publish 127.0.0.1:{port}/udp (--publish {publish}): Address already in use"
        ));
    });
}

/// Binds two ports, one after the other at the same one, as a server that is started anew does, and a low
/// one.
#[test]
fn a_port_can_be_bound_again_and_a_low_one_by_an_ordinary_user() {
    everybody(Tier::Namespace, |place| {
        if !python(place) {
            return;
        }
        let again = SERVER.replace("'ready'", "'again'");
        let script = format!("{SERVER}\nserver.close()\n{again}");
        let host = free_port();
        let publish = format!("{host}:53/udp");
        let argv = ["python3", "-c", &script, "127.0.0.1", "53"];
        let mut running = place.start(&["--publish", &publish], &argv);
        let client = client("127.0.0.1").unwrap();
        for word in ["ready 53", "again 53"] {
            running.printed(word);
            assert!(asks(&client, ("127.0.0.1", host), b"end").ends_with(" 3"));
        }
        running.finish().ends(0);
    });
}

/// It is so when the last one that has the socket is gone, however it ended, and until the port is bound anew.
#[test]
fn a_port_that_no_program_has_any_more_is_the_hosts() {
    const SERVER: &str = "
import os, signal, socket
def bound():
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(('0.0.0.0', 7010)); return server
def serve(server): data, peer = server.recvfrom(100); server.sendto(data, peer)
def told(): open('go').read()
os.mkfifo('go'); server = bound(); other = os.fork()
if not other: signal.pause()
serve(server); server.close(); print('still', flush=True); told()
os.kill(other, 9); os.wait(); print('killed', flush=True); told()
server = bound(); print('again', flush=True); serve(server); told()
";
    everybody(Tier::Namespace, |place| {
        if !python(place) {
            return;
        }
        let host = free_port();
        let at = ("127.0.0.1", host);
        let go = || std::fs::write(place.project("go"), "go").unwrap();
        let is_free = || UdpSocket::bind(at).is_ok();
        let publish = format!("{host}:7010/udp");
        let argv = ["python3", "-c", SERVER];
        let mut running = place.start(&["-m", "--publish", &publish], &argv);
        let first = client("127.0.0.1").unwrap();
        first.connect(at).unwrap();
        // Nobody is there before it is bound.
        until("it is answered", || first.send(b"x").is_ok() && first.recv(&mut [0; 9]).is_ok());
        running.printed("still");
        // Another process has it.
        assert!(!is_free());
        go();
        running.printed("killed");
        until("the port is the host's", is_free);
        go();
        running.printed("again");
        let second = client("127.0.0.1").unwrap();
        assert_eq!(asks(&second, at, b"hello"), "hello");
        go();
        let ended = running.finish();
        ended.ends(0).says("allowed datagrams");
        assert_eq!(ended.err.matches("closed datagrams").count(), 2, "{}", ended.err);
    });
}

#[test]
fn dig_asks_a_server_inside() {
    everybody(Tier::Namespace, |place| {
        if !python(place) || !place.has("dig", "-v") {
            println!("left out: there is no dig");
            return;
        }
        let server = "
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); server.bind(('127.0.0.1', 5353))
print('ready', flush=True)
query, peer = server.recvfrom(512)
end = query.index(b'\\0', 12) + 5
server.sendto(query[:2] + b'\\x85\\x80\\0\\1\\0\\1\\0\\0\\0\\0' + query[12:end]
    + b'\\xc0\\x0c\\0\\1\\0\\1\\0\\0\\0\\x3c\\0\\4\\xc0\\0\\2\\x35', peer)
";
        let host = free_port();
        let publish = format!("{host}:5353/udp");
        // The filter's own resolver does not come between.
        for options in [&["--publish", &publish][..], &["--publish", &publish, "-n", "a.test"]] {
            let mut running = place.start(options, &["python3", "-c", server]);
            running.printed("ready");
            let asked = format!("dig +short +tries=1 -p {host} @127.0.0.1 name.test A");
            assert_eq!(place.shell(&asked).quiet(), "192.0.2.53");
            running.finish().ends(0);
        }
    });
}

/// More peers than are served at once: those that are served go on to be, and descriptors stay bounded.
#[test]
fn peers_are_bounded_and_each_is_recorded() {
    const MOST: u32 = 1024;
    everybody(Tier::Namespace, |place| {
        if !python(place) {
            return;
        }
        let host = free_port();
        let publish = format!("{host}:7007/udp");
        let argv = ["python3", "-c", SERVER, "127.0.0.1", "7007"];
        let mut running = place.start(&["-m", "--publish", &publish], &argv);
        running.printed("ready");
        let first = client("127.0.0.1").unwrap();
        asks(&first, ("127.0.0.1", host), b"hello");
        let sockets = Path::new("/proc").join(running.pid().to_string()).join("fd");
        // Sockets only: files come and go in between.
        let is_socket = |link: std::path::PathBuf| link.to_string_lossy().starts_with("socket:");
        let count = || {
            let all = std::fs::read_dir(&sockets).unwrap().flatten();
            all.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(is_socket)).count()
        };
        let before = count();
        // Different peers by one port: addresses of the loopback.
        let port = free_port();
        for number in 1..=MOST {
            let from = Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 1, 0, 0)) + number);
            let client = UdpSocket::bind((from, port)).unwrap();
            client.set_read_timeout(Some(LONG)).unwrap();
            if number == MOST {
                // One too many.
                client.send_to(b"hello", ("127.0.0.1", host)).unwrap();
            } else {
                assert_eq!(
                    asks(&client, ("127.0.0.1", host), b"hello"),
                    format!("{from} {port} 5")
                );
            }
        }
        asks(&first, ("127.0.0.1", host), b"hello");
        assert_eq!(count() - before, MOST as usize - 1);
        asks(&first, ("127.0.0.1", host), b"end");
        running.finish().ends(0).says("1024 peers are served at this port at once");
        let logged = place.ringfence(["logs", "latest", "--json"]).quiet();
        let peers = logged.matches("\"127.1.").count();
        assert!(peers >= MOST as usize, "{peers}: {}", &logged[..logged.len().min(2000)]);
    });
}

/// Says `ready`; `many NUMBER` is answered with so many datagrams of 1,000 bytes, `count` with how many came before it,
/// by whomever, in a queue that was asked to be long.
const COUNTER: &str = "
import socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
server.bind(('127.0.0.1', 7009))
print('ready', flush=True)
count, data = 0, b''
while data != b'end':
    data, peer = server.recvfrom(70000)
    if data == b'hello': server.sendto(data, peer)
    elif data == b'count': server.sendto(b'%d' % count, peer)
    elif data[:5] == b'many ':
        for _ in range(int(data[5:])): server.sendto(bytes(1000), peer)
    else: count += 1
";

/// So many as a queue of the largest size that an ordinary user may have by default holds.
#[test]
fn what_comes_at_once_arrives_as_far_as_queues_are_long() {
    const PEERS: usize = 250;
    const BURST: usize = 500;
    const ANSWERS: usize = 150;
    everybody(Tier::Namespace, |place| {
        if !python(place) {
            return;
        }
        let host = free_port();
        let publish = format!("{host}:7009/udp");
        let mut running = place.start(&["--publish", &publish], &["python3", "-c", COUNTER]);
        running.printed("ready");
        let to = ("127.0.0.1", host);
        // New peers, each of whom waits for its answer and asks no second time.
        let peers: Vec<_> = (0..PEERS).map(|_| client("127.0.0.1").unwrap()).collect();
        for peer in &peers {
            peer.send_to(b"hello", to).unwrap();
        }
        for peer in &peers {
            assert_eq!(peer.recv(&mut [0; 16]).expect("each is answered"), 5);
        }
        // From one that is known.
        let known = &peers[0];
        rustix::net::sockopt::set_socket_recv_buffer_size(known, 8 << 20).unwrap();
        for _ in 0..BURST {
            known.send_to(&[b'x'; 40], to).unwrap();
        }
        assert_eq!(asks(known, to, b"count"), BURST.to_string());
        // And to it.
        known.send_to(format!("many {ANSWERS}").as_bytes(), to).unwrap();
        for _ in 0..ANSWERS {
            assert_eq!(known.recv(&mut [0; 2000]).expect("each arrives"), 1000);
        }
        known.send_to(b"end", to).unwrap();
        running.finish().ends(0);
    });
}

#[test]
fn the_other_tiers_refuse() {
    everybody(Tier::Process, |place| {
        let ended = place.run(&["--publish", "7008/udp"], &["true"]);
        ended.ends(125).says("needs a network namespace");
    });
    everybody(Tier::Namespace, |place| {
        let filtered = ["--publish", "5300:53/udp", "-n", "a.test"];
        place.run(&filtered, &["true"]).ends(125).says("are answered by ringfence itself");
        place.run(&["--publish", "5300/icmp"], &["true"]).ends(125).says("is no port to publish");
    });
}

/// Other users of the host, whatever they set on their sockets, get neither the port nor what is for another peer.
#[test]
fn nobody_takes_the_port_or_a_flow_from_others() {
    /// Binds with all that lets sockets share a port; then as one peer's number at every other address.
    const THIEF: &str = "
import errno, socket, sys
port, peer = map(int, sys.argv[1:])
def bound(address, number):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for option in socket.SO_REUSEADDR, socket.SO_REUSEPORT: s.setsockopt(socket.SOL_SOCKET, option, 1)
    try: s.bind((address, number)); return s
    except OSError as error: assert error.errno == errno.EADDRINUSE, error
for address in '127.0.0.1', '0.0.0.0':
    assert not bound(address, port) and not bound(address, peer), address
thief = bound('127.0.0.2', peer); thief.settimeout(60)
thief.sendto(b'four', ('127.0.0.1', port)); print(thief.recv(99).decode())
thief.setblocking(False)
try: print(thief.recv(99))
except BlockingIOError: print('no more')
";
    everybody(Tier::Namespace, |place| {
        if !python(place) {
            return;
        }
        let host = free_port();
        let publish = format!("127.0.0.1:{host}:7003/udp");
        let argv = ["python3", "-c", SERVER, "127.0.0.1", "7003"];
        let mut running = place.start(&["--publish", &publish], &argv);
        running.printed("ready");
        let (one, other) = (client("127.0.0.1").unwrap(), client("127.0.0.1").unwrap());
        let number = |client: &UdpSocket| client.local_addr().unwrap().port();
        let to = ("127.0.0.1", host);
        assert_eq!(asks(&one, to, b"x"), format!("127.0.0.1 {} 1", number(&one)));
        let mut thief = std::process::Command::new("python3");
        thief.args(["-c", THIEF, &host.to_string(), &number(&one).to_string()]);
        if rustix::process::geteuid().is_root() {
            std::os::unix::process::CommandExt::uid(&mut thief, 65_534);
        }
        let stolen = thief.output().unwrap();
        let expected = format!("127.0.0.2 {} 4\nno more\n", number(&one));
        let err = String::from_utf8_lossy(&stolen.stderr);
        assert_eq!(String::from_utf8_lossy(&stolen.stdout), expected, "{err}");
        // Those who were there are answered as before, each its own.
        for (client, length) in [(&other, 2), (&one, 5), (&other, 3)] {
            let question = vec![b'x'; length];
            assert_eq!(
                asks(client, to, &question),
                format!("127.0.0.1 {} {length}", number(client))
            );
        }
        assert_eq!(asks(&other, to, b"end"), format!("127.0.0.1 {} 3", number(&other)));
        running.finish().ends(0);
    });
}
