//! `attack NAME FIXTURE...`: tries one way out of a sandbox, and says whether it worked.
//!
//! Prints `open`, or `stopped` and why. The bench outside runs each attack without a sandbox first:
//! one that does not work there proves nothing, and is not counted.

use super::{number, text};
use crate::error::{Result, error};
use crate::sys::probe;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};

/// What the bench prepared outside for the attacks to aim at.
struct Aim {
    /// A directory of the host beside the workspace.
    outside: PathBuf,
    /// A process of the host.
    victim: i32,
    /// A server on the host's loopback.
    port: u16,
}

/// One attack.
pub struct Attack {
    /// Its name.
    pub name: &'static str,
    /// What it would give.
    pub gives: &'static str,
    act: fn(&Aim) -> io::Result<()>,
}

/// The environment variable that holds a secret.
pub const SECRET: &str = "BENCH_SECRET_ACCESS_KEY";
/// The name of the host's abstract socket, with the bench's process number.
#[must_use]
pub fn abstract_name(victim: i32) -> String {
    format!("ringfence-bench-{victim}")
}

const fn attack(
    name: &'static str,
    gives: &'static str,
    act: fn(&Aim) -> io::Result<()>,
) -> Attack {
    Attack { name, gives, act }
}

/// The corpus.
pub const ALL: &[Attack] = &[
    attack("read ~/.ssh", "the user's keys", |_| read(&home(".ssh/id_bench"))),
    attack("read a secret variable", "credentials in the environment", secret),
    attack("write ~/.bashrc", "code at the next login", |_| append(&home(".bashrc"))),
    attack("write beside the project", "any file of the user", |aim| {
        append(&aim.outside.join("file"))
    }),
    attack("write .git/hooks", "code at the next commit", |_| {
        append(Path::new(".git/hooks/pre-commit"))
    }),
    attack("rename .git away", "the same, round a read-only mount", |_| {
        fs::rename(".git", ".git.moved")
    }),
    attack("create .mcp.json", "code at the agent's next start", |_| {
        append(Path::new(".mcp.json"))
    }),
    attack("open core_pattern", "code as root on the host", |_| {
        open("/proc/sys/kernel/core_pattern")
    }),
    attack("make a device node", "raw devices", device),
    attack("open by handle", "files round every path check", handle),
    attack("see host processes", "command lines, secrets", see),
    attack("signal a host process", "killing what runs outside", |aim| {
        probe::may_signal(aim.victim)
    }),
    attack("trace a host process", "its memory", |aim| probe::trace(aim.victim)),
    attack("connect to host loopback", "the user's local services", |aim| {
        TcpStream::connect(("127.0.0.1", aim.port)).map(drop)
    }),
    attack("connect to a Unix socket", "docker.sock, D-Bus, ssh-agent", |aim| {
        UnixStream::connect(aim.outside.join("socket")).map(drop)
    }),
    attack("connect to an abstract socket", "X11, D-Bus, containerd", abstract_socket),
    attack("see host interfaces", "the network round the filter", interfaces),
    attack("raw socket", "forged packets", |_| {
        probe::socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP).map(drop)
    }),
    attack("packet socket", "sniffing", |_| {
        probe::socket(libc::AF_PACKET, libc::SOCK_RAW, 0).map(drop)
    }),
    attack("vsock", "a hypervisor's services", |_| {
        probe::socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0).map(drop)
    }),
    attack("crypto socket", "kernel crypto parsers", |_| {
        probe::socket(libc::AF_ALG, libc::SOCK_SEQPACKET, 0).map(drop)
    }),
    attack("push terminal input", "typing into the user's shell", |_| terminal(0)),
    attack("the same, high bits set", "round a 64-bit comparison", |_| terminal(1 << 32)),
    attack("new user namespace", "kernel surface as root", |_| probe::unshare(libc::CLONE_NEWUSER)),
    attack("new file system", "mounting", |_| probe::new_file_system()),
    attack("chroot", "escape by file descriptor", |_| std::os::unix::fs::chroot("/")),
    attack("io_uring", "calls that no filter sees", |_| {
        reached(libc::SYS_io_uring_setup, [1, 0, 0, 0])
    }),
    attack("bpf", "kernel surface", |_| reached(libc::SYS_bpf, [0, 0, 0, 0])),
    attack("perf_event_open", "kernel surface", |_| {
        reached(libc::SYS_perf_event_open, [0, 0, 0, 0])
    }),
    attack("keyctl", "the user's keyring", |_| reached(libc::SYS_keyctl, [0, 0, 0, 0])),
    attack("userfaultfd", "winning kernel races", |_| reached(libc::SYS_userfaultfd, [0, 0, 0, 0])),
    attack("x32 calls", "round a filter by number", |_| reached(0x4000_0000 + 39, [0, 0, 0, 0])),
    attack("set-user-ID programs", "privileges", |_| status("NoNewPrivs:", "0")),
    attack("keep capabilities", "privileges", capabilities),
];

