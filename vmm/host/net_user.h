/*
 * A network in user space: DHCP, DNS, NAT, no privileges (net.h). This end of reprise-net
 * (host/net_protocol.h), which has libslirp and its sockets; it is started here and may die without
 * harm: the guest's link is down then.
 */
#ifndef REPRISE_HOST_NET_USER_H
#define REPRISE_HOST_NET_USER_H

#include "host/net_internal.h"

int net_user_create(struct net *n, const struct net_options *o, struct net_identity *d,
                    struct err *err);

#endif
