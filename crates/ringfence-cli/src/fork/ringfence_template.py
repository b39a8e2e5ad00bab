"""Makes this program a template of `ringfence fork`.

Import and compute what every clone needs, then call serve(work). In each clone, which shares the
memory copy-on-write, work(index, words) is called with its number, from 0, and the words of the
command line; what it returns is the exit code (None is 0). serve returns when the session ends.
No threads may run: a fork has none of them. Clones end with this program.
"""

import gc
import os
import select
import signal
import socket
import sys
import traceback

__all__ = ["serve"]

_PR_SET_PDEATHSIG = 1
_KILL = int(signal.SIGKILL)
# Whatever a clone looks up on its way is an object whose page it has to copy.
_close, _exit, _getppid = os.close, os._exit, os.getppid
try:
    import ctypes

    _prctl = ctypes.CDLL(None).prctl
except (ImportError, OSError):
    # A Python without it has clones that go on when it is killed.
    _prctl = None


def serve(work):
    gate = socket.socket(socket.AF_UNIX)
    gate.connect(os.environ["RINGFENCE_GATEWAY"])
    ended, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    own = [os.dup(at) for at in range(3)]
    template, door = os.getpid(), gate.fileno()
    # A collection would write to every page, and so unshare it.
    gc.collect()
    gc.freeze()
    gate.sendall(b"ready\n")
    buffer, passed = b"", []

    def more():
        nonlocal buffer
        data, descriptors, _, _ = socket.recv_fds(gate, 1 << 16, 4)
        passed.extend(descriptors)
        buffer += data
        return bool(data)

    while True:
        while b"\n" not in buffer:
            if not more():
                return
        head, buffer = buffer.split(b"\n", 1)
        _, number, clones, size = head.split()
        while len(buffer) < int(size):
            if not more():
                return
        words, buffer = buffer[: int(size)], buffer[int(size) :]
        words = [os.fsdecode(word) for word in words.split(b"\0")[:-1]]
        streams, life = passed[:3], passed[3]
        del passed[:4]
        # What a clone would have to do by itself costs each of them copied pages: the streams are in
        # their places, and no handler is, when it begins.
        sys.stdout.flush()
        for at, stream in enumerate(streams):
            os.dup2(stream, at)
            os.close(stream)
        running = {}
        for index in range(int(clones)):
            try:
                clone = os.fork()
            except OSError as error:
                print(f"clone {index}: fork: {error}", file=sys.stderr)
                break
            if clone == 0:
                _clone(work, index, words, door, template)
            running[clone] = index
        for at, stream in enumerate(own):
            os.dup2(stream, at)
        codes = ["125"] * int(clones)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        # Those that ended before tell nobody.
        os.write(wake, b"!")
        watched = [life, ended]
        while running:
            ready = select.select(watched, [], [])[0]
            if life in ready:
                # Whoever asked is gone.
                watched.remove(life)
                for clone in running:
                    os.kill(clone, signal.SIGKILL)
            if ended in ready:
                os.read(ended, 1 << 16)
            while running:
                clone, status = os.waitpid(-1, os.WNOHANG)
                if clone == 0:
                    break
                code = os.waitstatus_to_exitcode(status)
                if clone in running:
                    codes[running.pop(clone)] = str(code if code >= 0 else 128 - code)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(life)
        gate.sendall(b"ended %s %s\n" % (number, " ".join(codes).encode()))


def _clone(work, index, words, door, template):
    code = 1
    try:
        # Without the template nobody would tell it that whoever asked is gone.
        if _prctl:
            _prctl(_PR_SET_PDEATHSIG, _KILL)
        if _getppid() != template:
            _exit(125)
        # Not by its object, which lives on in serve and closes nothing more.
        _close(door)
        code = work(index, words)
        code = 0 if code is None else int(code)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            _exit(code & 255)
