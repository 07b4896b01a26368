/*
 * What the machine's process and the companion of a network (reprise-net) say to each other: one
 * declaration for both ends. They are parts of one build; a companion of another version is
 * refused.
 *
 * The companion is started with a socket (SOCK_SEQPACKET) at NETD_SOCKET: start ->, <- hello, then
 * messages both ways, each a head and what belongs to its kind, until the machine's end is closed.
 */
#ifndef REPRISE_HOST_NET_PROTOCOL_H
#define REPRISE_HOST_NET_PROTOCOL_H

#include "host/net_options.h"

#define NETD_MAGIC   0x544e5652u /* "RVNT" */
#define NETD_VERSION 1u

#define NETD_SOCKET 3

struct netd_start {
    u32 magic, version;
    u32 mtu;
    struct net_options options; /* complete, as net_options_parse() leaves them */
};

enum netd_step {
    NETD_READY,
    NETD_OTHER_VERSION,
    NETD_NO_LIBRARY, /* libslirp does not start */
    NETD_NO_LISTEN,  /* forward number `forward` */
    NETD_NO_PORT,    /* ... listens, at a port that is not known */
    NETD_NO_SANDBOX,
};

struct netd_hello {
    u32 magic, version;
    u32 step;               /* enum netd_step: how far it came */
    i32 error;              /* errno */
    u32 forward;            /* below options.forwards.n */
    u16 port[NET_FORWARDS]; /* of the host, where forwards lead in */
};

enum netd_kind {
    NETD_FRAME = 1, /* an Ethernet frame of NETD_FRAME_MIN to NETD_FRAME_MAX bytes */
    NETD_SYNC,      /* a u64. It comes back after all that was answered at once to what was sent
                     * before it. */
};

#define NETD_FRAME_MIN 14u
#define NETD_FRAME_MAX (32u << 10) /* what one input of a machine can have */

struct netd_head {
    u32 kind;
};

struct netd_message {
    struct netd_head head;
    u8 body[NETD_FRAME_MAX];
};

#endif
