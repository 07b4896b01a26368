/* See relay.h. */
#include "relay.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "end.h"
#include "program.h"
#include "talk.h"

/* Bytes that wait for the program to read them. Signals pass them; with this full nothing is read
 * from the host. */
#define WAITING_MAX (1u << 20)

/* What is sent after the program's end of what others go on printing, at most. */
#define REST_MAX (1u << 20)

struct relay {
    struct talk *t;
    struct program *p;
    int children; /* signalfd */
    bool ended;
    int status;
    bool input_over; /* the host has no more */
    size_t at, len;  /* of `waiting` */
    char last;       /* byte that was written */
    char *waiting;   /* WAITING_MAX */
    /* Bytes: of output that may be under way, of what is; of input, which was not said to be taken.
     */
    uint32_t window, under_way, taken;
};

/* The program has read that, or nobody will. */
static void input_taken(struct relay *r, size_t len)
{
    r->taken += (uint32_t)len;
    if (!r->window || r->taken < AGENT_WINDOW / 4)
        return;
    talk_send(r->t, AGENT_ROOM, &r->taken, sizeof(r->taken));
    r->taken = 0;
}

/* ---- to the program ---- */

static void close_input(struct relay *r)
{
    if (r->p->in >= 0 && r->p->in != r->p->terminal)
        close(r->p->in);
    r->p->in = -1;
    input_taken(r, r->len);
    r->len = 0;
}

/* At a terminal the end is typed; twice in a line that has begun. */
static void end_input(struct relay *r)
{
    struct termios mode;
    if (r->p->in == r->p->terminal && !tcgetattr(r->p->in, &mode) && mode.c_lflag & ICANON) {
        char end[2] = {(char)mode.c_cc[VEOF], (char)mode.c_cc[VEOF]};
        bool begun = r->last && r->last != '\n' && r->last != '\r';
        if (write(r->p->in, end, begun ? 2 : 1) < 0 && errno == EAGAIN)
            return;
    }
    close_input(r);
}

static void write_input(struct relay *r)
{
    while (r->len && r->p->in >= 0) {
        ssize_t n = write(r->p->in, r->waiting + r->at, r->len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            close_input(r);
            return;
        }
        r->at += (size_t)n;
        r->len -= (size_t)n;
        r->last = r->waiting[r->at - 1];
        input_taken(r, (size_t)n);
    }
    r->at = 0;
    if (r->input_over && r->p->in >= 0)
        end_input(r);
}

static bool room(const struct relay *r)
{
    return WAITING_MAX - r->len >= AGENT_DATA_MAX;
}

static void input(struct relay *r, const uint8_t *data, size_t len)
{
    if (r->input_over)
        give_up("the host sent input after its end");
    r->input_over = !len;
    if (r->p->in < 0)
        input_taken(r, len);
    if (r->p->in >= 0 && len) {
        if (r->at + r->len + len > WAITING_MAX) {
            memmove(r->waiting, r->waiting + r->at, r->len);
            r->at = 0;
        }
        memcpy(r->waiting + r->at + r->len, data, len);
        r->len += len;
    }
    write_input(r);
}

/* The program is told as it would be on the host: SIGPIPE when it writes on. A terminal stays. */
static void close_output(struct relay *r, uint32_t number)
{
    if (r->p->out[number] >= 0)
        close(r->p->out[number]);
    r->p->out[number] = -1;
}

static void frame(struct relay *r, uint32_t type, const uint8_t *data, size_t len)
{
    struct agent_size size;
    uint32_t number;
    if (type == AGENT_INPUT) {
        input(r, data, len);
    } else if (type == AGENT_SIZE && len == sizeof(size) && r->p->terminal >= 0) {
        memcpy(&size, data, len);
        struct winsize w = {.ws_row = size.rows, .ws_col = size.columns};
        ioctl(r->p->terminal, TIOCSWINSZ, &w);
    } else if (type == AGENT_SIGNAL && len == sizeof(number)) {
        memcpy(&number, data, len);
        if (number < 1 || number >= NSIG)
            give_up("the host sent a signal %u", number);
        kill(-r->p->pid, (int)number);
    } else if (type == AGENT_CLOSED && len == sizeof(number)) {
        memcpy(&number, data, len);
        if (number != 1 && number != 2)
            give_up("the host closed descriptor %u", number);
        close_output(r, number);
    } else if (type == AGENT_TAKEN && len == sizeof(number)) {
        memcpy(&number, data, len);
        if (number > r->under_way)
            give_up("the host took %u bytes of output, of %u", number, r->under_way);
        r->under_way -= number;
    } else if (type != AGENT_NOTHING) {
        give_up("the host sent a frame of type %u and %zu bytes", type, len);
    }
}

