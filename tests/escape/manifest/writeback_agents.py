"""Write-backs through editors, agents and build tools: what they execute when next opened."""

import os

from harness import plant
from harness.checks import absent, not_marked, unchanged
from harness.model import FIXED, HIDDEN, Attack, Session, bare, granted

FIELD = "field survey §4, write-backs"
TAKEN = FIXED | HIDDEN
BOTH = ("namespace", "process")
TASK = "'{\"version\": \"2.0.0\", \"tasks\": [{\"runOptions\": {\"runOn\": \"folderOpen\"}}]}'"


def new(name: str, what: str, path: str, text: str = "evil", source: str = FIELD) -> Attack:
    """A protected name that is not there at the start, and must not be there after."""
    top = path.split("/")[0]
    return Attack(f"writeback/new-{name}", f"creates {what}", ("plant", f"{{ws}}/{path}", text),
                  TAKEN, source=source, may_succeed=BOTH, checks=(absent(f"{{ws}}/{top}"),))


def changed(name: str, what: str, path: str, source: str = FIELD, setup=()) -> Attack:
    """A protected file that is there, written in place, by replacement, and by its parent."""
    parent = path.rpartition("/")[0]
    script = f"{{P}} append {path}; echo evil > new; {{P}} rename new {path}; {{P}} unlink {path}"
    if parent:
        script += f"; {{P}} rename {parent} x; {{P}} plant {path} evil"
    return Attack(f"writeback/change-{name}", f"changes {what}", script, TAKEN, source=source,
                  may_succeed=("process",), setup=setup, checks=(unchanged(path),))


PROTECT = ("--protect", "{ws}/conftest.py", "--protect", "{ws}/package.json")

