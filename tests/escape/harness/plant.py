"""What the host has that attacks aim at: sockets, processes, IPC objects, open files.

Each function returns a setup for an attack: it plants the thing in a world, puts its
address in the world's variables, and leaves the world to take it away again.
"""

from __future__ import annotations

import array
import itertools
import os
import pty
import select
import shutil
import socket
import subprocess
import termios
import threading
import time
import tty
from pathlib import Path
from typing import Callable

from .process import FORKING, write_program
from .world import World, write


def dynamic_linker() -> str:
    """The program that maps programs."""
    for name in ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"):
        if os.path.exists(name):
            return name
    return "/lib/ld.so"


class Trap:
    """A server of the host's that counts who comes."""

    def __init__(self, sock: socket.socket, hand_over: str = "") -> None:
        self.sock = sock
        self.hits = 0
        self.hand_over = hand_over
        self.listens = sock.type in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)
        self.closed = threading.Event()
        self.wake = os.pipe()
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self) -> None:
        while True:
            ready, _, _ = select.select([self.sock, self.wake[0]], [], [])
            if self.closed.is_set():
                return
            if not ready:
                continue
            if not self.listens:
                self.sock.recv(4096)
                self.hits += 1
                continue
            peer, _ = self.sock.accept()
            self.hits += 1
            with peer:
                if self.hand_over:
                    give_descriptor(peer, self.hand_over)

    def count(self) -> int:
        """How many have come by now: those too whom the kernel has let in already."""
        self.stop()
        self.sock.setblocking(False)
        while self.sock.fileno() >= 0:
            try:
                if self.listens:
                    self.sock.accept()[0].close()
                else:
                    self.sock.recv(4096)
            except OSError:
                break
            self.hits += 1
        return self.hits

    def stop(self) -> None:
        if not self.closed.is_set():
            self.closed.set()
            os.write(self.wake[1], b"x")
            self.thread.join()

    def close(self) -> None:
        self.stop()
        self.sock.close()
        for fd in self.wake:
            os.close(fd)


def give_descriptor(peer: socket.socket, path: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        peer.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
    finally:
        os.close(fd)


def trap(world: World, sock: socket.socket, hand_over: str = "") -> None:
    it = Trap(sock, hand_over)
    world.traps = getattr(world, "traps", []) + [it]
    world.closing.append(it.close)


def unix_server(name: str, kind: int = socket.SOCK_STREAM, hand_over: str = "") -> Callable:
    """A Unix socket at a path or, with '@', an abstract name."""

    def setup(world: World) -> None:
        where = world.fill(name)
        sock = socket.socket(socket.AF_UNIX, kind)
        if where.startswith("@"):
            sock.bind("\0" + where[1:])
        else:
            path = Path(where)
            missing = [p for p in path.parents if not p.exists()]
            path.parent.mkdir(parents=True, exist_ok=True)
            sock.bind(where)
            os.chmod(where, 0o666)
            if os.geteuid() == 0:
                for made in (*missing, path):
                    os.chown(made, world.user.uid, world.user.gid)
            world.closing.append(lambda: path.unlink(missing_ok=True))
        if kind != socket.SOCK_DGRAM:
            sock.listen(64)
        trap(world, sock, world.fill(hand_over))

    return setup


def inet_server(host: str, kind: int = socket.SOCK_STREAM) -> Callable:
    """A server on an address of the machine's; {port} is where."""

    def setup(world: World) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, kind)
        sock.bind((host, 0))
        world.vars["port"] = str(sock.getsockname()[1])
        if kind == socket.SOCK_STREAM:
            sock.listen(16)
        trap(world, sock)

    return setup


def free_port(world: World) -> None:
    """{port}: one that nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        world.vars["port"] = str(sock.getsockname()[1])


def later_server(world: World) -> None:
    """{port}: one that nobody listens on yet."""
    free_port(world)
    world.traps = []


def serve_now(world: World, _run) -> None:
    """The server that comes later."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", int(world.vars["port"])))
    sock.listen(16)
    trap(world, sock)


