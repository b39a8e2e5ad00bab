/* New namespaces: in one's own, one is root again, and the kernel's larger half opens up. */
#include "attack.h"

#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif

static const struct {
    const char *name;
    unsigned long flag;
} kinds[] = {
    {"user", CLONE_NEWUSER}, {"mnt", CLONE_NEWNS},         {"pid", CLONE_NEWPID},
    {"net", CLONE_NEWNET},   {"ipc", CLONE_NEWIPC},        {"uts", CLONE_NEWUTS},
    {"time", CLONE_NEWTIME}, {"cgroup", CLONE_NEWCGROUP},
};

static unsigned long flag_of(const char *name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, name) == 0)
            return kinds[i].flag;
    broken("no such namespace: %s", name);
}

/* unshare KIND, in a child, so that the prober itself stays as it is. */
ATTACK(unshare)
{
    unsigned long flag = flag_of(operand(argc, argv, 1));
    pid_t child = fork();

    if (child == 0) {
        attempt(syscall(SYS_unshare, flag), "unshare %s", argv[1]);
        _exit(0);
    }
    report_child(child, "unshare");
}

/* clone KIND: the same by clone(2), whose flags are an argument to be filtered. */
ATTACK(clone)
{
    unsigned long flag = flag_of(operand(argc, argv, 1));
#if defined(__x86_64__) || defined(__aarch64__)
    long child = syscall(SYS_clone, flag | SIGCHLD, 0, 0, 0, 0);
#else
    long child = -1;
#endif

    if (child == 0)
        _exit(0);
    if (attempt(child, "clone %s", argv[1]) > 0)
        waitpid(child, NULL, 0);
}

/* clone_high: the flag with bits set above the 32 that the kernel takes. */
ATTACK(clone_high)
{
    long child = -1;

#if defined(__x86_64__) || defined(__aarch64__)
    child = syscall(SYS_clone, 1UL << 33 | 1UL << 62 | CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
#endif
    if (child == 0)
        _exit(0);
    if (attempt(child, "clone into a user namespace, high bits set") > 0)
        waitpid(child, NULL, 0);
}

/* clone3 KIND...: its flags lie in memory, where a filter cannot see them (sandlock #240). */
ATTACK(clone3)
{
    struct clone_args args = {.exit_signal = SIGCHLD};

    for (int i = 1; i < argc; i++)
        args.flags |= flag_of(argv[i]);
    long child = syscall(SYS_clone3, &args, sizeof args);
    if (child == 0)
        _exit(0);
    if (attempt(child, "clone3 %s", argc > 1 ? argv[1] : "") > 0)
        waitpid(child, NULL, 0);
}

/* setns PID KIND: into the namespace of another process. */
ATTACK(setns)
{
    char path[64];
    int fd;

    snprintf(path, sizeof path, "/proc/%s/ns/%s", operand(argc, argv, 1), operand(argc, argv, 2));
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        refused("open %s", path);
        /* The call itself too, on a descriptor that the kernel calls invalid only later. */
        fd = STDOUT_FILENO;
    }
    pid_t child = fork();
    if (child == 0) {
        attempt(syscall(SYS_setns, fd, 0), "setns %s", path);
        _exit(0);
    }
    report_child(child, "setns");
}

/* setns by a pidfd: every namespace of a process at once. */
ATTACK(setns_pidfd)
{
    int fd = syscall(SYS_pidfd_open, number(operand(argc, argv, 1)), 0);

    if (fd < 0) {
        refused("pidfd_open %s", argv[1]);
        fd = STDOUT_FILENO;
    }
    pid_t child = fork();
    if (child == 0) {
        attempt(syscall(SYS_setns, fd, CLONE_NEWUTS | CLONE_NEWIPC), "setns by pidfd %s", argv[1]);
        _exit(0);
    }
    report_child(child, "setns by pidfd");
}

/* userns_root: the whole of the classic way: user + mount namespace, maps, a tmpfs. */
ATTACK(userns_root)
{
    pid_t child = fork();

    if (child == 0) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
            refused("unshare user and mount");
        else
            attempt(syscall(SYS_mount, "none", "/tmp", "tmpfs", 0, NULL),
                    "mounted a tmpfs in a user namespace of one's own");
        _exit(0);
    }
    report_child(child, "user namespace");
}

/* write_map: the id maps of one's own namespace, once more. */
ATTACK(write_map)
{
    static const char *const files[] = {"/proc/self/uid_map", "/proc/self/gid_map",
                                        "/proc/self/setgroups"};

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        int fd = open(files[i], O_WRONLY | O_CLOEXEC);

        if (fd < 0)
            refused("open %s", files[i]);
        else
            attempt(write(fd, i == 2 ? "allow" : "0 0 4294967295", i == 2 ? 5 : 14), "write %s",
                    files[i]);
        if (fd >= 0)
            close(fd);
    }
}
