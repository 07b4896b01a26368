/* reprise-display: see viewer.h. Started by reprise (vmm/live/display_viewer.c), not by people. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/input_report.h"
#include "host/sandbox.h"
#include "viewer/viewer.h"

/* false: the machine takes nothing now. */
static bool send_batch(struct viewer *v, int how)
{
    ssize_t n;
    do
        n = send(VIEWER_SOCKET, v->batch, v->events * sizeof(*v->batch), MSG_NOSIGNAL | how);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return false;
    if (n < 0)
        exit(0); /* it has gone */
    v->events = 0;
    return true;
}

static void flush(struct viewer *v)
{
    if (v->events)
        send_batch(v, MSG_DONTWAIT);
}

void viewer_say(struct viewer *v, enum viewer_event_kind kind, u16 code, i32 value)
{
    /* A machine that stands still need not know all the ways that the pointer went. */
    bool again = kind == VIEWER_MOVE && v->events && v->batch[v->events - 1].kind == kind;
    if (!again && v->events == VIEWER_BATCH)
        send_batch(v, 0);
    v->batch[again ? v->events - 1 : v->events++] = (struct viewer_event){(u16)kind, code, value};
}

/* To the middle of the pixel. */
static i32 scale(i32 at, u32 size)
{
    i64 range = INPUT_AXIS_MAX + 1, pixel = MIN(MAX(at, 0), (i32)size - 1);
    return (i32)((2 * pixel + 1) * range / (2 * (i64)size));
}

void viewer_say_move(struct viewer *v, i32 x, i32 y)
{
    viewer_say(v, VIEWER_MOVE, (u16)scale(x, v->width), scale(y, v->height));
}

/* A picture of that size, black. */
static bool resize(struct viewer *v, u32 width, u32 height)
{
    u8 *picture = calloc((size_t)width * height, 4);
    if (!picture)
        return false;
    free(v->picture);
    v->picture = picture;
    v->width = width;
    v->height = height;
    return true;
}

static void copy(struct viewer *v, u32 x, u32 y, u32 width, u32 height)
{
    for (u32 row = y; row < y + height; row++)
        memcpy(v->picture + ((size_t)row * v->width + x) * 4,
               v->memory + ((size_t)row * VIEWER_SIDE + x) * 4, (size_t)width * 4);
}

/* The tiles that changed, several of a row at once. */
static void take_tiles(struct viewer *v, const struct viewer_kind_ops *ops,
                       const struct viewer_update *u)
{
    for (u32 y = 0; y * VIEWER_TILE < v->height; y++)
        for (u32 x = 0; x * VIEWER_TILE < v->width; x++) {
            u32 first = x;
            while (x < VIEWER_TILES && x * VIEWER_TILE < v->width && u->tiles[y] >> x & 1)
                x++;
            if (first == x)
                continue;
            u32 left = first * VIEWER_TILE, top = y * VIEWER_TILE;
            u32 width = MIN(x * VIEWER_TILE, v->width) - left;
            u32 height = MIN(top + VIEWER_TILE, v->height) - top;
            copy(v, left, top, width, height);
            ops->changed(v, left, top, width, height);
        }
}

static bool take_update(struct viewer *v, const struct viewer_kind_ops *ops,
                        const struct viewer_update *u)
{
    bool off = !u->width || !u->height;
    if (u->width > VIEWER_SIDE || u->height > VIEWER_SIDE)
        return false;
    if (off && !v->off) {
        memset(v->picture, 0, (size_t)v->width * v->height * 4);
        ops->changed(v, 0, 0, v->width, v->height);
    } else if (!off && (u->width != v->width || u->height != v->height)) {
        u8 *old = v->picture;
        v->picture = NULL;
        if (!resize(v, u->width, u->height)) {
            v->picture = old;
            return false;
        }
        copy(v, 0, 0, v->width, v->height);
        ops->resized(v); /* from the old memory */
        free(old);
    } else if (!off && v->off) {
        copy(v, 0, 0, v->width, v->height);
        ops->changed(v, 0, 0, v->width, v->height);
    } else if (!off) {
        take_tiles(v, ops, u);
    }
    v->off = off;
    ops->updated(v);
    viewer_say(v, VIEWER_SHOWN, 0, 0);
    return true;
}

/* false: that is the end. */
static bool take_message(struct viewer *v, const struct viewer_kind_ops *ops)
{
    struct viewer_update u;
    ssize_t n = recv(VIEWER_SOCKET, &u, sizeof(u), MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    return n == sizeof(u) && take_update(v, ops, &u);
}

static bool receive_start(struct viewer *v)
{
    ssize_t n = recv(VIEWER_SOCKET, &v->start, sizeof(v->start), 0);
    struct viewer_start *s = &v->start;
    return n == sizeof(*s) && s->magic == VIEWER_MAGIC && s->width && s->height &&
           s->width <= VIEWER_SIDE && s->height <= VIEWER_SIDE &&
           memchr(s->password, 0, sizeof(s->password)) && memchr(s->title, 0, sizeof(s->title));
}

int main(int argc, char **argv)
{
    struct viewer *v = calloc(1, sizeof(*v));
    struct viewer_hello hello = {.magic = VIEWER_MAGIC, .version = VIEWER_VERSION, .failed = 1};
    const struct rlimit none = {0, 0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    setrlimit(RLIMIT_CORE, &none); /* it would hold the password */
    signal(SIGPIPE, SIG_IGN);
    if (!v || !receive_start(v)) {
        fprintf(stderr, "reprise-display: reprise starts this, for record --display\n");
        return 2;
    }
    const struct viewer_kind_ops *ops = v->start.kind == VIEWER_SDL ? &viewer_sdl : &viewer_vnc;
    v->memory = mmap(NULL, VIEWER_MEMORY_SIZE, PROT_READ, MAP_SHARED, VIEWER_MEMORY, 0);
    v->off = true;
    bool good = v->start.version == VIEWER_VERSION;
    if (!good)
        snprintf(hello.text, sizeof(hello.text), "it is of another version");
    else if (v->memory == MAP_FAILED || !resize(v, v->start.width, v->start.height))
        good = snprintf(hello.text, sizeof(hello.text), "no memory: %s", strerror(errno)) < 0;
    else
        good = ops->open(v, hello.text, sizeof(hello.text));
    if (good && ops == &viewer_vnc) {
        struct err err;
        sandbox_plan(SANDBOX_LISTEN | SANDBOX_ALONE);
        good = !sandbox_enter(&err);
        if (!good)
            snprintf(hello.text, sizeof(hello.text), "%.200s", err.text);
    }
    hello.failed = !good;
    if (send(VIEWER_SOCKET, &hello, sizeof(hello), MSG_NOSIGNAL) < 0 || !good)
        return 1;
    flush(v);
    while (ops->serve(v) && take_message(v, ops))
        flush(v);
    ops->close(v);
    free(v->picture);
    free(v);
    return 0;
}
