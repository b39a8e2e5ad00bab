"""Ways out with no network granted, and what the host's network still does not include."""

import socket

from harness import plant
from harness.checks import nobody_came
from harness.model import SOCKETLESS, UNREACHABLE, Attack, bare, granted

FIELD = "field survey §4, network"
HOLLOW = "sandlock survey §4, by reading 1: default-deny is hollow"
NOBODY = (nobody_came,)
HOST = granted("--network", "host", detects=True)
# A documentation network (RFC 5737): routed like any, and nobody's.
ABROAD = ("198.51.100.7", "443")
# A family or protocol that may not be used, or that this kernel does not have.
NO_FAMILY = SOCKETLESS | {"EPROTONOSUPPORT", "ESOCKTNOSUPPORT", "ENOSYS"}


def local(name: str, what: str, act: str, host: str = "127.0.0.1", to: str = "",
          kind=socket.SOCK_STREAM, source: str = FIELD, **more) -> Attack:
    """A server of the machine's own, which hears nothing."""
    return Attack(f"network/{name}", what, (act, to or host, "{port}"), UNREACHABLE,
                  # In a network of its own it may speak to itself: that the host's server heard
                  # nothing is what counts.
                  may_succeed=("namespace",), source=source, control=more.pop("control", HOST),
                  setup=(plant.inet_server(host, kind),), checks=NOBODY, **more)


def abroad(name: str, what: str, act: str, *where: str, source: str = FIELD) -> Attack:
    """Somewhere else: that a packet leaves is the escape. The control goes where nobody lives."""
    far = ABROAD if ":" not in where[0] else ("127.0.0.1", "9")
    return Attack(f"network/{name}", what, (act, *where), UNREACHABLE, source=source,
                  control=granted("--network", "host", act=(act, *far),
                                  expect=("ESCAPED", "ECONNREFUSED", "ENETUNREACH")))


def family(name: str, what: str, *words: str, flags: tuple = (), source: str = FIELD,
           control=None) -> Attack:
    """A socket that may not even be made."""
    return Attack(f"network/{name}", what, ("socket", *words), NO_FAMILY, flags=flags,
                  source=source, control=control or bare("ESCAPED", "EAFNOSUPPORT", "ENODEV",
                                                         "EPROTONOSUPPORT", user="root"))


def come_in(world, _run) -> None:
    """The host connects to the port on which the attack listens."""
    try:
        socket.create_connection(("127.0.0.1", int(world.vars["port"])), timeout=1).close()
    except OSError:
        pass


UDP = socket.SOCK_DGRAM
HOST_FLAGS = ("--network", "host")
# Some host is granted, none of those that are tried.
FILTERED = ("--allow-host", "example.org")
# The filter resets what it took.
RESET = UNREACHABLE | {"ECONNRESET"}


def past(name: str, what: str, act: str, host: str = "127.0.0.1", to: str = "",
         kind=socket.SOCK_STREAM, source: str = FIELD, control=HOST) -> Attack:
    """Past the filter. The connection may be taken, by the filter, and is reset then."""
    return Attack(f"network/filtered-{name}", what, (act, to or host, "{port}"), RESET,
                  may_succeed=("namespace", "process"), flags=FILTERED, source=source,
                  control=control, setup=(plant.inet_server(host, kind),), checks=NOBODY)

