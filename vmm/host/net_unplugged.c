/* See net_unplugged.h. */
#include "host/net_unplugged.h"

#include <stdio.h>

static unsigned prepare(struct net *n, struct pollfd *fds, unsigned cap, u64 *until)
{
    return 0;
}

static void serve(struct net *n, const struct pollfd *fds, unsigned count)
{
}

static void drop(struct net *n, const void *frame, size_t len)
{
}

static void destroy(struct net *n)
{
}

void net_unplugged_create(struct net *n, struct net_identity *d)
{
    static const struct net_backend backend = {
        .prepare = prepare, .serve = serve, .send = drop, .destroy = destroy};
    n->backend = &backend;
    n->link = false;
    n->nobody = true;
    snprintf(d->backend, sizeof(d->backend), "unplugged");
}
