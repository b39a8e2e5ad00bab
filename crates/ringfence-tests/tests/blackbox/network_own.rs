//! What is the host's own and stays so: its loopback by whatever address, its sockets; and what goes along with a network.

use crate::clients::server;
use crate::network_told::proxy;
use ringfence_tests::{Person, Place, Running, Tier, binary, everybody, everywhere, free_port};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

fn python(place: &Place) -> bool {
    place.has("python3", "--version")
}

fn serving() -> u16 {
    server(|client| {
        let _ = client.read(&mut [0; 4096])?;
        client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nserved")
    })
}

/// What is written for all of IPv4 is no grant of what listens on the host's loopback alone.
#[test]
fn no_range_leads_to_the_hosts_loopback() {
    everywhere(|place| {
        let port = serving();
        let localhost = format!("localhost:{port}");
        let ask = |address: &str, rule: &str| {
            let url = format!("http://{address}:{port}/");
            let through = ["curl", "-sS", "-m", "60", "-x", "http://127.0.0.1:1022", &url];
            place.run(&["-n", rule], &through).ends(0).text()
        };
        for net in ["0.0.0.0/0", "126.0.0.0/7", "0.0.0.0/1"] {
            let rule = format!("{net}:{port}");
            for address in ["127.0.0.1", "0.0.0.0", "127.0.0.2"] {
                let told = ask(address, &rule);
                assert!(told.starts_with("ringfence: ") && !told.contains("served"), "{told}");
                assert!(!told.contains("--allow-host 0.0.0.0"), "{told}");
                let to = format!("{address}:{port}");
                place.ringfence(["why", "-n", &rule, "--", "connect", &to]).ends(1);
            }
        }
        // The control, by all that connect(2) takes for it: by the proxy, by itself, and as `why` says.
        for address in ["127.0.0.1", "0.0.0.0"] {
            assert_eq!(ask(address, &localhost), "served");
            let url = format!("http://{address}:{port}/");
            let by_itself = place.run(&["-n", &localhost], &["curl", "-sS", "-m", "60", &url]);
            assert_eq!(by_itself.ends(0).text(), "served");
            let to = format!("{address}:{port}");
            place.ringfence(["why", "-n", &localhost, "--", "connect", &to]).ends(0);
        }
        assert!(ask("127.0.0.2", &localhost).contains("only 127.0.0.1 and ::1 are granted"));
        for zero in ["0.0.0.0", "[::]", "0.0.0.0/32"] {
            let rule = format!("{zero}:{port}");
            place.run(&["-n", &rule], &["true"]).ends(125).says("write `localhost:PORT`");
        }
    });
}

/// Python's and Java's own servers serve such requests, for whatever host they name.
#[test]
fn a_request_line_of_odd_bytes_names_no_other_host() {
    everywhere(|place| {
        if !python(place) {
            return;
        }
        let port = serving();
        let through = format!("http://127.0.0.1:{}", proxy(port));
        let script = "import socket
def ask(line):
    s = socket.create_connection(('site.test', 80), 60)
    s.sendall(line + b'\\r\\nHost: other.test\\r\\n\\r\\n')
    try: return s.recv(99)[-6:] == b'served'
    except ConnectionResetError: return False
odd = [b'GET\\xa0/\\xa0HTTP/1.1', b'GET\\x1c/ HTTP/1.1', b'\\x85GET / HTTP/1.1', b'G(T / HTTP/1.1', b'G\\nT / HTTP/1.1', b'G(T / x',
    b'G(\\tT / x', b'G(T / ', b'G(T / x\\r\\na: b\\r\\n ', b'G(T / x\\r\\na: b\\rc: d']
print(any([ask(line) for line in odd]), ask(b'SSH-2.0-x'), ask(b'(a / b) c'))";
        let mut command = place.ringfence_run();
        command.env("HTTP_PROXY", &through);
        command.args(["-n", "site.test", "--", "python3", "-c", script]);
        let ended = Running::start(command).finish();
        let expected = "False True False";
        assert_eq!(ended.ends(0).text(), expected);
    });
}

