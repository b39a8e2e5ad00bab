//! Floods of datagrams at a published UDP port, and of answers: who was served before goes on to be, as do
//! connections of the same session, and what the launcher keeps of strangers is bounded.

use crate::clients::server;
use crate::network_told::rows;
use ringfence_tests::{Place, Running, Tier, everybody, free_port, until};
use serde_json::Value::Null;
use std::io::Write;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// How long an answer is waited for before the question is put again: datagrams are lost in a flood.
const AGAIN: Duration = Duration::from_millis(200);
/// How often.
const TRIES: usize = 200;
/// Flows of one port at the same time.
const MOST: usize = 1024;
/// Sockets that a moment may add: those of flows that have just ended, of questions and connections.
const PASSING: usize = 64;

/// To `ask` it answers what a server of the host's says over TCP, through the filter; to `flood` with datagrams
/// for as long as the peer is there; to others not at all.
const SERVER: &str = "
import socket, sys, threading
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(('127.0.0.1', 7011))
print('ready', flush=True)
def flood(peer):
    while True:
        try: server.sendto(b'x' * 100, peer)
        except OSError: pass
while True:
    data, peer = server.recvfrom(70000)
    if data == b'flood': threading.Thread(target=flood, args=(peer,), daemon=True).start()
    elif data.startswith(b'ask'):
        client = socket.create_connection(('127.0.0.1', int(sys.argv[1])), 60)
        server.sendto(data + b' ' + client.recv(100), peer)
    elif data == b'end': break
";

fn udp(from: (Ipv4Addr, u16)) -> UdpSocket {
    let socket = UdpSocket::bind(from).unwrap();
    socket.set_read_timeout(Some(AGAIN)).unwrap();
    socket
}

/// Puts a question until it is answered.
fn asks(client: &UdpSocket, host: u16, number: usize) {
    let question = format!("ask{number}");
    let expected = format!("{question} served");
    let mut answer = [0; 200];
    for _ in 0..TRIES {
        client.send_to(question.as_bytes(), ("127.0.0.1", host)).unwrap();
        // An answer to a question that was put twice may come late.
        while let Ok(count) = client.recv(&mut answer) {
            if answer[..count] == *expected.as_bytes() {
                return;
            }
        }
    }
    panic!("question {number} was not answered");
}

/// Sockets of a process.
fn sockets(running: &Running) -> usize {
    let all = Path::new("/proc").join(running.pid().to_string()).join("fd");
    let links = std::fs::read_dir(all).unwrap().flatten();
    let is_socket = |link: std::path::PathBuf| link.to_string_lossy().starts_with("socket:");
    links.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(is_socket)).count()
}

fn start(place: &Place, limit: &str) -> (Running, u16) {
    place.file("home/project/server.py", SERVER);
    let word = server(|client| client.write_all(b"served"));
    let host = free_port();
    let run = format!(
        "{limit} exec $RF -n localhost:{word} --publish 0.0.0.0:{host}:7011/udp -- python3 server.py {word}"
    );
    let mut running = place.shell_start(&run);
    running.printed("ready");
    (running, host)
}

/// Sends from ever other addresses, until it is told to end.
fn strangers(host: u16, end: &AtomicBool) {
    let port = udp((Ipv4Addr::UNSPECIFIED, 0)).local_addr().unwrap().port();
    for number in (1..=60_000).cycle().take_while(|_| !end.load(Relaxed)) {
        let from = Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 2, 0, 0)) + number);
        let socket = UdpSocket::bind((from, port));
        let _ = socket.map(|socket| socket.send_to(b"x", ("127.0.0.1", host)));
    }
}

/// Ends a flood when it is dropped, whatever happened.
struct Flooding<'a>(&'a AtomicBool);

impl Drop for Flooding<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn strangers_by_the_thousand_starve_nobody_and_leave_nothing() {
    everybody(Tier::Namespace, |place| {
        if !place.has("python3", "--version") {
            return;
        }
        let (running, host) = start(place, "");
        let before = sockets(&running);
        let client = udp((Ipv4Addr::LOCALHOST, 0));
        asks(&client, host, 0);
        let end = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let flooding = Flooding(&end);
            (0..2).for_each(|_| drop(scope.spawn(|| strangers(host, &end))));
            // Until all places have been taken, and for some time more.
            let mut most = 0;
            for number in 1.. {
                asks(&client, host, number);
                let now = sockets(&running);
                assert!(now <= before + MOST + PASSING, "{now} sockets, {before} before");
                most = most.max(now);
                if number >= 20 && most >= before + MOST / 2 {
                    break;
                }
            }
            drop(flooding);
        });
        asks(&client, host, usize::MAX);
        ends(running, &client, host);
    });
}

