/* Ways out over a network, when there is to be none. All sockets are non-blocking:
 * EINPROGRESS means that a packet left, and counts as an escape. */
#include "attack.h"

#include <arpa/inet.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif
#ifndef IPPROTO_SCTP
#define IPPROTO_SCTP 132
#endif

/* ADDRESS PORT, in either family. */
static socklen_t address(struct sockaddr_storage *where, const char *host, const char *port)
{
    struct sockaddr_in *v4 = (void *)where;
    struct sockaddr_in6 *v6 = (void *)where;

    memset(where, 0, sizeof *where);
    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(number(port));
        return sizeof *v4;
    }
    if (inet_pton(AF_INET6, host, &v6->sin6_addr) != 1)
        broken("not an address: %s", host);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(number(port));
    return sizeof *v6;
}

static int open_socket(int family, int type, int protocol)
{
    return socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol);
}

/* Connects, and settles whether anything came of it. */
static void use(int fd, const struct sockaddr_storage *where, socklen_t length, const char *what)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
    int error = 0;
    socklen_t size = sizeof error;

    if (fd < 0) {
        refused("socket for %s", what);
        return;
    }
    if (connect(fd, (const void *)where, length) == 0) {
        escaped("connected: %s", what);
    } else if (errno != EINPROGRESS) {
        refused("connect: %s", what);
    } else if (poll(&poll_fd, 1, 1000) == 1 &&
               getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error) {
        errno = error;
        refused("connect: %s", what);
    } else {
        escaped("packets left: %s", what);
    }
    close(fd);
}

/* tcp ADDRESS PORT */
ATTACK(tcp)
{
    struct sockaddr_storage where;
    socklen_t length = address(&where, operand(argc, argv, 1), operand(argc, argv, 2));

    use(open_socket(where.ss_family, SOCK_STREAM, 0), &where, length, argv[1]);
}

/* mptcp: TCP by another name, which Landlock's TCP rules do not know (sandlock survey §4). */
ATTACK(mptcp)
{
    struct sockaddr_storage where;
    socklen_t length = address(&where, operand(argc, argv, 1), operand(argc, argv, 2));

    use(open_socket(where.ss_family, SOCK_STREAM, IPPROTO_MPTCP), &where, length, "MPTCP");
}

/* fast_open: data and SYN in one sendto, with no connect to be checked. */
ATTACK(fast_open)
{
    struct sockaddr_storage where;
    socklen_t length = address(&where, operand(argc, argv, 1), operand(argc, argv, 2));
    int fd = open_socket(where.ss_family, SOCK_STREAM, 0);

    if (fd < 0)
        refused("socket for fast open");
    else if (sendto(fd, "escaped\n", 8, MSG_FASTOPEN | MSG_NOSIGNAL, (void *)&where, length) >= 0 ||
             errno == EINPROGRESS)
        escaped("packets left by fast open");
    else
        refused("sendto MSG_FASTOPEN");
}

/* fast_open_connect: the same by a socket option, so that connect returns at once. */
ATTACK(fast_open_connect)
{
    struct sockaddr_storage where;
    socklen_t length = address(&where, operand(argc, argv, 1), operand(argc, argv, 2));
    int fd = open_socket(where.ss_family, SOCK_STREAM, 0), on = 1;

    if (fd < 0)
        refused("socket for fast open");
    else if (setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &on, sizeof on) < 0)
        refused("TCP_FASTOPEN_CONNECT");
    else
        use(fd, &where, length, "fast open by connect");
}

/* udp ADDRESS PORT: a datagram by sendto; sending it is the escape, nobody need answer. */
ATTACK(udp)
{
    struct sockaddr_storage where;
    socklen_t length = address(&where, operand(argc, argv, 1), operand(argc, argv, 2));
    int fd = open_socket(where.ss_family, SOCK_DGRAM, 0);

    attempt(fd < 0 ? -1 : sendto(fd, "escaped\n", 8, 0, (void *)&where, length), "UDP to %s",
            argv[1]);
}

ATTACK(udp_connect)
{
    struct sockaddr_storage where;
    socklen_t length = address(&where, operand(argc, argv, 1), operand(argc, argv, 2));
    int fd = open_socket(where.ss_family, SOCK_DGRAM, 0);

    if (fd < 0 || connect(fd, (void *)&where, length) < 0)
        refused("connect UDP %s", argv[1]);
    else
        attempt(send(fd, "escaped\n", 8, 0), "UDP to %s", argv[1]);
}

/* udp_sendmmsg: many at once, by a call that is easily forgotten. */
ATTACK(udp_sendmmsg)
{
    struct sockaddr_storage where;
    struct iovec body = {"escaped\n", 8};
    struct mmsghdr message = {.msg_hdr = {.msg_name = &where, .msg_iov = &body, .msg_iovlen = 1}};
    int fd;

    message.msg_hdr.msg_namelen = address(&where, operand(argc, argv, 1), operand(argc, argv, 2));
    fd = open_socket(where.ss_family, SOCK_DGRAM, 0);
    attempt(fd < 0 ? -1 : sendmmsg(fd, &message, 1, 0), "sendmmsg to %s", argv[1]);
}