def shared_server(world: World) -> None:
    """A server of the user's that lets others of theirs share its port."""
    sock = socket.socket()
    # The kernel goes by the socket's owner.
    os.fchown(sock.fileno(), world.user.uid, world.user.gid)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind(("127.0.0.1", int(world.vars.get("port", 0))))
    world.vars["port"] = str(sock.getsockname()[1])
    sock.listen(128)
    trap(world, sock)


LOW_PORTS = itertools.cycle(range(700, 1000))


def low_port(world: World) -> None:
    """{port}: one that takes a privilege to bind, and that nobody has, nor another world that is made beside this one."""
    for port in itertools.islice(LOW_PORTS, 300):
        with socket.socket() as sock:
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
        world.vars["port"] = str(port)
        return
    raise Skip("no port below 1000 is free")


def own_address(world: World) -> None:
    """{address}: one of the machine's own, not loopback, if it has any."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("198.51.100.7", 9))  # UDP: asks for a route, sends nothing
            world.vars["address"] = sock.getsockname()[0]
        except OSError:
            world.vars["address"] = "127.0.0.1"


def own_address_server(world: World) -> None:
    own_address(world)
    inet_server(world.vars["address"])(world)


def victim(world: World) -> None:
    """A process of the same user outside: {victim_pid}, {victim_addr}, {victim_fd}."""
    run = world.start([str(world.tool), "victim", world.secret, str(world.out / "victim.txt")],
                      env={"VICTIM_SECRET": world.secret})
    _, pid, address, fd = run.process.stdout.readline().decode().split()
    world.vars |= {"victim_pid": pid, "victim_addr": address, "victim_fd": fd}
    world.victim = run
    world.victim_state = victim_facts(run.process.pid)


def victim_facts(pid: int) -> tuple:
    """What others may try to change about it."""
    return (os.getpriority(os.PRIO_PROCESS, pid), tuple(sorted(os.sched_getaffinity(pid))),
            Path(f"/proc/{pid}/limits").read_text())


def ipc_object(kind: str, variable: str = "key") -> Callable:
    """A System V object or POSIX queue, made and dropped by the probe as the user."""

    def setup(world: World) -> None:
        name = f"/rf-escape-{world.id}" if kind == "mq" else str(int(world.id[:7], 16))
        world.vars[variable] = name
        helper(world, "ipc_make", kind, name)
        world.ipc = (kind, name)
        world.closing.append(lambda: world.ipc and helper(world, "ipc_drop", kind, name))

    return setup


def helper(world: World, *words: str) -> str:
    return world_run(world, [str(world.tool), *words])


def world_run(world: World, command: list[str], cwd: str = "/", env: dict | None = None) -> str:
    """A short command of the host's, as the user of this world."""
    identity = {}
    if os.geteuid() == 0:
        identity = {"user": world.user.uid, "group": world.user.gid, "extra_groups": []}
    with FORKING:
        process = subprocess.Popen(command, cwd=cwd, env=world.env(env or {}), stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, **identity)
    out, _ = process.communicate(timeout=20)
    return out.decode("utf-8", "replace")


def open_file(name: str, flags: int, variable: str = "fd") -> Callable:
    """A descriptor that the launcher happens to have: {fd}."""

    def setup(world: World) -> None:
        fd = os.open(world.fill(name), flags)
        world.pass_fds.append(fd)
        world.vars[variable] = str(fd)

    return setup


def open_connection(world: World) -> None:
    """A connection that the launcher happens to have: {fd}; the other end counts."""
    ours, theirs = socket.socketpair()
    world.vars["fd"] = str(theirs.fileno())
    world.pass_fds.append(theirs.detach())
    ours.setblocking(False)
    world.peer = ours
    world.closing.append(ours.close)


def other_terminal(world: World) -> None:
    """A second terminal of the user's, as another window of theirs is: {pty}."""
    master, slave = pty.openpty()
    tty.setraw(slave)
    world.vars["pty"] = os.ttyname(slave)
    if os.geteuid() == 0:
        os.fchown(slave, world.user.uid, world.user.gid)
    os.set_blocking(master, False)
    world.terminal = master
    world.closing.append(lambda: (os.close(master), os.close(slave)))


