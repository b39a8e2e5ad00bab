//! The host and the sandbox of a scenario.
#![allow(clippy::disallowed_macros, reason = "whoever runs it reads what it says")]

use ringfence_net::publish::Handler;
use ringfence_net::resolver::Resolver;
use ringfence_net::upstream::Upstream;
use ringfence_net::{Capture, Gateway, Listeners, NetDecision, capture};
use ringfence_policy::{HostRule, NetworkMode, NetworkRule, Policy, Publish, Source, Transport};
use ringfence_sys as sys;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Arc, Mutex};
use sys::process::{Change, Forked, Namespaces};
use sys::seccomp::{Instruction, Program};

/// Whether this user may make namespaces.
pub fn possible() -> Result<(), String> {
    match sys::process::fork_into(Namespaces::USER.and(Namespaces::NETWORK), None) {
        Ok(Forked::Child) => sys::process::exit_now(0),
        Ok(Forked::Parent(..)) => {
            sys::process::wait_any(true).map(drop).map_err(|e| format!("{e}"))
        }
        Err(errno) => Err(format!("{errno:?}")),
    }
}

/// Runs a scenario where every address, of both families, is the host's own.
pub fn on_a_host(scenario: fn()) -> ! {
    let namespaces = Namespaces::USER.and(Namespaces::NETWORK);
    let identity = identity();
    match sys::process::fork_into(namespaces, None).expect("namespaces") {
        Forked::Child => {
            map(identity);
            sys::netlink::loopback_up().expect("loopback");
            sys::route::all_local().expect("routes");
            scenario();
            std::process::exit(0)
        }
        Forked::Parent(..) => match sys::process::wait_any(true).expect("a child") {
            Some((_, Change::Exited(code))) => std::process::exit(code),
            _ => std::process::exit(99),
        },
    }
}

/// The caller's user and group, which a new user namespace does not know until it is told.
type Identity = (u32, u32);

fn identity() -> Identity {
    (sys::identity::user(), sys::identity::group())
}

fn map((user, group): Identity) {
    std::fs::write("/proc/self/setgroups", "deny").expect("setgroups");
    std::fs::write("/proc/self/uid_map", format!("{user} {user} 1")).expect("uid_map");
    std::fs::write("/proc/self/gid_map", format!("{group} {group} 1")).expect("gid_map");
}

/// A policy of these rules.
pub fn policy(allow: &[&str], deny: &[&str]) -> Policy {
    let rules = |list: &[&str]| {
        let rule = |text: &&str| NetworkRule {
            host: HostRule::parse(text).expect(text),
            source: Source {
                origin: "option --allow-host".to_owned(),
                key: String::new(),
                text: (*text).to_owned(),
            },
        };
        list.iter().map(rule).collect::<Vec<_>>()
    };
    let mut policy = Policy::default();
    policy.network.mode = NetworkMode::Filtered;
    policy.network.allow = rules(allow);
    policy.network.deny = rules(deny);
    policy
}

/// Lets the host connect in to `port`, at a port of its own.
pub fn publish(policy: &mut Policy, address: &str, host_port: u16, port: u16) {
    let address = address.parse().expect("an address");
    let source = Source {
        origin: "option --publish".to_owned(),
        key: String::new(),
        text: format!("{host_port}:{port}"),
    };
    let transport = Transport::Tcp;
    policy.network.publish.push(Publish { transport, address, host_port, port, source });
}

/// What came of a run inside.
pub struct Ran {
    /// Exit code of the script.
    pub code: i32,
    /// Its standard output.
    pub output: String,
    /// What the gateway decided.
    pub decisions: Vec<NetDecision>,
    /// Whether the gateway's thread was ever needed.
    pub started: bool,
}

/// A sandbox to run scripts in.
pub struct Sandbox {
    pub policy: Policy,
    /// The host's `/etc/hosts`.
    pub hosts: String,
    /// Which addresses are the host's own: in this world all of them are local.
    pub own: fn(std::net::IpAddr) -> bool,
    /// The host's `/etc/resolv.conf`.
    pub resolv: String,
    pub upstream: Upstream,
    /// The kernel has no nftables.
    pub by_ports: bool,
    /// What a client outside does once the script says `ready`.
    pub outside: Option<fn()>,
}

