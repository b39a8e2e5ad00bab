//! Programs inside that attack the launcher over the network that it filters for them: resets at every moment,
//! connections that never speak, requests that never end. Others are served meanwhile, and when it is over the launcher
//! holds what it held before.

use crate::clients::server;
use ringfence_tests::{Place, Tier, everybody, everywhere, free_port, held, lets_go};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};

fn python(place: &Place) -> bool {
    place.has("python3", "--version")
}

/// Answers each connection with one word, and ends it.
fn word() -> u16 {
    server(|client| client.write_all(b"served"))
}

/// So many descriptors of the launcher's may come or go at any moment and be no connection's: made when they are
/// needed for the first time, or of a connection that is on its way out.
const OTHERS: usize = 8;

/// A sandbox whose program says where it is, and waits for a word to go on.
struct Steps {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    input: std::io::PipeWriter,
}

impl Steps {
    fn start(place: &Place, options: &[&str], script: &str) -> Steps {
        let mut command = place.ringfence_run();
        let (read, input) = std::io::pipe().unwrap();
        command.args(options).args(["--", "python3", "-c", script]);
        let mut child = command.stdin(read).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Steps { child, lines, input }
    }

    #[track_caller]
    fn says(&mut self, word: &str) -> &mut Steps {
        assert_eq!(self.lines.next().and_then(Result::ok).as_deref(), Some(word));
        self
    }

    fn go_on(&mut self) -> &mut Steps {
        self.input.write_all(b"\n").unwrap();
        self
    }

    fn entries(&self, directory: &str) -> usize {
        let process = Path::new("/proc").join(self.child.id().to_string());
        std::fs::read_dir(process.join(directory)).unwrap().count()
    }

    /// Descriptors of the launcher.
    fn descriptors(&self) -> usize {
        held(self.child.id()).len()
    }

    /// Memory that it has for itself, in KiB.
    fn memory(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Waits until the launcher has no more descriptors than so many, but for some that are made when they are
    /// needed for the first time.
    #[track_caller]
    fn lets_go(&self, before: usize) {
        lets_go(self.child.id(), before + OTHERS);
    }

    fn ends(mut self) {
        assert!(self.child.wait().unwrap().success());
    }
}

/// Much of this comes before the program's own steps.
const CLIENT: &str = "
import os, resource, socket, struct, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
def step(word): print(word, flush=True); sys.stdin.readline()
def to(port): return socket.create_connection(('127.0.0.1', port), 60)
def served(): assert to(GOOD).recv(9) == b'served'
def reset(s): s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0)); s.close()
";

#[test]
fn resets_at_every_moment_leave_nothing_behind() {
    everywhere(|place| {
        if !python(place) {
            return;
        }
        let good = word();
        // Takes what comes and sends without an end.
        let endless = server(|client| {
            let piece = vec![7; 1 << 20];
            loop {
                client.write_all(&piece)?;
            }
        });
        let silent = server(|client| client.read_to_end(&mut Vec::new()).map(drop));
        let script = format!(
            "GOOD = {good}{CLIENT}
# Who is reset is told so at any of its calls.
def tries(act, *words):
    try: act(*words)
    except ConnectionError: pass
def take(s, left):
    while left > 0: left -= len(s.recv(1 << 20)) or left
def says(port, what):
    with to(port) as s:
        try: s.sendall(what) if what else take(s, 4 << 20)
        finally: reset(s)
served(); step('ready')
for round in range(3):
    for port in ({good}, {silent}, {endless}):
        for _ in range(150): tries(lambda: reset(to(port)))
        for _ in range(150): tries(says, port, b'x')
    for _ in range(10): tries(says, {endless}, b'')
    for _ in range(10): tries(says, {silent}, bytes(4 << 20))
    served(); step('stormed')"
        );
        let rules = [good, silent, endless].map(|port| format!("localhost:{port}"));
        let options = ["-n", &rules[0], "-n", &rules[1], "-n", &rules[2]];
        let mut steps = Steps::start(place, &options, &script);
        steps.says("ready");
        let before = steps.descriptors();
        for _ in 0..3 {
            steps.go_on().says("stormed");
            steps.lets_go(before);
            assert!(steps.memory() < 16 * 1024, "{} KiB", steps.memory());
        }
        steps.go_on();
        steps.ends();
    });
}

/// A client's port is another's as soon as it was reset, and the launcher may not have seen the first one by then.
#[test]
fn a_port_that_is_taken_anew_leads_where_its_new_owner_goes() {
    everywhere(|place| {
        if !python(place) {
            return;
        }
        let (good, other) = (word(), server(|client| client.write_all(b"another")));
        let script = format!(
            "GOOD = {good}{CLIENT}
def by(at, port):
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(('127.0.0.1', at)); s.connect(('127.0.0.1', port)); return s
def anew(n):
    s = to({other}); at = s.getsockname()[1]; reset(s)
    # Where the loopback is the host's, somebody else may have the port by now.
    try:
        for _ in range(4): reset(by(at, ({other}, {good})[n % 2]))
        s = by(at, {good})
    except OSError as e:
        if e.errno == 98: return 0
        raise
    # While it lives the port is taken, for that server.
    if n % 20 == 0:
        try: by(at, {good}); raise SystemExit('taken twice')
        except OSError as e: assert e.errno in (98, 99), e
    # It is connected, and what is said of another server changes nothing of that.
    assert s.connect_ex(('127.0.0.1', {other})) == 106
    assert s.getpeername() == ('127.0.0.1', {good})
    assert s.recv(9) == b'served'
    # Connected anew it goes where it says then.
    libc.connect(s.fileno(), bytes(16), 16); s.connect(('127.0.0.1', {other}))
    assert s.getpeername() == ('127.0.0.1', {other}) and s.recv(9) == b'another'
    reset(s); return 1
assert sum(anew(n) for n in range(200)) > 100
print('all')"
        );
        let script = script.replacen(
            "import os,",
            "import ctypes; libc = ctypes.CDLL(None, use_errno=True)\nimport os,",
            1,
        );
        let rules = [good, other].map(|port| format!("localhost:{port}"));
        let run = place.run(&["-n", &rules[0], "-n", &rules[1]], &["python3", "-c", &script]);
        assert_eq!(run.ends(0).text(), "all", "{}", run.err);
    });
}

