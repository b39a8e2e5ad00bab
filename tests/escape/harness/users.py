"""Whom the corpus runs as. An ordinary user is made for the run and removed after it."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
from contextlib import contextmanager
from typing import Iterator, Optional

from .process import User

PREFIX = "rf-escape-"


@contextmanager
def people(kinds: list[str]) -> Iterator[tuple[dict[str, User], dict[str, str]]]:
    """The users that can be had, and for the others the reason."""
    users: dict[str, User] = {}
    missing: dict[str, str] = {}
    made: Optional[str] = None
    if os.geteuid() == 0:
        users["root"] = User("root", "root", 0, 0)
        sweep()
        if "ordinary" in kinds:
            made = f"{PREFIX}{os.getpid()}"
            command = ["useradd", "--system", "--no-create-home", "--user-group",
                       "--home-dir", "/nonexistent", "--shell", "/bin/sh", made]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                missing["ordinary"] = f"useradd: {done.stderr.strip()}"
                made = None
            else:
                entry = pwd.getpwnam(made)
                users["ordinary"] = User("ordinary", made, entry.pw_uid, entry.pw_gid)
    else:
        try:
            name = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:  # a user in no database, as containers have them
            name = str(os.getuid())
        users["ordinary"] = User("ordinary", name, os.getuid(), os.getgid())
        missing["root"] = "the runner is not root"
    try:
        yield users, missing
    finally:
        if made:
            remove(made)


def sweep() -> None:
    """Removes the users of runs that were killed."""
    for entry in pwd.getpwall():
        match = re.fullmatch(PREFIX + r"(\d+)", entry.pw_name)
        if match and not os.path.exists(f"/proc/{match[1]}"):
            remove(entry.pw_name)


def remove(name: str) -> None:
    subprocess.run(["userdel", name], capture_output=True)
    subprocess.run(["groupdel", name], capture_output=True)  # mostly gone with the user
