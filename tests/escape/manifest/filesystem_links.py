"""Links, renames and races: names that turn out to mean something else."""

import os

from harness import plant
from harness.checks import text_is
from harness.model import FIXED, HIDDEN, READONLY, TIERS, Attack, Session, bare, granted

FIELD = "field survey §4, file system"
LEAVES = HIDDEN | {"EXDEV"}


def move_away(world, _run) -> None:
    """The host moves the directory in which the attack stands."""
    os.rename(world.ws / "src/deep", world.base / "elsewhere/deep")


ATTACKS = (
    Attack("filesystem/symlink-write", "writes through a symbolic link that leads out",
           "ln -s {out}/victim.txt way; {P} append way", HIDDEN, source=FIELD,
           control=granted("-w", "{out}")),
    Attack("filesystem/symlink-directory", "creates through a link to a directory outside",
           "ln -s {out} way; {P} create way/new", HIDDEN, source="fence survey §6",
           control=granted("-w", "{out}")),
    Attack("filesystem/symlink-read", "reads a key through a link",
           "ln -s {home}/.ssh/id_ed25519 way; {P} read way", HIDDEN | {"empty"},
           source="CVE-2026-39861"),
    Attack("filesystem/symlink-chain", "the same through a chain of relative links",
           "ln -s ../../out one; ln -s one/victim.txt two; ln -s two three; {P} append three",
           HIDDEN, source="sandlock survey §5", control=granted("-w", "{out}")),
    Attack("filesystem/hard-link-out", "links a file outside into the workspace and writes it",
           ("link", "{out}/victim.txt", "{ws}/alias"), LEAVES, source=FIELD),
    Attack("filesystem/hard-link-read-only", "links a file granted for reading, and writes it",
           ("link", "{out}/victim.txt", "{ws}/alias"), LEAVES, flags=("-r", "{out}"),
           source="sandlock survey §4, #179"),
    Attack("filesystem/hard-link-secret", "links a key into the workspace and reads it",
           ("linkread", "{home}/.ssh/id_ed25519", "{ws}/alias"), LEAVES | {"empty"}, source=FIELD),
    Attack("filesystem/rename-in", "moves a file of the host into the workspace",
           ("rename", "{out}/victim.txt", "{ws}/mine"), LEAVES, source=FIELD),
    Attack("filesystem/rename-out", "moves a file of its own over one of the host's",
           ("rename", "{ws}/README.md", "{out}/victim.txt"), LEAVES, source=FIELD),
    Attack("filesystem/rename-in-read-only", "moves a file granted for reading into the workspace",
           ("rename", "{out}/victim.txt", "{ws}/mine"), LEAVES, flags=("-r", "{out}"),
           source=FIELD),
    Attack("filesystem/exchange", "exchanges a file of its own with one of the host's",
           ("exchange", "{ws}/README.md", "{out}/victim.txt"), LEAVES, source=FIELD),
    Attack("filesystem/race-symlink", "opens a name while a thread swaps it for a link out",
           ("race_write", "{ws}/honest", "{ws}/liar", "{inode}"), HIDDEN | {"absent", "ELOOP"},
           source=FIELD, control=granted("-w", "{out}"),
           setup=(plant.file("{ws}/honest"), plant.link("{ws}/liar", "{out}/victim.txt"),
                  plant.inode_of("{out}/victim.txt"))),
    Attack("filesystem/race-directory", "swaps a directory on the way for a link out",
           ("race_write", "{ws}/honest", "{ws}/liar", "{inode}", "/victim.txt"),
           HIDDEN | {"absent", "ELOOP"}, source="CVE-2026-87766: parents followed in set-up",
           control=granted("-w", "{out}"),
           setup=(plant.file("{ws}/honest/victim.txt"), plant.link("{ws}/liar", "{out}"),
                  plant.inode_of("{out}/victim.txt"))),
    Attack("filesystem/moved-directory", "stands in a directory that the host moves away, and climbs",
           ("moved", "{ws}/src/deep", "../victim.txt"), HIDDEN | {"ESTALE"},
           source="field survey §4: disconnected directories", on_ready=move_away,
           setup=(plant.file("{ws}/src/deep/file"), plant.file("{base}/elsewhere/victim.txt")),
           checks=(text_is("{base}/elsewhere/victim.txt"),)),
    Attack("filesystem/planted-link-write", "writes what an earlier session made a grant mean",
           ("append", "{home}/.bashrc"), HIDDEN, source="fence survey §4 row 12",
           sessions=(Session("rm -r cache && ln -s {home} cache"),),
           setup=(plant.file("{ws}/cache/x"),),
           flags=("-w", "{ws}/cache"), may_refuse=TIERS),
    Attack("filesystem/planted-link-file", "the same with a file: the grant is now ~/.bashrc",
           ("append", "{home}/.bashrc"), HIDDEN, source="fence survey §4 row 12",
           sessions=(Session("rm cache.db && ln -s {home}/.bashrc cache.db"),),
           setup=(plant.file("{ws}/cache.db"),), flags=("-w", "{ws}/cache.db"),
           may_refuse=TIERS),
    Attack("filesystem/planted-link-read", "reads keys through a grant that became a link",
           ("read", "{home}/.ssh/id_ed25519"), HIDDEN | {"empty"}, source="fence survey §4 row 12",
           sessions=(Session("rm -r docs && ln -s {home}/.ssh docs"),),
           setup=(plant.file("{ws}/docs/x"),), flags=("-r", "{ws}/docs"), may_refuse=TIERS),
    Attack("filesystem/planted-link-parent", "a parent of the grant became a link",
           ("append", "{home}/.config/git/config"), HIDDEN, source="CVE-2026-87766",
           sessions=(Session("rm -r a && ln -s {home}/.config a"),),
           setup=(plant.file("{ws}/a/git/x"),), flags=("-w", "{ws}/a/git"),
           may_refuse=TIERS),
    Attack("filesystem/setup-follows-link", "a protected name in the workspace is a link out",
           "{P} create .husky/evil; {P} append .husky/victim.txt", HIDDEN | FIXED,
           source="CVE-2026-87766: set-up follows links",
           setup=(plant.link("{ws}/.husky", "{out}"),)),
    Attack("filesystem/setup-follows-link-home", "a protected name is a link to the user's own settings",
           "{P} append .gemini/settings.json; {P} create .gemini/evil", HIDDEN | FIXED,
           source="CVE-2026-87766: set-up follows links",
           setup=(plant.link("{ws}/.gemini", "{home}/.claude"),)),
    Attack("filesystem/handle-of-root", "opens the root directory by a guessed file handle",
           ("by_handle", "{ws}"), READONLY | {"ENOSYS"}, source="field survey §4; Docker 2014",
           control=bare("ESCAPED", "ESTALE", user="root")),
)