#[test]
fn where_descriptors_are_few_strangers_take_half() {
    everybody(Tier::Namespace, |place| {
        if !place.has("python3", "--version") {
            return;
        }
        let (running, host) = start(place, "ulimit -n 256;");
        let before = sockets(&running);
        let client = udp((Ipv4Addr::LOCALHOST, 0));
        asks(&client, host, 0);
        for number in 1..=400 {
            let from = Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 3, 0, 0)) + number);
            udp((from, 0)).send_to(b"x", ("127.0.0.1", host)).unwrap();
            if number % 50 == 0 {
                asks(&client, host, number as usize);
            }
        }
        let now = sockets(&running);
        assert!((before + 32..before + 128).contains(&now), "{now} sockets, {before} before");
        ends(running, &client, host);
    });
}

#[test]
fn answers_without_end_to_one_peer_leave_room_for_those_to_others() {
    everybody(Tier::Namespace, |place| {
        if !place.has("python3", "--version") {
            return;
        }
        let (running, host) = start(place, "");
        let greedy = [(); 2].map(|()| udp((Ipv4Addr::LOCALHOST, 0)));
        for peer in &greedy {
            until("it is answered without an end", || {
                let answered = peer.recv(&mut [0; 200]).is_ok();
                if !answered {
                    peer.send_to(b"flood", ("127.0.0.1", host)).unwrap();
                }
                answered
            });
        }
        let client = udp((Ipv4Addr::LOCALHOST, 0));
        (0..10).for_each(|number| asks(&client, host, number));
        // It still goes on.
        assert!(greedy.iter().all(|peer| peer.recv(&mut [0; 200]).is_ok()));
        ends(running, &client, host);
    });
}

/// Tells its first peer of each datagram, and answers nobody else.
const COUNTER: &str = "
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(('127.0.0.1', 7012))
print('ready', flush=True)
data, first = server.recvfrom(100)
server.sendto(data, first)
while data != b'end':
    data, peer = server.recvfrom(100)
    server.sendto(data, first)
";

#[test]
fn strangers_past_a_measure_are_counted_and_not_told_one_by_one() {
    const STRANGERS: usize = 2500;
    const TOLD: usize = 2048;
    everybody(Tier::Namespace, |place| {
        if !place.has("python3", "--version") {
            return;
        }
        place.file("home/project/counter.py", COUNTER);
        let host = free_port();
        let run = format!(
            "exec $RF -m --publish 0.0.0.0:{host}:7012/udp -- python3 counter.py 2>told.txt"
        );
        let mut running = place.shell_start(&run);
        running.printed("ready");
        let began = std::time::Instant::now();
        let first = udp((Ipv4Addr::LOCALHOST, 0));
        let heard = |from: &UdpSocket, what: &str| {
            let mut answer = [0; 100];
            until("it is heard", || {
                from.send_to(what.as_bytes(), ("127.0.0.1", host)).unwrap();
                let mut came =
                    || first.recv(&mut answer).is_ok_and(|n| answer[..n] == *what.as_bytes());
                came() || came()
            });
        };
        heard(&first, "first");
        for number in 0..STRANGERS as u32 {
            let from = Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 3, 0, 1)) + number);
            heard(&udp((from, 0)), &number.to_string());
        }
        heard(&first, "end");
        running.finish().ends(0);
        let told = std::fs::read_to_string(place.project("told.txt")).unwrap();
        let begun = told.lines().filter(|line| line.contains("allowed datagrams")).count();
        // One more with each second.
        let most = TOLD + 1 + began.elapsed().as_secs() as usize;
        assert!((TOLD..=most).contains(&begun), "{begun} of at most {most}");
        let more = STRANGERS + 1 - begun;
        let counted = format!("closed datagrams from {more} more peers to port 7012: 0 bytes sent");
        assert!(told.contains(&counted), "{counted:?} is not in {told}");
        let rows = rows(place, "network");
        let (counted, others): (Vec<_>, Vec<_>) =
            rows.iter().partition(|row| !row["peers"].is_null());
        assert_eq!((counted.len(), others.len()), (1, begun));
        let fields =
            ["host", "address", "port", "peers", "published"].map(|name| &counted[0][name]);
        assert_eq!(fields, [&Null, &Null, &Null, &more.into(), &7012.into()]);
        assert!(others.iter().all(|row| row["published"] == 7012 && row["host"] == row["address"]));
        let text = place.ringfence(["logs", "latest", "--kind", "network"]).quiet();
        let line = format!("udp from {more} more peers to port 7012 0 B out, ");
        assert!(text.contains(&line), "{text}");
    });
}

/// Has it end.
fn ends(running: Running, client: &UdpSocket, host: u16) {
    until("it has ended", || has_ended(client, host));
    running.finish().ends(0);
}

/// Asks it to end: whether nobody is there any more.
fn has_ended(client: &UdpSocket, host: u16) -> bool {
    client.connect(("127.0.0.1", host)).unwrap();
    client.send(b"end").is_err()
        || client
            .recv(&mut [0; 200])
            .is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
}
