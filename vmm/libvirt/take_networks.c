/* Network cards: see plan.h. */
#define _GNU_SOURCE
#include "libvirt/plan.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "board/description.h"

#define WHAT 160
#define TAP                                                                                        \
    "a tap device in it: `ip tuntap add dev NAME mode tap user $USER`, `ip link set NAME up "      \
    "master BRIDGE`; --net none --net tap,ifname=NAME"

enum reach { REACH_OUT, REACH_HOST, REACH_BRIDGE, REACH_UNKNOWN };

/* Where one of libvirt's own networks leads. */
static enum reach reach_of(const struct plan *p, const char *name)
{
    char other[256];
    for (xmlNodePtr n = xml_find(p->facts.networks, "network"); n; n = xml_next(n)) {
        if (strcmp(xml_text(xml_find(n, "name"), other, sizeof(other)), name))
            continue;
        xmlNodePtr forward = xml_find(n, "forward");
        return !forward                                    ? REACH_HOST
               : !xml_has(forward, "mode")                 ? REACH_OUT
               : xml_is(forward, "mode", "nat|route|open") ? REACH_OUT
                                                           : REACH_BRIDGE;
    }
    return REACH_UNKNOWN;
}

/* One of libvirt's. Returns what --net begins with. */
static const char *put_network(struct plan *p, xmlNodePtr card, const char *what)
{
    char name[256], how[400];
    xml_attribute(xml_find(card, "source"), "network", name, sizeof(name));
    enum reach reach = reach_of(p, name);
    if (reach == REACH_HOST) {
        snprintf(how, sizeof(how), "libvirt's network '%s' leads nowhere: neither does this one",
                 name);
        plan_otherwise(p, what, how, "--net none --net user for the way out");
        return "user,restrict=on";
    }
    if (reach == REACH_BRIDGE) {
        snprintf(how, sizeof(how),
                 "libvirt's network '%s' is a bridge of the host's: this is a network of its own, "
                 "with a way out",
                 name);
        plan_otherwise(p, what, how, TAP);
        return "user";
    }
    snprintf(how, sizeof(how),
             "libvirt's network '%s' is another one: this is one of its own, 10.0.2.0/24, with a "
             "way out%s",
             name,
             reach == REACH_UNKNOWN && strcmp(name, "default")
                 ? " (where that one leads is not known here)"
                 : "");
    plan_otherwise(p, what, how,
                   "--net none --net user,net=ADDRESS/BITS, or restrict=on for no way out");
    return "user";
}

static void put_forwards(struct plan *p, xmlNodePtr card, FILE *out, const char *what)
{
    char start[16], end[16], to[16], address[64];
    unsigned n = 0;
    struct in_addr parsed;
    for (xmlNodePtr f = xml_find(card, "portForward"); f; f = xml_next(f)) {
        xml_attribute(f, "address", address, sizeof(address));
        for (xmlNodePtr r = xml_find(f, "range"); r; r = xml_next(r)) {
            u64 from, until, guest;
            xml_attribute(r, "start", start, sizeof(start));
            if (!*xml_attribute(r, "end", end, sizeof(end)))
                strcpy(end, start);
            if (!*xml_attribute(r, "to", to, sizeof(to)))
                strcpy(to, start);
            bool good = xml_number(start, &from) && xml_number(end, &until) &&
                        xml_number(to, &guest) && from && guest && from <= until &&
                        until <= 65535 && guest + (until - from) <= 65535 &&
                        !xml_is(r, "exclude", "yes") && xml_is(f, "proto", "tcp|udp") &&
                        !xml_has(f, "dev") &&
                        (!*address || inet_pton(AF_INET, address, &parsed) == 1);
            if (!good || n + (until - from) >= 16) {
                plan_left(p, what,
                          "one of its <portForward> is none of TCP or UDP ports of an IPv4 "
                          "address, or of too many",
                          "hostfwd= of --net");
                continue;
            }
            for (u64 port = from; port <= until; port++, n++)
                fprintf(out, ",hostfwd=%s:%s:%u-:%u", xml_is(f, "proto", "udp") ? "udp" : "tcp",
                        address, (unsigned)port, (unsigned)(guest + (port - from)));
        }
        if (!xml_find(f, "range"))
            plan_left(p, what, "one of its <portForward> names no ports", "hostfwd= of --net");
    }
}

