"""A fresh piece of machine for each run: a home with secrets in it, a workspace, an outside."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
import uuid
from pathlib import Path
from typing import Callable, Optional

from .process import Run, User, write_program

# What a developer's home holds that an agent has no business with.
SECRETS = {
    ".ssh/id_ed25519": 0o600,
    ".ssh/known_hosts": 0o600,
    ".aws/credentials": 0o600,
    ".azure/accessTokens.json": 0o600,
    ".config/gcloud/application_default_credentials.json": 0o600,
    ".config/gh/hosts.yml": 0o600,
    ".config/google-chrome/Default/Login Data": 0o600,
    ".mozilla/firefox/x.default/logins.json": 0o600,
    ".local/share/keyrings/login.keyring": 0o600,
    ".password-store/mail.gpg": 0o600,
    ".gnupg/private-keys-v1.d/key.key": 0o600,
    ".kube/config": 0o600,
    ".docker/config.json": 0o600,
    ".netrc": 0o600,
    ".npmrc": 0o600,
    ".pypirc": 0o600,
    ".git-credentials": 0o600,
    ".bash_history": 0o600,
    ".cargo/credentials.toml": 0o600,
    ".claude/.credentials.json": 0o600,
    "Documents/letter.txt": 0o644,
}
# What the host executes or trusts, and toolchains that a sandbox may show.
HOME_FILES = {
    ".bashrc": "# startup\n",
    ".profile": "# startup\n",
    ".zshrc": "# startup\n",
    ".gitconfig": "[user]\n\tname = t\n\temail = t@example.org\n",
    ".ssh/config": "Host *\n",
    ".config/git/config": "",
    ".config/fish/config.fish": "",
    ".claude/settings.json": "{}\n",
    ".cargo/bin/cargo": "#!/bin/sh\n",
    ".cargo/config.toml": "",
    ".local/bin/tool": "#!/bin/sh\n",
    ".config/ringfence/profiles/mine.toml": 'extends = ["default"]\n',
}
# Of the workspace, outside .git: some protected names exist, some (see the manifest) do not.
PROJECT_FILES = {
    "README.md": "project\n",
    "package.json": '{"scripts": {}}\n',
    "conftest.py": "",
    "src/main.py": "print(1)\n",
    ".vscode/settings.json": "{}\n",
    ".idea/workspace.xml": "<project/>\n",
    ".claude/settings.json": "{}\n",
    "venv/pyvenv.cfg": "home = /usr/bin\n",
    "tools/hooks/pre-commit": "#!/bin/sh\n",
}
# Where ringfence may keep its own records.
OWN_STATE = (".local/state/ringfence", ".cache/ringfence", ".local/share/ringfence")

EXECUTABLE = (".cargo/bin/cargo", ".local/bin/tool", "tools/hooks/pre-commit")
SECRET_ENV = ("AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "ANTHROPIC_API_KEY", "NPM_TOKEN",
              "DATABASE_PASSWORD")


def make_light_template(where: Path) -> None:
    """For attacks that do not look at files: making a whole home takes longer than they do."""
    write(where / "home/.ssh/id_ed25519", "secret\n", 0o600)
    write(where / "home/.bashrc", "# startup\n", 0o644)
    write(where / "home/project/README.md", "project\n", 0o644)
    write(where / "home/project/src/main.py", "print(1)\n", 0o644)
    write(where / "home/project/.git/hooks/x.sample", "", 0o755)
    write(where / "out/victim.txt", "untouched\n", 0o644)


def make_template(where: Path) -> None:
    """A developer's home, of which a world gets a copy."""
    home = where / "home"
    for name, mode in SECRETS.items():
        write(home / name, f"secret of {name}\n", mode)
    for name, text in HOME_FILES.items():
        write(home / name, text, 0o755 if name in EXECUTABLE else 0o644)
    project = home / "project"
    for name, text in PROJECT_FILES.items():
        write(project / name, text, 0o755 if name in EXECUTABLE else 0o644)
    make_repository(project)
    write(where / "out/victim.txt", "untouched\n", 0o644)
    write(where / "out/dir/inner.txt", "untouched\n", 0o644)


