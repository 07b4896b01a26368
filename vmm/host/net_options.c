/* See net_options.h. */
#include "host/net_options.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* A piece of the text that is being read; each reader moves it on, or leaves it and says false. */
struct piece {
    const char *at, *end;
};

static bool next_is(struct piece *p, char c)
{
    if (p->at == p->end || *p->at != c)
        return false;
    p->at++;
    return true;
}

static bool done(const struct piece *p)
{
    return p->at == p->end;
}

static bool number(struct piece *p, u32 max, u32 *out)
{
    u32 v = 0;
    const char *from = p->at, *at = from;
    for (; at < p->end && *at >= '0' && *at <= '9' && at - from < 6; at++)
        v = 10 * v + (u32)(*at - '0');
    if (at == from || v > max || (*from == '0' && at - from > 1))
        return false;
    p->at = at;
    *out = v;
    return true;
}

static bool address(struct piece *p, u32 *out)
{
    struct piece q = *p;
    u32 a = 0, byte;
    for (unsigned i = 0; i < 4; i++) {
        if ((i && !next_is(&q, '.')) || !number(&q, 255, &byte))
            return false;
        a = a << 8 | byte;
    }
    *p = q;
    *out = a;
    return true;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'                 ? c - '0'
           : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                : -1;
}

static struct piece piece(const char *value, size_t n)
{
    return (struct piece){value, value + n};
}

static bool read_mac(const struct part *part, void *field, const char *value, size_t n)
{
    static const u8 none[6];
    struct piece p = piece(value, n);
    u8 *out = field;
    for (unsigned i = 0; i < part->size; i++) {
        if ((i && !next_is(&p, ':')) || p.end - p.at < 2 || hex_digit(p.at[0]) < 0 ||
            hex_digit(p.at[1]) < 0)
            return false;
        out[i] = (u8)(hex_digit(p.at[0]) << 4 | hex_digit(p.at[1]));
        p.at += 2;
    }
    return done(&p) && !(out[0] & 1) && memcmp(out, none, sizeof(none));
}

static bool forward(struct piece *p, struct net_forward *f)
{
    u32 port;
    if (p->end - p->at < 4)
        return false;
    f->udp = !strncmp(p->at, "udp:", 4);
    if (!f->udp && strncmp(p->at, "tcp:", 4))
        return false;
    p->at += 4;
    f->host = 0x7f000001;
    f->guest = 0;
    address(p, &f->host);
    if (!next_is(p, ':') || !number(p, 65535, &port))
        return false;
    f->host_port = (u16)port;
    if (!next_is(p, '-'))
        return false;
    address(p, &f->guest);
    if (!next_is(p, ':') || !number(p, 65535, &port) || !port)
        return false;
    f->guest_port = (u16)port;
    return done(p);
}

static bool read_forward(const struct part *part, void *field, const char *value, size_t n)
{
    struct net_forwards *all = field;
    struct piece p = piece(value, n);
    (void)part; /* its rows count them */
    return forward(&p, &all->at[all->n++]);
}

static bool read_switch(const struct part *part, void *field, const char *value, size_t n)
{
    bool on;
    if (!part_on_off(part, &on, value, n))
        return false;
    *(enum net_switch *)field = on ? NET_ON : NET_OFF;
    return true;
}

static bool read_network(const struct part *part, void *field, const char *value, size_t n)
{
    struct net_network *out = field;
    struct piece p = piece(value, n);
    u32 bits = 24;
    (void)part;
    if (!address(&p, &out->net) || (next_is(&p, '/') && !number(&p, 32, &bits)) || !done(&p))
        return false;
    if (bits < 4 || bits > 27) /* room for what lives in it: .2, .3, .15 and a few guests */
        return false;
    out->mask = ~0u << (32 - bits);
    return !(out->net & ~out->mask);
}

/* Letters, digits and inner hyphens, as in a DNS label (RFC 1123, 2.1). */
static bool read_hostname(const struct part *part, void *field, const char *value, size_t n)
{
    if (!n || value[0] == '-' || value[n - 1] == '-')
        return false;
    for (const char *c = value; c < value + n; c++)
        if (!((*c | 32) >= 'a' && (*c | 32) <= 'z') && !(*c >= '0' && *c <= '9') && *c != '-')
            return false;
    return part_text(part, field, value, n);
}

static bool read_ifname(const struct part *part, void *field, const char *value, size_t n)
{
    for (const char *c = value; c < value + n; c++)
        if (*c <= ' ' || *c > '~' || *c == '/' || *c == ':' || *c == '%')
            return false;
    return part_text(part, field, value, n);
}

static bool read_address(const struct part *part, void *field, const char *value, size_t n)
{
    struct piece p = piece(value, n);
    u32 a;
    (void)part;
    if (!address(&p, &a) || !a || !done(&p))
        return false;
    memcpy(field, &a, sizeof(a));
    return true;
}

enum { USER = 1 << NET_USER, TAP = 1 << NET_TAP };
#define FIELD(field) PART_FIELD(struct net_options, field)

