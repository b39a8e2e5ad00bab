"""Write-backs that hide from whoever looks for them afterwards: behind directories that cannot be
listed, names that meant nothing when they were made, detours of git's, and more than anybody would read.

As in writeback_git, what counts is what the host is left with, and that its git runs nothing planted.
"""

from harness import plant
from harness.checks import absent, git_runs_nothing
from harness.model import Session

from .writeback_git import PAYLOAD, created, marker_command

FOUND = "found by attacking 0.1: "
FSMONITOR = "printf '[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = \"touch {marker};:\"\\n'"
# What git takes for a repository, but for its HEAD, so that nobody else does.
HALF = "mkdir -p made/half/objects made/half/refs made/half/hooks; " + FSMONITOR + " > made/half/config; "
SUBMODULE = (plant.file("{ws}/.git/modules/libs/sub/hooks/x.sample"),
             plant.file("{ws}/.git/modules/libs/sub/config"),
             plant.file("{ws}/.git/modules/libs/sub/HEAD", "ref: refs/heads/x\n"), plant.aged)

# Kept apart while the command runs, and committed at its end by who started it.
APART = {"flags": ("--overlay=commit",), "not_in": {"process": "there is no overlay"}}
BARE = ("mkdir -p made/hooks; printf '[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n"
        "\\tworktree = .\\n\\tfsmonitor = \"touch {marker};:\"\\n' > made/config; ")
PARTS = "mkdir -p made; cp -r .git/HEAD .git/objects .git/refs made/; "

