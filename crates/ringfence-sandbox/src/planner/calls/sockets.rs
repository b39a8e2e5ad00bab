//! Sockets: which kinds there are, whose calls the launcher makes, and what a socket of the host may not be told.

use crate::plan::{Test, Tier, Verdict};
use ringfence_policy::{Network, NetworkMode, Transport};

/// Socket families that work: local, IPv4, IPv6 and routing information.
const AF_UNIX: u32 = 1;
const AF_INET: u32 = 2;
const AF_INET6: u32 = 10;
const AF_NETLINK: u32 = 16;
/// Mask and values of a socket's type, without its flags, and its protocol.
const SOCK_TYPE_MASK: u32 = 0xF;
const SOCK_STREAM: u32 = 1;
const SOCK_DGRAM: u32 = 2;
const SOCK_SEQPACKET: u32 = 5;
const SOL_SOCKET: u32 = 1;
const SO_REUSEPORT: u32 = 15;
const SO_PEERNAME: u32 = 28;
const TCP_FASTOPEN_CONNECT: u32 = 30;
/// `linux/tcp.h`; since Linux 4.13.
const TCP_ULP: u32 = 31;
const PROTO_IP: u32 = 0;
const PROTO_ICMP: u32 = 1;
const PROTO_TCP: u32 = 6;
const PROTO_UDP: u32 = 17;
const PROTO_IPV6: u32 = 41;
const PROTO_ICMPV6: u32 = 58;
const MSG_FASTOPEN: u32 = 0x2000_0000;

/// Options of a socket by which its packets go elsewhere than it is connected: by way of another host, or out at
/// another interface. `SO_DONTROUTE`, `SO_BINDTODEVICE`, `SO_MARK` and `SO_BINDTOIFINDEX` (`asm-generic/socket.h`).
const ELSEWHERE: [u32; 4] = [5, 25, 36, 62];

/// Those of IPv4 that leave a connection where it is (`linux/in.h`): `IP_TOS`, `IP_TTL`, what is told of packets that
/// arrive, `IP_MTU_DISCOVER`, `IP_RECVERR`, `IP_FREEBIND`, `IP_MINTTL`, `IP_BIND_ADDRESS_NO_PORT`, and those for
/// multicast. `IP_OPTIONS` names hosts on the way (RFC 791); `IP_LOCAL_PORT_RANGE` (51, Linux 6.3) chooses the port that is bound
/// where any is asked for, past the rules on ports.
///
/// Of those for multicast none joins a group by a TCP socket: the kernel tells the neighbours of it, addresses of the
/// sender's choice included (RFC 3376, RFC 3810). `IP_ADD_MEMBERSHIP` and `IPV6_ADD_MEMBERSHIP` refuse TCP;
/// `IP_ADD_SOURCE_MEMBERSHIP`, `IP_MSFILTER`, `MCAST_JOIN_GROUP`, `MCAST_JOIN_SOURCE_GROUP` and `MCAST_MSFILTER` do not.
const IN_PLACE_4: [u32; 29] = [
    1, 2, 6, 7, 8, 10, 11, 12, 13, 14, 15, 20, 21, 24, 25, 26, 32, 33, 34, 35, 36, 37, 38, 40, 43,
    44, 45, 47, 49,
];

/// Those of IPv6 (`linux/in6.h`): hops, `IPV6_MTU_DISCOVER`, `IPV6_MTU`, `IPV6_RECVERR`, `IPV6_V6ONLY`, those for
/// multicast that are kept of IPv4, what is told of packets that arrive, `IPV6_DONTFRAG`, `IPV6_TCLASS`, `IPV6_AUTOFLOWLABEL`,
/// `IPV6_ADDR_PREFERENCES`, `IPV6_MINHOPCOUNT` and `IPV6_FREEBIND`. `IPV6_RTHDR` names hosts on the way (RFC 8754): each of them is sent
/// what was for the connection's other end.
const IN_PLACE_6: [u32; 28] = [
    16, 17, 18, 19, 20, 21, 23, 24, 25, 26, 29, 31, 43, 44, 45, 47, 49, 51, 60, 62, 66, 67, 70, 72,
    73, 74, 77, 78,
];