impl Sandbox {
    pub fn new(allow: &[&str], deny: &[&str], hosts: &str) -> Sandbox {
        Sandbox {
            policy: policy(allow, deny),
            hosts: hosts.to_owned(),
            own: |_| false,
            resolv: String::new(),
            upstream: Upstream::default(),
            by_ports: false,
            outside: None,
        }
    }

    /// Runs a shell script inside; `servers` are served meanwhile, each connection by a thread.
    pub fn run(&self, script: &str, servers: Vec<Server>) -> Ran {
        let (ours, theirs) = sys::fd::socket_pair().expect("a pair");
        let (read, write) = sys::fd::pipe().expect("a pipe");
        let capture = Capture::of(&self.policy).expect("a filtered network");
        let namespaces = Namespaces::USER.and(Namespaces::NETWORK).and(Namespaces::PID);
        let identity = identity();
        let supervised = !self.policy.network.publish.is_empty();
        let set_up = if self.by_ports { capture::inside_by_ports } else { capture::inside };
        let pidfd = match sys::process::fork_into(namespaces, None).expect("namespaces") {
            Forked::Child => inside(
                identity,
                theirs,
                write,
                &|control| set_up(control, &capture),
                supervised,
                script,
            ),
            Forked::Parent(_, pidfd) => pidfd,
        };
        drop((theirs, write));
        let mut buffer = [0; 512];
        let (count, fds) =
            sys::socket::receive_with(ours.as_fd(), &mut buffer, true).expect("a message");
        let listeners = Listeners::of_message(&buffer[..count], fds)
            .unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&buffer[..count])));
        let binds = supervised.then(|| {
            let (_, mut fds) =
                sys::socket::receive_with(ours.as_fd(), &mut buffer, true).expect("a message");
            (fds.pop().expect("a listener"), Handler::new(self.policy.network.publish.clone()))
        });
        servers.into_iter().for_each(Server::start);
        let decisions = Arc::new(Mutex::new(Vec::new()));
        let told = decisions.clone();
        let sink = Box::new(move |decision| told.lock().expect("unpoisoned").push(decision));
        let directory = std::env::temp_dir().join(format!("ringfence-net-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        std::fs::write(directory.join("hosts"), &self.hosts).expect("hosts");
        std::fs::write(directory.join("resolv.conf"), &self.resolv).expect("resolv.conf");
        let resolver = Resolver::of(directory.join("hosts"), directory.join("resolv.conf"));
        let upstream = self.upstream.clone();
        let policy = Arc::new(self.policy.clone());
        let mut gateway = Gateway::with(policy, listeners, sink, resolver, upstream, self.own);
        let (code, output, started) =
            watch(&mut gateway, &read, &pidfd, binds.as_ref(), self.outside);
        let _ = std::fs::remove_dir_all(&directory);
        let decisions = decisions.lock().expect("unpoisoned").clone();
        print!("{output}");
        decisions.iter().for_each(|d| eprintln!("{:?} {}:{} {:?}", d.way, d.host, d.port, d.event));
        Ran { code, output, decisions, started }
    }
}

/// The launcher's loop.
fn watch(
    gateway: &mut Gateway,
    read: &OwnedFd,
    pidfd: &OwnedFd,
    binds: Option<&(OwnedFd, Handler)>,
    mut outside: Option<fn()>,
) -> (i32, String, bool) {
    let mut output = Vec::new();
    let mut started = false;
    loop {
        let mut watched = vec![pidfd.as_fd(), read.as_fd()];
        // Without supervision the same descriptor stands there once more.
        watched.push(binds.map_or(pidfd.as_fd(), |(fd, _)| fd.as_fd()));
        watched.extend(gateway.fds());
        let ready = sys::fd::poll_readable(&watched, -1).expect("poll");
        if let Some((fd, handler)) = binds.filter(|_| ready[2])
            && let Ok(call) = sys::notify::receive(fd.as_fd())
            && let Some(sentence) = handler.answer(fd.as_fd(), &call)
        {
            eprintln!("{sentence}");
        }
        if ready[3..].contains(&true) {
            gateway.start().expect("started");
            started = true;
        }
        let mut buffer = [0; 4096];
        if ready[1] {
            let count = sys::fd::read(read.as_fd(), &mut buffer).expect("read");
            output.extend_from_slice(&buffer[..count]);
            if output.windows(5).any(|word| word == b"ready")
                && let Some(outside) = outside.take()
            {
                std::thread::spawn(outside);
            }
        }
        if ready[0] && !ready[1] {
            break;
        }
        if ready[0] {
            while let Ok(count @ 1..) = sys::fd::read(read.as_fd(), &mut buffer) {
                output.extend_from_slice(&buffer[..count]);
            }
            break;
        }
    }
    let code = match sys::process::wait_any(true) {
        Ok(Some((_, Change::Exited(code)))) => code,
        other => panic!("{other:?}"),
    };
    (code, String::from_utf8_lossy(&output).into_owned(), started)
}

