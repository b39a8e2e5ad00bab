/*
 * What every attack program shares.
 *
 * All attacks are linked into one static program, `probe`, and picked by name
 * (`probe read /etc/shadow`), so that one file placed in a workspace carries
 * the whole corpus and needs nothing from the sandbox but its own execution.
 *
 * An attack says what happened in lines that the runner reads:
 *
 *     ATTEMPT errno=EACCES open /etc/shadow     the act was refused, and how
 *     ATTEMPT result=empty /etc/shadow          it gave nothing away
 *     ESCAPED read 42 bytes of /etc/shadow      the act worked
 *     READY                                     waits for the runner (one line on stdin)
 *     BROKEN no such attack                     the test itself is wrong
 *
 * Whether ESCAPED is a breach is for the runner to say: in a positive control
 * it is what must be printed. Nothing here does lasting harm when it works:
 * syscalls that could are called with arguments the kernel rejects later than
 * it checks permission.
 */
#ifndef ATTACK_H
#define ATTACK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

typedef void (*attack_fn)(int argc, char **argv);

void attack_register(const char *name, attack_fn run);

/* argv[0] is the attack's name, its operands follow. */
#define ATTACK(name)                                                              \
    static void attack_##name(int argc, char **argv);                             \
    __attribute__((constructor)) static void register_##name(void)                \
    {                                                                             \
        attack_register(#name, attack_##name);                                    \
    }                                                                             \
    static void attack_##name(int argc __attribute__((unused)),                   \
                              char **argv __attribute__((unused)))

#define PRINTF(f, a) __attribute__((format(printf, f, a)))

/* Reports a system call's result and hands it on: negative is a refusal. */
long attempt(long result, const char *what, ...) PRINTF(2, 3);
/* The act was refused with the present errno. */
void refused(const char *what, ...) PRINTF(1, 2);
/* The act came to nothing, without an errno: `word` is one word. */
void nothing(const char *word, const char *what, ...) PRINTF(2, 3);
void escaped(const char *what, ...) PRINTF(1, 2);
void broken(const char *what, ...) PRINTF(1, 2) __attribute__((noreturn));

/* Tells the runner to act, and waits until it has (or 15 s have gone by). */
void ready_wait(void);

/* Reports how a child that was to make an attempt ended, when it was killed. */
void report_child(pid_t child, const char *what);

long number(const char *text);
/* The operand, or a broken test. */
const char *operand(int argc, char **argv, int index);

#endif
