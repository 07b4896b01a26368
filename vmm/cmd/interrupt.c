/* See interrupt.h. */
#include "cmd/interrupt.h"

#include <errno.h>
#include <stddef.h>
#include <sys/wait.h>

#include "replay/gdb/server.h"

/* ---- Ctrl-C ---- */

static volatile sig_atomic_t noted;

static void on_interrupt(int sig)
{
    if (noted) {
        signal(sig, SIG_DFL);
        raise(sig);
    }
    noted = true;
}

void interrupt_catch(void)
{
    struct sigaction sa = {.sa_handler = on_interrupt, .sa_flags = SA_ONSTACK | SA_RESTART};
    sigemptyset(&sa.sa_mask);
    sigaction(SIGINT, &sa, NULL);
}

void interrupt_ignore(void)
{
    signal(SIGINT, SIG_IGN);
    noted = false;
}

bool interrupted(void)
{
    return noted;
}

/* ---- sessions ---- */

static struct gdb_server *volatile waked;
static volatile sig_atomic_t own_gdb;
static volatile sig_atomic_t ended_by;

static void on_end(int sig)
{
    siginfo_t ended = {.si_pid = 0};
    int kept = errno;
    /* A renderer that drew a picture is a child too. */
    bool other =
        sig == SIGCHLD &&
        (waitid(P_PID, (id_t)own_gdb, &ended, WEXITED | WNOHANG | WNOWAIT) || !ended.si_pid);
    errno = kept;
    if (other)
        return;
    ended_by = sig;
    if (waked)
        gdb_server_wake(waked);
}

void session_begin(struct gdb_server *server, int child)
{
    waked = server;
    own_gdb = child;
    ended_by = 0;
}

void session_ends_on(int sig, struct sigaction *before)
{
    struct sigaction sa = {.sa_handler = on_end, .sa_flags = SA_ONSTACK};
    sigemptyset(&sa.sa_mask);
    sigaction(sig, &sa, before);
}

int session_ended_by(void)
{
    return ended_by;
}

void session_wakes_none(void)
{
    waked = NULL;
}
