/* Outliving the sandbox, and exhausting what it shares. */
#include "attack.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

/* stay TOKEN...: does nothing, for a while; TOKEN makes it findable in the host's /proc. */
ATTACK(stay)
{
    struct timespec long_enough = {20, 0};

    /* One that must be killed: it shrugs off everything it may. */
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    nanosleep(&long_enough, NULL);
}

static void become_survivor(const char *token, const char *file)
{
    prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0);
    setsid();
    if (fork() != 0)
        _exit(0);
    setsid();
    if (file) {
        /* One that acts later: as soon as nobody is its parent any more. */
        for (int i = 0; i < 2000 && getppid() > 1; i++)
            sched_yield();
        int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        if (fd >= 0 && write(fd, "late\n", 5) < 0)
            _exit(1);
    }
    execl("/proc/self/exe", "probe", "stay", token, NULL);
    _exit(1);
}

/* daemon TOKEN [FILE]: double fork, two sessions; then the command itself ends. */
ATTACK(daemon)
{
    pid_t child = fork();

    if (child == 0)
        become_survivor(operand(argc, argv, 1), argc > 2 ? argv[2] : NULL);
    waitpid(child, NULL, 0);
    nothing("started", "a daemon");
}

/* daemon_and_stay TOKEN [polite]: leaves a daemon, and then waits to be ended itself: by
 * anything if polite, else only by what nobody can refuse. */
ATTACK(daemon_and_stay)
{
    pid_t child = fork();

    if (child == 0)
        become_survivor(operand(argc, argv, 1), NULL);
    waitpid(child, NULL, 0);
    nothing("started", "a daemon");
    if (write(STDOUT_FILENO, "READY\n", 6) != 6)
        _exit(3);
    if (argc > 2)
        sleep(20);
    else
        execl("/proc/self/exe", "probe", "stay", argv[1], NULL);
}

/* sibling TOKEN: CLONE_PARENT makes a child of our parent, whom nobody expected. */
ATTACK(sibling)
{
    long child = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);

    if (child == 0)
        become_survivor(operand(argc, argv, 1), NULL);
    if (child < 0)
        refused("clone CLONE_PARENT");
    else
        nothing("started", "a sibling");
}

/* fork_many LIMIT HARD: forks until it is refused; more than LIMIT at once is an escape.
 * HARD bounds the damage where there is no limit. */
ATTACK(fork_many)
{
    long limit = number(operand(argc, argv, 1)), hard = number(operand(argc, argv, 2)), alive = 0;
    int error = 0;

    setpgid(0, 0); /* so that the whole brood can be ended by one signal, and nobody else */
    for (; alive < hard; alive++) {
        pid_t child = fork();

        if (child < 0) {
            error = errno;
            break;
        }
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
            pause();
            _exit(0);
        }
    }
    signal(SIGTERM, SIG_IGN);
    if (!error || alive > limit)
        escaped("%ld processes at once, where %ld were allowed", alive, limit);
    else {
        errno = error;
        refused("fork after %ld children", alive);
    }
    kill(0, SIGTERM);
    while (wait(NULL) > 0 || errno == EINTR)
        ;
}

/* A child that leaves an orphan and is gone: 0, or why not. */
static int leave_orphan(void)
{
    pid_t child = fork();

    if (child < 0)
        return errno;
    if (child == 0)
        _exit(fork() < 0 ? errno : 0);
    int status;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

/* orphans COUNT: children whose parents are gone; PID 1 must reap them. On a busy machine it may be a
 * while until it does. */
ATTACK(orphans)
{
    long count = number(operand(argc, argv, 1));

    for (long i = 0; i < count; i++) {
        int error = leave_orphan();

        for (int tries = 0; error == EAGAIN && tries < 5000; tries++) {
            usleep(1000);
            error = leave_orphan();
        }
        if (error) {
            errno = error;
            refused("fork of orphan %ld", i);
            return;
        }
    }
    nothing("reaped", "%ld orphans", count);
}

/* open_many LIMIT: descriptors until refused. */
ATTACK(open_many)
{
    long limit = number(operand(argc, argv, 1)), opened = 0;

    while (opened < 100000 && open("/dev/null", O_RDONLY) >= 0)
        opened++;
    if (opened >= limit)
        escaped("%ld descriptors, where %ld were allowed", opened, limit);
    else
        refused("open after %ld descriptors", opened);
}

/* victim SECRET FILE: a host process, with things worth stealing. It says on stdout where they
 * are, and then each signal it gets. Runs outside, for the runner. */
ATTACK(victim)
{
    static char secret[64];
    int fd = open(operand(argc, argv, 2), O_RDWR | O_APPEND);
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigset_t all;
    int got;

    alarm(0);
    snprintf(secret, sizeof secret, "%s", operand(argc, argv, 1));
    sigaction(SIGPIPE, &ignore, NULL);
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    printf("VICTIM %d %p %d\n", getpid(), (void *)secret, fd);
    fflush(stdout);
    while (sigwait(&all, &got) == 0) {
        printf("SIGNAL %d\n", got);
        fflush(stdout);
    }
}

/* Denies the kernel's own layers to whatever is executed next: a host that lacks them. */
static void deny(const int *calls, size_t count, int error)
{
    struct sock_filter code[16];
    struct sock_fprog program = {.filter = code};
    unsigned short n = 0;

    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < count; i++) {
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i], 0, 1);
        code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error);
    }
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    program.len = n;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        broken("cannot install a filter");
}

/* As Docker does it: clone3 is absent, clone with a namespace flag forbidden. */
static void deny_new_namespaces(void)
{
    const unsigned int flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET;
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, flags, 1, 2),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        broken("cannot install a filter");
}

/* without LAYER CMD...: runs CMD on a kernel that lacks LAYER. */
ATTACK(without)
{
    const char *layer = operand(argc, argv, 1);

    operand(argc, argv, 2);
    alarm(0);
    if (strcmp(layer, "namespaces") == 0)
        deny_new_namespaces();
    if (strcmp(layer, "landlock") == 0)
        deny((int[]){444, 445, 446}, 3, ENOSYS);
    else if (strcmp(layer, "seccomp") == 0)
        deny((int[]){SYS_seccomp, SYS_prctl}, 2, EINVAL);
    else if (strcmp(layer, "namespaces") == 0)
        deny((int[]){SYS_unshare}, 1, EPERM);
    else if (strcmp(layer, "mount-api") == 0)
        deny((int[]){SYS_open_tree, SYS_move_mount, SYS_fsopen, 442}, 4, ENOSYS);
    else if (strcmp(layer, "pidfd") == 0)
        deny((int[]){SYS_pidfd_open, SYS_pidfd_send_signal}, 2, ENOSYS);
    else
        broken("no such layer: %s", layer);
    execv(argv[2], argv + 2);
    broken("cannot execute %s", argv[2]);
}

/* aside CMD...: in mount and host-name namespaces of its own, for the runner: an act that is to
 * be seen to work as root, or a sandbox that fails to hold root, must not rearrange the mounts of
 * the machine the corpus runs on. Files, processes, sockets and the network are the machine's. */
ATTACK(aside)
{
    alarm(0);
    if (unshare(CLONE_NEWNS | CLONE_NEWUTS) < 0 ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        broken("cannot step aside: %s", strerror(errno));
    operand(argc, argv, 1);
    execvp(argv[1], argv + 1);
    broken("cannot execute %s", argv[1]);
}
