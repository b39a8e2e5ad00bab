//! What must work, and what must not.

use crate::world::{Sandbox, Server, count, echo, keeps, publish, web, witness};
use ringfence_net::{Event, NetDecision, Way};

/// All scenarios.
pub const ALL: &[(&str, fn())] = &[
    ("nothing_starts_without_traffic", nothing_starts_without_traffic),
    ("a_name_is_reached_and_others_are_not", a_name_is_reached_and_others_are_not),
    ("ports_of_the_hosts_loopback", ports_of_the_hosts_loopback),
    ("addresses_of_the_host_itself", addresses_of_the_host_itself),
    ("own_loopback_stays_own", own_loopback_stays_own),
    ("names_that_lead_to_private_addresses", names_that_lead_to_private_addresses),
    ("the_client_must_mean_the_name", the_client_must_mean_the_name),
    ("every_request_of_a_connection_is_looked_at", every_request_of_a_connection_is_looked_at),
    ("a_request_in_disguise_is_looked_at", a_request_in_disguise_is_looked_at),
    ("dns_is_answered_at_any_address", dns_is_answered_at_any_address),
    ("other_packets_go_nowhere", other_packets_go_nowhere),
    ("proxies_obey_the_same_rules", proxies_obey_the_same_rules),
    ("bytes_arrive_whole_and_ends_are_passed_on", bytes_arrive_whole_and_ends_are_passed_on),
    ("a_thousand_at_once", a_thousand_at_once),
    ("a_slow_name_delays_nobody", a_slow_name_delays_nobody),
    ("deny_beats_allow", deny_beats_allow),
    ("without_nftables_the_allowed_ports_are_filtered", without_nftables),
    ("a_published_port_is_served_to_the_host", a_published_port_is_served_to_the_host),
    ("a_published_socket_reaches_nothing_else", a_published_socket_reaches_nothing_else),
    ("other_binds_are_the_sandboxs_own", other_binds_are_the_sandboxs_own),
];

const HOSTS: &str = "5.5.5.5 site.test\n2001:4860::5 six.test\n5.5.5.6 other.test\n";

fn nothing_starts_without_traffic() {
    let ran = Sandbox::new(&["site.test"], &[], HOSTS).run("echo ran", vec![]);
    assert_eq!((ran.code, ran.output.as_str(), ran.started), (0, "ran\n", false));
    assert_eq!(ran.decisions, []);
}

fn a_name_is_reached_and_others_are_not() {
    let sandbox = Sandbox::new(&["site.test", "six.test", "7.7.7.7:81"], &[], HOSTS);
    let script = r#"
        curl -sS -m 5 http://site.test/ || exit 1
        curl -sS -4 -m 5 http://SITE.test./ || exit 2
        curl -sS -6 -m 5 http://site.test/ || exit 3
        curl -sS -6 -m 5 http://six.test/ || exit 4
        curl -sS -m 5 http://7.7.7.7:81/ || exit 5
        curl -sS -m 5 http://[::ffff:7.7.7.7]:81/ || exit 6
        curl -s -m 5 http://other.test/; [ $? = 6 ] || exit 10
        reset 11 http://site.test:81/
        reset 12 http://5.5.5.5/
        reset 13 http://[2001:4860::5]/
        reset 14 http://7.7.7.7/
        reset 15 http://169.254.169.254/
        exit 0"#;
    let servers = vec![Server::new("[::]:80", web), Server::new("[::]:81", web)];
    let ran = sandbox.run(script, servers);
    assert_eq!(ran.code, 0);
    let expected = "served at [::ffff:5.5.5.5]:80\n".repeat(3)
        + "served at [2001:4860::5]:80\n"
        + &"served at [::ffff:7.7.7.7]:81\n".repeat(2);
    assert_eq!(ran.output, expected);
    let denied = |host: &str, port: u16| {
        let found = |d: &&NetDecision| {
            d.host.to_string() == host && d.port == port && matches!(d.event, Event::Denied(_))
        };
        ran.decisions.iter().find(found).unwrap_or_else(|| panic!("no denial of {host}:{port}"))
    };
    let decision = denied("site.test", 81).decision.as_ref().expect("a decision");
    assert_eq!(decision.remedy.as_deref(), Some("--allow-host site.test:81"));
    assert_eq!(denied("other.test", 0).way, Way::Dns(1));
    denied("169.254.169.254", 80);
    denied("six.test", 80);
}

