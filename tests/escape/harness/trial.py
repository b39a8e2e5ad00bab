"""Runs one attack once, and decides what it means."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from . import checks
from .model import Attack, Control
from .plant import Skip
from .process import Result, Run, User, settle
from .under import Nothing, Unsupported
from .world import World

PASS, FAIL, SKIP = "pass", "FAIL", "skip"


@dataclass
class Outcome:
    attack: Attack
    tier: str
    user: str
    verdict: str
    reasons: list[str] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(frozen=True)
class Bench:
    """What every trial needs."""

    root: Path  # where worlds are made
    template: Path
    light_template: Path
    probe: Path
    ringfence: Optional[Path]
    preload: Optional[Path]

    def world(self, attack: Attack, user: User) -> World:
        light = attack.category in ("kernel", "network", "ipc")
        template = self.light_template if light else self.template
        world = World(self.root, template, self.probe, self.ringfence, user)
        world.vars["preload"] = str(self.preload)
        return world


class Broken(Exception):
    """The run says nothing about the sandbox: it failed for another reason."""


def read_output(text: str) -> tuple[list[str], list[tuple[str, str]]]:
    """The escapes, and the refusals as (name, line)."""
    escapes, refusals = [], []
    for line in text.splitlines():
        if line.startswith("ESCAPED"):
            escapes.append(line[8:] or "(no detail)")
        elif match := re.match(r"ATTEMPT (?:errno|result)=(\S+) ?(.*)", line):
            refusals.append((match[1], match[2]))
        elif line.startswith("BROKEN"):
            raise Broken(f"the attack itself is broken: {line[7:]}")
    return escapes, refusals


def prepare(world: World, attack: Attack) -> None:
    for setup in attack.setup:
        setup(world)
    world.remember()
    names = [name for check in attack.checks for name in getattr(check, "names", ())]
    world.protected = {name: checks.look(world, name) for name in names}


def run_once(world: World, attack: Attack, sandbox, tier: str, flags, act,
             on_ready=None) -> Result:
    command = sandbox.command(world, tier, tuple(world.fill(flag) for flag in flags),
                              world.command(act))
    command = [world.fill(word) for word in attack.before] + command
    stdin = None
    if attack.tty:
        # The terminal must be ours before anyone can push characters into it.
        command = [str(world.tool), "with_terminal", *command]
        stdin = world.tty
    if must_step_aside(world, attack, sandbox, tier):
        command = [str(world.tool), "aside", *command]
    run = Run(command, world.user, world.fill(attack.cwd), world.env(attack.env), world.pass_fds,
              stdin)
    return run.finish(lambda running: on_ready(world, running) if on_ready else None)


def must_step_aside(world: World, attack: Attack, sandbox, tier: str) -> bool:
    """Whether a failure to hold the act could rearrange the mounts of this machine: root's acts
    without a sandbox, in one without namespaces, and all that attack the kernel."""
    held = sandbox.name != "none" and tier != "process" and attack.category != "kernel"
    return world.user.uid == 0 and not held


def play(world: World, attack: Attack, sandbox, tier: str, flags, act) -> Result:
    """The earlier sessions, then the attack."""
    for session in attack.sessions:
        on_ready = (lambda _, running: running.kill()) if session.killed else None
        result = run_once(world, attack, sandbox, tier, session.flags, session.act, on_ready)
        if session.killed and settle(world.id, world.own):
            raise Broken("what was killed left something alive")
        if sandbox.name == "ringfence" and result.code in (125, 126, 127):
            raise Broken(f"an earlier session failed ({result.code}): {last_line(result.err)}")
    return run_once(world, attack, sandbox, tier, flags, act, attack.on_ready)


def last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:300] if lines else "(no message)"


def host_problems(world: World, attack: Attack) -> list[str]:
    """What the host is left with: always the same questions, and the attack's own."""
    problems = []
    survivors = settle(world.id, world.own)
    world.settled = True
    if survivors:
        pid, words = next(iter(survivors.items()))
        problems.append(f"{len(survivors)} processes outlive the sandbox, such as {pid} {words[:80]}")
    problems += world.changes()[:4]
    for check in (*attack.checks, checks.no_mounts):
        if problem := check(world):
            problems.append(problem)
    return problems


def attack_once(bench: Bench, attack: Attack, sandbox, tier: str, user: User) -> list[str]:
    """Every reason why the sandbox has failed; none, when it held."""
    with bench.world(attack, user) as world:
        prepare(world, attack)
        if attack.drive:
            return attack.drive(world, sandbox, tier) + host_problems(world, attack)
        try:
            result = play(world, attack, sandbox, tier, attack.flags, attack.act)
            problems = judge(attack, tier, result, strict=sandbox.name == "ringfence")
        except Broken as broken:
            problems = [str(broken)]
        problems += host_problems(world, attack)
        return [line.replace(str(world.base), "BASE") for line in problems]


