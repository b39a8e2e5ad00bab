"""System calls that no ordinary program needs: each refused by its number."""

from harness.model import DENIED, Attack, bare

FIELD = "field survey §4, kernel"
LIST = "sandlock survey §2: the default deny list; fence survey §1.6"


def call(name: str, what: str, *complaints: str, user: str | None = "root",
         source: str = LIST) -> Attack:
    """A call with bad arguments: `complaints` is what the bare kernel says of them."""
    return Attack(f"kernel/{name.replace('_', '-')}", what, ("syscall", name), DENIED,
                  source=source, control=bare(*complaints, user=user))


def real(name: str, what: str, act: str, *, control=None, source: str = FIELD, **more) -> Attack:
    """A call that would work."""
    return Attack(f"kernel/{name}", what, (act,), DENIED, source=source,
                  control=control or bare(user="root"), **more)


ATTACKS = (
    real("io-uring", "makes a ring whose operations no filter sees", "io_uring", control=bare(),
         source="codex PR 10814"),
    call("io_uring_enter", "enters a ring", "EBADF", "EOPNOTSUPP", user=None),
    call("io_uring_register", "registers with a ring", "EBADF", "EINVAL", user=None),
    real("bpf-program", "loads a BPF program", "bpf"),
    real("bpf-map", "makes a BPF map", "bpf_map"),
    real("perf", "counts events", "perf", control=bare("ESCAPED", "ENOENT", user="root")),
    real("userfaultfd", "handles page faults, the lever of many exploits", "userfaultfd",
         control=bare()),
    call("keyctl", "finds the session's keyring", "ESCAPED", "ENOKEY", user=None),
    call("add_key", "adds a key", "EFAULT", "EINVAL", user=None),
    call("request_key", "requests a key", "EFAULT", user=None),
    real("personality", "turns address randomisation off", "personality", control=bare()),
    call("kexec_load", "loads another kernel", "EFAULT", "EINVAL", "ENOSYS", "EPERM"),
    call("kexec_file_load", "loads another kernel from a file", "EBADF", "EINVAL", "ENOSYS"),
    call("init_module", "loads a kernel module", "EFAULT", "ENOEXEC", "ENOSYS"),
    call("finit_module", "loads a kernel module from a file", "EFAULT", "EBADF", "ENOSYS"),
    call("delete_module", "removes a kernel module", "EFAULT", "ENOSYS"),
    call("swapon", "adds swap", "EFAULT"),
    call("swapoff", "takes swap away", "EFAULT"),
    call("reboot", "restarts the machine", "EINVAL"),
    call("settimeofday", "sets the clock", "EFAULT"),
    call("clock_settime", "sets the clock by the newer call", "EFAULT"),
    real("adjtimex", "drifts the clock", "adjtimex"),
    call("acct", "turns on process accounting, to a file of its own", "EFAULT", "ENOSYS"),
    call("quotactl", "sets quotas", "EFAULT", "ENODEV", "ENOTBLK", "ENOSYS"),
    call("quotactl_fd", "sets quotas by a descriptor", "EBADF", "ENOSYS", user=None),
    call("syslog", "reads the kernel's log", "EFAULT", "ESCAPED"),
    Attack("kernel/log-device", "reads the kernel's log by its device", ("kernel_log",),
           frozenset({"EPERM", "EACCES", "ENOENT"}), source=FIELD,
           control=bare("ESCAPED", "EPIPE", user="root")),
    call("lookup_dcookie", "has the kernel resolve cookies to paths", "ENOSYS", "EINVAL"),
    call("nfsservctl", "reaches a call that is long gone", "ENOSYS", user=None),
    call("iopl", "asks for port access", "EINVAL", "ENOSYS", user=None),
    call("ioperm", "asks for some ports", "EINVAL", "ENOSYS", user=None),
    # It gives its errors as unsigned numbers, which look like success.
    call("modify_ldt", "changes its descriptor table", "ESCAPED", "EINVAL", "ENOSYS", user=None),
    call("fanotify_init", "watches the whole machine's files", "EINVAL"),
    call("name_to_handle_at", "makes a file handle", "EFAULT", user=None),
    call("open_by_handle_at", "opens by a file handle", "EFAULT", "EBADF"),
    call("process_madvise", "advises on another process's memory", "EBADF", "EFAULT", user=None),
    call("process_mrelease", "reaps another process's memory", "EBADF", user=None),
    call("migrate_pages", "moves another process's memory", "ESRCH", "EFAULT", "ENOSYS",
         user=None),
    call("move_pages", "moves single pages of it", "ESRCH", "EFAULT", "ENOSYS", user=None),
    call("setdomainname", "renames the machine's domain", "EFAULT"),
    call("vhangup", "hangs up the terminal", "ESCAPED"),
    Attack("kernel/hostname", "renames the machine", ("sethostname", "rf-escape"), DENIED,
           source=FIELD, control=bare(user="root")),
)