fn ports_of_the_hosts_loopback() {
    let sandbox = Sandbox::new(&["localhost:18765", "localhost:18770-18771"], &[], "");
    let script = r#"
        for host in localhost 127.0.0.1 '[::1]'; do
            curl -sS --noproxy '*' -m 5 http://$host:18765/x || exit 1
        done
        curl -sS -m 5 http://127.0.0.1:18771/ || exit 2
        reset 10 http://localhost:18766/
        reset 11 http://127.0.0.2:18765/
        reset 12 http://127.0.0.1:1023/
        reset 13 http://10.0.0.1:18765/
        exit 0"#;
    let servers = vec![
        Server::new("127.0.0.1:18765", web),
        Server::new("127.0.0.1:18766", web),
        Server::new("[::1]:18771", web),
    ];
    let ran = sandbox.run(script, servers);
    assert_eq!(ran.code, 0);
    let expected = "served at 127.0.0.1:18765\n".repeat(3) + "served at [::1]:18771\n";
    assert_eq!(ran.output, expected);
}

fn own_loopback_stays_own() {
    let script = r#"
python3 - <<'EOF'
import socket
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"), (socket.AF_INET, "127.9.9.9")):
    server = socket.socket(family); server.bind((address, 0)); server.listen()
    client = socket.create_connection(server.getsockname()[:2], 5)
    served, peer = server.accept(); served.sendall(b"own"); print(client.recv(9).decode())
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); udp.bind(("127.0.0.1", 0))
other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); other.sendto(b"udp", udp.getsockname()); print(udp.recv(9).decode())
EOF"#;
    let ran = Sandbox::new(&["site.test"], &[], HOSTS).run(script, vec![]);
    assert_eq!(ran.output, "own\nown\nown\nudp\n");
    assert!(!ran.started);
}

fn names_that_lead_to_private_addresses() {
    let hosts = "127.0.0.1 a.test\n169.254.169.254 b.test\n10.0.0.1 c.test\n::1 d.test\n\
                 ::ffff:10.0.0.1 e.test\n100.64.0.1 f.test\nfd00:ec2::254 g.test\n10.0.0.2 h.test\n\
                 198.18.0.1 i.test\n0.0.0.0 j.test\n";
    let sandbox = Sandbox::new(&["*.test", "*", "10.0.0.2", "localhost:81"], &[], hosts);
    let script = r#"
        for name in a b c d e f g i j; do
            reset 1 http://$name.test/
        done
        curl -sS -m 5 http://h.test/"#;
    let servers = vec![Server::new("[::]:80", web)];
    let ran = sandbox.run(script, servers);
    assert_eq!((ran.code, ran.output.as_str()), (0, "served at [::ffff:10.0.0.2]:80\n"));
}

fn addresses_of_the_host_itself() {
    let hosts = "5.5.5.5 a.test\n7.7.7.7 own.test\n7.7.7.8 granted.test\n";
    let mut sandbox = Sandbox::new(&["*.test", "*", "7.7.7.8"], &[], hosts);
    sandbox.own = |address| address.to_string().starts_with("7.7.7.");
    let script = r#"
        reset 1 http://own.test/
        reset 2 http://7.7.7.7/
        for place in a.test 5.5.5.6 granted.test 7.7.7.8; do
            curl -sS -m 5 http://$place/
        done"#;
    let ran = sandbox.run(script, vec![Server::new("[::]:80", web)]);
    let expected = ["5.5.5.5", "5.5.5.6", "7.7.7.8", "7.7.7.8"]
        .map(|address| format!("served at [::ffff:{address}]:80\n"));
    assert_eq!((ran.code, ran.output), (0, expected.concat()));
    let why = "leads to 7.7.7.7 by this host's /etc/hosts, an address of this host itself";
    assert!(ran.decisions.iter().any(|one| format!("{:?}", one.event).contains(why)));
}