/* dns SERVER PORT: a question whose name carries what is to be stolen. */
ATTACK(dns)
{
    static const char query[] = "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"
                                "\x06secret\x07" "example\x03org\x00\x00\x01\x00\x01";
    struct sockaddr_storage where;
    socklen_t length = address(&where, operand(argc, argv, 1), operand(argc, argv, 2));
    int fd = open_socket(where.ss_family, SOCK_DGRAM, 0);

    attempt(fd < 0 ? -1 : sendto(fd, query, sizeof query - 1, 0, (void *)&where, length),
            "DNS query to %s", argv[1]);
}

/* serve ADDRESS PORT: listens, and lets the runner try to come in from the host. */
ATTACK(serve)
{
    struct sockaddr_storage where;
    socklen_t length = address(&where, operand(argc, argv, 1), operand(argc, argv, 2));
    int fd = open_socket(where.ss_family, SOCK_STREAM, 0), on = 1, peer;

    if (fd >= 0)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd < 0 || bind(fd, (void *)&where, length) < 0 || listen(fd, 1) < 0) {
        refused("listen on %s", argv[1]);
        return;
    }
    ready_wait();
    peer = accept(fd, NULL, NULL);
    if (peer < 0)
        nothing("alone", "nobody came to port %s", argv[2]);
    else
        escaped("the host reached port %s", argv[2]);
}

/* socket_family: the families that are sockets by name alone. FAMILY TYPE PROTOCOL... */
ATTACK(socket)
{
    if ((argc - 1) % 3 || argc < 4)
        broken("socket FAMILY TYPE PROTOCOL...");
    for (int i = 1; i + 2 < argc; i += 3) {
        int fd = socket(number(argv[i]), number(argv[i + 1]) | SOCK_CLOEXEC, number(argv[i + 2]));

        if (attempt(fd, "socket %s %s %s", argv[i], argv[i + 1], argv[i + 2]) >= 0)
            close(fd);
    }
}

/* socket_high FAMILY TYPE PROTOCOL: with bits set above the 32 that the kernel takes. */
ATTACK(socket_high)
{
    const unsigned long high = 0xdeadbeefUL << 32;

    attempt(syscall(SYS_socket, high | number(operand(argc, argv, 1)),
                    high | number(operand(argc, argv, 2)), high | number(operand(argc, argv, 3))),
            "socket %s %s %s, high bits set", argv[1], argv[2], argv[3]);
}

/* odd_families: every family but the four that programs need. */
ATTACK(odd_families)
{
    for (int family = 0; family < 46; family++) {
        static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET};

        if (family == AF_UNIX || family == AF_INET || family == AF_INET6 || family == AF_NETLINK)
            continue;
        for (int i = 0; i < 4; i++) {
            int fd = socket(family, types[i] | SOCK_CLOEXEC, 0);

            if (fd >= 0) {
                escaped("socket of family %d, type %d", family, types[i]);
                close(fd);
            } else if (family == AF_PACKET)
                refused("socket of family %d", family);
        }
    }
}

/* odd_netlink: every netlink protocol but the routing one. */
ATTACK(odd_netlink)
{
    errno = 0;
    for (int protocol = 1; protocol < 24; protocol++) {
        int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);

        /* Protocols this kernel lacks say nothing about the sandbox. */
        if (fd < 0 && errno == EPROTONOSUPPORT)
            continue;
        if (attempt(fd, "netlink protocol %d", protocol) >= 0)
            close(fd);
    }
}

/* new_link: an interface of one's own, by routing netlink; asked as a dry probe (no name given
 * that could exist), so that the answer is the permission check. */
ATTACK(new_link)
{
    struct {
        struct nlmsghdr head;
        struct ifinfomsg link;
    } ask = {.head = {.nlmsg_len = sizeof ask,
                      .nlmsg_type = RTM_SETLINK,
                      .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK},
             .link = {.ifi_family = AF_UNSPEC, .ifi_index = 0x7ffffff}};
    struct {
        struct nlmsghdr head;
        struct nlmsgerr error;
        char more[256];
    } answer;
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

    if (fd < 0 || send(fd, &ask, sizeof ask, 0) < 0 || recv(fd, &answer, sizeof answer, 0) < 0) {
        refused("routing netlink");
        return;
    }
    errno = -answer.error.error;
    attempt(errno ? -1 : 0, "change a link");
}

/* interface_flags NAME: takes an interface down or up by ioctl; sets what is already set. */
ATTACK(interface_flags)
{
    struct ifreq request = {0};
    int fd = open_socket(AF_INET, SOCK_DGRAM, 0);

    if (fd < 0) {
        refused("socket for SIOCSIFFLAGS");
        return;
    }
    strncpy(request.ifr_name, operand(argc, argv, 1), IFNAMSIZ - 1);
    if (ioctl(fd, SIOCGIFFLAGS, &request) < 0)
        refused("SIOCGIFFLAGS %s", argv[1]);
    else
        attempt(ioctl(fd, SIOCSIFFLAGS, &request), "SIOCSIFFLAGS %s", argv[1]);
}

/* fd_send FD: a connection that the launcher happened to have open. */
ATTACK(fd_send)
{
    attempt(send(number(operand(argc, argv, 1)), "escaped\n", 8, MSG_NOSIGNAL),
            "send on descriptor %s", argv[1]);
}
