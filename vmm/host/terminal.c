/*
 * See terminal.h. A process has one controlling terminal, and signal handlers get no argument: so
 * this is the one place with state at file scope. Two machines in a process share it, as they must.
 */
#include "host/terminal.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>

static struct termios saved;
static volatile sig_atomic_t raw_fd = -1;

void terminal_restore(void)
{
    int fd = raw_fd;
    if (fd < 0)
        return;
    raw_fd = -1;
    int keep = errno;
    tcsetattr(fd, TCSANOW, &saved);
    errno = keep;
}

/* Signals that end the process without passing through main: SIGINT, SIGTERM and SIGHUP do not,
 * they are inputs (live.c). SIGSEGV and its kin belong to the engine, which ends in abort(). */
static void on_fatal(int sig)
{
    terminal_restore();
    signal(sig, SIG_DFL);
    raise(sig);
}

/* After a stop and `fg`: the shell has set the terminal its own way. */
static void on_continue(int sig)
{
    int fd = raw_fd;
    if (fd < 0)
        return;
    int keep = errno;
    struct termios t = saved;
    t.c_iflag &= ~(tcflag_t)(IGNBRK | BRKINT | PARMRK | ISTRIP | INLCR | IGNCR | ICRNL | IXON);
    t.c_lflag &= ~(tcflag_t)(ECHO | ECHONL | ICANON | ISIG | IEXTEN);
    t.c_cc[VMIN] = 1;
    t.c_cc[VTIME] = 0;
    tcsetattr(fd, TCSANOW, &t);
    errno = keep;
}

static void hook(int sig, void (*fn)(int))
{
    struct sigaction old, sa = {.sa_handler = fn, .sa_flags = SA_ONSTACK | SA_RESTART};
    if (!sigaction(sig, NULL, &old) && old.sa_handler == SIG_DFL)
        sigaction(sig, &sa, NULL);
}

bool terminal_raw(int fd)
{
    if (raw_fd >= 0 || !isatty(fd) || tcgetpgrp(fd) != getpgrp() || tcgetattr(fd, &saved))
        return false;
    raw_fd = fd;
    atexit(terminal_restore);
    hook(SIGABRT, on_fatal);
    hook(SIGQUIT, on_fatal);
    hook(SIGCONT, on_continue);
    on_continue(SIGCONT);
    return true;
}
