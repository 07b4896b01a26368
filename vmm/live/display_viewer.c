/*
 * Displays that people look at, VNC and a window: this end of the viewer (viewer/protocol.h), which
 * is started here and may die without harm. Pixels are fetched only when somebody looks, the viewer
 * has taken the picture before, and the guest has shown something; at most 30 times a second.
 */
#define _GNU_SOURCE /* memfd_create */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/clock.h"
#include "host/companion.h"
#include "live/display.h"
#include "live/input_queue.h"
#include "viewer/protocol.h"

#define INTERVAL_NS   33000000u /* of pictures */
#define LATER_NS      5000000u  /* when there is none yet */
#define START_MS      10000
#define MESSAGES_ONCE 16 /* of the viewer, so that one that floods does not stop the machine */

struct viewed {
    struct display display; /* first */
    enum display_kind kind;
    bool input;
    struct listener listener;
    pid_t pid;  /* 0: none */
    int fd;     /* -1: the viewer has gone */
    u8 *memory; /* VIEWER_MEMORY_SIZE; NULL: none */
    u8 *row;    /* of a picture, as R, G, B; room for row_width pixels */
    u32 row_width;
    u8 *line;   /* the same as the viewer has it */
    bool busy;  /* the picture is the viewer's */
    bool fresh; /* somebody new waits for one */
    i32 watchers;
    struct dev_screen shown; /* the last one */
    u64 next;                /* host time: not before */
    struct input_queue queue;
    char notice[1024];
};

static struct viewed *self(struct feed *f)
{
    return (struct viewed *)f;
}

/* ---- the viewer's end ---- */

static void lost(struct viewed *v, bool wrong)
{
    char how[128];
    close(v->fd);
    v->fd = -1;
    int status = wrong ? companion_kill(v->pid) : companion_wait(v->pid);
    v->pid = 0;
    input_queue_release(&v->queue);
    companion_how(status, how, sizeof(how));
    if (v->kind == DISPLAY_SDL && !status)
        fputs("reprise: the window was closed; the machine goes on\n", stderr);
    else
        fprintf(stderr, "reprise: the display has gone (%s); the machine goes on\n",
                wrong ? "it sent nonsense" : how);
}

/* false: no viewer says that. */
static bool take_event(struct viewed *v, const struct viewer_event *e)
{
    switch (e->kind) {
    case VIEWER_SHOWN: v->busy = false; return true;
    case VIEWER_WATCHERS:
        v->fresh = v->fresh || e->value > v->watchers;
        v->watchers = e->value;
        return true;
    case VIEWER_KEY: break;
    case VIEWER_MOVE: break;
    case VIEWER_WHEEL: break;
    default: return false;
    }
    if (!v->input)
        return true;
    if (e->kind == VIEWER_KEY)
        input_queue_key(&v->queue, e->code, e->value);
    else if (e->kind == VIEWER_MOVE)
        input_queue_move(&v->queue, e->code, e->value);
    else
        input_queue_wheel(&v->queue, e->code, e->value);
    return true;
}

static void listen_to(struct viewed *v)
{
    struct viewer_event batch[VIEWER_BATCH];
    for (unsigned k = 0; k < MESSAGES_ONCE && v->fd >= 0; k++) {
        ssize_t n = recv(v->fd, batch, sizeof(batch), MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            lost(v, false);
            return;
        }
        bool good = n % (ssize_t)sizeof(*batch) == 0;
        for (size_t i = 0; good && i < (size_t)n / sizeof(*batch); i++)
            good = take_event(v, &batch[i]);
        if (!good)
            lost(v, true);
    }
}

/* ---- pictures ---- */

static bool wants(struct viewed *v)
{
    struct dev_screen now;
    struct screen_source *s = &v->display.source;
    if (v->fd < 0 || v->busy || v->watchers <= 0 || !s->show(s->opaque, &now))
        return false;
    return v->fresh || !screen_same(&now, &v->shown);
}

/* A row of the picture to the shared memory; tells which tiles of it changed. */
static u64 put_row(struct viewed *v, u32 y, u32 width)
{
    struct screen_source *s = &v->display.source;
    u8 *there = v->memory + (size_t)y * VIEWER_SIDE * 4;
    u64 changed = 0;
    s->row(s->opaque, y, v->row);
    for (u32 x = 0; x < width; x++)
        memcpy(v->line + 4 * x, v->row + 3 * x, 3);
    for (u32 x = 0; x < width; x += VIEWER_TILE) {
        size_t n = (size_t)MIN(VIEWER_TILE, width - x) * 4;
        if (!memcmp(there + 4 * x, v->line + 4 * x, n))
            continue;
        memcpy(there + 4 * x, v->line + 4 * x, n);
        changed |= 1ull << x / VIEWER_TILE;
    }
    return changed;
}

