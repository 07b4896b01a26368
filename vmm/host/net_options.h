/*
 * What --net was given, KIND[,OPTION]..., taken apart: pure text, no system calls, any bytes are
 * safe. The options are rows (net_options.c).
 */
#ifndef REPRISE_HOST_NET_OPTIONS_H
#define REPRISE_HOST_NET_OPTIONS_H

#include "base/err.h"
#include "base/parts.h"
#include "base/types.h"

#define NET_MTU_MIN  576u /* what every IPv4 host takes (RFC 791) */
#define NET_MTU_MAX  32000u
#define NET_FORWARDS 32u

enum net_kind { NET_USER, NET_TAP, NET_UNPLUGGED };
enum net_switch { NET_DEFAULT, NET_OFF, NET_ON };

/* From a port of the host to one of the guest. Addresses in the host's byte order. */
struct net_forward {
    bool udp;
    u32 host, guest; /* guest 0: the one that DHCP gives first */
    u16 host_port;   /* 0: any that is free */
    u16 guest_port;
};

struct net_forwards {
    unsigned n;
    struct net_forward at[NET_FORWARDS];
};

struct net_network {
    u32 net, mask;
};

struct net_options {
    enum net_kind kind;
    u8 mac[6]; /* zeros: not said */
    u32 mtu;   /* 0: the backend's default */
    /* user; addresses in the host's byte order */
    enum net_switch restricted, ipv6;
    struct net_network network; /* the guest's */
    u32 host, dhcp, dns;        /* in it: the host, DHCP's first address, the name server */
    char hostname[64];          /* DHCP tells the guest that it is called so; "": nothing */
    struct net_forwards forwards;
    /* tap */
    char ifname[16]; /* IFNAMSIZ, see netdevice(7) */
};

extern const struct parts net_parts; /* of a kind 1 << enum net_kind */

bool net_has_mac(const struct net_options *o);

/* Fills *o; -EINVAL with a text that names the option and says what it takes. */
int net_options_parse(struct net_options *o, const char *spec, struct err *err);

/* An address as text; returns `out`. */
char *net_address_text(u32 address, char out[16]);

#endif
