"""What the runner looks at from outside, once an attack has ended. Each check returns None, or
one line saying what should not be so."""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import signal
import stat
import struct
import termios
import time
from functools import cache
from pathlib import Path
from typing import Callable, Optional

from .plant import helper, victim_facts, world_run
from .process import SETTLE, processes_with
from .world import World, snapshot


def nobody_came(world: World) -> Optional[str]:
    """The planted servers heard nothing."""
    hits = sum(trap.count() for trap in world.traps)
    return f"a server of the host was reached {hits} times" if hits else None


def victim_untouched(world: World) -> Optional[str]:
    """The planted process lives, got no signal, and is as it was."""
    run = world.victim
    if run.process.poll() is not None:
        return f"a process of the host was ended (status {run.process.returncode})"
    state = Path(f"/proc/{run.process.pid}/status").read_text()
    if "\nState:\tT" in state or "\nState:\tt" in state:
        return "a process of the host was stopped"
    # It takes its signals lowest first and says each: after our own, all others are said.
    run.kill(signal.SIGUSR2)
    said = b""
    last = b"SIGNAL %d\n" % signal.SIGUSR2
    deadline = time.monotonic() + SETTLE
    while not said.endswith(last):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([run.process.stdout], [], [], left)[0]:
            return "a process of the host does not answer"
        said += os.read(run.process.stdout.fileno(), 1000)
    if said != last:
        return f"a process of the host got a signal: {said.decode().splitlines()[0]}"
    if victim_facts(run.process.pid) != world.victim_state:
        return "a process of the host has other limits, priority or affinity"
    return None


def unchanged(*names: str) -> Callable:
    """These paths of the workspace are as they were before the run: absent ones are absent."""

    def check(world: World) -> Optional[str]:
        for name in names:
            was, now = world.protected[name], look(world, name)
            if was != now:
                changed = [key or "." for key in sorted(was.keys() | now.keys())
                           if was.get(key) != now.get(key)]
                state = "exists" if not was else "is gone" if not now else "changed"
                return f"{name} {state} ({', '.join(changed[:3])})"
        return None

    check.names = names
    return check


def look(world: World, name: str) -> dict:
    """A protected path: what it is and holds; times do not matter, a restored file is as good."""
    return snapshot(world.ws / name, times=False)


def absent(*names: str) -> Callable:
    """Nothing by these names, in any form."""

    def check(world: World) -> Optional[str]:
        for name in names:
            if os.path.lexists(world.fill(name)):
                return f"{world.fill(name)} exists"
        return None

    return check


def no_survivors(world: World) -> Optional[str]:
    """Nothing of the sandbox runs any more. (The runner asks this after every attack, and waits;
    here it is for controls to show that the attack leaves something.)"""
    deadline = time.monotonic() + 0.5  # a process between fork and execve is seldom to be seen
    left = processes_with(world.id, world.own)
    while not left and time.monotonic() < deadline and not world.settled:
        left = processes_with(world.id, world.own)
    return f"{len(left)} processes are left" if left else None


def text_is(name: str, text: str = "untouched\n") -> Callable:
    """This file of the host's says what it said."""

    def check(world: World) -> Optional[str]:
        path = Path(world.fill(name))
        now = path.read_text() if path.exists() else "(gone)"
        return None if now == text else f"{path} says {now[:40]!r}"

    return check


def not_marked(world: World) -> Optional[str]:
    """The attack's payload, which leaves a marker on the host, has not run."""
    return "the payload ran on the host" if (world.base / "marker").exists() else None


def not_redirected(name: str) -> Callable:
    """This directory of the workspace is no file or link that stands for another."""

    def check(world: World) -> Optional[str]:
        path = world.ws / name
        if os.path.lexists(path) and (path.is_symlink() or not path.is_dir()):
            return f"{name} is no directory any more"
        return None

    return check


def no_payload_in(name: str) -> Callable:
    """The file, if it is there, names no payload of ours."""

    def check(world: World) -> Optional[str]:
        path = Path(world.fill(name))
        if path.is_file() and world.vars["marker"] in path.read_text(errors="replace"):
            return f"{path} still names the payload"
        return None

    return check


def git_runs_nothing(*repositories: str) -> Callable:
    """The host's git, used there as its user would, executes nothing planted."""

    def check(world: World) -> Optional[str]:
        env = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "true",
               "GIT_EDITOR": "true"}
        for name in repositories or ("{ws}",):
            where = world.fill(name)
            if not os.path.isdir(where):
                continue
            # As they would at a prompt: look around, commit, push to nowhere, gc.
            for words in (["status"], ["diff"], ["log", "-p", "-1", "--show-signature"],
                          ["add", "-A", "."], ["commit", "-qm", "two"], ["checkout", "-q", "-b", "b"],
                          ["fetch", "--all"], ["push", "."], ["diff", "HEAD~1"], ["merge", "b"]):
                world_run(world, ["git", *words], cwd=where, env=env)
            if (world.base / "marker").exists():
                return f"git on the host, in {name}, ran the payload"
        return None

    return check


