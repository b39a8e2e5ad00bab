"""Ways out past a network filter that grants some host: through the proxy inside, which dials for whoever
asks it; through the filter's own listeners; by other spellings of what is not granted."""

from harness import plant
from harness.model import SOCKETLESS, UNREACHABLE, Attack, granted
from harness.checks import nobody_came

FIELD = "field survey §4, network"
FILTERED = ("--allow-host", "example.org")
PROXY, LISTENER = "1022", "1023"
# The proxy's words: forbidden, not understood; SOCKS5: not allowed, failed, not reachable, no such command.
NO = frozenset({"http-403", "http-400", "http-502", "silent", "ECONNRESET", "socks-1", "socks-2",
                "socks-4", "socks-7", "socks-8"})
HERE = plant.inet_server("127.0.0.1")
TUNNEL = ("proxy", PROXY, "CONNECT localhost:{port}")
SOCKS = ("socks", PROXY, "3", "localhost", "{port}")
GRANTED = ("--allow-host", "localhost:{port}")


def tunnel(name: str, what: str, to: str, source: str = FIELD) -> Attack:
    """A tunnel by the proxy to a server of the machine's own."""
    return Attack(f"network/proxy-{name}", what, ("proxy", PROXY, f"CONNECT {to}"), NO,
                  flags=FILTERED, source=source, setup=(HERE,), checks=(nobody_came,),
                  control=granted(*GRANTED, act=TUNNEL, detects=True))


def socks(name: str, what: str, kind: str, to: str, source: str = FIELD) -> Attack:
    """The same by SOCKS5."""
    return Attack(f"network/socks-{name}", what, ("socks", PROXY, kind, to, "{port}"), NO,
                  flags=FILTERED, source=source, setup=(HERE,), checks=(nobody_came,),
                  control=granted(*GRANTED, act=SOCKS, detects=True))


def dead_end(name: str, what: str, *act: str) -> Attack:
    """A connection that may be taken, and is reset without a byte."""
    return Attack(f"network/{name}", what, act, UNREACHABLE | NO | {"ETIMEDOUT"}, flags=FILTERED,
                  source=FIELD, setup=(HERE,), checks=(nobody_came,),
                  control=granted(*GRANTED, act=TUNNEL, detects=True))


ATTACKS = (
    tunnel("loopback", "asks the proxy for a tunnel to the machine's loopback", "127.0.0.1:{port}",
           "field survey §4: CONNECT to an IP literal"),
    tunnel("localhost", "the same by its name", "localhost:{port}"),
    tunnel("short", "the same in a short spelling", "127.1:{port}"),
    tunnel("number", "the same as one number", "2130706433:{port}"),
    tunnel("hexadecimal", "the same in hexadecimal", "0x7f000001:{port}"),
    tunnel("octal", "the same in octal", "0177.0.0.1:{port}"),
    tunnel("zero", "the same by 0.0.0.0", "0.0.0.0:{port}"),
    tunnel("mapped", "the same by an IPv4 address in IPv6 clothes", "[::ffff:127.0.0.1]:{port}"),
    tunnel("dot", "the same by its name with a dot", "localhost.:{port}"),
    tunnel("case", "the same in capitals", "LOCALHOST:{port}"),
    tunnel("below", "the same by a name below it", "app.localhost:{port}"),
    tunnel("userinfo", "the same behind the granted name", "example.org@127.0.0.1:{port}"),
    tunnel("url", "a URL in place of a host", "http://127.0.0.1:{port}/"),
    tunnel("metadata", "asks the proxy for the cloud's credentials", "169.254.169.254:80"),
    tunnel("metadata-mapped", "the same in IPv6 clothes", "[::ffff:169.254.169.254]:80"),
    tunnel("own-port", "asks the proxy for the proxy", f"127.0.0.1:{PROXY}",
           "field survey §4: other host on the proxy's port"),
    tunnel("other-port", "asks for the granted host at another port", "example.org:22"),
    socks("loopback", "asks SOCKS5 for the machine's loopback", "1", "127.0.0.1"),
    socks("loopback-v6", "the same by IPv6", "4", "::ffff:127.0.0.1"),
    socks("name", "the same by its name", "3", "localhost"),
    socks("nul", "a name with a NUL in it, that ends in the granted one", "3",
          "localhost^.example.org", "Claude Code 2.0.24-2.1.89: SOCKS5 hostname NUL"),
    socks("nul-last", "the same the other way round", "3", "example.org^localhost",
          "Claude Code 2.0.24-2.1.89: SOCKS5 hostname NUL"),
    socks("number", "a number as a name", "3", "2130706433"),
    dead_end("filter-listener", "speaks to the filter's own listener", "talk", "127.0.0.1",
             LISTENER),
    dead_end("filter-metadata", "asks the cloud for its credentials", "talk", "169.254.169.254",
             "80"),
    dead_end("filter-private", "looks around in the private network", "talk", "10.0.0.1", "80"),
    dead_end("filter-public", "speaks to an address whose name nobody granted", "talk",
             "198.51.100.7", "443"),
    dead_end("filter-synthetic", "speaks to an address that stands for no name", "talk",
             "198.18.77.77", "443"),
) + tuple(
    Attack(f"network/filter-{name}", f"{what}, with a host granted", ("socket", *words),
           SOCKETLESS | {"EPROTONOSUPPORT", "ESOCKTNOSUPPORT", "ENOSYS"}, flags=FILTERED,
           source=FIELD, setup=(HERE,), checks=(nobody_came,),
           control=granted(*GRANTED, act=TUNNEL, detects=True))
    for name, what, words in (
        ("raw", "makes raw sockets (ICMP)", ("2", "3", "1", "10", "3", "58")),
        ("ping", "makes a ping socket", ("2", "2", "1", "10", "2", "58")),
        ("packet", "reads and writes frames", ("17", "3", "768")),
        ("vsock", "talks to the hypervisor", ("40", "1", "0", "40", "2", "0")),
        ("sctp", "connects by SCTP", ("2", "1", "132", "2", "5", "132")),
        ("smc", "connects by SMC", ("43", "1", "0")),
    )
)
