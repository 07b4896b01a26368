#define _GNU_SOURCE
/* See run_talk.h. */
#include "cmd/run_talk.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "base/file_io.h"
#include "cmd/agent_frames.h"
#include "cmd/run_write.h"
#include "host/clock.h"
#include "host/terminal.h"

extern char **environ;

#define TWICE_NS    1000000000u /* within that a second Ctrl-C ends the recording */
#define STATUS_OURS 125         /* as of env and timeout */
#define KEY_INTR    3           /* Ctrl-C, as a raw terminal gives it */
#define QUEUE_MAX                                                                                  \
    (128u << 10) /* bytes for the agent that wait; more input is not read meanwhile                \
                  */

struct talk {
    const struct run_program *p;
    struct agent_frames frames;
    u8 *queue; /* for the agent */
    size_t queued, queue_room;
    int signals;
    bool raw, terminal, input_over, over, failed, gone;
    u32 closed;      /* bit N: nobody reads descriptor N */
    u64 interrupted; /* host time of the last Ctrl-C; 0: none */
    u32 under_way; /* bytes of input that the agent has not said to have taken; of a guest's own */
    u32 taken;     /* bytes of output that it was not told of */
    int status;
    struct err *err;
};

/* ---- what it is told ---- */

static bool queue(struct talk *t, const void *data, size_t len)
{
    if (t->queue_room - t->queued < len) {
        size_t room = MAX(2 * t->queue_room, t->queued + len + QUEUE_MAX);
        u8 *bigger = realloc(t->queue, room);
        if (!bigger)
            return false;
        t->queue = bigger;
        t->queue_room = room;
    }
    if (len)
        memcpy(t->queue + t->queued, data, len);
    t->queued += len;
    return true;
}

static bool say(struct talk *t, enum agent_type type, const void *data, size_t len)
{
    const struct agent_frame head = {type, (u32)len};
    return queue(t, &head, sizeof(head)) && queue(t, data, len);
}

/* ---- what the agent says ---- */

/* Told in large pieces: each is an input of the machine. */
static void output_taken(struct talk *t, size_t len)
{
    t->taken += (u32)len;
    if (!t->p->there || t->taken < AGENT_WINDOW / 4)
        return;
    say(t, AGENT_TAKEN, &t->taken, sizeof(t->taken));
    t->taken = 0;
}

static void on_output(void *opaque, int fd, const void *data, size_t len)
{
    struct talk *t = opaque;
    u32 number = (u32)fd;
    output_taken(t, len);
    if (t->closed & 1u << fd || file_write_on(fd, data, len))
        return;
    t->closed |= 1u << fd;
    say(t, AGENT_CLOSED, &number, sizeof(number));
}

static void on_frame(void *opaque, enum agent_type type, const void *data, size_t len)
{
    struct talk *t = opaque;
    struct agent_failed failed;
    u32 status;
    if (type == AGENT_ENDED && len == sizeof(status)) {
        memcpy(&status, data, sizeof(status));
        t->status = (int)status;
        t->over = true;
    } else if (type == AGENT_FAILED && len >= sizeof(failed)) {
        memcpy(&failed, data, sizeof(failed));
        t->status = (int)(failed.status & 0xff);
        t->over = t->failed = true;
        err_set(t->err, -ENOEXEC, "%.*s", (int)(len - sizeof(failed)),
                (const char *)data + sizeof(failed));
    } else if (type == AGENT_ROOM && len == sizeof(status)) {
        memcpy(&status, data, sizeof(status));
        t->frames.broken = !t->p->there || status > t->under_way;
        t->under_way -= t->frames.broken ? 0 : status;
    } else if (type > AGENT_OTHER || (type >= AGENT_WRITTEN && !t->p->write)) {
        t->frames.broken = true;
    } else if (type >= AGENT_WRITTEN && !run_write_frame(t->p->write, type, data, len)) {
        t->frames.broken = true;
    }
}

/* ---- how it begins ---- */