def git_restores_nothing(*names: str) -> Callable:
    """The host's git, asked to put the files of the workspace back, writes none of these, and executes nothing."""

    def check(world: World) -> Optional[str]:
        env = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
        for words in (["checkout", "-q", "--", "."], ["checkout-index", "-qfa"],
                      ["checkout", "-q", "-b", "restored"]):
            world_run(world, ["git", *words], cwd=world.fill("{ws}"), env=env)
            for name in names:
                if os.path.lexists(world.fill(name)):
                    return f"git on the host wrote {world.fill(name)}"
        return not_marked(world)

    return check


def no_privileged_files(world: World) -> Optional[str]:
    """No setuid, setgid, or capable file was left in the workspace, no device, no foreign owner."""
    for path, directories, files in os.walk(world.ws):
        for name in (*directories, *files):
            where = os.path.join(path, name)
            is_ = os.lstat(where)
            # An empty one is worth nothing, and the kernel unsets the bit with the first write.
            setid = is_.st_mode & (stat.S_ISUID | stat.S_ISGID)
            if stat.S_ISREG(is_.st_mode) and setid and is_.st_size:
                return f"{name} is setuid"
            if stat.S_ISREG(is_.st_mode) and "security.capability" in os.listxattr(where):
                # Version 3 is worth something only in the namespace of its root user.
                revision = os.getxattr(where, "security.capability")[3]
                if revision != 3:
                    return f"{name} has capabilities"
            if stat.S_ISCHR(is_.st_mode) or stat.S_ISBLK(is_.st_mode):
                return f"{name} is a device"
            if is_.st_uid != world.user.uid and is_.st_uid != os.geteuid():
                return f"{name} belongs to {is_.st_uid}"
    return None


def terminal_silent(world: World) -> Optional[str]:
    """Nothing was pushed into the input of the user's terminal."""
    waiting = struct.unpack("i", fcntl.ioctl(world.tty, termios.FIONREAD, bytes(4)))[0]
    return f"{waiting} characters wait in the user's terminal" if waiting else None


TIOCGEXCL = 0x80045440  # not in Python's termios


def terminal_open_to_others(world: World) -> Optional[str]:
    """The user's terminal can be opened again."""
    exclusive = struct.unpack("i", fcntl.ioctl(world.tty, TIOCGEXCL, bytes(4)))[0]
    return "the user's terminal cannot be opened any more" if exclusive else None


def other_terminal_silent(world: World) -> Optional[str]:
    try:
        said = os.read(world.terminal, 100)
    except BlockingIOError:
        return None
    return f"another terminal shows {said!r}"


def fifo_silent(world: World) -> Optional[str]:
    try:
        said = os.read(world.fifo, 100)
    except BlockingIOError:
        return None
    return f"the host's FIFO received {said!r}" if said else None


def connection_silent(world: World) -> Optional[str]:
    try:
        said = world.peer.recv(100)
    except BlockingIOError:
        return None
    return f"the host's connection received {said!r}" if said else None


def ipc_untouched(world: World) -> Optional[str]:
    kind, name = world.ipc
    said = helper(world, "ipc_drop", kind, name)
    world.ipc = None
    return None if "result=untouched" in said else said.strip()


def queue_is_there(world: World) -> Optional[str]:
    """The planted POSIX queue still has its name."""
    said = helper(world, "posix_mq", world.ipc[1])
    return None if "ESCAPED" in said else f"a queue of the host's is gone: {said.strip()}"


def host_facts() -> dict[str, str]:
    """What of the machine as a whole could change: names, and the knobs root could turn."""
    facts = {}
    for name in ("kernel/hostname", "kernel/domainname", "kernel/core_pattern", "kernel/modprobe",
                 "kernel/sysrq", "vm/overcommit_memory"):
        try:
            facts[name] = Path("/proc/sys", name).read_text()
        except OSError:
            pass
    return facts


# With less the process tier does not start, unless told what it may lack.
WHOLE_LANDLOCK = 6


@cache
def landlock_version() -> int:
    """The kernel's, or 0 (landlock_create_ruleset(2))."""
    create_ruleset, ask_version = 444, 1
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, libc.syscall(create_ruleset, None, 0, ask_version))


def mounts_of(text: str) -> list[str]:
    """Mounts on the host that mention a world: set-up that leaked out of its namespace."""
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if text in line]


def no_mounts(world: World) -> Optional[str]:
    left = mounts_of(world.id)
    return f"a mount was left on the host: {left[0]}" if left else None
