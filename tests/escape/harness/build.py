"""Compiles the attack programs: once, statically, into target/escape, keyed by their sources."""

from __future__ import annotations

import hashlib
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FLAGS = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"]


class BuildError(Exception):
    """The compiler refused; the message is its own."""


def build_probe(sources: Path, into: Path, jobs: int) -> Path:
    """The path of the program `probe`, compiled if its sources changed since the last time."""
    files = sorted(sources.glob("*.c")) + sorted(sources.glob("*.h"))
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    into.mkdir(parents=True, exist_ok=True)
    probe = into / f"probe-{digest.hexdigest()[:16]}"
    if probe.exists():
        return probe

    compiler = os.environ.get("CC", "cc")
    objects = into / f"objects-{os.getpid()}"
    objects.mkdir()

    def compile_one(file: Path) -> str:
        target = objects / (file.stem + ".o")
        run([compiler, *FLAGS, "-c", str(file), "-o", str(target)])
        return str(target)

    with ThreadPoolExecutor(jobs) as pool:
        made = list(pool.map(compile_one, [f for f in files if f.suffix == ".c"]))
    # Static: inside a sandbox there may be no libraries at all.
    fresh = into / f"probe.{os.getpid()}"
    run([compiler, "-static", "-o", str(fresh), *made, "-lpthread", "-lrt"])
    for stale in [*into.glob("probe-*"), *objects.iterdir()]:
        stale.unlink()
    objects.rmdir()
    fresh.rename(probe)
    return probe


def build_preload(source: Path, into: Path) -> Path:
    """A shared library for LD_PRELOAD."""
    library = into / "preload.so"
    if not library.exists() or library.stat().st_mtime < source.stat().st_mtime:
        fresh = into / f"preload.{os.getpid()}"
        compiler = os.environ.get("CC", "cc")
        run([compiler, *FLAGS, "-shared", "-fPIC", "-o", str(fresh), str(source)])
        fresh.rename(library)
    return library


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"{' '.join(command)}\n{done.stderr}")
