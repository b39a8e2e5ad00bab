"""Write-backs through the home directory: what shells, sessions and toolchains start from there."""

from harness import plant
from harness.checks import absent
from harness.model import FIXED, HIDDEN, TIERS, Attack, bare

FIELD = "field survey §4, write-backs"
ROW15 = "fence survey §4 row 15: the list was too short"
# The home inside may be a private one, where writing does no harm: the host's own is compared.
PRIVATE = ("namespace",)
TAKEN = HIDDEN | FIXED
GIT_KEY = "'[core]\n\tfsmonitor = touch'"


def home(name: str, what: str, *paths: str, source: str = FIELD, text: str = "evil") -> Attack:
    """Appends to what is there and creates what is not, by default policy."""
    script = "; ".join(f"{{P}} plant {{home}}/{path} {text}" for path in paths)
    return Attack(f"writeback/home-{name}", what, script, TAKEN, source=source,
                  may_succeed=PRIVATE,
                  checks=tuple(absent(f"{{home}}/{path}") for path in paths[:1]
                               if path in NEW))


def system(name: str, what: str, *paths: str) -> Attack:
    """What root could leave to be started by the machine. Creating is tried, not overwriting."""
    return Attack(f"writeback/system-{name}", what, ("create", *paths), TAKEN,
                  source="fence survey §4 row 20: sudo", control=bare(user="root"),
                  checks=tuple(absent(path) for path in paths),
                  setup=(lambda world: world.closing.append(
                      lambda: [remove(world.fill(path)) for path in paths]),))


def remove(path: str) -> None:
    import os

    if os.path.lexists(path):
        os.unlink(path)


def config(name: str, what: str, *paths: str, text: str = "evil") -> Attack:
    """The user granted ~/.config for writing; what is started from there stays protected. The process tier, which
    cannot hold ringfence's own in it, has to be told to go on."""
    script = "; ".join(f"{{P}} plant {{home}}/.config/{path} {text}" for path in paths)
    return Attack(f"writeback/granted-config-{name}", what, script, TAKEN,
                  flags=("-w", "{home}/.config", "--allow-degraded", "deny"), source=ROW15,
                  may_succeed=("namespace", "process"))


NEW = {
    ".bash_profile", ".config/systemd/user/evil.service", ".config/autostart/evil.desktop",
    ".config/ringfence/profiles/default.toml", ".local/state/ringfence/sessions/evil",
    ".local/lib/python3.11/site-packages/evil.pth",
}

ATTACKS = (
    home("shell-rc", "changes what shells read when they start", ".bashrc", ".profile", ".zshrc"),
    home("shell-rc-absent", "creates startup files that were not there", ".bash_profile",
         ".zshenv", ".bash_login", ".bash_logout", ".inputrc", source=ROW15),
    home("fish", "changes what fish reads", ".config/fish/config.fish",
         ".config/fish/conf.d/x.fish", source=ROW15),
    home("git-config", "sets keys in the user's git config", ".gitconfig", ".config/git/config",
         text=GIT_KEY),
    home("ssh-config", "has ssh run a command, or lets a key in", ".ssh/config",
         ".ssh/authorized_keys", ".ssh/rc"),
    home("cargo", "puts programs and settings among a toolchain", ".cargo/bin/cargo",
         ".cargo/bin/evil", ".cargo/config.toml", ".cargo/env"),
    home("local-bin", "puts a program first in the PATH", ".local/bin/git", ".local/bin/tool",
         "bin/git"),
    home("python-site", "has every python import a module", 
         ".local/lib/python3.11/site-packages/evil.pth", ".pythonrc.py", ".pypirc"),
    home("npmrc", "sets npm's script shell and registry", ".npmrc", ".yarnrc.yml"),
    home("systemd-user", "leaves a unit for the user's systemd",
         ".config/systemd/user/evil.service", ".config/environment.d/evil.conf"),
    home("autostart", "leaves a program for the desktop to start",
         ".config/autostart/evil.desktop", ".local/share/applications/evil.desktop"),
    home("agent-settings", "changes the settings of agents", ".claude/settings.json",
         ".claude.json", ".codex/config.toml", ".gemini/settings.json", ".cursor/mcp.json"),
    home("own-profiles", "changes ringfence's own profiles",
         ".config/ringfence/profiles/mine.toml", ".config/ringfence/profiles/default.toml",
         source="DESIGN.md: policy never comes from inside"),
    home("own-records", "changes ringfence's own records and trust",
         ".local/state/ringfence/sessions/evil", ".local/share/ringfence/trust",
         ".cache/ringfence/plans/evil", source="field survey §4: edit policy mid-run"),
    config("systemd", "leaves a unit for systemd in a granted ~/.config",
           "systemd/user/evil.service"),
    config("autostart", "leaves a program to be started in a granted ~/.config",
           "autostart/evil.desktop"),
    config("git", "sets keys in a granted ~/.config/git", "git/config", text=GIT_KEY),
    config("fish", "changes what fish reads in a granted ~/.config", "fish/config.fish",
           "fish/conf.d/x.fish"),
    config("own-profiles", "changes ringfence's profiles in a granted ~/.config",
           "ringfence/profiles/mine.toml", "ringfence/profiles/default.toml"),
    Attack("writeback/granted-home", "changes startup files in a home granted for writing",
           "{P} plant {home}/.bashrc evil; {P} plant {home}/.zshenv evil; "
           "{P} plant {home}/.ssh/authorized_keys evil; {P} plant {home}/.gitconfig " + GIT_KEY, TAKEN,
           flags=("-w", "{home}"), source=ROW15, may_succeed=("namespace", "process"),
           may_refuse=TIERS, checks=(absent("{home}/.zshenv"),)),
    system("cron", "leaves a job for cron", "/etc/cron.d/rf-escape-{id}",
           "/etc/profile.d/rf-escape-{id}.sh"),
    system("linker", "has the dynamic linker load a library everywhere",
           "/etc/ld.so.conf.d/rf-escape-{id}.conf", "/usr/local/lib/rf-escape-{id}.so"),
    system("unit", "leaves a unit for the system's systemd",
           "/etc/systemd/system/rf-escape-{id}.service", "/usr/local/bin/rf-escape-{id}"),
)
