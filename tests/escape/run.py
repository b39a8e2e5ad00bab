#!/usr/bin/env python3
"""Runs the escape corpus: real attempts to get out, under ringfence or a peer.

    tests/escape/run.py                          everything: all tiers, as root and as a user
    tests/escape/run.py --only 'filesystem/*'    some of it (a glob or part of a name)
    tests/escape/run.py --under bwrap            a comparison: no verdict, only the table
    tests/escape/run.py --list                   what there is, with sources

Exit status: 0 when nothing failed (under a peer: always), 1 otherwise, 2 when it cannot run.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import signal
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True

from harness import build, checks, report  # noqa: E402
from harness.guest import Guests  # noqa: E402
from harness.model import TIERS, USERS, Attack  # noqa: E402
from harness.trial import FAIL, SKIP, Bench, Outcome, Trials  # noqa: E402
from harness.under import find  # noqa: E402
from harness.users import people  # noqa: E402
from harness.world import make_light_template, make_template, remove_tree  # noqa: E402
from manifest import ALL  # noqa: E402


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--under", default="ringfence",
                        choices=("ringfence", "bwrap", "firejail", "none"))
    parser.add_argument("--tier", default=",".join(TIERS), help="some of: namespace,process,vm")
    parser.add_argument("--user", default=",".join(USERS), help="root, ordinary or both")
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("-j", "--jobs", type=int, default=min(4, 2 * (os.cpu_count() or 1)))
    asked = parser.parse_args()
    asked.tiers = pick(parser, "tier", asked.tier, TIERS)
    asked.users = pick(parser, "user", asked.user, USERS)
    return asked


def pick(parser: argparse.ArgumentParser, what: str, text: str, known: tuple) -> list[str]:
    chosen = [word for word in text.split(",") if word]
    for word in chosen:
        if word not in known:
            parser.error(f"unknown {what} {word!r}: choose from {', '.join(known)}")
    return chosen


def selected(patterns: list[str]) -> list[Attack]:
    return [a for a in ALL if not patterns or any(
        fnmatch.fnmatch(a.id, p) or p in a.id for p in patterns)]


def listing(attacks: list[Attack]) -> str:
    lines = []
    for a in attacks:
        lines.append(f"{a.id}: {a.what} [{a.source}]")
        for where, why in a.not_in.items():
            lines.append(f"    not {where}: {why}")
        if a.control.impossible:
            lines.append(f"    no positive control: {a.control.impossible}")
    return "\n".join([*lines, f"{len(attacks)} attacks"])


def main() -> int:
    asked = arguments()
    attacks = selected(asked.only)
    if asked.list:
        print(listing(attacks))
        return 0
    if not attacks:
        print("no attack matches", file=sys.stderr)
        return 2

    # To be ended is no reason to leave users and directories behind.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(2))
    project = HERE.parent.parent
    target = project / "target" / "escape"
    where = place(asked.under)
    sweep(where)
    root = Path(tempfile.mkdtemp(prefix=f"rf-escape-{os.getpid()}-", dir=where))
    root.chmod(0o755)
    try:
        with people(asked.users) as (users, missing):
            try:
                probe = build.build_probe(HERE / "attacks", target, asked.jobs)
                preload = build.build_preload(HERE / "attacks/preload/preload.c", target)
            except (build.BuildError, OSError) as error:
                print(f"cannot compile the attacks: {error}", file=sys.stderr)
                return 2
            sandbox, why_not = find(asked.under, project, root)
            if sandbox is None:
                print(why_not, file=sys.stderr)
                return 2
            outcomes = run_all(asked, attacks, sandbox, users, missing, root, probe, preload)
    finally:
        try:
            remove_tree(root)
        except (OSError, RuntimeError) as error:
            print(f"left behind: {error}", file=sys.stderr)

    peer = asked.under != "ringfence"
    print(report.table(attacks, outcomes, peer))
    if skipped := report.reasons(outcomes, SKIP):
        print(f"\nskipped:\n{skipped}")
    failed = any(o.verdict == FAIL for o in outcomes)
    if failed:
        print(f"\n{'escaped' if peer else 'failed'}:\n{report.reasons(outcomes, FAIL)}")
    if asked.json:
        report.write_json(asked.json, asked.under, attacks, outcomes)
    print()
    print(report.summary(outcomes))
    return 1 if failed and not peer else 0


def place(under: str) -> str:
    """Where worlds are made: where homes are, if one may; never in a place that sandboxes treat
    specially, as /tmp, unless there is no other. firejail hides all of /home but one's own."""
    chosen = os.environ.get("RF_ESCAPE_DIR")
    choices = [chosen] if chosen else ["/home", "/srv", "/var/tmp", "/tmp"]
    if under == "firejail" and not chosen:
        choices.remove("/home")
    return next((c for c in choices if os.access(c, os.W_OK | os.X_OK)), "/tmp")


def sweep(where: str) -> None:
    """Removes the worlds of runs that were killed."""
    for left in Path(where).glob("rf-escape-*-*"):
        pid = left.name.split("-")[2]
        if pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
            try:
                remove_tree(left)
            except (OSError, RuntimeError):
                pass


def run_all(asked, attacks, sandbox, users, missing, root, probe, preload) -> list[Outcome]:
    template = root / "template"
    light = root / "light-template"
    make_template(template)
    make_light_template(light)
    copy = root / "preload.so"
    copy.write_bytes(preload.read_bytes())
    copy.chmod(0o755)
    tool = root / "probe"
    tool.write_bytes(probe.read_bytes())
    tool.chmod(0o755)
    bench = Bench(root, template, light, tool, getattr(sandbox, "binary", None), copy)
    guests = Guests(bench, sandbox, users)
    trials = Trials(bench, sandbox, users, guests)
    tiers = [t for t in asked.tiers if t in sandbox.tiers] or list(sandbox.tiers)
    machine = checks.host_facts()
    if "vm" in tiers:
        guests.attack(attacks)

    jobs = [(attack, kind) for attack in attacks for kind in asked.users]
    outcomes: list[Outcome] = []

    def one(job: tuple[Attack, str]) -> list[Outcome]:
        attack, kind = job
        if kind not in users:
            return [Outcome(attack, tier, kind, SKIP, [missing[kind]]) for tier in tiers]
        try:
            return trials.run(attack, kind, tiers)
        except Exception as error:  # a bug of ours must show as a failure, not end the run
            reason = f"the runner failed: {type(error).__name__}: {error}"
            return [Outcome(attack, tier, kind, FAIL, [reason]) for tier in tiers]

    for job in jobs:
        if job[0].alone:
            outcomes += one(job)
    with ThreadPoolExecutor(max(1, asked.jobs)) as pool:
        for found in pool.map(one, [job for job in jobs if not job[0].alone]):
            outcomes += found
            progress(len(outcomes), len(jobs) * len(tiers), found)
    if checks.host_facts() != machine:
        print("the machine's own settings changed during the run", file=sys.stderr)
        outcomes[-1].verdict = FAIL
        outcomes[-1].reasons.append("settings in /proc/sys changed during the whole run")
    return outcomes


def progress(done: int, total: int, found: list[Outcome]) -> None:
    """A line on a terminal; nothing in a log."""
    if sys.stderr.isatty():
        end = "\n" if done == total else ""
        print(f"\r\033[K{done}/{total} {found[0].attack.id}", end=end, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