fn the_client_must_mean_the_name() {
    let sandbox = Sandbox::new(&["site.test", "8.8.8.8:443"], &["bad.test"], HOSTS);
    let script = r#"
python3 - <<'EOF'
import socket, ssl
def hello(name):
    context = ssl.create_default_context(); context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    try: context.wrap_bio(incoming, outgoing, server_hostname=name).do_handshake()
    except ssl.SSLWantReadError: return outgoing.read()
def send(host, port, *parts):
    s = socket.create_connection((host, port), 5)
    try:
        for part in parts: s.sendall(part)
        return s.recv(9).decode() or "closed"
    except ConnectionError: return "reset"
def http(host): return b"GET / HTTP/1.1\r\nHost: " + host + b"\r\n\r\n"
h = hello("site.test")
split = b"".join(b"\x16\x03\x01" + len(p).to_bytes(2, "big") + p for p in (h[5:60], h[60:]))
print(send("site.test", 443, h), send("site.test", 443, h[:9], h[9:]), send("site.test", 443, split),
      send("site.test", 80, http(b"site.test")), send("8.8.8.8", 443, hello(None)), send("8.8.8.8", 443, hello("any.test")),
      send("site.test", 443, b"\x00\x00\x00\x08\x04\xd2\x16\x2f"))
wrong = hello("evil.test")
bits = b"".join(b"\x16\x03\x01\x00\x01" + wrong[i:i+1] for i in range(5, len(wrong)))
print(send("site.test", 443, wrong), send("site.test", 443, bits),
      send("site.test", 443, hello(None)), send("site.test", 80, http(b"evil.test")), send("site.test", 443, http(b"evil.test")),
      send("site.test", 80, b"\r\n" + http(b"evil.test")), send("site.test", 80, b"GET http://evil.test/ HTTP/1.1\r\nHost: site.test\r\n\r\n"),
      send("site.test", 80, b"GET / HTTP/1.1\r\n", b"Host: site.test\r\nHost: evil.test\r\n\r\n"), send("8.8.8.8", 443, hello("bad.test")),
      send("site.test", 80, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), send("site.test", 443, b"\x15\3\1\0\2\1\x5a" + wrong),
      send("site.test", 443, b"\x15", b"\0\1\0\2\1\x70" + wrong), send("site.test", 443, b"\x80\x2e\1\3\1\0\3\0\0\0\x20" + 35 * b"x"))
EOF"#;
    let servers = vec![Server::new("[::]:80", witness), Server::new("[::]:443", witness)];
    let ran = sandbox.run(script, servers);
    let expected = format!("{}\n{}\n", ["got"; 7].join(" "), ["reset"; 13].join(" "));
    assert_eq!(ran.output, expected);
    let sentence = "the client connected to site.test and then asked for evil.test";
    let fronting = Event::Denied(sentence.to_owned());
    assert!(ran.decisions.iter().any(|decision| decision.event == fronting));
}

fn every_request_of_a_connection_is_looked_at() {
    let script = r#"
python3 - <<'EOF'
import socket
def connection(*requests):
    s = socket.create_connection(("site.test", 80), 5); out = []
    for r in requests:
        try: s.sendall(r); out.append(s.recv(99).decode().strip() or "closed")
        except ConnectionError: out.append("reset"); break
    return " ".join(out)
def get(host): return b"GET / HTTP/1.1\r\nHost: " + host + b"\r\n\r\n"
post = b"POST / HTTP/1.1\r\nHost: site.test\r\nContent-Length: 4\r\n\r\nbody"
chunks = b"POST / HTTP/1.1\r\nHost: site.test\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"
print(connection(get(b"site.test"), post, chunks, get(b"site.test")))
print(connection(get(b"site.test"), get(b"evil.test")))
print(connection(post, chunks, get(b"evil.test")))
print(connection(b"G", b"ET / HTTP/1.1\r\nHost: site.test\r\n\r\n", get(b"evil.test")))
EOF"#;
    let sandbox = Sandbox::new(&["site.test"], &[], HOSTS);
    let ran = sandbox.run(script, vec![Server::new("[::]:80", count)]);
    let expected = "35 59 78 35\n35 reset\n59 78 reset\n1 34 reset\n";
    assert_eq!(ran.output, expected);
}

