//! Inside the new network namespace, before the command: everything that is sent anywhere comes
//! to listeners that the launcher holds.
//!
//! ```text
//! every address is local (AnyIP)     a packet to 203.0.113.7 leaves by lo, and comes in by lo
//! port 53, UDP and TCP, any address  -> [::]:53          our resolver
//! TCP to granted host ports          -> [::]:1023        127.0.0.1:PORT of the host
//! other packets to 127/8 and ::1     -> as they are      the sandbox's own loopback
//! TCP to any other address and port  -> [::]:1023        SO_ORIGINAL_DST tells where it was going
//! UDP                                -> no listener      ICMP port unreachable, from the kernel
//! anything else                      -> dropped          EPERM
//! ```
//!
//! The ports are below 1024: the sandbox holds no capability, so that no program inside can want
//! them for itself. A socket belongs to the namespace that it was made in, whoever holds it.

use crate::listeners::{Listeners, Role};
use ringfence_policy::host::Target;
use ringfence_policy::{NetworkMode, Policy};
use ringfence_sys::listener::behalf;
use ringfence_sys::nft::{Act, Match, Rule};
use ringfence_sys::{Errno, describe, diag, nft, route};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Where redirected connections arrive.
pub const TCP_PORT: u16 = 1023;
/// Where programs find the HTTP and SOCKS5 proxy, on 127.0.0.1 and `[::1]`.
pub const PROXY_PORT: u16 = 1022;
/// Where DNS is answered, at every address.
pub const DNS_PORT: u16 = 53;

/// Connections that wait to be accepted, as far as `net.core.somaxconn` has it.
pub(crate) const BACKLOG: i32 = 4096;

/// The most listeners that the way without nftables makes.
const MOST_PORTS: usize = 48;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// What the namespace needs to know of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capture {
    /// Ports of the host's own loopback that are granted, as ranges.
    pub loopback: Vec<(u16, u16)>,
    /// All ports that some rule allows, as ranges.
    pub ports: Vec<(u16, u16)>,
}

impl Capture {
    /// What a policy asks for; nothing unless its network is filtered.
    pub fn of(policy: &Policy) -> Option<Capture> {
        if policy.network.mode != NetworkMode::Filtered {
            return None;
        }
        let mut capture = Capture::default();
        let hosts = policy.network.allow.iter().map(|rule| &rule.host);
        for host in hosts.chain(policy.network.http.iter().map(|rule| &rule.host)) {
            capture.ports.extend(host.ports.ranges());
            if host.target == Target::Loopback {
                capture.loopback.extend(host.ports.ranges());
            }
        }
        for list in [&mut capture.loopback, &mut capture.ports] {
            list.sort_unstable();
            list.dedup();
        }
        Some(capture)
    }

    /// The rules, in order.
    fn rules(&self) -> Vec<Rule> {
        let own = [Match::To4([127, 0, 0, 1]), Match::To6(Ipv6Addr::LOCALHOST.octets())];
        let mut rules: Vec<Rule> = [UDP, TCP]
            .map(|transport| {
                let dns = vec![Match::Transport(transport), Match::Ports(DNS_PORT, DNS_PORT)];
                Rule(dns, Act::Redirect(DNS_PORT))
            })
            .into();
        for &(first, last) in &self.loopback {
            rules.extend(own.map(|own| {
                let host = vec![own, Match::Transport(TCP), Match::Ports(first, last)];
                Rule(host, Act::Redirect(TCP_PORT))
            }));
        }
        rules.push(Rule(vec![Match::FirstByte(127)], Act::Accept));
        rules.push(Rule(vec![own[1]], Act::Accept));
        rules.push(Rule(vec![Match::Transport(TCP)], Act::Redirect(TCP_PORT)));
        rules.push(Rule(vec![Match::Transport(UDP)], Act::Accept));
        rules.push(Rule(Vec::new(), Act::Drop));
        rules
    }
}

/// What [`inside`] does where the kernel has IPv6 and nftables, for somebody who makes the calls
/// without this crate.
#[derive(Debug)]
pub struct Calls {
    /// Messages to `NETLINK_ROUTE`, each to be confirmed.
    pub routes: [Vec<u8>; 2],
    /// One to `NETLINK_NETFILTER`, likewise.
    pub rules: Vec<u8>,
    /// Sockets to be bound at `[::]`, whether they listen (else they are UDP's), and the port; a
    /// socket of sock_diag(7) comes after them.
    pub sockets: [(bool, u16); 4],
    /// The message to the launcher that all these sockets go with, in this order.
    pub message: Vec<u8>,
}

impl Calls {
    const SOCKETS: [(Role, bool, u16); 4] = [
        (Role::DnsUdp, false, DNS_PORT),
        (Role::DnsTcp, true, DNS_PORT),
        (Role::Proxy, true, PROXY_PORT),
        (Role::Redirected, true, TCP_PORT),
    ];

    /// The calls that a capture takes.
    pub fn of(capture: &Capture) -> Calls {
        Calls {
            routes: route::all_local_bytes(),
            rules: nft::bytes(&capture.rules()),
            message: Calls::message(),
            sockets: Calls::SOCKETS.map(|(_, listens, port)| (listens, port)),
        }
    }

    fn message() -> Vec<u8> {
        let roles = Calls::SOCKETS.iter().map(|(role, _, _)| *role);
        Listeners::message(true, roles.chain([Role::Diag]))
    }

    /// Whether a message to the launcher says that [`inside`] found all that these calls need.
    pub fn would_do(message: &[u8]) -> bool {
        message == Calls::message()
    }
}

