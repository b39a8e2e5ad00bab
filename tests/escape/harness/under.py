"""How to start a command under each sandbox. Options are ringfence's; peers get their nearest."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Optional

from .world import World


class Unsupported(Exception):
    """This sandbox cannot be asked for that; the message says what."""


class Ringfence:
    name = "ringfence"
    tiers: tuple[str, ...] = ("namespace", "process", "vm")

    def __init__(self, binary: Path) -> None:
        self.binary = binary

    def command(self, world: World, tier: str, flags: tuple[str, ...], act: list[str]) -> list[str]:
        return [str(self.binary), "run", "--tier", tier, *flags, "--", *act]


class Nothing:
    """No sandbox at all: what the attacks do then, and where controls run."""

    name = "none"
    tiers = ("none",)

    def command(self, world: World, tier: str, flags: tuple[str, ...], act: list[str]) -> list[str]:
        return act


class Bubblewrap:
    name = "bwrap"
    tiers = ("bwrap",)

    def command(self, world: World, tier: str, flags: tuple[str, ...], act: list[str]) -> list[str]:
        words = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc",
                 "--unshare-all", "--die-with-parent", "--bind", str(world.ws), str(world.ws)]
        for option, value in pairs(flags):
            if option in ("-w", "--write"):
                words += ["--bind", value, value]
            elif option in ("-r", "--read"):
                pass  # all is readable
            elif option == "--deny" and Path(value).is_dir():
                words += ["--tmpfs", value]
            elif option == "--deny":
                words += ["--ro-bind", "/dev/null", value]
            elif option == "--protect":
                words += ["--ro-bind-try", value, value]
            elif (option, value) == ("--network", "host"):
                words += ["--share-net"]
            elif (option, value) == ("--network", "none"):
                pass
            else:
                raise Unsupported(f"bwrap has no {option}")
        return [*words, "--chdir", str(world.ws), *act]


class Firejail:
    name = "firejail"
    tiers = ("firejail",)

    def command(self, world: World, tier: str, flags: tuple[str, ...], act: list[str]) -> list[str]:
        words = ["firejail", "--quiet"]
        network = "none"
        for option, value in pairs(flags):
            if option in ("-w", "--write"):
                words += [f"--read-write={value}"]
            elif option in ("-r", "--read"):
                pass
            elif option == "--deny":
                words += [f"--blacklist={value}"]
            elif option == "--protect":
                words += [f"--read-only={value}"]
            elif option == "--network":
                network = value
            elif option == "--pids":
                words += [f"--rlimit-nproc={value}"]
            elif option == "--open-files":
                words += [f"--rlimit-nofile={value}"]
            elif option == "--timeout":
                words += [f"--timeout=00:00:{int(value.rstrip('s')):02d}"]
            else:
                raise Unsupported(f"firejail has no {option}")
        if network == "none":
            words += ["--net=none"]
        return [*words, "--", *act]


def pairs(flags: tuple[str, ...]) -> list[tuple[str, str]]:
    return list(zip(flags[::2], flags[1::2]))


def built(root: Path) -> Optional[Path]:
    """RINGFENCE, or the newest release build, wherever cargo was told to put it."""
    if chosen := os.environ.get("RINGFENCE"):
        return Path(chosen)
    found = [*root.glob("target/release/ringfence"), *root.glob("target/*/release/ringfence")]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def find(name: str, root: Path, copy_to: Path) -> tuple[object, Optional[str]]:
    """The sandbox of that name, or why there is none."""
    if name == "none":
        return Nothing(), None
    if name == "ringfence":
        binary = built(root)
        if binary is None or not os.access(binary, os.X_OK):
            return None, "no ringfence: build it with `cargo build --release`, or set RINGFENCE"
        # A copy that any user can reach, and that an attack on the binary itself may hit.
        copy = copy_to / "ringfence"
        shutil.copy(binary, copy)
        copy.chmod(0o755)
        return Ringfence(copy), None
    if not shutil.which(name):
        return None, f"{name} is not installed"
    return {"bwrap": Bubblewrap, "firejail": Firejail}[name](), None