/// Asking for another protocol, or in a way that only some servers take for a request, is no way past it.
fn a_request_in_disguise_is_looked_at() {
    let script = r#"
python3 - <<'EOF'
import socket
def connection(*requests):
    s = socket.create_connection(("site.test", 80), 5); out = []
    for r in requests:
        try: s.sendall(r); out.append(s.recv(99).decode()[:12].strip()[-3:] or "closed")
        except ConnectionError: out.append("reset"); break
    print(" ".join(out))
def get(host): return b"GET / HTTP/1.1\r\nHost: " + host + b"\r\n\r\n"
def upgrade(path): return b"GET %s HTTP/1.1\r\nHost: site.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n" % path
good, evil = get(b"site.test"), get(b"evil.test")
connection(upgrade(b"/ws"), b"\x81\x02hi", evil)
connection(upgrade(b"/"), good, good)
connection(upgrade(b"/"), evil)
connection(good, upgrade(b"/ws"))
connection(b"CONNECT site.test:80 HTTP/1.1\r\nHost: site.test:80\r\n\r\n", evil)
connection(b"POST / HTTP/1.0\r\nHost: site.test\r\nTransfer-Encoding: chunked\r\n\r\n")
connection(b" " + evil)
connection(evil.replace(b" ", b"\t"))
connection(evil.replace(b"/1.1", b"/1.1 "))
connection(evil.replace(b"GET /", b"GET /" + b"a" * 17000))
connection(b"GET /" + b"a" * 40000)
connection(good.replace(b"GET /", b"GET /" + b"a" * 31000))
EOF"#;
    let sandbox = Sandbox::new(&["site.test"], &[], HOSTS);
    let ran = sandbox.run(script, vec![Server::new("[::]:80", keeps)]);
    let expected =
        "101 4 35\n200 200 200\n200 reset\n200 reset\n".to_owned() + &"reset\n".repeat(7) + "200\n";
    assert_eq!(ran.output, expected);
}

fn dns_is_answered_at_any_address() {
    let script = r#"
python3 - <<'EOF'
import socket, struct
def query(name, kind):
    return b"\x07\x07\x01\x00\x00\x01" + bytes(6) + b"".join(bytes([len(l)]) + l.encode() for l in name.split(".")) + b"\0" + struct.pack(">HH", kind, 1)
def udp(server, name, kind, family=socket.AF_INET):
    s = socket.socket(family, socket.SOCK_DGRAM); s.settimeout(5); s.connect((server, 53)); s.send(query(name, kind)); return s.recv(999)
def tcp(server, name, kind):
    s = socket.create_connection((server, 53), 5); q = query(name, kind); s.sendall(struct.pack(">H", len(q)) + q)
    f = s.makefile("rb"); return f.read(struct.unpack(">H", f.read(2))[0])
def show(answer): return "%d/%d" % (answer[3] & 15, answer[7])
for server in ("8.8.8.8", "127.0.0.1", "127.0.0.53", "10.1.1.1"):
    print(show(udp(server, "site.test", 1)), show(tcp(server, "site.test", 1)), show(udp(server, "evil.test", 1)), show(udp(server, "site.test", 65)))
for server in ("::1", "2001:4860:4860::8888", "fd00::1"):
    print(show(udp(server, "site.test", 28, socket.AF_INET6)), show(tcp(server, "evil.test", 28)))
print(socket.gethostbyname("site.test") == socket.inet_ntoa(udp("9.9.9.9", "site.test", 1)[-4:]))
for bad in ("x" * 60 + ".evil.test", "site.test.evil"):
    try: print(socket.gethostbyname(bad))
    except socket.gaierror as e: print(e.errno == socket.EAI_NONAME)
EOF"#;
    let ran = Sandbox::new(&["site.test"], &[], HOSTS).run(script, vec![]);
    let expected = "0/1 0/1 3/0 0/0\n".repeat(4) + &"0/1 3/0\n".repeat(3) + &"True\n".repeat(3);
    assert_eq!(ran.output, expected);
}