static void show(struct viewed *v)
{
    struct screen_source *s = &v->display.source;
    struct viewer_update u = {0};
    struct dev_screen screen = v->shown;
    enum screen_answer answer = s->fetch(s->opaque, &screen);
    v->next = host_ns() + (answer == SCREEN_LATER ? LATER_NS : INTERVAL_NS);
    if (answer == SCREEN_LATER)
        return;
    if (answer == SCREEN_GONE)
        screen.width = screen.height = 0;
    if (screen.width > v->row_width) {
        u8 *row = realloc(v->row, (size_t)screen.width * 3);
        if (!row)
            return; /* tried again */
        v->row = row;
        v->row_width = screen.width;
    }
    v->shown = screen;
    v->fresh = false;
    u.width = MIN(screen.width, VIEWER_SIDE);
    u.height = u.width ? MIN(screen.height, VIEWER_SIDE) : 0;
    for (u32 y = 0; y < u.height; y++)
        u.tiles[y / VIEWER_TILE] |= put_row(v, y, u.width);
    /* At most this one is under way: there is room for it. */
    v->busy = true;
    if (send(v->fd, &u, sizeof(u), MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof(u))
        lost(v, false);
}

/* ---- the feed ---- */

static unsigned feed_prepare(struct feed *f, struct pollfd *fds, unsigned cap, u64 *until)
{
    struct viewed *v = self(f);
    if (v->fd < 0)
        return 0;
    if (cap)
        fds[0] = (struct pollfd){.fd = v->fd, .events = POLLIN};
    if (wants(v))
        *until = MIN(*until, MAX(v->next, 1u));
    return 1;
}

static void feed_serve(struct feed *f, const struct pollfd *fds, unsigned n)
{
    struct viewed *v = self(f);
    if (n && fds[0].revents)
        listen_to(v);
    if (wants(v) && host_ns() >= v->next)
        show(v);
}

static bool feed_peek(struct feed *f, struct machine *m, struct input *in)
{
    struct viewed *v = self(f);
    const u32 room[INPUT_UNITS] = {machine_room(m, INPUT_EVENTS, INPUT_UNIT_KEYBOARD),
                                   machine_room(m, INPUT_EVENTS, INPUT_UNIT_TABLET)};
    const struct input_report *r = input_queue_peek(&v->queue, room);
    if (!r)
        return false;
    *in = (struct input){.kind = INPUT_EVENTS, .unit = r->unit, .len = r->len, .data = r->events};
    return true;
}

static void feed_taken(struct feed *f, const struct input *in)
{
    input_queue_take(&self(f)->queue, in->unit);
}

static bool feed_live(const struct feed *f)
{
    const struct viewed *v = (const struct viewed *)f;
    return v->fd >= 0 && v->input;
}

static const struct feed_ops feed_ops = {.prepare = feed_prepare,
                                         .serve = feed_serve,
                                         .peek = feed_peek,
                                         .taken = feed_taken,
                                         .live = feed_live};

/* ---- creation ---- */

static int read_password(const char *path, char password[VIEWER_PASSWORD_MAX + 1], struct err *err)
{
    char text[64];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n < 0)
        err_errno(err, "cannot read the password in %s", path);
    if (fd >= 0)
        close(fd);
    if (n < 0)
        return err->code;
    text[n] = 0;
    size_t len = strcspn(text, "\r\n");
    if (!len || len > VIEWER_PASSWORD_MAX)
        return err_set(err, -EINVAL,
                       "%s: a VNC password has 1 to %u characters, in the first line of its file",
                       path, VIEWER_PASSWORD_MAX);
    memcpy(password, text, len);
    password[len] = 0;
    return 0;
}

static int open_vnc(struct viewed *v, const struct display_spec *s, struct viewer_start *start,
                    struct err *err)
{
    int code = *s->password_file ? read_password(s->password_file, start->password, err) : 0;
    if (!code)
        code = listener_open(&v->listener, &s->endpoint, err);
    if (code)
        return code;
    bool here = listener_local(&v->listener), password = *start->password;
    if (!here && !password && !s->open)
        return err_set(err, -EACCES,
                       "vnc=%s: whoever reaches that address would see and control the guest; give "
                       "password-file=FILE, or open if that is meant",
                       v->listener.address);
    start->ours_only = here && !password && !s->open && !v->listener.made_file;
    int n = snprintf(v->notice, sizeof(v->notice), "reprise: the screen by VNC: %s%s\n",
                     v->listener.made_file ? "unix:" : "", v->listener.address);
    const char *warning =
        here ? (password || v->listener.made_file || start->ours_only
                    ? ""
                    : "reprise: every user of this host can see and control the guest there\n")
             : (password ? "reprise: VNC is not encrypted: whoever listens on the way sees what is "
                           "shown and typed\n"
                         : "reprise: warning: whoever reaches that address can see and control the "
                           "guest\n");
    snprintf(v->notice + n, sizeof(v->notice) - (size_t)n, "%s", warning);
    return 0;
}

