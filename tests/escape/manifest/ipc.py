"""Talking to the host's programs: sockets, shared memory, queues, FIFOs, terminals."""

import socket

from harness import plant
from harness.checks import (
    fifo_silent, ipc_untouched, nobody_came, queue_is_there, terminal_open_to_others,
    terminal_silent,
)
from harness.model import HIDDEN, SOCKETLESS, Attack, bare, granted

FIELD = "field survey §4, IPC"
ROW2 = "fence survey §4 row 2: a read-only mount does not stop connect()"
NOBODY = (nobody_came,)
# A pathname socket that is masked, or may not be connected to.
MASKED = HIDDEN | {"ECONNREFUSED", "ENOTSOCK", "ENXIO"}
# An abstract name is either not there (another network namespace) or out of scope.
NOT_THERE = SOCKETLESS | {"ECONNREFUSED"}
DENIED_OR_ABSENT = frozenset({"ENOENT", "EPERM", "EACCES", "ENOSYS", "EIDRM", "EINVAL"})


def server(name: str, what: str, path: str, *, env: dict | None = None, source: str = ROW2,
           flags: tuple = ()) -> Attack:
    """A daemon's socket at the place where such daemons listen."""
    return Attack(f"ipc/socket-{name}", f"connects to {what}", ("unix_stream", path), MASKED,
                  source=source, env=env or {}, flags=flags, setup=(plant.unix_server(path),),
                  checks=NOBODY)


def reach_in(name: str):
    """A program of the host's tries to connect to what the attack listens on."""

    def on_ready(world, _run) -> None:
        with socket.socket(socket.AF_UNIX) as sock:
            try:
                sock.connect(world.fill(name).replace("@", "\0", 1))
            except OSError:
                pass

    return on_ready


def terminal(name: str, what: str, act: str, source: str, control, check=terminal_silent) -> Attack:
    return Attack(f"ipc/{name}", what, (act,), frozenset({"EPERM", "EACCES"}), source=source,
                  tty=True, setup=(plant.controlling_terminal,), checks=(check,),
                  control=control)


