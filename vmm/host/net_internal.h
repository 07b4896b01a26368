/* What net.c (the queue of arrived frames) and its backends share. */
#ifndef REPRISE_HOST_NET_INTERNAL_H
#define REPRISE_HOST_NET_INTERNAL_H

#include "host/net.h"
#include "host/net_options.h"

/* A line for each forward. */
#define NET_NOTICE (NET_FORWARDS * 96u)

struct net_backend {
    unsigned (*prepare)(struct net *n, struct pollfd *fds, unsigned cap, u64 *until);
    void (*serve)(struct net *n, const struct pollfd *fds, unsigned count);
    void (*send)(struct net *n, const void *frame, size_t len);
    /* Waits, shortly, for what is answered at once to what was sent; NULL: nothing is. */
    void (*settle)(struct net *n);
    void (*destroy)(struct net *n);
};

struct net {
    const struct net_backend *backend;
    void *state; /* the backend's */
    unsigned unit;
    u32 frame_max;              /* longer ones do not fit the link */
    struct frame *first, *last; /* arrived, oldest first */
    struct frame *given;        /* handed over last: its bytes are still in use */
    size_t waiting;             /* bytes in the queue */
    bool link;                  /* is it up? */
    bool nobody;                /* ... and never will be */
    char notice[NET_NOTICE];    /* net_notice() */
};

/* A frame arrived for the guest. Dropped, as on a real wire, when too many wait. */
void net_arrived(struct net *n, const void *frame, size_t len);
/* Is there room for more? What a backend can leave where it is, it does. */
bool net_open(const struct net *n);
/* The link went up or down: what waits is lost with it. */
void net_link(struct net *n, bool up);
/* A line for net_notice(). */
void net_note(struct net *n, const char *fmt, ...) PRINTF(2, 3);

#endif
