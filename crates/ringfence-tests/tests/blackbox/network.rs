//! The network inside: none by default, the host's when asked.

use ringfence_tests::{Place, Running, Tier, everybody, everywhere};
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

fn connect(port: u16) -> String {
    format!("exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected")
}

/// The host's network, for what does not need Landlock's scopes (Linux 6.12).
const HOST: [&str; 4] = ["--network", "host", "--allow-degraded", "landlock-scope"];

fn bash(place: &Place, options: &[&str], script: &str) -> ringfence_tests::Finished {
    place.run(options, &["bash", "-c", script])
}

#[test]
fn without_a_network_nothing_of_the_host_is_reached() {
    everywhere(|place| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let script = connect(listener.local_addr().unwrap().port());
        assert_eq!(place.shell(&script).well(), "connected");
        assert_eq!(bash(place, &HOST, &script).well(), "connected");
        for options in [&[][..], &["--network", "none"]] {
            let ended = bash(place, options, &script);
            let word = match place.tier {
                Tier::Namespace => "Connection refused",
                Tier::Process => "Permission denied",
            };
            ended.ends(1).says(word);
        }
    });
}

#[test]
fn datagrams_do_not_leave_either() {
    everywhere(|place| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let port = socket.local_addr().unwrap().port();
        let send = format!("echo x > /dev/udp/127.0.0.1/{port}");
        let _ = bash(place, &[], &send);
        // The control's own datagram is the first and only one to have come.
        place.shell(&format!("echo control > /dev/udp/127.0.0.1/{port}")).ends(0);
        let mut bytes = [0; 16];
        let length = socket.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..length], b"control\n");
        assert!(socket.recv(&mut bytes).is_err());
    });
}

#[test]
fn names_are_not_asked_for() {
    everywhere(|place| {
        let ended = place.run(&[], &["getent", "ahosts", "ringfence-probe.example.org"]);
        ended.ends(2);
        assert_eq!(ended.text(), "");
    });
}

#[test]
fn the_loopback_is_the_sandboxs_own_and_works() {
    everybody(Tier::Namespace, |place| {
        let script = "
import socket
for family, address in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1')):
    server = socket.socket(family); server.bind((address, 0)); server.listen()
    client = socket.create_connection(server.getsockname()[:2]); client.send(b'x')
    assert server.accept()[0].recv(1) == b'x'
print('served', [name for _, name in socket.if_nameindex()])";
        if place.has("python3", "--version") {
            let served = place.run(&[], &["python3", "-c", script]).well();
            assert_eq!(served, "served ['lo']");
        }
    });
}

#[test]
fn abstract_sockets_of_the_host_are_out_of_reach() {
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        let name = format!("ringfence-test-{}", place.root().file_name().unwrap().display());
        let _listener =
            UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let script = format!("import socket; socket.socket(socket.AF_UNIX).connect('\\0{name}')");
        place.command("python3").args(["-c", &script]).status().unwrap();
        let control = place.shell(&format!("python3 -c \"{}\"", script.replace('\\', "\\\\")));
        control.ends(0);
        let mut options = vec![&[][..]];
        // Sharing the host's network namespace must not share these.
        if Tier::here().contains(&Tier::Process) {
            options.push(&["--network", "host"]);
        }
        for options in options {
            let ended = place.run(options, &["python3", "-c", &script]);
            ended.ends(1);
            assert!(
                ["Errno 1]", "Errno 13]", "Errno 111]"]
                    .iter()
                    .any(|errno| ended.err.contains(errno)),
                "{options:?}: {}",
                ended.err
            );
        }
    });
}

