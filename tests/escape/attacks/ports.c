/* Ways to services of the host over ports of one's own, where the ports are the host's. */
#include "attack.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>

#ifndef TCP_FASTOPEN_NO_COOKIE
#define TCP_FASTOPEN_NO_COOKIE 34
#endif

static struct sockaddr_in loopback(const char *port)
{
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons(number(port))};

    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return where;
}

static int stream(int flags)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);

    if (fd < 0)
        broken("no socket");
    return fd;
}

/* A server at the loopback, with an option of SOL_SOCKET; -1 where it is refused. */
static int serving(const char *port, int option, int backlog)
{
    struct sockaddr_in where = loopback(port);
    int fd = stream(0), on = 1;

    if (setsockopt(fd, SOL_SOCKET, option, &on, sizeof on) < 0 ||
        bind(fd, (void *)&where, sizeof where) < 0 || listen(fd, backlog) < 0) {
        refused("serve port %s", port);
        return -1;
    }
    return fd;
}

/* Whether a connection has come to somebody: the host's server ends it, and a filter would reset it. */
static void speak(int fd, int first, const char *what)
{
    struct pollfd writable = {.fd = fd, .events = POLLOUT};
    struct timeval patience = {.tv_sec = 3};
    char byte;
    int error = 0;
    socklen_t size = sizeof error;

    if (fcntl(fd, F_SETFL, 0) < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) < 0)
        broken("no patience");
    if (poll(&writable, 1, 10000) != 1)
        nothing("silent", "%s: no answer", what);
    else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error) {
        errno = error;
        refused("%s", what);
    } else if (first && send(fd, "escaped\n", 8, MSG_NOSIGNAL) < 0)
        refused("%s: send", what);
    else if (recv(fd, &byte, 1, 0) < 0)
        refused("%s: receive", what);
    else
        escaped("%s", what);
}

/* late_deferred PORT: begins to connect to a server of its own, puts it off until there are bytes to send, and closes
 * the server. READY: the port is the host's. */
ATTACK(late_deferred)
{
    struct sockaddr_in where = loopback(operand(argc, argv, 1));
    int own = serving(argv[1], SO_REUSEADDR, 5), fd = stream(0), on = 1;

    if (own < 0)
        return;
    if (setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &on, sizeof on) < 0) {
        refused("TCP_FASTOPEN_CONNECT");
        return;
    }
    if (setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE, &on, sizeof on) < 0)
        broken("TCP_FASTOPEN_NO_COOKIE");
    if (connect(fd, (void *)&where, sizeof where) < 0) {
        refused("connect later");
        return;
    }
    close(own);
    ready_wait();
    speak(fd, 1, "a connection that was put off");
}

/* A server of its own whose queue is full, and the last client, which found no room; -1 where that is refused. */
static int full(const char *port, int *client)
{
    struct sockaddr_in where = loopback(port);
    int own = serving(port, SO_REUSEADDR, 0);

    for (int i = 0; own >= 0 && i < 5; i++) {
        *client = stream(SOCK_NONBLOCK);
        if (connect(*client, (void *)&where, sizeof where) < 0 && errno != EINPROGRESS) {
            refused("connect number %d", i);
            return -1;
        }
    }
    return own;
}

/* late_waiting PORT: the same with a connection that a process waits for, as there is no room. */
ATTACK(late_waiting)
{
    struct sockaddr_in where = loopback(operand(argc, argv, 1));
    int other, own = full(argv[1], &other), fd = stream(0);
    struct tcp_info info = {.tcpi_state = TCP_CLOSE};
    socklen_t size = sizeof info;
    pid_t child;

    if (own < 0)
        return;
    child = fork();
    if (child == 0) {
        close(own);
        if (connect(fd, (void *)&where, sizeof where) < 0)
            refused("connect that waits");
        else
            speak(fd, 0, "a connection that was waited for");
        _exit(0);
    }
    while (info.tcpi_state == TCP_CLOSE && waitpid(child, NULL, WNOHANG) == 0 &&
           getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0)
        sched_yield();
    close(own);
    ready_wait();
    waitpid(child, NULL, 0);
}

/* late_full PORT: the same with one that finds no room at its own server, so that the kernel asks again. */
ATTACK(late_full)
{
    int fd, own = full(operand(argc, argv, 1), &fd);

    if (own < 0)
        return;
    close(own);
    ready_wait();
    speak(fd, 0, "a connection that found no room");
}

/* share_out PORT: shares the port of a server of the host's, and connects to it. */
ATTACK(share_out)
{
    struct sockaddr_in where = loopback(operand(argc, argv, 1));
    int own = serving(argv[1], SO_REUSEPORT, 64);

    if (own < 0)
        return;
    fcntl(own, F_SETFL, O_NONBLOCK);
    for (int i = 0; i < 64; i++) {
        int fd = stream(0), peer;

        if (connect(fd, (void *)&where, sizeof where) < 0) {
            refused("connect to the shared port");
            return;
        }
        peer = accept(own, NULL, NULL);
        close(fd);
        if (peer < 0) {
            escaped("a connection went to somebody else at the shared port");
            return;
        }
        close(peer);
    }
    nothing("alone", "all connections were the server's own");
}

/* share_in PORT: shares the port, and takes clients. READY: they come. */
ATTACK(share_in)
{
    int own = serving(operand(argc, argv, 1), SO_REUSEPORT, 128);

    if (own < 0)
        return;
    ready_wait();
    fcntl(own, F_SETFL, O_NONBLOCK);
    if (accept(own, NULL, NULL) < 0)
        nothing("alone", "nobody came to the shared port");
    else
        escaped("took a client of the shared port");
}

/* other_family PORT: has a server of its own at the port in IPv6, and connects to it in IPv4. */
ATTACK(other_family)
{
    struct sockaddr_in where = loopback(operand(argc, argv, 1));
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = where.sin_port,
                               .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int own = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), fd = stream(0);

    if (own < 0 || bind(own, (void *)&six, sizeof six) < 0 || listen(own, 5) < 0) {
        refused("serve port %s in IPv6", argv[1]);
        return;
    }
    if (connect(fd, (void *)&where, sizeof where) < 0)
        refused("connect in IPv4");
    else
        speak(fd, 0, "the other family");
}
