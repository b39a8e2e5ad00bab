/* Talking to programs of the host, which act with the rights of the host. */
#include "attack.h"

#include <mqueue.h>
#include <stddef.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/un.h>

/* The address of a path, or with a leading '@' of an abstract name. */
static socklen_t address(struct sockaddr_un *where, const char *name)
{
    memset(where, 0, sizeof *where);
    where->sun_family = AF_UNIX;
    if (strlen(name) >= sizeof where->sun_path)
        broken("too long for a socket: %s", name);
    strcpy(where->sun_path, name);
    if (*name == '@')
        where->sun_path[0] = 0;
    return offsetof(struct sockaddr_un, sun_path) + strlen(name) + (*name != '@');
}

static void use_stream(int type, const char *name)
{
    struct sockaddr_un where;
    socklen_t length = address(&where, name);
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

    if (fd < 0)
        refused("socket for %s", name);
    else if (connect(fd, (void *)&where, length) < 0)
        refused("connect %s", name);
    else
        escaped("connected to %s", name);
    if (fd >= 0)
        close(fd);
}

/* unix_stream NAME... */
ATTACK(unix_stream)
{
    for (int i = 1; i < argc; i++)
        use_stream(SOCK_STREAM, argv[i]);
}

ATTACK(unix_seqpacket)
{
    use_stream(SOCK_SEQPACKET, operand(argc, argv, 1));
}

/* unix_dgram NAME: sendto, without ever connecting. */
ATTACK(unix_dgram)
{
    struct sockaddr_un where;
    socklen_t length = address(&where, operand(argc, argv, 1));
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    attempt(fd < 0 ? -1 : sendto(fd, "escaped\n", 8, 0, (void *)&where, length), "sendto %s",
            argv[1]);
}

/* unix_pair NAME: one of a pair, made without socket(2), is connected anew, and sends; then by an address. */
ATTACK(unix_pair)
{
    static const int types[] = {SOCK_DGRAM, SOCK_RAW};
    struct sockaddr_un where;
    socklen_t length = address(&where, operand(argc, argv, 1));

    for (int i = 0; i < 2; i++) {
        int pair[2];
        if (socketpair(AF_UNIX, types[i] | SOCK_CLOEXEC, 0, pair) < 0) {
            refused("socketpair of type %d", types[i]);
            continue;
        }
        attempt(sendto(pair[0], "escaped\n", 8, 0, (void *)&where, length), "sendto %s", argv[1]);
        if (connect(pair[1], (void *)&where, length) < 0)
            refused("connect %s", argv[1]);
        else
            attempt(send(pair[1], "escaped\n", 8, 0), "send %s", argv[1]);
        close(pair[0]);
        close(pair[1]);
    }
}

/* unix_sendmsg NAME: the address inside a structure in memory. */
ATTACK(unix_sendmsg)
{
    struct sockaddr_un where;
    struct iovec body = {"escaped\n", 8};
    struct msghdr message = {.msg_name = &where, .msg_iov = &body, .msg_iovlen = 1};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    message.msg_namelen = address(&where, operand(argc, argv, 1));
    attempt(fd < 0 ? -1 : sendmsg(fd, &message, 0), "sendmsg %s", argv[1]);
}

/* unix_via_fd DIR NAME: by a descriptor, so that the path says nothing. */
ATTACK(unix_via_fd)
{
    int dir = open(operand(argc, argv, 1), O_PATH | O_DIRECTORY | O_CLOEXEC);
    char name[200];

    if (dir < 0) {
        refused("open %s", argv[1]);
        return;
    }
    snprintf(name, sizeof name, "/proc/self/fd/%d/%.64s", dir, operand(argc, argv, 2));
    use_stream(SOCK_STREAM, name);
}

/* take_fd NAME: the server hands out a descriptor (SCM_RIGHTS); write by it. */
ATTACK(take_fd)
{
    struct sockaddr_un where;
    socklen_t length = address(&where, operand(argc, argv, 1));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), taken;
    char byte, space[CMSG_SPACE(sizeof(int))];
    struct iovec body = {&byte, 1};
    struct msghdr message = {.msg_iov = &body,
                             .msg_iovlen = 1,
                             .msg_control = space,
                             .msg_controllen = sizeof space};

    if (fd < 0 || connect(fd, (void *)&where, length) < 0) {
        refused("connect %s", argv[1]);
        return;
    }
    if (recvmsg(fd, &message, MSG_CMSG_CLOEXEC) < 0 || !CMSG_FIRSTHDR(&message)) {
        refused("recvmsg %s", argv[1]);
        return;
    }
    memcpy(&taken, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof taken);
    attempt(write(taken, "escaped\n", 8), "write by the descriptor handed over by %s", argv[1]);
}

/* unix_listen NAME: listens, and lets the runner try to reach us from the host. */
ATTACK(unix_listen)
{
    struct sockaddr_un where;
    socklen_t length = address(&where, operand(argc, argv, 1));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), peer;

    if (fd < 0 || bind(fd, (void *)&where, length) < 0 || listen(fd, 1) < 0) {
        refused("listen on %s", argv[1]);
        return;
    }
    ready_wait();
    peer = accept(fd, NULL, NULL);
    if (peer < 0)
        nothing("alone", "nobody came to %s", argv[1]);
    else
        escaped("the host reached %s", argv[1]);
}