def judge(attack: Attack, tier: str, result: Result, strict: bool) -> list[str]:
    """What the run says by itself. Strict: the refusal must have the errno we know."""
    if result.hung:
        return ["it hung, and was killed by the runner"]
    if strict and result.code in (125, 126, 127):
        if tier in attack.may_refuse and result.code == 125 and result.err.strip():
            return []
        return [f"the sandbox failed ({result.code}): {last_line(result.err)}"]
    escapes, refusals = read_output(result.out)
    # Under a peer, what is left of a write-back on the host is all that counts.
    allowed = tier in attack.may_succeed or (not strict and bool(attack.may_succeed))
    problems = [] if allowed else escapes[:4]
    if not strict and not (escapes or refusals or attack.silent):
        raise Skip(f"did not run: {last_line(result.err)}")
    if strict:
        if not (escapes or refusals or attack.silent):
            problems.append(f"no attempt was made (status {result.code}): {last_line(result.err)}")
        for name, line in refusals:
            if name not in attack.refusals:
                wanted = ", ".join(sorted(attack.refusals))
                problems.append(f"refused with {name}, not with {wanted}: {line}")
        if attack.expect_code is not None and result.code != attack.expect_code:
            problems.append(f"status {result.code}, not {attack.expect_code}: {last_line(result.err)}")
    return problems[:6]


def control_once(bench: Bench, attack: Attack, sandbox, tier: str, user: User) -> list[str]:
    """Every reason to distrust the attack: it does not even work where nothing forbids it."""
    control: Control = attack.control
    if control.impossible:
        return []
    without = control.flags is None
    act = control.act if control.act is not None else attack.act
    with bench.world(attack, user) as world:
        prepare(world, attack)
        where, flags = (Nothing(), ()) if without else (sandbox, control.flags)
        try:
            result = play(world, attack, where, tier, flags, act)
            if not without and tier in attack.may_refuse and result.code == 125:
                return []  # the tier cannot do it at all: then the attack is refused as well
            escapes, refusals = read_output(result.out)
        except Broken as broken:
            return [f"control: {broken}"]
        said = {name for name, _ in refusals} | ({"ESCAPED"} if escapes else set())
        problems = []
        detects = control.detects if control.detects is not None else bool(attack.checks)
        if not said & control.expect and not (attack.silent and detects):
            heard = ", ".join(sorted(said)) or last_line(result.err)
            problems.append(f"control: not {' or '.join(sorted(control.expect))} but {heard}")
        if detects and not any(check(world) for check in attack.checks):
            problems.append("control: the host's state shows nothing, so the check is worth nothing")
        settle(world.id, world.own, patience=0)
        return [line.replace(str(world.base), "BASE") for line in problems]


class Trials:
    """All trials of one attack as one user: the control without a sandbox is made but once."""

    def __init__(self, bench: Bench, sandbox, users: dict[str, User], guests=None) -> None:
        self.bench, self.sandbox, self.users, self.guests = bench, sandbox, users, guests

    def run(self, attack: Attack, kind: str, tiers: list[str]) -> list[Outcome]:
        shared: Optional[list[str]] = None
        outcomes = []
        for tier in tiers:
            began = time.monotonic()
            try:
                if tier == "vm":
                    if isinstance(answer := self.guests.answers[attack.id, kind], Skip):
                        raise answer
                    # A control in a sandbox is the namespace tier's.
                    problems = self.control(attack, "namespace", kind) if len(tiers) == 1 else []
                    problems += answer
                    outcomes.append(Outcome(attack, tier, kind, FAIL if problems else PASS, problems))
                    continue
                if why := self.inapplicable(attack, tier, kind):
                    raise Skip(why)
                problems = []
                if self.sandbox.name == "ringfence":
                    if attack.control.flags is None:
                        if shared is None:
                            shared = self.control(attack, tier, kind)
                        problems = list(shared)
                    else:
                        problems = self.control(attack, tier, kind)
                problems += attack_once(self.bench, attack, self.sandbox, tier, self.users[kind])
                outcomes.append(Outcome(attack, tier, kind, FAIL if problems else PASS, problems))
            except (Skip, Unsupported) as why:
                outcomes.append(Outcome(attack, tier, kind, SKIP, [str(why)]))
            outcomes[-1].seconds = time.monotonic() - began
        return outcomes

    def control(self, attack: Attack, tier: str, kind: str) -> list[str]:
        as_whom = attack.control.user or kind
        if as_whom not in self.users:
            raise Skip(f"its control needs {as_whom}")
        return control_once(self.bench, attack, self.sandbox, tier, self.users[as_whom])

    def inapplicable(self, attack: Attack, tier: str, kind: str) -> Optional[str]:
        if self.sandbox.name != "ringfence" and attack.ringfence_only:
            return "speaks of ringfence's own options or files"
        if self.sandbox.name == "none" and attack.bare_unsafe:
            return attack.bare_unsafe
        if self.sandbox.name == "ringfence" and tier == "process":
            version = checks.landlock_version()
            if version < checks.WHOLE_LANDLOCK:
                return (f"this kernel's Landlock is version {version}, all of the process tier needs "
                        f"{checks.WHOLE_LANDLOCK} (Linux 6.12)")
        places = (tier, kind, f"{tier}/{kind}")
        return next((attack.not_in[p] for p in places if p in attack.not_in), None)