static struct agent_size size_of_terminal(void)
{
    struct winsize w = {.ws_row = 24, .ws_col = 80};
    for (int fd = 0; fd < 3; fd++)
        if (isatty(fd) && !ioctl(fd, TIOCGWINSZ, &w))
            break;
    return (struct agent_size){w.ws_row, w.ws_col};
}

/* The guest's terminal has made lines of it already. terminal_restore() undoes this, too. */
static void output_as_it_is(void)
{
    struct termios now;
    if (tcgetattr(STDIN_FILENO, &now))
        return;
    now.c_oflag &= ~(tcflag_t)OPOST;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &now);
}

static void put_text(FILE *out, const char *text)
{
    fwrite(text, 1, strlen(text) + 1, out);
}

static bool is_variable(const char *text)
{
    return *text != '=' && strchr(text, '=');
}

static bool say_start_there(struct talk *t)
{
    const struct run_there *w = t->p->there;
    char *body = NULL;
    size_t size = 0;
    struct agent_start s = {.version = AGENT_VERSION,
                            .uid = w->uid,
                            .gid = w->gid,
                            .umask = 022,
                            .size = size_of_terminal(),
                            .window = AGENT_WINDOW};
    for (int fd = 0; fd < 3 && w->terminal; fd++)
        s.terminals |= (u32)isatty(fd) << fd;
    t->terminal = s.terminals;
    while (t->p->argv[s.arguments])
        s.arguments++;
    while (w->variables[s.variables])
        s.variables++;
    FILE *out = open_memstream(&body, &size);
    if (out) {
        fwrite(&s, 1, sizeof(s), out);
        put_text(out, "");
        put_text(out, w->directory);
        put_text(out, t->p->argv[0]);
        for (u32 i = 0; i < s.arguments; i++)
            put_text(out, t->p->argv[i]);
        for (u32 i = 0; i < s.variables; i++)
            put_text(out, w->variables[i]);
    }
    bool good = out && !fclose(out);
    if (good && size > AGENT_DATA_MAX) {
        t->over = t->failed = true;
        t->status = STATUS_OURS;
        err_set(t->err, -E2BIG, "arguments and variables are %zu bytes, and %u is the most", size,
                AGENT_DATA_MAX);
    } else {
        good = good && say(t, AGENT_START, body, size);
    }
    free(body);
    return good;
}

/* The program, and how it would have begun here. */
static bool say_start(struct talk *t)
{
    if (t->p->there)
        return say_start_there(t);
    char host[AGENT_NAME_MAX + 1] = "", *cwd = getcwd(NULL, 0), *body = NULL;
    size_t size = 0;
    gid_t groups[256];
    int ngroups = getgroups((int)ARRAY_SIZE(groups), groups);
    mode_t mask = umask(0);
    umask(mask);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct agent_start s = {.version = AGENT_VERSION,
                            .uid = getuid(),
                            .gid = getgid(),
                            .groups = ngroups > 0 ? (u32)ngroups : 0,
                            .umask = mask,
                            .size = size_of_terminal(),
                            .seconds = (u64)now.tv_sec,
                            .nanoseconds = (u32)now.tv_nsec,
                            .network = t->p->network,
                            .writes = run_write_count(t->p->write)};
    for (int fd = 0; fd < 3; fd++)
        s.terminals |= (u32)isatty(fd) << fd;
    t->terminal = s.terminals;
    while (t->p->argv[s.arguments])
        s.arguments++;
    for (char **v = environ; *v; v++)
        s.variables += is_variable(*v);
    if (gethostname(host, sizeof(host) - 1))
        host[0] = 0;
    FILE *out = open_memstream(&body, &size);
    if (out) {
        fwrite(&s, 1, sizeof(s), out);
        for (u32 i = 0; i < s.groups; i++)
            fwrite(&(u32){groups[i]}, 1, sizeof(u32), out);
        put_text(out, host);
        put_text(out, cwd ? cwd : "/");
        put_text(out, t->p->argv[0]);
        for (u32 i = 0; i < s.arguments; i++)
            put_text(out, t->p->argv[i]);
        for (char **v = environ; *v; v++)
            if (is_variable(*v))
                put_text(out, *v);
        for (u32 i = 0; i < s.writes; i++)
            put_text(out, run_write_path(t->p->write, i));
    }
    bool good = out && !fclose(out) && size <= AGENT_START_MAX && say(t, AGENT_START, body, size);
    free(body);
    free(cwd);
    return good;
}

