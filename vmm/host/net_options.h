/*
 * What --net was given, taken apart: pure text, no system calls, any bytes are safe.
 *
 *     user[,hostfwd=tcp|udp:[ADDRESS]:PORT-[ADDRESS]:PORT]...[,restrict=on|off][,ipv6=on|off]
 *         [,net=ADDRESS[/BITS]][,dhcpstart=ADDRESS][,dns=ADDRESS][,hostname=NAME]
 *     tap,ifname=NAME
 *
 * and with either mac=XX:XX:XX:XX:XX:XX and mtu=N.
 */
#ifndef REPRISE_HOST_NET_OPTIONS_H
#define REPRISE_HOST_NET_OPTIONS_H

#include "base/err.h"
#include "base/types.h"

#define NET_MTU_MIN  576u /* what every IPv4 host takes (RFC 791) */
#define NET_MTU_MAX  32000u
#define NET_FORWARDS 32u

enum net_kind { NET_USER, NET_TAP };
enum net_switch { NET_DEFAULT, NET_OFF, NET_ON };

/* From a port of the host to one of the guest. Addresses in the host's byte order. */
struct net_forward {
    bool udp;
    u32 host, guest; /* guest 0: the one that DHCP gives first */
    u16 host_port;   /* 0: any that is free */
    u16 guest_port;
};

struct net_options {
    enum net_kind kind;
    bool has_mac;
    u8 mac[6];
    u32 mtu; /* 0: the backend's default */
    /* user; addresses in the host's byte order */
    enum net_switch restricted, ipv6;
    u32 net, mask;       /* guest's network */
    u32 host, dhcp, dns; /* in it: the host, DHCP's first address, the name server */
    char hostname[64];   /* DHCP tells the guest that it is called so; "": nothing */
    unsigned nforwards;
    struct net_forward forward[NET_FORWARDS];
    /* tap */
    char ifname[16]; /* IFNAMSIZ, see netdevice(7) */
};

/* Fills *o; -EINVAL with a text that names the option and says what it takes. */
int net_options_parse(struct net_options *o, const char *spec, struct err *err);

/* An address as text; returns `out`. */
char *net_address_text(u32 address, char out[16]);

#endif