static int make_memory(struct viewed *v, int *fd, struct err *err)
{
    *fd = memfd_create("reprise-display", MFD_CLOEXEC);
    if (*fd < 0 || ftruncate(*fd, (off_t)VIEWER_MEMORY_SIZE))
        return err_errno(err, "cannot make memory for the display");
    void *memory = mmap(NULL, VIEWER_MEMORY_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (memory == MAP_FAILED)
        return err_errno(err, "cannot map memory for the display");
    v->memory = memory;
    v->line = calloc(VIEWER_SIDE, 4);
    return v->line ? 0 : err_set(err, -ENOMEM, "no memory for the display");
}

static int greet(struct viewed *v, const struct viewer_start *start, struct err *err)
{
    struct viewer_hello hello;
    struct pollfd fd = {.fd = v->fd, .events = POLLIN};
    int ready = 0;
    ssize_t n = -1;
    if (send(v->fd, start, sizeof(*start), MSG_NOSIGNAL) == sizeof(*start)) {
        while ((ready = poll(&fd, 1, START_MS)) < 0 && errno == EINTR)
            ;
        if (ready > 0)
            n = recv(v->fd, &hello, sizeof(hello), 0);
    }
    if (!ready)
        return err_set(err, -ETIMEDOUT, "the display did not start within %u s", START_MS / 1000);
    if (n != sizeof(hello) || hello.magic != VIEWER_MAGIC || hello.version != VIEWER_VERSION)
        return err_set(err, -EPROTO, "the display did not start, or is of another version");
    hello.text[sizeof(hello.text) - 1] = 0;
    return hello.failed ? err_set(err, -ENODEV, "the display: %s", hello.text) : 0;
}

static int start_viewer(struct viewed *v, const struct viewer_start *start, struct err *err)
{
    int pair[2], memory = -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
        return err_errno(err, "cannot make a socket for the display");
    v->fd = pair[0];
    int code = make_memory(v, &memory, err);
    struct companion_config c = {.what = "the display",
                                 .name = "reprise-display",
                                 .fds = {pair[1], memory, v->listener.fd},
                                 .nfds = v->kind == DISPLAY_VNC ? 3 : 2,
                                 .voice = -1};
    if (!code)
        code = companion_start(&v->pid, &c, err);
    close(pair[1]);
    if (memory >= 0)
        close(memory);
    return code ? code : greet(v, start, err);
}

static const char *notice(const struct display *d)
{
    return ((const struct viewed *)d)->notice;
}

static int finish(struct display *d, struct err *err)
{
    return 0;
}

static void destroy(struct display *d)
{
    struct viewed *v = (struct viewed *)d;
    if (v->fd >= 0)
        close(v->fd);
    if (v->pid)
        companion_wait(v->pid);
    listener_close(&v->listener);
    if (v->memory)
        munmap(v->memory, VIEWER_MEMORY_SIZE);
    free(v->row);
    free(v->line);
    free(v);
}

static const struct display_ops display_ops = {notice, finish, destroy};

int display_viewer_create(struct display **out, const struct display_spec *s,
                          const struct display_config *c, struct err *err)
{
    struct viewed *v = calloc(1, sizeof(*v));
    if (!v)
        return err_set(err, -ENOMEM, "no memory for a display");
    v->display = (struct display){{&feed_ops}, c->source, &display_ops};
    v->kind = s->kind;
    v->input = c->input;
    v->fd = -1;
    v->listener = LISTENER_CLOSED;
    struct viewer_start start = {.magic = VIEWER_MAGIC,
                                 .version = VIEWER_VERSION,
                                 .kind = s->kind == DISPLAY_SDL ? VIEWER_SDL : VIEWER_VNC,
                                 .input = c->input,
                                 .width = c->width,
                                 .height = c->height};
    snprintf(start.title, sizeof(start.title), "Reprise: %.100s%s", c->recording,
             c->input ? "" : " (replay)");
    int code = s->kind == DISPLAY_VNC ? open_vnc(v, s, &start, err) : 0;
    if (!code)
        code = start_viewer(v, &start, err);
    explicit_bzero(start.password, sizeof(start.password));
    if (code) {
        destroy(&v->display);
        return err_prefix(err, "--display");
    }
    *out = &v->display;
    return 0;
}
