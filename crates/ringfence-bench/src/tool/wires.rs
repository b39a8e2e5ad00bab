//! `wires PORT SERVER... -- CLIENT...`: container networking from its real parts, for one run of a client.
//!
//! What a container engine builds for a published port: a bridge, a pair of virtual Ethernet devices
//! with one end in the container's network namespace, and a destination NAT rule. The "host" here is
//! a network namespace of this process's own: nothing has a name outside it, so that everything is
//! gone with the process, and the machine's own network is never touched.

use super::number;
use crate::error::{Result, error};
use crate::sys::mount::{CLONE_NEWNET, CLONE_NEWUSER, unshare};
use crate::sys::process::{die_with_parent, user};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

/// The address that clients of the "host" connect to.
pub const ADDRESS: &str = "198.51.100.1";
const GATEWAY: &str = "172.31.250.1";
const CONTAINER: &str = "172.31.250.2";

/// Runs the tool.
pub fn run(args: &[OsString]) -> Result<i32> {
    if args.first().is_some_and(|first| first == "inside") {
        return inside(&args[1..]);
    }
    let port: u16 = number(args, 0)?;
    let split = args
        .iter()
        .position(|word| word == "--")
        .ok_or_else(|| error!("bench: wires: no client"))?;
    let (server, client) = (&args[1..split], &args[split + 1..]);
    die_with_parent(libc::SIGKILL);
    own_network()?;
    let mut container = Container::start(server)?;
    build(container.child.id(), port)?;
    container.go()?;
    let program = client.first().ok_or_else(|| error!("bench: wires: no client"))?;
    let status = Command::new(program).args(&client[1..]).status();
    let _ = container.child.kill();
    let _ = container.child.wait();
    let status = status.map_err(|cause| error!("bench: wires: the client: {cause}"))?;
    Ok(status.code().unwrap_or(125))
}

/// A network namespace; an ordinary user needs a user namespace to be allowed one.
fn own_network() -> Result<()> {
    let failed = |cause: std::io::Error| error!("bench: wires: a network namespace: {cause}");
    let id = user();
    if id == 0 {
        return unshare(CLONE_NEWNET).map_err(failed);
    }
    let group =
        std::os::unix::fs::MetadataExt::gid(&std::fs::metadata("/proc/self").map_err(failed)?);
    unshare(CLONE_NEWUSER | CLONE_NEWNET).map_err(failed)?;
    let write = |name: &str, text: String| std::fs::write(format!("/proc/self/{name}"), text);
    write("setgroups", "deny".into()).map_err(failed)?;
    write("uid_map", format!("0 {id} 1")).map_err(failed)?;
    write("gid_map", format!("0 {group} 1")).map_err(failed)
}

/// Runs `ip` or another tool, which must succeed.
fn tool(line: &str) -> Result<()> {
    let mut words = line.split_whitespace();
    let program = words.next().unwrap_or_default();
    let path = crate::work::find(program).ok_or_else(|| error!("`{program}` is not installed"))?;
    let out =
        Command::new(path).args(words).output().map_err(|cause| error!("{program}: {cause}"))?;
    if out.status.success() {
        return Ok(());
    }
    Err(error!("`{line}`: {}", String::from_utf8_lossy(&out.stderr).trim()))
}

/// Connects the container's namespace to this one, and publishes its port.
fn build(container: u32, port: u16) -> Result<()> {
    for line in [
        "ip link set lo up".into(),
        format!("ip addr add {ADDRESS}/32 dev lo"),
        "ip link add bridge0 type bridge".into(),
        format!("ip addr add {GATEWAY}/24 dev bridge0"),
        "ip link set bridge0 up".into(),
        format!("ip link add port0 type veth peer name eth0 netns {container}"),
        "ip link set port0 master bridge0".into(),
        "ip link set port0 up".into(),
    ] {
        tool(&line)?;
    }
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")
        .map_err(|cause| error!("bench: wires: forwarding: {cause}"))?;
    let rules = format!(
        "table ip bench {{
            chain out {{ type nat hook output priority -100;
                ip daddr {ADDRESS} tcp dport {port} dnat to {CONTAINER}:{port}; }}
            chain post {{ type nat hook postrouting priority 100;
                ip saddr 172.31.250.0/24 ip daddr != 172.31.250.0/24 masquerade; }}
        }}"
    );
    let nft = crate::work::find("nft").ok_or_else(|| error!("`nft` is not installed"))?;
    let mut child = Command::new(nft)
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .map_err(|cause| error!("nft: {cause}"))?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(rules.as_bytes()).map_err(|cause| error!("nft: {cause}"))?;
    }
    let status = child.wait().map_err(|cause| error!("nft: {cause}"))?;
    if status.success() { Ok(()) } else { Err(error!("nft: the rules were refused")) }
}

/// The server, in a network namespace of its own.
struct Container {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Container {
    fn start(server: &[OsString]) -> Result<Container> {
        let failed = |cause: std::io::Error| error!("bench: wires: {cause}");
        let this = std::env::current_exe().map_err(failed)?;
        let mut child = Command::new(this)
            .args(["bench", "__tool", "wires", "inside"])
            .args(server)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let output = child.stdout.take().ok_or_else(|| error!("bench: wires: no output"))?;
        let mut container = Container { child, output: BufReader::new(output) };
        container.expect("namespace")?;
        Ok(container)
    }

    /// Tells the container that its wire is there, and waits until the server is ready.
    fn go(&mut self) -> Result<()> {
        if let Some(input) = &mut self.child.stdin {
            input.write_all(b"go\n").map_err(|cause| error!("bench: wires: {cause}"))?;
        }
        self.expect("Ready to accept connections")
    }

    fn expect(&mut self, what: &str) -> Result<()> {
        let mut line = String::new();
        loop {
            line.clear();
            match self.output.read_line(&mut line) {
                Ok(1..) if line.contains(what) => return Ok(()),
                Ok(1..) => {}
                _ => return Err(error!("the server ended before it was ready")),
            }
        }
    }
}

/// The container's first process: takes a network namespace, configures its wire, becomes the server.
fn inside(server: &[OsString]) -> Result<i32> {
    use std::os::unix::process::CommandExt;
    die_with_parent(libc::SIGKILL);
    unshare(CLONE_NEWNET).map_err(|cause| error!("bench: wires: {cause}"))?;
    println!("namespace");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(|cause| error!("bench: wires: {cause}"))?;
    for line in [
        "ip link set lo up".into(),
        format!("ip addr add {CONTAINER}/24 dev eth0"),
        "ip link set eth0 up".into(),
        format!("ip route add default via {GATEWAY}"),
    ] {
        tool(&line)?;
    }
    let program = server.first().ok_or_else(|| error!("bench: wires: no server"))?;
    let cause = Command::new(program).args(&server[1..]).exec();
    Err(error!("bench: wires: the server: {cause}"))
}