/// Sets routes and rules in the caller's network namespace, makes the listeners, and hands them
/// to the launcher over the control socket, in one message.
///
/// The caller must be alone in a network namespace of its own whose loopback is up, hold
/// `CAP_NET_ADMIN` and `CAP_NET_BIND_SERVICE` over it, and be single-threaded.
///
/// # Errors
/// A sentence that names the step. The command must not run then.
pub fn inside(control: BorrowedFd<'_>, capture: &Capture) -> Result<(), String> {
    let ipv6 = all_local()?;
    match nft::install(&capture.rules()) {
        Ok(()) => listen(control, capture, ipv6, true),
        Err(errno) if missing(errno) => listen(control, capture, ipv6, false),
        Err(errno) => Err(failure("redirect connections by nftables", errno)),
    }
}

/// The same for a kernel without nftables: a listener at every address for each port that some rule
/// allows. A connection to any other port finds nobody, or a server of the sandbox's own.
///
/// Answers over UDP come from 127.0.0.1 then, which a resolver accepts only when that is the server
/// it asked; with another one in `resolv.conf`, names need DNS over TCP (`RES_OPTIONS=use-vc`).
///
/// # Errors
/// As [`inside`]; too many ports.
pub fn inside_by_ports(control: BorrowedFd<'_>, capture: &Capture) -> Result<(), String> {
    listen(control, capture, all_local()?, false)
}

fn all_local() -> Result<bool, String> {
    route::all_local().map_err(|errno| failure("make every address local to the sandbox", errno))
}

fn listen(
    control: BorrowedFd<'_>,
    capture: &Capture,
    ipv6: bool,
    redirected: bool,
) -> Result<(), String> {
    let mut listeners = Listeners { ipv6, sockets: Vec::with_capacity(8), ..Listeners::default() };
    let mut add = |role, socket: io::Result<OwnedFd>, port: u16| match socket {
        Ok(socket) => {
            listeners.sockets.push((role, socket));
            Ok(())
        }
        Err(error) => Err(format!("cannot listen inside the sandbox, at port {port}: {error}")),
    };
    add(Role::DnsUdp, bind(ipv6, DNS_PORT, UdpSocket::bind), DNS_PORT)?;
    add(Role::DnsTcp, bind(ipv6, DNS_PORT, listener), DNS_PORT)?;
    add(Role::Proxy, bind(ipv6, PROXY_PORT, listener), PROXY_PORT)?;
    if redirected {
        add(Role::Redirected, bind(ipv6, TCP_PORT, listener), TCP_PORT)?;
    } else {
        for port in few(&capture.ports)? {
            add(Role::AnyAddress, bind(ipv6, port, listener), port)?;
        }
    }
    // Without it (CONFIG_INET_DIAG) decisions do not name processes.
    listeners.sockets.extend(diag::open().ok().map(|socket| (Role::Diag, socket)));
    listeners.send(control).map_err(|errno| failure("hand out the listeners", errno))
}

/// The ports one by one, where they are few enough for a listener each.
fn few(ranges: &[(u16, u16)]) -> Result<Vec<u16>, String> {
    let mut ports: Vec<u16> = Vec::new();
    for port in ranges.iter().flat_map(|&(first, last)| first..=last) {
        if !matches!(port, DNS_PORT | PROXY_PORT) && !ports.contains(&port) {
            ports.push(port);
        }
        if ports.len() > MOST_PORTS {
            return Err(format!(
                "this kernel has no nftables, and without it at most {MOST_PORTS} ports can be \
                 filtered; grant fewer, or load nf_tables"
            ));
        }
    }
    Ok(ports)
}

/// Listens for TCP with a queue that bursts do not fill: what comes while it is full is dropped, and the
/// client tries again after a second.
fn listener(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    behalf::listen(listener.as_fd(), BACKLOG)
        .map_err(|errno| io::Error::from_raw_os_error(errno.into_raw()))?;
    Ok(listener)
}

/// Binds at every address of both families, or of IPv4 where there is no IPv6.
fn bind<S: Into<OwnedFd>>(
    ipv6: bool,
    port: u16,
    make: impl Fn(SocketAddr) -> io::Result<S>,
) -> io::Result<OwnedFd> {
    let any4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let any6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    make(if ipv6 { any6 } else { any4 }).map(Into::into)
}

/// Whether an error means that the kernel lacks a part of nftables.
fn missing(errno: Errno) -> bool {
    let lacking = [
        Errno::EPROTONOSUPPORT,
        Errno::EAFNOSUPPORT,
        Errno::EOPNOTSUPP,
        Errno::ENOENT,
        Errno::EINVAL,
    ];
    lacking.contains(&errno)
}

fn failure(what: &str, errno: Errno) -> String {
    format!("cannot {what}: {} ({errno:?})", describe(errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_loopback_comes_before_the_redirect_and_the_end_is_a_drop() {
        let capture = Capture { loopback: vec![(8000, 8010)], ports: vec![(8000, 8010)] };
        let rules = capture.rules();
        let place = |wanted: &Rule| rules.iter().position(|rule| rule == wanted);
        let host = Rule(
            vec![Match::To4([127, 0, 0, 1]), Match::Transport(TCP), Match::Ports(8000, 8010)],
            Act::Redirect(TCP_PORT),
        );
        let own = Rule(vec![Match::FirstByte(127)], Act::Accept);
        let all = Rule(vec![Match::Transport(TCP)], Act::Redirect(TCP_PORT));
        assert!(place(&host).is_some() && place(&host) < place(&own) && place(&own) < place(&all));
        assert_eq!(rules.last(), Some(&Rule(Vec::new(), Act::Drop)));
    }

    #[test]
    fn without_nftables_many_ports_are_refused_and_not_forgotten() {
        assert_eq!(few(&[(80, 80), (443, 443), (80, 81)]), Ok(vec![80, 443, 81]));
        assert!(few(&[(1, 65535)]).expect_err("too many").contains("nftables"));
    }
}
