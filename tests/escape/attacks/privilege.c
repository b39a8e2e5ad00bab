/* Getting more rights than one was started with. */
#include "attack.h"

#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* capabilities SET...: any capability in these sets (Eff, Prm, Inh, Bnd, Amb)? */
ATTACK(capabilities)
{
    char text[128];
    FILE *status = fopen("/proc/self/status", "re");
    int held = 0;

    while (status && fgets(text, sizeof text, status)) {
        char set[16];
        unsigned long long bits;

        if (sscanf(text, "Cap%15[A-Za-z]: %llx", set, &bits) != 2 || !bits)
            continue;
        for (int i = 1; i < argc; i++)
            if (strcmp(set, argv[i]) == 0) {
                escaped("Cap%s = %llx", set, bits);
                held = 1;
            }
    }
    if (!status)
        refused("open /proc/self/status");
    else if (!held)
        nothing("absent", "no capability in these sets");
}

ATTACK(capset)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    const uint32_t wanted = 1u << CAP_SYS_ADMIN | 1u << CAP_SYS_CHROOT | 1u << CAP_NET_ADMIN;
    struct __user_cap_data_struct data[2] = {{wanted, wanted, 0}, {0}};

    attempt(syscall(SYS_capset, &head, data), "capset SYS_ADMIN and others");
}

ATTACK(ambient)
{
    attempt(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SYS_CHROOT, 0, 0), "raise ambient");
    attempt(prctl(PR_SET_SECUREBITS, 1 << 4 /* SECBIT_KEEP_CAPS */, 0, 0, 0), "set securebits");
}

/* no_new_privs: without it, every setuid program is a way up. */
ATTACK(no_new_privs)
{
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
        nothing("set", "no_new_privs");
    else
        escaped("no_new_privs is not set");
}

/* run_setuid PROGRAM: a setuid copy of this program; `whoami` below is what it runs. */
ATTACK(run_setuid)
{
    pid_t child = fork();

    if (child == 0) {
        execl(operand(argc, argv, 1), "probe", "whoami", argv[1], NULL);
        refused("execute %s", argv[1]);
        _exit(0);
    }
    report_child(child, "setuid program");
}

/* whoami [LABEL]: says whether our effective identity or rights exceed the real ones. */
ATTACK(whoami)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{0}};

    syscall(SYS_capget, &head, data);
    if (geteuid() != getuid() || getegid() != getgid())
        escaped("effective uid %d gid %d, real %d %d", geteuid(), getegid(), getuid(), getgid());
    else if (getuid() != 0 && (data[0].effective || data[1].effective))
        escaped("capabilities %x", data[0].effective);
    else
        nothing("same", "identity");
}

/* become UID: another user of the machine. */
ATTACK(become)
{
    uid_t uid = number(operand(argc, argv, 1));
    pid_t child = fork();

    if (child == 0) {
        gid_t none = uid;

        attempt(setgroups(1, &none), "setgroups %d", uid);
        attempt(setresgid(uid, uid, uid), "setresgid %d", uid);
        attempt(setresuid(uid, uid, uid), "setresuid %d", uid);
        _exit(0);
    }
    report_child(child, "become");
}

ATTACK(raise_limits)
{
    struct rlimit limit;
    static const int which[] = {RLIMIT_MEMLOCK, RLIMIT_NICE, RLIMIT_RTPRIO};

    for (size_t i = 0; i < sizeof which / sizeof *which; i++) {
        getrlimit(which[i], &limit);
        if (limit.rlim_max == RLIM_INFINITY)
            continue;
        limit.rlim_max = limit.rlim_cur = limit.rlim_max + 1;
        attempt(setrlimit(which[i], &limit), "raise limit %d", which[i]);
    }
}

ATTACK(real_time)
{
    struct sched_param param = {.sched_priority = 1};
    pid_t child = fork();

    if (child == 0) {
        attempt(sched_setscheduler(0, SCHED_FIFO, &param), "real-time priority");
        attempt(setpriority(PRIO_PROCESS, 0, -20), "nice -20");
        _exit(0);
    }
    report_child(child, "real time");
}

