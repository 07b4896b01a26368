/* A network in user space by libslirp: DHCP, DNS, NAT, no privileges (net.h). */
#ifndef REPRISE_HOST_NET_USER_H
#define REPRISE_HOST_NET_USER_H

#include "host/net_internal.h"

int net_user_create(struct net *n, const struct net_options *o, struct net_identity *d,
                    struct err *err);

#endif
