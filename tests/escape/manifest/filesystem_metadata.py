"""Permissions, owners, times, attributes, device nodes: what Landlock has no rights for."""

import os

from harness import plant
from harness.checks import no_privileged_files, other_terminal_silent
from harness.model import HIDDEN, READONLY, Attack, bare, granted
from harness.plant import Skip

FIELD = "field survey §4: Landlock never covers chmod, chown, xattr, utime"
VICTIM = "{out}/victim.txt"
ROOT_ONLY = "a setuid file of an ordinary user's gives nobody more than that user had"
# What opening a device may answer when there is none behind it.
NO_DEVICE = HIDDEN | {"ENXIO", "ENODEV"}


def come_and_go(world, _run) -> None:
    """Makes a file where watches are, and takes it away."""
    for directory in ("{out}", "{home}/.ssh"):
        passing = os.path.join(world.fill(directory), "passing")
        open(passing, "x").close()
        os.unlink(passing)


def metadata(name: str, what: str, *act: str) -> tuple[Attack, ...]:
    """The act on a file that is not granted, and on one granted for reading only."""
    return (
        Attack(f"filesystem/{name}-outside", f"{what} a file outside", act, HIDDEN, source=FIELD,
               control=granted("-w", "{out}")),
        Attack(f"filesystem/{name}-read-only", f"{what} a file granted for reading", act, READONLY,
               flags=("-r", "{out}"), source=FIELD, control=granted("-w", "{out}")),
    )


def root_disk(world) -> None:
    """{disk}, {disk_major}, {disk_minor}: what the root file system lies on."""
    device = os.stat("/").st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    link = f"/sys/dev/block/{number}"
    if not os.path.exists(link):
        raise Skip("the root file system lies on no block device")
    name = os.path.basename(os.readlink(link))
    if not os.path.exists(f"/dev/{name}"):
        raise Skip(f"/dev/{name} is not there to be opened")
    world.vars |= {"disk": f"/dev/{name}", "disk_major": str(os.major(device)),
                   "disk_minor": str(os.minor(device))}


def devices(name: str, what: str, act: str, *paths: str) -> Attack:
    """Devices that exist on some machines; where they do not, nothing is proved, and nothing lost."""
    return Attack(f"filesystem/device-{name}", what, (act, *paths), NO_DEVICE,
                  source="fence survey §4 row 19",
                  control=bare("ESCAPED", *(NO_DEVICE | {"EBUSY", "EPERM"}), user="root"))


