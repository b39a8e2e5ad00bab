/* Reaching into other processes of the same user: reading, writing, stopping, ending them. */
#include "attack.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/wait.h>

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

/* The victim is a process of the host; victim.c says how it is started. */
static pid_t victim_of(int argc, char **argv)
{
    return number(operand(argc, argv, 1));
}

ATTACK(ptrace_attach)
{
    pid_t pid = victim_of(argc, argv);

    if (attempt(ptrace(PTRACE_ATTACH, pid, 0, 0), "ptrace attach %d", pid) == 0) {
        waitpid(pid, NULL, __WALL);
        ptrace(PTRACE_DETACH, pid, 0, 0);
    }
}

ATTACK(ptrace_seize)
{
    pid_t pid = victim_of(argc, argv);

    if (attempt(ptrace(PTRACE_SEIZE, pid, 0, 0), "ptrace seize %d", pid) == 0)
        ptrace(PTRACE_DETACH, pid, 0, 0);
}

/* vm_read PID ADDRESS SECRET */
ATTACK(vm_read)
{
    char bytes[64] = {0};
    struct iovec mine = {bytes, sizeof bytes - 1};
    struct iovec theirs = {(void *)strtoul(operand(argc, argv, 2), NULL, 0), sizeof bytes - 1};
    ssize_t got = process_vm_readv(victim_of(argc, argv), &mine, 1, &theirs, 1, 0);

    if (got > 0 && strncmp(bytes, operand(argc, argv, 3), strlen(argv[3])) != 0)
        broken("read something else at %s", argv[2]);
    attempt(got, "process_vm_readv of %s", argv[1]);
}

ATTACK(vm_write)
{
    char byte = 'X';
    struct iovec mine = {&byte, 1};
    struct iovec theirs = {(void *)strtoul(operand(argc, argv, 2), NULL, 0), 1};

    attempt(process_vm_writev(victim_of(argc, argv), &mine, 1, &theirs, 1, 0),
            "process_vm_writev of %s", argv[1]);
}

/* proc_mem PID ADDRESS: the same by a file. */
ATTACK(proc_mem)
{
    char path[64], byte = 'X';
    int fd;

    snprintf(path, sizeof path, "/proc/%d/mem", victim_of(argc, argv));
    fd = open(path, O_RDWR | O_CLOEXEC);
    attempt(fd < 0 ? -1 : pwrite(fd, &byte, 1, strtoul(operand(argc, argv, 2), NULL, 0)),
            "write %s", path);
}

/* pidfd_getfd PID FD: takes a descriptor out of the victim and writes by it. */
ATTACK(pidfd_getfd)
{
    int pidfd = syscall(SYS_pidfd_open, victim_of(argc, argv), 0);
    int fd;

    if (pidfd < 0)
        refused("pidfd_open %s", argv[1]);
    /* Also without a pidfd: the filter should refuse the call itself. */
    fd = syscall(SYS_pidfd_getfd, pidfd < 0 ? STDOUT_FILENO : pidfd, number(operand(argc, argv, 2)),
                 0);
    attempt(fd < 0 ? -1 : write(fd, "escaped\n", 8), "write by the descriptor of %s", argv[1]);
}

ATTACK(kcmp)
{
    attempt(syscall(SYS_kcmp, getpid(), victim_of(argc, argv), 1 /* KCMP_VM */, 0, 0), "kcmp %s",
            argv[1]);
}

/* signal PID: each way to send one. The victim reports what it receives. */
ATTACK(kill)
{
    attempt(kill(victim_of(argc, argv), SIGUSR1), "kill %s", argv[1]);
}

ATTACK(kill_group)
{
    attempt(kill(-victim_of(argc, argv), SIGUSR1), "kill the process group %s", argv[1]);
}

ATTACK(tgkill)
{
    pid_t pid = victim_of(argc, argv);

    attempt(syscall(SYS_tgkill, pid, pid, SIGUSR1), "tgkill %s", argv[1]);
}

ATTACK(sigqueue)
{
    siginfo_t info = {.si_code = SI_QUEUE, .si_signo = SIGUSR1};

    info.si_pid = getpid();
    info.si_uid = getuid();
    attempt(syscall(SYS_rt_sigqueueinfo, victim_of(argc, argv), SIGUSR1, &info),
            "rt_sigqueueinfo %s", argv[1]);
}