fn other_packets_go_nowhere() {
    let script = r#"
python3 - <<'EOF'
import socket, errno
def attempt(act, *arguments):
    try: return act(*arguments) and "went"
    except OSError as e: return errno.errorcode.get(e.errno, e)
for family, address in ((socket.AF_INET, "8.8.8.8"), (socket.AF_INET6, "2001:4860::1"), (socket.AF_INET, "5.5.5.5")):
    s = socket.socket(family, socket.SOCK_DGRAM); s.settimeout(5); s.connect((address, 443)); s.send(b"quic")
    print(attempt(s.recv, 9))
for kind in ((socket.AF_INET, socket.SOCK_RAW, 1), (socket.AF_PACKET, socket.SOCK_RAW, 0), (socket.AF_INET6, socket.SOCK_RAW, 58)):
    print(attempt(socket.socket, *kind))
s = socket.socket(); print(attempt(s.bind, ("127.0.0.1", 1023)), attempt(s.bind, ("0.0.0.0", 53)))
EOF"#;
    let host = std::net::UdpSocket::bind("[::]:443").expect("a socket");
    let ran = Sandbox::new(&["5.5.5.5", "*"], &[], HOSTS).run(script, vec![]);
    let expected = "ECONNREFUSED\n".repeat(3) + &"EPERM\n".repeat(3) + "EACCES EACCES\n";
    assert_eq!(ran.output, expected);
    host.set_nonblocking(true).expect("nonblocking");
    assert!(host.recv(&mut [0; 9]).is_err(), "a packet reached the host");
}

fn proxies_obey_the_same_rules() {
    let script = r#"
        # By the last one it looks names up itself.
        for proxy in http://127.0.0.1:1022 http://[::1]:1022 socks5h://127.0.0.1:1022 socks5://127.0.0.1:1022; do
            curl -sS -m 5 -x $proxy http://site.test/ || exit 1
            curl -sS -m 5 -p -x $proxy http://site.test/ || exit 2
            curl -s -m 5 -p -x $proxy http://evil.test/ && exit 3
            curl -s -m 5 -p -x $proxy http://10.0.0.1/ && exit 4
            curl -s -m 5 -p -x $proxy http://127.0.0.1:80/ && exit 5
        done
        curl -s -m 5 -x http://127.0.0.1:1022 http://evil.test/
        curl -s -m 5 -x http://127.0.0.1:1022 http://private.site.test/
        curl -s -m 5 -o /dev/null -w '%{http_code}\n' -x http://127.0.0.1:1022 http://gone.site.test/
        reset 6 -x http://127.0.0.1:1022 -p -H 'Host: evil.test' http://site.test/
        exit 0"#;
    let mut sandbox = Sandbox::new(
        &["site.test", "private.site.test", "gone.site.test:80"],
        &[],
        "5.5.5.5 site.test\n10.0.0.1 private.site.test\n",
    );
    sandbox.resolv = "nameserver 127.0.0.1\n".to_owned();
    let ran = sandbox.run(script, vec![Server::new("[::]:80", web)]);
    assert_eq!(ran.code, 0);
    let expected = "served at [::ffff:5.5.5.5]:80\n".repeat(8)
        + "ringfence: no rule allows evil.test; to allow it: --allow-host evil.test\n"
        + "ringfence: private.site.test leads to 10.0.0.1 by this host's /etc/hosts, which is no public \
           address; if that is right, grant it too: --allow-host 10.0.0.1:80\n"
        + "502\n";
    assert_eq!(ran.output, expected);
}

fn bytes_arrive_whole_and_ends_are_passed_on() {
    let script = r#"
python3 - <<'EOF'
import socket, threading, hashlib, os
s = socket.create_connection(("site.test", 7000), 20)
f = s.makefile("rb"); print(f.readline().decode().strip())
block = os.urandom(1 << 20); count = 40; sent = hashlib.sha256()
def write():
    for _ in range(count): s.sendall(block); sent.update(block)
    s.shutdown(socket.SHUT_WR)
t = threading.Thread(target=write); t.start()
got = hashlib.sha256(); got.update(f.read(count << 20)); t.join()
print(got.digest() == sent.digest(), f.read().decode().strip())
EOF"#;
    let sandbox = Sandbox::new(&["site.test:7000"], &[], HOSTS);
    let ran = sandbox.run(script, vec![Server::new("[::]:7000", echo)]);
    assert_eq!(ran.output, "220 hello\nTrue bye\n");
    let bytes = 40 << 20;
    let whole = |d: &NetDecision| matches!(d.event, Event::Closed { sent, received, .. } if (sent, received) == (bytes, bytes + 14));
    assert!(ran.decisions.iter().any(whole));
}

