/* See net.h: the queue between a backend and the machine. */
#include "host/net_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "host/net_user.h"
#include "machine.h"

#define WAITING_MAX (4u << 20) /* bytes that wait for a guest that does not take them */

struct frame {
    struct frame *next;
    u32 len;
    u8 data[];
};

static struct net *self(struct feed *f)
{
    return (struct net *)f;
}

void net_arrived(struct net *n, const void *frame, size_t len)
{
    if (len < NET_FRAME_SHORTEST || len > INPUT_MAX || n->waiting + len > WAITING_MAX) {
        n->dropped++;
        return;
    }
    struct frame *f = malloc(sizeof(*f) + len);
    if (!f) {
        n->dropped++;
        return;
    }
    f->next = NULL;
    f->len = (u32)len;
    memcpy(f->data, frame, len);
    if (n->last)
        n->last->next = f;
    else
        n->first = f;
    n->last = f;
    n->waiting += len;
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
    if (!n->first || machine_room(m, INPUT_PACKET, n->unit) < n->first->len)
        return false;
    *in = (struct input){
        .kind = INPUT_PACKET, .unit = n->unit, .len = n->first->len, .data = n->first->data};
    return true;
}

static void feed_taken(struct feed *f, const struct input *in)
{
    struct net *n = self(f);
    free(n->given);
    n->given = n->first;
    n->first = n->given->next;
    if (!n->first)
        n->last = NULL;
    n->waiting -= n->given->len;
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
    struct net *n = calloc(1, sizeof(*n));
    if (!n)
        return err_set(err, -ENOMEM, "no memory for a network");
    n->feed.ops = &ops;
    n->unit = unit;
    d->mtu = 1500;
    memcpy(d->mac, (const u8[]){0x52, 0x54, 0x00, 0x12, 0x34, (u8)(0x56 + unit)}, 6);
    size_t kind = strcspn(spec, ",");
    int code;
    if (kind == 4 && !strncmp(spec, "user", kind))
        code = net_user_create(n, spec + kind, d, err);
    else
        code = err_set(err, -EINVAL, "--net %s: '%.*s' is neither user, tap nor none", spec,
                       (int)kind, spec);
    if (code) {
        free(n);
        return code;
    }
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
    while (n->first) {
        struct frame *next = n->first->next;
        free(n->first);
        n->first = next;
    }
    free(n);
}