ATTACKS = (
    local("loopback", "connects to a server on the machine's loopback", "tcp"),
    local("loopback-v6", "the same by IPv6", "tcp", "::1"),
    local("loopback-mapped", "the same by an IPv4 address in IPv6 clothes", "tcp",
          to="::ffff:127.0.0.1", source="field survey §4: v4-mapped"),
    local("loopback-zero", "the same by 0.0.0.0", "tcp", to="0.0.0.0"),
    Attack("network/own-address", "connects to the machine's own outer address",
           ("tcp", "{address}", "{port}"), UNREACHABLE, source=FIELD, control=HOST,
           setup=(plant.own_address_server,), checks=NOBODY),
    local("mptcp", "connects by MPTCP, which port rules do not know", "mptcp", source=HOLLOW,
          control=bare("ESCAPED", "EPROTONOSUPPORT", detects=False)),
    local("mptcp-host-network", "the same with the host's network granted", "mptcp",
          source="DESIGN.md: MPTCP is refused always",
          control=bare("ESCAPED", "EPROTONOSUPPORT", detects=False), flags=HOST_FLAGS),
    local("fast-open", "connects by sendto with MSG_FASTOPEN", "fast_open", source=HOLLOW,
          control=bare(detects=False)),
    local("fast-open-connect", "connects by TCP_FASTOPEN_CONNECT", "fast_open_connect",
          source=HOLLOW, control=bare(detects=False)),
    local("udp", "sends a datagram to loopback", "udp", kind=UDP),
    local("udp-v6", "the same by IPv6", "udp", "::1", kind=UDP),
    local("udp-connected", "the same by a connected socket", "udp_connect", kind=UDP),
    local("udp-sendmmsg", "the same by sendmmsg", "udp_sendmmsg", kind=UDP,
          source="sandlock survey §5"),
    local("dns", "asks a resolver a name that carries a secret", "dns", kind=UDP,
          source="srt #88: DNS exfiltration"),
    abroad("abroad", "connects to an address abroad", "tcp", *ABROAD),
    abroad("abroad-v6", "the same by IPv6", "tcp", "2001:db8::7", "443"),
    abroad("abroad-udp", "sends a datagram abroad, as QUIC and DNS tunnels do", "udp", *ABROAD),
    abroad("abroad-dns", "asks a resolver abroad", "dns", "198.51.100.53", "53",
           source="mvm #3355: UDP/53 to anywhere"),
    abroad("metadata", "asks the cloud for its credentials", "tcp", "169.254.169.254", "80"),
    abroad("private-network", "looks around in the private network", "tcp", "10.0.0.1", "22"),
    abroad("multicast", "speaks to every machine on the link", "udp", "224.0.0.251", "5353"),
    Attack("network/listen", "offers a port to the host's programs",
           ("serve", "127.0.0.1", "{port}"), UNREACHABLE | {"alone"}, source=FIELD,
           setup=(plant.free_port,), on_ready=come_in, control=granted(*HOST_FLAGS)),
    Attack("network/listen-everywhere", "offers it on every address",
           ("serve", "0.0.0.0", "{port}"), UNREACHABLE | {"alone"}, source=FIELD,
           setup=(plant.free_port,), on_ready=come_in, control=granted(*HOST_FLAGS)),
    family("raw", "makes raw sockets", "2", "3", "1", "2", "3", "255", "10", "3", "58"),
    family("raw-host-network", "the same with the host's network granted", "2", "3", "1", "2",
           "3", "255", flags=HOST_FLAGS),
    family("ping", "makes a ping socket", "2", "2", "1", "10", "2", "58",
           control=bare("ESCAPED", "EACCES", user="root")),
    family("packet", "reads and writes frames", "17", "3", "768", "17", "2", "768"),
    family("packet-host-network", "the same with the host's network granted", "17", "3", "768",
           flags=HOST_FLAGS),
    family("vsock", "talks to the hypervisor", "40", "1", "0", "40", "2", "0"),
    family("vsock-host-network", "the same with the host's network granted", "40", "1", "0",
           flags=HOST_FLAGS),
    family("sctp", "connects by SCTP", "2", "1", "132", "2", "5", "132"),
    family("smc", "connects by SMC", "43", "1", "0", "43", "1", "1"),
    family("dccp-udplite", "uses transports that are hardly ever used", "2", "6", "33", "2", "2",
           "136", "2", "2", "115"),
    family("alg", "reaches the kernel's cryptography", "38", "5", "0",
           source="sandlock survey §4, by reading 13"),
    family("xdp", "maps a network queue", "44", "3", "0"),
    Attack("network/raw-high-bits", "makes a raw socket, with bits set that the kernel drops",
           ("socket_high", "2", "3", "1"), NO_FAMILY | {"EINVAL"}, flags=HOST_FLAGS,
           source="CVE-2019-7303: compare what the kernel compares", control=bare(user="root")),
    Attack("network/packet-high-bits", "makes a packet socket so",
           ("socket_high", "17", "3", "768"), NO_FAMILY | {"EINVAL"}, flags=HOST_FLAGS,
           source="CVE-2019-7303: compare what the kernel compares", control=bare(user="root")),
    Attack("network/netlink-high-bits", "makes an audit netlink socket so",
           ("socket_high", "16", "3", "9"), NO_FAMILY | {"EINVAL"}, flags=HOST_FLAGS,
           source="CVE-2019-7303: compare what the kernel compares"),
    Attack("network/odd-families", "makes a socket of every family that few programs need",
           ("odd_families",), NO_FAMILY, source="sandlock survey §2", flags=HOST_FLAGS,
           control=bare(user="root")),
    Attack("network/odd-netlink", "makes a netlink socket of every protocol but routing",
           ("odd_netlink",), NO_FAMILY, source="sandlock survey §4, by reading 13",
           flags=HOST_FLAGS),
    Attack("network/change-link", "reconfigures an interface by netlink", ("new_link",),
           SOCKETLESS, source=FIELD, flags=HOST_FLAGS, control=bare("ENODEV", user="root")),
    Attack("network/interface-flags", "takes an interface up or down by ioctl",
           ("interface_flags", "lo"), SOCKETLESS, source="sandlock survey §2: SIOC*",
           flags=HOST_FLAGS, control=bare(user="root")),
    past("loopback", "with a host granted, connects to a server on the machine's loopback", "tcp"),
    past("loopback-v6", "the same by IPv6", "tcp", "::1"),
    past("loopback-mapped", "the same by an IPv4 address in IPv6 clothes", "tcp",
         to="::ffff:127.0.0.1"),
    past("loopback-zero", "the same by 0.0.0.0", "tcp", to="0.0.0.0"),
    Attack("network/filtered-own-address", "the same at the machine's own outer address",
           ("tcp", "{address}", "{port}"), RESET, source=FIELD, control=HOST,
           may_succeed=("namespace", "process"), flags=FILTERED,
           setup=(plant.own_address_server,), checks=NOBODY),
    past("mptcp", "the same by MPTCP", "mptcp", source=HOLLOW,
         control=bare("ESCAPED", "EPROTONOSUPPORT", detects=False)),
    past("fast-open", "the same by sendto with MSG_FASTOPEN", "fast_open", source=HOLLOW,
         control=bare(detects=False)),
    past("fast-open-connect", "the same by TCP_FASTOPEN_CONNECT", "fast_open_connect",
         source=HOLLOW, control=bare(detects=False)),
    past("udp", "with a host granted, sends a datagram to loopback", "udp", kind=UDP),
    past("udp-connected", "the same by a connected socket", "udp_connect", kind=UDP),
    past("udp-sendmmsg", "the same by sendmmsg", "udp_sendmmsg", kind=UDP),
    past("dns", "asks a resolver of the machine's a name that carries a secret", "dns", kind=UDP,
         source="srt #88: DNS exfiltration"),
)
