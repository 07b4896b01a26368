/* A network on a tap device that is there already (net.h). */
#ifndef REPRISE_HOST_NET_TAP_H
#define REPRISE_HOST_NET_TAP_H

#include "host/net_internal.h"

int net_tap_create(struct net *n, const struct net_options *o, struct net_identity *d,
                   struct err *err);

#endif
