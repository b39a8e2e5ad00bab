/* The terminal belongs to the user's shell too: what is pushed into its input, the shell runs. */
#include "attack.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>

#ifndef TIOCLINUX
#define TIOCLINUX 0x541C
#endif

/* tiocsti [HIGH]: pushes a character; HIGH sets bits above the 32 that the kernel looks at
 * (CVE-2019-7303: a 64-bit comparison lets them pass). */
static void push(unsigned long high, const char *what)
{
    char c = '#';
    int tty = open("/dev/tty", O_RDWR | O_CLOEXEC);

    attempt(syscall(SYS_ioctl, STDIN_FILENO, high | TIOCSTI, &c), "TIOCSTI on stdin%s", what);
    if (tty < 0)
        refused("open /dev/tty");
    else
        attempt(syscall(SYS_ioctl, tty, high | TIOCSTI, &c), "TIOCSTI on /dev/tty%s", what);
}

ATTACK(tiocsti)
{
    push(0, "");
}

ATTACK(tiocsti_high)
{
    push(1UL << 32, ", bit 32 set");
    push(0xdeadbeefUL << 32, ", high bits set");
}

/* tioclinux: paste on a virtual console (subcode 3). */
ATTACK(tioclinux)
{
    char code = 3;

    attempt(syscall(SYS_ioctl, STDIN_FILENO, (unsigned long)TIOCLINUX, &code), "TIOCLINUX");
    attempt(syscall(SYS_ioctl, STDIN_FILENO, 1UL << 32 | TIOCLINUX, &code),
            "TIOCLINUX, bit 32 set");
}

/* console: redirects the kernel's console to this terminal. */
ATTACK(tioccons)
{
    attempt(ioctl(STDIN_FILENO, TIOCCONS), "TIOCCONS");
}

/* tiocexcl: keeps everybody else from opening the terminal, for as long as anybody has it open. */
ATTACK(tiocexcl)
{
    attempt(ioctl(STDIN_FILENO, TIOCEXCL), "TIOCEXCL");
    attempt(syscall(SYS_ioctl, STDIN_FILENO, 1UL << 32 | TIOCEXCL, 0), "TIOCEXCL, bit 32 set");
}

/* tcxonc: stops what is printed on it, and what is typed; undone at once, since this program prints too. */
static void stop(unsigned long high, unsigned long way, unsigned long undo, const char *what)
{
    long result = syscall(SYS_ioctl, STDIN_FILENO, high | TCXONC, high | way);
    int why = errno;

    ioctl(STDIN_FILENO, TCXONC, undo);
    errno = why;
    attempt(result, "%s", what);
}

ATTACK(tcxonc)
{
    stop(0, TCOOFF, TCOON, "TCOOFF");
    stop(0, TCIOFF, TCION, "TCIOFF");
    stop(1UL << 32, TCOOFF, TCOON, "TCOOFF, bit 32 set");
}

/* signal_by_tty: has it signal who is in its foreground whenever something is typed. */
ATTACK(signal_by_tty)
{
    int on = 1;
    int tty = open("/dev/tty", O_RDWR | O_CLOEXEC);

    if (tty < 0) {
        refused("open /dev/tty");
        return;
    }
    fcntl(tty, F_SETSIG, SIGUSR1);
    attempt(fcntl(tty, F_SETFL, O_RDWR | O_ASYNC), "O_ASYNC on /dev/tty");
    attempt(syscall(SYS_fcntl, tty, 1UL << 32 | F_SETFL, 1UL << 32 | O_ASYNC), "O_ASYNC, bit 32 set");
    attempt(ioctl(STDIN_FILENO, FIOASYNC, &on), "FIOASYNC on stdin");
}

/* other_pty PATH: writes on another terminal of the same user. */
ATTACK(other_pty)
{
    int fd = open(operand(argc, argv, 1), O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);

    attempt(fd < 0 ? -1 : write(fd, "escaped\n", 8), "write on %s", argv[1]);
}

/* with_terminal CMD...: makes stdin the controlling terminal, as a shell's child has it. */
ATTACK(with_terminal)
{
    alarm(0);
    if (ioctl(STDIN_FILENO, TIOCSCTTY, 0) < 0)
        broken("TIOCSCTTY");
    operand(argc, argv, 1);
    execvp(argv[1], argv + 1);
    broken("cannot execute %s", argv[1]);
}
