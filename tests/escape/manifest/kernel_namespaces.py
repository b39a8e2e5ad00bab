"""New namespaces and mounts: ways to become root of something, or to rearrange the walls."""

from harness import plant
from harness.model import DENIED, HIDDEN, Attack, bare

FIELD = "field survey §4, kernel"
LIST = "sandlock survey §2: the default deny list"
KINDS = ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time")
AS_ROOT = bare(user="root")


def unshare(kind: str) -> Attack:
    return Attack(f"kernel/unshare-{kind}", f"unshares its {kind} namespace", ("unshare", kind),
                  DENIED, source=FIELD, control=AS_ROOT)


def clone(kind: str) -> Attack:
    # clone(2) has no flag for time namespaces: that bit is part of the exit signal there.
    return Attack(f"kernel/clone-{kind}", f"clones into a new {kind} namespace", ("clone", kind),
                  DENIED, source=FIELD, control=AS_ROOT)


def mounting(name: str, what: str, *act: str, refusals=DENIED, control=AS_ROOT, **more) -> Attack:
    return Attack(f"kernel/{name}", what, act, refusals, source=LIST, control=control, **more)


ATTACKS = (
    *(unshare(kind) for kind in KINDS),
    *(clone(kind) for kind in KINDS if kind != "time"),
    Attack("kernel/clone-high-bits", "clones with bits set that the kernel drops", ("clone_high",),
           DENIED | {"EINVAL"}, source="CVE-2019-7303: compare what the kernel compares",
           control=AS_ROOT),
    Attack("kernel/clone3-user", "makes a user namespace by clone3, whose flags no filter sees",
           ("clone3", "user"), DENIED, source="sandlock #240", control=AS_ROOT),
    Attack("kernel/clone3-all", "makes every namespace at once by clone3",
           ("clone3", *KINDS), DENIED, source="sandlock #240", control=AS_ROOT),
    Attack("kernel/clone3-plain", "uses clone3 at all", ("clone3",), frozenset({"ENOSYS"}),
           source="DESIGN.md: clone3 must be ENOSYS, so that libraries fall back"),
    Attack("kernel/userns-root", "becomes root of a user namespace and mounts", ("userns_root",),
           DENIED, source="fence survey §4", control=AS_ROOT),
    Attack("kernel/setns-init", "enters the namespaces of PID 1", 
           "{P} setns 1 mnt; {P} setns 1 net; {P} setns 1 user; {P} setns 1 pid",
           DENIED | HIDDEN, source=FIELD,
           # One's own mount and user namespace cannot be entered again; some machines guard PID 1.
           control=bare("ESCAPED", "EINVAL", "EACCES", user="root")),
    Attack("kernel/setns-victim", "enters the namespaces of a process of the host's",
           "{P} setns {victim_pid} net; {P} setns {victim_pid} mnt; {P} setns {victim_pid} user",
           DENIED | HIDDEN, source=FIELD, control=AS_ROOT, setup=(plant.victim,)),
    Attack("kernel/setns-pidfd", "enters them by a pidfd", ("setns_pidfd", "{victim_pid}"),
           DENIED | {"ESRCH", "EACCES"}, source=FIELD, control=AS_ROOT, setup=(plant.victim,)),
    Attack("kernel/id-map", "writes the id maps of its namespace again", ("write_map",),
           DENIED | HIDDEN | {"EINVAL"}, source=FIELD, control=bare("ESCAPED", "EPERM", user="root")),
    mounting("mount-tmpfs", "mounts a file system over the workspace", "mount_tmpfs", "{ws}/src"),
    mounting("mount-bind", "binds the root on a directory of its own", "mount_bind", "/",
             "{ws}/src"),
    mounting("mount-proc", "mounts a fresh /proc", "mount_proc", "{ws}/src"),
    mounting("mount-remount", "takes the read-only flag off a mount", "mount_remount", "/usr",
             control=bare("ESCAPED", "EINVAL", user="root")),
    mounting("mount-remount-hooks", "takes it off a protected directory", "mount_remount",
             "{ws}/.git/hooks", control=bare("ESCAPED", "EINVAL", user="root")),
    mounting("umount-mask", "uncovers what a mount hides", "umount", "{home}",
             control=bare("EINVAL", user="root")),
    mounting("umount-proc", "unmounts its own /proc", "umount", "{ws}",
             control=bare("EINVAL", user="root")),
    mounting("pivot-root", "puts another root in place of its own", "pivot_root", "{ws}",
             control=bare("EINVAL", "EBUSY", user="root")),
    mounting("chroot", "climbs out of a chroot", "chroot_out", "{ws}/src"),
    mounting("fsopen", "opens a file system by the new API", "fsopen"),
    mounting("fsconfig", "configures one", "fsconfig", control=bare("EINVAL", "EBADF")),
    mounting("fsmount", "mounts one", "fsmount", control=bare("EBADF", user="root")),
    mounting("fspick", "picks a mounted one to reconfigure", "fspick", "/",
             control=bare("ESCAPED", "EINVAL", user="root")),
    mounting("open-tree", "clones a mount without what covers it", "open_tree", "/"),
    mounting("move-mount", "moves a mount away", "move_mount", "/proc", "{ws}/src"),
    mounting("mount-setattr", "clears read-only, recursively", "mount_setattr", "{ws}",
             control=bare("EINVAL", "ESCAPED", user="root")),
)