def make_repository(where: Path) -> None:
    """A repository with one commit, a pending change, and hooks that do nothing."""
    write(where / "tracked.txt", "one\n", 0o644)
    env = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": str(where),
           "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_DATE": "@1 +0000", "GIT_COMMITTER_DATE": "@1 +0000"}
    for words in (("init", "-q", "--template="), ("add", "tracked.txt"),
                  ("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "one")):
        subprocess.run(["git", "-C", str(where), *words], env=env, check=True)
    write(where / ".git/hooks/pre-commit.sample", "#!/bin/sh\n", 0o755)
    write(where / ".git/hooks/pre-push", "#!/bin/sh\n# the user's own\n", 0o755)
    write(where / "tracked.txt", "two\n", 0o644)


def write(path: Path, text: str, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


class World:
    """The directories, and everything alive in them. Use as a context manager."""

    def __init__(self, root: Path, template: Path, probe: Path, ringfence: Optional[Path],
                 user: User) -> None:
        self.tool = probe  # the runner's own, which no attack can have replaced
        self.user = user
        self.id = uuid.uuid4().hex[:12]
        self.base = root / self.id
        self.home = self.base / "home"
        self.ws = self.home / "project"
        self.out = self.base / "out"
        self.xdg = self.base / "xdg"
        self.tmp = Path("/tmp") / f"rf-escape-{self.id}"
        self.shm = Path("/dev/shm") / f"rf-escape-{self.id}"
        self.etc = Path("/etc") / f"rf-escape-{self.id}"
        # Root plants its sockets where daemons do; anyone else in a directory of their own.
        self.run = (Path("/run") if os.geteuid() == 0 else self.base) / f"rf-escape-{self.id}"
        self.probe = self.ws / ".probe"
        self.ringfence = ringfence
        self.pass_fds: list[int] = []
        self.settled = False  # whether the runner has made sure that nothing is left
        self.own: set[int] = set()  # processes of ours, not of the sandbox
        self.closing: list[Callable[[], None]] = []
        self.secret = "s3cret" + uuid.uuid4().hex
        self.vars = {
            name: str(getattr(self, name)) for name in
            ("id", "base", "home", "ws", "out", "xdg", "tmp", "shm", "etc", "run", "secret")
        }
        self.vars |= {"P": str(self.probe), "uid": str(user.uid), "ringfence": str(ringfence),
                      "gid": str(user.gid), "marker": str(self.base / "marker"),
                      # In halves, for those who look for it on command lines.
                      "secret_a": self.secret[:12], "secret_b": self.secret[12:]}
        self._make(template, probe)
        self.before: dict[str, dict] = {}

    def _make(self, template: Path, probe: Path) -> None:
        shutil.copytree(template, self.base, symlinks=True)
        write_program(self.probe, probe.read_bytes())
        for directory in (self.xdg, self.run, self.tmp):
            directory.mkdir(mode=0o700)
        if os.geteuid() == 0:
            for path, directories, files in os.walk(self.base):
                for name in ("", *directories, *files):
                    os.chown(os.path.join(path, name), self.user.uid, self.user.gid,
                             follow_symlinks=False)
            for directory in (self.run, self.tmp):
                os.chown(directory, self.user.uid, self.user.gid)
        self.base.chmod(0o755)

    def __enter__(self) -> "World":
        return self

    def __exit__(self, *_: object) -> None:
        for close in reversed(self.closing):
            close()
        for fd in self.pass_fds:
            try:
                os.close(fd)
            except OSError:
                pass
        for place in (self.base, self.run, self.tmp):
            remove_tree(place)
        for file in (self.etc, self.shm, Path(f"{self.tmp}.new")):
            file.unlink(missing_ok=True)

    def fill(self, text: str) -> str:
        """Puts paths and names where {name} stands; other braces are a script's own."""
        return re.sub(r"\{(\w+)\}", lambda m: self.vars.get(m[1], m[0]), text)

    def env(self, more: dict[str, str]) -> dict[str, str]:
        env = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(self.home), "USER": self.user.name, "LOGNAME": self.user.name,
            "LANG": "C.UTF-8", "TERM": "dumb", "P": "./.probe",
            "XDG_RUNTIME_DIR": str(self.xdg), "RF_ESCAPE_TOKEN": self.id,
        }
        env |= {name: self.secret for name in SECRET_ENV}
        env |= {name: self.fill(value) for name, value in more.items()}
        return env

    def command(self, act, more: Optional[dict] = None) -> list[str]:
        """The words of an act: a probe with operands, or a script."""
        if isinstance(act, str):
            return ["/bin/sh", "-c", self.fill(act)]
        return [str(self.probe), *(self.fill(word) for word in act)]

    def start(self, command: list[str], env: Optional[dict] = None, cwd: Optional[str] = None) -> Run:
        """A process of the host's, for an attack to aim at."""
        run = Run(command, self.user, cwd or str(self.out), {**self.env({}), **(env or {})})
        self.own.add(run.process.pid)

        def end() -> None:
            run.process.kill()
            run.process.wait()
            run.close()

        self.closing.append(end)
        return run

    def remember(self) -> None:
        """Notes the state that no attack may change."""
        self.before = self.look()

    def look(self) -> dict[str, dict]:
        return {
            "outside": snapshot(self.out),
            # A file there that was restored is as good as one that was not touched.
            "home": snapshot(self.home, skip=("project", *OWN_STATE), times=False),
        }

    def changes(self) -> list[str]:
        """What is different outside the workspace."""
        now = self.look()
        return [line for part, was in self.before.items()
                for line in difference(part, was, now[part])]


def remove_tree(path: Path) -> None:
    """Removes what an attack may have made hard to remove: and nothing but that. An attack that
    worked may have put a link or a mount anywhere, and we may be root: links are not followed,
    and another file system is never entered."""
    try:
        top = os.lstat(path)
    except FileNotFoundError:
        return
    remove_within(str(path), top.st_dev)


def remove_within(path: str, device: int) -> None:
    is_ = os.lstat(path)
    if not stat.S_ISDIR(is_.st_mode):
        os.unlink(path)
        return
    if is_.st_dev != device or os.path.ismount(path):
        raise RuntimeError(f"{path} is a mount: left as it is, and everything above it")
    os.chmod(path, 0o700)
    for name in os.listdir(os.fsencode(path)):
        remove_within(os.path.join(path, os.fsdecode(name)), device)
    os.rmdir(path)


def snapshot(root: Path, skip: tuple[str, ...] = (), times: bool = True) -> dict[str, tuple]:
    """Each path below (and at) root, with all that must stay as it is."""
    seen: dict[str, tuple] = {}

    def visit(path: Path, name: str) -> None:
        if name in skip:
            return
        try:
            is_ = os.lstat(path)
        except OSError:
            return
        kind = stat.S_IFMT(is_.st_mode)
        facts: tuple = (kind, stat.S_IMODE(is_.st_mode), is_.st_uid, is_.st_gid)
        if kind == stat.S_IFLNK:
            facts += (os.readlink(path),)
        elif kind == stat.S_IFREG:
            digest = hashlib.sha1(path.read_bytes()).hexdigest()
            facts += (digest, is_.st_mtime_ns if times else 0, tuple(os.listxattr(path)))
        seen[name] = facts
        if kind == stat.S_IFDIR:
            for entry in sorted(os.listdir(path)):
                visit(path / entry, f"{name}/{entry}".lstrip("/"))

    visit(root, "")
    return seen


def difference(part: str, was: dict[str, tuple], now: dict[str, tuple]) -> list[str]:
    lines = []
    # Directories that only lead to ringfence's own records are nobody's harm.
    own = {str(parent) for state in OWN_STATE for parent in Path(state).parents}
    for name in sorted(was.keys() | now.keys()):
        if was.get(name) == now.get(name) or (name in own and name not in was):
            continue
        verb = "appeared" if name not in was else "is gone" if name not in now else "changed"
        lines.append(f"{part}: {name or '.'} {verb}")
    return lines
