#!/usr/bin/env python3
"""Checks the documents against the source and the program they are about.

    RINGFENCE=PATH scripts/check_docs.py

Links lead somewhere; commands and options exist; every option and key is described; profiles in the
documents are valid; messages that troubleshooting names are in the source; no file is longer than 500
lines. The last line counts the checks.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BINARY = os.environ.get("RINGFENCE", "ringfence")
# Pages that come with other parts are checked for links only.
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
LONGEST = 500

passed = 0
failures: list[str] = []


def check(good: bool, what: str) -> None:
    global passed
    if good:
        passed += 1
    else:
        failures.append(what)
        print(f"FAILED: {what}")


def say(*words: str) -> str:
    done = subprocess.run([BINARY, *words], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def anchors(text: str) -> set[str]:
    """The anchors of headings, as GitHub makes them."""
    prose = re.sub(r"```.*?```", "", text, flags=re.S)
    found = set()
    for heading in re.findall(r"^#+ +(.*)$", prose, re.M):
        name = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.add(re.sub(r"[^\w\- ]", "", name).replace(" ", "-"))
    return found


def links(page: Path, text: str) -> None:
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if target.startswith(("http:", "https:", "mailto:")):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name) if name else page
        where = f"{page.relative_to(ROOT)}: link {target}"
        check(file.exists(), f"{where}: no such file")
        if anchor and file.suffix == ".md" and file.exists():
            check(anchor in anchors(file.read_text()), f"{where}: no such heading")


def commands(page: Path, text: str, known: dict[str, set[str]]) -> None:
    """Commands in blocks and in `…` name what exists."""
    for block in re.findall(r"```console\n(.*?)```", text, re.S):
        for line in re.findall(r"^\$ (.*)$", block, re.M):
            for call in re.findall(r"(?:^|&& |scope \S+ \S+ )ringfence ([^|;&]*)", line):
                one(page, call, known)
    for call in re.findall(r"`ringfence ([a-z][^`\n]*)`", text):
        one(page, call, known)


def one(page: Path, call: str, known: dict[str, set[str]]) -> None:
    words = call.split(" -- ")[0].split()
    if not words:
        return
    where = f"{page.relative_to(ROOT)}: ringfence {call}"
    name = words[0]
    if name.startswith("-") or name not in known:
        check(name in ("--help", "--version") or unbuilt(name), f"{where}: no such command")
        return
    for word in words[1:]:
        if word in ("--", "sh", "git"):
            break
        option = re.match(r"--?[a-z][a-z-]*", word)
        if option and known[name]:
            check(option[0] in known[name] or option[0][:2] in known[name],
                  f"{where}: no option {option[0]}")


def unbuilt(name: str) -> bool:
    return "not available in this build" in say(name)


def described(known: dict[str, set[str]]) -> None:
    """Every option and every key is in configuration.md."""
    text = (ROOT / "docs/configuration.md").read_text()
    for option in sorted(known["run"]):
        check(f"{option}" in text, f"docs/configuration.md: option {option} is missing")
    schema = json.loads(say("schema"))
    for name, value in schema["properties"].items():
        for key in [name, *value.get("properties", {})]:
            check(f"`{key}`" in text or f"[{key}]" in text,
                  f"docs/configuration.md: key {key} is missing")
    for layer in re.findall(r'\("([a-z-]+)", Layer::', source("ringfence-policy/src/resolve.rs")):
        check(f"`{layer}`" in text, f"docs/configuration.md: layer {layer} is missing")


def source(below: str = "") -> str:
    place = ROOT / "crates" / below
    files = [place] if place.is_file() else sorted(place.rglob("src/**/*.rs"))
    text = "\n".join(file.read_text() for file in files)
    # A string that goes on in the next line.
    return re.sub(r"\\\n\s*", "", text)


def messages() -> None:
    """What troubleshooting is ordered by is said by the program."""
    page = ROOT / "docs/troubleshooting.md"
    code = source()
    for message in re.findall(r"^### `(.*)`$", page.read_text(), re.M):
        check(message in code, f"docs/troubleshooting.md: no message says `{message}`")


def profiles(page: Path, text: str) -> None:
    for block in re.findall(r"```toml\n(.*?)```", text, re.S):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write(block)
            file.flush()
            answer = say("profile", "check", file.name)
        where = f"{page.relative_to(ROOT)}: profile"
        check("valid" in answer, f"{where}: {answer.strip()}")


def sizes() -> None:
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True,
                            check=False)
    for name in listed.stdout.splitlines():
        file = ROOT / name
        if file.suffix in (".rs", ".py", ".c", ".md", ".sh") and file.is_file():
            lines = file.read_text().splitlines()
            check(len(lines) <= LONGEST, f"{name}: {len(lines)} lines, more than {LONGEST}")
            check(not any(line.startswith(("<" * 7, ">" * 7)) for line in lines),
                  f"{name}: two versions of it were never made one")


def main() -> int:
    overview = say("--help")
    names = re.findall(r"^  ([a-z]+)  +\S", overview.split("Commands:")[-1], re.M)
    known = {name: set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", options(name))) for name in names}
    check("run" in known, "ringfence --help lists no `run`")
    if "run" not in known:
        return finish()
    for page in PAGES:
        text = page.read_text()
        links(page, text)
        if page.name != "benchmarking.md":
            commands(page, text, known)
            profiles(page, text)
    described(known)
    messages()
    sizes()
    return finish()


def options(name: str) -> str:
    """The left column of a command's help, and its usage."""
    said = say(name, "--help")
    usage = " ".join(re.findall(r"^Usage: .*$", said, re.M))
    text = said.split("Options:")[-1]
    return usage + "\n" + "\n".join(re.split(r"  +(?=[A-Z])", line.strip())[0] for line in text.splitlines())


def finish() -> int:
    print(f"{passed} passed, {len(failures)} failed, 0 skipped")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
