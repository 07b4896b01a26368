/* What net.c (the queue of arrived frames, the feed) and its backends share. */
#ifndef REPRISE_HOST_NET_INTERNAL_H
#define REPRISE_HOST_NET_INTERNAL_H

#include "host/net.h"

struct net_backend {
    unsigned (*prepare)(struct net *n, struct pollfd *fds, unsigned cap, u64 *until);
    void (*serve)(struct net *n, const struct pollfd *fds, unsigned count);
    void (*send)(struct net *n, const void *frame, size_t len);
    void (*destroy)(struct net *n);
};

struct net {
    struct feed feed; /* first */
    const struct net_backend *backend;
    void *state; /* the backend's */
    unsigned unit;
    struct frame *first, *last; /* arrived, oldest first */
    struct frame *given;        /* handed over last: its bytes are still in use */
    size_t waiting;             /* bytes in the queue */
    u64 dropped;                /* frames for which there was no room */
};

/* A frame arrived for the guest. Dropped, as on a real wire, when too many wait. */
void net_arrived(struct net *n, const void *frame, size_t len);

#endif
