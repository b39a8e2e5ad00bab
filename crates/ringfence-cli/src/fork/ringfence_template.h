/* Makes a program a template of `ringfence fork`.
 *
 * Compute what every clone needs, then call ringfence_serve(work). In each clone, which shares the
 * memory copy-on-write, work(index, count, words) is called with its number, from 0, and the words of
 * the command line; what it returns is the exit code. ringfence_serve returns 0 when the session ends,
 * and -1 with errno when this is no sandbox with a gateway or something fails. No threads may run: a
 * fork has none of them. Clones end with this program. Linux; no library but libc.
 */
#ifndef RINGFENCE_TEMPLATE_H
#define RINGFENCE_TEMPLATE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

struct ringfence_request {
    unsigned long number, clones, bytes;
    int streams[4]; /* standard input, output, error; a pipe that closes when whoever asked is gone */
    int passed;     /* how many of them came */
    char *words;    /* each with a NUL at its end */
};

/* Reads exactly so many bytes, and keeps descriptors that come with them; 0 at the end. */
static int ringfence_read(int gate, char *to, size_t length, struct ringfence_request *request) {
    while (length > 0) {
        union { char bytes[CMSG_SPACE(4 * sizeof(int))]; struct cmsghdr align; } control;
        struct iovec part = {to, length};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes,
                                 .msg_controllen = sizeof control.bytes};
        ssize_t got = recvmsg(gate, &message, MSG_CMSG_CLOEXEC);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return (int)got;
        for (struct cmsghdr *at = CMSG_FIRSTHDR(&message); at; at = CMSG_NXTHDR(&message, at)) {
            if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS)
                continue;
            size_t count = (at->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            for (size_t i = 0; i < count && request->passed < 4; i++)
                memcpy(&request->streams[request->passed++], CMSG_DATA(at) + i * sizeof(int), sizeof(int));
        }
        to += got;
        length -= (size_t)got;
    }
    return 1;
}

/* `fork NUMBER CLONES BYTES`, a line, and the words; 0 when the session ends. */
static int ringfence_next(int gate, struct ringfence_request *request) {
    char line[128];
    size_t length = 0;
    int read;
    memset(request, 0, sizeof *request);
    do {
        if (length + 1 >= sizeof line) {
            errno = EPROTO;
            return -1;
        }
        if ((read = ringfence_read(gate, line + length, 1, request)) <= 0)
            return read;
    } while (line[length++] != '\n');
    line[length] = 0;
    if (sscanf(line, "fork %lu %lu %lu", &request->number, &request->clones, &request->bytes) != 3) {
        errno = EPROTO;
        return -1;
    }
    if (!(request->words = malloc(request->bytes + 1)))
        return -1;
    request->words[request->bytes] = 0;
    if (request->bytes && (read = ringfence_read(gate, request->words, request->bytes, request)) <= 0)
        return read;
    if (request->passed == 4)
        return 1;
    errno = EPROTO;
    return -1;
}

/* Forks the clones and waits for them; a code for each, or null. */
static unsigned char *ringfence_clones(int gate, struct ringfence_request *request,
                                       int (*work)(int index, int count, char **words)) {
    size_t clones = request->clones, count = 0;
    for (size_t i = 0; i < request->bytes; i++)
        count += request->words[i] == 0;
    char **words = calloc(count + 1, sizeof *words);
    pid_t *running = calloc(clones + 1, sizeof *running);
    unsigned char *codes = malloc(clones + 1);
    if (!words || !running || !codes)
        return free(words), free(running), free(codes), NULL;
    memset(codes, 125, clones);
    char *word = request->words;
    for (size_t i = 0; i < count; i++, word += strlen(word) + 1)
        words[i] = word;
    sigset_t child, before;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, &before);
    int ended = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK), own[3];
    pid_t self = getpid();
    fflush(NULL);
    for (int i = 0; i < 3; i++) {
        own[i] = dup(i);
        dup2(request->streams[i], i);
        close(request->streams[i]);
    }
    size_t left = 0;
    for (size_t i = 0; i < clones; i++) {
        running[i] = fork();
        if (running[i] == 0) {
            /* Without the template nobody would tell it that whoever asked is gone. */
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != self)
                _exit(125);
            sigprocmask(SIG_SETMASK, &before, NULL);
            close(gate);
            exit(work((int)i, (int)count, words));
        }
        if (running[i] < 0) {
            perror("ringfence: fork");
            break;
        }
        left++;
    }
    for (int i = 0; i < 3; i++) {
        dup2(own[i], i);
        close(own[i]);
    }
    struct pollfd watched[] = {{.fd = ended, .events = POLLIN}, {.fd = request->streams[3]}};
    while (left > 0) {
        struct signalfd_siginfo info;
        int status;
        pid_t pid;
        while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
            for (size_t i = 0; i < clones; i++)
                if (running[i] == pid) {
                    codes[i] = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
                    running[i] = 0;
                    left--;
                    break;
                }
        if (left == 0 || poll(watched, 2, -1) < 0)
            continue;
        while (read(ended, &info, sizeof info) > 0)
            ;
        if (watched[1].revents) { /* whoever asked is gone */
            watched[1].fd = -1;
            for (size_t i = 0; i < clones; i++)
                if (running[i] > 0)
                    kill(running[i], SIGKILL);
        }
    }
    close(ended);
    close(request->streams[3]);
    sigprocmask(SIG_SETMASK, &before, NULL);
    free(words);
    free(running);
    return codes;
}

/* Serves until the session ends. */
static int ringfence_serve(int (*work)(int index, int count, char **words)) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = getenv("RINGFENCE_GATEWAY");
    if (!path || strlen(path) >= sizeof address.sun_path) {
        errno = ENOENT;
        return -1;
    }
    strcpy(address.sun_path, path);
    int gate = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), next = -1;
    if (gate < 0 || connect(gate, (struct sockaddr *)&address, sizeof address) < 0
        || send(gate, "ready\n", 6, MSG_NOSIGNAL) != 6)
        return -1;
    struct ringfence_request request;
    while ((next = ringfence_next(gate, &request)) > 0) {
        unsigned char *codes = ringfence_clones(gate, &request, work);
        size_t size = 64 + 4 * request.clones;
        char *answer = codes ? malloc(size) : NULL;
        if (!answer)
            return -1;
        int length = sprintf(answer, "ended %lu", request.number);
        for (size_t i = 0; i < request.clones; i++)
            length += sprintf(answer + length, " %d", codes[i]);
        answer[length++] = '\n';
        for (ssize_t sent = 0, some; sent < length; sent += some)
            if ((some = send(gate, answer + sent, (size_t)(length - sent), MSG_NOSIGNAL)) < 0)
                return -1;
        free(answer);
        free(codes);
        free(request.words);
    }
    free(request.words);
    close(gate);
    return next;
}

#endif