ATTACKS = (
    server("docker", "the container daemon", "{run}/docker.sock"),
    server("docker-home", "a rootless container daemon in the home directory",
           "{home}/.docker/run/docker.sock", env={"DOCKER_HOST": "unix://{home}/.docker/run/docker.sock"}),
    server("podman", "podman in the user's runtime directory", "{xdg}/podman/podman.sock"),
    server("session-bus", "the session's D-Bus, with systemd and keyring behind it", "{xdg}/bus",
           env={"DBUS_SESSION_BUS_ADDRESS": "unix:path={xdg}/bus"},
           source="fence survey §4 row 3; landrun #43"),
    server("systemd", "the user's systemd", "{xdg}/systemd/private", source="landrun #43"),
    server("resolver", "a resolver behind a socket", "{run}/resolve/io.systemd.Resolve",
           source="dust #29411"),
    server("ssh-agent", "the agent that holds the keys", "{tmp}/agent.1",
           env={"SSH_AUTH_SOCK": "{tmp}/agent.1"}, source=FIELD),
    server("gpg-agent", "the agent that signs", "{home}/.gnupg/S.gpg-agent", source=FIELD),
    server("tmux", "a terminal multiplexer, which runs what it is told", "{tmp}/tmux/default",
           env={"TMUX": "{tmp}/tmux/default,1,0"}, source=FIELD),
    server("x11", "the X server", "{tmp}/X11-unix/X99", env={"DISPLAY": ":99"}, source=FIELD),
    server("wayland", "the compositor", "{xdg}/wayland-0", env={"WAYLAND_DISPLAY": "wayland-0"},
           source=FIELD),
    server("read-granted", "a daemon in a directory granted for reading", "{out}/d.sock",
           flags=("-r", "{out}")),
    Attack("ipc/socket-beside-allowed", "connects to the socket beside the one that is allowed",
           ("unix_stream", "{run}/docker.sock"), MASKED, source="fence survey §4 row 2",
           flags=("--allow-socket", "{run}/other.sock"),
           setup=(plant.unix_server("{run}/other.sock"), plant.unix_server("{run}/docker.sock")),
           checks=NOBODY, control=granted("--allow-socket", "{run}/docker.sock", detects=True),
           may_refuse=("process",)),
    Attack("ipc/socket-by-link", "connects through a link in the workspace",
           "ln -s {run}/docker.sock s; {P} unix_stream s", MASKED,
           source="sandlock survey §5: symlink to an ungranted socket",
           setup=(plant.unix_server("{run}/docker.sock"),), checks=NOBODY),
    Attack("ipc/socket-by-proc-root", "connects by /proc/self/root",
           ("unix_stream", "/proc/self/root{run}/docker.sock"), MASKED, source=ROW2,
           setup=(plant.unix_server("{run}/docker.sock"),), checks=NOBODY),
    Attack("ipc/socket-by-descriptor", "connects by a descriptor of the directory",
           ("unix_via_fd", "{run}", "docker.sock"), MASKED, source=ROW2,
           setup=(plant.unix_server("{run}/docker.sock"),), checks=NOBODY),
    # Where it can be linked and moved from: `/run` is mostly a file system of its own.
    Attack("ipc/socket-by-hard-link", "links the socket into the workspace and connects there",
           "{P} linkread {out}/docker.sock s; {P} unix_stream s", MASKED | {"EXDEV"}, source=ROW2,
           setup=(plant.unix_server("{out}/docker.sock"),), checks=NOBODY),
    Attack("ipc/socket-by-rename", "moves the socket into the workspace and connects there",
           "{P} rename {out}/docker.sock s; {P} unix_stream s", MASKED | {"EXDEV"}, source=ROW2,
           setup=(plant.unix_server("{out}/docker.sock"),), checks=NOBODY),
    Attack("ipc/socket-datagram", "sends a datagram to a daemon",
           ("unix_dgram", "{run}/log.sock"), MASKED, source="sandlock survey §5",
           setup=(plant.unix_server("{run}/log.sock", socket.SOCK_DGRAM),), checks=NOBODY),
    Attack("ipc/socket-sendmsg", "the same by sendmsg, its address in memory",
           ("unix_sendmsg", "{run}/log.sock"), MASKED, source="sandlock survey §5",
           setup=(plant.unix_server("{run}/log.sock", socket.SOCK_DGRAM),), checks=NOBODY),
    Attack("ipc/socket-pair", "sends by one of a pair of datagram sockets, connected anew",
           ("unix_pair", "{run}/log.sock"), MASKED,
           source="found by attacking 0.1: unix(7), datagram sockets are connected as often as one likes",
           setup=(plant.unix_server("{run}/log.sock", socket.SOCK_DGRAM),), checks=NOBODY),
    Attack("ipc/socket-pair-abstract", "the same to an abstract socket, with the host's network",
           ("unix_pair", "@rf-escape-{id}"), NOT_THERE, source="found by attacking 0.1",
           flags=("--network", "host"),
           setup=(plant.unix_server("@rf-escape-{id}", socket.SOCK_DGRAM),), checks=NOBODY),
    Attack("ipc/socket-seqpacket", "connects a sequenced-packet socket",
           ("unix_seqpacket", "{run}/p.sock"), MASKED, source="sandlock survey §5",
           setup=(plant.unix_server("{run}/p.sock", socket.SOCK_SEQPACKET),), checks=NOBODY),
    Attack("ipc/socket-race", "changes the address while the call is being looked at",
           ("race_connect", "{ws}/s", "{run}/docker.sock"), MASKED,
           source="sandlock #27: argument race", setup=(plant.unix_server("{run}/docker.sock"),),
           checks=NOBODY),
    Attack("ipc/abstract-out", "connects to an abstract socket of the host's",
           ("unix_stream", "@rf-escape-{id}"), NOT_THERE, source="fence survey §4 row 4",
           setup=(plant.unix_server("@rf-escape-{id}"),), checks=NOBODY),
    Attack("ipc/abstract-out-host-network", "the same with the host's network granted",
           ("unix_stream", "@rf-escape-{id}"), NOT_THERE, source="fence survey §4 row 4",
           flags=("--network", "host"), setup=(plant.unix_server("@rf-escape-{id}"),),
           checks=NOBODY),
    Attack("ipc/abstract-datagram", "sends a datagram to an abstract socket",
           ("unix_dgram", "@rf-escape-{id}"), NOT_THERE, source="sandlock survey §5",
           flags=("--network", "host"),
           setup=(plant.unix_server("@rf-escape-{id}", socket.SOCK_DGRAM),), checks=NOBODY),
    Attack("ipc/abstract-in", "offers an abstract socket to the host's programs",
           ("unix_listen", "@rf-escape-{id}"), frozenset({"alone", *SOCKETLESS}),
           source=FIELD, on_ready=reach_in("@rf-escape-{id}"),
           not_in={"process": "Landlock scopes what goes out; a name in the shared abstract "
                              "namespace can be connected to from outside"}),
    Attack("ipc/descriptor-over-abstract", "takes a descriptor from a helper on an abstract socket",
           ("take_fd", "@rf-escape-{id}"), NOT_THERE, source="field survey §4: SCM_RIGHTS",
           setup=(plant.unix_server("@rf-escape-{id}", hand_over="{out}/victim.txt"),),
           checks=NOBODY),
    Attack("ipc/descriptor-over-path", "takes a descriptor from a helper on a socket in /tmp",
           ("take_fd", "{tmp}/s"), MASKED, source="field survey §4: SCM_RIGHTS",
           setup=(plant.unix_server("{tmp}/s", hand_over="{out}/victim.txt"),), checks=NOBODY),
    Attack("ipc/sysv-shared-memory", "attaches another program's shared memory",
           ("sysv_shm", "{key}"), DENIED_OR_ABSENT, source=FIELD, setup=(plant.ipc_object("shm"),)),
    Attack("ipc/sysv-scan", "lists every segment of the machine", ("sysv_scan",),
           DENIED_OR_ABSENT | {"absent"}, source=FIELD, setup=(plant.ipc_object("shm"),)),
    Attack("ipc/sysv-queue", "sends to another program's message queue", ("sysv_msg", "{key}"),
           DENIED_OR_ABSENT, source=FIELD, setup=(plant.ipc_object("msg"),),
           checks=(ipc_untouched,)),
    Attack("ipc/sysv-semaphore", "raises another program's semaphore", ("sysv_sem", "{key}"),
           DENIED_OR_ABSENT, source=FIELD, setup=(plant.ipc_object("sem"),),
           checks=(ipc_untouched,)),
    Attack("ipc/posix-queue", "sends to a POSIX message queue", ("posix_mq", "{key}"),
           DENIED_OR_ABSENT, source=FIELD, setup=(plant.ipc_object("mq"),),
           checks=(ipc_untouched,)),
    Attack("ipc/posix-queue-remove", "removes a POSIX message queue by its name",
           ("posix_mq_remove", "{key}"), DENIED_OR_ABSENT, setup=(plant.ipc_object("mq"),),
           source="found by attacking 0.1: mq_unlink(2) opens nothing", checks=(queue_is_there,)),
    Attack("ipc/fifo", "writes to a FIFO that the host reads", ("fifo", "{out}/pipe"), HIDDEN,
           source=FIELD, setup=(plant.fifo("{out}/pipe"),), checks=(fifo_silent,)),
    Attack("ipc/fifo-read-only", "the same in a directory granted for reading",
           ("fifo", "{out}/pipe"), HIDDEN, source=FIELD, flags=("-r", "{out}"),
           setup=(plant.fifo("{out}/pipe"),), checks=(fifo_silent,)),
    terminal("tiocsti", "pushes characters into the terminal's input", "tiocsti", "CVE-2017-5226",
             bare()),
    terminal("tiocsti-high-bits", "the same with bits above the 32 the kernel looks at",
             "tiocsti_high", "CVE-2019-7303", bare()),
    terminal("tioclinux", "pastes on a virtual console", "tioclinux",
             "field survey §4: TIOCLINUX", bare("ENOTTY", "EPERM", detects=False)),
    terminal("tiocexcl", "keeps others from opening the terminal", "tiocexcl",
             "found by attacking 0.1: it outlives the run", bare(), terminal_open_to_others),
    terminal("tcxonc", "stops the terminal", "tcxonc",
             "found by attacking 0.1: nobody can print on it, after the run too",
             bare(detects=False)),
    terminal("signal-by-terminal", "has the terminal signal who is in its foreground", "signal_by_tty",
             "found by attacking 0.1: __tty_fasync takes the foreground group for the owner",
             bare(detects=False)),
    terminal("tioccons", "redirects the kernel's console to itself", "tioccons",
             "snapd and flatpak filters", bare("ESCAPED", "EBUSY", user="root", detects=False)),
)