ATTACKS = (
    new("mcp-json", "an MCP server for agents to start", ".mcp.json",
        source="fence survey §4 row 10"),
    new("envrc", "what direnv runs on entering", ".envrc"),
    new("husky", "hooks that a package's scripts install", ".husky/pre-commit"),
    new("cursor", "an editor agent's servers", ".cursor/mcp.json"),
    new("gemini", "an agent's settings", ".gemini/settings.json"),
    new("codex", "an agent's settings", ".codex/config.toml"),
    new("devcontainer", "commands that run when a container opens", ".devcontainer/devcontainer.json"),
    new("pre-commit-config", "hooks that pre-commit installs", ".pre-commit-config.yaml"),
    new("cargo-config", "a program that cargo runs for each crate", ".cargo/config.toml"),
    new("npmrc", "settings of npm that name a script shell", ".npmrc"),
    new("shell-rc", "a startup file, for a home that is a workspace", ".bashrc"),
    Attack("writeback/new-claude-local", "creates local settings with hooks, beside the existing ones",
           "{P} plant .claude/settings.local.json evil; {P} plant .claude/commands/x.md evil; "
           "{P} plant .claude/agents/x.md evil; {P} plant .claude/hooks/x.sh evil", TAKEN,
           source="CVE-2026-25725", may_succeed=BOTH,
           checks=(absent("{ws}/.claude/settings.local.json", "{ws}/.claude/commands/x.md",
                          "{ws}/.claude/agents/x.md", "{ws}/.claude/hooks/x.sh"),)),
    Attack("writeback/new-claude-settings", "creates the settings that were not there",
           ("plant", "{ws}/.claude/settings.json", "{\"hooks\": {}}"), TAKEN,
           source="CVE-2026-25725", may_succeed=BOTH,
           setup=(lambda world: os.unlink(world.ws / ".claude/settings.json"),),
           checks=(absent("{ws}/.claude/settings.json"),)),
    Attack("writeback/new-vscode-tasks", "creates tasks beside an editor's existing settings",
           ("plant", "{ws}/.vscode/tasks.json", TASK), TAKEN, source=FIELD, may_succeed=BOTH,
           checks=(absent("{ws}/.vscode/tasks.json"),)),
    Attack("writeback/new-idea-run", "creates a run configuration beside an editor's settings",
           ("plant", "{ws}/.idea/runConfigurations/x.xml", "evil"), TAKEN, source=FIELD,
           may_succeed=BOTH, checks=(absent("{ws}/.idea/runConfigurations/x.xml"),)),
    changed("vscode-settings", "an editor's settings", ".vscode/settings.json"),
    changed("idea-workspace", "an editor's settings", ".idea/workspace.xml"),
    changed("claude-settings", "an agent's settings", ".claude/settings.json",
            source="claude-code #89165"),
    changed("pyvenv", "the interpreter of a virtual environment", "venv/pyvenv.cfg"),
    changed("mcp-json", "an MCP server for agents to start", ".mcp.json",
            setup=(plant.file("{ws}/.mcp.json", "{}\n"),)),
    changed("envrc", "what direnv runs on entering", ".envrc",
            setup=(plant.file("{ws}/.envrc", "x\n"),)),
    changed("husky", "a hook of a package's", ".husky/pre-commit",
            setup=(plant.file("{ws}/.husky/pre-commit", "x\n"),)),
    changed("gitmodules", "where submodules come from", ".gitmodules",
            setup=(plant.file("{ws}/.gitmodules", ""),)),
    Attack("writeback/protect-flag", "changes files that the user protects by name",
           "{P} append conftest.py package.json; echo evil > new; {P} rename new conftest.py; "
           "{P} unlink package.json", TAKEN, flags=PROTECT,
           source="field survey §4: conftest.py, package.json scripts", may_succeed=("process",),
           checks=(unchanged("conftest.py", "package.json"),), control=granted()),
    Attack("writeback/protect-flag-directory", "changes a directory that the user protects",
           "{P} append src/main.py; {P} create src/new; {P} rename src x; "
           "{P} plant src/main.py evil", TAKEN, flags=("--protect", "{ws}/src"),
           source="nono #544: a subpath inside a writable directory", may_succeed=("process",),
           checks=(unchanged("src"),), control=granted()),
    Attack("writeback/protect-flag-nested", "renames a parent of what the user protects",
           "{P} rename src x; {P} plant src/main.py evil", TAKEN,
           flags=("--protect", "{ws}/src/main.py"), source="fence survey §4 row 11",
           may_succeed=("process",), checks=(unchanged("src/main.py"),), control=granted()),
    Attack("writeback/protect-flag-absent", "creates what the user protects and was not there",
           ("plant", "{ws}/.github/workflows/x.yml", "evil"), TAKEN,
           flags=("--protect", "{ws}/.github"), source="fence survey §4 row 10", may_succeed=BOTH,
           checks=(absent("{ws}/.github"),)),
    Attack("writeback/cleanup-by-rename", "moves a prepared directory to a protected name",
           "mkdir made; echo evil > made/tasks.json; {P} rename made .husky", TAKEN,
           source="issue 2, item 2: created ones never survive", may_succeed=BOTH,
           checks=(absent("{ws}/.husky"),)),
    Attack("writeback/cleanup-hard-link", "links a prepared file to a protected name",
           "echo evil > made; {P} link made .mcp.json", TAKEN,
           source="issue 2, item 2: created ones never survive", may_succeed=BOTH,
           checks=(absent("{ws}/.mcp.json"),)),
    Attack("writeback/cleanup-link-inside", "makes a protected name a link into the workspace",
           "mkdir made; echo evil > made/pre-commit; {P} symlink made .husky", TAKEN,
           source="issue 2, item 2: created ones never survive", may_succeed=BOTH,
           checks=(absent("{ws}/.husky"),)),
    Attack("writeback/cleanup-follows-link", "makes a protected name a link out, for the clean-up to follow",
           "{P} symlink {out} .husky; {P} symlink {home}/.ssh .cursor", TAKEN,
           source="CVE-2026-1386: a cleaner that follows links", may_succeed=BOTH,
           checks=(absent("{ws}/.husky", "{ws}/.cursor"),)),
    Attack("writeback/cleanup-follows-parent", "makes a parent of a created name a link out",
           "mkdir -p a/b; {P} plant a/b/.husky/x evil; {P} rename a/b/.husky a/b/x; rm -r a/b; "
           "ln -s {out} a/b", TAKEN, source="CVE-2026-1386: a cleaner that follows links",
           may_succeed=BOTH, control=bare(detects=False)),
    Attack("writeback/cleanup-locked", "makes the created directory unreadable, and deep",
           "{P} plant .husky/a/b/c/d/e/f/g/h/pre-commit evil; chmod 000 .husky/a/b/c; chmod 000 .husky",
           TAKEN, source="issue 2, item 2: created ones never survive", may_succeed=BOTH,
           checks=(absent("{ws}/.husky"),)),
    Attack("writeback/cleanup-many", "creates a thousand files at a protected name",
           "i=0; while [ $i -lt 1000 ]; do mkdir -p .husky; (: > .husky/$i) 2> /dev/null; i=$((i+1)); done; "
           "{P} plant .husky/pre-commit evil", TAKEN,
           source="issue 2, item 2: created ones never survive", may_succeed=BOTH,
           checks=(absent("{ws}/.husky"),)),
    Attack("writeback/cleanup-odd-names", "creates files whose names are no text",
           ("plant", "{ws}/.husky/\udcff\n x", "evil"), TAKEN, may_succeed=BOTH,
           source="sandlock survey §4, by reading 5", checks=(absent("{ws}/.husky"),)),
    Attack("writeback/cleanup-subdirectory", "creates protected names deep in the workspace",
           "{P} plant packages/app/.vscode/tasks.json evil; {P} plant packages/app/.envrc evil; "
           "{P} plant packages/app/.mcp.json evil", TAKEN, source="fence survey §1.5: depth",
           may_succeed=BOTH,
           checks=(absent("{ws}/packages/app/.vscode/tasks.json", "{ws}/packages/app/.envrc",
                          "{ws}/packages/app/.mcp.json"),)),
    Attack("writeback/survivor", "leaves a process that creates a protected name once nobody looks",
           ("daemon", "{id}", "{ws}/.mcp.json"), TAKEN | {"started"}, source=FIELD,
           checks=(absent("{ws}/.mcp.json"),), control=bare("started", detects=False)),
    Attack("writeback/preload-next-session", "leaves a library for LD_PRELOAD to load into the launcher",
           ("say", "ATTEMPT result=absent preload"), frozenset({"absent"}),
           source="field survey §4: LD_PRELOAD",
           env={"LD_PRELOAD": "{preload}", "RF_MARKER": "{marker}"}, checks=(not_marked,),
           control=bare("absent", act="true; echo ATTEMPT result=absent")),
    Attack("writeback/path-next-session", "leaves helpers in the PATH for the launcher to run",
           "echo ATTEMPT result=absent helpers", frozenset({"absent"}),
           source="DESIGN.md rule 5: no helper programs", env={"PATH": "{ws}/bin:/usr/bin:/bin"},
           setup=tuple(plant.file(f"{{ws}}/bin/{name}", "#!/bin/sh\n: > {marker}\n", 0o755)
                       for name in ("newuidmap", "newgidmap", "git", "bwrap", "ip", "nft", "mount",
                                    "unshare", "setpriv", "systemd-run")),
           checks=(not_marked,), control=bare("absent", act="git; echo ATTEMPT result=absent")),
)