ATTACKS = (
    *metadata("chmod", "changes the mode of", "chmod", VICTIM, "777"),
    *metadata("fchmodat2", "changes, by the newest call, the mode of", "fchmodat2", VICTIM, "777"),
    *metadata("chown", "changes the owner of", "chown", VICTIM, "{uid}", "{gid}"),
    *metadata("utimes", "sets the times of", "utimes", VICTIM),
    *metadata("xattr", "sets an attribute of", "setxattr", VICTIM, "user.escape"),
    Attack("filesystem/fchmod-read-only", "changes the mode by a descriptor open for reading",
           ("fchmod", VICTIM, "777"), READONLY, flags=("-r", "{out}"), source=FIELD,
           control=granted("-w", "{out}")),
    Attack("filesystem/file-flags-read-only", "sets its flags by a descriptor open for reading",
           ("file_flags", VICTIM), READONLY | {"no-flags"}, flags=("-r", "{out}"),
           source="found by attacking 0.1: ioctl(FS_IOC_SETFLAGS) needs no writable descriptor",
           control=bare("ESCAPED", "no-flags")),
    Attack("filesystem/subvolume-read-only", "has btrfs make a directory where it may only read",
           ("make_subvolume", "{out}"), frozenset({"EPERM"}), flags=("-r", "{out}"),
           source="found by attacking 0.1: BTRFS_IOC_SUBVOL_CREATE passes no hook of Landlock's, and a "
                  "snapshot shows what lies under mounts",
           control=bare("ESCAPED", "ENOTTY"),
           not_in={"vm": "mounts hold it: the call itself is not refused"}),
    Attack("filesystem/encryption-key", "locks what the user has unlocked",
           ("lock_directory", "{out}"), frozenset({"EPERM"}), flags=("-r", "{out}"),
           source="found by attacking 0.1: FS_IOC_REMOVE_ENCRYPTION_KEY asks for no right",
           control=bare("ENOTTY", "EOPNOTSUPP", "EFAULT"),
           not_in={"vm": "it is the guest's own file system that is asked"}),
    Attack("filesystem/watch-outside", "is told what is made in a directory that is not granted",
           ("watch", "{out}"), HIDDEN, control=granted("-r", "{out}"), on_ready=come_and_go,
           source="found by attacking 0.1: Landlock does not rule inotify_add_watch(2)"),
    Attack("filesystem/watch-home", "is told what is made among the keys",
           ("watch", "{home}/.ssh"), HIDDEN, on_ready=come_and_go,
           source="found by attacking 0.1: Landlock does not rule inotify_add_watch(2)"),
    Attack("filesystem/chmod-home", "opens the key directory to everyone",
           ("chmod", "{home}/.ssh", "777"), HIDDEN, source=FIELD),
    Attack("filesystem/setuid-left-behind", "leaves a setuid-root shell in the workspace",
           "cp .probe shell; {P} chmod shell 4755", frozenset({"EPERM", "EACCES"}),
           source="fence survey §4 row 20: sudo", checks=(no_privileged_files,),
           not_in={"ordinary": ROOT_ONLY}),
    Attack("filesystem/setuid-by-fchmod", "the same by fchmod and fchmodat2",
           "cp .probe shell; {P} fchmod shell 4755; {P} fchmodat2 shell 4755",
           frozenset({"EPERM", "EACCES", "ENOSYS"}), source="fence survey §4 row 20",
           checks=(no_privileged_files,), not_in={"ordinary": ROOT_ONLY}),
    Attack("filesystem/setuid-by-create", "the same by the mode given when a file is made",
           ("setuid_create", "{ws}"), frozenset({"EPERM", "EACCES", "ENOSYS", "stripped"}),
           source="fence survey §4 row 20", checks=(no_privileged_files,),
           not_in={"ordinary": ROOT_ONLY}),
    Attack("filesystem/setuid-high-bits", "the same by chmod, with bits that the kernel drops",
           "cp .probe shell; {P} setuid_high shell", frozenset({"EPERM", "EACCES", "EINVAL"}),
           source="CVE-2019-7303: compare what the kernel compares",
           checks=(no_privileged_files,), not_in={"ordinary": ROOT_ONLY}),
    Attack("filesystem/capable-left-behind", "leaves a program with cap_setuid in the workspace",
           ("filecap", "{ws}/README.md"), READONLY | {"EOPNOTSUPP"}, source="fence survey §4 row 20",
           control=bare(user="root"), checks=(no_privileged_files,), may_succeed=("namespace",)),
    Attack("filesystem/chown-foreign", "gives a file to another user of the machine",
           ("chown", "{ws}/README.md", "1234", "1234"), READONLY | {"EINVAL"},
           source="fence survey §4 row 20", control=bare(user="root"),
           checks=(no_privileged_files,)),
    Attack("filesystem/mknod-memory", "makes a device node for the machine's memory",
           ("mknod", "{ws}/node", "c", "1", "1"), READONLY, source="sandlock survey §4, PR 165",
           control=bare(user="root"), checks=(no_privileged_files,)),
    Attack("filesystem/mknod-disk", "makes a device node for the machine's disk",
           ("mknod", "{ws}/node", "b", "{disk_major}", "{disk_minor}"), READONLY,
           source="sandlock survey §4, PR 165", control=bare(user="root"), setup=(root_disk,),
           checks=(no_privileged_files,)),
    Attack("filesystem/device-disk", "opens the machine's disk", ("openr", "{disk}"), NO_DEVICE,
           source="fence survey §4 row 19",
           # EPERM: a device control group, as containers have, keeps even root from it.
           control=bare("ESCAPED", "EPERM", user="root"), setup=(root_disk,)),
    devices("memory", "opens the machine's memory and ports", "openr", "/dev/mem", "/dev/kmem",
            "/dev/port"),
    devices("kvm", "opens the hypervisor", "openw", "/dev/kvm", "/dev/vhost-net",
            "/dev/vhost-vsock", "/dev/vsock"),
    devices("loop", "opens loop devices and their controller", "openw", "/dev/loop-control",
            "/dev/loop0"),
    devices("fuse", "opens FUSE and the tunnel device", "openw", "/dev/fuse", "/dev/net/tun"),
    devices("log", "opens the kernel's log", "openr", "/dev/kmsg"),
    devices("console", "opens virtual consoles and input", "openw", "/dev/tty0", "/dev/tty1",
            "/dev/console", "/dev/uinput", "/dev/input/event0"),
    devices("userfaultfd", "opens the device that makes userfaultfds", "openr",
            "/dev/userfaultfd"),
    Attack("filesystem/device-other-terminal", "writes on another terminal of the same user",
           ("other_pty", "{pty}"), NO_DEVICE | {"EIO"}, source="fence survey §4 row 19",
           setup=(plant.other_terminal,), checks=(other_terminal_silent,)),
)