#[test]
fn a_socket_of_the_host_is_shown_only_when_named() {
    everybody(Tier::Namespace, |place| {
        if !place.has("python3", "--version") {
            return;
        }
        let path = place.directory("outside").join("socket");
        let _listener = UnixListener::bind(&path).unwrap();
        place.person.owns(&path);
        let path = path.to_str().unwrap();
        let script = format!("import socket; socket.socket(socket.AF_UNIX).connect('{path}')");
        place.run(&[], &["python3", "-c", &script]).ends(1).says("No such file");
        place.run(&["--allow-socket", path], &["python3", "-c", &script]).ends(0);
    });
    everybody(Tier::Process, |place| {
        let path = place.directory("outside").join("socket");
        let _listener = UnixListener::bind(&path).unwrap();
        place.person.owns(&path);
        let path = path.display().to_string();
        place.run(&["--allow-socket", &path], &["true"]).ends(125).says("--tier namespace");
    });
}

#[test]
fn a_feature_shows_the_socket_that_its_variable_names_now() {
    everybody(Tier::Namespace, |place| {
        if !place.has("python3", "--version") {
            return;
        }
        let bind = |name: &str| {
            let path = place.directory("outside").join(name);
            let listener = UnixListener::bind(&path).unwrap();
            place.person.owns(&path);
            (path.display().to_string(), listener)
        };
        let ((one, _one), (other, _other)) = (bind("one"), bind("other"));
        let secret = place.file("outside/secret", "a secret").display().to_string();
        let script = "import os, socket, sys\nfor path in sys.argv[1:]:\n  try:\n    \
                      socket.socket(socket.AF_UNIX).connect(path); print('connected')\n  \
                      except OSError as e: print(e.errno, os.path.lexists(path))";
        let ask = |feature: &str, variable: &str, value: &str| {
            let mut command = place.ringfence_run();
            command.env(variable, value).args(["--feature", feature, "--", "python3", "-c"]);
            command.args([script, &one, &other, &secret]);
            let ended = Running::start(command).finish();
            ended.ends(0).text() + "\n"
        };
        let (shown, hidden) = ("connected\n", "2 False\n");
        let bus = |path: &str| format!("unix:path={path},guid=00");
        for (feature, variable, values) in [
            ("wayland", "WAYLAND_DISPLAY", [one.clone(), other.clone(), secret.clone()]),
            ("x11", "DISPLAY", [one.clone(), format!("{other}.0"), secret.clone()]),
            ("pulseaudio", "PULSE_SERVER", [&one, &other, &secret].map(|at| format!("unix:{at}"))),
            ("dbus", "DBUS_SESSION_BUS_ADDRESS", [bus(&one), bus(&other), bus(&secret)]),
        ] {
            let [first, second, no_socket] = values;
            // The first start's plan is for the first value alone.
            for _ in 0..2 {
                assert_eq!(ask(feature, variable, &first), [shown, hidden, hidden].concat());
            }
            assert_eq!(ask(feature, variable, &second), [hidden, shown, hidden].concat());
            assert_eq!(ask(feature, variable, &no_socket), [hidden; 3].concat(), "{feature}");
        }
        assert_eq!(std::fs::read_to_string(&secret).unwrap(), "a secret");
    });
}

#[test]
fn families_and_kinds_of_sockets_with_more_holes_than_users_are_refused() {
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        let script = "
import socket, errno
def errno_of(*args):
    try: socket.socket(*args); return 'made'
    except OSError as error: return errno.errorcode[error.errno]
print(errno_of(17, 3, 0), errno_of(40, 1, 0), errno_of(16, 3, 15), errno_of(38, 5, 0),
      errno_of(socket.AF_INET, socket.SOCK_RAW, 1), errno_of(socket.AF_INET, socket.SOCK_STREAM, 262),
      errno_of(socket.AF_INET, socket.SOCK_STREAM, 132))";
        let seen = place.run(&HOST, &["python3", "-c", script]).well();
        let family = "EAFNOSUPPORT";
        assert_eq!(seen, format!("{family} {family} {family} {family} EPERM EPERM EPERM"));
        let control = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 17); \
                       socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); socket.socketpair()";
        place.run(&HOST, &["python3", "-c", control]).ends(0);
    });
}