def controlling_terminal(world: World) -> None:
    """The terminal the sandbox is started on; raw, so that pushed input can be counted."""
    master, slave = pty.openpty()
    tty.setraw(slave)
    settings = termios.tcgetattr(slave)
    settings[3] |= termios.ISIG
    termios.tcsetattr(slave, termios.TCSANOW, settings)
    if os.geteuid() == 0:
        os.fchown(slave, world.user.uid, world.user.gid)
    world.tty = slave
    world.closing.append(lambda: (os.close(master), os.close(slave)))


def fifo(name: str) -> Callable:
    """A FIFO whose other end the host reads."""

    def setup(world: World) -> None:
        path = world.fill(name)
        os.mkfifo(path, 0o600)
        if os.geteuid() == 0:
            os.chown(path, world.user.uid, world.user.gid)
        world.fifo = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        world.closing.append(lambda: (os.close(world.fifo), os.unlink(path)))

    return setup


def file(name: str, text: str = "untouched\n", mode: int = 0o644, owner_root: bool = False) -> Callable:
    def setup(world: World) -> None:
        path = Path(world.fill(name))
        missing = [p for p in path.parents if not p.exists()]
        write(path, world.fill(text), mode)
        if os.geteuid() == 0 and not owner_root:
            for made in (*missing, path):
                os.chown(made, world.user.uid, world.user.gid)
        path.chmod(mode)  # chown takes the setuid bit away

    return setup


def program(source: str, name: str) -> Callable:
    """A copy of a program: the probe (`{P}`), or one that needs the dynamic linker."""

    def setup(world: World) -> None:
        file(name, "", 0o755)(world)
        write_program(Path(world.fill(name)), Path(world.fill(source)).read_bytes())

    return setup


def link(name: str, target: str) -> Callable:
    def setup(world: World) -> None:
        path = Path(world.fill(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(world.fill(target))
        if os.geteuid() == 0:
            os.lchown(path, world.user.uid, world.user.gid)

    return setup


def inode_of(name: str, variable: str = "inode") -> Callable:
    def setup(world: World) -> None:
        world.vars[variable] = str(os.stat(world.fill(name)).st_ino)

    return setup


def setuid_probe(world: World) -> None:
    """{suid}: a setuid-root copy of the probe. Only root can plant it."""
    if os.geteuid() != 0:
        raise Skip("only root can plant a setuid-root program")
    path = world.base / "suid"
    write_program(path, world.probe.read_bytes(), 0o4755)
    world.vars["suid"] = str(path)


def capable_probe(world: World) -> None:
    """{suid}: a copy with file capabilities."""
    if os.geteuid() != 0:
        raise Skip("only root can plant a program with capabilities")
    path = world.base / "suid"
    write_program(path, world.probe.read_bytes())
    os.setxattr(path, "security.capability",
                b"\x01\x00\x00\x02" + (1 << 7).to_bytes(4, "little") + bytes(12))
    world.vars["suid"] = str(path)


def repository(name: str) -> Callable:
    """One more repository inside the workspace: a copy of the workspace's own."""

    def setup(world: World) -> None:
        path = Path(world.fill(name))
        missing = [p for p in path.parents if not p.exists()]
        shutil.copytree(world.ws / ".git", path / ".git")
        shutil.copy(world.ws / "tracked.txt", path)
        if os.geteuid() == 0:
            for made in (*missing, path, *path.rglob("*")):
                os.lchown(made, world.user.uid, world.user.gid)

    return setup


def aged(world: World) -> None:
    """Waits until what was planted is older than the kernel's clock tick: a user's files are,
    and whoever goes by time stamps may expect it."""
    until = time.monotonic() + 0.06
    while time.monotonic() < until:
        time.sleep(0.01)


def git_config(*settings: tuple[str, str], repo: str = "{ws}") -> Callable:
    """Settings the user had made before."""

    def setup(world: World) -> None:
        for name, value in settings:
            world_run(world, ["git", "-C", world.fill(repo), "config", name, world.fill(value)])

    return setup


class Skip(Exception):
    """The attack cannot be tried here; the message says why."""
