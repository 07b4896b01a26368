/*
 * The host's side of a network while a machine is recorded: a feed of the frames that arrive, and
 * where the guest's frames go. A replay has none.
 *
 * Backends: net_user.c (libslirp: NAT in user space, no privileges), net_tap.c (a tap device).
 */
#ifndef REPRISE_HOST_NET_H
#define REPRISE_HOST_NET_H

#include "base/err.h"
#include "host/feed.h"

#define NET_FRAME_SHORTEST 14u /* an Ethernet header */

struct net;

/* What of it the guest sees, and what it was. */
struct net_identity {
    u8 mac[6];
    u16 mtu;
    char backend[64]; /* for people */
};

/*
 * `spec` is what --net was given (net_options.h). Opens sockets and devices, so that what is wrong
 * with them is said before the machine starts. `unit` is its number, from 0.
 */
int net_create(struct net **out, const char *spec, unsigned unit, struct net_identity *d,
               struct err *err);
struct feed *net_feed(struct net *n);
/* A frame from the guest. */
void net_send(struct net *n, const void *frame, size_t len);
/* Lines about it that the user should read when the machine starts; "" for none. */
const char *net_notice(const struct net *n);
void net_destroy(struct net *n); /* NULL is safe */

#endif
