#define _GNU_SOURCE
/* See agent_minder.h. */
#include "cmd/agent_minder.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "base/types.h"
#include "cmd/agent_call.h"

#define FOR_EVER 1e9 /* seconds: until the guest has an agent */

struct minder {
    const char *socket;
    int signals, clock, wake;
    bool terminal; /* the guest's console is on one */
};

/* Says when the host's clock jumps, as it does after a suspension. */
static void arm(int clock)
{
    const struct itimerspec never = {.it_value.tv_sec = INT32_MAX};
    timerfd_settime(clock, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &never, NULL);
}

static bool size_of(struct agent_size *out)
{
    struct winsize w;
    if (ioctl(STDIN_FILENO, TIOCGWINSZ, &w))
        return false;
    *out = (struct agent_size){w.ws_row, w.ws_col};
    return true;
}

/* What the guest cannot do is not worth a word. The agent may be there in minutes only; whoever
 * else calls it waits for it, too. */
static void tell(const struct minder *m, u32 flags)
{
    struct agent_call call = {
        .where = m->socket, .timeout = FOR_EVER, .flags = flags, .quiet = true};
    struct err ignored = {0};
    if (flags & AGENT_SET_CONSOLE && !size_of(&call.size))
        return;
    int fd = agent_call(&call, &ignored);
    if (fd >= 0)
        close(fd);
}

/* What has happened; 0: nothing that the guest is to know. */
static u32 await(struct minder *m, bool *over)
{
    struct pollfd p[] = {{m->signals, POLLIN, 0}, {m->clock, POLLIN, 0}, {m->wake, POLLIN, 0}};
    struct signalfd_siginfo info;
    char byte[64];
    u64 n;
    u32 flags = 0;
    if (poll(p, ARRAY_SIZE(p), -1) < 0)
        return 0;
    while (read(m->signals, &info, sizeof(info)) == sizeof(info))
        flags |=
            info.ssi_signo == SIGWINCH ? (m->terminal ? AGENT_SET_CONSOLE : 0) : AGENT_SET_TIME;
    if (p[1].revents && read(m->clock, &n, sizeof(n)) < 0 && errno == ECANCELED)
        flags |= AGENT_SET_TIME;
    if (p[1].revents)
        arm(m->clock);
    ssize_t got = p[2].revents ? read(m->wake, byte, sizeof(byte)) : -1;
    *over = p[2].revents && got == 0;
    return got > 0 ? flags | AGENT_SET_TIME : flags;
}

static void mind(struct minder *m, bool late)
{
    sigset_t set;
    bool over = false;
    sigemptyset(&set);
    sigaddset(&set, SIGWINCH);
    sigaddset(&set, SIGCONT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGINT, SIG_IGN); /* the recorder's, at whose end this ends */
    signal(SIGPIPE, SIG_IGN);
    m->signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    m->clock = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    if (m->signals < 0 || m->clock < 0)
        return;
    arm(m->clock);
    m->terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    u32 flags = (late ? AGENT_SET_TIME : 0) | (m->terminal ? AGENT_SET_CONSOLE : 0);
    /* The socket is made when the machine is. */
    const struct timespec tick = {.tv_nsec = 50000000};
    while (access(m->socket, F_OK))
        nanosleep(&tick, NULL);
    for (; !over; flags = await(m, &over))
        if (flags)
            tell(m, flags);
}

int agent_minder_begin(struct agent_minder *m, const char *socket, bool late, struct err *err)
{
    int pair[2];
    if (pipe2(pair, O_CLOEXEC | O_NONBLOCK))
        return err_errno(err, "cannot make a pipe");
    fflush(NULL);
    pid_t parent = getpid(), child = fork();
    if (child < 0) {
        close(pair[0]);
        close(pair[1]);
        return err_errno(err, "cannot start a process");
    }
    if (!child) {
        struct minder own = {.socket = socket, .wake = pair[0]};
        close(pair[1]);
        if (!prctl(PR_SET_PDEATHSIG, SIGKILL) && getppid() == parent)
            mind(&own, late);
        _exit(0);
    }
    close(pair[0]);
    m->wake = pair[1];
    return 0;
}

void agent_minder_resumed(const struct agent_minder *m)
{
    if (m->wake >= 0 && write(m->wake, "", 1) < 0)
        return; /* it has been told, and has not come to it */
}

void agent_minder_end(struct agent_minder *m)
{
    if (m->wake >= 0)
        close(m->wake);
    m->wake = -1;
}
