//! `--tier vm`: a connection that is reset ends as one, on the other side too: what was cut off does not look complete.

use super::vm::{guests_of_one, start};
use ringfence_tests::{Running, Tier, everybody, free_port};
use rustix::net::sockopt::set_socket_linger;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// Says a word, reads to the end, and tells which one it was; with `reset`, it makes it after a byte.
const CLIENT: &str = "import socket, struct, sys\n\
    heard = 0\n\
    try:\n\
    \x20   client = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n\
    \x20   client.sendall(b'half')\n\
    \x20   if sys.argv[3:]:\n\
    \x20       client.recv(1)\n\
    \x20       client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))\n\
    \x20       client.close()\n\
    \x20       sys.exit()\n\
    \x20   while piece := client.recv(65536): heard += len(piece)\n\
    \x20   print(heard, 'ended')\n\
    except ConnectionResetError: print(heard, 'reset')\n";

/// A server in the guest that says a word and resets the connection, then reads one that is reset.
const SERVER: &str = "import socket, struct\n\
    server = socket.create_server(('127.0.0.1', 7001))\n\
    print('ready', flush=True)\n\
    client, _ = server.accept()\n\
    client.sendall(b'half')\n\
    client.recv(1)\n\
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))\n\
    client.close()\n\
    client, _ = server.accept()\n\
    client.sendall(b'.')\n\
    try:\n\
    \x20   while client.recv(100): pass\n\
    \x20   print('ended')\n\
    except ConnectionResetError: print('reset')\n";

fn reset(connection: TcpStream) {
    set_socket_linger(&connection, Some(Duration::ZERO)).unwrap();
}

/// Reads until a connection is reset.
fn heard_before_reset(mut connection: TcpStream) -> Vec<u8> {
    let (mut heard, mut piece) = (Vec::new(), [0; 100]);
    loop {
        match connection.read(&mut piece) {
            Ok(0) => panic!("an end after {heard:?}"),
            Ok(count) => heard.extend(&piece[..count]),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ConnectionReset);
                return heard;
            }
        }
    }
}

#[test]
fn a_connection_that_is_reset_is_no_complete_one_on_the_other_side() {
    guests_of_one(|place| {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port().to_string();
        let rule = format!("localhost:{port}");
        let client = |words: &[&str]| {
            start(place, &["-n", &rule], &[&["python3", "-c", CLIENT][..], words].concat())
        };
        let accept = || {
            let (mut connection, mut word) = (server.accept().unwrap().0, [0; 4]);
            connection.read_exact(&mut word).unwrap();
            assert_eq!(&word, b"half");
            connection
        };
        // Cut off by the server, and ended by it.
        for (cut, told) in [(true, "1000 reset"), (false, "1000 ended")] {
            let running = client(&["127.0.0.1", &port]);
            let mut connection = accept();
            connection.write_all(&[b'x'; 1000]).unwrap();
            if cut {
                reset(connection);
            } else {
                drop(connection);
            }
            assert_eq!(running.finish().well(), told);
        }
        // By the client.
        let running = client(&["127.0.0.1", &port, "reset"]);
        let mut connection = accept();
        connection.write_all(b".").unwrap();
        assert_eq!(heard_before_reset(connection), b"");
        running.finish().ends(0);
        // By the policy.
        client(&["192.0.2.1", "81"]).finish().ends(0).prints("0 reset");
    });
}

fn published(mut running: Running, port: u16) {
    running.printed("ready\n");
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut word = [0; 4];
    client.read_exact(&mut word).unwrap();
    client.write_all(b".").unwrap();
    assert_eq!((&word, heard_before_reset(client)), (b"half", Vec::new()));
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.read_exact(&mut word[..1]).unwrap();
    reset(client);
    running.finish().ends(0).prints("ready\nreset");
}

#[test]
fn so_is_one_to_a_port_that_a_guest_publishes() {
    guests_of_one(|place| {
        let port = free_port();
        let publish = format!("{port}:7001");
        published(start(place, &["--publish", &publish], &["python3", "-c", SERVER]), port);
    });
}

#[test]
fn so_is_one_to_a_port_that_is_published_without_a_guest() {
    everybody(Tier::Namespace, |place| {
        if place.has("python3", "--version") && place.publishes() {
            let port = free_port();
            let publish = format!("{port}:7001");
            published(place.start(&["--publish", &publish], &["python3", "-c", SERVER]), port);
        }
    });
}
