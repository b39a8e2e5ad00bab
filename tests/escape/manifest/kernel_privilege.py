"""Rights beyond those one was started with, and other doors to the same kernel."""

from harness import plant
from harness.model import DENIED, HIDDEN, Attack, bare, granted

FIELD = "field survey §4, kernel"
ROW18 = "fence survey §4 row 18"
ROW20 = "fence survey §4 row 20: sudo keeps every capability"
# How a call by a wrong entry may end: the filter kills, or answers.
SHUT = DENIED | {"SIGSYS"}
ROOT_ALREADY = "root gains nothing by a program that makes it root"

ATTACKS = (
    Attack("kernel/capabilities", "holds any capability, or could raise one",
           ("capabilities", "Eff", "Prm", "Inh", "Amb"), frozenset({"absent"}), source=ROW20,
           control=bare(user="root")),
    Attack("kernel/capability-bounds", "could regain any capability by execve",
           ("capabilities", "Bnd"), frozenset({"absent"}), source=ROW20,
           not_in={"process/ordinary": "only who holds CAP_SETPCAP can lower the bounds; "
                                       "no_new_privs makes them worthless"}),
    Attack("kernel/capset", "gives itself capabilities", ("capset",), frozenset({"EPERM"}),
           source=ROW20, control=bare("ESCAPED", user="root")),
    Attack("kernel/ambient", "raises ambient capabilities and securebits", ("ambient",),
           frozenset({"EPERM", "EINVAL"}), source=ROW20,
           # Raising needs the bit inheritable first: EPERM there too, so the other half counts.
           control=bare("ESCAPED", user="root")),
    Attack("kernel/no-new-privs", "could gain rights by execve", ("no_new_privs",),
           frozenset({"set"}), source=FIELD),
    Attack("kernel/setuid-program", "runs a setuid-root program", ("run_setuid", "{suid}"),
           frozenset({"same", "EACCES", "EPERM"}), flags=("-r", "{suid}"),
           source="field survey §4: setuid", setup=(plant.setuid_probe,),
           not_in={"root": ROOT_ALREADY}),
    Attack("kernel/capable-program", "runs a program with file capabilities",
           ("run_setuid", "{suid}"), frozenset({"same", "EACCES", "EPERM"}),
           flags=("-r", "{suid}"), source="field survey §4: setuid", setup=(plant.capable_probe,),
           not_in={"root": ROOT_ALREADY}),
    Attack("kernel/become-other", "becomes another user of the machine", ("become", "1234"),
           frozenset({"EPERM", "EINVAL"}), source=ROW20, control=bare(user="root")),
    Attack("kernel/become-root", "becomes root, and a member of every group", ("become", "0"),
           frozenset({"EPERM", "EINVAL"}), source=ROW20, control=bare(user="root"),
           not_in={"root": "it is root; what that is worth, the capability attacks ask"}),
    Attack("kernel/raise-limits", "raises its own hard limits", ("raise_limits",),
           frozenset({"EPERM"}), source=FIELD, control=bare("ESCAPED", "EPERM", user="root")),
    Attack("kernel/real-time", "takes real-time priority", ("real_time",),
           frozenset({"EPERM", "EACCES"}), source=FIELD, control=bare(user="root")),
    Attack("kernel/oom-score", "puts itself out of the OOM killer's reach", ("oom_score",),
           HIDDEN, source=FIELD, control=bare("ESCAPED", "EACCES", user="root")),
    Attack("kernel/i386", "calls by the 32-bit entry", ("i386",), SHUT, source=ROW18),
    Attack("kernel/x32", "calls by the x32 numbers", ("x32",), SHUT, source=ROW18,
           # Kernels without x32 say ENOSYS to everyone.
           control=bare("ESCAPED", "ENOSYS")),
    Attack("kernel/memfd-exec", "executes what never was a file", ("memfd_exec",),
           DENIED | {"EACCES"}, source="field survey §4: OpenShell PR 740"),
    Attack("kernel/proc-exe-exec", "runs a copy of itself by /proc/self/root",
           ("exec", "/proc/self/root{out}/tool"), HIDDEN, source="field survey §4 (Ona, 2026)",
           setup=(plant.program("{P}", "{out}/tool"),), control=granted("-r", "{out}")),
)