ATTACKS = (
    created("unlistable-repository", "hides a repository in a directory that can be entered, not listed",
            "git init -q made/in; git -C made/in config core.fsmonitor {marker_command}; "
            "{P} plant made/in/file x; chmod 0311 made", setup=(marker_command,),
            source=FOUND + "the look after the run lists", checks=(git_runs_nothing("{ws}/made/in"),)),
    created("unlistable-hooks", "makes the hooks directory unlistable",
            "git init -q made; {P} plant made/.git/hooks/post-commit " + PAYLOAD
            + "; {P} plant made/file x; chmod 0311 made/.git/hooks",
            source=FOUND + "the look after the run lists", checks=(git_runs_nothing("{ws}/made"),)),
    created("unlistable-git", "makes all of .git unlistable, and locks the way to it",
            "git init -q made/in; git -C made/in config core.fsmonitor {marker_command}; "
            "{P} plant made/in/file x; chmod 0311 made/in/.git; chmod 0 made/in; chmod 0 made",
            setup=(marker_command,), source=FOUND + "the look after the run lists",
            checks=(absent("{ws}/made/in/.git/config"),)),
    created("renamed-later", "makes in one session what a rename makes a repository in the next",
            "printf 'ref: refs/heads/m\\n' > made/half/HEAD; mv made/half made/.git; "
            "{P} plant made/file x", sessions=(Session(HALF),),
            source=FOUND + "what is in a renamed directory keeps its times",
            checks=(git_runs_nothing("{ws}/made"),)),
    created("renamed-after-a-kill", "the same, and has the launcher of the first session killed",
            "printf 'ref: refs/heads/m\\n' > made/half/HEAD; mv made/half made/.git; "
            "{P} plant made/file x",
            sessions=(Session(HALF + "echo READY; exec sleep 1000", killed=True),),
            source=FOUND + "a run was noted at its end, by its launcher",
            checks=(git_runs_nothing("{ws}/made"),)),
    created("renamed-hooks-later", "the same with hooks, whose directory got its name last",
            "mv made/h made/.git/hooks; {P} plant made/file x",
            sessions=(Session("git init -q made; rm -r made/.git/hooks; mkdir made/h; "
                              "{P} plant made/h/post-commit " + PAYLOAD),),
            source=FOUND + "what is in a renamed directory keeps its times",
            checks=(git_runs_nothing("{ws}/made"),)),
    created("renamed-settings-later", "the same with an editor's settings",
            "mkdir -p made; mv made/c made/.cargo; {P} plant made/file x",
            sessions=(Session("mkdir -p made/c; echo '[build]' > made/c/config.toml"),),
            source=FOUND + "what is in a renamed directory keeps its times",
            checks=(absent("{ws}/made/.cargo/config.toml"),)),
    created("worktree-commondir", "makes a worktree that has its configuration elsewhere",
            HALF + "mkdir -p .git/worktrees/w; printf 'ref: refs/heads/m\\n' > .git/worktrees/w/HEAD; "
            "printf '../../../made/half\\n' > .git/worktrees/w/commondir; "
            "printf 'gitdir: ../.git/worktrees/w\\n' > made/.git; {P} plant made/file x",
            source=FOUND + "commondir was only held where it existed",
            checks=(git_runs_nothing("{ws}/made"),)),
    created("worktree-link", "reaches that worktree through a link in .git",
            HALF + "mkdir -p made/w; printf 'ref: refs/heads/m\\n' > made/w/HEAD; "
            "printf '../half\\n' > made/w/commondir; mkdir -p .git/worktrees; "
            "ln -s ../../made/w .git/worktrees/w; printf 'gitdir: ../.git/worktrees/w\\n' > made/.git; "
            "{P} plant made/file x", source=FOUND + "links between a repository and a protected name",
            checks=(git_runs_nothing("{ws}/made"),)),
    created("submodule-new", "makes a submodule's directory with a key that runs something",
            "mkdir -p .git/modules/m/objects .git/modules/m/refs made; " + FSMONITOR
            + " > .git/modules/m/config; printf 'ref: refs/heads/m\\n' > .git/modules/m/HEAD; "
            "printf 'gitdir: ../.git/modules/m\\n' > made/.git; {P} plant made/file x",
            source=FOUND + "new submodules of a repository that was there",
            checks=(git_runs_nothing("{ws}/made"),)),
    created("submodule-commondir", "makes one that has its configuration elsewhere",
            HALF + "mkdir -p .git/modules/m; printf 'ref: refs/heads/m\\n' > .git/modules/m/HEAD; "
            "printf '../../../made/half\\n' > .git/modules/m/commondir; "
            "printf 'gitdir: ../.git/modules/m\\n' > made/.git; {P} plant made/file x",
            source=FOUND + "commondir in .git/modules", checks=(git_runs_nothing("{ws}/made"),)),
    created("submodule-config-worktree", "makes one that has its keys in config.worktree",
            "mkdir -p .git/modules/m/objects .git/modules/m/refs made; " + FSMONITOR
            + " > .git/modules/m/config.worktree; printf '[core]\\n\\trepositoryformatversion = 1\\n"
            "[extensions]\\n\\tworktreeConfig = true\\n' > .git/modules/m/config; "
            "printf 'ref: refs/heads/m\\n' > .git/modules/m/HEAD; "
            "printf 'gitdir: ../.git/modules/m\\n' > made/.git; {P} plant made/file x",
            source=FOUND + "config.worktree in .git/modules", checks=(git_runs_nothing("{ws}/made"),)),
    created("submodule-with-slash", "adds a hook to a submodule with a slash in its name",
            "{P} plant .git/modules/libs/sub/hooks/post-commit " + PAYLOAD, setup=SUBMODULE,
            source=FOUND + "git names submodules by their paths",
            checks=(absent("{ws}/.git/modules/libs/sub/hooks/post-commit"),)),
    created("flood", "makes three thousand directories, and a repository further down",
            "i=0; while [ $i -lt 3000 ]; do echo made/d$i; i=$((i+1)); done | xargs mkdir -p; "
            "git init -q made/z/z/z; git -C made/z/z/z config core.fsmonitor {marker_command}; "
            "{P} plant made/z/z/z/file x", setup=(marker_command,),
            source=FOUND + "the look after the run had a budget",
            checks=(git_runs_nothing("{ws}/made/z/z/z"),)),
    created("overlay-in-steps", "makes a repository by another name of what an earlier session left",
            PARTS + "{P} plant made/file x", sessions=(Session(BARE, APART["flags"]),), **APART,
            source=FOUND + "a commit judged what came with it", checks=(git_runs_nothing("{ws}/made"),)),
    created("overlay-in-steps-back", "makes what an earlier session left run something",
            BARE + "{P} plant made/file x", sessions=(Session(PARTS, APART["flags"]),), **APART,
            source=FOUND + "a commit judged what came with it", checks=(git_runs_nothing("{ws}/made"),)),
    created("overlay-link", "has a directory of settings be a link to one that it writes",
            "mkdir made; echo '[build]' > made/config.toml; ln -s made .cargo; {P} plant made/file x", **APART,
            source=FOUND + "a commit judged the names themselves", checks=(absent("{ws}/.cargo/config.toml"),)),
)
