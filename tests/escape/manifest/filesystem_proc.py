"""/proc, /sys, and what was open when the sandbox began."""

import os

from harness import plant
from harness.checks import connection_silent, text_is, victim_untouched
from harness.model import HIDDEN, NO_PROCESS, READONLY, Attack, bare, granted

FIELD = "field survey §4, file system"
NOT_SEEN = HIDDEN | {"absent"}
CLOSED = frozenset({"EBADF"})
VICTIM = (plant.victim,)

ATTACKS = (
    Attack("filesystem/proc-self-root", "goes by /proc/self/root",
           ("append", "/proc/self/root{out}/victim.txt"), HIDDEN, source=FIELD,
           control=granted("-w", "{out}")),
    Attack("filesystem/proc-others-root", "goes by the root directory of other processes",
           ("proc_root", "{out}/victim.txt"), NOT_SEEN, source=FIELD, setup=VICTIM),
    Attack("filesystem/proc-others-cwd", "goes by the working directory of other processes",
           ("proc_cwd", "{id}.txt"), NOT_SEEN, source=FIELD,
           setup=(plant.file("{out}/{id}.txt"), plant.victim)),
    Attack("filesystem/proc-others-fd", "reopens what other processes have open",
           ("proc_fd", "{out}/victim.txt"), NOT_SEEN, source=FIELD, setup=VICTIM),
    Attack("filesystem/proc-others-mem", "writes the memory of another process by its file",
           ("proc_mem", "{victim_pid}", "{victim_addr}"), HIDDEN | NO_PROCESS, source=FIELD,
           setup=VICTIM, checks=(victim_untouched,), control=bare(detects=False)),
    Attack("filesystem/proc-environ", "reads the environment of the launcher, PID 1 and all others",
           ("proc_environ", "{secret}"), NOT_SEEN, source="sandlock survey §4, #246",
           setup=VICTIM),
    Attack("filesystem/proc-cmdline", "reads secrets on other processes' command lines",
           ("proc_cmdline", "{secret_a}", "{secret_b}"), NOT_SEEN, source=FIELD, setup=VICTIM,
           not_in={"process": "Landlock does not cover /proc/*/cmdline, which anyone may read; "
                              "without a mount namespace there is no other /proc"}),
    Attack("filesystem/proc-exe", "overwrites the program that started it",
           ("proc_exe",), NOT_SEEN, source="CVE-2019-5736", control=bare(user="root")),
    Attack("filesystem/inherited-file", "writes a file that the launcher had open",
           ("fd_write", "{fd}"), CLOSED, source=FIELD,
           setup=(plant.open_file("{out}/victim.txt", os.O_RDWR),)),
    Attack("filesystem/inherited-directory", "walks from a directory that the launcher had open",
           ("fd_climb", "{fd}", "out/victim.txt"), CLOSED, source="CVE-2024-21626",
           setup=(plant.open_file("{base}", os.O_RDONLY | os.O_DIRECTORY),)),
    Attack("filesystem/inherited-cwd", "makes such a directory its own by /proc/self/fd",
           ("fd_chdir", "{fd}", "out/victim.txt"), HIDDEN | CLOSED, source="CVE-2024-21626",
           setup=(plant.open_file("{base}", os.O_RDONLY | os.O_DIRECTORY),)),
    Attack("filesystem/inherited-connection", "speaks on a connection that the launcher had open",
           ("fd_send", "{fd}"), CLOSED, source=FIELD, setup=(plant.open_connection,),
           checks=(connection_silent,)),
    Attack("filesystem/leaked-descriptors", "finds anything open but its three streams",
           ("leaked_fds",), CLOSED, source="CVE-2024-21626",
           setup=(plant.open_file("{out}/victim.txt", os.O_RDWR),)),
    Attack("filesystem/leaked-as-stdin", "finds something in the place of a closed standard input",
           ("stdin_is",), CLOSED | {"null"}, source="CVE-2024-21626",
           before=("/bin/sh", "-c", 'exec "$@" <&-', "sh"), control=bare("EBADF")),
    Attack("filesystem/sysfs-write", "turns the kernel's knobs in /sys",
           ("openw", "/sys/kernel/uevent_helper", "/sys/power/state",
            "/sys/kernel/mm/ksm/run", "/sys/kernel/mm/transparent_hugepage/enabled"), HIDDEN,
           source="CVE-2025-31133 and kin", control=bare(user="root")),
    Attack("filesystem/cgroup-write", "has the host run a program when a cgroup empties",
           "{P} openw /sys/fs/cgroup/*/release_agent /sys/fs/cgroup/cgroup.procs "
           "/sys/fs/cgroup/*/cgroup.procs", HIDDEN, source="CVE-2022-0492",
           control=bare(user="root")),
    Attack("filesystem/proc-sys", "sets the program that is run for a core dump, and other hooks",
           ("openw", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe",
            "/proc/sys/kernel/hotplug", "/proc/sys/fs/binfmt_misc/register"), HIDDEN,
           source="field survey §4: core_pattern", control=bare(user="root")),
    Attack("filesystem/proc-sys-knobs", "changes how the machine behaves",
           ("openw", "/proc/sys/vm/drop_caches", "/proc/sys/kernel/hostname",
            "/proc/sys/kernel/panic", "/proc/sys/vm/overcommit_memory",
            "/proc/sys/net/ipv4/ip_forward"), HIDDEN, source="CVE-2025-52881",
           control=bare(user="root")),
    Attack("filesystem/proc-sysrq", "reaches the emergency key", ("openw", "/proc/sysrq-trigger"),
           HIDDEN, source="CVE-2025-31133", control=bare("ESCAPED", "ENOENT", user="root")),
    Attack("filesystem/proc-kcore", "reads the kernel's memory and symbols by /proc",
           ("openr", "/proc/kcore", "/proc/kmsg", "/proc/vmallocinfo"), HIDDEN,
           source="CVE-2025-52565 and kin", control=bare(user="root"),
           not_in={"process": "that tier has no /proc of its own, and Landlock grants /proc whole: "
                              "/proc/vmallocinfo opens for root (SECURITY.md says so)"}),
    Attack("filesystem/debug-file-systems", "lists tracing, debugging and BPF file systems",
           ("openw", "/sys/kernel/tracing/trace_marker", "/sys/kernel/debug/tracing/trace_marker",
            "/sys/kernel/security/landlock"), HIDDEN, source="fence survey §4",
           control=bare("ESCAPED", *HIDDEN, user="root")),
    Attack("filesystem/proc-self-maps-of-parent", "reads the memory map of the launcher",
           "{P} openr /proc/$PPID/maps /proc/$PPID/environ /proc/1/maps /proc/1/environ", HIDDEN,
           source="sandlock survey §4, #11", control=bare(user="root")),
)