/// Runs the tool.
pub fn run(args: &[OsString]) -> Result<i32> {
    let name = text(args, 0)?;
    let aim =
        Aim { outside: text(args, 1)?.into(), victim: number(args, 2)?, port: number(args, 3)? };
    let attack = ALL.iter().find(|attack| attack.name == name);
    let attack = attack.ok_or_else(|| error!("bench: no attack `{name}`"))?;
    match (attack.act)(&aim) {
        Ok(()) => println!("open"),
        Err(cause) => println!("stopped: {cause}"),
    }
    Ok(0)
}

fn home(below: &str) -> PathBuf {
    PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(below)
}

fn read(path: &Path) -> io::Result<()> {
    let mut byte = [0];
    File::open(path)?.read_exact(&mut byte)
}

fn append(path: &Path) -> io::Result<()> {
    File::options().create(true).append(true).open(path)?.write_all(b"x")
}

fn open(path: &str) -> io::Result<()> {
    File::options().write(true).open(path).map(drop)
}

fn refused(why: &str) -> io::Error {
    io::Error::other(why)
}

fn secret(_: &Aim) -> io::Result<()> {
    std::env::var_os(SECRET).map(drop).ok_or_else(|| refused("it is not there"))
}

fn device(_: &Aim) -> io::Result<()> {
    let made = probe::device_node(c"bench.node");
    let _ = fs::remove_file("bench.node");
    made
}

fn handle(_: &Aim) -> io::Result<()> {
    match probe::open_by_handle(File::open(".")?.as_raw_fd()) {
        Err(error) if error.raw_os_error() == Some(libc::ESTALE) => Ok(()), // let in, but a wrong guess
        other => other.map(drop),
    }
}

fn see(aim: &Aim) -> io::Result<()> {
    let line = fs::read(format!("/proc/{}/cmdline", aim.victim))?;
    let ours = line.windows(6).any(|window| window == b"__tool");
    if ours { Ok(()) } else { Err(refused("another process has that number")) }
}

fn abstract_socket(aim: &Aim) -> io::Result<()> {
    let name = SocketAddr::from_abstract_name(abstract_name(aim.victim))?;
    UnixStream::connect_addr(&name).map(drop)
}

fn interfaces(_: &Aim) -> io::Result<()> {
    let table = fs::read_to_string("/proc/net/dev")?;
    let quiet = [
        "lo", "tunl0", "sit0", "ip6tnl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0",
        "ip6gre0",
    ];
    let names = table.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim());
    let other = names.into_iter().any(|name| !quiet.contains(&name));
    if other { Ok(()) } else { Err(refused("only loopback is there")) }
}

/// Types into a terminal of its own: in a new process, because a group's leader can get no terminal.
fn terminal(high_bits: u64) -> io::Result<()> {
    use crate::sys::{process, signal};
    if process::fork()?.is_none() {
        // Both ends stay open until the end: closing one would send this process SIGHUP.
        let ends = probe::own_terminal();
        let typed = match &ends {
            Ok((_, slave)) => probe::push_terminal_input(slave.as_raw_fd(), high_bits),
            Err(error) => Err(io::Error::from_raw_os_error(error.raw_os_error().unwrap_or(1))),
        };
        let code = typed.err().map_or(0, |error| error.raw_os_error().unwrap_or(libc::EINVAL));
        process::exit_now(code);
    }
    match signal::reap(true) {
        Some((_, 0)) => Ok(()),
        Some((_, code)) => Err(io::Error::from_raw_os_error(code)),
        None => Err(refused("its process was lost")),
    }
}

/// Whether a system call reached the kernel's own code: it did when the kernel only minded the
/// arguments, which are nonsense.
fn reached(number: i64, args: [u16; 4]) -> io::Result<()> {
    match probe::call(number, args) {
        Err(error) => match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES | libc::ENOSYS) => Err(error),
            _ => Ok(()),
        },
        Ok(_) => Ok(()),
    }
}

fn status_field(name: &str) -> io::Result<String> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    Ok(line.unwrap_or_default().trim().to_owned())
}

fn status(name: &str, open: &str) -> io::Result<()> {
    let value = status_field(name)?;
    if value == open { Ok(()) } else { Err(refused(&format!("{name} {value}"))) }
}

fn capabilities(_: &Aim) -> io::Result<()> {
    let value = status_field("CapEff:")?;
    if value.bytes().all(|digit| digit == b'0') { Err(refused("there are none")) } else { Ok(()) }
}