static const struct part rows[] = {
    {"hostfwd", "tcp|udp:[ADDRESS]:PORT-[ADDRESS]:PORT", .of = USER, .most = NET_FORWARDS,
     .help = "may be repeated; from port 0: any free one", .read = read_forward, FIELD(forwards)},
    {"restrict", "on|off", "on or off", .of = USER, .read = read_switch, FIELD(restricted),
     .help = "on: the guest reaches nothing but through hostfwd"},
    {"ipv6", "on|off", "on or off", .of = USER, .read = read_switch, FIELD(ipv6),
     .help = "default: if the host has it"},
    {"net", "ADDRESS[/BITS]", "ADDRESS[/BITS], the network's own, BITS 4 to 27", .of = USER,
     .read = read_network, FIELD(network), .help = "default 10.0.2.0/24"},
    {"dhcpstart", "ADDRESS", "an IPv4 address", .of = USER, .read = read_address, FIELD(dhcp),
     .help = "the guest's"},
    {"dns", "ADDRESS", "an IPv4 address", .of = USER, .read = read_address, FIELD(dns),
     .help = "where the guest asks for names"},
    {"hostname", "NAME", "a name of letters, digits and hyphens", .of = USER, .read = read_hostname,
     FIELD(hostname), .help = "what DHCP calls the guest"},
    {"ifname", "NAME", "the name of a tap device, at most 15 bytes", .of = TAP, .read = read_ifname,
     FIELD(ifname)},
    {"mac", "XX:XX:XX:XX:XX:XX", "XX:XX:XX:XX:XX:XX, one station's address and not all zeros",
     .read = read_mac, FIELD(mac)},
    {"mtu", "N", "a number from 576 to 32000", .read = part_number, FIELD(mtu),
     .least = NET_MTU_MIN, .at_most = NET_MTU_MAX},
};

static const char *const kinds[] = {
    [NET_USER] = "user", [NET_TAP] = "tap", [NET_UNPLUGGED] = "unplugged"};

const struct parts net_parts = {rows, ARRAY_SIZE(rows), kinds, ARRAY_SIZE(kinds)};

char *net_address_text(u32 a, char out[16])
{
    snprintf(out, 16, "%u.%u.%u.%u", a >> 24, a >> 16 & 255, a >> 8 & 255, a & 255);
    return out;
}

/* Addresses that were not given, and that all of them lie in the network. */
static int complete_user(struct net_options *o, struct err *err)
{
    char text[16], net[16];
    o->host = o->network.net | 2;
    if (!o->dns)
        o->dns = o->network.net | 3;
    if (!o->dhcp)
        o->dhcp = o->network.net | 15;
    const struct {
        const char *name;
        u32 address;
    } inside[] = {{"dns", o->dns}, {"dhcpstart", o->dhcp}};
    for (unsigned i = 0; i < ARRAY_SIZE(inside); i++) {
        u32 a = inside[i].address;
        if ((a & o->network.mask) != o->network.net || a == o->network.net ||
            a == (o->network.net | ~o->network.mask))
            return err_set(err, -EINVAL, "--net user: %s=%s is no host's address in the network %s",
                           inside[i].name, net_address_text(a, text),
                           net_address_text(o->network.net, net));
    }
    if (o->dns == o->host || o->dhcp == o->host || o->dns == o->dhcp)
        return err_set(err, -EINVAL,
                       "--net user: host (%s), dns and dhcpstart must be three addresses",
                       net_address_text(o->host, text));
    for (unsigned i = 0; i < o->forwards.n; i++) {
        struct net_forward *f = &o->forwards.at[i];
        if (!f->guest)
            f->guest = o->dhcp;
        if ((f->guest & o->network.mask) != o->network.net)
            return err_set(err, -EINVAL,
                           "--net user: hostfwd to %s, which is not in the guest's network %s",
                           net_address_text(f->guest, text), net_address_text(o->network.net, net));
    }
    return 0;
}

bool net_has_mac(const struct net_options *o)
{
    static const u8 none[6];
    return memcmp(o->mac, none, sizeof(none));
}

int net_options_parse(struct net_options *o, const char *spec, struct err *err)
{
    memset(o, 0, sizeof(*o));
    o->network.net = 0x0a000200;
    o->network.mask = 0xffffff00;
    size_t kind = strcspn(spec, ",");
    for (o->kind = 0; o->kind < ARRAY_SIZE(kinds); o->kind++)
        if (strlen(kinds[o->kind]) == kind && !strncmp(spec, kinds[o->kind], kind))
            break;
    if (o->kind == ARRAY_SIZE(kinds))
        return err_set(err, -EINVAL, "--net: '%.*s' is neither user, tap, unplugged nor none",
                       (int)MIN(kind, (size_t)200), spec);
    int code = parts_read(&net_parts, 1u << o->kind, spec + kind, "", o, err);
    if (code) {
        err_prefix(err, "--net %s", kinds[o->kind]);
        return code;
    }
    if (o->kind == NET_TAP && !*o->ifname)
        return err_set(err, -EINVAL,
                       "--net tap: which tap device? --net tap,ifname=NAME, made by `ip tuntap add "
                       "dev NAME mode tap user $USER`");
    return o->kind == NET_USER ? complete_user(o, err) : 0;
}
