/*
 * The host's side of a network while a machine is recorded: the frames that arrive, which wait in a
 * queue, bounded, and where the guest's frames go. A replay has none. live/net_feed.h hands over.
 *
 * Backends: net_user.c (libslirp: NAT in user space, no privileges), net_tap.c (a tap device),
 * net_unplugged.c (none).
 */
#ifndef REPRISE_HOST_NET_H
#define REPRISE_HOST_NET_H

#include <poll.h>

#include "base/err.h"
#include "base/types.h"

#define NET_FRAME_SHORTEST 14u /* an Ethernet header */
#define NET_LINK_OVERHEAD  22u /* of frames beyond the MTU: that, and up to two VLAN tags */

struct net;

/* What of it the guest sees, and what it was. */
struct net_identity {
    u8 mac[6];
    u16 mtu;
    char backend[64]; /* for people */
};

/*
 * `spec` is what --net was given (net_options.h). Opens sockets and devices, so that what is wrong
 * with them is said before the machine starts. `unit` is its number, from 0. *d is filled in; of a
 * machine that has the card already (d->mtu is not 0) its MAC and MTU are given and stay.
 */
int net_create(struct net **out, const char *spec, unsigned unit, struct net_identity *d,
               struct err *err);
/* A frame from the guest. */
void net_send(struct net *n, const void *frame, size_t len);
/* Lines about it that the user should read when the machine starts; "" for none. */
const char *net_notice(const struct net *n);
void net_destroy(struct net *n); /* NULL is safe */

/* ---- what arrives ---- */

/* Descriptors to wait for, and serving them: struct feed_ops has the same. */
unsigned net_prepare(struct net *n, struct pollfd *fds, unsigned cap, u64 *until);
void net_serve(struct net *n, const struct pollfd *fds, unsigned count);
/* Waits, shortly, for what is answered at once to what was sent. */
void net_settle(struct net *n);
bool net_is_up(const struct net *n);
/* Can anything ever arrive? */
bool net_lives(const struct net *n);
/* The frame that has waited longest, NULL: none. */
const u8 *net_oldest(const struct net *n, u32 *len);
/* Takes it out of the queue; its bytes stay valid until the next net_take(). */
void net_take(struct net *n);
/* A guest without a driver would find the traffic of its whole boot: frames that waited for too
 * long are gone. */
void net_drop_stale(struct net *n);

#endif
