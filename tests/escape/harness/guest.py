"""The corpus in the vm tier: many attacks in one guest, since a guest takes longer to start than they do.

What is judged is different there. The kernel that an attack talks to is the guest's own: what it makes of
that is its own affair, and only the host's state counts. Files, connections and everything of the host's that
an attack names must be refused as in the namespace tier, whose sandbox stands behind the guest.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections import defaultdict
from typing import Optional, Union

from .model import DENIED, HIDDEN, NO_PROCESS, UNREACHABLE, Attack
from .process import Result, Run, User
from .trial import Bench, Broken, Skip, host_problems, last_line, prepare, read_output
from .world import World

# Acts that are on the kernel and its processes: they may work, in the guest's.
GUESTS_OWN = ("kernel/", "lifecycle/", "filesystem/proc-", "network/dccp-")
# How another kernel, and files that come by FUSE, may refuse as well.
REFUSED = HIDDEN | NO_PROCESS | DENIED | UNREACHABLE | frozenset({
    "absent", "empty", "no-flags", "EBUSY", "EXDEV", "EINVAL", "EOPNOTSUPP", "ENOTSUP", "ENODEV", "ENXIO", "ELOOP",
    "ENOTDIR", "EISDIR", "ENOTTY", "ESTALE", "ENOPROTOOPT", "EIO", "ETIMEDOUT"})
# For one attack, and for all of a guest: emulated ones are slow.
EACH, ALL = 8, 240.0
MARK = "=== escape corpus: "

Answer = Union[list[str], Skip]


def unfit(attack: Attack) -> Optional[str]:
    """Why an attack is not made in a guest that it shares with others."""
    if attack.drive:
        return "attacks the launch itself, which is the namespace tier's"
    if attack.on_ready or attack.sessions or attack.tty or attack.before:
        return "needs the host's half at work beside it: made in the namespace tier, whose bridge this is"
    if attack.setup or attack.env or attack.cwd != "{ws}" or attack.expect_code is not None or attack.alone:
        return "needs a world, an environment or an end of its own: made in the namespace tier"
    if ("--network", "host") in zip(attack.flags, attack.flags[1:]):
        return "the tier refuses --network host"
    if attack.category == "writeback":
        return "shares its names with other write-backs: made in the namespace tier, whose files these are"
    return next((attack.not_in[p] for p in ("vm", "namespace") if p in attack.not_in), None)


def own(attack: Attack) -> bool:
    """Whether an attack is on what is the guest's own."""
    return attack.id.startswith(GUESTS_OWN)


class Guests:
    """What came of all attacks, for those who may be asked for it one by one."""

    def __init__(self, bench: Bench, sandbox, users: dict[str, User]) -> None:
        self.bench, self.sandbox, self.users = bench, sandbox, users
        self.answers: dict[tuple[str, str], Answer] = {}

    def attack(self, attacks: list[Attack]) -> None:
        """Makes all attacks that fit, a guest for those with the same options."""
        for kind, user in self.users.items():
            why = self.missing(user)
            groups: dict[tuple[str, ...], list[Attack]] = defaultdict(list)
            for attack in attacks:
                reason = why or unfit(attack) or attack.not_in.get(kind)
                if own(attack) and kind != "root" and "root" in self.users:
                    reason = reason or "on the guest's own kernel: made as root"
                if reason:
                    self.answers[attack.id, kind] = Skip(reason)
                else:
                    groups[attack.flags].append(attack)
            for flags, group in groups.items():
                # A guest for each would be all the time there is.
                if len(group) < 3 and len(attacks) > 20:
                    for attack in group:
                        self.answers[attack.id, kind] = Skip(
                            "has options of its own: made in the namespace tier")
                else:
                    self.together(group, flags, kind, user)

    def missing(self, user: User) -> Optional[str]:
        """Why there are no guests here."""
        if self.sandbox.name != "ringfence":
            return "has no vm tier"
        identity = {}
        if os.geteuid() == 0:
            identity = {"user": user.uid, "group": user.gid, "extra_groups": []}
        done = subprocess.run([str(self.sandbox.binary), "vm", "status"], capture_output=True, text=True,
                              env=self.environment(user, {"HOME": "/", "PATH": "/usr/bin:/bin"}),
                              cwd="/", **identity)
        return None if done.returncode == 0 else last_line(done.stderr)

    def environment(self, user: User, env: dict[str, str]) -> dict[str, str]:
        """Saved guests are kept for all of this user's."""
        cache = self.bench.root / f"guests-{user.kind}"
        if not cache.exists():
            cache.mkdir(mode=0o700)
            os.chown(cache, user.uid, user.gid)
        return {**env, "XDG_CACHE_HOME": str(cache)}

    def together(self, group: list[Attack], flags: tuple[str, ...], kind: str, user: User) -> None:
        with World(self.bench.root, self.bench.template, self.bench.probe, self.bench.ringfence,
                   user) as world:
            world.vars["preload"] = str(self.bench.preload)
            protected: dict = {}
            for attack in group:
                prepare(world, attack)
                protected |= world.protected
            world.protected = protected
            filled = tuple(world.fill(flag) for flag in flags)
            script = "".join(self.one(world, attack) for attack in group)
            act = ["/bin/sh", "-c", f"exec 2>&1\n{script}"]
            command = self.sandbox.command(world, "vm", filled, act)
            run = Run(command, user, str(world.ws), self.environment(user, world.env({})))
            result = run.finish(limit=ALL)
            said = self.parts(result)
            for attack in group:
                self.answers[attack.id, kind] = judge(attack, said.get(attack.id), result)
            left = [line.replace(str(world.base), "BASE") for line in host_problems(world, group[0])]
            for attack in group[1:]:
                problems = [problem for check in attack.checks if (problem := check(world))]
                self.answers[attack.id, kind] += problems
            # The guest as a whole; who of them it was, a run of its own tells.
            self.answers[group[0].id, kind] += left

    def one(self, world: World, attack: Attack) -> str:
        words = shlex.join(world.command(attack.act))
        return f"echo '{MARK}{attack.id}'\ntimeout -s KILL {EACH} {words} </dev/null\n"

    def parts(self, result: Result) -> dict[str, str]:
        """What each attack printed."""
        parts = {}
        for part in result.out.split(MARK)[1:]:
            name, _, text = part.partition("\n")
            parts[name] = text
        return parts


def judge(attack: Attack, text: Optional[str], result: Result) -> list[str]:
    """What an attack's own words say."""
    if text is None:
        what = "hung" if result.hung else f"ended with {result.code}"
        return [f"the guest {what} before it: {last_line(result.err)}"]
    try:
        escapes, refusals = read_output(text)
    except Broken as broken:
        return [str(broken)]
    problems = []
    if not own(attack) and not {"vm", "namespace"} & set(attack.may_succeed):
        problems += escapes[:4]
    if not (escapes or refusals or attack.silent):
        problems.append(f"no attempt was made: {last_line(text)}")
    if not own(attack):
        problems += [f"refused with {name}: {line}" for name, line in refusals
                     if name not in attack.refusals | REFUSED]
    return problems[:6]
