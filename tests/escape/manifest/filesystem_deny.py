"""`--deny` beats every grant, whatever name the thing goes by."""

from harness import plant
from harness.checks import absent, unchanged
from harness.model import FIXED, HIDDEN, TIERS, Attack, bare, granted

GONE = HIDDEN | {"empty"}
BY_DESIGN = "INTERFACE.md: deny beats both"
README = ("--deny", "{ws}/README.md")
LOADER = plant.dynamic_linker()


DENIED = plant.program("{P}", "{ws}/denied")

def deny(name: str, what: str, act, refusals, **more) -> Attack:
    """Landlock grants whole trees: the process tier may say that it cannot make an exception."""
    refuse = more.pop("may_refuse", ("process",))
    return Attack(f"filesystem/{name}", what, act, refusals, may_refuse=refuse, **more)


ATTACKS = (
    deny("deny-read", "reads a denied file in the workspace",
           ("read", "{ws}/README.md"), GONE, flags=README, source=BY_DESIGN, control=granted()),
    deny("deny-write", "writes, truncates and replaces a denied file",
           "{P} append README.md; {P} truncate README.md; {P} rename package.json README.md",
           GONE | FIXED, flags=README, source=BY_DESIGN, control=granted(),
           checks=(unchanged("README.md"),)),
    deny("deny-creat", "truncates a denied file by creat(2)",
           ("creat_call", "{ws}/README.md"), GONE, flags=README, control=granted(),
           source="sandlock survey §4, by reading 4", checks=(unchanged("README.md"),)),
    deny("deny-openat2", "writes it by openat2", ("openat2_write", "{ws}/README.md"),
           GONE, flags=README, source="sandlock survey §4, #206", control=granted(),
           checks=(unchanged("README.md"),)),
    deny("deny-directory", "reads and writes inside a denied directory",
           "{P} read src/main.py; {P} append src/main.py; {P} create src/new", GONE,
           flags=("--deny", "{ws}/src"), source=BY_DESIGN, control=granted(),
           checks=(unchanged("src"),)),
    deny("deny-beats-grant", "is granted by name what is denied above it",
           "{P} read src/main.py; {P} append src/main.py", GONE,
           flags=("-w", "{ws}/src/main.py", "--deny", "{ws}/src"), source="fence survey §4 row 14",
           control=granted("-w", "{ws}/src/main.py")),
    deny("deny-hard-link", "links a denied file to a new name",
           ("linkread", "{ws}/README.md", "{ws}/alias"), GONE | FIXED, flags=README,
           source="sandlock survey §4, #179", control=granted()),
    deny("deny-rename", "moves a denied file to a new name",
           "{P} rename README.md alias; {P} read alias", GONE | FIXED, flags=README,
           source="sandlock survey §5", control=granted()),
    deny("deny-symlink", "reads it through a link",
           "ln -s README.md way; {P} read way", GONE, flags=README, source="sandlock survey §5",
           control=granted()),
    deny("deny-parent-rename", "moves the directory that holds a denied file",
           "mv src moved; {P} read moved/main.py src/main.py", GONE | FIXED,
           flags=("--deny", "{ws}/src/main.py"), source="fence survey §4 row 11",
           control=granted()),
    deny("deny-parent-copy", "copies the directory that holds a denied file",
           "cp -r src copy; {P} read copy/main.py", GONE, flags=("--deny", "{ws}/src/main.py"),
           source="fence survey §4 row 11", control=granted()),
    deny("deny-proc-root", "reads it by /proc/self/root and /proc/self/cwd",
           ("read", "/proc/self/root{ws}/README.md", "/proc/self/cwd/README.md"), GONE,
           flags=README, source="field survey §4 (Ona, 2026)", control=granted()),
    deny("deny-case", "reads it by a name in other letters",
           ("read", "{ws}/readme.md", "{ws}/README.MD"), GONE, flags=README,
           source="CVE-2025-59944", control=granted(act=("read", "{ws}/README.md"))),
    deny("deny-non-utf8", "a denied name that is no text",
           ("read", "{ws}/s\udcffcret"), GONE, flags=("--deny", "{ws}/s\udcffcret"),
           source="sandlock survey §4, by reading 5", control=granted(),
           setup=(plant.file("{ws}/s\udcffcret"),)),
    deny("deny-newline", "a denied name with a space and a newline in it",
           ("read", "{ws}/a b\nc"), GONE, flags=("--deny", "{ws}/a b\nc"),
           source="issue 2, item 7: hostile names", control=granted(),
           setup=(plant.file("{ws}/a b\nc"),)),
    deny("deny-glob", "reads what a pattern denies",
           ("read", "{ws}/key-one.pem"), GONE, flags=("--deny", "{ws}/*.pem"),
           source="fence survey §4 row 13", control=granted(),
           setup=(plant.file("{ws}/key-one.pem"),)),
    deny("deny-absent", "creates what is denied and was not there",
           "{P} create .env", GONE | FIXED, flags=("--deny", "{ws}/.env"),
           source="fence survey §4 row 10", control=granted(),
           may_succeed=("namespace", "process"), checks=(absent("{ws}/.env"),)),
    deny("deny-through-link", "the denied name is a link: its target is denied too",
           "{P} read real.txt; {P} read name.txt", GONE, flags=("--deny", "{ws}/name.txt"),
           source="sandlock survey §5", control=granted(),
           setup=(plant.file("{ws}/real.txt"), plant.link("{ws}/name.txt", "real.txt"))),
    deny("deny-execute", "executes a denied program", ("exec", "{ws}/denied"), GONE,
           flags=("--deny", "{ws}/denied"), source=BY_DESIGN, control=granted(),
           setup=(DENIED,)),
    deny("deny-execute-loader", "has the dynamic linker run a denied program",
           ("exec_loader", LOADER, "{ws}/denied-echo"), frozenset({"refused"}),
           flags=("--deny", "{ws}/denied-echo"), source="field survey §4: ld.so (Ona, 2026)",
           control=granted(), setup=(plant.program("/bin/echo", "{ws}/denied-echo"),)),
    deny("deny-execute-copy", "copies a denied program and runs the copy",
           "cp denied copy; {P} exec {ws}/copy", GONE, flags=("--deny", "{ws}/denied"),
           source="fence survey §4 row 23", control=granted(), setup=(DENIED,)),
    Attack("filesystem/hidden-execute", "executes a program of the hidden home",
           ("exec", "{home}/Documents/tool"), HIDDEN, source="field survey §4: ld.so",
           control=bare(),
           setup=(plant.program("{P}", "{home}/Documents/tool"),)),
    Attack("filesystem/hidden-execute-loader", "has the dynamic linker run a hidden program",
           ("exec_loader", LOADER, "{out}/tool"), frozenset({"refused"}),
           source="field survey §4: ld.so", control=granted("-r", "{out}"),
           setup=(plant.program("/bin/echo", "{out}/tool"),)),
)