/// A filter that hands `bind` to a supervisor and allows the rest.
fn bind_filter() -> Program {
    let step = |code, jump_true, operand| Instruction { code, jump_true, jump_false: 0, operand };
    let bind = sys::Sysno::bind.id() as u32;
    Program(vec![
        step(0x20, 0, 0),
        step(0x15, 1, bind),
        step(0x06, 0, 0x7FFF_0000),
        step(0x06, 0, 0x7FC0_0000),
    ])
}

/// `reset CODE CURL-ARGUMENTS`: the connection is refused at once, else the script ends with CODE.
/// curl says 7, 55 or 56, by what it was at when the reset came; 28 would be a timeout.
const RESET: &str = r#"reset() {
    wrong=$1; shift
    curl -s -m 5 "$@"
    case $? in 7|55|56) ;; *) exit $wrong ;; esac
}
"#;

/// The sandbox's side: set up as a launcher's child does it, then the script.
fn inside(
    identity: Identity,
    control: OwnedFd,
    output: OwnedFd,
    set_up: &dyn Fn(BorrowedFd<'_>) -> Result<(), String>,
    supervised: bool,
    script: &str,
) -> ! {
    map(identity);
    sys::netlink::loopback_up().expect("loopback");
    let begun = std::time::Instant::now();
    if let Err(text) = set_up(control.as_fd()) {
        let _ = sys::fd::send(control.as_fd(), text.as_bytes());
        sys::process::exit_now(125);
    }
    eprintln!("capture::inside took {:?}", begun.elapsed());
    if supervised {
        let listener = bind_filter().install_with_listener().expect("a listener");
        sys::socket::send_with(control.as_fd(), b"B", &[listener.as_fd()]).expect("sent");
    }
    sys::caps::drop_all().expect("no capabilities");
    // The environment's own proxies would be asked instead of us.
    let mut command = Command::new("/bin/sh");
    let script = format!("{RESET}{script}");
    command.args(["-c", &script]).stdout(output).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("HOME", std::env::var_os("HOME").unwrap_or_default());
    let error = command.exec();
    eprintln!("{error}");
    sys::process::exit_now(126)
}

/// A server on the host: each connection gets a thread.
pub struct Server {
    listener: TcpListener,
    serve: fn(TcpStream),
}

impl Server {
    pub fn new(address: &str, serve: fn(TcpStream)) -> Server {
        Server { listener: TcpListener::bind(address).expect(address), serve }
    }

    fn start(self) {
        std::thread::spawn(move || {
            for stream in self.listener.incoming().flatten() {
                let serve = self.serve;
                std::thread::spawn(move || serve(stream));
            }
        });
    }
}

/// Answers one HTTP request with the address that it arrived at.
pub fn web(mut stream: TcpStream) {
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(count @ 1..) => head.extend_from_slice(&buffer[..count]),
            _ => return,
        }
    }
    let body = format!("served at {}\n", stream.local_addr().expect("an address"));
    let text = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let _ = stream.write_all(text.as_bytes());
}

/// Says something first, then sends back all that it gets, then ends.
pub fn echo(mut stream: TcpStream) {
    let _ = stream.write_all(b"220 hello\n");
    let mut buffer = vec![0; 65536];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
    let _ = stream.write_all(b"bye\n");
}

/// Answers `got` to the first bytes, whatever they are.
pub fn witness(mut stream: TcpStream) {
    let mut buffer = [0; 4096];
    if let Ok(1..) = stream.read(&mut buffer) {
        let _ = stream.write_all(b"got");
    }
}

/// Answers each read with how many bytes it was.
pub fn count(mut stream: TcpStream) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        let _ = stream.write_all(format!("{count}\n").as_bytes());
    }
}

/// A server that keeps connections, and changes the protocol where `/ws` asks for it: then it counts.
pub fn keeps(mut stream: TcpStream) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        if buffer[..count].starts_with(b"GET /ws ") {
            let _ = stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\n");
            return self::count(stream);
        }
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    }
}