/* The second Ctrl-C within a second is for us. */
static void interrupt(struct talk *t)
{
    u64 now = host_ns();
    if (t->interrupted && now - t->interrupted < TWICE_NS) {
        if (t->p->recorder > 0)
            kill(t->p->recorder, SIGTERM);
        t->gone = !t->p->recorder;
    }
    t->interrupted = now;
}

static void read_input(struct talk *t)
{
    u8 buf[AGENT_DATA_MAX];
    ssize_t n = read(STDIN_FILENO, buf, sizeof(buf));
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    for (ssize_t i = 0; t->raw && i < n; i++)
        if (buf[i] == KEY_INTR)
            interrupt(t);
    say(t, AGENT_INPUT, buf, n > 0 ? (size_t)n : 0);
    t->under_way += t->p->there && n > 0 ? (u32)n : 0;
    t->input_over = n <= 0;
}

static void read_signal(struct talk *t)
{
    struct signalfd_siginfo info;
    if (read(t->signals, &info, sizeof(info)) != sizeof(info))
        return;
    u32 number = info.ssi_signo;
    if (number == SIGWINCH) {
        struct agent_size size = size_of_terminal();
        if (t->terminal)
            say(t, AGENT_SIZE, &size, sizeof(size));
        return;
    }
    if (number == SIGINT || number == SIGQUIT)
        interrupt(t);
    say(t, AGENT_SIGNAL, &number, sizeof(number));
}

/* false: the port is gone. */
static bool exchange(struct talk *t, short events)
{
    u8 buf[AGENT_DATA_MAX];
    if (events & POLLOUT) {
        ssize_t n = send(t->p->socket, t->queue, t->queued, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return false;
        if (n > 0) {
            t->queued -= (size_t)n;
            memmove(t->queue, t->queue + n, t->queued);
        }
    }
    if (events & (POLLIN | POLLHUP | POLLERR)) {
        ssize_t n = recv(t->p->socket, buf, sizeof(buf), MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return false;
        if (n > 0)
            agent_frames_take(&t->frames, buf, (size_t)n);
    }
    return !t->frames.broken;
}

static void relay(struct talk *t)
{
    while (!t->over && !t->gone) {
        bool reads = !t->input_over && t->queued < QUEUE_MAX &&
                     t->under_way <= AGENT_WINDOW - AGENT_DATA_MAX;
        struct pollfd fds[] = {
            {.fd = t->p->socket, .events = (short)(POLLIN | (t->queued ? POLLOUT : 0))},
            {.fd = t->signals, .events = POLLIN},
            {.fd = reads ? STDIN_FILENO : -1, .events = POLLIN}};
        if (poll(fds, ARRAY_SIZE(fds), -1) < 0 && errno != EINTR)
            return;
        if (fds[1].revents)
            read_signal(t);
        if (fds[2].revents)
            read_input(t);
        if (fds[0].revents && !exchange(t, fds[0].revents))
            return;
    }
}

enum run_result run_talk(const struct run_program *p, int *status, struct err *err)
{
    struct talk t = {.p = p, .err = err, .frames = {.output = on_output, .frame = on_frame}};
    static const int handed[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGWINCH};
    sigset_t set;
    t.frames.opaque = &t;
    signal(SIGPIPE, SIG_IGN); /* it is for the program */
    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_SIZE(handed); i++)
        sigaddset(&set, handed[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    t.signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (t.signals >= 0 && say_start(&t)) {
        t.raw = isatty(STDIN_FILENO) && terminal_raw(STDIN_FILENO);
        if (t.raw)
            output_as_it_is();
        relay(&t);
        terminal_restore();
    }
    if (t.signals >= 0)
        close(t.signals);
    close(p->socket); /* the signals stay blocked: one that came too late would end us */
    free(t.queue);
    *status = t.status;
    return !t.over ? RUN_GONE : t.failed ? RUN_FAILED : RUN_ENDED;
}
