/* Mounts: the tree one sees is the sandbox's wall, so nothing in it may be rearranged. */
#include "attack.h"

#include <linux/mount.h>
#include <sys/mount.h>
#include <sys/stat.h>

#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif

/* mount_tmpfs DIR */
ATTACK(mount_tmpfs)
{
    const char *dir = operand(argc, argv, 1);

    if (attempt(syscall(SYS_mount, "none", dir, "tmpfs", 0, NULL), "mount tmpfs %s", dir) == 0)
        umount2(dir, MNT_DETACH);
}

/* mount_bind FROM TO */
ATTACK(mount_bind)
{
    const char *to = operand(argc, argv, 2);

    if (attempt(syscall(SYS_mount, operand(argc, argv, 1), to, NULL, MS_BIND, NULL),
                "bind %s on %s", argv[1], to) == 0)
        umount2(to, MNT_DETACH);
}

/* mount_remount PATH: takes the read-only flag off a bind. */
ATTACK(mount_remount)
{
    const char *path = operand(argc, argv, 1);

    attempt(syscall(SYS_mount, NULL, path, NULL, MS_REMOUNT | MS_BIND, NULL), "remount %s", path);
}

/* mount_proc DIR: a fresh /proc has none of the masks. */
ATTACK(mount_proc)
{
    const char *dir = operand(argc, argv, 1);

    if (attempt(syscall(SYS_mount, "proc", dir, "proc", 0, NULL), "mount proc %s", dir) == 0)
        umount2(dir, MNT_DETACH);
}

/* umount PATH: uncovers what a mount hides. */
ATTACK(umount)
{
    attempt(syscall(SYS_umount2, operand(argc, argv, 1), MNT_DETACH), "umount %s", argv[1]);
}

ATTACK(pivot_root)
{
    attempt(syscall(SYS_pivot_root, operand(argc, argv, 1), argv[1]), "pivot_root %s", argv[1]);
}

/* chroot_out DIR: the classic: chroot below, keep a descriptor above, climb. */
ATTACK(chroot_out)
{
    const char *dir = operand(argc, argv, 1);
    int above = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat root, here;

    if (above < 0 || stat("/", &root) < 0)
        broken("no working directory");
    if (chroot(dir) < 0) {
        refused("chroot %s", dir);
        return;
    }
    if (fchdir(above) < 0)
        refused("fchdir");
    for (int i = 0; i < 64; i++)
        if (chdir("..") < 0)
            refused("chdir ..");
    if (stat(".", &here) == 0 && here.st_ino == root.st_ino)
        escaped("climbed out of a chroot");
    else
        escaped("chroot %s", dir);
}

/* The new mount API: one attempt each, on objects as far as one gets. */
ATTACK(fsopen)
{
    int fs = attempt(syscall(SYS_fsopen, "tmpfs", 0), "fsopen tmpfs");

    if (fs >= 0)
        attempt(syscall(SYS_fsconfig, fs, 6 /* FSCONFIG_CMD_CREATE */, NULL, NULL, 0),
                "fsconfig create");
}

/* fsconfig and fsmount on a bad descriptor: a filter refuses before the kernel says EBADF. */
ATTACK(fsconfig)
{
    attempt(syscall(SYS_fsconfig, -1, 6, NULL, NULL, 0), "fsconfig");
}

ATTACK(fsmount)
{
    attempt(syscall(SYS_fsmount, -1, 0, 0), "fsmount");
}

ATTACK(fspick)
{
    attempt(syscall(SYS_fspick, AT_FDCWD, operand(argc, argv, 1), 0), "fspick %s", argv[1]);
}

/* open_tree PATH: a private copy of a mount, without what covers it. */
ATTACK(open_tree)
{
    attempt(syscall(SYS_open_tree, AT_FDCWD, operand(argc, argv, 1),
                    1 /* OPEN_TREE_CLONE */ | O_CLOEXEC),
            "open_tree %s", argv[1]);
}

ATTACK(move_mount)
{
    attempt(syscall(SYS_move_mount, AT_FDCWD, operand(argc, argv, 1), AT_FDCWD,
                    operand(argc, argv, 2), 0),
            "move_mount %s %s", argv[1], argv[2]);
}

/* mount_setattr PATH: clears read-only, recursively. */
ATTACK(mount_setattr)
{
    /* struct mount_attr, spelt out: old headers lack it. */
    struct {
        uint64_t set, clear, propagation, userns;
    } attr = {.clear = 1 /* MOUNT_ATTR_RDONLY */};

    attempt(syscall(SYS_mount_setattr, AT_FDCWD, operand(argc, argv, 1), 0x8000 /* AT_RECURSIVE */,
                    &attr, sizeof attr),
            "mount_setattr %s", argv[1]);
}
