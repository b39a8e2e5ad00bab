"""What an attack is, as data. The manifest is made of these; nothing here runs anything."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Callable, Mapping, Optional, Union

TIERS = ("namespace", "process", "vm")
USERS = ("root", "ordinary")

# A refusal is named by the errno the kernel gave, or by a word of the attack's own
# (`empty`, `absent`, `SIGSYS`...), as the attack printed it.
#
# HIDDEN: a path the policy does not grant: not there, not allowed, or not writable.
HIDDEN = frozenset({"EACCES", "EPERM", "EROFS", "ENOENT"})
# READONLY: there to be read, not to be changed.
READONLY = frozenset({"EACCES", "EPERM", "EROFS"})
# FIXED: a protected name inside a writable tree. EBUSY: it, or a parent, is a mount;
# EXDEV: a link or rename would leave that mount.
FIXED = READONLY | {"EBUSY", "EXDEV"}
# NO_PROCESS: another process, which is not there or not ours to touch.
NO_PROCESS = frozenset({"EACCES", "EPERM", "ESRCH"})
# DENIED: a system call refused by its number.
DENIED = frozenset({"EPERM", "ENOSYS"})
# SOCKETLESS: a socket that may not be made, bound or connected.
SOCKETLESS = frozenset({"EACCES", "EPERM", "EAFNOSUPPORT"})
# UNREACHABLE: a network that leads nowhere.
UNREACHABLE = SOCKETLESS | {"ENETUNREACH", "ECONNREFUSED", "EADDRNOTAVAIL", "EHOSTUNREACH"}

Act = Union[tuple, str]
Check = Callable[["object"], Optional[str]]
Setup = Callable[["object"], None]


@dataclass(frozen=True)
class Control:
    """The proof that the attack can work: the same act where nothing forbids it."""

    # None: without any sandbox. Otherwise: in the sandbox, with these options.
    flags: Optional[tuple[str, ...]] = None
    # What it must print: ESCAPED, or for calls with deliberately bad arguments the
    # kernel's own complaint about them.
    expect: frozenset[str] = frozenset({"ESCAPED"})
    # As whom, when an ordinary user may not do it at all.
    user: Optional[str] = None
    # An act other than the attack's own.
    act: Optional[Act] = None
    # Whether the attack's host checks must notice it. None: if there are any.
    detects: Optional[bool] = None
    # Why there can be none: said in the listing, and the attack counts without.
    impossible: Optional[str] = None


def bare(*expect: str, user: Optional[str] = None, act: Optional[Act] = None,
         detects: Optional[bool] = None) -> Control:
    """Without a sandbox."""
    return Control(None, frozenset(expect or ("ESCAPED",)), user, act, detects)


def granted(*flags: str, act: Optional[Act] = None, expect: tuple[str, ...] = ("ESCAPED",),
            detects: Optional[bool] = False) -> Control:
    """In the sandbox, with what the act needs granted."""
    return Control(tuple(flags), frozenset(expect), None, act, detects)


def no_control(why: str) -> Control:
    """There is nothing that could be granted."""
    return Control(impossible=why)


@dataclass(frozen=True)
class Session:
    """An earlier run in the same world, which prepares the ground."""

    act: Act
    flags: tuple[str, ...] = ()
    # It goes on, having printed READY, until its launcher is killed (SIGKILL).
    killed: bool = False


@dataclass(frozen=True)
class Attack:
    id: str  # category/name
    what: str  # one line
    act: Act  # words for `probe`, or a script for sh, with $P for the probe
    refusals: frozenset[str]
    source: str = "DESIGN.md"
    control: Control = field(default_factory=bare)
    flags: tuple[str, ...] = ()
    # Tiers in which the act may work inside, since only what the host is left with counts.
    may_succeed: tuple[str, ...] = ()
    # Tiers in which exit code 125, with its reason, is a good answer too: what is asked is
    # dangerous, or more than the tier can do.
    may_refuse: tuple[str, ...] = ()
    # Where it does not apply, and why: a tier, a user, or both as "process/ordinary".
    not_in: Mapping[str, str] = field(default_factory=dict)
    setup: tuple[Setup, ...] = ()
    checks: tuple[Check, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "{ws}"
    sessions: tuple[Session, ...] = ()
    on_ready: Optional[Callable] = None
    # Runs in place of all this: for attacks on the launch itself.
    drive: Optional[Callable] = None
    tty: bool = False
    # A wrapper put before the sandbox's own command line.
    before: tuple[str, ...] = ()
    expect_code: Optional[int] = None
    # The act may be ended before it prints anything.
    silent: bool = False
    # Without a sandbox it would do harm, or hits what is not ours.
    bare_unsafe: Optional[str] = None
    # Its control reaches every world of the same user: nothing else may run meanwhile.
    alone: bool = False
    # Speaks of ringfence's own options or files.
    ringfence_only: bool = False

    @property
    def category(self) -> str:
        return self.id.split("/", 1)[0]
