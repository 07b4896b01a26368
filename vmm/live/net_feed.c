/* See net_feed.h. */
#include "live/net_feed.h"

#include <assert.h>

#include "host/net_options.h"
#include "host/net_protocol.h"
#include "machine/machine.h"

static_assert(NET_MTU_MAX + NET_LINK_OVERHEAD <= INPUT_MAX && NETD_FRAME_MAX == INPUT_MAX,
              "a frame is one input");

static struct net_feed *self(struct feed *f)
{
    return (struct net_feed *)f;
}

static unsigned feed_prepare(struct feed *f, struct pollfd *fds, unsigned cap, u64 *until)
{
    return net_prepare(self(f)->net, fds, cap, until);
}

static void feed_serve(struct feed *f, const struct pollfd *fds, unsigned count)
{
    net_serve(self(f)->net, fds, count);
}

/* Some of whoever watches a link looks no more often than once a second. */
#define CABLE_NS 1000000000u

static bool feed_peek(struct feed *feed, struct machine *m, struct input *in)
{
    struct net_feed *f = self(feed);
    if (f->again) {
        f->guest_up = machine_link_up(m, f->unit);
        f->plugged = f->guest_up ? machine_now(m) + CABLE_NS : 0;
        f->again = false;
    }
    bool up = net_is_up(f->net) && machine_now(m) >= f->plugged;
    if (up != f->guest_up) {
        *in = (struct input){.kind = INPUT_LINK, .unit = f->unit, .arg = up};
        return machine_room(m, INPUT_LINK, f->unit);
    }
    u32 len;
    const u8 *frame = net_oldest(f->net, &len);
    if (!frame)
        return false;
    if (machine_room(m, INPUT_PACKET, f->unit) < len) {
        net_drop_stale(f->net);
        return false;
    }
    *in = (struct input){.kind = INPUT_PACKET, .unit = f->unit, .len = len, .data = frame};
    return true;
}

static void feed_taken(struct feed *feed, const struct input *in)
{
    struct net_feed *f = self(feed);
    if (in->kind == INPUT_LINK)
        f->guest_up = in->arg;
    else
        net_take(f->net);
}

static void feed_settle(struct feed *f)
{
    net_settle(self(f)->net);
}

static vns_t feed_due(const struct feed *feed)
{
    const struct net_feed *f = (const struct net_feed *)feed;
    return net_is_up(f->net) ? f->plugged : NEVER;
}

static bool feed_live(const struct feed *f)
{
    return net_lives(((const struct net_feed *)f)->net);
}

void net_feed_init(struct net_feed *f, struct net *net, unsigned unit, bool again)
{
    static const struct feed_ops ops = {.prepare = feed_prepare,
                                        .serve = feed_serve,
                                        .peek = feed_peek,
                                        .taken = feed_taken,
                                        .settle = feed_settle,
                                        .due = feed_due,
                                        .live = feed_live};
    *f = (struct net_feed){.feed = {&ops}, .net = net, .unit = unit, .again = again};
    f->guest_up = true; /* as the device begins */
}