#[test]
fn who_never_speaks_takes_little_and_holds_up_nobody() {
    const MANY: usize = 1500;
    everywhere(|place| {
        if !python(place) {
            return;
        }
        let good = word();
        let silent = server(|client| client.read_to_end(&mut Vec::new()).map(drop));
        // The proxy, names over TCP, and a server.
        let script = format!(
            "GOOD = {good}{CLIENT}
served(); step('ready')
held = [to(port) for port in ({silent}, 1022) for _ in range({MANY} // 2)]
for s in held[::2]: s.send(b'G')
for _ in range(20): served()
assert socket.gethostbyname('name.test')
step('held')
for s in held: s.close()
served(); step('gone')"
        );
        let rules = [good, silent].map(|port| format!("localhost:{port}"));
        let options = ["-n", &rules[0], "-n", &rules[1], "-n", "name.test"];
        let mut steps = Steps::start(place, &options, &script);
        steps.says("ready");
        let (before, threads) = (steps.descriptors(), steps.entries("task"));
        steps.go_on().says("held");
        let held = steps.descriptors() - before;
        // The control: they are there, two descriptors for each that a server has.
        assert!((MANY - OTHERS..MANY * 2).contains(&held), "{held}");
        assert!(steps.entries("task") <= threads + 1, "{} threads", steps.entries("task"));
        assert!(steps.memory() < 40 * 1024, "{} KiB", steps.memory());
        steps.go_on().says("gone");
        steps.lets_go(before);
        steps.go_on();
        steps.ends();
    });
}

#[test]
fn requests_without_an_end_hold_up_nobody_where_they_are_looked_at() {
    everybody(Tier::Namespace, |place| {
        if !python(place) {
            return;
        }
        let page = server(|client| crate::clients::http(client, |_| "served".to_owned()));
        let script = format!(
            "GOOD = {page}{CLIENT}
def asked():
    s = to({page}); s.sendall(b'GET /a HTTP/1.1\\r\\nHost: localhost:{page}\\r\\nConnection: close\\r\\n\\r\\n')
    data = b''
    while (more := s.recv(999)): data += more
    assert data.endswith(b'served'), data
asked(); step('ready')
slow = [to({page}) for _ in range(400)]
head = b'GET /a HTTP/1.1\\r\\nHost: localhost:{page}\\r\\nX: ' + b'y' * 40
for byte in head:
    for s in slow: s.send(bytes([byte]))
for _ in range(20): asked()
step('slow')
for s in slow[::2]: reset(s)
for s in slow[1::2]: s.close()
asked(); step('gone')"
        );
        let rule = format!("GET localhost:{page}/*");
        let mut steps = Steps::start(place, &["--http", &rule], &script);
        steps.says("ready");
        let before = steps.descriptors();
        steps.go_on().says("slow");
        // Nothing is dialled for a request that is not one yet.
        let held = steps.descriptors() - before;
        assert!((400 - OTHERS..450).contains(&held), "{held}");
        assert!(steps.memory() < 64 * 1024, "{} KiB", steps.memory());
        steps.go_on().says("gone");
        steps.lets_go(before);
        steps.go_on();
        steps.ends();
    });
}

/// A published port is served to programs inside as well, by the launcher: who finds no room there waits for it.
#[test]
fn a_crowd_at_a_published_port_waits_for_room() {
    everybody(Tier::Namespace, |place| {
        if !python(place) || !place.publishes() {
            return;
        }
        let script = "
import os, socket
server = socket.create_server(('127.0.0.1', 7010), backlog=200)
if not os.fork():
    while True: s = server.accept()[0]; s.sendall(b'served'); s.close()
def crowd():
    held = [socket.create_connection(('127.0.0.1', 7010), 60) for _ in range(25)]
    for s in held: assert s.recv(9) == b'served'; s.close()
for _ in range(2):
    pids = []
    for _ in range(4):
        if not (pid := os.fork()): crowd(); os._exit(0)
        pids.append(pid)
    print([os.waitpid(pid, 0)[1] for pid in pids])
";
        place.file("home/project/crowd.py", script);
        let host = free_port();
        let run = format!("ulimit -n 192; $RF --publish {host}:7010 -- python3 crowd.py");
        let ended = place.shell(&run);
        assert_eq!(ended.ends(0).text(), "[0, 0, 0, 0]\n[0, 0, 0, 0]", "{}", ended.err);
    });
}
