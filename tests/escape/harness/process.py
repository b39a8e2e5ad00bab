"""Runs one command as a given user, with a deadline, and finds what it left behind."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Optional, Sequence

LIMIT = 60.0  # seconds for any one run: a busy machine is no hang
SETTLE = 3.0  # seconds within which everything of a sandbox must be gone


# A program file that is being written cannot be executed, and a child that another thread forks
# just then holds it open until its own execve. So nobody forks while somebody writes a program.
FORKING = threading.Lock()


@dataclass(frozen=True)
class User:
    kind: str  # root or ordinary
    name: str
    uid: int
    gid: int


@dataclass
class Result:
    code: int
    out: str
    err: str
    hung: bool = False


class Run:
    """A command that is running."""

    def __init__(self, command: Sequence[str], user: User, cwd: str, env: dict[str, str],
                 pass_fds: Sequence[int] = (), stdin: Optional[int] = None) -> None:
        identity = {}
        if os.geteuid() == 0:
            identity = {"user": user.uid, "group": user.gid, "extra_groups": []}
        with FORKING:
            self.process = subprocess.Popen(
                command, cwd=cwd, env=env, pass_fds=tuple(pass_fds), start_new_session=True,
                stdin=subprocess.PIPE if stdin is None else stdin,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, **identity)
        # At once, while the number cannot yet be anybody else's.
        self.pidfd = os.pidfd_open(self.process.pid)

    def finish(self, on_ready: Optional[Callable[["Run"], None]] = None,
               limit: float = LIMIT) -> Result:
        """Waits until the command has ended. Not for end-of-file on its output: whoever outlives
        it may hold that open for ever."""
        process = self.process
        out, err = bytearray(), bytearray()
        deadline = time.monotonic() + limit
        hung = False
        with selectors.DefaultSelector() as select:
            for stream, into in ((process.stdout, out), (process.stderr, err)):
                os.set_blocking(stream.fileno(), False)
                select.register(stream, selectors.EVENT_READ, into)
            select.register(self.pidfd, selectors.EVENT_READ, None)
            ended = False
            while not ended:
                left = deadline - time.monotonic()
                if left <= 0:
                    hung = True
                    self.kill()
                    deadline = time.monotonic() + SETTLE
                for key, _ in select.select(max(left, 0.01)):
                    if key.data is None:
                        ended = True
                    elif not pull(key.fileobj, key.data):
                        select.unregister(key.fileobj)
                if b"READY\n" in out and on_ready:
                    on_ready(self)
                    on_ready = None
                    self.answer()
        code = process.wait()
        pull(process.stdout, out)
        pull(process.stderr, err)
        self.close()
        return Result(code, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"), hung)

    def close(self) -> None:
        """Lets go of the command's descriptors. Ended it must be already."""
        os.close(self.pidfd)
        process = self.process
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream:
                try:
                    stream.close()
                except OSError:
                    pass  # what it never read is lost

    def answer(self) -> None:
        try:
            self.process.stdin.write(b"\n")
            self.process.stdin.flush()
        except (OSError, ValueError):
            pass  # it has ended already: its output tells why

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Signals the command alone, as its user would; its descendants are its own business."""
        self.process.send_signal(number)


def pull(stream, into: bytearray) -> bool:
    """Takes what a pipe holds now; False at its end."""
    while True:
        try:
            chunk = os.read(stream.fileno(), 1 << 16)
        except BlockingIOError:
            return True
        except (OSError, ValueError):
            return False
        if not chunk:
            return False
        into += chunk


def write_program(path: Path, content: bytes, mode: int = 0o755) -> None:
    with FORKING:
        path.write_bytes(content)
    path.chmod(mode)


def processes_with(token: str, besides: set[int]) -> dict[int, str]:
    """The processes of this machine that carry the token in their arguments or environment."""
    found = {}
    needle = token.encode()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) in besides or int(entry) == os.getpid():
            continue
        try:
            arguments = Path(f"/proc/{entry}/cmdline").read_bytes()
            environment = b""
            if needle not in arguments:
                environment = Path(f"/proc/{entry}/environ").read_bytes()
        except OSError:
            continue
        if needle in arguments or needle in environment:
            words = arguments.replace(b"\0", b" ").decode("utf-8", "replace").strip()
            found[int(entry)] = words or "(a zombie)"
    return found


def settle(token: str, besides: set[int], patience: float = SETTLE) -> dict[int, str]:
    """Those still there after the time a sandbox has to die; then they are killed."""
    deadline = time.monotonic() + patience
    left = processes_with(token, besides)
    while left and time.monotonic() < deadline:
        time.sleep(0.02)  # polling: there is no descriptor for "all of these have gone"
        left = processes_with(token, besides)
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
    return left