fn a_thousand_at_once() {
    let script = r#"
python3 - <<'EOF'
import socket, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
all = [socket.create_connection(("site.test", 7000), 20) for _ in range(1000)]
for i, s in enumerate(all): s.sendall(b"%04d" % i)
def read(s, n):
    data = b""
    while len(data) < n: data += s.recv(n - len(data)) or exit("closed")
    return data
print(sum(read(s, 14) == b"220 hello\n%04d" % i for i, s in enumerate(all)))
EOF"#;
    let sandbox = Sandbox::new(&["site.test:7000"], &[], HOSTS);
    let ran = sandbox.run(script, vec![Server::new("[::]:7000", echo)]);
    assert_eq!(ran.output, "1000\n");
}

fn a_slow_name_delays_nobody() {
    let script = r#"
        curl -s -m 60 http://slow.test/ >/dev/null & slow=$!
        for i in 1 2 3 4 5 6 7 8; do curl -sS -m 5 http://site.test/ || exit 1; done
        kill -0 $slow || exit 2
        kill $slow"#;
    // A name server that hears and says nothing.
    let silent = std::net::UdpSocket::bind("9.9.9.9:53").expect("a socket");
    let mut sandbox = Sandbox::new(&["site.test", "slow.test"], &[], HOSTS);
    sandbox.resolv = "nameserver 9.9.9.9\n".to_owned();
    let ran = sandbox.run(script, vec![Server::new("[::]:80", web)]);
    assert_eq!((ran.code, ran.output), (0, "served at [::ffff:5.5.5.5]:80\n".repeat(8)));
    drop(silent);
}

fn deny_beats_allow() {
    let hosts = "5.5.5.5 a.site.test\n5.5.5.5 b.site.test\n6.6.6.6 c.site.test\n";
    let sandbox = Sandbox::new(&["*.site.test"], &["b.site.test:*", "6.6.6.0/24:*"], hosts);
    let script = r#"
        curl -sS -m 5 http://a.site.test/ || exit 1
        curl -s -m 5 http://b.site.test/; [ $? = 6 ] || exit 2
        reset 3 http://c.site.test/"#;
    let ran = sandbox.run(script, vec![Server::new("[::]:80", web)]);
    assert_eq!((ran.code, ran.output.as_str()), (0, "served at [::ffff:5.5.5.5]:80\n"));
}

fn a_published_port_is_served_to_the_host() {
    let script = r#"
python3 - <<'EOF'
import socket
for family, any in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
    s = socket.socket(family); s.bind((any, 7000)); s.listen()
    print("ready", s.getsockname()[:2], s.get_inheritable(), flush=True)
    c, peer = s.accept(); print(c.makefile().readline().strip()); c.sendall(b"answer\n"); s.close(); c.close()
EOF"#;
    let mut sandbox = Sandbox::new(&[], &[], "");
    publish(&mut sandbox.policy, "127.0.0.1", 17000, 7000);
    // Two connections: the second waits in the queue of the first socket's port until it is its.
    sandbox.outside = Some(|| {
        for text in ["one", "two"] {
            use std::io::{Read, Write};
            let mut answer = String::new();
            while answer.is_empty() {
                if let Ok(mut stream) = std::net::TcpStream::connect("127.0.0.1:17000") {
                    let _ = writeln!(stream, "{text}");
                    let _ = stream.read_to_string(&mut answer);
                }
            }
            assert_eq!(answer, "answer\n");
        }
    });
    let ran = sandbox.run(script, vec![]);
    let expected = "ready ('127.0.0.1', 17000) False\none\n\
                    ready ('::ffff:127.0.0.1', 17000) False\ntwo\n";
    assert_eq!(ran.output, expected);
}

