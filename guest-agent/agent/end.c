/* See end.h. */
#include "end.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/io.h>
#include <sys/reboot.h>
#include <termios.h>
#include <unistd.h>

enum { DEBUG_EXIT = 0xf4 };

void machine_end(int status)
{
    if (!ioperm(DEBUG_EXIT, 1, 1))
        outb((unsigned char)status, DEBUG_EXIT);
    /* A machine without that port. */
    reboot(RB_POWER_OFF);
    for (;;)
        pause();
}

void give_up(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    dprintf(STDERR_FILENO, "reprise-agent: ");
    vdprintf(STDERR_FILENO, format, list);
    dprintf(STDERR_FILENO, "\n");
    va_end(list);
    if (getpid() != 1)
        _exit(STATUS_TROUBLE);
    tcdrain(STDERR_FILENO);
    machine_end(STATUS_TROUBLE);
}

void host_gone(void)
{
    if (getpid() != 1)
        _exit(0);
    give_up("the host has hung up");
}
