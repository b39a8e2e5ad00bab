"""Other processes of the same user: signals, tracing, memory, limits."""

from harness import plant
from harness.checks import victim_untouched
from harness.model import DENIED, NO_PROCESS, Attack, bare

FIELD = "field survey §4, IPC and kernel"
ZERO = "found by attacking 0.1: setpriority(PRIO_USER, 0) names no process"
VICTIM = (plant.victim,)
UNTOUCHED = (victim_untouched,)


def on_victim(name: str, what: str, act: str, *more: str, refusals=NO_PROCESS, source=FIELD,
              control=None) -> Attack:
    return Attack(f"ipc/{name}", what, (act, "{victim_pid}", *more), refusals, source=source,
                  setup=VICTIM, checks=UNTOUCHED, control=control or bare())


ATTACKS = (
    on_victim("signal", "sends a signal to a process of the host's", "kill"),
    on_victim("signal-group", "signals its whole process group", "kill_group"),
    on_victim("signal-thread", "signals it by tgkill", "tgkill"),
    on_victim("signal-queue", "signals it by rt_sigqueueinfo", "sigqueue"),
    on_victim("signal-pidfd", "signals it by a pidfd", "pidfd_signal"),
    on_victim("signal-by-owner", "has the kernel signal it, as the owner of a pipe", "sigio",
              refusals=NO_PROCESS | {"sent"}, source="field survey §4: Landlock signal erratum",
              control=bare("sent")),
    Attack("ipc/signal-broadcast", "signals everyone at once", ("kill_everyone",),
           NO_PROCESS | {"sent"}, source=FIELD, setup=VICTIM, checks=UNTOUCHED,
           # As root it would reach the whole machine.
           control=bare("sent", user="ordinary"), bare_unsafe="it reaches what is not ours",
           alone=True),
    Attack("ipc/signal-everyone", "counts whom it could signal at all", ("signal_all",),
           frozenset({"absent"}), source=FIELD, setup=VICTIM),
    on_victim("ptrace-attach", "attaches a debugger", "ptrace_attach", control=bare(detects=False)),
    on_victim("ptrace-seize", "seizes it", "ptrace_seize", control=bare(detects=False)),
    on_victim("memory-read", "reads its memory", "vm_read", "{victim_addr}", "{secret}",
              refusals=NO_PROCESS | DENIED, control=bare(detects=False)),
    on_victim("memory-write", "writes its memory", "vm_write", "{victim_addr}",
              refusals=NO_PROCESS | DENIED, control=bare(detects=False)),
    on_victim("descriptor-theft", "takes a descriptor out of it", "pidfd_getfd", "{victim_fd}",
              refusals=NO_PROCESS | DENIED, control=bare(detects=False)),
    on_victim("compare", "compares kernel objects with it, to defeat randomisation", "kcmp",
              refusals=NO_PROCESS | DENIED, control=bare(detects=False)),
    on_victim("renice", "lowers its priority", "setpriority"),
    on_victim("affinity", "pins it to one processor", "affinity"),
    on_victim("limits", "sets its resource limits", "prlimit"),
    # Without a user of its own a namespace has but its own processes to renice.
    Attack("ipc/renice-user", "lowers the priority of all that the user has", ("renice_user",),
           NO_PROCESS, source=ZERO, setup=VICTIM, checks=UNTOUCHED, may_succeed=("namespace", "vm"),
           not_in={"root": "it would reach all of root's processes"}, alone=True),
    on_victim("io-priority", "lowers its I/O priority", "ioprio", control=bare(detects=False)),
)
