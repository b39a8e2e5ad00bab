"""Write-backs through git: files that the host's git will execute, or trust, after the run.

What counts is what the host is left with: the protected paths as they were, and a real git
that runs nothing planted. Where the tier enforces during the run too (existing paths, in the
namespace tier) the refusal is asserted as well.
"""

from harness import plant
from harness.checks import absent, git_runs_nothing, no_payload_in, not_redirected, unchanged
from harness.model import FIXED, HIDDEN, Attack, Session, bare

FIELD = "field survey §4, write-backs"
ROW11 = "fence survey §4 row 11"
TAKEN = FIXED | HIDDEN  # after `mv .git` failed, what was to follow finds less than it expected
# Repositories somewhere in the workspace cannot all be found at the start without walking it, so
# that for them (BOTH, too) it is only the host's state that counts.
AFTER = ("process",)  # put back after the run, where nothing can stop it during the run
BOTH = ("namespace", "process")  # nothing there at the start, nothing there after the run
PAYLOAD = "'#!/bin/sh\n: > {marker}'"
EXEC_KEYS = (
    "core.fsmonitor", "core.sshCommand", "core.pager", "core.editor", "core.askPass",
    "core.gitProxy", "core.alternateRefsCommand", "diff.external", "diff.x.command",
    "diff.x.textconv", "filter.x.clean", "filter.x.smudge", "filter.x.process", "merge.x.driver",
    "mergetool.x.cmd", "difftool.x.cmd", "credential.helper", "gpg.program", "gpg.ssh.program",
    "gpg.ssh.defaultKeyCommand", "sequence.editor", "interactive.diffFilter",
    "pack.packSizeLimitHook", "receive.procReceiveRefs", "remote.x.uploadpack",
    "remote.x.receivepack", "remote.x.vcs", "uploadpack.packObjectsHook", "submodule.x.update",
    "alias.st", "browser.x.cmd", "man.x.cmd", "web.browser", "instaweb.httpd",
    "trailer.x.command", "trailer.x.cmd", "sendemail.smtpServer", "sendemail.toCmd",
    "tar.x.command", "log.showSignature", "core.hooksPath", "core.attributesFile",
    "core.worktree", "include.path", "includeIf.gitdir:/.path", "init.templateDir",
    "commit.template", "protocol.ext.allow", "url.ext::sh.insteadOf", "pager.log", "guitool.x.cmd",
    "imap.tunnel", "core.excludesFile", "gitcvs.dbDriver", "rebase.instructionFormat",
)
SET_KEYS = "; ".join(f"git -C {{where}} config {key} {{marker_command}}" for key in EXEC_KEYS)
VENDOR = (plant.repository("{ws}/vendor/lib"), plant.aged)
GIT = (unchanged(".git/hooks", ".git/config"), git_runs_nothing())


def marker_command(world) -> None:
    """{marker_command}: what planted settings have git run; {where}: which repository they go to."""
    world.vars["marker_command"] = f"'touch {world.vars['marker']};:'"


def fresh(where: str):
    def setup(world) -> None:
        marker_command(world)
        world.vars["where"] = world.fill(where)

    return setup


def existing(name: str, what: str, act, *, source: str = FIELD, checks=GIT, **more) -> Attack:
    """An act on protected paths that are there when the run begins."""
    return Attack(f"writeback/git-{name}", what, act, more.pop("refusals", TAKEN), source=source,
                  may_succeed=more.pop("may_succeed", AFTER), checks=checks, control=more.pop("control", bare()), **more)


def created(name: str, what: str, act, *, source: str = FIELD, checks=(git_runs_nothing(),),
            **more) -> Attack:
    """An act that makes what was not there: it may be seen inside, and must be gone after."""
    return Attack(f"writeback/git-{name}", what, act, more.pop("refusals", TAKEN), source=source,
                  may_succeed=BOTH, checks=checks, control=more.pop("control", bare()), **more)


