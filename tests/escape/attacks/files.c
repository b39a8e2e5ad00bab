/* Plain acts on files: what any program may try with a path. */
#include "attack.h"

#include <dirent.h>
#include <linux/fs.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <linux/openat2.h>

#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif
#ifndef RENAME_EXCHANGE
#define RENAME_EXCHANGE (1 << 1)
#endif

static const char MARK[] = "escaped\n";

static void write_mark(int fd, const char *path)
{
    if (fd < 0)
        refused("open %s", path);
    else if (write(fd, MARK, sizeof MARK - 1) < 0)
        refused("write %s", path);
    else
        escaped("wrote %s", path);
    if (fd >= 0)
        close(fd);
}

/* read PATH...: contents of a file. An empty one (a mask) gives nothing away. */
ATTACK(read)
{
    for (int i = 1; i < argc; i++) {
        char bytes[4096];
        int fd = open(argv[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        ssize_t got = fd < 0 ? -1 : read(fd, bytes, sizeof bytes);

        if (got < 0)
            refused("read %s", argv[i]);
        else if (got == 0)
            nothing("empty", "%s", argv[i]);
        else
            escaped("read %zd bytes of %s", got, argv[i]);
        if (fd >= 0)
            close(fd);
    }
}

/* openw PATH...: opens for writing and writes nothing, for files where a write does harm. */
ATTACK(openw)
{
    for (int i = 1; i < argc; i++) {
        int fd = open(argv[i], O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

        if (attempt(fd, "open for writing %s", argv[i]) >= 0)
            close(fd);
    }
}

/* openr PATH...: opens for reading, for devices. */
ATTACK(openr)
{
    for (int i = 1; i < argc; i++) {
        int fd = open(argv[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

        if (attempt(fd, "open for reading %s", argv[i]) >= 0)
            close(fd);
    }
}

ATTACK(create)
{
    for (int i = 1; i < argc; i++)
        write_mark(open(argv[i], O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644), argv[i]);
}

ATTACK(append)
{
    for (int i = 1; i < argc; i++)
        write_mark(open(argv[i], O_WRONLY | O_APPEND | O_CLOEXEC), argv[i]);
}

/* append_text PATH TEXT */
ATTACK(append_text)
{
    const char *path = operand(argc, argv, 1), *text = operand(argc, argv, 2);
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);

    attempt(fd < 0 ? -1 : write(fd, text, strlen(text)), "append to %s", path);
}

/* plant PATH TEXT: makes the directories on the way, then the file, whatever was there. */
ATTACK(plant)
{
    const char *path = operand(argc, argv, 1), *text = operand(argc, argv, 2);
    char step[4096];

    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(step, sizeof step, "%.*s", (int)(slash - path), path);
        mkdir(step, 0755); /* an error here shows again at open */
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
    if (fd < 0)
        refused("open %s", path);
    else if (write(fd, text, strlen(text)) < 0 || write(fd, "\n", 1) < 0)
        refused("write %s", path);
    else
        escaped("planted %s", path);
}

/* creat(2) itself: in no deny list that thinks of open and openat alone. */
ATTACK(creat_call)
{
    const char *path = operand(argc, argv, 1);
#ifdef SYS_creat
    write_mark(syscall(SYS_creat, path, 0644), path);
#else
    write_mark(creat(path, 0644), path);
#endif
}

/* openat2 PATH: the newest spelling of open, which path filters forget. */
ATTACK(openat2_write)
{
    const char *path = operand(argc, argv, 1);
    struct open_how how = {.flags = O_WRONLY | O_APPEND | O_CLOEXEC};

    write_mark(syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how), path);
}

/* O_RDONLY|O_TRUNC: empties a file with an open that asks only to read. */
ATTACK(open_truncate)
{
    const char *path = operand(argc, argv, 1);

    attempt(open(path, O_RDONLY | O_TRUNC | O_CLOEXEC), "open O_TRUNC %s", path);
}

ATTACK(truncate)
{
    attempt(truncate(operand(argc, argv, 1), 0), "truncate %s", argv[1]);
}

/* O_PATH needs no permission on the file; reopening it through /proc must. */
ATTACK(opath_reopen)
{
    const char *path = operand(argc, argv, 1);
    int handle = open(path, O_PATH | O_CLOEXEC);
    char again[64];

    if (handle < 0) {
        refused("open O_PATH %s", path);
        return;
    }
    snprintf(again, sizeof again, "/proc/self/fd/%d", handle);
    write_mark(open(again, O_WRONLY | O_APPEND | O_CLOEXEC), again);
}

/* climb DIR RELATIVE: descends into DIR, then walks out again from its descriptor. */
ATTACK(climb)
{
    int dir = open(operand(argc, argv, 1), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (dir < 0)
        broken("cannot open %s", argv[1]);
    write_mark(openat(dir, operand(argc, argv, 2), O_WRONLY | O_APPEND | O_CLOEXEC), argv[2]);
}

ATTACK(rename)
{
    attempt(rename(operand(argc, argv, 1), operand(argc, argv, 2)), "rename %s %s", argv[1],
            argv[2]);
}

ATTACK(exchange)
{
    attempt(syscall(SYS_renameat2, AT_FDCWD, operand(argc, argv, 1), AT_FDCWD,
                    operand(argc, argv, 2), RENAME_EXCHANGE),
            "exchange %s %s", argv[1], argv[2]);
}

/* link OLD NEW: hard link, then write by the new name. */
ATTACK(link)
{
    const char *name = operand(argc, argv, 2);

    if (link(operand(argc, argv, 1), name) < 0)
        refused("link %s %s", argv[1], name);
    else
        write_mark(open(name, O_WRONLY | O_APPEND | O_CLOEXEC), name);
}

/* linkread OLD NEW: hard link, then read by the new name. */
ATTACK(linkread)
{
    const char *name = operand(argc, argv, 2);

    if (link(operand(argc, argv, 1), name) < 0) {
        refused("link %s %s", argv[1], name);
        return;
    }
    char *again[] = {"read", (char *)name, NULL};
    attack_read(2, again);
}

ATTACK(symlink)
{
    attempt(symlink(operand(argc, argv, 1), operand(argc, argv, 2)), "symlink %s -> %s", argv[2],
            argv[1]);
}

ATTACK(unlink)
{
    attempt(unlink(operand(argc, argv, 1)), "unlink %s", argv[1]);
}

ATTACK(rmdir)
{
    attempt(rmdir(operand(argc, argv, 1)), "rmdir %s", argv[1]);
}

ATTACK(mkdir)
{
    attempt(mkdir(operand(argc, argv, 1), 0755), "mkdir %s", argv[1]);
}

ATTACK(mkfifo)
{
    attempt(mkfifo(operand(argc, argv, 1), 0644), "mkfifo %s", argv[1]);
}

/* mknod PATH c|b MAJOR MINOR: a device node of one's own. */
ATTACK(mknod)
{
    mode_t kind = *operand(argc, argv, 2) == 'b' ? S_IFBLK : S_IFCHR;
    dev_t device = makedev(number(operand(argc, argv, 3)), number(operand(argc, argv, 4)));

    if (attempt(mknod(argv[1], kind | 0600, device), "mknod %s", argv[1]) == 0) {
        int fd = open(argv[1], O_RDONLY | O_CLOEXEC);

        attempt(fd, "open the new device %s", argv[1]);
    }
}

/* The acts on metadata, which Landlock has no rights for. */
ATTACK(chmod)
{
    mode_t mode = strtol(operand(argc, argv, 2), NULL, 8);

    attempt(chmod(argv[1], mode), "chmod %o %s", mode, argv[1]);
}

ATTACK(fchmod)
{
    mode_t mode = strtol(operand(argc, argv, 2), NULL, 8);
    int fd = open(argv[1], O_RDONLY | O_CLOEXEC);

    attempt(fd < 0 ? -1 : fchmod(fd, mode), "fchmod %o %s", mode, argv[1]);
}

/* chattr(1): FS_NODUMP_FL, which harms nobody. */
ATTACK(file_flags)
{
    int fd = open(operand(argc, argv, 1), O_RDONLY | O_CLOEXEC);
    int flags = 0;

    if (fd >= 0 && ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0) {
        nothing("no-flags", "%s: %s", argv[1], strerror(errno));
        return;
    }
    flags ^= FS_NODUMP_FL;
    attempt(fd < 0 ? -1 : ioctl(fd, FS_IOC_SETFLAGS, &flags), "FS_IOC_SETFLAGS %s", argv[1]);
}

/* Gives a setuid file contents, by write or by a mapping. The kernel takes the bit away when one
 * without CAP_FSETID does; an empty setuid file is worth nothing. */
static void fill_setuid(int fd, int map, const char *how)
{
    struct stat is;

    if (fd < 0) {
        refused("%s, mode 4755", how);
        return;
    }
    if (map) {
        char *at = posix_fallocate(fd, 0, 4096)
                       ? MAP_FAILED
                       : mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

        if (at != MAP_FAILED)
            memcpy(at, "#!/bin/sh\n", 10);
    } else if (write(fd, "#!/bin/sh\n", 10) != 10)
        refused("%s, write", how);
    if (fstat(fd, &is) == 0 && is.st_mode & S_ISUID && is.st_size > 0)
        escaped("%s, mode 4755, and contents", how);
    else
        nothing("stripped", "%s, mode 4755", how);
    close(fd);
}

/* setuid_create DIR: a setuid file from the start, by each call that makes one. */
ATTACK(setuid_create)
{
    const mode_t mode = 04755;
    const int flags = O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC;
    struct open_how how = {.flags = flags, .mode = mode};

    if (chdir(operand(argc, argv, 1)) < 0)
        broken("cannot enter %s", argv[1]);
    umask(0);
    fill_setuid(open("suid-open", flags, mode), 0, "open");
    fill_setuid(open("suid-map", flags, mode), 1, "open and a mapping");
    fill_setuid(syscall(SYS_openat2, AT_FDCWD, "suid-openat2", &how, sizeof how), 0, "openat2");
    fill_setuid(creat("suid-creat", mode), 0, "creat");
    fill_setuid(open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, mode), 0, "O_TMPFILE");
    if (mknod("suid-mknod", S_IFREG | mode, 0) < 0)
        refused("mknod, mode 4755");
    else
        fill_setuid(open("suid-mknod", O_RDWR | O_CLOEXEC), 0, "mknod");
}

/* setuid_high PATH: the same by chmod, with bits set that the kernel drops and a filter may not. */
ATTACK(setuid_high)
{
    const char *path = operand(argc, argv, 1);
    const unsigned long mode = 0xdead000000000000UL | 1UL << 32 | 1UL << 20 | 04755;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    attempt(syscall(SYS_fchmodat, AT_FDCWD, path, mode), "fchmodat, high bits set");
    attempt(syscall(SYS_fchmod, fd, mode), "fchmod, high bits set");
}

ATTACK(fchmodat2)
{
    mode_t mode = strtol(operand(argc, argv, 2), NULL, 8);

    attempt(syscall(SYS_fchmodat2, AT_FDCWD, argv[1], mode, 0), "fchmodat2 %o %s", mode, argv[1]);
}

ATTACK(chown)
{
    attempt(chown(operand(argc, argv, 1), number(operand(argc, argv, 2)),
                  number(operand(argc, argv, 3))),
            "chown %s", argv[1]);
}

ATTACK(utimes)
{
    struct timeval times[2] = {{1, 0}, {1, 0}};

    attempt(utimes(operand(argc, argv, 1), times), "utimes %s", argv[1]);
}

ATTACK(setxattr)
{
    attempt(setxattr(operand(argc, argv, 1), operand(argc, argv, 2), "x", 1, 0), "setxattr %s %s",
            argv[2], argv[1]);
}

/* filecap PATH: cap_setuid+ep on a file, for a host user to execute later. */
ATTACK(filecap)
{
    /* struct vfs_cap_data, revision 2, effective, CAP_SETUID (bit 7). */
    const uint32_t data[5] = {0x02000001, 1 << 7, 0, 0, 0};

    attempt(setxattr(operand(argc, argv, 1), "security.capability", data, sizeof data, 0),
            "set cap_setuid on %s", argv[1]);
}

ATTACK(stat)
{
    struct stat is;

    for (int i = 1; i < argc; i++)
        attempt(lstat(argv[i], &is), "stat %s", argv[i]);
}

/* listdir PATH NAME...: are any of these names to be seen there? */
ATTACK(listdir)
{
    DIR *dir = opendir(operand(argc, argv, 1));
    struct dirent *entry;
    int seen = 0;

    if (!dir) {
        refused("list %s", argv[1]);
        return;
    }
    while ((entry = readdir(dir)))
        for (int i = 2; i < argc; i++)
            if (strcmp(entry->d_name, argv[i]) == 0) {
                escaped("saw %s in %s", entry->d_name, argv[1]);
                seen = 1;
            }
    if (!seen)
        nothing("absent", "none of the names in %s", argv[1]);
}

/* by_handle DIR: the root directory by its inode number, past every mount ("shocker", Docker 2014).
 * Most file systems number their root 2 or 128; the handle is 8 bytes: inode, generation. */
ATTACK(by_handle)
{
    struct {
        struct file_handle head;
        uint32_t inode, generation;
    } handle = {.head = {.handle_bytes = 8, .handle_type = 1}, .inode = 2};
    int dir = open(operand(argc, argv, 1), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (dir < 0)
        broken("cannot open %s", argv[1]);
    for (int i = 0; i < 2; i++) {
        handle.inode = i ? 128 : 2;
        attempt(syscall(SYS_open_by_handle_at, dir, &handle, O_RDONLY | O_DIRECTORY),
                "open inode %u by handle", handle.inode);
    }
}

/* moved DIR RELATIVE: stands in DIR, the host moves it away, then climbs from where it is. */
ATTACK(moved)
{
    if (chdir(operand(argc, argv, 1)) < 0)
        broken("cannot enter %s", argv[1]);
    ready_wait();
    write_mark(open(operand(argc, argv, 2), O_WRONLY | O_APPEND | O_CLOEXEC), argv[2]);
}

/* watch DIRECTORY: what is made in it meanwhile is told. */
ATTACK(watch)
{
    const char *path = operand(argc, argv, 1);
    char room[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
    struct inotify_event *event = (void *)room;
    int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);

    if (fd < 0)
        broken("inotify_init1");
    if (inotify_add_watch(fd, path, IN_CREATE) < 0) {
        refused("watch %s", path);
        return;
    }
    ready_wait();
    if (read(fd, room, sizeof room) < 0)
        refused("hear of what is made in %s", path);
    else
        escaped("heard of %s in %s", event->name, path);
}

/* lock_directory DIRECTORY: has the file system forget a key that it was given. The argument is
 * bad: nothing is removed where it is looked at. */
ATTACK(lock_directory)
{
    int fd = open(operand(argc, argv, 1), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        refused("open %s", argv[1]);
    else
        attempt(ioctl(fd, 0xC0406618UL, NULL), "FS_IOC_REMOVE_ENCRYPTION_KEY by %s", argv[1]);
}

/* make_subvolume DIRECTORY: btrfs makes one by a descriptor that is open for reading. Elsewhere the
 * call does not exist. */
ATTACK(make_subvolume)
{
    struct {
        int64_t fd;
        char name[4088];
    } what = {.name = "escaped"};
    int fd = open(operand(argc, argv, 1), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        refused("open %s", argv[1]);
    else
        attempt(ioctl(fd, 0x5000940EUL, &what), "BTRFS_IOC_SUBVOL_CREATE in %s", argv[1]);
}
