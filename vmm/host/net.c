/* See net.h: the queue between a backend and the machine's feed. */
#include "host/net_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/clock.h"
#include "host/net_tap.h"
#include "host/net_unplugged.h"
#include "host/net_user.h"

#define WAITING_MAX (4u << 20)  /* bytes that wait for a guest that does not take them */
#define STALE_NS    2000000000u /* a frame is not kept longer for a guest that has no room */

struct frame {
    struct frame *next;
    u64 arrived; /* host_ns_coarse */
    u32 len;
    u8 data[];
};

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

unsigned net_prepare(struct net *n, struct pollfd *fds, unsigned cap, u64 *until)
{
    return n->backend->prepare(n, fds, cap, until);
}

void net_serve(struct net *n, const struct pollfd *fds, unsigned count)
{
    n->backend->serve(n, fds, count);
}

void net_settle(struct net *n)
{
    if (n->backend->settle)
        n->backend->settle(n);
}

bool net_is_up(const struct net *n)
{
    return n->link;
}

bool net_lives(const struct net *n)
{
    return !n->nobody;
}

const u8 *net_oldest(const struct net *n, u32 *len)
{
    *len = n->first ? n->first->len : 0;
    return n->first ? n->first->data : NULL;
}

void net_take(struct net *n)
{
    free(n->given);
    n->given = pop(n);
}

void net_drop_stale(struct net *n)
{
    u64 now = host_ns_coarse();
    while (n->first && now - n->first->arrived > STALE_NS)
        free(pop(n));
}

int net_create(struct net **out, const char *spec, unsigned unit, struct net_identity *d,
               struct err *err)
{
    struct net_options o;
    const bool has_card = d->mtu;
    int code = net_options_parse(&o, spec, err);
    if (code)
        return code;
    if (has_card && (o.mtu || net_has_mac(&o)))
        return err_set(err, -EINVAL, "--net: the machine has this card already, with its %s",
                       o.mtu ? "mtu" : "mac");
    struct net *n = calloc(1, sizeof(*n));
    if (!n)
        return err_set(err, -ENOMEM, "no memory for a network");
    n->unit = unit;
    n->link = true;
    if (!has_card) {
        d->mtu = (u16)(o.mtu ? o.mtu : 1500);
        /* Locally administered. */
        memcpy(d->mac, (const u8[]){0x52, 0x54, 0x00, 0x12, 0x34, (u8)(0x56 + unit)}, 6);
        if (net_has_mac(&o))
            memcpy(d->mac, o.mac, 6);
    }
    switch (o.kind) {
    case NET_USER: code = net_user_create(n, &o, d, err); break;
    case NET_TAP: code = net_tap_create(n, &o, d, err); break;
    case NET_UNPLUGGED: net_unplugged_create(n, d); break;
    }
    if (code) {
        free(n);
        return code;
    }
    n->frame_max = d->mtu + NET_LINK_OVERHEAD;
    *out = n;
    return 0;
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
