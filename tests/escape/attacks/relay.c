/* Ways out through the sandbox's own proxy, which dials for whoever asks it, and through its listeners.
 * An answer that says no is `nothing`, with the proxy's word for it. */
#include "attack.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

/* Connects to ADDRESS PORT, and waits for whatever follows no longer than five seconds. */
static int reach(const char *host, const char *port)
{
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons(number(port))};
    struct timeval patience = {.tv_sec = 5};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (inet_pton(AF_INET, host, &where.sin_addr) != 1)
        broken("not an address: %s", host);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) < 0 ||
        connect(fd, (void *)&where, sizeof where) < 0) {
        refused("connect to %s:%s", host, port);
        return -1;
    }
    return fd;
}

/* Sends some bytes, and reads one answer as text. */
static long ask(int fd, const void *bytes, size_t length, char *answer, size_t room)
{
    long got;

    if (send(fd, bytes, length, MSG_NOSIGNAL) < 0)
        return -1;
    got = recv(fd, answer, room - 1, 0);
    answer[got > 0 ? got : 0] = 0;
    return got;
}

/* proxy PORT REQUEST: a request of HTTP to the proxy inside; REQUEST without its end. */
ATTACK(proxy)
{
    char request[1024], answer[1024], word[32];
    int fd = reach("127.0.0.1", operand(argc, argv, 1)), status;
    long got;

    if (fd < 0)
        return;
    snprintf(request, sizeof request, "%s HTTP/1.1\r\nHost: example.org\r\n\r\n",
             operand(argc, argv, 2));
    got = ask(fd, request, strlen(request), answer, sizeof answer);
    if (got < 0) {
        refused("%s", argv[2]);
    } else if (sscanf(answer, "HTTP/1.%*1d %d", &status) != 1) {
        nothing("silent", "%s", argv[2]);
    } else if (status / 100 == 2) {
        escaped("%s: %d", argv[2], status);
    } else {
        snprintf(word, sizeof word, "http-%d", status);
        nothing(word, "%s", argv[2]);
    }
}

/* socks PORT KIND HOST PORT: SOCKS5; KIND 1 an IPv4 address, 3 a name, 4 an IPv6 address. A `^` in a name
 * is a NUL. */
ATTACK(socks)
{
    unsigned char request[512] = {5, 1, 0, 5, 1, 0};
    size_t length = 8;
    const char *host = operand(argc, argv, 3);
    unsigned long port = number(operand(argc, argv, 4));
    char answer[64], word[32];
    int fd = reach("127.0.0.1", operand(argc, argv, 1)), kind = (int)number(operand(argc, argv, 2));
    long got;

    if (fd < 0)
        return;
    request[6] = (unsigned char)kind;
    if (kind == 3) {
        size_t size = strlen(host);
        request[7] = (unsigned char)size;
        for (size_t at = 0; at < size && at < 255; at++)
            request[length++] = host[at] == '^' ? 0 : (unsigned char)host[at];
    } else {
        length = 7;
        if (inet_pton(kind == 1 ? AF_INET : AF_INET6, host, request + length) != 1)
            broken("not an address: %s", host);
        length += kind == 1 ? 4 : 16;
    }
    /* The greeting first: its answer is two bytes. */
    if (ask(fd, request, 3, answer, 3) != 2 || answer[1]) {
        nothing("no-greeting", "SOCKS5");
        return;
    }
    request[length++] = (unsigned char)(port >> 8);
    request[length++] = (unsigned char)port;
    got = ask(fd, request + 3, length - 3, answer, sizeof answer);
    if (got < 0) {
        refused("SOCKS5 to %s", host);
    } else if (got < 2) {
        nothing("silent", "SOCKS5 to %s", host);
    } else if (answer[1] == 0) {
        escaped("SOCKS5 to %s", host);
    } else {
        snprintf(word, sizeof word, "socks-%d", answer[1]);
        nothing(word, "SOCKS5 to %s", host);
    }
}

/* talk ADDRESS PORT: a request, and any answer to it. Taken and then reset is refused. */
ATTACK(talk)
{
    const char *request = "GET / HTTP/1.0\r\n\r\n";
    char answer[256];
    int fd = reach(operand(argc, argv, 1), operand(argc, argv, 2));
    long got;

    if (fd < 0)
        return;
    got = ask(fd, request, strlen(request), answer, sizeof answer);
    if (got < 0)
        refused("talk to %s:%s", argv[1], argv[2]);
    else if (got == 0)
        nothing("silent", "talk to %s:%s", argv[1], argv[2]);
    else
        escaped("%ld bytes from %s:%s", got, argv[1], argv[2]);
}
