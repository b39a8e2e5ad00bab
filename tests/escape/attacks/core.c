/* The main program: finds an attack by its name, and prints what attacks report. */
#include "attack.h"

#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/wait.h>

#define MAX_ATTACKS 256

static struct {
    const char *name;
    attack_fn run;
} attacks[MAX_ATTACKS];
static int attack_count;

void attack_register(const char *name, attack_fn run)
{
    if (attack_count == MAX_ATTACKS)
        abort();
    attacks[attack_count].name = name;
    attacks[attack_count++].run = run;
}

/* One write(2) per line: children and threads may report at the same time. */
static void line(const char *head, const char *what, va_list args)
{
    char text[1024];
    int at = snprintf(text, sizeof text, "%s ", head);
    int more = vsnprintf(text + at, sizeof text - at - 1, what, args);

    at += more < (int)sizeof text - at - 1 ? more : (int)sizeof text - at - 2;
    text[at++] = '\n';
    if (write(STDOUT_FILENO, text, at) < 0)
        _exit(3);
}

static void refused_with(int error, const char *what, va_list args)
{
    char head[64];
    const char *name = strerrorname_np(error);

    snprintf(head, sizeof head, "ATTEMPT errno=%s", name ? name : "UNKNOWN");
    line(head, what, args);
}

long attempt(long result, const char *what, ...)
{
    int error = errno;
    va_list args;

    va_start(args, what);
    if (result < 0)
        refused_with(error, what, args);
    else
        line("ESCAPED", what, args);
    va_end(args);
    errno = error;
    return result;
}

void refused(const char *what, ...)
{
    int error = errno;
    va_list args;

    va_start(args, what);
    refused_with(error, what, args);
    va_end(args);
}

void nothing(const char *word, const char *what, ...)
{
    char head[64];
    va_list args;

    snprintf(head, sizeof head, "ATTEMPT result=%s", word);
    va_start(args, what);
    line(head, what, args);
    va_end(args);
}

void escaped(const char *what, ...)
{
    va_list args;

    va_start(args, what);
    line("ESCAPED", what, args);
    va_end(args);
}

void broken(const char *what, ...)
{
    va_list args;

    va_start(args, what);
    line("BROKEN", what, args);
    va_end(args);
    exit(2);
}

void ready_wait(void)
{
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    char byte;

    if (write(STDOUT_FILENO, "READY\n", 6) != 6)
        exit(3);
    if (poll(&in, 1, 15000) != 1 || read(STDIN_FILENO, &byte, 1) < 0)
        broken("the runner did not answer READY");
}

void report_child(pid_t child, const char *what)
{
    int status;

    if (child < 0 || waitpid(child, &status, 0) != child)
        broken("no child for %s", what);
    if (WIFSIGNALED(status)) {
        char word[32];

        snprintf(word, sizeof word, "SIG%s", sigabbrev_np(WTERMSIG(status)));
        nothing(word, "%s", what);
    }
}

long number(const char *text)
{
    char *end;
    long value = strtol(text, &end, 0);

    if (!*text || *end)
        broken("not a number: %s", text);
    return value;
}

const char *operand(int argc, char **argv, int index)
{
    if (index >= argc)
        broken("%s: operand %d is missing", argv[0], index);
    return argv[index];
}

int main(int argc, char **argv)
{
    /* An attack that hangs ends itself, even when no runner watches. */
    alarm(25);
    if (argc < 2)
        broken("usage: probe ATTACK [OPERAND...]");
    for (int i = 0; i < attack_count; i++) {
        if (strcmp(attacks[i].name, argv[1]) == 0) {
            attacks[i].run(argc - 1, argv + 1);
            return 0;
        }
    }
    broken("no such attack: %s", argv[1]);
}
