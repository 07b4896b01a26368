/* A network (host/net.h) as a feed: frames that arrive, and whether the link is up. */
#ifndef REPRISE_LIVE_NET_FEED_H
#define REPRISE_LIVE_NET_FEED_H

#include "host/net.h"
#include "live/feed.h"

struct net_feed {
    struct feed feed; /* first */
    struct net *net;
    unsigned unit;
    bool guest_up; /* what the guest was told of the link */
    bool again;    /* the machine had another network, which is not noticed yet */
    vns_t plugged; /* virtual time up to which the cable is out */
};

/* `net` outlives it; `unit` is its number, from 0. `again`: of a machine that was connected to
 * another one: if it takes its link for up, it sees it down for a second first. Nothing is to be
 * freed. */
void net_feed_init(struct net_feed *f, struct net *net, unsigned unit, bool again);

#endif
