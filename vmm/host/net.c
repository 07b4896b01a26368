/* See net.h: the queue between a backend and the machine. */
#include "host/net_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/clock.h"
#include "host/net_tap.h"
#include "host/net_user.h"
#include "machine.h"

#define WAITING_MAX (4u << 20)  /* bytes that wait for a guest that does not take them */
#define STALE_NS    2000000000u /* a frame is not kept longer for a guest that has no room */

/* Ethernet header and up to two VLAN tags. */
#define LINK_OVERHEAD 22u

struct frame {
    struct frame *next;
    u64 arrived; /* host_ns_coarse */
    u32 len;
    u8 data[];
};

static struct net *self(struct feed *f)
{
    return (struct net *)f;
}

bool net_open(const struct net *n)
{
    return n->waiting < WAITING_MAX / 2;
}

void net_arrived(struct net *n, const void *frame, size_t len)
{
    if (len < NET_FRAME_SHORTEST || len > n->frame_max || !n->link ||
        n->waiting + len > WAITING_MAX)
        return;
    struct frame *f = malloc(sizeof(*f) + len);
    if (!f)
        return;
    f->next = NULL;
    f->arrived = host_ns_coarse();
    f->len = (u32)len;
    memcpy(f->data, frame, len);
    if (n->last)
        n->last->next = f;
    else
        n->first = f;
    n->last = f;
    n->waiting += len;
}

/* Takes the oldest frame out of the queue. */
static struct frame *pop(struct net *n)
{
    struct frame *f = n->first;
    n->first = f->next;
    if (!n->first)
        n->last = NULL;
    n->waiting -= f->len;
    return f;
}

static void drop_all(struct net *n)
{
    while (n->first)
        free(pop(n));
}

void net_link(struct net *n, bool up)
{
    n->link = up;
    if (!up)
        drop_all(n);
}

void net_note(struct net *n, const char *fmt, ...)
{
    va_list args;
    size_t used = strlen(n->notice);
    va_start(args, fmt);
    vsnprintf(n->notice + used, sizeof(n->notice) - used, fmt, args);
    va_end(args);
}

const char *net_notice(const struct net *n)
{
    return n->notice;
}

static unsigned feed_prepare(struct feed *f, struct pollfd *fds, unsigned cap, u64 *until)
{
    struct net *n = self(f);
    return n->backend->prepare(n, fds, cap, until);
}

static void feed_serve(struct feed *f, const struct pollfd *fds, unsigned count)
{
    struct net *n = self(f);
    n->backend->serve(n, fds, count);
}

static bool feed_peek(struct feed *f, struct machine *m, struct input *in)
{
    struct net *n = self(f);
    if (n->link != n->guest_link) {
        *in = (struct input){.kind = INPUT_LINK, .unit = n->unit, .arg = n->link};
        return machine_room(m, INPUT_LINK, n->unit);
    }
    if (!n->first)
        return false;
    if (machine_room(m, INPUT_PACKET, n->unit) < n->first->len) {
        /* A guest without a driver would find the traffic of its whole boot. */
        u64 now = host_ns_coarse();
        while (n->first && now - n->first->arrived > STALE_NS)
            free(pop(n));
        return false;
    }
    *in = (struct input){
        .kind = INPUT_PACKET, .unit = n->unit, .len = n->first->len, .data = n->first->data};
    return true;
}

static void feed_taken(struct feed *f, const struct input *in)
{
    struct net *n = self(f);
    if (in->kind == INPUT_LINK) {
        n->guest_link = in->arg;
        return;
    }
    free(n->given);
    n->given = pop(n);
}

static bool feed_live(const struct feed *f)
{
    return true;
}

static const struct feed_ops ops = {.prepare = feed_prepare,
                                    .serve = feed_serve,
                                    .peek = feed_peek,
                                    .taken = feed_taken,
                                    .live = feed_live};

int net_create(struct net **out, const char *spec, unsigned unit, struct net_identity *d,
               struct err *err)
{
    struct net_options o;
    int code = net_options_parse(&o, spec, err);
    if (code)
        return code;
    struct net *n = calloc(1, sizeof(*n));
    if (!n)
        return err_set(err, -ENOMEM, "no memory for a network");
    n->feed.ops = &ops;
    n->unit = unit;
    n->link = n->guest_link = true; /* as the device begins */
    memset(d, 0, sizeof(*d));
    d->mtu = (u16)(o.mtu ? o.mtu : 1500);
    /* Locally administered. */
    memcpy(d->mac, (const u8[]){0x52, 0x54, 0x00, 0x12, 0x34, (u8)(0x56 + unit)}, 6);
    if (o.has_mac)
        memcpy(d->mac, o.mac, 6);
    code = o.kind == NET_TAP ? net_tap_create(n, &o, d, err) : net_user_create(n, &o, d, err);
    if (code) {
        free(n);
        return code;
    }
    n->frame_max = MIN(d->mtu + LINK_OVERHEAD, INPUT_MAX);
    *out = n;
    return 0;
}

struct feed *net_feed(struct net *n)
{
    return &n->feed;
}

void net_send(struct net *n, const void *frame, size_t len)
{
    n->backend->send(n, frame, len);
}

void net_destroy(struct net *n)
{
    if (!n)
        return;
    n->backend->destroy(n);
    free(n->given);
    drop_all(n);
    free(n);
}
