"""The table, the reasons, the summary line, and the same as JSON."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

from .model import Attack
from .trial import FAIL, PASS, SKIP, Outcome

# What the words mean when a peer is looked at.
PEER = {PASS: "blocked", FAIL: "ESCAPED", SKIP: "-"}


def table(attacks: list[Attack], outcomes: list[Outcome], peer: bool) -> str:
    columns = sorted({(o.tier, o.user) for o in outcomes},
                     key=lambda c: (c[0] != "namespace", c[1] != "root"))
    cells = {(o.attack.id, o.tier, o.user): o.verdict for o in outcomes}
    heads = [f"{tier}/{user}" for tier, user in columns]
    width = max([len(a.id) for a in attacks], default=6)
    lines = ["  ".join(["attack".ljust(width), *heads])]
    for attack in attacks:
        row = [attack.id.ljust(width)]
        for column, head in zip(columns, heads):
            verdict = cells.get((attack.id, *column), SKIP)
            row.append((PEER[verdict] if peer else verdict).ljust(len(head)))
        lines.append("  ".join(row).rstrip())
    return "\n".join(lines)


def reasons(outcomes: list[Outcome], verdict: str) -> str:
    """Why each of these came out as it did; equal reasons for several columns are said once."""
    grouped: dict[tuple, list[Outcome]] = {}
    for o in outcomes:
        if o.verdict == verdict:
            # Process numbers and random names are different in each, and say nothing.
            alike = re.sub(r"[0-9a-f]{12}|\d+", "#", "\n".join(o.reasons))
            key = (o.attack.id, o.attack.what, alike)
            grouped.setdefault(key, []).append(o)
    lines = []
    for (name, what, _), alike in grouped.items():
        why, where = alike[0].reasons, [f"{o.tier}/{o.user}" for o in alike]
        if verdict == FAIL:
            lines.append(f"{name} ({', '.join(where)}): {what}")
            lines += [f"    {line}" for line in why]
        else:
            lines.append(f"{name} ({', '.join(where)}): {'; '.join(why)}")
    return "\n".join(lines)


def summary(outcomes: list[Outcome]) -> str:
    count = Counter(o.verdict for o in outcomes)
    return f"{count[PASS]} passed, {count[FAIL]} failed, {count[SKIP]} skipped"


def write_json(path: Path, under: str, attacks: list[Attack], outcomes: list[Outcome]) -> None:
    listing = {a.id: {"what": a.what, "source": a.source, "results": []} for a in attacks}
    for o in outcomes:
        listing[o.attack.id]["results"].append(
            {"tier": o.tier, "user": o.user, "verdict": o.verdict, "reasons": o.reasons,
             "seconds": round(o.seconds, 3)})
    path.write_text(json.dumps({"schema": 1, "under": under, "attacks": listing}, indent=1) + "\n")
