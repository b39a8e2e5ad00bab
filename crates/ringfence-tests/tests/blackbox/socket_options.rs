//! Options of a socket of the host's: none sends its packets past where it was allowed to go.

use ringfence_tests::{Place, Tier, everywhere};

/// Tries options on TCP sockets of both families: a line with the name and the errno of each. Headers of routing name a
/// documentation address; what is done is looked at, not sent.
const OPTIONS: &str = r#"
import ctypes, errno, os, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
here = b'\0' * 16
there = socket.inet_pton(socket.AF_INET6, '2001:db8::1')
segments = struct.pack('BBBBBBH', 0, 4, 4, 1, 1, 0, 0) + here + there
# The loopback is the first one.
interface = struct.pack('i', 1)
packet = there + interface
padded = bytes([0, 0, 1, 4, 0, 0, 0, 0])
one = struct.pack('i', 1)
group, sender, group6 = socket.inet_aton('232.1.2.3'), socket.inet_aton('192.0.2.7'), socket.inet_pton(socket.AF_INET6, 'ff35::1')
def place(address):
    if len(address) == 4: return struct.pack('HH4s', socket.AF_INET, 0, address).ljust(128, b'\0')
    return struct.pack('HHI16s', socket.AF_INET6, 0, 0, address).ljust(128, b'\0')
joined = struct.pack('i4x', 1) + place(group)
joined6 = struct.pack('i4x', 1) + place(group6)
elsewhere = [
    ('group', 4, 0, 42, joined), ('group', 6, 41, 42, joined6), ('group of a sender', 4, 0, 39, group + socket.inet_aton('127.0.0.1') + sender),
    ('group and sender', 4, 0, 46, joined + place(sender)), ('group and sender', 6, 41, 46, joined6 + place(there)),
    ('routing', 6, 41, 57, segments), ('old routing', 6, 41, 5, segments), ('packet info', 6, 41, 50, packet),
    ('destination options', 6, 41, 59, padded), ('interface', 6, 41, 76, interface), ('family', 6, 41, 1, one),
    ('route', 4, 0, 4, bytes([131, 7, 4, 192, 0, 2, 1, 0])), ('interface', 4, 0, 50, interface),
    ('device', 4, 1, 25, b'lo\0'), ('index', 4, 1, 62, interface), ('link', 4, 1, 5, one), ('mark', 4, 1, 36, one),
]
usual = [
    ('no delay', 4, 6, 1, one), ('alive', 4, 1, 9, one), ('again', 4, 1, 2, one), ('service', 4, 0, 1, one),
    ('hops', 4, 0, 2, one), ('size', 4, 0, 10, one), ('late port', 4, 0, 24, one), ('only', 6, 41, 26, one),
    ('class', 6, 41, 67, one), ('hops', 6, 41, 16, one), ('service of both', 6, 0, 1, one),
]
def tried(kinds):
    for name, version, level, option, value in kinds:
        s = socket.socket(socket.AF_INET if version == 4 else socket.AF_INET6)
        # The kernel takes the lower half of a register.
        for high in 0, 1 << 32:
            got = libc.syscall(ctypes.c_long(54), ctypes.c_long(s.fileno()), ctypes.c_long(level | high),
                ctypes.c_long(option | high), ctypes.c_char_p(value), ctypes.c_long(len(value)))
            print(name, version, 'done' if got == 0 else errno.errorcode[ctypes.get_errno()])
tried(elsewhere); print('usual'); tried(usual)
"#;

fn tried(place: &Place, options: &[&str]) -> (Vec<String>, Vec<String>) {
    let said = place.run(options, &["python3", "-c", OPTIONS]).well();
    let (elsewhere, usual) = said.split_once("usual\n").expect("both lists");
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    (lines(elsewhere), lines(usual))
}

/// A routing header (RFC 8754) has each host that it names sent what is for the connection's other end; a socket that the
/// launcher connected, or that was accepted at a published port, is one of the host's own network.
#[test]
fn no_option_of_a_socket_sends_its_packets_elsewhere() {
    everywhere(|place| {
        if !cfg!(target_arch = "x86_64") || !place.has("python3", "--version") {
            return;
        }
        let who = format!("{:?} {:?}", place.person, place.tier);
        let mut with_sockets_of_the_host: Vec<&[&str]> = Vec::new();
        if place.tier == Tier::Process {
            with_sockets_of_the_host.push(&["-n", "site.test"]);
        } else if place.publishes() {
            with_sockets_of_the_host.push(&["--publish", "7005"]);
            with_sockets_of_the_host.push(&["--publish", "7005", "-n", "site.test"]);
        }
        for options in with_sockets_of_the_host {
            let (elsewhere, usual) = tried(place, options);
            let others: Vec<_> = elsewhere.iter().filter(|line| !line.ends_with("EPERM")).collect();
            assert_eq!(others, [""; 0], "{who} {options:?}");
            let others: Vec<_> = usual.iter().filter(|line| !line.ends_with("done")).collect();
            assert_eq!(others, [""; 0], "{who} {options:?}");
            assert_eq!(usual.len(), 22);
        }
        // Sockets of its own network are its own to send by: the same calls, so that the others are refused by a rule.
        if place.tier == Tier::Namespace {
            let (elsewhere, _) = tried(place, &["-n", "site.test"]);
            // A second time the group is joined already.
            for name in [
                "routing 6 done",
                "packet info 6 done",
                "index 4 done",
                "group 4 done",
                "group 6 done",
                "group and sender 4 done",
            ] {
                assert!(elsewhere.iter().any(|line| line == name), "{who} {name}: {elsewhere:?}");
            }
        }
    });
}

/// `TCP_ULP` (`linux/tcp.h`) makes an SMC socket of a TCP one; outside the kernel says of a protocol that there is none,
/// and of the sandbox's rule nothing.
#[test]
fn no_socket_becomes_one_of_another_transport() {
    const BECOMES: &str = r#"
import socket
for family in socket.AF_INET, socket.AF_INET6:
    try:
        socket.socket(family).setsockopt(socket.IPPROTO_TCP, 31, b"nothing-like-it")
        print("done")
    except OSError as error:
        print(error.errno)
"#;
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        let ran = std::process::Command::new("python3").args(["-c", BECOMES]).output();
        let outside = String::from_utf8(ran.expect("python3").stdout).expect("numbers");
        assert_eq!(outside, "2\n2\n", "the kernel's own answer");
        let who = format!("{:?} {:?}", place.person, place.tier);
        let mut networks = vec!["host"];
        if place.tier == Tier::Namespace {
            networks.push("none");
        }
        for network in networks {
            let said = place.run(&["--network", network], &["python3", "-c", BECOMES]).well();
            assert_eq!(said, "1\n1", "{who} {network}");
        }
    });
}