/* oom_score: out of the OOM killer's reach. */
ATTACK(oom_score)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    attempt(fd < 0 ? -1 : write(fd, "-1000", 5), "oom_score_adj -1000");
}

/* memfd_exec: a program that never was a file (field survey: OpenShell PR 740). */
ATTACK(memfd_exec)
{
    int fd = memfd_create("ghost", MFD_CLOEXEC), self = open("/proc/self/exe", O_RDONLY);
    static char bytes[1 << 16];
    ssize_t got;
    pid_t child;

    if (fd < 0 || self < 0) {
        refused("memfd_create");
        return;
    }
    while ((got = read(self, bytes, sizeof bytes)) > 0)
        if (write(fd, bytes, got) != got)
            broken("short write");
    child = fork();
    if (child == 0) {
        char *args[] = {"probe", "say", "ESCAPED", "executed a memfd", NULL};

        syscall(SYS_execveat, fd, "", args, environ, AT_EMPTY_PATH);
        refused("execveat of a memfd");
        _exit(0);
    }
    report_child(child, "memfd");
}

/* exec PROGRAM: runs it with an argument list that makes a copy of us say ESCAPED. */
ATTACK(exec)
{
    pid_t child = fork();

    if (child == 0) {
        execl(operand(argc, argv, 1), "probe", "say", "ESCAPED", "executed it", NULL);
        refused("execute %s", argv[1]);
        _exit(0);
    }
    report_child(child, "exec");
}

/* exec_loader LOADER PROGRAM: has the dynamic linker map what may not be executed. */
ATTACK(exec_loader)
{
    pid_t child = fork();
    int status = 0;

    if (child == 0) {
        /* The linker says in prose why it failed; its status is what we judge by. */
        int null = open("/dev/null", O_WRONLY);

        dup2(null, STDERR_FILENO);
        execl(operand(argc, argv, 1), "ld.so", operand(argc, argv, 2), "ESCAPED by the loader",
              NULL);
        _exit(126);
    }
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        nothing("refused", "%s of %s, status %d", argv[1], argv[2], WEXITSTATUS(status));
}

/* say WORD...: for the attacks above. */
ATTACK(say)
{
    for (int i = 1; i < argc; i++)
        printf("%s%s", argv[i], i + 1 < argc ? " " : "\n");
}

/* Other entries to the kernel: a filter that checks numbers alone is for one of them only. */
#ifdef __x86_64__
static long int80(long nr, long a)
{
    long result;

    __asm__ volatile("int $0x80" : "=a"(result) : "a"(nr), "b"(a) : "memory", "r8", "r9", "r10", "r11");
    if (result < 0 && result > -4096) {
        errno = -result;
        return -1;
    }
    return result;
}

ATTACK(i386)
{
    pid_t child = fork();

    if (child == 0) {
        attempt(int80(20, 0), "getpid by the i386 entry");
        _exit(0);
    }
    report_child(child, "i386 getpid");
    child = fork();
    if (child == 0) {
        attempt(int80(310, CLONE_FS), "unshare by the i386 entry");
        _exit(0);
    }
    report_child(child, "i386 unshare");
}

ATTACK(x32)
{
    pid_t child = fork();

    if (child == 0) {
        attempt(syscall(0x40000000 | SYS_getpid), "getpid by the x32 numbers");
        _exit(0);
    }
    report_child(child, "x32 getpid");
    child = fork();
    if (child == 0) {
        attempt(syscall(0x40000000 | SYS_unshare, CLONE_FS), "unshare by the x32 numbers");
        _exit(0);
    }
    report_child(child, "x32 unshare");
}
#else
ATTACK(i386)
{
    errno = ENOSYS;
    refused("no i386 entry here");
}

ATTACK(x32)
{
    errno = ENOSYS;
    refused("no x32 numbers here");
}
#endif