#[test]
fn a_directory_or_a_file_is_no_socket_to_show() {
    everywhere(|place| {
        let secret = place.file("outside/secret", "a secret").display().to_string();
        let directory = place.text("outside");
        for path in [&directory, &secret] {
            let ended = place.run(&["--allow-socket", path], &["cat", &secret]);
            ended.ends(125).says("it is no socket");
            assert_eq!(ended.text(), "");
        }
        assert_eq!(place.run(&["-r", &secret], &["cat", &secret]).well(), "a secret");
    });
}

/// Without it no TLS works where a corporate authority is known by a variable; what is more than that stays outside.
#[test]
fn certificates_that_a_variable_names_go_along_with_a_network() {
    const AUTHORITY: &str = "-----BEGIN CERTIFICATE-----\nMIIBqw==\n-----END CERTIFICATE-----\n";
    everywhere(|place| {
        let file = place.file("outside/ca.pem", AUTHORITY);
        let path = file.display().to_string();
        let ask = |options: &[&str]| {
            let mut command = place.ringfence_run();
            command.env("NODE_EXTRA_CA_CERTS", &path).env("NO_PROXY", ".corp.test").args(options);
            let script =
                "echo ${NODE_EXTRA_CA_CERTS-none} ${NO_PROXY-none}; cat \"$0\"; echo x >> \"$0\"";
            command.args(["--", "sh", "-c", script, &path]);
            Running::start(command).finish()
        };
        // The second start may use the first one's plan.
        for _ in 0..2 {
            let ended = ask(&["-n", "site.test"]);
            assert_eq!(ended.text() + "\n", format!("{path} none\n{AUTHORITY}"), "{}", ended.err);
        }
        assert!(!ask(&[]).text().contains("BEGIN"));
        let directory = place.text("outside");
        for (more, options) in [
            (&format!("{AUTHORITY}a secret: -----BEGIN PRIVATE KEY-----\n")[..], &[][..]),
            (AUTHORITY, &["--deny", &directory]),
        ] {
            place.file("outside/ca.pem", more);
            let ended = ask(&[&["-n", "site.test"], options].concat());
            assert_eq!(ended.text(), "none none");
            ended.says("NODE_EXTRA_CA_CERTS names ");
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), AUTHORITY);
    });
}

/// Go's settings may be where a variable says: in a tree, a run could choose there which hosts the next one may reach.
#[test]
fn settings_in_a_tree_choose_no_registry_for_the_next_run() {
    everywhere(|place| {
        let port = serving();
        let address = format!("http://127.0.0.1:{port}/");
        let settings = place.file("home/project/settings/go", "# mine\n");
        let next = |variable: &std::path::Path| {
            let mut command = place.ringfence_run();
            command.env("GOENV", variable);
            command.args(["-p", "go", "--", "curl", "-sS", "-m", "60", &address]);
            Running::start(command).finish()
        };
        let write = format!("echo GOPROXY=http://localhost:{port} > settings/go");
        place.run(&[], &["sh", "-c", &write]).ends(0);
        let refused = next(&settings);
        assert!(!refused.text().contains("served"), "{}", refused.text());
        refused.says("settings/go, which could be an earlier run's");
        // The control: where no run writes, the same settings count.
        let text = format!("GOPROXY=http://localhost:{port}\n");
        let hidden = place.file("home/.settings", text);
        assert_eq!(next(&hidden).ends(0).text(), "served");
    });
}

