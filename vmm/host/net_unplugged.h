/* The backend of a network whose cable leads nowhere: a card that a machine has so that one that
 * begins in it (`record --from`) may have a network. */
#ifndef REPRISE_HOST_NET_UNPLUGGED_H
#define REPRISE_HOST_NET_UNPLUGGED_H

#include "host/net_internal.h"

void net_unplugged_create(struct net *n, struct net_identity *d);

#endif
