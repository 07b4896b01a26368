/* A network in user space by libslirp: DHCP, DNS, NAT, no root (net.h). */
#ifndef REPRISE_HOST_NET_USER_H
#define REPRISE_HOST_NET_USER_H

#include "host/net_internal.h"

/* `options` is what stands behind "user", with its comma; "" for none. */
int net_user_create(struct net *n, const char *options, struct net_identity *d, struct err *err);

#endif