ATTACK(pidfd_signal)
{
    int pidfd = syscall(SYS_pidfd_open, victim_of(argc, argv), 0);

    if (pidfd < 0)
        refused("pidfd_open %s", argv[1]);
    else
        attempt(syscall(SYS_pidfd_send_signal, pidfd, SIGUSR1, NULL, 0), "pidfd_send_signal %s",
                argv[1]);
}

/* sigio PID: makes the kernel send the signal, by an owner set on a pipe. */
ATTACK(sigio)
{
    int ends[2];

    if (pipe(ends) < 0)
        broken("no pipe");
    if (fcntl(ends[0], F_SETOWN, victim_of(argc, argv)) < 0 ||
        fcntl(ends[0], F_SETSIG, SIGUSR1) < 0) {
        refused("F_SETOWN %s", argv[1]);
        return;
    }
    fcntl(ends[0], F_SETFL, O_ASYNC | O_NONBLOCK);
    /* Whether the signal arrives, only the victim knows: the runner asks it. */
    if (write(ends[1], "x", 1) == 1)
        nothing("sent", "F_SETOWN %s and a byte", argv[1]);
}

/* The knobs of another process: priority, affinity, limits. */
ATTACK(setpriority)
{
    attempt(setpriority(PRIO_PROCESS, victim_of(argc, argv), 19), "renice %s", argv[1]);
}

ATTACK(affinity)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(0, &set);
    attempt(sched_setaffinity(victim_of(argc, argv), sizeof set, &set), "set affinity of %s",
            argv[1]);
}

ATTACK(prlimit)
{
    struct rlimit limit = {1 << 20, 1 << 20};

    attempt(prlimit(victim_of(argc, argv), RLIMIT_FSIZE, &limit, NULL), "prlimit %s", argv[1]);
}

ATTACK(ioprio)
{
    attempt(syscall(SYS_ioprio_set, 1, victim_of(argc, argv), 3 << 13), "ioprio_set %s", argv[1]);
}

/* renice_user: 0 in the place of a user is oneself, and means all that one has. */
ATTACK(renice_user)
{
    attempt(setpriority(PRIO_USER, 0, 1), "renice all processes of the user");
}

/* signal_parent: reaches for whatever started us. PID 1 only when it is the sandbox's own. */
ATTACK(signal_parent)
{
    pid_t parent = getppid();

    if (parent > 1)
        attempt(kill(parent, 0), "signal the parent %d", parent);
    else
        nothing("absent", "the parent is pid %d", parent);
}

/* kill_init: from inside a PID namespace, PID 1 shrugs this off; the sandbox must go on. */
ATTACK(kill_init)
{
    if (kill(1, SIGKILL) < 0)
        refused("kill pid 1");
    if (kill(1, SIGSTOP) < 0)
        refused("stop pid 1");
    if (kill(1, SIGTERM) < 0)
        refused("terminate pid 1");
    /* A PID 1 that had stopped would not let this wait return. */
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
    nothing("alive", "the sandbox goes on");
}

/* ptrace_parent: takes hold of whatever started us. */
ATTACK(ptrace_parent)
{
    pid_t target = getppid() > 0 ? getppid() : 1;

    if (attempt(ptrace(PTRACE_SEIZE, target, 0, 0), "ptrace %d", target) == 0)
        ptrace(PTRACE_DETACH, target, 0, 0);
}

/* kill_everyone: kill(-1), with a signal that does nothing to those who do not ask for it. */
ATTACK(kill_everyone)
{
    if (kill(-1, SIGWINCH) < 0)
        refused("kill everyone");
    else
        nothing("sent", "a signal to everyone it may reach");
}

/* signal_all: every process to be seen but ourselves and our children: signal 0, permission alone. */
ATTACK(signal_all)
{
    long reached = 0;

    for (pid_t pid = 2; pid < 65536; pid++)
        if (pid != getpid() && pid != getppid() && kill(pid, 0) == 0 && getpgid(pid) != getpgrp())
            reached++;
    if (reached)
        escaped("may signal %ld processes", reached);
    else
        nothing("absent", "may signal nobody");
}