/* System V IPC: objects with numbers for names, the same for all of the machine. */
ATTACK(sysv_shm)
{
    int id = shmget(number(operand(argc, argv, 1)), 0, 0600);
    char *at = id < 0 ? (char *)-1 : shmat(id, NULL, 0);

    if (at == (char *)-1)
        refused("shared memory %s", argv[1]);
    else
        escaped("attached: %.8s", at);
}

/* shm_scan: every segment of the machine, by number. */
ATTACK(sysv_scan)
{
    struct shm_info info;
    int last = shmctl(0, SHM_INFO, (void *)&info);

    if (last < 0) {
        refused("list shared memory");
        return;
    }
    if (info.used_ids > 0)
        escaped("saw %d segments", info.used_ids);
    else
        nothing("absent", "no segment");
}

ATTACK(sysv_msg)
{
    struct {
        long type;
        char text[8];
    } message = {1, "escaped"};
    int id = msgget(number(operand(argc, argv, 1)), 0600);

    attempt(id < 0 ? -1 : msgsnd(id, &message, sizeof message.text, IPC_NOWAIT), "send to queue %s",
            argv[1]);
}

ATTACK(sysv_sem)
{
    struct sembuf up = {0, 1, IPC_NOWAIT};
    int id = semget(number(operand(argc, argv, 1)), 0, 0600);

    attempt(id < 0 ? -1 : semop(id, &up, 1), "raise semaphore %s", argv[1]);
}

/* posix_mq NAME */
ATTACK(posix_mq)
{
    mqd_t queue = mq_open(operand(argc, argv, 1), O_WRONLY | O_NONBLOCK | O_CLOEXEC);

    attempt(queue < 0 ? -1 : mq_send(queue, "escaped", 7, 0), "send to queue %s", argv[1]);
}

/* posix_mq_remove NAME: without opening it. */
ATTACK(posix_mq_remove)
{
    attempt(mq_unlink(operand(argc, argv, 1)), "remove queue %s", argv[1]);
}

/* fifo PATH: the host reads what we write. */
ATTACK(fifo)
{
    int fd = open(operand(argc, argv, 1), O_WRONLY | O_NONBLOCK | O_CLOEXEC);

    attempt(fd < 0 ? -1 : write(fd, "escaped\n", 8), "write to the FIFO %s", argv[1]);
}

/* For the runner: makes the objects that it then attacks, and takes them away again.
 * ipc_make shm|msg|sem|mq KEY prints an id; ipc_drop the same. */
ATTACK(ipc_make)
{
    const char *kind = operand(argc, argv, 1);
    key_t key = *kind == 'm' && kind[1] == 'q' ? 0 : number(operand(argc, argv, 2));

    if (strcmp(kind, "shm") == 0) {
        int id = shmget(key, 4096, IPC_CREAT | IPC_EXCL | 0600);
        char *at = id < 0 ? (char *)-1 : shmat(id, NULL, 0);

        if (at == (char *)-1)
            broken("shmget");
        strcpy(at, "secret");
    } else if (strcmp(kind, "msg") == 0) {
        if (msgget(key, IPC_CREAT | IPC_EXCL | 0600) < 0)
            broken("msgget");
    } else if (strcmp(kind, "sem") == 0) {
        if (semget(key, 1, IPC_CREAT | IPC_EXCL | 0600) < 0)
            broken("semget");
    } else {
        struct mq_attr attr = {.mq_maxmsg = 4, .mq_msgsize = 64};

        if (mq_open(operand(argc, argv, 2), O_CREAT | O_EXCL | O_RDWR, 0600, &attr) < 0)
            broken("mq_open");
    }
}

/* ipc_drop KIND KEY: prints ATTEMPT result=untouched or ESCAPED by what it finds inside. */
ATTACK(ipc_drop)
{
    const char *kind = operand(argc, argv, 1);
    const char *name = operand(argc, argv, 2);
    long used = 0;

    if (strcmp(kind, "shm") == 0) {
        shmctl(shmget(number(name), 0, 0600), IPC_RMID, NULL);
    } else if (strcmp(kind, "msg") == 0) {
        struct msqid_ds is = {0};
        int id = msgget(number(name), 0600);

        msgctl(id, IPC_STAT, &is);
        used = is.msg_qnum;
        msgctl(id, IPC_RMID, NULL);
    } else if (strcmp(kind, "sem") == 0) {
        int id = semget(number(name), 1, 0600);

        used = semctl(id, 0, GETVAL);
        semctl(id, 0, IPC_RMID);
    } else {
        struct mq_attr is = {0};
        mqd_t queue = mq_open(name, O_RDONLY);

        mq_getattr(queue, &is);
        used = is.mq_curmsgs;
        mq_unlink(name);
    }
    if (used)
        escaped("%s %s was used", kind, name);
    else
        nothing("untouched", "%s %s", kind, name);
}