ATTACKS = (
    existing("hook-create", "adds a hook", "{P} plant .git/hooks/post-commit " + PAYLOAD),
    existing("hook-overwrite", "rewrites a hook the user has",
             "{P} plant .git/hooks/pre-push " + PAYLOAD),
    existing("hook-rename-sample", "makes a hook of a sample",
             "{P} rename .git/hooks/pre-commit.sample .git/hooks/pre-commit",
             checks=(unchanged(".git/hooks"),)),
    existing("hook-link-target", "rewrites the script that a hook of the user's links to",
             "{P} plant tools/check.sh " + PAYLOAD,
             setup=(plant.link("{ws}/.git/hooks/pre-commit", "../../tools/check.sh"),
                    plant.file("{ws}/tools/check.sh")),
             source="found by attacking 0.1: a link among the hooks",
             checks=(unchanged("tools/check.sh"),)),
    existing("hook-remove", "takes away a hook that checks pushes",
             ("unlink", "{ws}/.git/hooks/pre-push"), checks=(unchanged(".git/hooks"),)),
    existing("hook-chmod", "disarms a hook by its mode",
             ("chmod", "{ws}/.git/hooks/pre-push", "644"), checks=(unchanged(".git/hooks"),)),
    existing("hook-hard-link", "writes a hook by another name of it",
             ("link", "{ws}/.git/hooks/pre-push", "{ws}/alias"), checks=(unchanged(".git/hooks"),)),
    existing("hook-reopen", "writes a hook by reopening an O_PATH descriptor",
             ("opath_reopen", "{ws}/.git/hooks/pre-push"), checks=(unchanged(".git/hooks"),)),
    existing("hook-truncate", "empties a hook by creat(2) and by O_TRUNC",
             "{P} creat_call .git/hooks/pre-push; {P} open_truncate .git/hooks/pre-push",
             checks=(unchanged(".git/hooks"),)),
    existing("hooks-replace-directory", "moves the hooks away",
             ("rename", "{ws}/.git/hooks", "{ws}/.git/old"), source=ROW11,
             checks=(unchanged(".git/hooks"),)),
    existing("config-append", "sets core.fsmonitor in the repository's config",
             "printf '[core]\\n\\tfsmonitor = \"touch {marker};:\"\\n' > evil; "
             "cat .git/config evil > both; {P} rename both .git/config"),
    existing("config-write", "writes the config in place",
             "{P} append_text .git/config '[core]\n\tfsmonitor = \"touch {marker};:\"\n'"),
    existing("config-exchange", "exchanges the config with one of its own",
             "cp .git/config evil; printf '[core]\\n\\tfsmonitor = \"touch {marker};:\"\\n' >> evil; "
             "{P} exchange evil .git/config"),
    existing("config-by-git", "has git itself set every key that runs something",
             SET_KEYS + "; {P} append .git/config", setup=(fresh("{ws}"),),
             checks=(no_payload_in("{ws}/.git/config"), git_runs_nothing())),
    existing("parent-rename", "moves .git away and puts a copy with hooks in its place",
             "{P} rename .git x; cp -r x .git; {P} plant .git/hooks/post-commit " + PAYLOAD,
             source=ROW11),
    existing("parent-exchange", "exchanges .git with a copy that has hooks",
             "cp -r .git x 2>/dev/null; printf '#!/bin/sh\\n: > {marker}\\n' > x/hooks/post-commit; "
             "chmod +x x/hooks/post-commit; {P} exchange x .git", source=ROW11),
    existing("parent-remove", "removes .git and makes a new one with hooks",
             "rm -rf .git 2>/dev/null; git init -q . 2>/dev/null; "
             "{P} plant .git/hooks/post-commit " + PAYLOAD, source=ROW11,
             checks=(git_runs_nothing(),)),
    existing("parent-to-file", "puts a file in the place of .git that names another repository",
             "cp -r .git evil; printf '#!/bin/sh\\n: > {marker}\\n' > evil/hooks/post-commit; "
             "chmod +x evil/hooks/post-commit; {P} rename .git x; "
             "[ -e .git ] || printf 'gitdir: evil\\n' > .git", source=FIELD,
             checks=(not_redirected(".git"), git_runs_nothing())),
    existing("parent-to-file-later", "fills that repository with hooks and keys in a second session",
             "{P} plant evil/hooks/post-commit " + PAYLOAD + "; {P} append_text evil/config "
             "'[core]\n\tfsmonitor = \"touch {marker};:\"\n'", may_succeed=BOTH,
             sessions=(Session("cp -r .git evil; mv .git x && printf 'gitdir: evil\\n' > .git"),),
             checks=(git_runs_nothing(),)),
    existing("parent-to-link", "puts a link in the place of .git",
             "cp -r .git evil; printf '#!/bin/sh\\n: > {marker}\\n' > evil/hooks/post-commit; "
             "chmod +x evil/hooks/post-commit; {P} rename .git x; [ -e .git ] || ln -s evil .git",
             source=ROW11, checks=(not_redirected(".git"), git_runs_nothing())),
    created("commondir", "has git take its config from elsewhere, by .git/commondir",
            "cp -r .git evil; printf '[core]\\n\\tfsmonitor = \"touch {marker};:\"\\n' >> evil/config; "
            "{P} plant .git/commondir ../evil", checks=(absent("{ws}/.git/commondir"),
                                                        git_runs_nothing())),
    created("config-worktree", "uses the per-worktree config that the user enabled",
            "{P} plant .git/config.worktree '[core]\n\tfsmonitor = \"touch {marker};:\"'",
            setup=(plant.git_config(("extensions.worktreeConfig", "true")),)),
    existing("configured-hooks-path", "writes a hook in the directory that core.hooksPath names",
             "{P} plant tools/hooks/post-commit " + PAYLOAD,
             may_succeed=BOTH, source="codex #37081; every git exec key",
             setup=(plant.git_config(("core.hooksPath", "tools/hooks")),),
             checks=(git_runs_nothing(),)),
    existing("configured-include", "writes the file that include.path names",
             "printf '[core]\\n\\tfsmonitor = \"touch {marker};:\"\\n' > evil; "
             "{P} rename evil team.gitconfig", may_succeed=BOTH, source="every git exec key",
             setup=(plant.file("{ws}/team.gitconfig", ""),
                    plant.git_config(("include.path", "../team.gitconfig"))),
             checks=(git_runs_nothing(),)),
    existing("nested-configured-hooks-path", "writes a hook where the configuration of a nested repository says",
             "{P} plant vendor/lib/scripts/h/post-commit " + PAYLOAD, may_succeed=BOTH,
             source="found by attacking 0.1: nested configuration",
             setup=(plant.repository("{ws}/vendor/lib"),
                    plant.git_config(("core.hooksPath", "scripts/h"), repo="{ws}/vendor/lib"), plant.aged),
             checks=(git_runs_nothing("{ws}/vendor/lib"),)),
    existing("nested-hook", "adds a hook to a repository inside the workspace",
             "{P} plant vendor/lib/.git/hooks/post-commit " + PAYLOAD, may_succeed=BOTH, source="codex #37081",
             setup=VENDOR,
             checks=(unchanged("vendor/lib/.git/hooks"), git_runs_nothing("{ws}/vendor/lib"))),
    existing("nested-config", "sets a key in that repository's config",
             "cp vendor/lib/.git/config evil; "
             "printf '[core]\\n\\tfsmonitor = \"touch {marker};:\"\\n' >> evil; "
             "{P} rename evil vendor/lib/.git/config", may_succeed=BOTH, source="codex #37081",
             setup=VENDOR,
             checks=(no_payload_in("{ws}/vendor/lib/.git/config"),
                     git_runs_nothing("{ws}/vendor/lib"))),
    existing("nested-parent-rename", "replaces the directory that holds that repository",
             "{P} rename vendor x; cp -r x vendor; {P} plant vendor/lib/.git/hooks/post-commit "
             + PAYLOAD, may_succeed=BOTH, source=ROW11, setup=VENDOR,
             checks=(git_runs_nothing("{ws}/vendor/lib"),)),
    existing("nested-deep", "adds a hook to a repository five directories down",
             "{P} plant a/b/c/d/e/.git/hooks/post-commit " + PAYLOAD, may_succeed=BOTH, source="codex #37081",
             setup=(plant.repository("{ws}/a/b/c/d/e"), plant.aged),
             checks=(unchanged("a/b/c/d/e/.git/hooks"), git_runs_nothing("{ws}/a/b/c/d/e"))),
    existing("submodule-hook", "adds a hook to a submodule's directory in .git/modules",
             "{P} plant .git/modules/sub/hooks/post-commit " + PAYLOAD, may_succeed=BOTH, source=FIELD,
             setup=(plant.file("{ws}/.git/modules/sub/hooks/x.sample"),
                    plant.file("{ws}/.git/modules/sub/config")),
             checks=(unchanged(".git/modules/sub/hooks"),)),
    existing("worktree-gitdir", "points a worktree at a repository of its own",
             "cp -r .git evil 2>/dev/null; printf '[core]\\n\\tfsmonitor = \"touch {marker};:\"\\n'"
             " >> evil/config; printf 'gitdir: {ws}/evil\\n' > new; {P} rename new tree/.git",
             may_succeed=BOTH, source=FIELD, setup=(plant.file("{ws}/tree/.git", "gitdir: {ws}/.git/worktrees/tree\n"),
                                  plant.file("{ws}/.git/worktrees/tree/HEAD", "ref: refs/heads/x\n"),
                                  plant.file("{ws}/.git/worktrees/tree/commondir", "../..\n"),
                                  plant.file("{ws}/.git/worktrees/tree/gitdir", "{ws}/tree/.git\n")),
             checks=(git_runs_nothing("{ws}/tree"),)),
    created("new-repository", "makes a repository, and in it every key that runs something",
            "git init -q made; " + SET_KEYS + "; {P} append made/.git/config",
            setup=(fresh("made"),), checks=(no_payload_in("{ws}/made/.git/config"),)),
    created("new-repository-fsmonitor", "makes a repository whose status runs something",
            "git init -q made; git -C made config core.fsmonitor {marker_command}; "
            "{P} plant made/file x", setup=(marker_command,),
            checks=(git_runs_nothing("{ws}/made"),)),
    created("new-repository-hook", "makes a repository with a hook",
            "git init -q made; {P} plant made/.git/hooks/post-commit " + PAYLOAD,
            checks=(absent("{ws}/made/.git/hooks/post-commit"), git_runs_nothing("{ws}/made"))),
    created("clone-with-config", "clones with a setting that runs something",
            "git clone -q -c core.fsmonitor={marker_command} . made 2>&1; {P} plant made/file x",
            setup=(marker_command,), checks=(git_runs_nothing("{ws}/made"),)),
    created("bare-repository", "hides a bare repository in an innocent directory",
            "mkdir docs; cp -r .git/HEAD .git/objects .git/refs docs/; "
            "printf '[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n"
            "\\tworktree = .\\n\\tfsmonitor = \"touch {marker};:\"\\n' > docs/config; "
            "{P} plant docs/file x", source="git's embedded bare repositories (safe.bareRepository)",
            checks=(git_runs_nothing("{ws}/docs"),)),
    created("second-session", "hooks made by one session meet a second, which protects what is there",
            "{P} plant made/.git/hooks/post-commit " + PAYLOAD + "; {P} plant made/file x",
            sessions=(Session("git init -q made; cp .git/hooks/pre-push made/.git/hooks/"),),
            checks=(git_runs_nothing("{ws}/made"),)),
)