/* ---- from the program ---- */

static bool may_send(const struct relay *r)
{
    return !r->window || r->under_way + 3 * TALK_OUTPUT_MAX <= r->window; /* of all three */
}

/* Sends up to `max` bytes of what is there; false: `*fd` has no more now. */
static bool output(struct relay *r, int *fd, uint32_t type, size_t max)
{
    char bytes[TALK_OUTPUT_MAX];
    if (*fd < 0)
        return false;
    ssize_t n = read(*fd, bytes, max < sizeof(bytes) ? max : sizeof(bytes));
    if (n > 0 && type)
        talk_send(r->t, type, bytes, (size_t)n);
    if (n > 0 && type && r->window)
        r->under_way += (uint32_t)n;
    if (n > 0)
        return true;
    if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        if (fd != &r->p->terminal)
            close(*fd);
        *fd = -1;
    }
    return false;
}

/* What the terminal shows is output of the descriptors that are it; if only what is typed there
 * comes from it, nobody reads that. */
static uint32_t terminal_type(const struct relay *r)
{
    const int *out = r->p->out;
    return out[1] < 0 ? AGENT_OUTPUT : out[2] < 0 ? AGENT_ERROR_OUTPUT : 0;
}

static void rest(struct relay *r, int *fd, uint32_t type)
{
    for (size_t sent = 0; sent < REST_MAX; sent += TALK_OUTPUT_MAX) {
        while (!may_send(r)) {
            talk_wait(r->t);
            frame(r, r->t->frame.head.type, r->t->frame.data, r->t->frame.head.len);
        }
        if (!output(r, fd, type, TALK_OUTPUT_MAX))
            return;
    }
}

static void reap(struct relay *r)
{
    struct signalfd_siginfo info;
    while (read(r->children, &info, sizeof(info)) > 0)
        ;
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
        if (pid == r->p->pid) {
            r->ended = true;
            r->status = status;
        }
}

enum { PORT, CHILDREN, INPUT, OUTPUT, ERROR_OUTPUT, TERMINAL, ALL };

static void once(struct relay *r, uint32_t shown)
{
    struct program *p = r->p;
    struct pollfd f[ALL] = {
        [PORT] = {r->t->fd, room(r) ? POLLIN : 0},
        [CHILDREN] = {r->children, POLLIN},
        [INPUT] = {p->in, r->len || r->input_over ? POLLOUT : 0},
        [OUTPUT] = {may_send(r) ? p->out[1] : -1, POLLIN},
        [ERROR_OUTPUT] = {may_send(r) ? p->out[2] : -1, POLLIN},
        [TERMINAL] = {may_send(r) ? p->terminal : -1, POLLIN},
    };
    if (poll(f, ALL, -1) < 0)
        return;
    if (f[OUTPUT].revents)
        output(r, &p->out[1], AGENT_OUTPUT, TALK_OUTPUT_MAX);
    if (f[ERROR_OUTPUT].revents)
        output(r, &p->out[2], AGENT_ERROR_OUTPUT, TALK_OUTPUT_MAX);
    if (f[TERMINAL].revents)
        output(r, &p->terminal, shown, TALK_OUTPUT_MAX);
    if (f[INPUT].revents & POLLERR)
        close_input(r); /* nobody reads it any more */
    else if (f[INPUT].revents)
        write_input(r);
    if (f[PORT].revents && !room(r) && f[PORT].revents & POLLHUP)
        host_gone();
    while (f[PORT].revents && room(r) && talk_next(r->t))
        frame(r, r->t->frame.head.type, r->t->frame.data, r->t->frame.head.len);
    if (f[CHILDREN].revents)
        reap(r);
}

int relay(struct talk *t, struct program *p, uint32_t window)
{
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    struct relay r = {.t = t, .p = p, .waiting = malloc(WAITING_MAX), .window = window};
    r.children = signalfd(-1, &children, SFD_NONBLOCK | SFD_CLOEXEC);
    if (r.children < 0 || !r.waiting)
        give_up("no memory");
    const uint32_t shown = terminal_type(&r);
    while (!r.ended)
        once(&r, shown);
    /* What is there; others may hold the pipes, and are not waited for. */
    rest(&r, &p->out[1], AGENT_OUTPUT);
    rest(&r, &p->out[2], AGENT_ERROR_OUTPUT);
    rest(&r, &p->terminal, shown);
    close(r.children);
    free(r.waiting);
    return r.status;
}