fn a_published_socket_reaches_nothing_else() {
    let script = r#"
python3 - <<'EOF'
import socket, ctypes, errno, struct, threading
libc = ctypes.CDLL(None, use_errno=True)
def unspec(s): return libc.connect(s.fileno(), b"\0" * 16, 16)
def attempt(s, address):
    s.settimeout(1)
    try: s.connect(address); return "reached"
    except OSError as e: return "timed out" if isinstance(e, TimeoutError) else errno.errorcode.get(e.errno, e)
s = socket.socket(); s.bind(("0.0.0.0", 7000)); s.listen(); print("ready", flush=True)
c, peer = s.accept()
for victim in (c, s):
    print(unspec(victim), attempt(victim, ("127.0.0.1", 18765)))
    for name, value in ((socket.SO_DETACH_FILTER if hasattr(socket, "SO_DETACH_FILTER") else 27, b"\0\0\0\0"), (44, b"\0\0\0\0"), (25, b""), (62, b"\0\0\0\0")):
        try: victim.setsockopt(socket.SOL_SOCKET, name, value); print("taken off", name)
        except OSError as e: print(errno.errorcode[e.errno])
EOF"#;
    let mut sandbox = Sandbox::new(&[], &[], "");
    publish(&mut sandbox.policy, "127.0.0.1", 17000, 7000);
    sandbox.outside = Some(|| {
        let client = std::net::TcpStream::connect("127.0.0.1:17000").expect("connected");
        std::mem::forget(client);
    });
    // It listens at every address of the host: only the socket itself stands in the way.
    let ran = sandbox.run(script, vec![Server::new("127.0.0.1:18765", witness)]);
    let one = "0 timed out\nEPERM\nEPERM\nEPERM\nEPERM\n";
    assert_eq!(ran.output, format!("ready\n{one}{one}"));
}

fn other_binds_are_the_sandboxs_own() {
    let script = r#"
python3 - <<'EOF'
import socket, errno
def attempt(s, address):
    try: s.bind(address); return s.getsockname()
    except OSError as e: return errno.errorcode[e.errno]
print(attempt(socket.socket(), ("127.0.0.1", 7001)))
print(attempt(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), ("0.0.0.0", 7000)))
only = socket.socket(socket.AF_INET6); only.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
print(attempt(only, ("::", 7000))[:2])
print(attempt(socket.socket(socket.AF_UNIX), "\0name") == b"\0name")
print(attempt(socket.socket(), ("0.0.0.0", 7002)))
EOF"#;
    let mut sandbox = Sandbox::new(&[], &[], "");
    publish(&mut sandbox.policy, "127.0.0.1", 17000, 7000);
    publish(&mut sandbox.policy, "127.0.0.1", 18765, 7002);
    let ran = sandbox.run(script, vec![Server::new("127.0.0.1:18765", witness)]);
    let expected = "('127.0.0.1', 7001)\n('0.0.0.0', 7000)\n('::', 7000)\nTrue\nEADDRINUSE\n";
    assert_eq!(ran.output, expected);
}

fn without_nftables() {
    let mut sandbox = Sandbox::new(&["site.test", "localhost:18765"], &[], HOSTS);
    sandbox.by_ports = true;
    let script = r#"
        export RES_OPTIONS=use-vc
        curl -sS -m 5 http://site.test/ || exit 1
        curl -sS -6 -m 5 http://site.test/ || exit 2
        curl -sS -m 5 http://localhost:18765/ || exit 3
        reset 10 http://5.5.5.5/
        reset 11 http://site.test:81/
        reset 12 http://localhost:18766/
        reset 13 http://127.0.0.1:80/
        curl -s -m 5 http://other.test/; [ $? = 6 ] || exit 14
        exit 0"#;
    let servers = vec![
        Server::new("[::]:80", web),
        Server::new("[::]:81", web),
        Server::new("127.0.0.1:18765", web),
        Server::new("127.0.0.1:18766", web),
    ];
    let ran = sandbox.run(script, servers);
    assert_eq!(ran.code, 0);
    let expected = "served at [::ffff:5.5.5.5]:80\n".repeat(2) + "served at 127.0.0.1:18765\n";
    assert_eq!(ran.output, expected);
}