#[test]
fn a_port_is_published_for_both_families() {
    everybody(Tier::Namespace, |place| {
        if !python(place) || !place.publishes() || TcpListener::bind("[::1]:0").is_err() {
            return;
        }
        let port = free_port();
        let script = "import socket
for family, any in ((socket.AF_INET, '0.0.0.0'), (socket.AF_INET6, '::')):
    s = socket.socket(family)
    if family == socket.AF_INET6: s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    s.bind((any, 7006)); s.listen(); globals()[family.name] = s
print('ready', flush=True)
for s in AF_INET, AF_INET6: s.accept()[0].sendall(s.family.name.encode())";
        let (four, six) = (format!("{port}:7006"), format!("[::1]:{port}:7006"));
        for options in
            [["--publish", &four, "--publish", &six], ["--publish", &six, "--publish", &four]]
        {
            let mut running = place.start(&options, &["python3", "-c", script]);
            running.printed("ready");
            for (address, family) in [("127.0.0.1", "AF_INET"), ("::1", "AF_INET6")] {
                let mut said = String::new();
                TcpStream::connect((address, port)).unwrap().read_to_string(&mut said).unwrap();
                assert_eq!(said, family);
            }
            running.finish().ends(0);
        }
        let other = format!("{}:7006", port ^ 1);
        let refused = place.run(&["--publish", &four, "--publish", &other], &["true"]);
        refused.ends(125).says("is published already");
    });
}

/// The second address of a network, and one that a route alone has local, are the host's own as the first one is.
#[test]
fn all_leads_to_no_address_of_the_hosts_own() {
    const SCRIPT: &str = "import http.server, subprocess, sys, threading
run, why = sys.argv[1:5], [sys.argv[1], 'why']
ip = lambda *words: subprocess.run(['ip', *words], stderr=subprocess.DEVNULL).returncode == 0
assert ip('link', 'set', 'lo', 'up')
for address in ['203.0.113.200/24', '203.0.113.201/24']: assert ip('addr', 'add', address, 'dev', 'lo')
assert ip('route', 'add', 'local', '198.51.100.64/26', 'dev', 'lo')
addresses = ['203.0.113.200', '203.0.113.201', '198.51.100.70']
family = http.server.HTTPServer.address_family
if ip('addr', 'add', '2001:db8::201/64', 'dev', 'lo') and ip('-6', 'route', 'add', 'local', '2001:db8:77::/48', 'dev', 'lo'):
    addresses += ['[2001:db8::201]', '[2001:db8:77::5]']
    family = 10
class Served(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.send_header('Content-Length', '6'); self.end_headers(); self.wfile.write(b'served')
    def log_message(self, *words): pass
class Server(http.server.ThreadingHTTPServer):
    address_family = family
server = Server(('::' if family == 10 else '', 0), Served)
port = server.server_port
threading.Thread(target=server.serve_forever, daemon=True).start()
def ask(rule, place):
    curl = ['curl', '-sS', '-m', '60', '-x', 'http://127.0.0.1:1022', f'http://{place}/']
    told = subprocess.run([*run, '-n', rule, '--', *curl], stdout=subprocess.PIPE).stdout.decode().strip()
    decided = subprocess.run([*why, '-n', rule, '--', 'connect', place], stdout=subprocess.DEVNULL).returncode
    return (told, decided)
for address in addresses:
    place = f'{address}:{port}'
    told, decided = ask(f'*:{port}', place)
    print(place, decided, 'an address of this host itself' in told, ask(place, place))";
    everywhere(|place| {
        let apart = if place.person == Person::Root { "-n" } else { "-Urn" };
        let there = place.shell(&format!("unshare {apart} ip link set lo up")).code == 0;
        if !python(place) || !place.has("curl", "--version") || !there {
            return;
        }
        let mut command = place.command("unshare");
        command.args([apart, "python3", "-c", SCRIPT]).arg(binary());
        command.args(["run", "--tier", place.tier_name()]);
        let ended = Running::start(command).finish();
        let text = ended.ends(0).text();
        assert!(text.lines().count() >= 3, "{text}");
        for line in text.lines() {
            let refused_and_granted = line.ends_with(" 1 True ('served', 0)");
            assert!(refused_and_granted, "{text}\n{}", ended.err);
        }
    });
}
