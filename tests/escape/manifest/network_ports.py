"""Ways to services of the host over ports of one's own: in the process tier the ports are the host's."""

import errno
import socket

from harness import plant
from harness.checks import nobody_came
from harness.model import UNREACHABLE, Attack, bare

SOURCE = "network attackers of ringfence's own, 2026-11"
FILTERED = ("--allow-host", "example.org")
# In a network of its own the port is the sandbox's alone.
ALONE = UNREACHABLE | {"EADDRINUSE", "ECONNRESET", "EPIPE", "ENOTCONN", "EAGAIN", "alone", "silent"}


def ask_shared(world, _run) -> None:
    """Clients of the host's server, some of whom the kernel would give to another one that shares its port."""
    for _ in range(64):
        try:
            socket.create_connection(("127.0.0.1", int(world.vars["port"])), timeout=5).close()
        except OSError:
            pass


def share_later(world, run) -> None:
    """A server of the host's that finds the port taken; where it does not, its clients come."""
    try:
        plant.shared_server(world)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return
    ask_shared(world, run)


def come_in(world, _run) -> None:
    """The host connects to the port on which the attack listens."""
    try:
        socket.create_connection(("127.0.0.1", int(world.vars["port"])), timeout=1).close()
    except OSError:
        pass


def late(name: str, what: str, act: str, *said: str) -> Attack:
    """A connection to a server of its own that arrives when the port is a service's of the host."""
    return Attack(f"network/late-{name}", what, (act, "{port}"), ALONE, flags=FILTERED, source=SOURCE,
                  control=bare("ESCAPED", *said, detects=True), setup=(plant.later_server,), checks=(nobody_came,),
                  on_ready=plant.serve_now)


def low(name: str, what: str, flags: tuple) -> Attack:
    return Attack(f"network/{name}", what, ("serve", "127.0.0.1", "{port}"), frozenset({"EACCES"}),
                  flags=flags, source=SOURCE, control=bare(user="root"), setup=(plant.low_port,),
                  on_ready=come_in, not_in=PUBLISHED if "--publish" in flags else {})


PUBLISHED = {"process": "has no --publish"}

ATTACKS = (
    late("deferred", "begins to connect to its own server, and sends when another one is there",
         # Its bytes are not read: it is reset.
         "late_deferred", "ECONNRESET"),
    late("full", "begins to connect to its own server, whose queue is full until another one is there",
         "late_full"),
    late("waiting", "waits for its own server, whose queue is full until another one is there",
         "late_waiting"),
    Attack("network/share-out", "shares the port of a server of the host's, and connects to it",
           ("share_out", "{port}"), ALONE, flags=FILTERED, source=SOURCE,
           control=bare(detects=True), setup=(plant.shared_server,), checks=(nobody_came,)),
    Attack("network/share-in", "shares the port of a server of the host's, and takes its clients",
           ("share_in", "{port}"), ALONE, flags=FILTERED, source=SOURCE, control=bare(),
           setup=(plant.shared_server,), on_ready=ask_shared),
    Attack("network/share-first", "has a port before a server of the host's would share it",
           ("share_in", "{port}"), ALONE, flags=FILTERED, source=SOURCE, control=bare(),
           setup=(plant.later_server,), on_ready=share_later),
    Attack("network/share-published", "shares a port by publishing it, and takes its clients",
           ("share_in", "{port}"), ALONE, flags=("--publish", "{port}"), source=SOURCE,
           control=bare(), setup=(plant.shared_server,), on_ready=ask_shared, not_in=PUBLISHED),
    Attack("network/other-family", "has a server at a port in IPv6, and connects to it in IPv4",
           ("other_family", "{port}"), ALONE, flags=FILTERED, source=SOURCE,
           control=bare(detects=True), setup=(plant.inet_server("127.0.0.1"),),
           checks=(nobody_came,)),
    low("low-port", "serves at a port that takes a privilege", FILTERED),
    low("low-port-published", "the same beside a published one", ("--publish", "7999")),
)