/// The rules, in order.
pub(super) fn rules(
    add: &mut impl FnMut(&'static str, Verdict, &[(u8, Test)], &'static str),
    tier: Tier,
    policy: &Network,
    confined: bool,
) {
    let network = policy.mode;
    let other: Vec<_> = [AF_UNIX, AF_INET, AF_INET6, AF_NETLINK]
        .iter()
        .map(|&family| (0, Test::Differs(family)))
        .collect();
    add("socket", Verdict::FamilyNotSupported, &other, "a family with more holes than users");
    if tier == Tier::Process {
        // Without a view of its own every socket of the host has a path, and the filter cannot
        // see which one a connect names.
        let local: &[_] = &[(0, Test::Equals(AF_UNIX))];
        add(
            "socket",
            Verdict::AccessDenied,
            local,
            "sockets of the host, docker's and D-Bus's too",
        );
    }
    let pair: &[_] = &[(0, Test::Differs(AF_UNIX))];
    add("socketpair", Verdict::FamilyNotSupported, pair, "only local pairs exist");
    if tier == Tier::Process {
        // One of a pair of datagrams can be connected anew, and send to any path (unix(7)).
        // SOCK_RAW means the same for local sockets.
        let datagrams =
            [SOCK_STREAM, SOCK_SEQPACKET].map(|kind| (1, Test::MaskDiffers(SOCK_TYPE_MASK, kind)));
        let reason = "datagrams reach sockets of the host by their paths";
        add("socketpair", Verdict::AccessDenied, &datagrams, reason);
    }
    // Of netlink, only NETLINK_ROUTE (0), which getaddrinfo and getifaddrs use.
    let netlink: &[_] = &[(0, Test::Equals(AF_NETLINK)), (2, Test::Differs(0))];
    add("socket", Verdict::FamilyNotSupported, netlink, "kernel subsystems behind netlink");
    for family in [AF_INET, AF_INET6] {
        let of = (0, Test::Equals(family));
        if tier == Tier::Process && network == NetworkMode::None {
            add("socket", Verdict::AccessDenied, &[of], "network none");
            continue;
        }
        if tier == Tier::Process && network == NetworkMode::Filtered {
            let other = [of, (1, Test::MaskDiffers(SOCK_TYPE_MASK, SOCK_STREAM))];
            let reason = "datagrams are addressed one by one, past the network filter";
            add("socket", Verdict::AccessDenied, &other, reason);
        }
        let streams_and_datagrams =
            [SOCK_STREAM, SOCK_DGRAM].map(|kind| (1, Test::MaskDiffers(SOCK_TYPE_MASK, kind)));
        let tests: Vec<_> = [of].into_iter().chain(streams_and_datagrams).collect();
        add("socket", Verdict::Refuse, &tests, "packets past the rules");
        let known = [0, PROTO_TCP, PROTO_UDP, PROTO_ICMP, PROTO_ICMPV6];
        let known = known.map(|protocol| (2, Test::Differs(protocol)));
        let tests: Vec<_> = [of].into_iter().chain(known).collect();
        let reason = "a transport that port rules do not see (MPTCP, SCTP, SMC, UDP-Lite)";
        add("socket", Verdict::Refuse, &tests, reason);
    }
    // `smc` makes an SMC socket of one whose family and protocol were let pass (net/smc/af_smc.c, Linux 5.17), and loads
    // the module for it. Who wants the kernel's TLS goes on with its own where there is none.
    let upper = [(1, Test::Equals(PROTO_TCP)), (2, Test::Equals(TCP_ULP))];
    let reason = "makes another transport of a connection (SMC)";
    add("setsockopt", Verdict::Refuse, &upper, reason);
    let publishes = tier == Tier::Namespace && network != NetworkMode::Host;
    let published = publishes && policy.publishes(Transport::Tcp);
    if published {
        add("bind", Verdict::Supervise, &[], "published ports get a socket of the host");
    } else if publishes && policy.publishes(Transport::Udp) {
        add("bind", Verdict::Supervise, &[], "datagrams for published ports are forwarded");
    }
    if published && confined {
        for call in ["connect", "listen"] {
            add(call, Verdict::Supervise, &[], "a socket of the host serves its port alone");
        }
    }
    if tier == Tier::Process && network == NetworkMode::Filtered {
        for call in ["connect", "bind", "listen"] {
            add(call, Verdict::Supervise, &[], "the network filter connects in its place");
        }
        let peer = "tells where it was going, and not the network filter";
        add("getpeername", Verdict::Supervise, &[], peer);
        let name: &[_] = &[(1, Test::Equals(SOL_SOCKET)), (2, Test::Equals(SO_PEERNAME))];
        add("getsockopt", Verdict::Supervise, name, peer);
        let share: &[_] = &[(1, Test::Equals(SOL_SOCKET)), (2, Test::Equals(SO_REUSEPORT))];
        add("setsockopt", Verdict::Supervise, share, "shares ports with services of the host");
        let late: &[_] = &[(1, Test::Equals(PROTO_TCP)), (2, Test::Equals(TCP_FASTOPEN_CONNECT))];
        add("setsockopt", Verdict::Refuse, late, "connects later than it is judged");
    }
    // A socket of the host must not be used to connect out past the namespace.
    if !published && (tier == Tier::Namespace || network == NetworkMode::None) {
        return;
    }
    if published || network == NetworkMode::Filtered {
        options(add);
    }
    let fast_open = "connects past the port rules (landlock-lsm/linux#41)";
    add("sendto", Verdict::Refuse, &[(3, Test::AnyBit(MSG_FASTOPEN))], fast_open);
    add("sendmsg", Verdict::Refuse, &[(2, Test::AnyBit(MSG_FASTOPEN))], fast_open);
    add("sendmmsg", Verdict::Refuse, &[(3, Test::AnyBit(MSG_FASTOPEN))], fast_open);
}

/// What a socket of the host is not told: where its packets are to go is decided when it is connected.
fn options(add: &mut impl FnMut(&'static str, Verdict, &[(u8, Test)], &'static str)) {
    let reason = "sends a connection's packets past where it was allowed to go";
    for option in ELSEWHERE {
        let test = [(1, Test::Equals(SOL_SOCKET)), (2, Test::Equals(option))];
        add("setsockopt", Verdict::Refuse, &test, reason);
    }
    for (level, kept) in [(PROTO_IP, &IN_PLACE_4[..]), (PROTO_IPV6, &IN_PLACE_6[..])] {
        let mut test = vec![(1, Test::Equals(level))];
        test.extend(kept.iter().map(|&option| (2, Test::Differs(option))));
        add("setsockopt", Verdict::Refuse, &test, reason);
    }
}
