/* See serve.h. */
#include "serve.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "end.h"
#include "guest-agent/agent/sync.h"
#include "port.h"
#include "session.h"
#include "talk.h"

static bool set_time(const struct agent_hello *h)
{
    struct timespec now = {(time_t)h->seconds, (long)h->nanoseconds};
    return h->seconds < INT32_MAX * 4ull && h->nanoseconds < 1000000000 &&
           !clock_settime(CLOCK_REALTIME, &now);
}

/* Who runs there is told by SIGWINCH. */
static bool set_console(const struct agent_hello *h)
{
    struct winsize size = {.ws_row = h->size.rows, .ws_col = h->size.columns};
    int fd = open("/dev/console", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    bool good = fd >= 0 && !ioctl(fd, TIOCSWINSZ, &size);
    if (fd >= 0)
        close(fd);
    return good;
}

/* What HELLO asks for by itself, and the answer. False: there is no session of its version. */
static bool welcome(struct talk *t, const struct agent_hello *h)
{
    struct agent_welcome w = {.number = h->number, .version = AGENT_VERSION};
    bool same = h->version == AGENT_VERSION;
    sync_magic(AGENT_WELCOME, w.magic);
    if (same && h->flags & AGENT_SET_TIME && !set_time(h))
        w.refused |= AGENT_SET_TIME;
    if (same && h->flags & AGENT_SET_CONSOLE && !set_console(h))
        w.refused |= AGENT_SET_CONSOLE;
    talk_send(t, AGENT_WELCOME, &w, sizeof(w));
    return same;
}

/* Looks for HELLO among what comes. False: the host has hung up. */
static bool await_hello(struct talk *t, struct agent_hello *h)
{
    struct sync s;
    sync_init(&s, AGENT_HELLO);
    while (!s.found) {
        uint8_t bytes[4096];
        ssize_t n = read(t->fd, bytes, sizeof(bytes));
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return false;
        struct pollfd p = {.fd = t->fd, .events = POLLIN};
        if (n < 0)
            poll(&p, 1, -1);
        else
            sync_take(&s, bytes, (size_t)n);
    }
    sync_found(&s, h, sizeof(*h));
    return true;
}

/* In a process of its own, whose words are standard error. */
static void begin(struct talk *t, const struct agent_hello *h, int voice)
{
    sigset_t none;
    dup2(voice, STDERR_FILENO);
    fcntl(t->fd, F_SETFD, FD_CLOEXEC);
    sigemptyset(&none);
    sigaddset(&none, SIGCHLD);
    sigaddset(&none, SIGIO);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* the port is for one agent */
    t->have = 0;
    if (welcome(t, h))
        session(t, h->number);
    _exit(0);
}

static void one_session(struct talk *t, const struct agent_hello *h)
{
    int voice[2], status = 0;
    char said[800] = "the agent has no process or memory for a session";
    pid_t child = pipe2(voice, O_CLOEXEC) ? -1 : fork();
    if (!child)
        begin(t, h, voice[1]);
    size_t have = 0;
    if (child > 0) {
        close(voice[1]);
        for (ssize_t n; have < sizeof(said) - 1 &&
                        ((n = read(voice[0], said + have, sizeof(said) - 1 - have)) > 0 ||
                         (n < 0 && errno == EINTR));)
            have += n > 0 ? (size_t)n : 0;
        close(voice[0]);
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
            ;
        said[have] = 0;
    }
    if (child > 0 && WIFEXITED(status) && !WEXITSTATUS(status))
        return;
    if (!have && child > 0)
        snprintf(said, sizeof(said), "the agent's session was ended by signal %d",
                 WTERMSIG(status));
    said[strcspn(said, "\n")] = 0;
    fprintf(stderr, "%s\n", said);
    struct pollfd p = {.fd = t->fd, .events = POLLOUT};
    if (poll(&p, 1, 0) == 1 && !(p.revents & POLLHUP) && p.revents & POLLOUT)
        talk_fail(t, STATUS_TROUBLE, said);
}

/* The driver makes it after its module is there. */
static int port_soon(void)
{
    const struct timespec tick = {.tv_nsec = 20000000};
    int fd = port_open();
    for (unsigned i = 0; i < 100 && fd < 0 && errno == ENODEV; i++) {
        nanosleep(&tick, NULL);
        fd = port_open();
    }
    return fd;
}

int serve(void)
{
    static struct talk talk;
    struct agent_hello hello;
    sigset_t set;
    int fd = port_soon();
    if (fd < 0) {
        fprintf(stderr, "reprise-agent: %s\n",
                errno == ENODEV ? "there is no port " AGENT_PORT
                                  ": this machine is not recorded with --agent"
                                : strerror(errno));
        return 1;
    }
    sigemptyset(&set);
    sigaddset(&set, SIGIO);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    talk_init(&talk, fd);
    for (;;) {
        talk_await_host(&talk);
        while (await_hello(&talk, &hello))
            one_session(&talk, &hello);
    }
}