/* What --net begins with. NULL: no card, and that is told. */
static const char *put_kind(struct plan *p, xmlNodePtr card, FILE *out, const char *what)
{
    char name[64];
    if (xml_is(xml_find(card, "link"), "state", "down"))
        return "unplugged";
    if (xml_is(card, "type", "user")) {
        if (xml_find(card, "ip") || xml_find(card, "source/ip"))
            plan_otherwise(p, what, "the guest's network is 10.0.2.0/24",
                           "--net none --net user,net=ADDRESS/BITS");
        return "user";
    }
    if (xml_is(card, "type", "network"))
        return put_network(p, card, what);
    if (xml_is(card, "type", "ethernet") && xml_is(xml_find(card, "target"), "managed", "no") &&
        *xml_attribute(xml_find(card, "target"), "dev", name, sizeof(name)) && strlen(name) < 16 &&
        !strchr(name, ',')) {
        fprintf(out, "tap,ifname=%s", name);
        return "";
    }
    if (xml_is(card, "type", "bridge|direct|ethernet")) {
        char how[128], type[16];
        xml_attribute(card, "type", type, sizeof(type));
        snprintf(how, sizeof(how),
                 "instead of the host's (%s) it is a network of its own, with a way out", type);
        plan_otherwise(p, what, how, TAP);
        return "user";
    }
    if (xml_is(card, "type", "null")) {
        return "unplugged";
    }
    if (xml_is(card, "type", "internal|server|client|mcast|udp")) {
        plan_otherwise(p, what, "its cable leads nowhere: other machines are not reached so",
                       "a tap device: --net none --net tap,ifname=NAME");
        return "unplugged";
    }
    plan_left(p, what, "devices and programs of the host cannot be a recorded card",
              "--net user, or --net tap,ifname=NAME");
    return NULL;
}

static bool good_mac(const char *mac)
{
    unsigned b[6];
    char end;
    if (strlen(mac) != 17 || sscanf(mac, "%2x:%2x:%2x:%2x:%2x:%2x%c", &b[0], &b[1], &b[2], &b[3],
                                    &b[4], &b[5], &end) != 6)
        return false;
    return !(b[0] & 1) && (b[0] | b[1] | b[2] | b[3] | b[4] | b[5]);
}

static void put_card(struct plan *p, xmlNodePtr card, FILE *out, const char *what)
{
    char mac[32], mtu[16], model[32], how[160];
    u64 n;
    xml_attribute(xml_find(card, "mac"), "address", mac, sizeof(mac));
    if (*mac && good_mac(mac))
        fprintf(out, ",mac=%s", mac);
    else if (*mac)
        plan_otherwise(p, what, "it has another MAC: that one is no station's", "nothing");
    xml_attribute(xml_find(card, "mtu"), "size", mtu, sizeof(mtu));
    if (*mtu && xml_number(mtu, &n) && n >= DESCRIPTION_MTU_MIN && n <= DESCRIPTION_MTU_MAX)
        fprintf(out, ",mtu=%u", (unsigned)n);
    else if (*mtu)
        plan_otherwise(p, what, "its MTU is the usual one: there are those of 576 to 32000",
                       "nothing");
    xml_attribute(xml_find(card, "model"), "type", model, sizeof(model));
    if (!*model || xml_one_of(model, "virtio|virtio-transitional|virtio-non-transitional"))
        return;
    snprintf(how, sizeof(how), "it is a virtio card, and no %s", model);
    plan_otherwise(p, what, how,
                   "nothing, if the guest has virtio_net; its name in the guest may be another");
}

static void take_card(struct plan *p, xmlNodePtr card)
{
    char what[WHAT], *value = NULL;
    size_t size;
    plan_what(card, what, sizeof(what));
    if (p->nets == DESCRIPTION_NETS) {
        plan_left(p, what, "a machine has 4 networks", "leave out another one");
        plan_done(card);
        return;
    }
    FILE *out = open_memstream(&value, &size);
    const char *kind = out ? put_kind(p, card, out, what) : NULL;
    if (kind) {
        fputs(kind, out);
        if (!strcmp(kind, "user"))
            put_forwards(p, card, out, what);
        else if (xml_find(card, "portForward"))
            plan_left(p, what, "no ports are forwarded to it", "--net none --net user,hostfwd=...");
        put_card(p, card, out, what);
    } else {
        plan_done(card);
    }
    if (out)
        fclose(out);
    if (kind && value) {
        plan_option(p, "net", value, what);
        p->nets++;
    }
    free(value);
}

void take_networks(struct plan *p)
{
    for (xmlNodePtr n = xml_find(p->domain, "devices/interface"); n; n = xml_next(n))
        take_card(p, n);
}
